"""Gradient boosting of pair features, trained among the unlabeled images, in two passes. Not in the paper.

Labeled and unlabeled images are in one graph. A candidate pair of two labeled images is a training pair; so
is a pair of a labeled and an unlabeled image, as an impostor: nearly all are, also where some unlabeled
images show labeled people, and without them training pairs would hold far too few impostors. Scores of pairs
with a labeled image are cross-fitted: they come from classifiers that did not
see the identity's fold, so that thresholds and the second pass are not misled by overfitting.

Pairs decided by corrections are training pairs too, with a weight: people look at doubtful pairs, which
labeled images have few of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from cdp.blocks import PAIRS_PER_BLOCK, spans
from cdp.errors import InputError
from cdp.runtime.checkpoint import Checkpoint
from cdp.runtime.kernels import kernel
from cdp.runtime.runtime import Runtime
from cdp.scoring.adjacency import build_adjacency
from cdp.scoring.boosting import BoostedTrees, grow_trees
from cdp.scoring.second_order import COLUMNS, second_order
from cdp.scoring.tree_features import TreeFeatureSource, extract_tree_features
from cdp.types import Pairs
from cdp.types.arrays import AnyArray, BoolArray, DoubleArray, FloatArray, IntArray, LongArray
from cdp.types.constraints import Constraints, what_is_said

FoldArray: TypeAlias = npt.NDArray[np.int8]
Rows: TypeAlias = slice | LongArray

FOLDS = 3
PASSES = 2
"""Later passes add second-order features of the scores before; a third changes nothing measurable (`python -m
benchmarks presets`)."""

CORRECTION_WEIGHT = 10.0
"""Number of training pairs that a pair decided by a correction counts for."""

_MOST_TRAINING_PAIRS = 30_000


@dataclass(frozen=True, eq=False)
class LabeledPairs:
    """What is known of the candidate pairs: by image, and of the pairs that corrections decide.

    Attributes:
        fold: int8 (n,), the fold of every image's identity; -1 = unlabeled.
        identities: int64 (n,), negative where unlabeled.
        confirmed: int64, rows of the pairs that corrections decide, ascending.
        confirmed_same: bool, which of those are genuine.
        weight: number of training pairs that a confirmed one counts for.
    """

    fold: FoldArray
    identities: LongArray
    confirmed: LongArray
    confirmed_same: BoolArray
    weight: float = 1.0

    def same(self, ids: IntArray, rows: LongArray) -> BoolArray:
        """Return whether the pairs `ids` of some rows are genuine, as far as is known."""
        one, other = self.identities[ids].T
        same: BoolArray = (one >= 0) & (one == other)
        at = np.searchsorted(self.confirmed, rows)
        found = np.flatnonzero(at < len(self.confirmed))
        found = found[self.confirmed[at[found]] == rows[found]]
        same[found] = self.confirmed_same[at[found]]
        return same

    def training_rows(self, pairs: Pairs, fold: int) -> Iterator[LongArray]:
        """Yield rows of training pairs without an identity of the fold, block by block."""
        bounds = np.searchsorted(self.confirmed, [*range(0, len(pairs), PAIRS_PER_BLOCK), len(pairs)])
        for (start, stop), first, last in zip(
            spans(len(pairs), PAIRS_PER_BLOCK), bounds[:-1], bounds[1:], strict=True
        ):
            is_taken = np.zeros(stop - start, np.bool_)
            said = self.confirmed[first:last] - start
            is_taken[said] = True
            _mark_training(pairs.ids[start:stop], self.fold, fold, is_taken)
            yield start + np.flatnonzero(is_taken)


@kernel
def _mark_training(ids: IntArray, fold_of: FoldArray, fold: int, is_taken: BoolArray) -> None:
    """Mark pairs with a labeled image, and unmark those with an image of the fold."""
    for row in range(len(ids)):
        one, other = fold_of[ids[row, 0]], fold_of[ids[row, 1]]
        if one == fold or other == fold:
            is_taken[row] = False
        elif one >= 0 or other >= 0:
            is_taken[row] = True


def label_pairs(
    pairs: Pairs,
    identities: LongArray,
    *,
    seed: int,
    constraints: Constraints | None = None,
    weight: float = CORRECTION_WEIGHT,
) -> LabeledPairs:
    """Assign folds to the identities, and find the candidate pairs that corrections decide.

    Args:
        pairs: candidates.
        identities: int64 (n,), negative where unlabeled.
        seed: of the folds.
        constraints: corrections; pairs that they decide become training pairs.
        weight: of such a pair; 0 = they become none.
    """
    known = identities >= 0
    people, person = np.unique(identities[known], return_inverse=True)
    fold = np.full(len(identities), -1, np.int8)
    fold[known] = (np.random.default_rng([seed, 6]).permutation(len(people)) % FOLDS)[person]
    confirmed, same = [np.empty(0, np.int64)], [np.empty(0, np.bool_)]
    if constraints is not None and len(constraints) > 0 and weight > 0:
        say = what_is_said(constraints.among(pairs.n_images))
        for start, stop in spans(len(pairs), PAIRS_PER_BLOCK):
            said = say(pairs.ids[start:stop])
            confirmed.append(start + np.flatnonzero(said))
            same.append(said[said != 0] > 0)
    return LabeledPairs(fold, identities, np.concatenate(confirmed), np.concatenate(same), weight)


_TREE_ARRAYS = ("column", "value", "left", "right", "roots")


class KeptTreeScores(msgspec.Struct):
    """Card of tree scores: passes, and per classifier its nodes, trees and prior."""

    passes: Annotated[int, msgspec.Meta(ge=1)]
    nodes: list[int]
    trees: list[int]
    priors: list[float]

    @staticmethod
    def of(scores: TreeScores) -> tuple[dict[str, AnyArray], dict[str, Any]]:
        """Arrays by name, those of all classifiers one after the other, and the card's settings."""
        classifiers = [one for of_pass in scores.classifiers for one in of_pass]
        arrays = {f"pass{number}": one for number, one in enumerate(scores.passes, 1)}
        arrays |= {name: np.concatenate([getattr(one, name) for one in classifiers]) for name in _TREE_ARRAYS}
        settings = {
            "passes": len(scores.passes),
            "nodes": [len(one.column) for one in classifiers],
            "trees": [len(one.roots) for one in classifiers],
            "priors": [one.prior for one in classifiers],
        }
        return arrays, settings

    @property
    def arrays(self) -> list[str]:
        """Their names, in order."""
        return [*(f"pass{number}" for number in range(1, self.passes + 1)), *_TREE_ARRAYS]

    def restore(self, arrays: Mapping[str, AnyArray]) -> TreeScores:
        """Return the scores again."""
        if not len(self.nodes) == len(self.trees) == len(self.priors) == self.passes * (FOLDS + 1):
            raise InputError("the card names another number of classifiers.", code="tree-scores-damaged")
        cuts = {name: np.cumsum(self.trees if name == "roots" else self.nodes)[:-1] for name in _TREE_ARRAYS}
        parts = [np.split(arrays[name], cuts[name]) for name in _TREE_ARRAYS]
        classifiers = list(map(BoostedTrees, *parts, self.priors))
        passes = tuple(arrays[f"pass{number}"] for number in range(1, self.passes + 1))
        per_pass = FOLDS + 1
        return TreeScores(
            passes,
            tuple(tuple(classifiers[at : at + per_pass]) for at in range(0, len(classifiers), per_pass)),
        )


@dataclass(frozen=True, eq=False)
class TreeScores:
    """Scores of the candidate pairs, and the trees that gave them.

    Attributes:
        passes: for every pass the probability that each pair is one identity, float32 (m,).
        classifiers: for every pass those of the folds, and last the one that was trained on all training
            pairs.
    """

    Kept = KeptTreeScores

    passes: tuple[FloatArray, ...]
    classifiers: tuple[tuple[BoostedTrees, ...], ...]

    @property
    def probability(self) -> FloatArray:
        """Of the last pass."""
        return self.passes[-1]


@dataclass(frozen=True, eq=False)
class UnfinishedScores:
    """Scores so far.

    Attributes:
        probability: float32 (passes, m), of every pass that was begun; NaN where a pair has no score yet.
    """

    probability: FloatArray


def score_by_trees(
    source: TreeFeatureSource,
    pairs: Pairs,
    labeled: LabeledPairs,
    *,
    passes: int = PASSES,
    earlier: TreeScores | None = None,
    seed: int = 0,
    runtime: Runtime | None = None,
    checkpoint: Checkpoint[UnfinishedScores] | None = None,
) -> TreeScores:
    """Train trees on the labeled pairs and score all candidates.

    The first pass has the features of the models; every later one also second-order features of the scores
    before.

    Args:
        source: what features are computed from.
        pairs: candidates.
        labeled: what is known of them.
        passes: number of passes.
        earlier: trees that were trained before, and their scores where they still hold, NaN elsewhere; no
            tree is trained.
        seed: of samples and trees.
        runtime: how it runs.
        checkpoint: of unfinished scores; trees are grown again, as they were.
    """
    runtime, checkpoint = runtime or Runtime(), checkpoint or Checkpoint()
    found = checkpoint.load() if earlier is None else None
    begun = () if found is None or found.probability.shape[1] != len(pairs) else found.probability
    features = _FeatureMatrix(source, pairs, runtime, keep=earlier is None)
    scores: list[FloatArray] = []
    classifiers: list[tuple[BoostedTrees, ...]] = []
    for number in range(passes):
        if earlier is None:
            shared = (features, labeled, seed)
            grown = runtime.map(_train, shared, range(FOLDS + 1), block_bytes=features.training_bytes)
            classifiers.append(tuple(grown))
            probability = runtime.full(len(pairs), np.nan, np.float32)
            if number < len(begun):
                probability[:] = begun[number]
        else:
            classifiers.append(earlier.classifiers[number])
            probability = runtime.copy(earlier.passes[number])
        asked = _open_rows(probability, features.rows_per_block)
        given, step = (features, classifiers[-1], labeled.fold), f"trees, pass {number + 1} of {passes}"
        for rows, scored in runtime.map(_score_block, given, asked, block_bytes=features.block_bytes):
            probability[rows] = scored
            checkpoint.keep(partial(_unfinished, [*scores, probability], runtime))
            done = rows.stop if isinstance(rows, slice) else int(rows[-1]) + 1
            runtime.progress(step, done, len(pairs))
        runtime.progress(step, len(pairs), len(pairs))
        scores.append(runtime.finished(probability))
        if number + 1 < passes:
            features.add_second_order(scores[-1], runtime)
    return TreeScores(tuple(scores), tuple(classifiers))


def _unfinished(passes: Sequence[FloatArray], runtime: Runtime) -> UnfinishedScores:
    table: FloatArray = runtime.empty((len(passes), len(passes[0])), np.float32)
    for number, probability in enumerate(passes):
        table[number] = probability
    return UnfinishedScores(table)


def _open_rows(probability: FloatArray, rows_per_block: int) -> Iterator[Rows]:
    """Yield rows of the pairs that have no score yet, in blocks."""
    for start, stop in spans(len(probability), rows_per_block):
        is_open = np.isnan(probability[start:stop])
        if is_open.all():
            yield slice(start, stop)
        elif is_open.any():
            yield start + np.flatnonzero(is_open)


def _score_block(
    shared: tuple[_FeatureMatrix, Sequence[BoostedTrees], FoldArray], rows: Rows
) -> tuple[Rows, FloatArray]:
    """Score some pairs, given by their rows."""
    features, classifiers, fold = shared
    first, second = fold[features.ids(rows)].T
    odds = _cross_fitted(classifiers, features.rows(rows), first, second)
    return rows, (1 / (1 + np.exp(-odds))).astype(np.float32)


class _FeatureMatrix:
    """Pair features by rows: those of the models, and from the second pass on second-order ones.

    Those of the models are kept if they fit the memory of a block, and computed again in every pass if not;
    on Ray they are computed again, because sending them takes longer.
    """

    def __init__(self, source: TreeFeatureSource, pairs: Pairs, runtime: Runtime, *, keep: bool) -> None:
        self._source = source
        self.pairs = pairs
        self._probability: FloatArray | None = None
        self._own: FloatArray | None = None
        n_columns = len(source.columns)
        per_pair = 16 * (n_columns + len(COLUMNS))
        # As floats of 32 and 64 bits, and once more while trees are grown.
        self.training_bytes = 2 * _MOST_TRAINING_PAIRS * per_pair
        self.rows_per_block = min(PAIRS_PER_BLOCK, runtime.rows_per_block(per_pair))
        self.block_bytes = self.rows_per_block * per_pair
        fits = 4 * len(pairs) * n_columns <= runtime.block_memory
        if keep and fits and runtime.pool is None:
            own = runtime.empty((len(pairs), n_columns), np.float32)
            cut = spans(len(pairs), self.rows_per_block)
            blocks = (pairs.ids[start:stop] for start, stop in cut)
            extracted = runtime.map(extract_tree_features, source, blocks, block_bytes=self.block_bytes)
            for (start, stop), part in zip(cut, extracted, strict=True):
                own[start:stop] = part
            self._own = runtime.finished(own)

    def add_second_order(self, probability: FloatArray, runtime: Runtime) -> None:
        """Add second-order features of these scores to the rows from now on."""
        self._probability = probability
        self._adjacency = build_adjacency(self.pairs.ids, self.pairs.n_images, probability, runtime)

    def ids(self, rows: Rows) -> IntArray:
        """Images of some pairs."""
        return self.pairs.ids[rows]

    def rows(self, rows: Rows) -> FloatArray:
        """Features of some pairs."""
        ids = self.ids(rows)
        own = extract_tree_features(self._source, ids) if self._own is None else self._own[rows]
        if self._probability is None:
            return own
        more = np.empty((len(ids), len(COLUMNS)), np.float32)
        second_order(ids, self._probability[rows], *self._adjacency, more)
        return np.concatenate([own, more], axis=1)


def _train(shared: tuple[_FeatureMatrix, LabeledPairs, int], fold: int) -> BoostedTrees:
    """Train on the pairs without an identity of the fold; on all training pairs for fold `FOLDS`."""
    features, known, seed = shared
    counts = [len(rows) for rows in known.training_rows(features.pairs, fold)]
    n_rows = sum(counts)
    if n_rows > _MOST_TRAINING_PAIRS:
        drawn = np.random.default_rng([seed, 7, fold]).choice(n_rows, _MOST_TRAINING_PAIRS, replace=False)
        drawn.sort()
    else:
        drawn = np.arange(n_rows)
    ends = np.cumsum(counts)
    places = np.split(drawn, np.searchsorted(drawn, ends)[:-1]) if counts else []
    rows = np.concatenate(
        [
            np.empty(0, np.int64),
            *(
                found[place - (end - len(found))]
                for found, place, end in zip(
                    known.training_rows(features.pairs, fold), places, ends, strict=True
                )
            ),
        ]
    )
    if not len(known.confirmed):
        return grow_trees(features.rows(rows), known.same(features.ids(rows), rows), seed)
    # Corrections are few, and are not left to the random sample.
    folds = known.fold[features.ids(known.confirmed)]
    said = known.confirmed[(folds != fold).all(axis=1)]
    rows = np.union1d(rows, said[:: max(1, len(said) // _MOST_TRAINING_PAIRS)])
    weight = np.where(np.isin(rows, said), known.weight, 1).astype(np.float32)
    return grow_trees(features.rows(rows), known.same(features.ids(rows), rows), seed, weight)


def _cross_fitted(
    classifiers: Sequence[BoostedTrees], matrix: FloatArray, first: FoldArray, second: FoldArray
) -> DoubleArray:
    """Return cross-fitted log-odds: the mean over classifiers that did not see an image's fold.

    Unlabeled pairs get the last classifier's.
    """
    is_known = (first >= 0) | (second >= 0)
    odds = np.zeros(len(matrix))
    odds[~is_known] = classifiers[-1].log_odds(matrix[~is_known])
    for fold in range(FOLDS):
        rows = np.flatnonzero((first == fold) | (second == fold))
        # Two images of different folds have two classifiers.
        share = np.where((first[rows] >= 0) & (second[rows] >= 0) & (first[rows] != second[rows]), 0.5, 1.0)
        odds[rows] += share * classifiers[fold].log_odds(matrix[rows])
    return odds
