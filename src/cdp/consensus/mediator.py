"""The mediator: from the committee's opinions about a pair to one doubt (paper, section 3.1.iii)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from cdp.consensus.mlp import PaperMLP, doubt_from_logits
from cdp.consensus.pair_features import FeatureSource, extract_features
from cdp.errors import InputError
from cdp.memory import rows_within
from cdp.parallel import spans
from cdp.progress import Progress, no_progress
from cdp.types import Pairs, column_names
from cdp.types.arrays import FloatArray, IntArray, LongArray
from cdp.types.opinions import check_inputs


class PairClassifier(Protocol):
    """Anything with scikit-learn's `fit` and `predict_proba` can be the mediator."""

    def fit(self, X: Any, y: Any) -> Any:
        """Learn from opinions and whether the pair is one identity."""

    def predict_proba(self, X: Any) -> Any:
        """Probability of (different, same) identity."""


@dataclass(frozen=True, eq=False)
class Mediator:
    """A classifier that has learned, with all it must be told to be used on new images.

    A pair has no first image, and the paper does not say which end is n0. Taking the smaller id would make the
    answer depend on how the images happen to be numbered. So the classifier learns from pairs turned at random,
    and its answer about a pair is the mean of its answers for both ways round.

    Attributes:
        classifier: `PaperMLP`, or any fitted classifier with `predict_proba`.
        committee: names of the committee members whose opinions it learned from, in order.
        inputs: the input blocks it learned from.
        k: neighbors per image in the graphs it learned from.
        lessons: what it was trained on, for the record: number of pairs, share of them positive.
        impostors: how many pairs of two identities there are in use for each one it met while it learned, relative
            to pairs of one identity; more than 1 if it learned in a crowd (see `Lesson`). Its odds are divided
            by this.
    """

    classifier: PairClassifier
    committee: tuple[str, ...]
    inputs: tuple[str, ...]
    k: int
    lessons: dict[str, float] = field(default_factory=dict)
    impostors: float = 1.0

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", check_inputs(self.inputs))

    @property
    def columns(self) -> list[str]:
        """A name for every input."""
        return column_names(self.committee, self.inputs)

    def save(self, path: str | Path, *, force: bool = False) -> None:
        """Write what was learned as an artifact folder, without pickle."""
        from cdp.store import save

        save(self, path, force=force)

    @classmethod
    def load(cls, path: str | Path) -> Mediator:
        """A learned mediator from an artifact folder, to be used without the labeled part."""
        from cdp.store import load

        return load(path, cls)

    def __repr__(self) -> str:
        taught = f", learned from {int(self.lessons['pairs']):,} pairs" if "pairs" in self.lessons else ""
        return f"Mediator: {len(self.columns)} inputs from base and {len(self.committee)} members, k={self.k}{taught}"

    def doubt(self, matrix: FloatArray) -> FloatArray:
        """1 - probability that the pair is one identity, float32 (m,)."""
        if matrix.shape[1] != len(self.columns):
            raise InputError(f"The mediator takes {len(self.columns)} inputs, got {matrix.shape[1]}.")
        turned = turn_pairs(matrix, len(self.committee), self.inputs)
        if isinstance(self.classifier, PaperMLP):
            logits = self.classifier.logits(matrix)
            if turned is not None:
                logits = np.float32(0.5) * (logits + self.classifier.logits(turned))
            if self.impostors != 1:
                logits = logits - np.float32(np.log(self.impostors))
            return doubt_from_logits(logits)
        doubt = class_doubt(self.classifier, matrix)
        if turned is not None:
            doubt = np.float32(0.5) * (doubt + class_doubt(self.classifier, turned))
        if self.impostors != 1:
            more = np.float32(self.impostors) * doubt
            doubt = more / (more + (1 - doubt))
        return doubt


def class_doubt(classifier: PairClassifier, matrix: FloatArray) -> FloatArray:
    """Probability of the class "different", taken as it is given rather than as 1 - the other."""
    classes = [int(kind) for kind in getattr(classifier, "classes_", [0, 1])]
    probabilities = np.asarray(classifier.predict_proba(matrix))
    if classes != [0, 1] or probabilities.shape != (len(matrix), 2):
        raise InputError(
            f"The mediator must tell two classes apart; its predict_proba gave {probabilities.shape} "
            f"for {len(matrix)} pairs."
        )
    doubt: FloatArray = np.clip(probabilities[:, 0], 0, 1).astype(np.float32)
    return doubt


def turn_pairs(matrix: FloatArray, n_members: int, inputs: Sequence[str]) -> FloatArray | None:
    """The same opinions with first and second image exchanged; None if no input tells them apart."""
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
class Lesson:
    """Pairs whose truth is known, among images as one set of networks sees them.

    In a crowd, some images have no known identity. They are there so that graphs are as dense, and neighbors as
    hard to tell apart, as where the mediator will be used; no pair with them is learned from, for nobody knows
    whether a known and an unknown image differ. If a share r of the images is known, all pairs of one identity that
    begin at a known image are seen, as identities are known as a whole, but only a share r of its impostors. So
    there are 1 / r impostors in use for each one that is learned from.

    Attributes:
        witnesses: what opinions are drawn from.
        ids: int32 (m, 2), candidate pairs with both identities known.
        same: int64 (m,), 1 where both images are one identity.
        impostors: 1 / r.
    """

    source: FeatureSource
    ids: IntArray
    same: LongArray
    impostors: float


def draw_lesson(source: FeatureSource, pairs: Pairs, identities: LongArray) -> Lesson:
    """The candidate pairs with both identities known; a negative identity is unknown."""
    known = identities >= 0
    ids = pairs.ids if known.all() else pairs.ids[known[pairs.ids].all(axis=1)]
    same = (identities[ids[:, 0]] == identities[ids[:, 1]]).astype(np.int64)
    return Lesson(source, ids, same, len(known) / max(1, int(known.sum())))


def learn(
    lessons: Sequence[Lesson],
    classifier: PairClassifier,
    *,
    memory_budget: int | str = "1GB",
    seed: int = 0,
    progress: Progress = no_progress,
) -> Mediator:
    """Train a mediator on pairs whose truth is known: positive where both images are one identity.

    Several lessons, each with networks of its own but the same committee, are learned from together: with networks
    that were trained without the images of the lesson, the mediator learns how they see people they do not know.

    `PaperMLP` learns from blocks that are collected anew in every epoch if they do not fit the memory budget
    together. Another classifier needs all its pairs at once; if they do not fit, it gets a random sample.
    """
    same = np.concatenate([lesson.same for lesson in lessons])
    n_pairs = len(same)
    if same.min(initial=1) == same.max(initial=0):
        kind = "one identity" if same.all() else "two identities"
        raise InputError(
            f"The mediator cannot learn: all {n_pairs:,} candidate pairs of the labeled part are of {kind}. "
            + (
                "Give more identities."
                if same.all()
                else "Give identities with several images each, or check that rows and identities match."
            )
        )
    generator = np.random.default_rng(seed)
    source = lessons[0].source
    n_members = len(source.views.committee)
    most = rows_within(memory_budget, source.bytes_per_pair)
    starts = np.cumsum([0, *(len(lesson.ids) for lesson in lessons)])

    def extract_rows(rows: LongArray) -> FloatArray:
        matrix = np.empty((len(rows), n_columns), np.float32)
        for lesson, start, stop in zip(lessons, starts, starts[1:], strict=False):
            here = (rows >= start) & (rows < stop)
            matrix[here] = extract_features(lesson.source, lesson.ids[rows[here] - start]).matrix(
                source.inputs
            )
        return matrix

    n_columns = len(column_names(tuple(source.views.committee), source.inputs))
    everything = extract_rows(np.arange(n_pairs)) if n_pairs <= most else None

    def extract_turned(rows: LongArray, generator: np.random.Generator) -> tuple[FloatArray, LongArray]:
        if everything is not None:
            matrix: FloatArray = everything[rows]
        else:
            matrix = extract_rows(rows)
        turned = turn_pairs(matrix, n_members, source.inputs)
        if turned is not None:
            matrix = np.where(generator.random(len(rows))[:, None] < 0.5, matrix, turned)
        return matrix, same[rows]

    def batches(generator: np.random.Generator) -> Iterator[tuple[FloatArray, LongArray]]:
        order = generator.permutation(n_pairs)
        for start, stop in spans(n_pairs, most):
            yield extract_turned(order[start:stop], generator)

    if isinstance(classifier, PaperMLP):
        classifier.fit_batches(batches, progress)
    else:
        rows = np.arange(n_pairs)
        if n_pairs > most:
            rows = np.sort(generator.choice(n_pairs, most, replace=False))
        classifier.fit(*extract_turned(rows, generator))
    return Mediator(
        classifier,
        committee=tuple(source.views.committee),
        inputs=source.inputs,
        k=source.graphs[0].k,
        lessons={"pairs": n_pairs, "positive": float(same.mean())},
        impostors=_impostors(lessons),
    )


def _impostors(lessons: Sequence[Lesson]) -> float:
    """The lessons' own figure, averaged over the impostors they hold."""
    if len({lesson.impostors for lesson in lessons}) == 1:
        return lessons[0].impostors
    held = [len(lesson.same) - int(lesson.same.sum()) for lesson in lessons]
    return float(np.average([lesson.impostors for lesson in lessons], weights=held))
