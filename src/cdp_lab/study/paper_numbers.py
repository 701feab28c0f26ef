"""The paper's own numbers (ECCV 2018), as printed, to compare with a study's."""

from __future__ import annotations

from cdp_lab.study.design import Paper


def _paper(source: str, table: str, note: str = "", words: int = 1) -> Paper:
    """Return a table of the paper from its lines: a header, then rows, cells divided by `|`."""
    header, *rows = (tuple(cell.strip() for cell in line.split("|")) for line in table.strip().splitlines())
    return Paper(source, header, tuple(rows), note, words)


# fmt: off
K = _paper("Table k", """
    k  | accepted pairs | pair recall | pair precision | pairwise recall | pairwise precision
    10 | 1.61M          | 0.601       | 0.985          | 0.810           | 0.940
    20 | 2.54M          | 0.527       | 0.983          | 0.825           | 0.912
    30 | 2.96M          | 0.507       | 0.982          | 0.834           | 0.886
    40 | 3.17M          | 0.464       | 0.982          | 0.837           | 0.874
    """, "Validation part; threshold 0.96.")

COMMITTEE_SIZE = _paper("Table ablation, voting", """
    members    | accepted pairs | pair recall | pair precision | pairwise recall | pairwise precision
    clustering | –              | –           | –              | 0.558           | 0.950
    0          | 1.4M           | 0.313       | 0.966          | 0.680           | 0.829
    2          | 1.4M           | 0.313       | 0.986          | 0.783           | 0.849
    4          | 1.4M           | 0.313       | 0.987          | 0.791           | 0.862
    6          | 1.4M           | 0.313       | 0.984          | 0.801           | 0.877
    8          | 1.4M           | 0.313       | 0.979          | 0.807           | 0.876
    """)

MEDIATOR_INPUTS = _paper("Table ablation, mediator", """
    inputs | accepted pairs | pair recall | pair precision | pairwise recall | pairwise precision
    relationship | 1.4M | 0.318 | 0.975 | 0.825 | 0.822
    relationship + affinity | 2.5M | 0.561 | 0.982 | 0.832 | 0.888
    relationship + affinity + distribution | 2.4M | 0.527 | 0.983 | 0.825 | 0.912
    """, "Eight members.")

HETEROGENEITY = _paper("Table heterogeneity", """
    committee | by | accepted pairs | pair recall | pair precision | pairwise recall | pairwise precision
    one architecture | vote | 1.93M | 0.368 | 0.648 | 0.746 | 0.681
    one architecture | mediator | 2.46M | 0.508 | 0.853 | 0.798 | 0.831
    different architectures | vote | 1.41M | 0.313 | 0.979 | 0.807 | 0.876
    different architectures | mediator | 2.54M | 0.527 | 0.983 | 0.825 | 0.912
    """, "One architecture: eight ResNet50 trained with different data orders.", words=2)

MEDIATOR_WEIGHTS = _paper("Fig. weights", """
    kind of input        | what the paper says
    relationship         | contributes less
    affinity             | contributes more
    distribution: mean   | contributes more
    distribution: spread | contributes less
    """, "From a picture of the 50 × 53 weights of the first layer; no numbers are given.", words=2)

RATIO = _paper("Fig. curves, and the numbers in the text", """
    ratio | labels       | MegaFace rank-1 | IJB-A TPR at FPR 0.001
    0     | labeled only | 61.78           | 75.87
    2     | mediator     | 70.51           | 85.6
    2     | all labels   | 71.5            | 84.07
    10    | mediator     | 78.18           | 90.64
    10    | all labels   | 78.52           | 89.40
    """, "The curves of clustering, which lies far below, and of voting, which lies below the "
        "mediator, are printed "
       "without numbers.", words=2)

BASE = _paper("Table varybase", """
    base                | labels        | MegaFace rank-1 | IJB-A TPR at FPR 0.001
    ResNet18            | labeled only  | 51.48           | 69.23
    ResNet18            | pseudo-labels | 72.75           | 86.23
    ResNet18            | all labels    | 73.88           | 85.08
    ResNet50            | labeled only  | 56.16           | 73.12
    ResNet50            | pseudo-labels | 75.66           | 88.34
    ResNet50            | all labels    | 77.13           | 87.92
    Tiny NASNet-A       | labeled only  | 61.78           | 75.87
    Tiny NASNet-A       | pseudo-labels | 78.18           | 90.64
    Tiny NASNet-A       | all labels    | 78.52           | 89.40
    Inception-ResNet V2 | labeled only  | 58.68           | 75.13
    Inception-ResNet V2 | pseudo-labels | 81.88           | 92.07
    Inception-ResNet V2 | all labels    | 84.74           | 91.90
    """, words=2)

LOSS = _paper("Table arcface", """
    loss    | labels        | MegaFace rank-1
    softmax | labeled only  | 61.78
    softmax | pseudo-labels | 70.51
    arcface | labeled only  | 76.93
    arcface | pseudo-labels | 83.68
    """, "Ratio 2; ArcFace on a cleaner training set.", words=2)

SOFT_LABELS = _paper("Table softlabel", """
    labels              | MegaFace rank-1 | IJB-A TPR at FPR 0.001
    hard (depth 0)      | 70.51           | 85.6
    depth 3, decay 0.2  | 71.21           | 86.70
    depth 3, decay 0.5  | 70.58           | 85.78
    depth 5, decay 0.2  | 70.66           | 86.11
    depth 5, decay 0.5  | 71.48           | 85.52
    depth 5, decay 0.8  | 70.59           | 85.50
    depth 10, decay 0.2 | 70.32           | 86.69
    all labels          | 71.5            | 84.07
    """, "Ratio 2.")

COMMITTEE = _paper("Table committee", """
    network              | MegaFace rank-1 | IJB-A TPR at FPR 0.001 | parameters
    Tiny NASNet-A (base) | 61.78           | 75.87                  | 20.1M
    VGG16                | 50.22           | 70.75                  | 75.6M
    ResNet18             | 51.48           | 69.23                  | 23.5M
    ResNet34             | 52.44           | 72.52                  | 33.6M
    Inception V3         | 52.82           | 75.53                  | 33.0M
    ResNet50             | 56.16           | 73.21                  | 36.3M
    ResNet101            | 57.87           | 74.52                  | 55.3M
    Inception-ResNet V2  | 58.68           | 75.13                  | 66.1M
    DenseNet121          | 60.77           | 69.78                  | 28.9M
    ensemble of four     | 69.86           | 76.97                  | –
    """, "The text gives 68.86 for the ensemble.")

RUNTIME = _paper("Efficiency and Scalability", """
    step                   | time for a million images
    k-NN graphs            | 4 min on a CPU with 48 processors
    committee and mediator | 2 min on eight GPUs
    propagation            | 2 min on one CPU
    """, "The runtime is said to grow linearly with the number of unlabeled images.", words=2)
