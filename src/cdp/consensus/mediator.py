"""The mediator: from the committee's opinions about a pair to one doubt (paper, section 3.1.iii)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin

from cdp.errors import InputError, NotFittedError
from cdp.types import column_names
from cdp.types.arrays import AnyArray, DoubleArray, FloatArray
from cdp.types.opinions import check_inputs

Batches = Callable[[np.random.Generator], Iterator[tuple[FloatArray, AnyArray]]]
"""One pass over the training pairs in random order, as (matrix, same identity?) blocks."""

UPDATES_PER_ROUND = 2000
_FEWEST_ROUNDS = 3
_MOST_ROUNDS = 50
_BATCH = 256


class PairClassifier(Protocol):
    """Anything with scikit-learn's `fit` and `predict_proba` can be the mediator."""

    def fit(self, X: Any, y: Any) -> Any:
        """Learn from opinions and whether the pair is one identity."""

    def predict_proba(self, X: Any) -> Any:
        """Probability of (different, same) identity."""


class PaperMLP(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The paper's mediator: two hidden layers of 50, ReLU, cross-entropy.

    Schedule. The paper trains on 8.7 M pairs for 4 epochs at rate 0.05, divided by 10 after the third. Fewer
    pairs need more epochs, so training is counted in rounds: a round is one epoch, or 2,000 updates where an
    epoch has fewer. At least 3 rounds at the full rate, and more until a round's mean loss is no longer 1 %
    below the best so far (50 at most); then a third as many at a tenth of the rate. With as many pairs as in
    the paper this is the paper's schedule once 3 epochs suffice.

    Deviation: inputs are standardised; batches of 256 and momentum 0.9 are chosen here, the paper is silent.

    Attributes:
        weights_: per layer, float32 (inputs, outputs) and (outputs,).
        center_, width_: what standardises the inputs.
        losses_: mean training loss of every round.
    """

    def __init__(
        self,
        hidden: tuple[int, ...] = (50, 50),
        learning_rate: float = 0.05,
        momentum: float = 0.9,
        random_state: int = 0,
    ) -> None:
        self.hidden = hidden
        self.learning_rate = learning_rate
        self.momentum = momentum
        self.random_state = random_state

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike) -> PaperMLP:
        """Learn from opinions (m, inputs) and whether each pair is one identity."""
        matrix = np.asarray(X, dtype=np.float32)
        same = np.asarray(y).astype(np.int64)

        def batches(generator: np.random.Generator) -> Iterator[tuple[FloatArray, AnyArray]]:
            order = generator.permutation(len(matrix))
            yield matrix[order], same[order]

        return self.fit_batches(batches)

    def fit_batches(self, batches: Batches) -> PaperMLP:
        """Learn from blocks that are made anew for every pass, so that they need not fit memory together."""
        from sklearn.neural_network import MLPClassifier

        generator = np.random.default_rng(self.random_state)
        n_pairs, self.center_, self.width_ = _standardisation(batches(generator))
        updates_per_epoch = -(-n_pairs // _BATCH)
        epochs_per_round = max(1, -(-UPDATES_PER_ROUND // updates_per_epoch))

        def learner(rate: float) -> Any:
            return MLPClassifier(
                self.hidden,
                solver="sgd",
                alpha=0.0,
                batch_size=min(_BATCH, n_pairs),
                learning_rate_init=rate,
                momentum=self.momentum,
                nesterovs_momentum=False,
                shuffle=False,
                random_state=np.random.RandomState(self.random_state),
            )

        def train_round(model: Any) -> float:
            losses = []
            for _ in range(epochs_per_round):
                for matrix, same in batches(generator):
                    model.set_params(batch_size=min(_BATCH, len(matrix)))
                    model.partial_fit(self._standardise(matrix), same, classes=[0, 1])
                    losses.append((model.loss_, len(matrix)))
            return float(np.average([loss for loss, _ in losses], weights=[size for _, size in losses]))

        model = learner(self.learning_rate)
        self.losses_ = [train_round(model)]
        while len(self.losses_) < _MOST_ROUNDS:
            best = min(self.losses_)
            self.losses_.append(train_round(model))
            if len(self.losses_) >= _FEWEST_ROUNDS and self.losses_[-1] > 0.99 * best:
                break
        slow = learner(self.learning_rate / 10)
        _hand_over(model, slow, self._standardise(next(batches(generator))[0][:2]))
        for _ in range(max(1, len(self.losses_) // 3)):
            self.losses_.append(train_round(slow))
        self.weights_ = [
            (np.asarray(layer, np.float32), np.asarray(bias, np.float32))
            for layer, bias in zip(slow.coefs_, slow.intercepts_, strict=True)
        ]
        self.classes_ = np.array([0, 1])
        return self

    def _standardise(self, matrix: FloatArray) -> FloatArray:
        standard: FloatArray = (matrix - self.center_) / self.width_
        return standard

    def logits(self, X: npt.ArrayLike) -> FloatArray:
        """ln(probability / doubt) of every pair, float32 (m,)."""
        if not hasattr(self, "weights_"):
            raise NotFittedError("The mediator has not learned yet; call fit first.")
        flow = self._standardise(np.asarray(X, dtype=np.float32))
        for layer, bias in self.weights_[:-1]:
            flow = flow @ layer
            flow += bias
            np.maximum(flow, 0, out=flow)
        layer, bias = self.weights_[-1]
        logits: FloatArray = (flow @ layer + bias)[:, 0]
        return logits

    def doubt(self, X: npt.ArrayLike) -> FloatArray:
        """1 - probability, computed from the logits so that it keeps its precision next to 0."""
        return (1 / (1 + np.exp(np.clip(self.logits(X).astype(np.float64), -700, 700)))).astype(np.float32)

    def predict_proba(self, X: npt.ArrayLike) -> DoubleArray:
        """Probability of (different, same) identity, float64 (m, 2)."""
        doubt = self.doubt(X).astype(np.float64)
        return np.stack([doubt, 1 - doubt], axis=1)

    def predict(self, X: npt.ArrayLike) -> AnyArray:
        """1 where one identity is more likely than two."""
        return (self.logits(X) > 0).astype(np.int64)


def _standardisation(blocks: Iterator[tuple[FloatArray, AnyArray]]) -> tuple[int, FloatArray, FloatArray]:
    """Number of rows, and mean and standard deviation of every column; a constant column gets width 1."""
    n_pairs = 0
    total: Any = 0.0
    squares: Any = 0.0
    for matrix, _ in blocks:
        block = matrix.astype(np.float64)
        n_pairs += len(block)
        total = total + block.sum(axis=0)
        squares = squares + np.square(block).sum(axis=0)
    center = total / n_pairs
    variance = np.maximum(squares / n_pairs - np.square(center), 0)
    width = np.where(variance > 1e-12, np.sqrt(variance), 1.0)
    return n_pairs, center.astype(np.float32), width.astype(np.float32)


def _hand_over(model: Any, successor: Any, two_rows: FloatArray) -> None:
    """Give a fresh learner the weights of another. It must see a row first, or it has no weights to replace."""
    successor.set_params(batch_size=len(two_rows))
    successor.partial_fit(two_rows, np.arange(len(two_rows)) % 2, classes=[0, 1])
    for mine, theirs in zip(
        successor.coefs_ + successor.intercepts_, model.coefs_ + model.intercepts_, strict=True
    ):
        mine[...] = theirs


@dataclass(frozen=True, eq=False)
class Mediator:
    """A classifier that has learned, with all it must be told to be used on new images.

    Attributes:
        classifier: `PaperMLP`, or any fitted classifier with `predict_proba`.
        committee: names of the committee members whose opinions it learned from, in order.
        inputs: the input blocks it learned from.
        k: neighbors per image in the graphs it learned from.
        lessons: what it was trained on, for the record: number of pairs, share of them positive.
    """

    classifier: PairClassifier
    committee: tuple[str, ...]
    inputs: tuple[str, ...]
    k: int
    lessons: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "inputs", check_inputs(self.inputs))

    @property
    def columns(self) -> list[str]:
        """A name for every input."""
        return column_names(self.committee, self.inputs)

    def doubt(self, matrix: FloatArray) -> FloatArray:
        """1 - probability that the pair is one identity, float32 (m,)."""
        if matrix.shape[1] != len(self.columns):
            raise InputError(f"The mediator takes {len(self.columns)} inputs, got {matrix.shape[1]}.")
        ordered = order_ends(matrix, len(self.committee), self.inputs)
        if isinstance(self.classifier, PaperMLP):
            return self.classifier.doubt(ordered)
        return class_doubt(self.classifier, ordered)


def class_doubt(classifier: PairClassifier, matrix: FloatArray) -> FloatArray:
    """Probability of the class "different", taken as it is given rather than as 1 - the other."""
    classes = list(getattr(classifier, "classes_", [0, 1]))
    probabilities = np.asarray(classifier.predict_proba(matrix))
    if len(classes) != 2 or probabilities.shape != (len(matrix), 2):
        raise InputError(
            f"The mediator must tell two classes apart; its predict_proba gave {probabilities.shape} "
            f"for {len(matrix)} pairs."
        )
    return np.clip(probabilities[:, classes.index(0)], 0, 1).astype(np.float32)


def order_ends(matrix: FloatArray, n_members: int, inputs: Sequence[str]) -> FloatArray:
    """The same opinions with the two images of each pair in an order of their own.

    A pair has no first image, and the paper does not say which end is n0. Ids would make the answer depend on
    how the images happen to be numbered; so the end with the denser neighborhood in the base model comes first.
    """
    if "distribution" not in inputs:
        return matrix
    n_models = n_members + 1
    start = sum(
        size for name, size in (("relationship", n_members), ("affinity", n_models)) if name in inputs
    )
    mean, spread = start, start + 2 * n_models
    swap = matrix[:, mean] < matrix[:, mean + n_models]
    equal = matrix[:, mean] == matrix[:, mean + n_models]
    swap |= equal & (matrix[:, spread] < matrix[:, spread + n_models])
    order = np.arange(matrix.shape[1])
    for first in (mean, spread):
        order[first : first + n_models], order[first + n_models : first + 2 * n_models] = (
            np.arange(first + n_models, first + 2 * n_models),
            np.arange(first, first + n_models),
        )
    return np.where(swap[:, None], matrix[:, order], matrix)
