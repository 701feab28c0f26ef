"""IVF search: each fast loop against its definition, and the whole against exact search."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

import reference
from cdp.knn import autotune, cell_ranges, ivf, ivf_search, kmeans, pca, probe, search
from cdp.knn.autotune import OperatingPoint, choose_operating_point
from cdp.knn.cell_ranges import AssignedCells, RangeLists, probe_ranges, search_assigned_ranges
from cdp.knn.exact import exact_graph
from cdp.knn.ivf import CellTable, cells_to_probe, inverted_lists
from cdp.knn.ivf_search import _rounds, approximate_graph
from cdp.knn.kmeans import train_centroids
from cdp.knn.pair_similarity import similarities
from cdp.knn.pca import ReducedVectors, reduce_dimensions
from cdp.knn.probe import Round, TopKLists, probe_cells, search_assigned_cells
from cdp.knn.recall import Gap, find_ground_truth, measure_recall, measure_same_identity_recall
from cdp.knn.topk import roughly_top_columns, top_k_of_rows
from cdp.runtime import checkpoint
from cdp.runtime.parallel import map_blocks
from cdp.runtime.row_table import RowTable
from cdp.runtime.runtime import Runtime
from cdp.runtime.step_cache import StepCache
from cdp.types import Embeddings, KnnGraph

K = 6


@pytest.fixture
def never_exact(monkeypatch):
    """The cheapest operating point is taken, however few images there are."""
    monkeypatch.setattr(autotune, "_exact_cost", lambda embeddings: np.inf)
    monkeypatch.setattr(autotune, "LAYOUTS", ((20, (2, 3, 4, 6, 8, 12, 16), False), (30, (17, 18, 20), True)))


@pytest.fixture
def tuned(monkeypatch, never_exact):
    """Fix nprobe."""

    def fix(nprobe):
        def choose(embeddings, vectors, *_, **__):
            nlist = embeddings.n_images // 20
            centroids = train_centroids(vectors, nlist, seed=0, runtime=Runtime.of(threads=1))
            return OperatingPoint(centroids, min(nprobe, len(centroids)), 1.0)

        monkeypatch.setattr(ivf_search, "choose_operating_point", choose)

    return fix


def _faces(n_images=600, dimensions=12, seed=0, dtype=np.float32):
    generator = np.random.default_rng(seed)
    people = generator.normal(size=(n_images // 6 + 1, dimensions)) * np.exp(-np.arange(dimensions) / 4)
    noise = generator.normal(size=(n_images, dimensions)) * np.exp(-np.arange(dimensions) / 4)
    return (people[generator.integers(0, len(people), n_images)] + 0.5 * noise).astype(dtype)


def _by_image(*given, runtime, **about):
    table = cells_to_probe(*given, runtime=runtime, **about)
    cells = table.by_image(runtime)
    np.testing.assert_array_equal(cells[table.order], table.cells)
    order, bounds = inverted_lists(cells[:, 0], len(given[1]))
    np.testing.assert_array_equal(order, table.order)
    np.testing.assert_array_equal(bounds, table.bounds)
    return cells


def _signs(n_images=300):
    """Rows of +-1: nearly everything ties."""
    return np.random.default_rng(1).choice(np.float32([-1, 1]), size=(n_images, 8))


def _same(one, other):
    return one.neighbors.tobytes() + one.similarity.tobytes() == (
        other.neighbors.tobytes() + other.similarity.tobytes()
    )


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("recall", [0.7, 0.97])
def test_the_recall_asked_for_is_reached_whatever_the_threads(never_exact, recall, dtype):
    embeddings = Embeddings(_faces(dtype=dtype))
    one, two, five = (
        approximate_graph(embeddings, K, recall, seed=3, runtime=Runtime.of(threads=jobs))
        for jobs in (1, 2, 5)
    )
    assert one.method == "approximate"
    assert one.recall == measure_recall(embeddings, one, seed=3, runtime=Runtime.of(threads=1)) >= recall
    assert _same(one, two)
    assert _same(one, five)


@pytest.mark.parametrize("vectors", [_faces(300), _signs()], ids=["faces", "ties"])
def test_probing_all_cells_is_exact_search(tuned, vectors):
    tuned(99)
    embeddings = Embeddings(vectors)
    graph = approximate_graph(embeddings, K, 1.0, runtime=Runtime.of(threads=1))
    truth = exact_graph(embeddings, K, runtime=Runtime.of(threads=1))
    np.testing.assert_array_equal(graph.similarity, truth.similarity)
    assert graph.recall == 1


def test_copies_of_one_image_are_neighbors(never_exact):
    vectors = _faces(400)
    vectors[50:350] = vectors[7]
    graph = approximate_graph(Embeddings(vectors), K, 0.97, runtime=Runtime.of(threads=2))
    np.testing.assert_allclose(graph.similarity[50:350], 1, atol=1e-6)


def test_more_cells_are_probed_where_the_recall_is_missed(tuned):
    tuned(2)
    graph = approximate_graph(Embeddings(_faces()), K, 1.0, runtime=Runtime.of(threads=1))
    assert graph.recall == 1


def test_a_small_miss_is_made_up_by_a_few_more_probes(tuned, monkeypatch):
    embeddings = Embeddings(_faces())
    recalls = []
    for nprobe in (6, 8):
        tuned(nprobe)
        recalls.append(approximate_graph(embeddings, K, 0.01, runtime=Runtime.of(threads=1)).recall)
    tuned(6)
    probed = []
    find = ivf_search.cells_to_probe
    monkeypatch.setattr(
        ivf_search,
        "cells_to_probe",
        lambda *given, **how: probed.append(given[2]) or find(*given, **how),
    )
    graph = approximate_graph(embeddings, K, recalls[1], runtime=Runtime.of(threads=2))
    assert recalls[0] < graph.recall == recalls[1]
    assert probed == [8]
    assert approximate_graph(embeddings, K, 1.0, runtime=Runtime.of(threads=1)).recall == 1
    assert probed[1:] == [8, 16, 30][: len(probed) - 1]


def test_small_and_structureless_sets_are_searched_exactly():
    vectors = np.random.default_rng(0).normal(size=(2000, 64)).astype(np.float32)
    graph = approximate_graph(Embeddings(vectors), K, 0.97, runtime=Runtime.of(threads=1))
    assert (graph.method, graph.recall) == ("exact", None)


def test_progress_ends_with_all_images(tuned):
    tuned(3)
    calls = []
    approximate_graph(
        Embeddings(_faces()),
        K,
        0.99,
        runtime=Runtime.of(threads=1, progress=lambda *news: calls.append(news)),
        step="a",
    )
    assert calls[0] == ("a", 0, 0)
    assert calls[-1] == ("a", 600, 600)
    assert all(done <= 600 for _, done, _ in calls)


def _lists(n_images):
    return np.full((n_images, K), -np.inf, np.float32), np.full((n_images, K), -1, np.int32)


def _context(vectors, how):
    """Vectors that lie together, others that are gathered, and tables of products as a GPU gives them."""
    gathered = SimpleNamespace(take=lambda rows: vectors[rows], block=lambda start, stop: vectors[start:stop])
    return {
        "together": SimpleNamespace(product=None, vectors=ReducedVectors(vectors, 0.0, K)),
        "gathered": SimpleNamespace(product=None, vectors=gathered),
        "tables": SimpleNamespace(product=lambda rows, columns: vectors[rows] @ vectors[columns].T),
    }[how]


@pytest.mark.parametrize("rounds", [[(0, 1), (1, 3)], [(0, 1), (1, 2), (2, 3)]])
@pytest.mark.parametrize("most_pairs", [2**20, 50])
@pytest.mark.parametrize("how", ["together", "gathered", "tables"])
@pytest.mark.parametrize("n_images", [150, 500])
def test_every_image_is_compared_with_the_images_of_its_cells(monkeypatch, rounds, most_pairs, how, n_images):
    monkeypatch.setattr(probe, "_PAIRS_PER_TURN", most_pairs)
    nlist = 9
    generator = np.random.default_rng(0)
    # Whole numbers: every way to add their products up gives the same.
    vectors = generator.integers(-4, 5, (n_images, 7)).astype(np.float32)
    table = vectors @ vectors.T
    cells = np.stack([generator.permutation(nlist)[:3] for _ in range(n_images)]).astype(np.int16)
    cells[:20, 2] = -1
    best, ids = _lists(n_images)
    lists = TopKLists.of(best, ids)
    context = _context(vectors, how)
    for first, last in rounds:
        search_round = search_assigned_cells if first == 0 else probe_cells
        each = Round.of(cells, first, last, nlist, Runtime()).cells(0, nlist)
        shares = list(search_round(context, each, lists, Runtime.of(threads=4)))
        assert shares[-1] == 1
    probes = (cells[:, :, None] == cells[None, None, :, 0]).any(axis=1)
    met = (probes | probes.T) & ~np.eye(n_images, dtype=bool)
    for image in range(n_images):
        others = np.flatnonzero(met[image])
        expected = others[np.lexsort((others, -table[image, others]))][:K]
        np.testing.assert_array_equal(ids[image, : len(expected)], expected)
        np.testing.assert_array_equal(best[image, : len(expected)], table[image, expected])


class _Elsewhere(Runtime):
    """A runtime whose blocks run as on a cluster."""

    pool = property(lambda _: "a cluster")

    def map(self, function, shared, items, **_):
        return (function(shared, item) for item in items)


@pytest.mark.parametrize("how", ["together", "gathered", "tables"])
@pytest.mark.parametrize("size", [1, 4])
@pytest.mark.parametrize("is_reordered", [False, True])
def test_ranges_of_cells_and_images_give_the_lists_of_threads(monkeypatch, tmp_path, how, size, is_reordered):
    monkeypatch.setattr(cell_ranges, "_FEWEST_CELLS", size)
    monkeypatch.setattr(cell_ranges, "_FEWEST_IMAGES", 70)
    generator = np.random.default_rng(1)
    # Whole numbers, so that many are equal and ties matter.
    vectors = generator.integers(-2, 3, (400, 5)).astype(np.float32)
    cells = np.stack([generator.permutation(9)[:4] for _ in range(400)]).astype(np.int16)
    cells[:20, 2] = -1
    order, bounds = inverted_lists(cells[:, 0], 9)
    table, elsewhere = CellTable(cells[order], order, bounds), _Elsewhere.of(folder=tmp_path)
    np.testing.assert_array_equal(table.by_image(elsewhere), cells)
    if is_reordered:
        vectors, cells = vectors[order], table.cells
    assigned, context = AssignedCells.of(table, is_reordered, elsewhere), _context(vectors, how)
    (best, ids), ranges = _lists(400), None
    for first, last in ((0, 1), (1, 2), (2, 4)):
        given, lists = Round.of(cells, first, last, 9, Runtime()), TopKLists.of(best, ids)
        search = probe_cells if first else search_assigned_cells
        assert list(search(context, given.cells(0, 9), lists, Runtime.of(threads=2)))[-1] == 1
        if first:
            assert list(probe_ranges(context, assigned, (first, last), ranges, elsewhere))[-1] == 1
        else:
            ranges = _result(search_assigned_ranges(context, assigned, K, elsewhere))
        np.testing.assert_array_equal(ranges.best, best)
        np.testing.assert_array_equal(ranges.ids, ids)
        np.testing.assert_array_equal(ranges.thresholds, best[:, -1])
        ranges = RangeLists.of(np.array(ranges.best), np.array(ranges.ids), elsewhere)
    del assigned
    assert [path for folder in tmp_path.iterdir() for path in folder.iterdir()] == []


def _result(steps):
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


@pytest.mark.parametrize("nprobe", [3, 8])
@pytest.mark.parametrize("is_reduced", [False, True])
def test_tasks_give_the_graph_of_threads(monkeypatch, tuned, tmp_path, nprobe, is_reduced):
    monkeypatch.setattr(cell_ranges, "_FEWEST_CELLS", 4)
    monkeypatch.setattr(cell_ranges, "_FEWEST_IMAGES", 70)
    tuned(nprobe)
    embeddings = Embeddings(_faces(dimensions=48 if is_reduced else 12))
    here, there = (
        approximate_graph(embeddings, K, 0.97, runtime=runtime)
        for runtime in (Runtime.of(threads=1), _Elsewhere.of(folder=tmp_path))
    )
    assert here.recall == there.recall
    np.testing.assert_array_equal(here.neighbors, there.neighbors)
    np.testing.assert_array_equal(here.similarity, there.similarity)


def test_known_cells_are_renumbered_with_the_images(monkeypatch, never_exact):
    choose, find, tables = ivf_search.choose_operating_point, ivf_search.cells_to_probe, []
    monkeypatch.setattr(
        ivf_search, "choose_operating_point", lambda *given, **how: replace(choose(*given, **how), nprobe=1)
    )
    monkeypatch.setattr(
        ivf_search, "cells_to_probe", lambda *given, **how: tables.append(find(*given, **how)) or tables[-1]
    )
    embeddings = Embeddings(_faces(900, dimensions=48))
    approximate_graph(embeddings, K, 0.99, runtime=Runtime.of(threads=1))
    first, again = tables[:2]
    # Images are numbered in the order of the first table by then.
    np.testing.assert_array_equal(again.by_image(Runtime())[:, 0], first.cells[:, 0])


def test_tasks_go_on_where_a_lost_search_was(monkeypatch, tuned, tmp_path):
    monkeypatch.setattr(checkpoint, "_SECONDS", 0.0)
    monkeypatch.setattr(checkpoint, "_LONGEST_SHARE", np.inf)
    tuned(8)
    embeddings, noted = Embeddings(_faces()), []
    expected = approximate_graph(embeddings, K, 0.9, runtime=Runtime.of(threads=1))
    save = checkpoint.ListCheckpoint.note

    def note(self, done, best, ids):
        noted.append(done)
        save(self, done, best, ids)
        if len(noted) == 2:
            raise SystemExit("the driver is lost")

    monkeypatch.setattr(checkpoint.ListCheckpoint, "note", note)
    elsewhere = _Elsewhere.of(cache=StepCache(tmp_path / "cache"))
    with pytest.raises(SystemExit):
        approximate_graph(embeddings, K, 0.9, runtime=elsewhere, key="some-key")
    found = approximate_graph(embeddings, K, 0.9, runtime=elsewhere, key="some-key")
    assert noted == [1, 2, 3], "what was done is not done again"
    np.testing.assert_array_equal(found.neighbors, expected.neighbors)
    np.testing.assert_array_equal(found.similarity, expected.similarity)


def test_centroids_are_means_in_the_order_of_rows_however_cells_are_cut(monkeypatch):
    vectors = Embeddings(np.random.default_rng(0).normal(size=(900, 8)).astype(np.float32))
    centroids = train_centroids(vectors, 12, seed=0, runtime=Runtime.of(threads=1))
    rows = np.arange(0, 900, 2)
    refined = []
    cells = ivf.assign_cells(vectors, centroids, runtime=Runtime.of(threads=1), rows=rows)
    for size in (1, 5, 100):
        monkeypatch.setattr(kmeans, "_CELLS_PER_SUM", size)
        refined.append(kmeans._move(centroids, vectors, rows, cells, Runtime.of(threads=2)).vectors)
    sums = np.zeros_like(centroids.vectors)
    for row, cell in zip(rows, cells, strict=True):
        sums[cell] += vectors.take(np.array([row]))[0]
    for found in refined:
        np.testing.assert_array_equal(found, kmeans._unit(sums, centroids.vectors))


def test_a_range_with_a_single_candidate_is_merged_from_a_file_that_cannot_be_written(tmp_path):
    best, ids = _lists(14)
    cell_ranges._write_file(tmp_path / "7.npy", np.array([[11, 4, np.float32(0.5).view(np.int32)]], np.int32))
    tables = RowTable.of(best.shape, np.float32, Runtime()), RowTable.of(ids.shape, np.int32, Runtime())
    shared = cell_ranges._Pieces(tmp_path, [7]), (best, ids), tables
    thresholds = cell_ranges._merge_images(shared, ((10, 13), np.array([[0, 1]])))
    similarity, others = (table.finish(Runtime())[10:13] for table in tables)
    np.testing.assert_array_equal(thresholds, similarity[:, -1])
    assert others[:, 0].tolist() == [-1, 4, -1]
    assert similarity[1, 0] == 0.5


def test_lists_filled_by_many_threads_hold_the_top_k():
    generator = np.random.default_rng(0)
    values = generator.permutation(64_000).reshape(16, 4000).astype(np.float32)
    rows, images = generator.integers(0, 5, values.shape), np.arange(64_000).reshape(16, 4000)
    best, ids = _lists(5)
    lists = TopKLists.of(best, ids)
    candidates = [
        np.stack([rows[part], images[part], values[part].view(np.int32)]).astype(np.int32)
        for part in range(16)
    ]
    assert list(map_blocks(lists.insert, candidates, 8)) == [None] * 16
    for row in range(5):
        of_row = np.flatnonzero(rows.ravel() == row)
        expected = of_row[np.argsort(-values.ravel()[of_row])][:K]
        np.testing.assert_array_equal(ids[row], expected)
        np.testing.assert_array_equal(best[row], values.ravel()[expected])
    np.testing.assert_array_equal(lists.thresholds, best[:, -1])
    assert not lists.locks.any()


def test_images_are_assigned_again_to_the_most_similar_cell_nearby(monkeypatch):
    vectors = Embeddings(_faces(900))
    centroids = train_centroids(vectors, 45, seed=0, runtime=Runtime.of(threads=1))
    rows = np.arange(0, 900, 2)
    before = ivf.assign_cells(vectors, centroids, runtime=Runtime.of(threads=1), rows=rows)
    for nearest in (45, 7):
        monkeypatch.setattr(ivf, "_NEAREST", nearest)
        found = ivf.assign_again(vectors, centroids, before, runtime=Runtime.of(threads=2), rows=rows)
        for row, cell, old in zip(rows, found, before, strict=True):
            near = centroids.nearby[old, :nearest]
            products = vectors.take(np.array([row]))[0] @ centroids.vectors[near].T
            assert cell in near
            assert centroids.vectors[cell] @ vectors.take(np.array([row]))[0] >= products.max() - 1e-6


def test_cells_of_images_that_trained_the_centroids_are_known():
    vectors = Embeddings(_faces(900))
    runtime = Runtime.of(threads=2)
    trained = train_centroids(vectors, 9, seed=0, runtime=runtime)
    refined = kmeans.refine_centroids(vectors, trained, 9, seed=0, runtime=runtime)
    assert (refined.known >= 0).any()
    assert (refined.known < 0).any()
    found, compared = (
        _by_image(vectors, centroids, 4, runtime=runtime)
        for centroids in (refined, replace(refined, known=None))
    )
    np.testing.assert_array_equal(found[:, 0], compared[:, 0])


def test_rounds_cover_all_probes_and_stop_growing():
    assert _rounds(0, 100) == [(0, 1), (1, 4), (4, 16), (16, 48), (48, 80), (80, 100)]
    assert _rounds(0, 3) == [(0, 1), (1, 3)]
    assert _rounds(3, 6) == [(3, 4), (4, 6)]
    assert _rounds(50, 100) == [(50, 80), (80, 100)]
    assert _rounds(4, 4) == []


def test_inverted_lists_of_a_table_name_its_rows():
    labels = np.random.default_rng(0).integers(-1, 7, (90, 3)).astype(np.int16)
    rows, bounds = inverted_lists(labels, 8)
    for label in range(8):
        expected = np.nonzero(labels == label)[0]
        np.testing.assert_array_equal(rows[bounds[label] : bounds[label + 1]], expected)


def test_inverted_lists_of_labels_are_positions():
    labels = np.random.default_rng(0).integers(-1, 7, 200).astype(np.int32)
    order, bounds = inverted_lists(labels, 8)
    for label in range(8):
        np.testing.assert_array_equal(
            order[bounds[label] : bounds[label + 1]], np.flatnonzero(labels == label)
        )


@pytest.mark.parametrize("nlist", [1, 2, 9, 40])
def test_cells_to_probe_have_the_most_similar_centroids(nlist):
    embeddings = Embeddings(_faces())
    centroids = train_centroids(embeddings, nlist, seed=0, runtime=Runtime.of(threads=1))
    again = train_centroids(embeddings, nlist, seed=0, runtime=Runtime.of(threads=3))
    np.testing.assert_array_equal(centroids.vectors, again.vectors)
    np.testing.assert_allclose(np.linalg.norm(centroids.vectors, axis=1), 1, atol=1e-5)
    assert abs(len(centroids) - nlist) <= nlist // 4
    count = min(5, len(centroids))
    cells = _by_image(embeddings, centroids, count, runtime=Runtime.of(threads=2))
    # So few centroids are in so few coarse cells that all are compared.
    table = embeddings.vectors.astype(np.float64) @ centroids.vectors.T
    similar = np.take_along_axis(table, cells.astype(np.int64), axis=1)
    np.testing.assert_allclose(similar, -np.sort(-table, axis=1)[:, :count], atol=1e-5)
    rows = np.array([5, 77, 5])
    np.testing.assert_array_equal(
        _by_image(embeddings, centroids, count, runtime=Runtime(), rows=rows), cells[rows]
    )


def test_nearby_cells_have_the_most_similar_centroids(monkeypatch):
    monkeypatch.setattr(ivf, "_NEARBY_CELLS", (16, 16))
    centroids = train_centroids(Embeddings(_faces(900)), 150, seed=0, runtime=Runtime.of(threads=2))
    table = centroids.vectors @ centroids.vectors.T
    assert centroids.nearby.shape == (len(centroids), 16)
    for cell, nearby in enumerate(centroids.nearby):
        assert nearby[0] == cell
        assert len(set(nearby)) == 16
        # In order but for a thousandth.
        assert table[cell, nearby].min() >= np.sort(table[cell])[-16] - 2e-3


def test_where_few_cells_are_nearby_the_rest_is_missing(monkeypatch):
    embeddings = Embeddings(_faces(900))
    monkeypatch.setattr(ivf, "_CENTROIDS_SEARCHED", 1)
    centroids = train_centroids(embeddings, 150, seed=0, runtime=Runtime.of(threads=1))
    cells = _by_image(embeddings, centroids, 30, runtime=Runtime.of(threads=2))
    in_cell = np.diff(centroids.offsets)[np.searchsorted(centroids.offsets, cells[:, 0], "right") - 1]
    np.testing.assert_array_equal((cells >= 0).sum(axis=1), np.minimum(30, in_cell))
    assert all(len(set(row[row >= 0])) == (row >= 0).sum() for row in cells)


@pytest.mark.parametrize(("count", "nlist"), [(1, 40), (7, 40), (40, 40), (60, 40), (100, 600), (150, 600)])
def test_rough_top_columns_are_within_a_thousandth(count, nlist):
    generator = np.random.default_rng(count)
    tile = generator.uniform(-1, 1, (50, nlist)).astype(np.float32)
    tile[:5] = np.float32(0.25)
    tile[5:9, ::2] = tile[5:9, :1]
    tile[9:12] = np.sort(tile[9:12], axis=1)
    tile[12, ::16] = 1  # a sample that misleads
    found = np.full((50, count), -1, np.int32)
    roughly_top_columns(tile, found)
    kept = min(count, nlist)
    for row in range(50):
        assert found[row, 0] == np.argmax(tile[row])
        assert len(set(found[row, :kept].tolist())) == kept
        values, expected = tile[row, found[row, :kept]], -np.sort(-tile[row])[:kept]
        np.testing.assert_allclose(values, expected, atol=2e-3)
        assert np.all(found[row, kept:] == -1)


def test_cells_found_nearby_are_those_of_the_exhaustive_search(monkeypatch):
    embeddings = Embeddings(_faces())
    centroids = train_centroids(embeddings, 9, seed=0, runtime=Runtime.of(threads=1))
    few = _by_image(embeddings, centroids, 5, runtime=Runtime.of(threads=1))
    many = _by_image(embeddings, replace(centroids, nearby=None), 5, runtime=Runtime.of(threads=2))
    table = embeddings.vectors @ centroids.vectors.T
    np.testing.assert_array_equal(few[:, 0], many[:, 0])
    np.testing.assert_allclose(
        *(np.take_along_axis(table, found.astype(np.int64), axis=1) for found in (few, many)), atol=2e-3
    )


def test_top_k_of_rows_is_that_of_sorted_rows():
    tile = np.random.default_rng(0).integers(0, 9, (30, 30)).astype(np.float32)
    images = np.arange(100, 130, dtype=np.int32)
    best, ids = top_k_of_rows(tile, images, 40)
    for row in range(30):
        others = sorted((-tile[row, column], images[column]) for column in range(30) if column != row)
        np.testing.assert_array_equal(ids[row], [image for _, image in others] + [-1] * 11)
        np.testing.assert_array_equal(best[row, :29], [-value for value, _ in others])


def _flat(n_images=500, dimensions=64, components=8, noise=0.0, seed=0):
    """Vectors of low rank, and a little noise in all dimensions."""
    generator = np.random.default_rng(seed)
    flat = generator.normal(size=(n_images, components)) @ generator.normal(size=(components, dimensions))
    return (flat + noise * generator.normal(size=flat.shape)).astype(np.float32)


def test_few_components_are_enough_for_low_rank():
    embeddings = Embeddings(_flat())
    reduced = reduce_dimensions(embeddings, K, [Gap(9, 0.01)], seed=0, runtime=Runtime.of(threads=2))
    assert isinstance(reduced, ReducedVectors)
    assert (reduced.n_images, reduced.dimensions, reduced.is_lossy) == (500, 16, False)
    np.testing.assert_allclose(
        reduced.source @ reduced.source.T, reference.cosines(embeddings.source), atol=1e-5
    )
    np.testing.assert_array_equal(reduced.block(3, 7), reduced.take(np.array([3, 4, 5, 6])))
    order = np.random.default_rng(1).permutation(500)
    np.testing.assert_array_equal(reduced.reorder(order, Runtime()).source, reduced.source[order])


def test_the_error_of_reduced_products_is_as_predicted():
    embeddings = Embeddings(_flat(noise=1.0))
    reduced = reduce_dimensions(embeddings, K, [Gap(9, 0.1)], seed=0, runtime=Runtime.of(threads=1))
    errors = reference.cosines(embeddings.source) - reduced.source @ reduced.source.T
    between = errors[np.triu_indices(500, 1)]
    assert reduced.is_lossy
    assert between.std() == pytest.approx(reduced.error, rel=0.2)
    assert reduced.error <= 0.05


def test_lists_are_longer_where_that_saves_enough_components():
    # The error of products falls slowly after the first 32 of 256 components, as noise does.
    errors = np.interp(np.arange(257), [0, 32, 256], [0.1, 0.006, 0.0])
    few, many, very_many = Gap(30, 0.009), Gap(40, 0.014), Gap(60, 0.03)
    assert pca._choose_components(errors, 20, [few]) == (96, 30)
    assert pca._choose_components(errors, 20, [few, many, very_many]) == (32, 40)
    # Where lists need not be longer, because the products lack nothing, they are not.
    assert pca._choose_components(np.where(np.arange(257) < 48, 0.1, 0.0), 20, [few, many]) == (48, 20)


@pytest.mark.parametrize("gap", [0.0, 0.01])
def test_components_that_all_matter_stay(gap):
    embeddings = Embeddings(np.random.default_rng(0).normal(size=(400, 48)).astype(np.float32))
    assert (
        reduce_dimensions(embeddings, K, [Gap(9, gap)], seed=0, runtime=Runtime.of(threads=1)) is embeddings
    )


@pytest.mark.parametrize("noise", [0.0, 0.3])
@pytest.mark.parametrize("dtype", [np.float16, np.float32])
def test_a_search_of_reduced_vectors_reranks_in_all_dimensions(never_exact, noise, dtype):
    embeddings = Embeddings(_flat(noise=noise).astype(dtype))
    one, three = (
        approximate_graph(embeddings, K, 0.95, runtime=Runtime.of(threads=threads)) for threads in (1, 3)
    )
    assert _same(one, three)
    assert one.recall == measure_recall(embeddings, one, runtime=Runtime.of(threads=1)) >= 0.95
    ends = np.stack([np.repeat(np.arange(500), K), one.neighbors.ravel()], axis=1)
    np.testing.assert_array_equal(one.similarity.ravel(), similarities(embeddings, ends))


def _point(embeddings, recall):
    truth = find_ground_truth(embeddings, K, seed=0, runtime=Runtime.of(threads=1, device="cpu"))
    return choose_operating_point(
        embeddings, embeddings, truth, recall, seed=0, runtime=Runtime.of(threads=1)
    )


def test_the_predicted_recall_is_reached(never_exact, monkeypatch):
    embeddings = Embeddings(_faces())
    point = _point(embeddings, 0.6)
    monkeypatch.setattr(ivf_search, "choose_operating_point", lambda *_, **__: point)
    monkeypatch.setattr(ivf_search, "reduce_dimensions", lambda embeddings, *_, **__: embeddings)
    assert approximate_graph(embeddings, K, 0.6, runtime=Runtime.of(threads=1)).recall == pytest.approx(
        point.recall, abs=1e-3
    )


def test_a_higher_recall_is_never_cheaper(never_exact):
    embeddings = Embeddings(_faces())
    points = [_point(embeddings, recall) for recall in (0.3, 0.6, 0.9, 0.97)]
    costs = [autotune._cost(embeddings, 20, point.nprobe, False) for point in points]
    assert costs == sorted(costs)
    assert costs[0] < costs[-1]


def test_larger_cells_are_tried_where_small_ones_are_not_enough(never_exact, monkeypatch):
    monkeypatch.setattr(autotune, "LAYOUTS", ((20, (2,), False), (60, (10,), True)))
    point = _point(Embeddings(_faces()), 0.99)
    assert (len(point.centroids), point.nprobe) == (10, 10)


def test_a_miss_is_a_warning_with_the_remedy(monkeypatch):
    graph = KnnGraph(np.array([[1], [0]]), np.ones((2, 1)), "approximate", 0.85)
    monkeypatch.setattr(search, "approximate_graph", lambda *_, **__: graph)
    with pytest.warns(UserWarning, match="asked for") as caught:
        found = search.knn_graphs([Embeddings(np.eye(2))], 1, "approximate", names=["base"])
    assert found == [graph]
    assert str(caught[0].message) == (
        "k-NN graph base: the approximate search found 85.0% of the nearest neighbors on a sample, less than the "
        "97.0% asked for; use method='exact', or ask for a lower recall."
    )


def test_where_identities_are_known_the_recall_is_that_of_the_same_identity(never_exact, monkeypatch):
    generator = np.random.default_rng(0)
    people = np.repeat(np.arange(120), 5)
    vectors = generator.standard_normal((120, 12))[people] + 0.4 * generator.standard_normal((600, 12))
    embeddings, identities = Embeddings(vectors.astype(np.float32)), np.where(people < 100, people, -1)
    blind = approximate_graph(embeddings, 14, 0.9, runtime=Runtime.of(threads=1))
    one, two = (
        approximate_graph(embeddings, 14, 0.9, runtime=Runtime.of(threads=threads), identities=identities)
        for threads in (1, 3)
    )
    assert _same(one, two)
    assert 0.9 <= measure_same_identity_recall(embeddings, one, identities, runtime=Runtime()) < 1
    assert one.recall < 0.9 <= blind.recall
    # Of too few it is not known what they need.
    few = np.where(people < 3, people, -1)
    assert _same(approximate_graph(embeddings, 14, 0.9, runtime=Runtime.of(threads=1), identities=few), blind)
