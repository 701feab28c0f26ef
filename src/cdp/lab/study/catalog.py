"""The studies by name and in one sentence; nothing heavy is imported to list them."""

from __future__ import annotations

from types import MappingProxyType

SENTENCES = MappingProxyType(
    {
        "ratio": "Recognition with more and more unlabeled data: clustering, vote, mediator, all true labels.",
        "committee_size": "Pairs and labels by the vote of 0, 2, 4, 6, 8 members at one pair recall.",
        "mediator_inputs": "Pairs and labels by a mediator that hears more and more.",
        "base": "Recognition by four base networks: labeled only, with pseudo-labels, with all labels.",
        "k": "Pairs and labels with 10, 20, 30, 40 neighbors.",
        "heterogeneity": "A committee of one architecture beside one of many, by vote and by mediator.",
        "loss": "What pseudo-labels add under softmax and under ArcFace, at ratio 2.",
        "soft_labels": "Hard labels beside soft ones of several depths and decays, at ratio 2.",
        "rounds": "Labels made once, as in the paper, and again by networks that learned from them.",
        "recall_weight": "Recognition after thresholds that were chosen for recall or for precision.",
        "mistakes": "What it costs that identities are split, and that groups are mixed: labels put right by the truth.",
        "mediator_weights": "What the mediator listens to: first-layer weights and importance of each kind of input.",
        "committee": "Every network by itself, and an ensemble of the best four.",
        "runtime": "Seconds and memory of every step as the number of images grows, and the fitted exponent.",
        "baselines": "Other clustering methods, tuned, beside CDP on the same embeddings.",
    }
)
