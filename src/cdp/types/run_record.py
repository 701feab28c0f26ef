"""`run.json`: the typed record of a finished run; what was not measured is None or empty."""

from __future__ import annotations

from typing import Any

import msgspec

from cdp.types.softness import Softness

RUN_FORMAT = 1


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """A share with its 95 % interval."""

    value: float | None = None
    low: float | None = None
    high: float | None = None


class RateFigure(Figure, frozen=True, kw_only=True):
    """A true positive rate at a false positive rate."""

    fpr: float


class RecognitionFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Rank-1 identification, TPR at several FPR of pairs of probes, and of pairs of templates as in IJB-A."""

    rank1: Figure = Figure()
    tpr: list[RateFigure] = []
    templates: list[RateFigure] = []


class ModelFigures(RecognitionFigures, frozen=True, kw_only=True):
    """The base network after one way of training.

    Attributes:
        key: `labeled`, `cdp` or `all`.
        title: what it was trained on, in words.
        images: how many images it was trained on.
    """

    key: str
    title: str
    images: int | None = None


class Headline(msgspec.Struct, frozen=True, kw_only=True):
    """Recognition without pseudo-labels, with them, and with all true labels; `gap_closed` needs all three.

    Attributes:
        models: the three, as far as they were trained.
        network: what all of them are.
        probes: number of probe images; None if there are none.
        distractors: number of distractor images; None if there are none.
        template_images: number of images that templates are made of; None if there is no such protocol.
        gap_closed: share of the gap between the first and the last that the second closes.
    """

    models: list[ModelFigures]
    network: str = "one network"
    probes: int | None = None
    distractors: int | None = None
    template_images: int | None = None
    gap_closed: RecognitionFigures | None = None


class Score(msgspec.Struct, frozen=True, kw_only=True):
    """Precision, recall and their harmonic mean; None where nothing could be counted (0/0)."""

    precision: float | None = None
    recall: float | None = None
    f: float | None = None

    def weighted(self, beta: float) -> float:
        """F-beta; 0 where nothing was counted."""
        precision, recall = self.precision or 0.0, self.recall or 0.0
        total = beta**2 * precision + recall
        return (1 + beta**2) * precision * recall / total if total else 0.0


class GroupScores(msgspec.Struct, frozen=True, kw_only=True):
    """Groups against true identities, over pairs of images and averaged over images."""

    pairwise: Score = Score()
    bcubed: Score = Score()
    images: int | None = None
    groups: int | None = None
    identities: int | None = None
    nmi: float | None = None


class PairScores(msgspec.Struct, frozen=True, kw_only=True):
    """Accepted pairs against true identities.

    A candidate pair is accepted if it passed the threshold (grouping by components), or if its two images
    ended in one group (average linkage).
    """

    candidates: int
    accepted: int
    true_candidates: int | None = None
    precision: float | None = None
    recall: float | None = None

    @property
    def f(self) -> float | None:
        """The harmonic mean of precision and recall."""
        if not self.precision or not self.recall:
            return None
        return 2 * self.precision * self.recall / (self.precision + self.recall)


class TrueFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What only the true identities of unlabeled images tell; images without one do not count.

    Attributes:
        identities_true: true identities among the images.
        identities_true_shared: those with at least two images, the only ones that can be found.
        images: images with a known identity.
        coverage: share of them that carry a label.
        sizes: images per true identity, largest first.
        sizes_found: images per pseudo-identity, largest first.
        pairs: the accepted pairs, if they are known.
        discards_kept: every discarded image counts as a group of one.
        discards_removed: discarded images are left out.
    """

    identities_true: int
    identities_true_shared: int
    identities_found: int | None = None
    images: int | None = None
    coverage: float | None = None
    sizes: list[int] = []
    sizes_found: list[int] = []
    pairs: PairScores | None = None
    discards_kept: GroupScores = GroupScores()
    discards_removed: GroupScores = GroupScores()


class LabelFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The labels of one round.

    Attributes:
        threshold_kind: what the threshold was compared with: `mean probability`, `probability`, `similarity`
            or `z-score`.
        threshold: given, chosen on labeled identities, or estimated without labels.
        coverage: share of the unlabeled images with a label.
        statuses: name of a `Status` in small letters -> number of images.
        sizes: images per pseudo-identity, in any order.
        true: None if no true identity is known.
    """

    coverage: float
    identities_found: int
    threshold_kind: str = "probability"
    threshold: float | None = None
    statuses: dict[str, int] = {}
    sizes: list[int] = []
    true: TrueFigures | None = None


class TuningPoint(Score, frozen=True, kw_only=True):
    """What one threshold gives on the validation part."""

    threshold: float
    coverage: float | None = None


class Tuning(msgspec.Struct, frozen=True, kw_only=True):
    """The thresholds tried and the one chosen.

    By F-beta, or with a `min_precision` by recall among those that reach it.
    """

    chosen: float
    curve: list[TuningPoint] = []
    beta: float = 1.0
    min_precision: float | None = None


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """Quality expected from labeled images among the others: pairwise precision and recall, and coverage.

    Attributes:
        identities: number of labeled identities; the intervals are over them.
    """

    identities: int
    precision: Figure = Figure()
    recall: Figure = Figure()
    coverage: Figure = Figure()


class EstimatePoint(msgspec.Struct, frozen=True, kw_only=True):
    """What to expect at one threshold, without labels.

    Attributes:
        threshold: a z-score.
        precision: expected share of the pairs in groups that are genuine.
    """

    threshold: float
    precision: float


class ThresholdEstimate(msgspec.Struct, frozen=True, kw_only=True):
    """The threshold that was estimated without labels, and how sure that is.

    Attributes:
        chosen: a z-score.
        softness: scales of the logistic function from z-score to probability, where merges say it.
        share_above: share of all pairs of images that are more similar; None where only copies are joined.
        precision: expected share of the pairs in groups that are genuine; None where there are too few groups
            to say.
        curve: estimates at other thresholds; empty where no pair is more similar than impostors.
    """

    chosen: float
    softness: Softness | None = None
    share_above: float | None = None
    precision: float | None = None
    curve: list[EstimatePoint] = []


class CalibrationBin(msgspec.Struct, frozen=True, kw_only=True):
    """Pairs of similar probability: their number, mean probability and share of genuine pairs."""

    pairs: int
    probability: float
    same: float


class Importance(msgspec.Struct, frozen=True, kw_only=True):
    """Drop in average precision when an input block is shuffled: mean and sd over repeats.

    The drop is about 0 or slightly below if the block is not needed.
    """

    block: str
    drop: float | None = None
    sd: float | None = None


class MediatorFigures(msgspec.Struct, frozen=True, kw_only=True):
    """What a fitted mediator reads and needs.

    Attributes:
        columns: a name per input.
        blocks: kind of input -> its columns.
        training_pairs: number of pairs it was fitted on, and the share of positive ones.
        importance: empty if no true identity is known.
    """

    columns: list[str]
    blocks: dict[str, list[int]]
    training_pairs: dict[str, float] = {}
    importance: list[Importance] = []


class Member(RecognitionFigures, frozen=True, kw_only=True):
    """One model by itself; `role` is `base` or `member`.

    Attributes:
        name: of the model.
        role: its part.
        parameters: how many its network has.
        edge_precision: share of neighbors in its k-NN graph that show the same identity.
        graph_recall: share of the true neighbors in its graph, on a sample; None if the search was exact.
        same_identity_recall: the same of true neighbors of the same identity, on labeled images.
    """

    name: str
    role: str = "member"
    parameters: int | None = None
    edge_precision: float | None = None
    graph_recall: float | None = None
    same_identity_recall: float | None = None


class Ensemble(RecognitionFigures, frozen=True, kw_only=True):
    """The best networks together."""

    names: list[str]


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """Share of the edges of the row's graph that are edges of the column's graph too."""

    names: list[str]
    matrix: list[list[float | None]]

    def __post_init__(self) -> None:
        if {len(self.names)} != {len(self.matrix), *map(len, self.matrix)}:
            raise ValueError(f"a matrix of {len(self.names)} rows and columns is needed, one per name")


class Committee(msgspec.Struct, frozen=True, kw_only=True):
    """Every model by itself, and how often two of them see the same edges."""

    members: list[Member] = []
    ensemble: Ensemble | None = None
    agreement: Agreement | None = None


class Results(msgspec.Struct, frozen=True, kw_only=True):
    """Everything measured. Only labels are always there.

    Attributes:
        headline: None without networks or probe images.
        tuning: None if the threshold was given.
        expected: None if there is no labeled image among the unlabeled ones.
        unsupervised: how the threshold was chosen without labels; else None.
        calibration: of the pairs' probabilities, on the same labeled images.
        mediator: None if nothing was fitted, as for a vote.
        earlier_rounds: labels of the rounds before the last, in order.
        committee: None if nothing is known about single models.
    """

    labels: LabelFigures
    headline: Headline | None = None
    tuning: Tuning | None = None
    expected: Expectation | None = None
    unsupervised: ThresholdEstimate | None = None
    calibration: list[CalibrationBin] = []
    mediator: MediatorFigures | None = None
    earlier_rounds: list[LabelFigures] = []
    committee: Committee | None = None


class PartRecord(msgspec.Struct, frozen=True, kw_only=True):
    """How many images a part has, and of how many identities, where known."""

    images: int
    identities: int | None = None


class StageRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One stage of a run.

    Attributes:
        group: stages of one kind, which the report adds up.
        seconds: of the call that made it, now or earlier.
        peak_memory: bytes.
        fresh: kept from an earlier call.
        key: hash of the settings and artifacts that it is made from.
        made: artifact -> hash.
        steps: seconds of inner steps, such as graphs, mediator, consensus, groups.
    """

    name: str
    group: str = ""
    seconds: float = 0.0
    peak_memory: int | None = None
    fresh: bool = False
    key: str = ""
    made: dict[str, str] = {}
    steps: dict[str, float] = {}


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A finished run.

    Attributes:
        started: time in ISO 8601.
        seconds: of all stages together.
        recipe: every setting, by section.
        recipe_text: the same as TOML.
        differences: key -> value of the settings that are not at their defaults.
        commit: of the source code, if it is a checkout.
        device: what networks and exact search ran on, e.g. `cpu` or `cuda:0`.
        parts: labeled, unlabeled, validation, probes, distractors, as far as there are such.
        notes: a sentence for each thing that was left out or is out of the ordinary, and why.
    """

    results: Results
    kind: str = "Run"
    format: int = RUN_FORMAT
    cdp: str = ""
    command: str = ""
    started: str = ""
    seconds: float | None = None
    recipe: dict[str, Any] = {}
    recipe_text: str = ""
    differences: dict[str, Any] = {}
    versions: dict[str, str] = {}
    commit: str | None = None
    cores: int | None = None
    device: str | None = None
    seed: int | None = None
    parts: dict[str, PartRecord] = {}
    stages: list[StageRecord] = []
    notes: list[str] = []
