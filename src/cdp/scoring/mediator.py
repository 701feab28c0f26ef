"""The mediator: from the committee's opinions about a pair to one doubt (paper, section 3.1.iii)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated, Any, Protocol

import msgspec
import numpy as np
from sklearn.base import clone

from cdp.blocks import spans
from cdp.errors import InputError
from cdp.runtime.memory import rows_within
from cdp.runtime.runtime import Runtime
from cdp.scoring.mlp import BATCH, PaperMLP, doubt_from_logits
from cdp.scoring.paper_features import FeatureSource, extract_features
from cdp.types import Pairs, column_names
from cdp.types.arrays import AnyArray, Artifact, BoolArray, FloatArray, IntArray, LongArray
from cdp.types.opinions import check_inputs

# Fixed, whatever the memory budget: mini-batches and sums would otherwise depend on it.
_PAIRS_PER_BLOCK = 256 * BATCH
_MOST_PAIRS_AT_ONCE = 1_000_000


class PairClassifier(Protocol):
    """Anything with scikit-learn's `fit` and `predict_proba` can be the mediator."""

    def fit(self, X: Any, y: Any) -> Any:
        """Learn from opinions and whether the pair is one identity."""

    def predict_proba(self, X: Any) -> Any:
        """Probability of (different, same) identity."""


class _PaperMLPSettings(msgspec.Struct, forbid_unknown_fields=True):
    hidden: tuple[int, ...]
    learning_rate: float
    random_state: int


class KeptMediator(msgspec.Struct):
    """What the card of a mediator says; its other half are the network's arrays."""

    committee: tuple[str, ...]
    inputs: tuple[str, ...]
    k: Annotated[int, msgspec.Meta(ge=1)]
    network: _PaperMLPSettings
    losses: list[float]
    training: dict[str, float] = {}
    # What earlier cards of this format say: another name for `training`, and a factor that is gone.
    lessons: dict[str, float] = {}
    impostors: float = 1.0

    @staticmethod
    def of(mediator: Mediator) -> tuple[dict[str, AnyArray], dict[str, Any]]:
        """Arrays by name, and the card's settings."""
        network = mediator.classifier
        if not isinstance(network, PaperMLP):
            raise InputError(
                f"A mediator built from {type(network).__name__} cannot be saved without pickle; save its "
                "parameters yourself, or use a built-in mediator.",
                code="mediator-not-savable",
                kind=type(network).__name__,
            )
        arrays = {"center": network.center_, "width": network.width_}
        for number, (layer, bias) in enumerate(network.weights_, start=1):
            arrays |= {f"layer{number}_weights": layer, f"layer{number}_bias": bias}
        settings = {
            "committee": list(mediator.committee),
            "inputs": list(mediator.inputs),
            "k": mediator.k,
            "training": mediator.training,
            "network": {**network.get_params(), "hidden": list(network.hidden)},
            "losses": network.losses_,
        }
        return arrays, settings

    @property
    def arrays(self) -> list[str]:
        """Their names, in order."""
        numbers = range(1, len(self.network.hidden) + 2)
        layers = [f"layer{number}_{part}" for number in numbers for part in ("weights", "bias")]
        return ["center", "width", *layers]

    def restore(self, arrays: Mapping[str, AnyArray]) -> Mediator:
        """Return the mediator again."""
        if self.impostors != 1:
            raise InputError(
                f"this mediator divides its odds by {self.impostors:g}, which this cdp does not do; train it "
                "again.",
                code="mediator-odds-divided",
                value=self.impostors,
            )
        network = PaperMLP(**msgspec.structs.asdict(self.network))
        center, width, *layers = (np.array(arrays[name]) for name in self.arrays)
        sizes = [len(column_names(self.committee, self.inputs)), *network.hidden, 1]
        wanted: list[tuple[int, ...]] = [(sizes[0],)] * 2
        for inputs, outputs in pairwise(sizes):
            wanted += [(inputs, outputs), (outputs,)]
        if [array.shape for array in (center, width, *layers)] != wanted:
            raise InputError(
                "its arrays do not fit its inputs and layers; train this mediator again.",
                code="mediator-arrays-differ",
            )
        network.center_, network.width_ = center, width
        network.weights_ = list(zip(layers[::2], layers[1::2], strict=True))
        network.losses_ = self.losses
        network.classes_ = np.array([0, 1])
        return Mediator(network, self.committee, self.inputs, self.k, self.training or self.lessons)


@dataclass(frozen=True, eq=False)
class Mediator(Artifact):
    """A trained pair classifier, with everything needed to use it on new images.

    A pair has no first image, and the paper does not say which end is n0. Taking the smaller id would make
    the answer depend on how the images happen to be numbered. So the classifier learns from pairs turned at
    random, and its answer about a pair is the mean of its answers for both ways round.

    Attributes:
        classifier: `PaperMLP`, or any fitted classifier with `predict_proba`.
        committee: names of the committee members whose opinions it learned from, in order.
        inputs: the input blocks it learned from.
        k: neighbors per image in the graphs it learned from.
        training: what it was trained on, for the record: number of pairs, share of them positive.

    Examples:
        >>> import numpy as np
        >>> from cdp import CDP
        >>> rng = np.random.default_rng(0)
        >>> X = np.repeat(rng.normal(size=(40, 64)), 6, axis=0) + 0.5 * rng.normal(size=(240, 64))
        >>> model = CDP("paper", inputs=("affinity",)).fit(X, np.repeat(np.arange(40), 6))
        >>> model.mediator_.inputs, model.mediator_.k
        (('affinity',), 20)
    """

    classifier: PairClassifier
    committee: tuple[str, ...]
    inputs: tuple[str, ...]
    k: int
    training: dict[str, float] = field(default_factory=dict)
    Kept = KeptMediator

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", check_inputs(self.inputs))

    @property
    def columns(self) -> list[str]:
        """A name for every input."""
        return column_names(self.committee, self.inputs)

    def __repr__(self) -> str:
        trained = f", trained on {int(self.training['pairs']):,} pairs" if "pairs" in self.training else ""
        return (
            f"Mediator: {len(self.columns)} inputs from base and {len(self.committee)} members, "
            f"k={self.k}{trained}"
        )

    def doubt(self, matrix: FloatArray) -> FloatArray:
        """1 - probability that the pair is one identity, float32 (m,)."""
        if matrix.shape[1] != len(self.columns):
            raise InputError(
                f"The mediator takes {len(self.columns)} inputs, got {matrix.shape[1]}.",
                code="mediator-inputs-differ",
                expected=len(self.columns),
                found=matrix.shape[1],
            )
        turned = turn_pairs(matrix, len(self.committee), self.inputs)
        if isinstance(self.classifier, PaperMLP):
            logits = self.classifier.logits(matrix)
            if turned is not None:
                logits = np.float32(0.5) * (logits + self.classifier.logits(turned))
            return doubt_from_logits(logits)
        doubt = class_doubt(self.classifier, matrix)
        if turned is not None:
            doubt = np.float32(0.5) * (doubt + class_doubt(self.classifier, turned))
        return doubt


def is_more_probable(doubt: AnyArray, threshold: float) -> BoolArray:
    """Return where probability (given as doubt) > threshold, strictly, as in the paper, bool (m,)."""
    # In float64, so that it is strictly greater next to certainty too.
    probable: BoolArray = doubt.astype(np.float64) < 1 - threshold
    return probable


def class_doubt(classifier: PairClassifier, matrix: FloatArray) -> FloatArray:
    """Probability of the class "different", taken as it is given rather than as 1 - the other."""
    classes = [int(kind) for kind in getattr(classifier, "classes_", [0, 1])]
    probabilities = np.asarray(classifier.predict_proba(matrix))
    if classes != [0, 1] or probabilities.shape != (len(matrix), 2):
        raise InputError(
            "The mediator's classifier must have the two classes 0 and 1; its predict_proba gave "
            f"{probabilities.shape} for {len(matrix)} pairs.",
            code="mediator-classes-wrong",
            found=probabilities.shape,
            pairs=len(matrix),
        )
    doubt: FloatArray = np.clip(probabilities[:, 0], 0, 1).astype(np.float32)
    return doubt


def turn_pairs(matrix: FloatArray, n_members: int, inputs: Sequence[str]) -> FloatArray | None:
    """Return the same opinions with first and second image exchanged; None if no input depends on it."""
    if "distribution" not in inputs:
        return None
    n_models = n_members + 1
    sizes = (("relationship", n_members), ("affinity", n_models))
    mean = sum(size for name, size in sizes if name in inputs)
    order = np.arange(matrix.shape[1])
    for block in (mean, mean + 2 * n_models):
        order[block : block + 2 * n_models] = np.roll(order[block : block + 2 * n_models], n_models)
    # Rows side by side, as in the original: some classifiers round differently on another layout.
    turned: FloatArray = np.ascontiguousarray(matrix[:, order])
    return turned


@dataclass(frozen=True, eq=False)
class TrainingPairs:
    """Pairs whose truth is known, among images as one set of networks sees them.

    Attributes:
        source: what opinions are drawn from.
        ids: int32 (m, 2), candidate pairs.
        same: int64 (m,), 1 where both images are one identity.
    """

    source: FeatureSource
    ids: IntArray
    same: LongArray


def select_training_pairs(source: FeatureSource, pairs: Pairs, identities: LongArray) -> TrainingPairs:
    """Return the candidate pairs of a labeled part, positive where both images are one identity."""
    same = (identities[pairs.ids[:, 0]] == identities[pairs.ids[:, 1]]).astype(np.int64)
    return TrainingPairs(source, pairs.ids, same)


def train_mediator(
    parts: Sequence[TrainingPairs],
    classifier: PairClassifier | None = None,
    *,
    seed: int = 0,
    runtime: Runtime | None = None,
) -> Mediator:
    """Train a mediator on pairs of labeled images.

    Several parts, each seen by networks of its own but the same committee, are learned from together: with
    networks that were trained without the images of the part, the mediator learns how they see people they do
    not know.

    `PaperMLP` learns from blocks that are collected again in every epoch if they do not fit the memory budget
    together; its weights do not depend on the budget. Another classifier needs all its pairs at once; of more
    than a million it gets a random sample.

    Args:
        parts: training pairs.
        classifier: None for the paper's MLP; another one is copied, the caller's own stays as it is.
        seed: of the order, of the ends' exchange and of the weights.
        runtime: how it runs; opinions are kept in memory if they fit a quarter of its budget.
    """
    runtime = runtime or Runtime()
    same = np.concatenate([part.same for part in parts])
    _require_two_classes(same)
    source = parts[0].source
    block = _PairBlocks(parts, same, runtime)
    if classifier is None:
        fitted: PairClassifier = PaperMLP(random_state=seed).fit_batches(block.shuffled, runtime.progress)
    else:
        fitted = clone(classifier, safe=False)
        generator = np.random.default_rng(seed)
        rows = np.arange(len(same))
        if len(rows) > _MOST_PAIRS_AT_ONCE:
            rows = np.sort(generator.choice(len(rows), _MOST_PAIRS_AT_ONCE, replace=False))
        fitted.fit(*block.with_random_ends(rows, generator))
    return Mediator(
        fitted,
        committee=tuple(source.views.committee),
        inputs=source.inputs,
        k=source.graphs[0].k,
        training={"pairs": len(same), "positive": float(same.mean())},
    )


def _require_two_classes(same: LongArray) -> None:
    if same.min(initial=1) != same.max(initial=0):
        return
    kind, way_out = (
        ("one identity", "Give more identities.")
        if same.all()
        else (
            "two identities",
            "Give identities with several images each, or check that rows and identities match.",
        )
    )
    raise InputError(
        f"The mediator cannot learn: all {len(same):,} candidate pairs of the labeled part are of {kind}. "
        f"{way_out}",
        code="mediator-pairs-one-sided",
        pairs=len(same),
    )


class _PairBlocks:
    """The opinions about training pairs, block by block; kept if all of them fit the budget."""

    def __init__(self, parts: Sequence[TrainingPairs], same: LongArray, runtime: Runtime) -> None:
        self._parts = parts
        self._same = same
        self._starts = np.cumsum([0, *(len(part.ids) for part in parts)])
        fits = 4 * len(same) <= rows_within(runtime.settings.memory_budget, parts[0].source.bytes_per_pair)
        self._everything = self._extract(np.arange(len(same))) if fits else None

    def _extract(self, rows: LongArray) -> FloatArray:
        source = self._parts[0].source
        n_columns = len(column_names(tuple(source.views.committee), source.inputs))
        matrix = np.empty((len(rows), n_columns), np.float32)
        for part, start, stop in zip(self._parts, self._starts, self._starts[1:], strict=False):
            here = (rows >= start) & (rows < stop)
            opinions = extract_features(part.source, part.ids[rows[here] - start])
            matrix[here] = opinions.matrix(source.inputs)
        return matrix

    def with_random_ends(
        self, rows: LongArray, generator: np.random.Generator
    ) -> tuple[FloatArray, LongArray]:
        """Return opinions of pairs with randomly exchanged images, and whether each pair is genuine."""
        matrix: FloatArray = self._extract(rows) if self._everything is None else self._everything[rows]
        source = self._parts[0].source
        turned = turn_pairs(matrix, len(source.views.committee), source.inputs)
        if turned is not None:
            matrix = np.where(generator.random(len(rows))[:, None] < 0.5, matrix, turned)
        return matrix, self._same[rows]

    def shuffled(self, generator: np.random.Generator) -> Iterator[tuple[FloatArray, LongArray]]:
        """One pass over all pairs in random order."""
        order = generator.permutation(len(self._same))
        for start, stop in spans(len(order), _PAIRS_PER_BLOCK):
            yield self.with_random_ends(order[start:stop], generator)
