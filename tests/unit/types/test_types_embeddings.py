import dataclasses

import numpy as np
import pytest
from tests.refusals import refuses

from cdp.knn.pair_similarity import similarities
from cdp.types import Embeddings, Views
from cdp.types import embeddings as module


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 1e-6), ("float32", 1e-6), ("float64", 1e-6)])
def test_rows_are_unit_vectors_and_the_callers_array_is_untouched(dtype, tolerance):
    given = np.random.default_rng(0).normal(size=(50, 7)).astype(dtype) * 3
    before = given.copy()
    vectors = Embeddings(given).vectors
    wide = before.astype(np.float64)
    assert vectors.dtype == np.float32
    np.testing.assert_allclose(vectors, wide / np.linalg.norm(wide, axis=1, keepdims=True), atol=tolerance)
    np.testing.assert_array_equal(given, before)
    assert given.flags.writeable


def test_normalisation_is_per_row():
    given = np.array([[3.0, 4.0], [0.0, 1e-3], [-600.0, 800.0]])
    np.testing.assert_allclose(Embeddings(given).vectors, [[0.6, 0.8], [0, 1], [-0.6, 0.8]], rtol=1e-7)


def test_block_and_take_are_rows_of_vectors_and_fresh():
    held = Embeddings(np.random.default_rng(1).normal(size=(9, 3)))
    np.testing.assert_array_equal(held.block(2, 5), held.vectors[2:5])
    np.testing.assert_array_equal(held.take(np.array([7, 0, 7])), held.vectors[[7, 0, 7]])
    held.block(0, 9)[...] = 0
    assert np.all(np.linalg.norm(held.vectors, axis=1) > 0.99)


@pytest.mark.parametrize("size", [1e-28, 1e-10, 1e10, 1e300])
def test_float64_rows_of_extreme_length_are_scaled(size):
    given = np.array([[3.0, 4.0], [5.0, -12.0]]) * size
    np.testing.assert_allclose(Embeddings(given).vectors, [[0.6, 0.8], [5 / 13, -12 / 13]], rtol=1e-6)


NATIVE = np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)


@pytest.mark.parametrize("same", [NATIVE.tolist(), np.asfortranarray(NATIVE), NATIVE[::-1].copy()[::-1]])
def test_lists_and_any_memory_layout_are_accepted(same):
    np.testing.assert_allclose(Embeddings(same).vectors, Embeddings(NATIVE).vectors, rtol=1e-7)


@pytest.mark.parametrize("dtype", [">f2", ">f4", ">f8"])
def test_foreign_byte_order_is_accepted(dtype):
    np.testing.assert_allclose(
        Embeddings(NATIVE.astype(dtype)).vectors, Embeddings(NATIVE).vectors, rtol=1e-7
    )


def test_memory_mapped_file_is_not_read_into_memory_and_not_changed(tmp_path):
    path = tmp_path / "vectors.npy"
    np.save(path, np.full((4, 2), 2.0, np.float32))
    bytes_before = path.read_bytes()
    mapped = np.load(path, mmap_mode="r+")
    held = Embeddings(mapped)
    np.testing.assert_allclose(held.vectors, np.full((4, 2), 0.5**0.5), rtol=1e-6)
    assert np.shares_memory(held.source, mapped)
    assert path.read_bytes() == bytes_before


def test_size_length_text_and_array():
    held = Embeddings(np.ones((1200, 3), np.float16))
    assert (held.n_images, held.dimensions, len(held)) == (1200, 3, 1200)
    assert repr(held) == "Embeddings: 1,200 images x 3 (float16)"
    assert np.asarray(held).dtype == np.float32
    assert np.asarray(held, dtype=np.float64).dtype == np.float64
    np.testing.assert_array_equal(np.asarray(held), held.vectors)


def test_is_frozen_and_read_only():
    held = Embeddings(np.ones((2, 2)))
    with pytest.raises(dataclasses.FrozenInstanceError):
        held.source = np.zeros((2, 2))
    for array in (held.source, held.scale):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0


def _spoiled(rows, value):
    array = np.ones((20, 3), np.float32)
    array[rows, 1] = value
    return array


@pytest.mark.parametrize(
    ("given", "code", "fields"),
    [
        (
            _spoiled([3], np.nan),
            "embeddings-not-finite",
            {"row": 3, "count": 1},
        ),
        (
            _spoiled([0, 19], -np.inf),
            "embeddings-not-finite",
            {"row": 0, "count": 2},
        ),
        (
            _spoiled(list(range(2, 10)), np.nan),
            "embeddings-not-finite",
            {"row": 2, "count": 8},
        ),
        (
            np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]),
            "embeddings-zero-length",
            {"row": 1, "count": 2},
        ),
        (
            np.ones(4),
            "embeddings-not-a-table",
            {"found": (4,)},
        ),
        (
            np.ones((2, 2, 2)),
            "embeddings-not-a-table",
            {"found": (2, 2, 2)},
        ),
        (
            np.ones((2, 2), np.int64),
            "embeddings-not-floats",
            {"found": "int64"},
        ),
        (
            np.ones((2, 2), bool),
            "embeddings-not-floats",
            {"found": "bool"},
        ),
        (
            np.array([[1.0], [None]], dtype=object),
            "embeddings-are-objects",
            {},
        ),
        (np.empty((0, 4)), "embeddings-empty", {}),
        (np.empty((4, 0)), "embeddings-without-dimensions", {}),
    ],
)
def test_refusals(given, code, fields):
    with refuses(code, **fields):
        Embeddings(given)


def test_row_numbers_count_through_all_checked_blocks(monkeypatch):
    monkeypatch.setattr(module, "_BLOCK_BYTES", 4 * 8 * 3)  # four rows of three at a time
    with refuses("embeddings-not-finite", row=1, count=3) as caught:
        Embeddings(_spoiled([1, 7, 18], np.nan))
    assert str(caught.value) == (
        "Embeddings: NaN or infinity in rows 1, 7, 18 (counted from 0); remove these images or embed them again."
    )
    zero = np.ones((20, 3))
    zero[[5, 13]] = 0
    with refuses("embeddings-zero-length", row=5, count=2):
        Embeddings(zero)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_stacked_views_are_read_where_they_are_and_equal_concatenated_ones(dtype):
    generator = np.random.default_rng(0)
    parts = [
        Views(generator.normal(size=(n, 8)).astype(dtype), identities=np.arange(n), paths=[f"{n}"] * n)
        for n in (5, 7)
    ]
    stacked, copied = parts[0].stack(parts[1]), Views.concatenate(parts)
    assert stacked is not None
    assert all(
        np.shares_memory(*pair)
        for pair in zip(stacked.base.sources, (p.base.source for p in parts), strict=True)
    )
    np.testing.assert_array_equal(stacked.base.vectors, copied.base.vectors)
    np.testing.assert_array_equal(stacked.base.source, copied.base.source)
    assert (stacked.base.n_images, stacked.base.dimensions) == (12, 8)
    assert stacked.base.scale_range == copied.base.scale_range
    assert repr(stacked.base).endswith("two arrays)")
    np.testing.assert_array_equal(stacked.identities, copied.identities)
    assert stacked.paths == copied.paths
    for start, stop in ((0, 5), (5, 12), (3, 9)):
        np.testing.assert_array_equal(stacked.base.block(start, stop), copied.base.block(start, stop))
    for rows in ([0, 4], [5, 11], [11, 0, 5, 5, 4]):
        rows, out = np.array(rows), np.empty((len(rows), 8), np.float32)
        np.testing.assert_array_equal(stacked.base.take(rows), copied.base.take(rows))
        np.testing.assert_array_equal(stacked.base.take(rows, out), copied.base.take(rows))
    pairs = generator.integers(0, 12, (40, 2)).astype(np.int32)
    np.testing.assert_array_equal(similarities(stacked.base, pairs), similarities(copied.base, pairs))
    other = Views(np.ones((3, 8), np.float32 if dtype == np.float64 else np.float64))
    assert parts[0].stack(other) is None, "other types are copied"
    assert stacked.stack(parts[0]) is None, "two parts at most"
    three = Views.concatenate([stacked, parts[0]])
    np.testing.assert_array_equal(three.base.vectors[-5:], parts[0].base.vectors)
    assert parts[0].stack(Views(np.ones((3, 8)), {"more": np.ones((3, 8))})) is None
