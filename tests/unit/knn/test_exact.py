import numpy as np
import pytest
from tests.refusals import refuses

import reference
from cdp.knn import exact
from cdp.knn.exact import block_pairs, exact_graph, graph_from_neighbors, search_rows
from cdp.knn.pair_similarity import similarities, sort_for_locality
from cdp.knn.simd import to_float32
from cdp.knn.topk import insert_rows_and_columns
from cdp.runtime.kernels import kernel
from cdp.runtime.runtime import Runtime
from cdp.types import Embeddings


def _random(n_images, dimensions, seed=0, dtype=np.float32):
    return np.random.default_rng(seed).normal(size=(n_images, dimensions)).astype(dtype)


def _signs(n_images, seed=0):
    """Rows of +-1 in 16 dimensions: all arithmetic is exact, and nearly everything ties."""
    return np.random.default_rng(seed).choice(np.float32([-1, 1]), size=(n_images, 16))


def assert_is_knn(graph, vectors, k, tolerance=2e-6):
    """The graph is the twin's, except that images whose true similarities are closer than float32 may swap."""
    neighbors, similarity = reference.knn(vectors, k)
    table = reference.cosines(vectors)
    np.testing.assert_allclose(graph.similarity, similarity, atol=tolerance)
    measured = np.take_along_axis(table, graph.neighbors.astype(np.int64), axis=1)
    np.testing.assert_allclose(graph.similarity, measured, atol=tolerance)
    differ = graph.neighbors != neighbors
    assert np.all(np.abs(measured - similarity)[differ] < tolerance)
    assert differ.mean() < 0.01


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize(("n_images", "dimensions", "k"), [(2, 3, 1), (60, 7, 5), (150, 33, 20), (12, 4, 11)])
def test_agrees_with_the_full_sort(dtype, n_images, dimensions, k):
    vectors = _random(n_images, dimensions, seed=n_images, dtype=dtype)
    graph = exact_graph(Embeddings(vectors), k, runtime=Runtime.of(threads=1))
    assert graph.method == "exact"
    assert_is_knn(graph, vectors, k)


def test_one_dimension_knows_two_directions():
    graph = exact_graph(Embeddings(np.array([[2.0], [-1], [4], [1], [-8]])), 2, runtime=Runtime.of(threads=1))
    np.testing.assert_array_equal(graph.neighbors, [[2, 3], [4, 0], [0, 3], [0, 2], [1, 0]])
    np.testing.assert_array_equal(graph.similarity, [[1, 1], [1, -1], [1, 1], [1, 1], [1, -1]])


def test_ties_are_ordered_by_id():
    vectors = _signs(200)
    neighbors, similarity = reference.knn(vectors, 9)
    graph = exact_graph(Embeddings(vectors), 9, runtime=Runtime.of(threads=1))
    assert np.any(similarity[:, 1:] == similarity[:, :-1])
    np.testing.assert_array_equal(graph.neighbors, neighbors)
    np.testing.assert_array_equal(graph.similarity, similarity)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_copies_of_an_image_tie_exactly_and_are_ordered_by_id(dtype):
    faces = _random(60, 19, seed=4, dtype=dtype)
    face_of = np.random.default_rng(5).permutation(np.repeat(np.arange(60), 4))
    graph = exact_graph(Embeddings(faces[face_of]), 7, runtime=Runtime.of(threads=1))
    for image, face in enumerate(face_of):
        others = [other for other in np.flatnonzero(face_of == face) if other != image]
        np.testing.assert_array_equal(graph.neighbors[image, :3], others)
        assert len(set(graph.similarity[image, :3])) == 1
        # The next four are the four copies of the second nearest face, in order of id, all equally similar.
        assert len(set(face_of[graph.neighbors[image, 3:]])) == 1
        assert np.all(np.diff(graph.neighbors[image, 3:]) > 0)
        assert len(set(graph.similarity[image, 3:])) == 1


def test_many_copies_of_an_image_are_ordered_by_id():
    faces = _random(6, 37, seed=1)
    face_of = np.random.default_rng(1).integers(0, 6, 300)
    graph = exact_graph(Embeddings(faces[face_of]), 3, runtime=Runtime.of(threads=1))
    expected = [
        [other for other in np.flatnonzero(face_of == face) if other != image][:3]
        for image, face in enumerate(face_of)
    ]
    np.testing.assert_array_equal(graph.neighbors, expected)


@pytest.mark.parametrize(("block_rows", "tile_rows"), [(23, 1), (31, 16), (66, 66), (100, 7), (199, 512)])
@pytest.mark.parametrize("make", [lambda: _random(200, 12, seed=2), lambda: _signs(200, seed=2)])
def test_block_boundaries_do_not_show(monkeypatch, block_rows, tile_rows, make):
    embeddings = Embeddings(make())
    whole = exact_graph(embeddings, 6, runtime=Runtime.of(threads=1))
    monkeypatch.setattr(exact, "BLOCK_ROWS", block_rows)
    monkeypatch.setattr(exact, "TILE_ROWS", tile_rows)
    for threads in (1, 2, 5):
        cut = exact_graph(embeddings, 6, runtime=Runtime.of(threads=threads))
        assert cut.neighbors.tobytes() == whole.neighbors.tobytes()
        assert cut.similarity.tobytes() == whole.similarity.tobytes()


@pytest.mark.parametrize("n_blocks", range(1, 12))
def test_every_pair_of_blocks_is_joined_once(n_blocks):
    pairs = block_pairs(n_blocks)
    assert sorted(pairs) == [
        (first, second) for first in range(n_blocks) for second in range(first, n_blocks)
    ]


def test_a_tile_serves_its_rows_and_its_columns():
    tile = np.random.default_rng(0).normal(size=(70, 150)).astype(np.float32)
    best, ids = np.full((300, 5), -np.inf, np.float32), np.full((300, 5), -1, np.int32)
    insert_rows_and_columns(tile, 10, 100, best, ids)
    for row in range(70):
        np.testing.assert_array_equal(ids[10 + row], 100 + np.argsort(-tile[row])[:5])
    for column in range(150):
        np.testing.assert_array_equal(ids[100 + column], 10 + np.argsort(-tile[:, column])[:5])
    np.testing.assert_array_equal(np.isneginf(best), ids < 0)


@pytest.mark.parametrize(("span", "tile"), [(80, 512), (30, 3), (20, 1), (79, 2)])
def test_some_rows_are_the_rows_of_the_whole(monkeypatch, span, tile):
    monkeypatch.setattr(exact, "_SPAN_ROWS", span)
    monkeypatch.setattr(exact, "TILE_ROWS", tile)
    embeddings = Embeddings(np.round(_random(80, 6, seed=6)))
    whole = exact_graph(embeddings, 5, runtime=Runtime.of(threads=1))
    rows = np.array([79, 0, 33, 33], np.int32)
    neighbors, similarity = search_rows(embeddings, rows, 5, runtime=Runtime.of(threads=2))
    np.testing.assert_array_equal(neighbors, whole.neighbors[rows])
    np.testing.assert_array_equal(similarity, whole.similarity[rows])


def test_the_watch_is_told_until_all_rows_are_done(monkeypatch):
    monkeypatch.setattr(exact, "BLOCK_ROWS", 40)
    calls = []
    exact_graph(
        Embeddings(_random(70, 4)),
        3,
        runtime=Runtime.of(threads=1, progress=lambda *news: calls.append(news)),
        step="k-NN graph a",
    )
    assert calls == [("k-NN graph a", 23, 70), ("k-NN graph a", 46, 70), ("k-NN graph a", 70, 70)]


def test_the_callers_array_is_unchanged():
    vectors = _random(50, 5)
    before = vectors.copy()
    exact_graph(Embeddings(vectors), 4, runtime=Runtime.of(threads=1))
    np.testing.assert_array_equal(vectors, before)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_similarities_are_cosines_within_their_range(dtype):
    vectors = _random(40, 9, seed=7, dtype=dtype)
    vectors[3] = vectors[4]
    vectors[5] = -vectors[6]
    ends = np.argwhere(np.ones((40, 40), bool))
    measured = similarities(Embeddings(vectors), ends)
    assert measured.dtype == np.float32
    np.testing.assert_allclose(measured, reference.cosines(vectors)[tuple(ends.T)], atol=1e-6)
    assert measured.min() >= -1
    assert measured.max() <= 1


@kernel
def _convert(entries, converted):
    for row in range(len(entries)):
        converted[row] = to_float32(entries[row])


def test_every_float_of_16_bits_is_the_same_with_32():
    bits = np.arange(2**16, dtype=np.uint16)
    bits = bits[np.isfinite(bits.view(np.float16))]
    converted = np.empty(len(bits), np.float32)
    _convert(bits, converted)
    assert converted.tobytes() == bits.view(np.float16).astype(np.float32).tobytes()
    again = np.empty_like(converted)
    _convert(converted, again)
    assert again.tobytes() == converted.tobytes()


@pytest.mark.parametrize("size", [1e-25, 1e25])
def test_the_length_of_rows_does_not_matter(size):
    vectors = _random(40, 9, seed=8)
    plain = exact_graph(Embeddings(vectors), 3, runtime=Runtime.of(threads=1))
    scaled = exact_graph(Embeddings(vectors * np.float32(size)), 3, runtime=Runtime.of(threads=1))
    np.testing.assert_allclose(scaled.similarity, plain.similarity, atol=1e-5)


def test_given_neighbors_are_cleaned_sorted_and_measured():
    vectors = _random(5, 4, seed=9)
    given = np.array([[0, 2, 1, 2], [1, -1, 3, 3], [4, 4, 4, 4], [-1, -1, -1, -1], [3, 2, 1, 0]])
    before = given.copy()
    graph = graph_from_neighbors(Embeddings(vectors), given, method="theirs", runtime=Runtime())
    table = reference.cosines(vectors)
    kept = [{1, 2}, {3}, {4}, set(), {0, 1, 2, 3}]
    assert graph.method == "theirs"
    assert graph.k == 4
    for image, others in enumerate(kept):
        expected = sorted(others, key=lambda other: -table[image, other])
        found = [int(other) for other in graph.neighbors[image] if other >= 0]
        assert found == expected
        np.testing.assert_allclose(graph.similarity[image, : len(found)], table[image, expected], atol=1e-6)
        assert np.all(np.isneginf(graph.similarity[image, len(found) :]))
    np.testing.assert_array_equal(given, before)


def test_given_neighbors_lose_columns_nobody_uses():
    embeddings = Embeddings(_random(3, 4))
    assert (
        graph_from_neighbors(embeddings, np.array([[0, 1, -1], [1, 0, 0], [2, 0, 0]]), runtime=Runtime()).k
        == 1
    )
    nothing = graph_from_neighbors(embeddings, np.array([[0, -1], [1, 1], [-1, -1]]), runtime=Runtime())
    np.testing.assert_array_equal(nothing.neighbors, [[-1], [-1], [-1]])


def test_given_neighbors_past_the_last_image_are_refused():
    with refuses("neighbors-of-other-embeddings", expected=3, found=3):
        graph_from_neighbors(Embeddings(_random(3, 4)), np.array([[1], [2], [3]]), runtime=Runtime())


def test_given_true_neighbors_make_the_exact_graph():
    embeddings = Embeddings(_random(90, 8, seed=10))
    graph = exact_graph(embeddings, 6, runtime=Runtime.of(threads=1))
    shuffled = np.random.default_rng(0).permuted(graph.neighbors, axis=1)
    again = graph_from_neighbors(embeddings, shuffled, runtime=Runtime())
    np.testing.assert_array_equal(again.neighbors, graph.neighbors)
    np.testing.assert_array_equal(again.similarity, graph.similarity)


@pytest.mark.parametrize("n_images", [1, 40, 1000])
def test_pairs_in_reading_order_are_the_same_pairs_by_their_second_ends(n_images):
    ends = np.random.default_rng(n_images).integers(0, n_images, (300, 2)).astype(np.int32)
    moved, origin = sort_for_locality(ends, n_images)
    np.testing.assert_array_equal(moved, ends[origin])
    np.testing.assert_array_equal(np.sort(origin), np.arange(300))
    assert np.all(np.diff(moved[:, 1] // 32) >= 0)
