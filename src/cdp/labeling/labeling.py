"""`Labeling`: labels with everything that belongs to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from scipy import sparse

from cdp.scoring.mediator import Mediator
from cdp.scoring.scored_pairs import ScoredPairs
from cdp.scoring.settings import ConsensusSettings
from cdp.types import ConsensusGraph, KnnGraph, Labels, Views
from cdp.types.arrays import BoolArray
from cdp.types.run_record import CalibrationBin, Expectation, ThresholdEstimate, Tuning


class FirstLists(Mapping[str, KnnGraph]):
    """Graphs of the first images by model, cut out of the graphs of all images when they are asked for.

    Attributes:
        whole: graphs of all images by model.
    """

    def __init__(self, whole: Mapping[str, KnnGraph], cut: Callable[[KnnGraph], KnnGraph]) -> None:
        self.whole = whole
        self._cut = cut
        self._found: dict[str, KnnGraph] = {}

    def __getitem__(self, name: str) -> KnnGraph:
        if name not in self._found:
            self._found[name] = self._cut(self.whole[name])
        return self._found[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.whole)

    def __len__(self) -> int:
        return len(self.whole)

    def __reduce__(self) -> tuple[type[dict[str, KnnGraph]], tuple[dict[str, KnnGraph]]]:
        return dict, (dict(self),)


@dataclass(frozen=True, eq=False)
class Labeling:
    """Labels with everything that belongs to them.

    Attributes:
        labels: the pseudo-identities.
        settings: of section 3.1, as they were used.
        threshold: given, chosen on labeled identities, or estimated without labels.
        accepted: the accepted pairs.
        scored: all pairs that count when groups are made, accepted or not.
        soft_labels: float32 (n, C) sparse, or None if not asked for.
        graphs: k-NN graphs by model, base first.
        candidate_lists: only the graph whose edges are the candidate pairs: the base's, or that of all models
            fused.
        mediator: the paper's, if it scored the pairs.
        tuning: how the threshold was chosen on labeled identities; None if it was not.
        estimate: how the threshold was estimated without labels; None if it was not.
        expected: what labeled images among the others say of the labels; None if there are none.
        calibration: how often pairs of one probability are genuine, on the same images.
        validation: bool (n,): images whose identities were used to choose the threshold or to train; figures
            leave them out.
        seconds: by step.
        notes: a sentence for each thing that was left out or is out of the ordinary.
        same_identity_recall: by model, recall of an approximate graph among neighbors with the same identity.
        kept: scored pairs of all images, labeled ones among them, if asked for.
        joined: labeled images that were joined with the unlabeled ones; None if there were none.
        share: of the joined images that were used (`density_matching.use_share`).
    """

    labels: Labels
    settings: ConsensusSettings
    threshold: float
    accepted: ConsensusGraph
    scored: ConsensusGraph
    soft_labels: sparse.csr_array | None
    graphs: Mapping[str, KnnGraph]
    candidate_lists: Mapping[str, KnnGraph]
    mediator: Mediator | None
    tuning: Tuning | None
    estimate: ThresholdEstimate | None
    expected: Expectation | None
    calibration: list[CalibrationBin]
    validation: BoolArray
    seconds: dict[str, float]
    notes: tuple[str, ...]
    same_identity_recall: Mapping[str, float] = field(default_factory=dict)
    kept: ScoredPairs | None = None
    joined: Views | None = None
    share: float = 1.0

    @property
    def candidates(self) -> KnnGraph:
        """The graph whose edges are the candidate pairs."""
        return next(iter(self.candidate_lists.values()))


def whole_graphs(graphs: Mapping[str, KnnGraph]) -> list[KnnGraph]:
    """Return graphs with the lists of all images: joined ones follow the others."""
    return list((graphs.whole if isinstance(graphs, FirstLists) else graphs).values())
