"""What labeling gives: labels with everything that belongs to them, and judged pairs with all that judging them again would need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from scipy import sparse

from cdp.scoring.mediator import Mediator
from cdp.scoring.settings import ConsensusSettings
from cdp.scoring.trees import TreeAnswers
from cdp.types import ConsensusGraph, KnnGraph, Labels, Pairs, Views
from cdp.types.arrays import BoolArray, LongArray
from cdp.types.run_record import CalibrationBin, Expectation, Tuning, UnsupervisedBar


@dataclass(frozen=True, eq=False)
class Judged:
    """Pairs of all images, known ones among them and after the others, as they were judged.

    Attributes:
        scored: the pairs that may count when groups are made.
        graphs: by model, base first; with trees the lists have 2k neighbors.
        together: the graph of all models together; that of the base where pairs are not judged by trees.
        k: so many neighbors of `together` are candidates.
        known: int64 (n,), identities that were looked at, -1 elsewhere.
        pairs: all candidates, if they are kept; with trees only.
        answers: trees and what they said about them, if they are kept.
        unsupervised: how the bar was chosen where nobody is known; else None.
        others: views of all known images, of which those follow the unlabeled ones that `share` says; None if there are none.
        share: of the known images that are used (`known_density.use_share`).
    """

    scored: ConsensusGraph
    graphs: dict[str, KnnGraph]
    together: KnnGraph
    k: int
    known: LongArray
    pairs: Pairs | None = None
    answers: TreeAnswers | None = None
    unsupervised: UnsupervisedBar | None = None
    others: Views | None = None
    share: float = 1.0

    @property
    def candidates(self) -> KnnGraph:
        """The graph whose edges are the candidate pairs."""
        return self.together.nearest(self.k)


@dataclass(frozen=True, eq=False)
class Labeling:
    """Labels with everything that belongs to them.

    Attributes:
        labels: the pseudo-identities.
        accepted: the accepted pairs.
        scored: all pairs that count when groups are made, accepted or not.
        soft_labels: float32 (n, C) sparse, or None if not asked for.
        graphs: k-NN graphs by model, base first.
        mediator: None for a vote.
        tuning: None if the bar was given.
        expected: what known images among the others say of the labels; None if there are none.
        unsupervised: how the bar was chosen where nobody is known; else None.
        calibration: how often pairs of one probability are one identity, on the same images.
        settings: with the bar that was used.
        candidates: the graph whose edges are the candidate pairs: the base's, or with trees that of all models together.
        validation: bool (n,): images whose identities were used to choose the bar or to train the mediator; figures
            leave them out.
        judged: pairs of all images, known ones among them, if asked for.
        seconds: by step.
        notes: a sentence for each thing that was left out or is out of the ordinary.
        same_identity_recall: by model, of the true neighbors of the same identity the share that an approximate graph has,
            measured on known images.
    """

    labels: Labels
    accepted: ConsensusGraph
    scored: ConsensusGraph
    soft_labels: sparse.csr_array | None
    graphs: dict[str, KnnGraph]
    mediator: Mediator | None
    tuning: Tuning | None
    expected: Expectation | None
    unsupervised: UnsupervisedBar | None
    calibration: list[CalibrationBin]
    settings: ConsensusSettings
    candidates: KnnGraph
    validation: BoolArray
    seconds: dict[str, float]
    notes: tuple[str, ...]
    judged: Judged | None = None
    same_identity_recall: Mapping[str, float] = field(default_factory=dict)
