"""The paper's mediator network: a small MLP on scikit-learn, with the paper's schedule."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClassifierMixin

from cdp.errors import NotFittedError
from cdp.runtime.parallel import on_one_thread
from cdp.runtime.progress import Progress, no_progress
from cdp.types.arrays import AnyArray, DoubleArray, FloatArray

Batches = Callable[[np.random.Generator], Iterator[tuple[FloatArray, AnyArray]]]
"""One pass over the training pairs in random order, as (matrix, same identity?) blocks."""

BATCH = 256
"""Pairs per step of gradient descent."""
_EPOCHS_PER_ROUND = 3
_PAPER_PAIRS_SHOWN = 3 * 8_700_000
_ENOUGH = 0.03


class PaperMLP(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The paper's mediator: two hidden layers of 50, ReLU, cross-entropy, plain stochastic gradient descent.

    Schedule. The paper trains on 8.7 M pairs for 4 epochs at rate 0.05, divided by 10 after the third. Fewer
    pairs need more epochs to converge. The rule: epochs at the full rate, three at a time, until three epochs
    together lower the mean training loss by less than 3 %, or until as many pairs have been shown as in the
    paper's three epochs (26 M); then a third as many epochs at a tenth of the rate. With 8.7 M pairs this is
    the paper's schedule.

    Deviation: inputs are standardized; the batch size, 256, is chosen here, the paper is silent.

    Attributes:
        weights_: per layer, float32 (inputs, outputs) and (outputs,).
        center_, width_: what standardizes the inputs.
        losses_: mean training loss of every epoch.
    """

    def __init__(
        self,
        hidden: tuple[int, ...] = (50, 50),
        learning_rate: float = 0.05,
        random_state: int = 0,
    ) -> None:
        self.hidden = hidden
        self.learning_rate = learning_rate
        self.random_state = random_state

    def fit(self, X: npt.ArrayLike, y: npt.ArrayLike) -> PaperMLP:
        """Learn from opinions (m, inputs) and whether each pair is one identity."""
        matrix = np.asarray(X, dtype=np.float32)
        same = np.asarray(y).astype(np.int64)

        def batches(generator: np.random.Generator) -> Iterator[tuple[FloatArray, AnyArray]]:
            order = generator.permutation(len(matrix))
            yield matrix[order], same[order]

        return self.fit_batches(batches)

    def fit_batches(self, batches: Batches, progress: Progress = no_progress) -> PaperMLP:
        """Learn from blocks that are made again for every pass, so that they need not fit memory together."""
        from sklearn.neural_network import MLPClassifier

        generator = np.random.default_rng(self.random_state)
        n_pairs, self.center_, self.width_ = _standardization(batches(generator))

        def learner(rate: float) -> Any:
            return MLPClassifier(
                self.hidden,
                solver="sgd",
                alpha=0.0,
                learning_rate_init=rate,
                momentum=0.0,
                nesterovs_momentum=False,
                shuffle=False,
                random_state=np.random.RandomState(self.random_state),
            )

        def train_epochs(model: Any, n_epochs: int, total: int) -> None:
            for _ in range(n_epochs):
                self.losses_.append(train_epoch(model))
                progress("mediator, epochs", len(self.losses_), total)

        def train_epoch(model: Any) -> float:
            losses, sizes = [], []
            for matrix, same in batches(generator):
                model.set_params(batch_size=min(BATCH, len(matrix)))
                model.partial_fit(self._standardize(matrix), same, classes=[0, 1])
                losses.append(model.loss_)
                sizes.append(len(matrix))
            return float(np.average(losses, weights=sizes))

        model, slow = learner(self.learning_rate), learner(self.learning_rate / 10)
        self.losses_: list[float] = []
        # One thread: the products are small, and their rounding must not depend on the number of cores.
        with on_one_thread("blas"):
            while not _converged(self.losses_, n_pairs):
                train_epochs(model, _EPOCHS_PER_ROUND, total=0)
            _hand_over(model, slow, self._standardize(next(batches(generator))[0][:2]))
            n_slow = len(self.losses_) // 3
            train_epochs(slow, n_slow, total=len(self.losses_) + n_slow)
        self.weights_ = [
            (np.asarray(layer, np.float32), np.asarray(bias, np.float32))
            for layer, bias in zip(slow.coefs_, slow.intercepts_, strict=True)
        ]
        self.classes_ = np.array([0, 1])
        return self

    def _standardize(self, matrix: FloatArray) -> FloatArray:
        standard: FloatArray = (matrix - self.center_) / self.width_
        return standard

    def logits(self, X: npt.ArrayLike) -> FloatArray:
        """ln(probability / doubt) of every pair, float32 (m,)."""
        if not hasattr(self, "weights_"):
            raise NotFittedError(
                "The mediator has not learned yet; call fit first.", code="mediator-not-fitted"
            )
        flow = self._standardize(np.asarray(X, dtype=np.float32))
        for layer, bias in self.weights_[:-1]:
            flow = flow @ layer
            flow += bias
            np.maximum(flow, 0, out=flow)
        layer, bias = self.weights_[-1]
        logits: FloatArray = (flow @ layer + bias)[:, 0]
        return logits

    def doubt(self, X: npt.ArrayLike) -> FloatArray:
        """1 - probability, computed from the logits so that it keeps its precision next to 0."""
        return doubt_from_logits(self.logits(X))

    def predict_proba(self, X: npt.ArrayLike) -> DoubleArray:
        """Probability of (different, same) identity, float64 (m, 2)."""
        doubt = self.doubt(X).astype(np.float64)
        return np.stack([doubt, 1 - doubt], axis=1)

    def predict(self, X: npt.ArrayLike) -> AnyArray:
        """1 where one identity is more likely than two."""
        return (self.logits(X) > 0).astype(np.int64)


def _standardization(blocks: Iterator[tuple[FloatArray, AnyArray]]) -> tuple[int, FloatArray, FloatArray]:
    """Count rows; measure mean and standard deviation of every column (1 if it is constant)."""
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


def _converged(losses: Sequence[float], n_pairs: int) -> bool:
    """Return whether the full learning rate has done its work; the rule in `PaperMLP`'s docstring."""
    if not losses:
        return False
    if len(losses) * n_pairs >= _PAPER_PAIRS_SHOWN:
        return True
    if len(losses) < 2 * _EPOCHS_PER_ROUND:
        return False
    latest = float(np.mean(losses[-_EPOCHS_PER_ROUND:]))
    before = float(np.mean(losses[-2 * _EPOCHS_PER_ROUND : -_EPOCHS_PER_ROUND]))
    return latest > (1 - _ENOUGH) * before


def _hand_over(model: Any, successor: Any, two_rows: FloatArray) -> None:
    """Copy weights into a fresh learner, which must see one row first to have any."""
    successor.set_params(batch_size=len(two_rows))
    successor.partial_fit(two_rows, np.arange(len(two_rows)) % 2, classes=[0, 1])
    for mine, theirs in zip(
        successor.coefs_ + successor.intercepts_, model.coefs_ + model.intercepts_, strict=True
    ):
        mine[...] = theirs


def doubt_from_logits(logits: FloatArray) -> FloatArray:
    """Compute 1 / (1 + e^logit), which stays exact next to 0, unlike 1 - probability."""
    with np.errstate(over="ignore"):
        return (1 / (1 + np.exp(logits.astype(np.float64)))).astype(np.float32)
