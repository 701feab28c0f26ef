"""Judged pairs, and all that judging them again would need: what a collection keeps."""

from __future__ import annotations

from dataclasses import dataclass

from cdp.consensus.trees import TreeAnswers
from cdp.types import ConsensusGraph, KnnGraph, Pairs, Views
from cdp.types.arrays import LongArray
from cdp.types.run_record import UnsupervisedBar


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
        others: views of the known images that follow the unlabeled ones; None if there are none.
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

    @property
    def candidates(self) -> KnnGraph:
        """The graph whose edges are the candidate pairs."""
        return self.together.nearest(self.k)
