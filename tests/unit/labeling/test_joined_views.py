"""Labeled images joined with the unlabeled ones, and removed again."""

import numpy as np

from cdp.labeling.joined_views import first_lists
from cdp.runtime.runtime import Runtime
from cdp.types import KnnGraph


def test_the_first_rows_lose_neighbors_past_them():
    graph = KnnGraph(
        [[3, 1], [0, 2], [3, 0], [0, 1]], [[0.9, 0.8], [0.7, 0.6], [0.5, 0.4], [0.3, 0.2]], "exact", 1.0
    )
    first = first_lists(graph, 3, Runtime())
    assert first.neighbors.tolist() == [[1, -1], [0, 2], [0, -1]]
    np.testing.assert_allclose(first.similarity, [[0.8, -np.inf], [0.7, 0.6], [0.4, -np.inf]])
    assert (first.method, first.recall) == ("exact", 1.0)
