"""`TreeScorer`: candidates of the fused graph, scored by trees trained on labeled images."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from cdp.blocks import spans
from cdp.knn.model_graphs import Graphs, ModelGraphs, find_graphs
from cdp.runtime.checkpoint import Checkpoint
from cdp.runtime.runtime import Runtime
from cdp.runtime.step_cache import StepCache, step_key
from cdp.scoring.fused_graph import find_fused_graph, search_fused
from cdp.scoring.mediator import is_more_probable
from cdp.scoring.pairs import candidate_pairs, keep_pairs
from cdp.scoring.scored_pairs import Insertion, ScoredPairs
from cdp.scoring.settings import ConsensusSettings, ScoringSettings, kept_above
from cdp.scoring.tree_features import ALL_BLOCKS, prepare_tree_features
from cdp.scoring.trees import (
    CORRECTION_WEIGHT,
    PASSES,
    TreeScores,
    UnfinishedScores,
    label_pairs,
    score_by_trees,
)
from cdp.settings import slice_of
from cdp.types import ConsensusGraph, KnnGraph, Pairs, Views
from cdp.types.arrays import AnyArray, BoolArray, FloatArray, IntArray, LongArray
from cdp.types.constraints import Constraints

_MIN_IMPOSTORS = 200
_MIN_LABELED = 20
_UNLIKE_ABOVE = 2.0
_ROWS_PER_BLOCK = 8192
_OVERLAP = (
    "Labeled and unlabeled images seem to share people; if they do, set disjoint = false: the expected "
    "precision is too low otherwise."
)
_UNLIKE = (
    "The unlabeled images look unlike the labeled ones: {:.0%} of the nearest impostors of labeled images "
    "are labeled, {:.0%} would be by chance. The threshold and the expected precision were learned on the "
    "labeled images and may not hold for the others; label some of those."
)


@dataclass(frozen=True, eq=False)
class TreeScorer:
    """Gradient boosting, trained on the labeled images among the unlabeled ones.

    Attributes:
        settings: of section 3.1.
        threshold: the lowest one that will be tried.
        seed: of folds, samples and trees.
        constraints: corrections, which trees learn from.
        passes: number of passes.
        blocks: pair features.
        correction_weight: number of training pairs that a pair decided by a correction counts for.
    """

    settings: ConsensusSettings
    threshold: float
    seed: int = 0
    constraints: Constraints | None = None
    passes: int = PASSES
    blocks: tuple[str, ...] = ALL_BLOCKS
    correction_weight: float = CORRECTION_WEIGHT
    needs_labels = True

    def score(
        self, views: Views, identities: LongArray, runtime: Runtime, graphs: Graphs | None = None
    ) -> ScoredPairs:
        """Score the edges of the fused graph.

        Lists of 2k neighbors are searched, because ranks beyond k are features too; candidates are the k
        nearest in the fused graph. Given graphs are used as they are.
        """
        longer = replace(self.settings, k=min(2 * self.settings.k, views.n_images - 1))
        wanted = longer if graphs is None else self.settings
        found = find_graphs(views, wanted, graphs, seed=self.seed, runtime=runtime, identities=identities)
        fused = find_fused_graph(views, found, longer.k, runtime)
        candidates = fused.nearest(self.settings.k)
        pairs = candidate_pairs(candidates, runtime)
        scores, key = None, self._key(found, identities, runtime)
        if key:
            scores = runtime.cache.get("trees", key, TreeScores)
        if scores is None:
            scores = self._train(views, found.graphs, fused, pairs, identities, runtime, key=key)
            if key:
                runtime.cache.put("trees", key, scores)
                runtime.cache.drop("scores", key)
        return ScoredPairs(
            self._kept(pairs, scores, runtime),
            found.graphs,
            fused,
            self.settings.k,
            identities,
            pairs,
            scores,
            found.same_identity_recall,
            compare_parts(candidates, identities, disjoint=self.settings.is_disjoint),
        )

    def update(
        self,
        before: ScoredPairs,
        views: Views,
        identities: LongArray,
        graphs: ModelGraphs,
        inserted: Insertion,
        runtime: Runtime,
    ) -> ScoredPairs:
        """Score pairs whose features changed with the same trees."""
        assert before.candidates is not None
        assert before.tree_scores is not None
        with runtime.step("all models"):
            changed = np.flatnonzero(inserted.changed)
            fused = search_fused(
                views, list(graphs), before.fused.k, before=inserted.fused, changed=changed, runtime=runtime
            )
        pairs = candidate_pairs(fused.nearest(before.k), runtime)
        old_ids = inserted.moved(before.candidates.ids)
        earlier = _kept_scores(pairs, old_ids, before.tree_scores, inserted.changed)
        scores = self._train(views, graphs.graphs, fused, pairs, identities, runtime, earlier=earlier)
        scored = self._kept(pairs, scores, runtime)
        return ScoredPairs(scored, graphs.graphs, fused, before.k, identities, pairs, scores)

    def retrain(self, before: ScoredPairs, views: Views, runtime: Runtime) -> ScoredPairs:
        """Train trees again on the same graphs, with the corrections so far, and score all candidates."""
        pairs = before.candidates
        assert pairs is not None
        scores = self._train(views, before.graphs, before.fused, pairs, before.identities, runtime)
        return replace(before, scored=self._kept(pairs, scores, runtime), tree_scores=scores)

    def _train(
        self,
        views: Views,
        graphs: Mapping[str, KnnGraph],
        fused: KnnGraph,
        pairs: Pairs,
        identities: LongArray,
        runtime: Runtime,
        *,
        earlier: TreeScores | None = None,
        key: str = "",
    ) -> TreeScores:
        """Train trees or use given ones, and score pairs; with a key, unfinished scores are cached."""
        cache = runtime.cache if key else StepCache()
        with runtime.step("consensus"):
            return score_by_trees(
                prepare_tree_features(views, graphs.values(), fused, self.blocks, runtime),
                pairs,
                label_pairs(
                    pairs,
                    identities,
                    seed=self.seed,
                    constraints=self.constraints if earlier is None else None,
                    weight=self.correction_weight,
                ),
                passes=self.passes,
                earlier=earlier,
                seed=self.seed,
                runtime=runtime,
                checkpoint=Checkpoint(*cache.keeping("scores", key, UnfinishedScores)),
            )

    def _key(self, found: ModelGraphs, identities: LongArray, runtime: Runtime) -> str:
        """Return the cache key of the scores; empty where graphs have none."""
        if not found.keys:
            return ""
        cache, constraints = runtime.cache, self.constraints
        inputs: list[object] = [list(found.keys.items()), cache.hash(identities)]
        if constraints is not None and len(constraints) and self.correction_weight:
            names = [[row, name] for row, name in constraints.named.items()]
            inputs += [cache.hash(constraints.must), cache.hash(constraints.cannot), names]
        inputs += [self.passes, list(self.blocks), self.correction_weight]
        settings = slice_of(self.settings, ScoringSettings)
        return step_key("trees", 5, settings, inputs, self.settings.k, self.seed)

    def _kept(self, pairs: Pairs, scores: TreeScores, runtime: Runtime) -> ConsensusGraph:
        """Return the pairs that may count when groups are made."""
        doubt = runtime.copy(scores.probability)
        np.subtract(1, doubt, out=doubt)
        scored = ConsensusGraph(pairs.ids, runtime.finished(doubt), pairs.n_images)
        return keep_pairs(scored, partial(_is_above, kept_above(self.settings, self.threshold)), runtime)


def _is_above(threshold: float, _: IntArray, doubt: AnyArray) -> BoolArray:
    return is_more_probable(doubt, threshold)


def _kept_scores(pairs: Pairs, old_ids: IntArray, scores: TreeScores, changed: BoolArray) -> TreeScores:
    """Earlier scores where they still hold, NaN elsewhere.

    First-order features depend on the lists of both images, second-order ones on the scores of all pairs of
    both.
    """
    at, is_old = _look_up(pairs.ids, old_ids)
    passes: list[FloatArray] = []
    for earlier in scores.passes:
        holds = is_old & ~changed[pairs.ids].any(axis=1)
        passes.append(np.where(holds, earlier[at], np.float32(np.nan)).astype(np.float32))
        changed = changed.copy()
        changed[pairs.ids[~holds].ravel()] = True
    return TreeScores(tuple(passes), scores.classifiers)


def _look_up(ids: IntArray, among: IntArray) -> tuple[LongArray, BoolArray]:
    """Position of each pair among sorted others, and whether it is one of them."""
    keys, others = (one[:, 0].astype(np.int64) << 32 | one[:, 1] for one in (ids, among))
    at = np.minimum(np.searchsorted(others, keys), max(0, len(others) - 1))
    return at, (others[at] == keys) if len(others) else np.zeros(len(keys), np.bool_)


def compare_parts(candidates: KnnGraph, identities: LongArray, *, disjoint: bool) -> tuple[str, ...]:
    """Return notes where labeled and unlabeled images do not fit together."""
    notes = (_OVERLAP,) if disjoint and seem_to_overlap(candidates, identities) else ()
    shares = labeled_among_impostors(candidates, identities)
    return (*notes, _UNLIKE.format(*shares)) if shares is not None and seem_unlike(*shares) else notes


def seem_to_overlap(candidates: KnnGraph, identities: LongArray) -> bool:
    """Test whether unlabeled neighbors are much more similar to labeled images than labeled impostors.

    If no unlabeled image shows a labeled person, all of them are impostors, and chance decides which
    impostors are labeled: a tenth of the unlabeled ones are more similar than nine tenths of the labeled ones
    (0.07 to 0.10 on LFW, Omniglot and drawn faces), give or take a few lookalikes among few labeled people.
    With labeled people among the unlabeled images it was 0.15 to 0.40.
    """
    of_labeled, of_unlabeled = [np.empty(0, np.float32)], [np.empty(0, np.float32)]
    rows = np.flatnonzero(identities >= 0)
    for start, stop in spans(len(rows), _ROWS_PER_BLOCK):
        block = rows[start:stop]
        near, similarity = candidates.neighbors[block], candidates.similarity[block]
        theirs = np.where(near >= 0, identities[np.maximum(near, 0)], -2)
        of_labeled.append(similarity[(theirs >= 0) & (theirs != identities[block][:, None])])
        of_unlabeled.append(similarity[theirs == -1])
    impostors, unlabeled = np.concatenate(of_labeled), np.concatenate(of_unlabeled)
    if min(len(impostors), len(unlabeled)) < _MIN_IMPOSTORS:
        return False
    share = float((unlabeled > np.quantile(impostors, 0.9)).mean())
    n_people = len(np.unique(identities[identities >= 0]))
    return bool(share > 0.12 + 0.6 / math.sqrt(n_people))


def labeled_among_impostors(candidates: KnnGraph, identities: LongArray) -> tuple[float, float] | None:
    """Return found and expected share of labeled impostors; None if too few are labeled.

    A neighbor that is not labeled with the same identity is an impostor. If labeled and unlabeled images look
    alike, chance decides which impostors are labeled; fewer are where unlabeled images show labeled people.
    """
    images = np.flatnonzero(identities >= 0)
    _, person, count = np.unique(identities[images], return_inverse=True, return_counts=True)
    # Share of labeled images among those that are not of an image's identity.
    share = (len(images) - count[person]) / np.maximum(len(identities) - count[person], 1)
    n_impostors, n_labeled, by_chance = 0, 0, 0.0
    for start, stop in spans(len(images), _ROWS_PER_BLOCK):
        block = images[start:stop]
        near = candidates.neighbors[block]
        theirs = np.where(near >= 0, identities[np.maximum(near, 0)], -2)
        impostors = ((theirs != identities[block][:, None]) & (theirs > -2)).sum(axis=1)
        n_impostors += int(impostors.sum())
        n_labeled += int(((theirs != identities[block][:, None]) & (theirs >= 0)).sum())
        by_chance += float(impostors @ share[start:stop])
    if n_impostors < _MIN_IMPOSTORS or by_chance < _MIN_LABELED:
        return None
    return n_labeled / n_impostors, by_chance / n_impostors


def seem_unlike(found: float, chance: float) -> bool:
    """Test whether labeled and unlabeled images differ, by the share of labeled impostors.

    The odds ratio was 0.9 to 1.3 on LFW, Omniglot, drawn faces and made-up crowds.
    """
    return found * (1 - chance) > _UNLIKE_ABOVE * chance * (1 - found)
