"""Products that are compared as they are computed, against the table of all products."""

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdp.knn.panels import LANES, find_candidates, find_nearest_centroid, pack_panels, pad_thresholds


def _search(vectors, queries, query_thresholds, images, image_thresholds):
    most = 2 * len(queries) * len(images)
    found = np.full((3, most), -1, np.int32)
    panels = pack_panels(vectors[images])
    thresholds = pad_thresholds(image_thresholds)
    n_found = find_candidates(vectors, queries, queries, query_thresholds, panels, images, thresholds, found)
    values = found[2].view(np.float32)
    return list(zip(*found[:2, :n_found].tolist(), values[:n_found].tolist(), strict=True))


@given(st.integers(0, 30), st.integers(1, 2 * LANES + 3), st.integers(1, 40), st.integers(0, 99))
def test_candidates_are_those_of_the_table(n_queries, n_images, dimensions, seed):
    generator = np.random.default_rng(seed)
    # Whole numbers: every way to add their products up gives the same, and many reach a threshold exactly.
    vectors = generator.integers(-3, 4, (60, dimensions)).astype(np.float32)
    queries, images = (
        generator.choice(60, count, replace=False).astype(np.int32) for count in (n_queries, n_images)
    )
    query_thresholds, image_thresholds = (
        generator.integers(-5, 25, count).astype(np.float32) for count in (n_queries, n_images)
    )
    query_thresholds[::5] = np.inf
    image_thresholds[::7] = -np.inf
    expected = []
    for query, threshold in zip(queries, query_thresholds, strict=True):
        for image, image_threshold in zip(images, image_thresholds, strict=True):
            value = float(vectors[query] @ vectors[image])
            expected += [(int(query), int(image), value)] if value >= threshold else []
            expected += [(int(image), int(query), value)] if value >= image_threshold else []
    candidates = _search(vectors, queries, query_thresholds, images, image_thresholds)
    assert sorted(candidates) == sorted(expected)


@pytest.mark.parametrize("dimensions", [16, 100, 512])
def test_products_are_right_to_rounding(dimensions):
    vectors = np.random.default_rng(0).standard_normal((200, dimensions)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    queries, images = np.arange(120, dtype=np.int32), np.arange(120, 200, dtype=np.int32)
    all_pass, none_pass = np.full(120, -np.inf, np.float32), np.full(80, np.inf, np.float32)
    candidates = _search(vectors, queries, all_pass, images, none_pass)
    table = vectors.astype(np.float64) @ vectors.astype(np.float64).T
    assert len(candidates) == 120 * 80
    assert max(abs(value - table[query, image]) for query, image, value in candidates) < 1e-6


def test_padding_queries_finds_nothing_twice():
    vectors = np.ones((8, 4), np.float32)
    queries, images = np.array([0], np.int32), np.arange(1, 8, dtype=np.int32)
    candidates = _search(vectors, queries, np.zeros(1, np.float32), images, np.zeros(7, np.float32))
    assert len(candidates) == 14


def test_arrays_that_are_not_contiguous_are_refused():
    vectors = np.ones((4, 8), np.float32).T
    queries, images = np.array([0], np.int32), np.array([1], np.int32)
    with pytest.raises(numba.TypingError):
        _search(vectors, queries, np.zeros(1, np.float32), images, np.zeros(1, np.float32))


@given(st.integers(1, 20), st.integers(1, 2 * LANES + 3), st.integers(1, 40), st.integers(0, 99))
def test_the_nearest_centroid_is_that_of_the_table(n_rows, n_centroids, dimensions, seed):
    generator = np.random.default_rng(seed)
    # Whole numbers: many products are equal, and then the first center counts.
    vectors = generator.integers(-3, 4, (n_rows + 5, dimensions)).astype(np.float32)
    centroids = generator.integers(-3, 4, (n_centroids, dimensions)).astype(np.float32)
    rows = generator.choice(len(vectors), n_rows, replace=False).astype(np.int32)
    best = np.full(len(vectors), generator.integers(-3, 20), np.float32)
    ids = np.full(len(vectors), 7, np.int32)
    table = vectors @ centroids.T
    is_better = np.isin(np.arange(len(vectors)), rows) & (table.max(axis=1) > best)
    expected = np.where(is_better, 100 + table.argmax(axis=1), 7)
    expected_best = np.where(is_better, table.max(axis=1), best)
    find_nearest_centroid(vectors, rows, pack_panels(centroids), 100, n_centroids, best, ids)
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_array_equal(best, expected_best)
