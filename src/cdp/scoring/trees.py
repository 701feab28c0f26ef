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
from cdp.runtime.runtime import Runtime
from cdp.scoring.adjacency import build_adjacency
from cdp.scoring.boosting import BoostedTrees, grow_trees
from cdp.scoring.second_order import COLUMNS, second_order
from cdp.scoring.tree_features import TreeFeatureSource, extract_tree_features
from cdp.types import Pairs
from cdp.types.arrays import AnyArray, BoolArray, DoubleArray, FloatArray, LongArray
from cdp.types.constraints import Constraints, what_is_said

FoldArray: TypeAlias = npt.NDArray[np.int8]

FOLDS = 3
PASSES = 2
"""Later passes add second-order features of the scores before; a third changes nothing measurable (`python -m
benchmarks presets`)."""

CORRECTION_WEIGHT = 10.0
"""Number of training pairs that a pair decided by a correction counts for."""

_MOST_TRAINING_PAIRS = 30_000


@dataclass(frozen=True, eq=False)
class LabeledPairs:
    """Labels of the candidate pairs.

    Attributes:
        first, second: int8 (m,), the fold of either image's identity; -1 = unlabeled.
        same: bool (m,), both images are labeled with one identity.
        is_training: bool (m,), a training pair.
        confirmed: int64, rows of the training pairs that corrections decide.
        weight: number of training pairs that a confirmed one counts for.
    """

    first: FoldArray
    second: FoldArray
    same: BoolArray
    is_training: BoolArray
    confirmed: LongArray
    weight: float = 1.0


def label_pairs(
    pairs: Pairs,
    identities: LongArray,
    *,
    seed: int,
    constraints: Constraints | None = None,
    weight: float = CORRECTION_WEIGHT,
    runtime: Runtime | None = None,
) -> LabeledPairs:
    """Assign folds and labels to the candidate pairs.

    Args:
        pairs: candidates.
        identities: int64 (n,), negative where unlabeled.
        seed: of the folds.
        constraints: corrections; pairs that they decide become training pairs.
        weight: of such a pair; 0 = they become none.
        runtime: memory budget and spill files.
    """
    runtime = runtime or Runtime()
    people = np.unique(identities[identities >= 0])
    fold_of = np.random.default_rng([seed, 6]).permutation(len(people)) % FOLDS
    fold = np.full(len(identities), -1, np.int8)
    known = identities >= 0
    fold[known] = fold_of[np.searchsorted(people, identities[known])]
    first, second = (runtime.empty(len(pairs), np.int8) for _ in range(2))
    same, is_training = (runtime.empty(len(pairs), np.bool_) for _ in range(2))
    are_said = constraints is not None and len(constraints) > 0 and weight > 0
    say = what_is_said(constraints.among(pairs.n_images)) if constraints is not None and are_said else None
    confirmed: list[LongArray] = [np.empty(0, np.int64)]
    for start, stop in spans(len(pairs), PAIRS_PER_BLOCK):
        one, other = pairs.ids[start:stop].T
        first[start:stop], second[start:stop] = fold[one], fold[other]
        both = (fold[one] >= 0) & (fold[other] >= 0)
        same[start:stop] = both & (identities[one] == identities[other])
        is_training[start:stop] = (fold[one] >= 0) | (fold[other] >= 0)
        if say is not None:
            said = say(pairs.ids[start:stop])
            rows = start + np.flatnonzero(said)
            same[rows], is_training[rows] = said[said != 0] > 0, True
            confirmed.append(rows)
    return LabeledPairs(first, second, same, is_training, np.concatenate(confirmed), weight)


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
            raise InputError("the card speaks of another number of classifiers.", code="tree-scores-damaged")
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
            train = partial(_train, features, labeled, seed)
            grown = runtime.map_here(train, range(FOLDS + 1), block_bytes=features.training_bytes)
            classifiers.append(tuple(grown))
            probability = runtime.full(len(pairs), np.nan, np.float32)
            if number < len(begun):
                probability[:] = begun[number]
        else:
            classifiers.append(earlier.classifiers[number])
            probability = runtime.copy(earlier.passes[number])
        blocks = _open_rows(probability, features.rows_per_block)
        asked = ((rows, labeled.first[rows], labeled.second[rows]) for rows in blocks)
        shared, step = (features, classifiers[-1]), f"trees, pass {number + 1} of {passes}"
        for rows, scored in runtime.map(_score_block, shared, asked, block_bytes=features.block_bytes):
            probability[rows] = scored
            checkpoint.keep(partial(_unfinished, [*scores, probability], runtime))
            runtime.progress(step, int(rows[-1]) + 1, len(pairs))
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


def _open_rows(probability: FloatArray, rows_per_block: int) -> Iterator[LongArray]:
    """Yield rows of the pairs that have no score yet, in blocks."""
    for start, stop in spans(len(probability), rows_per_block):
        rows = start + np.flatnonzero(np.isnan(probability[start:stop]))
        if len(rows):
            yield rows


def _score_block(
    shared: tuple[_FeatureMatrix, Sequence[BoostedTrees]], block: tuple[LongArray, FoldArray, FoldArray]
) -> tuple[LongArray, DoubleArray]:
    """Score some pairs, given by their rows and the folds of their images."""
    features, classifiers = shared
    rows, first, second = block
    odds = _cross_fitted(classifiers, features.rows(rows), first, second)
    return rows, 1 / (1 + np.exp(-odds))


class _FeatureMatrix:
    """Pair features by rows: those of the models, and from the second pass on second-order ones.

    Those of the models are kept if they fit the memory of a block, and computed again in every pass if not.
    """

    def __init__(self, source: TreeFeatureSource, pairs: Pairs, runtime: Runtime, *, keep: bool) -> None:
        self._source = source
        self._pairs = pairs
        self._probability: FloatArray | None = None
        self._own: FloatArray | None = None
        n_columns = len(source.columns)
        per_pair = 16 * (n_columns + len(COLUMNS))
        # As floats of 32 and 64 bits, and once more while trees are grown.
        self.training_bytes = 2 * _MOST_TRAINING_PAIRS * per_pair
        self.rows_per_block = min(PAIRS_PER_BLOCK, runtime.rows_per_block(per_pair))
        self.block_bytes = self.rows_per_block * per_pair
        if keep and 4 * len(pairs) * n_columns <= runtime.block_memory:
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
        self._adjacency = build_adjacency(self._pairs.ids, self._pairs.n_images, probability, runtime)

    def rows(self, rows: LongArray) -> FloatArray:
        """Features of some pairs."""
        ids = self._pairs.ids[rows]
        own = extract_tree_features(self._source, ids) if self._own is None else self._own[rows]
        if self._probability is None:
            return own
        more = np.empty((len(ids), len(COLUMNS)), np.float32)
        second_order(ids, self._probability[rows], *self._adjacency, more)
        return np.concatenate([own, more], axis=1)


def _train(features: _FeatureMatrix, known: LabeledPairs, seed: int, fold: int) -> BoostedTrees:
    """Train on the pairs without an identity of the fold; on all training pairs for fold `FOLDS`."""
    counts = [len(rows) for rows in _rows_outside(known, fold)]
    drawn: LongArray = np.arange(sum(counts))
    if len(drawn) > _MOST_TRAINING_PAIRS:
        drawn = np.random.default_rng([seed, 7, fold]).choice(len(drawn), _MOST_TRAINING_PAIRS, replace=False)
        drawn.sort()
    places = np.split(drawn, np.searchsorted(drawn, np.cumsum(counts)[:-1])) if counts else []
    starts = np.cumsum([0, *counts])
    rows = np.concatenate(
        [
            np.empty(0, np.int64),
            *(
                found[place - start]
                for found, place, start in zip(_rows_outside(known, fold), places, starts, strict=False)
            ),
        ]
    )
    if not len(known.confirmed):
        return grow_trees(features.rows(rows), known.same[rows], seed)
    # Corrections are few, and are not left to the random sample.
    said = known.confirmed[(known.first[known.confirmed] != fold) & (known.second[known.confirmed] != fold)]
    rows = np.union1d(rows, said[:: max(1, len(said) // _MOST_TRAINING_PAIRS)])
    weight = np.where(np.isin(rows, said), known.weight, 1).astype(np.float32)
    return grow_trees(features.rows(rows), known.same[rows], seed, weight)


def _rows_outside(known: LabeledPairs, fold: int) -> Iterator[LongArray]:
    """Yield rows of training pairs without an identity of the fold, block by block."""
    for start, stop in spans(len(known.same), PAIRS_PER_BLOCK):
        is_outside = (known.first[start:stop] != fold) & (known.second[start:stop] != fold)
        yield start + np.flatnonzero(known.is_training[start:stop] & is_outside)


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
