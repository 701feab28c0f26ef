"""The studies by name: a sentence each to list them, which imports nothing heavy, and the study itself."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

from cdp.errors import InputError

if TYPE_CHECKING:
    from cdp_lab.study.design import Study

SENTENCES = MappingProxyType(
    {
        "ratio": (
            "Recognition with more and more unlabeled data: clustering, vote, mediator, all true labels."
        ),
        "committee_size": "Pairs and labels by the vote of 0, 2, 4, 6, 8 members at one pair recall.",
        "mediator_inputs": "Pairs and labels by a mediator with more and more inputs.",
        "base": "Recognition by four base networks: labeled only, with pseudo-labels, with all labels.",
        "k": "Pairs and labels with 10, 20, 30, 40 neighbors.",
        "heterogeneity": "A committee of one architecture and one of many, by vote and by mediator.",
        "loss": "What pseudo-labels add under softmax and under ArcFace, at ratio 2.",
        "soft_labels": "Hard labels compared with soft ones of several depths and decays, at ratio 2.",
        "rounds": "Labels made once, as in the paper, and again by networks that learned from them.",
        "recall_weight": "Recognition after thresholds that were chosen for recall or for precision.",
        "mistakes": "What split identities and mixed groups cost recognition: oracle-corrected labels.",
        "mediator_weights": (
            "Which inputs the mediator uses: first-layer weights and importance of each kind."
        ),
        "committee": "Every network by itself, and an ensemble of the best four.",
        "runtime": "Seconds and memory of every step as the number of images grows, and the fitted exponent.",
        "baselines": "Other clustering methods, tuned, compared with CDP on the same embeddings.",
    }
)


def find_study(name: str) -> Study:
    """Return the study of a name."""
    from cdp.settings import did_you_mean
    from cdp_lab.study import cost_studies, label_studies, network_studies

    if name not in SENTENCES:
        raise InputError(
            f"No study is called {name}.{did_you_mean(name, list(SENTENCES))} `cdp-lab study list` names "
            "all.",
            code="study-unknown",
            study=name,
        )
    studies = (*network_studies.STUDIES, *label_studies.STUDIES, *cost_studies.STUDIES)
    return next(study for study in studies if study.name == name)
