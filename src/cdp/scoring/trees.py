"""A mediator of boosted trees that is trained in the midst of the unlabeled images, and asked again about its own answers.

Known and unknown images are in one graph. A candidate pair of two known images is a training pair; so is a pair of a known and
an unknown image, as a negative, where the known identities are complete, that is, no unknown image shows a known person.
The probabilities of pairs with a known end are cross-fitted: they come from classifiers that did not see the identity's
fold, so that bars and later passes are not misled by what was learned by heart.

Pairs that corrections speak of are training pairs too, with a weight; what people look at are the doubtful pairs, which the
known images have few of.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any, TypeAlias

import msgspec
import numpy as np
import numpy.typing as npt

from cdp.blocks import PAIRS_PER_BLOCK, spans
from cdp.errors import InputError
from cdp.runtime.checkpoint import Checkpoint
from cdp.runtime.memory import rows_within
from cdp.runtime.parallel import map_blocks, map_shared
from cdp.runtime.progress import Progress, no_progress
from cdp.runtime.runtime import Runtime
from cdp.runtime.settings import RuntimeSettings
from cdp.runtime.spill import SpillFiles
from cdp.scoring.adjacency import build_adjacency
from cdp.scoring.boosting import BoostedTrees, grow_trees
from cdp.scoring.second_order import COLUMNS, second_order
from cdp.scoring.tree_features import EvidenceSource, extract_evidence
from cdp.types import Pairs
from cdp.types.arrays import AnyArray, BoolArray, DoubleArray, FloatArray, LongArray
from cdp.types.constraints import Constraints, what_is_said

FoldArray: TypeAlias = npt.NDArray[np.int8]

FOLDS = 3
_MOST_TRAINING_PAIRS = 30_000


@dataclass(frozen=True, eq=False)
class KnownPairs:
    """What is known of the candidate pairs.

    Attributes:
        first, second: int8 (m,), the fold of either end's identity; -1 = unknown.
        same: bool (m,), both ends are known and one identity.
        is_training: bool (m,), a training pair.
        confirmed: int64, rows of the training pairs of which corrections say what they are.
        weight: for how many training pairs a confirmed one counts.
    """

    first: FoldArray
    second: FoldArray
    same: BoolArray
    is_training: BoolArray
    confirmed: LongArray
    weight: float = 1.0


def known_pairs(
    pairs: Pairs,
    identities: LongArray,
    *,
    complete: bool,
    seed: int,
    constraints: Constraints | None = None,
    weight: float = 1.0,
    scratch: SpillFiles | None = None,
) -> KnownPairs:
    """Folds and truth of the candidate pairs.

    Args:
        pairs: candidates.
        identities: int64 (n,), negative where unknown.
        complete: no unknown image shows a known person.
        seed: of the folds.
        constraints: corrections of the images; pairs of which they say what they are become training pairs.
        weight: for how many training pairs such a pair counts; 0 = they do not become any.
        scratch: where arrays as long as the pairs lie.
    """
    scratch = scratch or SpillFiles()
    people = np.unique(identities[identities >= 0])
    fold_of = np.random.default_rng([seed, 6]).permutation(len(people)) % FOLDS
    fold = np.full(len(identities), -1, np.int8)
    known = identities >= 0
    fold[known] = fold_of[np.searchsorted(people, identities[known])]
    first, second = (scratch.empty(len(pairs), np.int8) for _ in range(2))
    same, is_training = (scratch.empty(len(pairs), np.bool_) for _ in range(2))
    are_said = constraints is not None and len(constraints) > 0 and weight > 0
    say = what_is_said(constraints.among(pairs.n_images)) if constraints is not None and are_said else None
    confirmed: list[LongArray] = [np.empty(0, np.int64)]
    for start, stop in spans(len(pairs), PAIRS_PER_BLOCK):
        one, other = pairs.ids[start:stop].T
        first[start:stop], second[start:stop] = fold[one], fold[other]
        both = (fold[one] >= 0) & (fold[other] >= 0)
        same[start:stop] = both & (identities[one] == identities[other])
        is_training[start:stop] = (fold[one] >= 0) | (fold[other] >= 0) if complete else both
        if say is not None:
            said = say(pairs.ids[start:stop])
            rows = start + np.flatnonzero(said)
            same[rows], is_training[rows] = said[said != 0] > 0, True
            confirmed.append(rows)
    return KnownPairs(first, second, same, is_training, np.concatenate(confirmed), weight)


_TREE_ARRAYS = ("column", "value", "left", "right", "roots")


class KeptAnswers(msgspec.Struct):
    """What the card of tree answers says: passes, and per classifier its nodes, its trees and its prior."""

    passes: Annotated[int, msgspec.Meta(ge=1)]
    nodes: list[int]
    trees: list[int]
    priors: list[float]

    @staticmethod
    def of(answers: TreeAnswers) -> tuple[dict[str, AnyArray], dict[str, Any]]:
        """Arrays by name, those of all classifiers one after the other, and the card's settings."""
        judges = [one for judges in answers.judges for one in judges]
        arrays = {f"pass{number}": one for number, one in enumerate(answers.passes, 1)}
        arrays |= {name: np.concatenate([getattr(one, name) for one in judges]) for name in _TREE_ARRAYS}
        settings = {
            "passes": len(answers.passes),
            "nodes": [len(one.column) for one in judges],
            "trees": [len(one.roots) for one in judges],
            "priors": [one.prior for one in judges],
        }
        return arrays, settings

    @property
    def arrays(self) -> list[str]:
        """Their names, in order."""
        return [*(f"pass{number}" for number in range(1, self.passes + 1)), *_TREE_ARRAYS]

    def restore(self, arrays: Mapping[str, AnyArray]) -> TreeAnswers:
        """The answers again."""
        if not len(self.nodes) == len(self.trees) == len(self.priors) == self.passes * (FOLDS + 1):
            raise InputError("the card speaks of another number of classifiers.", code="tree-answers-damaged")
        cuts = {name: np.cumsum(self.trees if name == "roots" else self.nodes)[:-1] for name in _TREE_ARRAYS}
        parts = [np.split(arrays[name], cuts[name]) for name in _TREE_ARRAYS]
        judges = list(map(BoostedTrees, *parts, self.priors))
        passes = tuple(arrays[f"pass{number}"] for number in range(1, self.passes + 1))
        per_pass = FOLDS + 1
        return TreeAnswers(
            passes, tuple(tuple(judges[at : at + per_pass]) for at in range(0, len(judges), per_pass))
        )


@dataclass(frozen=True, eq=False)
class TreeAnswers:
    """What trees said about the candidate pairs, and the trees.

    Attributes:
        passes: for every pass the probability that each pair is one identity, float32 (m,).
        judges: for every pass the classifiers of the folds, and last the one that all training pairs were given to.
    """

    Kept = KeptAnswers

    passes: tuple[FloatArray, ...]
    judges: tuple[tuple[BoostedTrees, ...], ...]

    @property
    def probability(self) -> FloatArray:
        """Of the last pass."""
        return self.passes[-1]


@dataclass(frozen=True, eq=False)
class UnfinishedAnswers:
    """What trees said so far.

    Attributes:
        probability: for every pass that was begun, of each candidate pair, NaN where it was not asked yet, float32 (passes, m).
    """

    probability: FloatArray


def estimate_probabilities(
    source: EvidenceSource,
    pairs: Pairs,
    known: KnownPairs,
    *,
    passes: int,
    earlier: TreeAnswers | None = None,
    seed: int = 0,
    engine: RuntimeSettings | None = None,
    progress: Progress = no_progress,
    scratch: SpillFiles | None = None,
    checkpoint: Checkpoint[UnfinishedAnswers] | None = None,
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
        scratch: where answers lie.
        checkpoint: keeps answers while others are asked for; trees are grown again, as they were.
    """
    engine, scratch, checkpoint = (
        engine or RuntimeSettings(),
        scratch or SpillFiles(),
        checkpoint or Checkpoint(),
    )
    found = checkpoint.load() if earlier is None else None
    begun = () if found is None or found.probability.shape[1] != len(pairs) else found.probability
    evidence = _Evidence(source, pairs, engine, scratch, keep=earlier is None)
    growers = replace(engine, engine="threads").workers_for(evidence.training_bytes)
    assert isinstance(growers, int)
    answers: list[FloatArray] = []
    judges: list[tuple[BoostedTrees, ...]] = []
    for number in range(passes):
        if earlier is None:
            train = partial(_train, evidence, known, seed)
            judges.append(tuple(map_blocks(train, range(FOLDS + 1), growers)))
            probability = scratch.full(len(pairs), np.nan, np.float32)
            if number < len(begun):
                probability[:] = begun[number]
        else:
            judges.append(earlier.judges[number])
            probability = scratch.copy(earlier.passes[number])
        blocks = _open_rows(probability, evidence.rows_per_block)
        asked = ((rows, known.first[rows], known.second[rows]) for rows in blocks)
        for rows, judged in map_shared(_judge, (evidence, judges[-1]), asked, evidence.workers):
            probability[rows] = judged
            checkpoint.keep(partial(_unfinished, [*answers, probability], scratch))
            progress(f"trees, pass {number + 1} of {passes}", int(rows[-1]) + 1, len(pairs))
        progress(f"trees, pass {number + 1} of {passes}", len(pairs), len(pairs))
        answers.append(scratch.done(probability))
        if number + 1 < passes:
            evidence.add_second_order(answers[-1], scratch)
    return TreeAnswers(tuple(answers), tuple(judges))


def _unfinished(passes: Sequence[FloatArray], scratch: SpillFiles) -> UnfinishedAnswers:
    table: FloatArray = scratch.empty((len(passes), len(passes[0])), np.float32)
    for number, probability in enumerate(passes):
        table[number] = probability
    return UnfinishedAnswers(table)


def _open_rows(probability: FloatArray, rows_per_block: int) -> Iterator[LongArray]:
    """The pairs that have no answer yet, in blocks."""
    for start, stop in spans(len(probability), rows_per_block):
        rows = start + np.flatnonzero(np.isnan(probability[start:stop]))
        if len(rows):
            yield rows


def _judge(
    shared: tuple[_Evidence, Sequence[BoostedTrees]], block: tuple[LongArray, FoldArray, FoldArray]
) -> tuple[LongArray, DoubleArray]:
    """Some pairs, given by their rows and the folds of their ends, and their probabilities."""
    evidence, judges = shared
    rows, first, second = block
    odds = _cross_fitted(judges, evidence.rows(rows), first, second)
    return rows, 1 / (1 + np.exp(-odds))


class _Evidence:
    """The matrix of evidence, by rows: the models' own columns, and from the second pass on second-order ones.

    The models' own are kept where they fit into a share of the memory budget, and drawn again in every pass where not.
    """

    def __init__(
        self,
        source: EvidenceSource,
        pairs: Pairs,
        engine: RuntimeSettings,
        scratch: SpillFiles,
        *,
        keep: bool,
    ) -> None:
        self._source = source
        self._pairs = pairs
        self._probability: FloatArray | None = None
        self._own: FloatArray | None = None
        n_columns = len(source.columns)
        per_pair = 16 * (n_columns + len(COLUMNS))
        # As floats of 32 and 64 bits, and once more while trees are grown.
        self.training_bytes = 2 * _MOST_TRAINING_PAIRS * per_pair
        self.rows_per_block = min(PAIRS_PER_BLOCK, rows_within(engine.share, per_pair))
        self.workers = engine.workers_for(self.rows_per_block * per_pair)
        if keep and 4 * len(pairs) * n_columns <= engine.share:
            own = scratch.empty((len(pairs), n_columns), np.float32)
            cut = spans(len(pairs), self.rows_per_block)
            blocks = (pairs.ids[start:stop] for start, stop in cut)
            extracted = map_shared(extract_evidence, source, blocks, self.workers)
            for (start, stop), part in zip(cut, extracted, strict=True):
                own[start:stop] = part
            self._own = scratch.done(own)

    def add_second_order(self, probability: FloatArray, scratch: SpillFiles) -> None:
        """From now on rows also have what these probabilities say about their neighborhood."""
        self._probability = probability
        runtime = Runtime(shared_spill=scratch)
        self._adjacency = build_adjacency(self._pairs.ids, self._pairs.n_images, probability, runtime)

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
        return grow_trees(evidence.rows(rows), known.same[rows], seed)
    # What people said is seldom much, and not left to chance.
    said = known.confirmed[(known.first[known.confirmed] != fold) & (known.second[known.confirmed] != fold)]
    rows = np.union1d(rows, said[:: max(1, len(said) // _MOST_TRAINING_PAIRS)])
    weight = np.where(np.isin(rows, said), known.weight, 1).astype(np.float32)
    return grow_trees(evidence.rows(rows), known.same[rows], seed, weight)


def _rows_outside(known: KnownPairs, fold: int) -> Iterator[LongArray]:
    """Training pairs that no identity of the fold takes part in, block by block."""
    for start, stop in spans(len(known.same), PAIRS_PER_BLOCK):
        is_outside = (known.first[start:stop] != fold) & (known.second[start:stop] != fold)
        yield start + np.flatnonzero(known.is_training[start:stop] & is_outside)


def _cross_fitted(
    judges: Sequence[BoostedTrees], matrix: FloatArray, first: FoldArray, second: FoldArray
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
