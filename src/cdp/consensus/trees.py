"""A mediator of boosted trees that is trained in the midst of the unlabeled images, and asked again about its own answers.

Known and unknown images are in one graph. A candidate pair of two known images is a training pair; so is a pair of a known and
an unknown image, as a negative, where the known identities are complete, that is, no unknown image shows a known person.
The probabilities of pairs with a known end are cross-fitted: they come from classifiers that did not see the identity's
fold, so that bars and later passes are not misled by what was learned by heart.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from threadpoolctl import threadpool_limits

from cdp.consensus.evidence import EvidenceSource, extract_evidence
from cdp.consensus.second_order import COLUMNS, second_order, weighted_adjacency
from cdp.engine import Engine
from cdp.memory import rows_within
from cdp.parallel import map_blocks, spans
from cdp.progress import Progress, no_progress
from cdp.types import Pairs
from cdp.types.arrays import BoolArray, FloatArray, IntArray, LongArray

FOLDS = 3
_MOST_TRAINING_PAIRS = 100_000
_TREES = 120
_PAIRS_PER_BLOCK = 65_536


@dataclass(frozen=True, eq=False)
class KnownPairs:
    """What is known of the candidate pairs.

    Attributes:
        first, second: int32 (m,), the fold of either end's identity; -1 = unknown.
        same: bool (m,), both ends are known and one identity.
        teaches: bool (m,), a training pair.
    """

    first: IntArray
    second: IntArray
    same: BoolArray
    teaches: BoolArray


def known_pairs(pairs: Pairs, identities: LongArray, *, complete: bool, seed: int) -> KnownPairs:
    """Folds and truth of the candidate pairs; `identities` are negative where unknown."""
    people = np.unique(identities[identities >= 0])
    fold_of = np.random.default_rng([seed, 6]).permutation(len(people)) % FOLDS
    fold = np.full(len(identities), -1, np.int32)
    known = identities >= 0
    fold[known] = fold_of[np.searchsorted(people, identities[known])]
    first, second = fold[pairs.ids[:, 0]], fold[pairs.ids[:, 1]]
    both = (first >= 0) & (second >= 0)
    same = both & (identities[pairs.ids[:, 0]] == identities[pairs.ids[:, 1]])
    return KnownPairs(first, second, same, (first >= 0) | (second >= 0) if complete else both)


def estimate_probabilities(
    source: EvidenceSource,
    pairs: Pairs,
    known: KnownPairs,
    *,
    passes: int,
    seed: int = 0,
    engine: Engine | None = None,
    progress: Progress = no_progress,
) -> FloatArray:
    """The probability that each candidate pair is one identity, float32 (m,).

    The first pass has the models' evidence, every later one also what the pass before says about the neighborhood.
    """
    engine = engine or Engine()
    probability: FloatArray | None = None
    for number in range(passes):
        step = f"trees, pass {number + 1} of {passes}"
        evidence = _Evidence(source, pairs, probability, engine)
        models = [_train(evidence, known, fold, seed) for fold in range(FOLDS)]
        answers = np.empty((FOLDS, len(pairs)), np.float32)
        done = 0
        for span, block in evidence.blocks():
            for fold, model in enumerate(models):
                answers[fold, span[0] : span[1]] = model.predict_proba(block)[:, 1]
            done = span[1]
            progress(step, done, len(pairs))
        probability = _cross_fitted(answers, known)
    assert probability is not None
    return probability


class _Evidence:
    """The matrix of evidence, block by block: the models' own columns, and from the second pass on second-order ones."""

    def __init__(
        self, source: EvidenceSource, pairs: Pairs, probability: FloatArray | None, engine: Engine
    ) -> None:
        self._source = source
        self._ids = pairs.ids
        self._probability = probability
        self._engine = engine
        if probability is not None:
            self._adjacency = weighted_adjacency(pairs.ids, probability, pairs.n_images)

    def rows(self, rows: LongArray) -> FloatArray:
        """Evidence about some pairs."""
        ids = self._ids[rows]
        own = extract_evidence(self._source, ids)
        if self._probability is None:
            return own
        more = np.empty((len(ids), len(COLUMNS)), np.float32)
        second_order(ids, self._probability[rows], *self._adjacency, more)
        return np.concatenate([own, more], axis=1)

    def blocks(self) -> Iterator[tuple[tuple[int, int], FloatArray]]:
        """All pairs, in order."""
        n_columns = len(self._source.columns) + len(COLUMNS)
        rows = min(_PAIRS_PER_BLOCK, rows_within(self._engine.memory_budget, 16 * n_columns))

        def extract(span: tuple[int, int]) -> tuple[tuple[int, int], FloatArray]:
            return span, self.rows(np.arange(*span))

        yield from map_blocks(extract, spans(len(self._ids), rows), self._engine.threads)


def _train(evidence: _Evidence, known: KnownPairs, fold: int, seed: int) -> Any:
    """A classifier trained on the pairs that no identity of the fold takes part in."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    rows = np.flatnonzero(known.teaches & (known.first != fold) & (known.second != fold))
    if len(rows) > _MOST_TRAINING_PAIRS:
        rows = np.sort(
            np.random.default_rng([seed, 7, fold]).choice(rows, _MOST_TRAINING_PAIRS, replace=False)
        )
    model = HistGradientBoostingClassifier(
        max_iter=_TREES, learning_rate=0.1, l2_regularization=1.0, early_stopping=False, random_state=seed
    )
    # One thread: sums over pairs would else be rounded by the number of threads.
    with threadpool_limits(limits=1):
        return model.fit(evidence.rows(rows), known.same[rows])


def _cross_fitted(answers: FloatArray, known: KnownPairs) -> FloatArray:
    """Of each pair the answers of the classifiers that did not see its identities; the mean log-odds where none did."""
    inside = np.clip(answers.astype(np.float64), 1e-6, 1 - 1e-6)
    odds = np.log(inside / (1 - inside))
    unseen = np.stack([(known.first == fold) | (known.second == fold) for fold in range(FOLDS)])
    weight = np.where(unseen.any(axis=0), unseen, True)
    mean = (odds * weight).sum(axis=0) / weight.sum(axis=0)
    probability: FloatArray = (1 / (1 + np.exp(-mean))).astype(np.float32)
    return probability
