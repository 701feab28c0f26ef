"""CDP: the whole of section 3.1 behind scikit-learn's manners."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, clone

from cdp.consensus.agglomeration import agglomerate
from cdp.consensus.mediator import Mediator, PairClassifier, draw_lesson, learn
from cdp.consensus.mlp import PaperMLP
from cdp.consensus.pair_features import FeatureSource, extract_features, prepare_features
from cdp.consensus.pairs import candidate_pairs
from cdp.consensus.propagation import propagate
from cdp.consensus.vote import Vote
from cdp.errors import InputError, NotFittedError, name_rows
from cdp.graph.search import METHODS, check_k, knn_graphs
from cdp.memory import parse_bytes, rows_within
from cdp.parallel import map_blocks, spans
from cdp.progress import Progress, progress_bars
from cdp.types import PAPER_INPUTS, ConsensusGraph, Embeddings, KnnGraph, Labels, Pairs, Views
from cdp.types.arrays import BoolArray, FloatArray, LongArray
from cdp.types.opinions import check_inputs

Graphs = Sequence[KnnGraph] | Mapping[str, KnnGraph]
GROUPINGS = ("components", "average")
_MOST_PAIRS_PER_BLOCK = 65_536
# Pairs this much less probable than groups must be on average are as good as absent, and are not kept.
_NEGLIGIBLE = 0.1


class CDP(BaseEstimator):  # type: ignore[misc]
    """Consensus-Driven Propagation: pseudo-identities for images without labels.

        labels = CDP().fit(labeled).predict(unlabeled)

    The defaults are the paper's. `CDP(mediator=Vote(threshold=0.6)).fit_predict(X)` needs no labeled part and
    no committee.

    Args:
        k: neighbors per image in every model's graph.
        threshold: a pair is accepted if the mediator's probability is greater; a `Vote` has its own threshold.
        max_size: no pseudo-identity gets more images than this (the paper gives no number; 600 is that of the
            authors' code).
        step: how fast the threshold rises while a group that is too large is split.
        mediator: None for the paper's MLP; `Vote(...)`; any classifier with `fit` and `predict_proba`; or a
            `Mediator` that has learned already.
        inputs: what the mediator is told; add "common_neighbors" to the paper's three, usually a clear gain.
        grouping: "components", the paper's Algorithm 1; or "average", which joins groups by the mean probability
            between them, so that one false pair does not join two people: better on hard data, see `agglomerate`.
        join_above: with grouping "average": groups are joined while their mean is greater. `threshold` and `step`
            play no part then.
        method: k-NN search: "auto", "exact" or "nndescent".
        memory_budget: bytes for blocks of opinions, as a number or like "2GB"; graphs, pairs and labels come on
            top.
        seed: of everything random.
        threads: 0 = all cores. Results do not depend on it.
        verbose: draw progress bars on standard error.

    Attributes:
        mediator_: what was learned by `fit` (a `Mediator` or a `Vote`).
        labels_: the plain array of labels of the last `fit_predict`.
    """

    def __init__(
        self,
        k: int = 20,
        threshold: float = 0.96,
        max_size: int = 600,
        step: float = 0.1,
        *,
        mediator: Mediator | Vote | PairClassifier | None = None,
        inputs: Sequence[str] = PAPER_INPUTS,
        grouping: str = "components",
        join_above: float = 0.3,
        method: str = "auto",
        memory_budget: int | str = "1GB",
        seed: int = 0,
        threads: int = 0,
        verbose: bool = False,
    ) -> None:
        self.k = k
        self.threshold = threshold
        self.max_size = max_size
        self.step = step
        self.mediator = mediator
        self.inputs = inputs
        self.grouping = grouping
        self.join_above = join_above
        self.method = method
        self.memory_budget = memory_budget
        self.seed = seed
        self.threads = threads
        self.verbose = verbose

    def fit(
        self,
        labeled: Views | npt.ArrayLike,
        y: npt.ArrayLike | None = None,
        *,
        graphs: Graphs | None = None,
        crowd: bool = False,
        progress: Progress | None = None,
    ) -> CDP:
        """Train the mediator on the labeled part; a `Vote` or a learned `Mediator` has nothing to learn.

        Args:
            labeled: views of the labeled part, or one model's embeddings as an array.
            y: identities, if `labeled` does not carry them.
            graphs: k-NN graphs of the labeled part, if they are there already.
            crowd: allow images without an identity (negative) among the labeled ones, as company: graphs are made
                with them, so that neighbors are as crowded as where the mediator will be used, and pairs are learned
                from if both identities are known. All images of a known identity must be known. For images that the
                networks were not trained on; see `fit_lessons`.
            progress: called as the work goes on; bars are drawn if `verbose`.
        """
        return self.fit_lessons(
            [_as_views(labeled, y)],
            graphs=None if graphs is None else [graphs],
            crowd=crowd,
            progress=progress,
        )

    def fit_lessons(
        self,
        lessons: Sequence[Views],
        *,
        graphs: Sequence[Graphs] | None = None,
        crowd: bool = False,
        progress: Progress | None = None,
    ) -> CDP:
        """Train one mediator on several lessons: views with identities, each seen by networks of its own.

        Networks know the images they were trained on better than any others, so a mediator that learns there trusts
        them too much. The way out: train the networks without a part of the labeled images, learn from that part,
        and so for every part. The architectures, and so the committee's names, are the same in all lessons.

        Args:
            lessons: views of the images to learn from.
            graphs: k-NN graphs per lesson, if they are there already.
            crowd: allow images without an identity, as company; see `fit`.
            progress: called as the work goes on.
        """
        if not lessons:
            raise InputError("fit_lessons: there are no lessons; give at least one.")
        for views in lessons:
            self._check_settings(views)
        if isinstance(self.mediator, Vote | Mediator):
            self.mediator_: Mediator | Vote = self.mediator
            return self
        _check_same_committee(lessons)
        identities = [_known_identities(views, crowd) for views in lessons]
        with self._watching(progress) as told:
            drawn = []
            for number, (views, known) in enumerate(zip(lessons, identities, strict=True)):
                held = None if graphs is None else graphs[number]
                pairs, source = self._prepare(views, held, self.inputs, told, "labeled ")
                drawn.append(draw_lesson(source, pairs, known))
            classifier = PaperMLP(random_state=self.seed) if self.mediator is None else _fresh(self.mediator)
            self.mediator_ = learn(
                drawn,
                classifier,
                memory_budget=self.memory_budget,
                seed=self.seed,
                progress=told,
            )
        return self

    def predict(
        self,
        unlabeled: Views | npt.ArrayLike,
        graphs: Graphs | None = None,
        *,
        progress: Progress | None = None,
    ) -> Labels:
        """Pseudo-identities of the unlabeled part; its identities, if any, are not looked at.

        Args:
            unlabeled: views by the same base and committee, in the same order, or one model's array.
            graphs: k-NN graphs of the unlabeled part, if they are there already: base first, or by name.
            progress: called as the work goes on.
        """
        with self._watching(progress) as told:
            graph = self.consensus(unlabeled, graphs, progress=told)
            return self.group(graph)

    def consensus(
        self,
        unlabeled: Views | npt.ArrayLike,
        graphs: Graphs | None = None,
        *,
        progress: Progress | None = None,
    ) -> ConsensusGraph:
        """The accepted pairs of the unlabeled part: everything before the propagation.

        With grouping "average" these are all pairs that are not negligible, above a tenth of `join_above`.
        """
        views = _as_views(unlabeled, None)
        self._check_settings(views)
        mediator = self._ready(views)
        inputs = PAPER_INPUTS if isinstance(mediator, Vote) else mediator.inputs
        with self._watching(progress) as told:
            pairs, source = self._prepare(views, graphs, inputs, told)
            return self._accept(pairs, source, mediator, told)

    def group(self, graph: ConsensusGraph) -> Labels:
        """Pseudo-identities from the pairs that `consensus` gave, by the chosen grouping."""
        if self.grouping == "average":
            return agglomerate(graph, self.k, self.join_above, self.max_size)
        return propagate(graph, self.max_size, self.step)

    def fit_predict(self, X: Views | npt.ArrayLike, y: npt.ArrayLike | None = None) -> Labels:
        """`fit`, then `predict` on the same images; with a `Vote` neither identities nor a committee are needed.

        Returns `Labels`, which serves wherever a plain array of labels is expected; `labels_` is that array.
        """
        views = _as_views(X, y)
        labels = self.fit(views).predict(views)
        self.labels_ = np.array(labels.labels)
        return labels

    def _ready(self, views: Views) -> Mediator | Vote:
        mediator = getattr(self, "mediator_", None)
        if mediator is None and isinstance(self.mediator, Vote | Mediator):
            mediator = self.mediator
        if mediator is None:
            raise NotFittedError(
                "CDP has not learned yet: call fit(labeled) first, give a learned mediator, or use Vote()."
            )
        if isinstance(mediator, Mediator):
            if tuple(views.committee) != mediator.committee:
                raise InputError(
                    f"The mediator learned from the committee {_listed(mediator.committee)}, these views have "
                    f"{_listed(tuple(views.committee))}; give the same members in the same order."
                )
            if mediator.k != self.k:
                raise InputError(
                    f"The mediator learned from graphs with k={mediator.k}, here k={self.k}; use the same k."
                )
        held: Mediator | Vote = mediator
        return held

    def _check_settings(self, views: Views) -> None:
        for name in ("k", "max_size"):
            if not isinstance(getattr(self, name), int | np.integer):
                raise InputError(f"CDP({name}={getattr(self, name)!r}): {name} is a whole number.")
        check_k(self.k, views.n_images)
        if not 0 <= self.threshold <= 1:
            hint = f" Did you mean {self.threshold / 100:g}?" if 1 < self.threshold <= 100 else ""
            raise InputError(f"CDP(threshold={self.threshold}): threshold is a probability in [0, 1].{hint}")
        if self.max_size < 2:
            raise InputError(f"CDP(max_size={self.max_size}): a pseudo-identity has at least 2 images.")
        if not 0 < self.step < 1:
            raise InputError(f"CDP(step={self.step}): step lies between 0 and 1, both excluded.")
        if self.grouping not in GROUPINGS:
            raise InputError(f"CDP(grouping={self.grouping!r}): choose from {', '.join(GROUPINGS)}.")
        if not 0 < self.join_above < 1:
            raise InputError(
                f"CDP(join_above={self.join_above}): a mean probability between 0 and 1, both excluded."
            )
        if self.method not in METHODS:
            raise InputError(f"CDP(method={self.method!r}): choose from {', '.join(METHODS)}.")
        check_inputs(self.inputs)
        parse_bytes(self.memory_budget)
        if isinstance(self.mediator, Vote):
            self.mediator.check(len(views.committee))
        elif not (
            self.mediator is None
            or isinstance(self.mediator, Mediator)
            or hasattr(self.mediator, "predict_proba")
        ):
            raise InputError(
                f"CDP(mediator={self.mediator!r}): give Vote(), or a classifier with fit and predict_proba."
            )

    def _watching(self, progress: Progress | None) -> AbstractContextManager[Progress]:
        if progress is not None:
            return nullcontext(progress)
        return progress_bars(self.verbose)

    def _prepare(
        self, views: Views, graphs: Graphs | None, inputs: Sequence[str], progress: Progress, part: str = ""
    ) -> tuple[Pairs, FeatureSource]:
        if graphs is None:
            graphs = knn_graphs(
                list(views),
                self.k,
                self.method,
                names=[f"{part}{name}" for name in views.names],
                seed=self.seed,
                threads=self.threads,
                progress=progress,
            )
        held = tuple(graphs[name] for name in views.names) if isinstance(graphs, Mapping) else tuple(graphs)
        return candidate_pairs(held[0]), prepare_features(views, held, inputs)

    def _accept(
        self, pairs: Pairs, source: FeatureSource, mediator: Mediator | Vote, progress: Progress
    ) -> ConsensusGraph:
        bar = _NEGLIGIBLE * self.join_above if self.grouping == "average" else self.threshold

        def judge(span: tuple[int, int]) -> tuple[int, BoolArray, FloatArray]:
            opinions = extract_features(source, pairs.ids[span[0] : span[1]])
            if isinstance(mediator, Vote):
                accepted, doubt = mediator.decide(opinions)
            else:
                doubt = mediator.doubt(opinions.matrix(mediator.inputs))
                # 1 - threshold in float64: strictly greater, as in the paper, also next to certainty.
                accepted = doubt.astype(np.float64) < 1 - bar
            return span[1], accepted, doubt[accepted]

        # Several blocks are under way at once, so each gets a share of the budget.
        rows = min(_MOST_PAIRS_PER_BLOCK, rows_within(self.memory_budget, 4 * source.bytes_per_pair))
        accepted = np.zeros(len(pairs), np.bool_)
        doubts = []
        start = 0
        for stop, part, doubt in map_blocks(judge, spans(len(pairs), rows), self.threads):
            accepted[start:stop] = part
            doubts.append(doubt)
            start = stop
            progress("pairs", stop, len(pairs))
        doubt = np.concatenate([np.empty(0, np.float32), *doubts])
        return ConsensusGraph(pairs.ids[accepted], doubt, pairs.n_images)


def _fresh(classifier: PairClassifier) -> PairClassifier:
    """A copy that has not learned, so that the caller's own object is left as it was."""
    fresh: PairClassifier = clone(classifier, safe=False)
    return fresh


def _as_views(given: Views | npt.ArrayLike, y: npt.ArrayLike | None) -> Views:
    if isinstance(given, Views):
        if y is None:
            return given
        return Views(given.base, given.committee, y, given.paths)
    return Views(given if isinstance(given, Embeddings) else np.asarray(given), identities=y)


def _check_same_committee(lessons: Sequence[Views]) -> None:
    first = tuple(lessons[0].committee)
    for number, views in enumerate(lessons):
        if tuple(views.committee) != first:
            raise InputError(
                f"fit_lessons: lesson 0 has the committee {_listed(first)}, lesson {number} has "
                f"{_listed(tuple(views.committee))}; give the same members in the same order."
            )


def _known_identities(views: Views, crowd: bool) -> LongArray:
    if views.identities is None:
        raise InputError(
            "The mediator learns from identities and the labeled part has none; give them with "
            "Views(..., identities=...), or use Vote(), which needs none."
        )
    unknown = np.flatnonzero(views.identities < 0)
    if unknown.size and not crowd:
        raise InputError(
            f"The labeled part has no identity for {name_rows(unknown)} (counted from 0); leave these images out, "
            "or say crowd=True to keep them as company."
        )
    if len(np.unique(views.identities[views.identities >= 0])) < 2:
        raise InputError(
            "The labeled part has one identity only; the mediator needs at least two to compare."
        )
    return views.identities


def _listed(names: Sequence[str]) -> str:
    return f"({', '.join(names)})" if names else "(nobody)"
