"""A mediator of boosted trees that is trained in the midst of the unlabeled images, and asked again about its own answers.

Known and unknown images are in one graph. A candidate pair of two known images is a training pair; so is a pair of a known and
an unknown image, as a negative, where the known identities are complete, that is, no unknown image shows a known person.
The probabilities of pairs with a known end are cross-fitted: they come from classifiers that did not see the identity's
fold, so that bars and later passes are not misled by what was learned by heart.

Pairs that corrections speak of are training pairs too, with a weight; what people look at are the doubtful pairs, which the
known images have few of.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from cdp.consensus.boosted_trees import BoostedTrees, grow_trees
from cdp.consensus.constraints import Constraints, said_of_pairs
from cdp.consensus.evidence import EvidenceSource, extract_evidence
from cdp.consensus.second_order import COLUMNS, second_order, weighted_adjacency
from cdp.engine import Engine
from cdp.memory import parse_bytes, rows_within
from cdp.parallel import map_blocks, map_shared, spans
from cdp.progress import Progress, no_progress
from cdp.types import Pairs
from cdp.types.arrays import BoolArray, DoubleArray, FloatArray, IntArray, LongArray

FOLDS = 3
_MOST_TRAINING_PAIRS = 30_000
_PAIRS_PER_BLOCK = 65_536


@dataclass(frozen=True, eq=False)
class KnownPairs:
    """What is known of the candidate pairs.

    Attributes:
        first, second: int32 (m,), the fold of either end's identity; -1 = unknown.
        same: bool (m,), both ends are known and one identity.
        is_training: bool (m,), a training pair.
        is_confirmed: bool (m,), a training pair because corrections say what it is.
        weight: for how many training pairs a confirmed one counts.
    """

    first: IntArray
    second: IntArray
    same: BoolArray
    is_training: BoolArray
    is_confirmed: BoolArray
    weight: float = 1.0


def known_pairs(
    pairs: Pairs,
    identities: LongArray,
    *,
    complete: bool,
    seed: int,
    constraints: Constraints | None = None,
    weight: float = 1.0,
) -> KnownPairs:
    """Folds and truth of the candidate pairs.

    Args:
        pairs: candidates.
        identities: int64 (n,), negative where unknown.
        complete: no unknown image shows a known person.
        seed: of the folds.
        constraints: corrections of the images; pairs of which they say what they are become training pairs.
        weight: for how many training pairs such a pair counts; 0 = they do not become any.
    """
    people = np.unique(identities[identities >= 0])
    fold_of = np.random.default_rng([seed, 6]).permutation(len(people)) % FOLDS
    fold = np.full(len(identities), -1, np.int32)
    known = identities >= 0
    fold[known] = fold_of[np.searchsorted(people, identities[known])]
    first, second = fold[pairs.ids[:, 0]], fold[pairs.ids[:, 1]]
    both = (first >= 0) & (second >= 0)
    same = both & (identities[pairs.ids[:, 0]] == identities[pairs.ids[:, 1]])
    is_training = (first >= 0) | (second >= 0) if complete else both
    if constraints is None or not len(constraints) or weight == 0:
        return KnownPairs(first, second, same, is_training, np.zeros(len(pairs), np.bool_))
    said = said_of_pairs(pairs.ids, constraints.among(pairs.n_images))
    same = np.where(said == 0, same, said > 0)
    return KnownPairs(first, second, same, is_training | (said != 0), said != 0, weight)


@dataclass(frozen=True, eq=False)
class TreeAnswers:
    """What trees said about the candidate pairs, and the trees.

    Attributes:
        passes: for every pass the probability that each pair is one identity, float32 (m,).
        judges: for every pass the classifiers of the folds, and last the one that all training pairs were given to.
    """

    passes: tuple[FloatArray, ...]
    judges: tuple[tuple[BoostedTrees, ...], ...]

    @property
    def probability(self) -> FloatArray:
        """Of the last pass."""
        return self.passes[-1]


def estimate_probabilities(
    source: EvidenceSource,
    pairs: Pairs,
    known: KnownPairs,
    *,
    passes: int,
    earlier: TreeAnswers | None = None,
    seed: int = 0,
    engine: Engine | None = None,
    progress: Progress = no_progress,
) -> TreeAnswers:
    """The probability that each candidate pair is one identity.

    The first pass has the models' evidence, every later one also what the pass before says about the neighborhood.

    Args:
        source: what evidence is drawn from.
        pairs: candidates.
        known: what is known of them.
        passes: how often they are judged.
        earlier: trees that were trained before, and their answers where they still hold, NaN elsewhere; no tree is trained.
        seed: of samples and trees.
        engine: threads and memory.
        progress: called as the work goes on.
    """
    engine = engine or Engine()
    evidence = _Evidence(source, pairs, engine, keep=earlier is None)
    answers: list[FloatArray] = []
    judges: list[tuple[BoostedTrees, ...]] = []
    for number in range(passes):
        if earlier is None:
            train = partial(_train, evidence, known, seed)
            judges.append(tuple(map_blocks(train, range(FOLDS + 1), engine.threads)))
            probability = np.full(len(pairs), np.nan, np.float32)
        else:
            judges.append(earlier.judges[number])
            probability = earlier.passes[number].copy()
        open_rows = np.flatnonzero(np.isnan(probability))
        blocks = [open_rows[slice(*span)] for span in spans(len(open_rows), evidence.rows_per_block)]
        asked = ((rows, known.first[rows], known.second[rows]) for rows in blocks)
        done = 0
        for rows, judged in zip(
            blocks, map_shared(_judge, (evidence, judges[-1]), asked, engine.workers), strict=True
        ):
            probability[rows] = judged
            done += len(rows)
            progress(f"trees, pass {number + 1} of {passes}", done, len(open_rows))
        answers.append(probability)
        evidence.add_second_order(probability)
    return TreeAnswers(tuple(answers), tuple(judges))


def _judge(
    shared: tuple[_Evidence, Sequence[BoostedTrees]], block: tuple[LongArray, IntArray, IntArray]
) -> DoubleArray:
    """Probabilities of some pairs, given by their rows and the folds of their ends."""
    evidence, judges = shared
    rows, first, second = block
    odds = _cross_fitted(judges, evidence.rows(rows), first, second)
    probability: DoubleArray = 1 / (1 + np.exp(-odds))
    return probability


class _Evidence:
    """The matrix of evidence, by rows: the models' own columns, and from the second pass on second-order ones.

    The models' own are kept where they fit into half the memory budget, and drawn again in every pass where not.
    """

    def __init__(self, source: EvidenceSource, pairs: Pairs, engine: Engine, *, keep: bool) -> None:
        self._source = source
        self._pairs = pairs
        self._probability: FloatArray | None = None
        self._own: FloatArray | None = None
        n_columns = len(source.columns)
        self.rows_per_block = min(
            _PAIRS_PER_BLOCK, rows_within(engine.memory_budget, 16 * (n_columns + len(COLUMNS)))
        )
        if keep and 4 * len(pairs) * n_columns <= parse_bytes(engine.memory_budget) / 2:
            own = np.empty((len(pairs), n_columns), np.float32)
            cut = spans(len(pairs), self.rows_per_block)
            blocks = (pairs.ids[start:stop] for start, stop in cut)
            extracted = map_shared(extract_evidence, source, blocks, engine.workers)
            for (start, stop), part in zip(cut, extracted, strict=True):
                own[start:stop] = part
            self._own = own

    def add_second_order(self, probability: FloatArray) -> None:
        """From now on rows also have what these probabilities say about their neighborhood."""
        self._probability = probability
        self._adjacency = weighted_adjacency(self._pairs.ids, probability, self._pairs.n_images)

    def rows(self, rows: LongArray) -> FloatArray:
        """Evidence about some pairs."""
        ids = self._pairs.ids[rows]
        own = extract_evidence(self._source, ids) if self._own is None else self._own[rows]
        if self._probability is None:
            return own
        more = np.empty((len(ids), len(COLUMNS)), np.float32)
        second_order(ids, self._probability[rows], *self._adjacency, more)
        return np.concatenate([own, more], axis=1)


def _train(evidence: _Evidence, known: KnownPairs, seed: int, fold: int) -> BoostedTrees:
    """Trees trained on the pairs that no identity of the fold takes part in; on all training pairs for fold `FOLDS`."""
    rows = np.flatnonzero(known.is_training & (known.first != fold) & (known.second != fold))
    generator = np.random.default_rng([seed, 7, fold])
    # What people said is seldom much, and never left to chance while it is.
    confirmed = _some(rows[known.is_confirmed[rows]], _MOST_TRAINING_PAIRS // 2, generator)
    others = _some(rows[~known.is_confirmed[rows]], _MOST_TRAINING_PAIRS, generator)
    rows = np.sort(np.concatenate([others, confirmed]))
    weight = None
    if len(confirmed):
        weight = np.where(known.is_confirmed[rows], known.weight, 1).astype(np.float32)
    return grow_trees(evidence.rows(rows), known.same[rows], seed, weight)


def _some(rows: LongArray, most: int, generator: np.random.Generator) -> LongArray:
    return rows if len(rows) <= most else generator.choice(rows, most, replace=False)


def _cross_fitted(
    judges: Sequence[BoostedTrees], matrix: FloatArray, first: IntArray, second: IntArray
) -> DoubleArray:
    """Log-odds of pairs: the mean of those judges that did not see an end's fold; of pairs with no known end the last one's."""
    is_known = (first >= 0) | (second >= 0)
    odds = np.zeros(len(matrix))
    odds[~is_known] = judges[-1].log_odds(matrix[~is_known])
    for fold in range(FOLDS):
        rows = np.flatnonzero((first == fold) | (second == fold))
        # Two ends of different folds have two judges.
        share = np.where((first[rows] >= 0) & (second[rows] >= 0) & (first[rows] != second[rows]), 0.5, 1.0)
        odds[rows] += share * judges[fold].log_odds(matrix[rows])
    return odds
