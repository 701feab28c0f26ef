"""Products that are compared as they are computed, against the table of all products."""

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdp.knn.panels import LANES, find_best, find_hits, pack_panels, pad_bars


def _search(vectors, visitors, visitor_bars, gallery, gallery_bars):
    most = 2 * len(visitors) * len(gallery)
    found = np.full((3, most), -1, np.int32)
    panels = pack_panels(vectors[gallery])
    bars = pad_bars(gallery_bars)
    n_hits = find_hits(vectors, visitors, visitors, visitor_bars, panels, gallery, bars, found)
    values = found[2].view(np.float32)
    return list(zip(*found[:2, :n_hits].tolist(), values[:n_hits].tolist(), strict=True))


@given(st.integers(0, 30), st.integers(1, 2 * LANES + 3), st.integers(1, 40), st.integers(0, 99))
def test_hits_are_those_of_the_table(n_visitors, n_gallery, dimensions, seed):
    generator = np.random.default_rng(seed)
    # Whole numbers: every way to add their products up gives the same, and many reach a bar exactly.
    vectors = generator.integers(-3, 4, (60, dimensions)).astype(np.float32)
    visitors, gallery = (
        generator.choice(60, count, replace=False).astype(np.int32) for count in (n_visitors, n_gallery)
    )
    visitor_bars, gallery_bars = (
        generator.integers(-5, 25, count).astype(np.float32) for count in (n_visitors, n_gallery)
    )
    visitor_bars[::5] = np.inf
    gallery_bars[::7] = -np.inf
    expected = []
    for visitor, bar in zip(visitors, visitor_bars, strict=True):
        for image, other_bar in zip(gallery, gallery_bars, strict=True):
            value = float(vectors[visitor] @ vectors[image])
            expected += [(int(visitor), int(image), value)] if value >= bar else []
            expected += [(int(image), int(visitor), value)] if value >= other_bar else []
    hits = _search(vectors, visitors, visitor_bars, gallery, gallery_bars)
    assert sorted(hits) == sorted(expected)


@pytest.mark.parametrize("dimensions", [16, 100, 512])
def test_products_are_right_to_rounding(dimensions):
    vectors = np.random.default_rng(0).standard_normal((200, dimensions)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    visitors, gallery = np.arange(120, dtype=np.int32), np.arange(120, 200, dtype=np.int32)
    all_pass, none_pass = np.full(120, -np.inf, np.float32), np.full(80, np.inf, np.float32)
    hits = _search(vectors, visitors, all_pass, gallery, none_pass)
    table = vectors.astype(np.float64) @ vectors.astype(np.float64).T
    assert len(hits) == 120 * 80
    assert max(abs(value - table[visitor, image]) for visitor, image, value in hits) < 1e-6


def test_a_visitor_that_stands_in_for_missing_ones_is_found_once():
    vectors = np.ones((8, 4), np.float32)
    visitors, gallery = np.array([0], np.int32), np.arange(1, 8, dtype=np.int32)
    hits = _search(vectors, visitors, np.zeros(1, np.float32), gallery, np.zeros(7, np.float32))
    assert len(hits) == 14


def test_arrays_that_do_not_lie_row_after_row_are_refused():
    vectors = np.ones((4, 8), np.float32).T
    visitors, gallery = np.array([0], np.int32), np.array([1], np.int32)
    with pytest.raises(numba.TypingError):
        _search(vectors, visitors, np.zeros(1, np.float32), gallery, np.zeros(1, np.float32))


@given(st.integers(1, 20), st.integers(1, 2 * LANES + 3), st.integers(1, 40), st.integers(0, 99))
def test_the_best_center_is_that_of_the_table(n_rows, n_centers, dimensions, seed):
    generator = np.random.default_rng(seed)
    # Whole numbers: many products are equal, and then the first center counts.
    vectors = generator.integers(-3, 4, (n_rows + 5, dimensions)).astype(np.float32)
    centers = generator.integers(-3, 4, (n_centers, dimensions)).astype(np.float32)
    rows = generator.choice(len(vectors), n_rows, replace=False).astype(np.int32)
    best = np.full(len(vectors), generator.integers(-3, 20), np.float32)
    ids = np.full(len(vectors), 7, np.int32)
    table = vectors @ centers.T
    is_better = np.isin(np.arange(len(vectors)), rows) & (table.max(axis=1) > best)
    expected = np.where(is_better, 100 + table.argmax(axis=1), 7)
    expected_best = np.where(is_better, table.max(axis=1), best)
    find_best(vectors, rows, pack_panels(centers), 100, n_centers, best, ids)
    np.testing.assert_array_equal(ids, expected)
    np.testing.assert_array_equal(best, expected_best)
