"""Gradient-boosted trees as arrays: trained by scikit-learn, evaluated by a compiled loop.

They are stored without pickle.

LightGBM grows trees of the same quality within the spread of five seeds, no faster: 0.223 to 0.177 CPU s for
30,000 pairs, 3.76 to 3.63 for labels of LFW (`python -m benchmarks.boosting`). It would be one more
dependency, so scikit-learn grows them.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import numpy as np

from cdp.errors import InputError
from cdp.runtime.kernels import kernel
from cdp.runtime.parallel import on_one_thread
from cdp.types.arrays import BoolArray, DoubleArray, FloatArray, IntArray

# As good as 60 trees of 255 bins and a rate of 0.15, by the probabilities of pairs on LFW and made-up crowds,
# at half the time.
N_TREES = 40
N_LEAVES = 15
N_BINS = 63
RATE = 0.2

_BINNING = threading.Lock()


@dataclass(frozen=True, eq=False)
class BoostedTrees:
    """A binary classifier: the sum of one leaf per tree is the log-odds.

    Attributes:
        column: int32 (nodes,), which column a node looks at; -1 for a leaf.
        value: float64 (nodes,), the greatest value that goes left; the summand of a leaf.
        left, right: int32 (nodes,), where to go on.
        roots: int32 (trees,), where each tree begins.
        prior: log-odds before any tree.
    """

    column: IntArray
    value: DoubleArray
    left: IntArray
    right: IntArray
    roots: IntArray
    prior: float

    def __post_init__(self) -> None:
        for name in ("column", "value", "left", "right", "roots"):
            # Not as a file mapped into memory, which another run may replace.
            object.__setattr__(self, name, np.array(getattr(self, name)))
        n_nodes = len(self.column)
        inner = np.flatnonzero(self.column >= 0)
        nodes = [self.left[inner], self.right[inner]]
        # Children after their parents, so that every walk ends.
        if (
            any(len(one) != n_nodes for one in (self.value, self.left, self.right))
            or any((one <= inner).any() or (one >= n_nodes).any() for one in nodes)
            or ((self.roots < 0) | (self.roots >= n_nodes)).any()
        ):
            raise InputError(
                "BoostedTrees: a branch points to a missing node; train these trees again.",
                code="trees-branch-wrong",
            )

    @property
    def n_columns(self) -> int:
        """How many columns a matrix must have at least."""
        return int(self.column.max(initial=-1)) + 1

    def __repr__(self) -> str:
        return f"BoostedTrees: {len(self.roots)} trees, {len(self.column)} nodes"

    def log_odds(self, matrix: FloatArray) -> DoubleArray:
        """Of every row of a matrix."""
        if matrix.shape[1] < self.n_columns:
            raise InputError(
                f"BoostedTrees were trained on {self.n_columns} columns, not {matrix.shape[1]}; train them "
                "again.",
                code="trees-columns-differ",
                expected=self.n_columns,
                found=matrix.shape[1],
            )
        total = np.full(len(matrix), self.prior)
        _walk(matrix, self.column, self.value, self.left, self.right, self.roots, total)
        return total


def grow_trees(
    matrix: FloatArray, same: BoolArray, seed: int, weight: FloatArray | None = None
) -> BoostedTrees:
    """Trees that tell pairs of one identity from others; the same on any number of threads.

    Args:
        matrix: float32 (m, columns), what is known of every pair.
        same: bool (m,), whether it is one identity.
        seed: of everything random.
        weight: float32 (m,), for how many pairs each counts; None = all alike.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier

    if same.all() or not same.any():
        share = np.clip(same.mean() if len(same) else 0.5, 1e-3, 1 - 1e-3)
        none = np.empty(0, np.int32)
        return BoostedTrees(none, np.empty(0), none, none, none, float(np.log(share / (1 - share))))
    model = HistGradientBoostingClassifier(
        max_iter=N_TREES,
        learning_rate=RATE,
        max_leaf_nodes=N_LEAVES,
        max_bins=N_BINS,
        l2_regularization=1.0,
        early_stopping=False,
        random_state=seed,
    )
    _bin_one_at_a_time(model)
    # One thread: sums over pairs would else be rounded by the number of threads. OpenMP's limit is that of
    # the calling thread alone, so several trees may be grown at once.
    with on_one_thread("openmp"):
        model.fit(matrix, same, sample_weight=weight)
    return _as_arrays(model)


def _bin_one_at_a_time(model: Any) -> None:
    """Return where several trees are grown at once, their values are put into bins one after the other.

    The library empties and refills Python's list of warning filters meanwhile, which all threads share:
    another one that looks at it then warns, for no reason a user could see.
    """
    put_into_bins = model._bin_data

    def alone(*positional: Any, **named: Any) -> Any:
        with _BINNING:
            return put_into_bins(*positional, **named)

    model._bin_data = alone


def _as_arrays(model: Any) -> BoostedTrees:
    # The library has no public way to its trees; a test compares the walk below with its own probabilities.
    trees = [trees_of_step[0].nodes for trees_of_step in model._predictors]
    roots = np.cumsum([0, *(len(nodes) for nodes in trees)])[:-1]
    nodes = np.concatenate(trees)
    shift = np.repeat(roots, [len(one) for one in trees])
    is_leaf = nodes["is_leaf"].astype(np.bool_)
    return BoostedTrees(
        column=np.where(is_leaf, -1, nodes["feature_idx"]).astype(np.int32),
        value=np.where(is_leaf, nodes["value"], nodes["num_threshold"]),
        left=(nodes["left"] + shift).astype(np.int32),
        right=(nodes["right"] + shift).astype(np.int32),
        roots=roots.astype(np.int32),
        prior=float(np.ravel(model._baseline_prediction)[0]),
    )


@kernel
def _walk(
    matrix: FloatArray,
    column: IntArray,
    value: DoubleArray,
    left: IntArray,
    right: IntArray,
    roots: IntArray,
    total: DoubleArray,
) -> None:
    for row in range(len(matrix)):
        for root in roots:
            node = root
            while column[node] >= 0:
                node = left[node] if matrix[row, column[node]] <= value[node] else right[node]
            total[row] += value[node]
