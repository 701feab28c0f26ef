from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tests.refusals import refuses

from cdp.data.knn_files import read_knn
from cdp.knn.exact import exact_graph
from cdp.runtime.runtime import Runtime
from cdp.types import Embeddings, KnnGraph, Labels

N, K = 40, 5


@pytest.fixture(scope="module")
def embeddings() -> Embeddings:
    return Embeddings(np.random.default_rng(0).standard_normal((N, 8)).astype(np.float32))


@pytest.fixture(scope="module")
def truth(embeddings: Embeddings) -> KnnGraph:
    return exact_graph(embeddings, K, runtime=Runtime())


def with_self(graph: KnnGraph) -> tuple[np.ndarray, np.ndarray]:
    """Ids and similarities as other projects keep them: the image itself first."""
    ids = np.hstack([np.arange(N)[:, None], graph.neighbors])
    return ids, np.hstack([np.ones((N, 1), np.float32), graph.similarity])


def same(graph: KnnGraph, expected: KnnGraph) -> None:
    np.testing.assert_array_equal(graph.neighbors, expected.neighbors)
    np.testing.assert_allclose(graph.similarity, expected.similarity, atol=1e-6)


def write_idx(file: Path, ids: object, numbers: object) -> Path:
    np.savez(file, idx=np.asarray(ids), dist=np.asarray(numbers))
    return file


class TestLayouts:
    @pytest.mark.parametrize("measure", [True, False])
    def test_own_folder(self, tmp_path: Path, truth: KnnGraph, embeddings: Embeddings, measure: bool) -> None:
        KnnGraph(truth.neighbors, truth.similarity, method="nndescent", recall=0.5).save(tmp_path / "graph")
        graph = read_knn(tmp_path / "graph", embeddings if measure else None)
        np.testing.assert_array_equal(graph.neighbors, truth.neighbors)
        np.testing.assert_array_equal(graph.similarity, truth.similarity)
        assert (graph.method, graph.recall) == ("nndescent", 0.5)

    @pytest.mark.parametrize("measure", [True, False])
    @pytest.mark.parametrize("stored", ["1 - cosine", "cosine"])
    @pytest.mark.parametrize("keeps_self", [True, False])
    @pytest.mark.parametrize("layout", ["idx", "data"])
    def test_other_projects(
        self,
        tmp_path: Path,
        truth: KnnGraph,
        embeddings: Embeddings,
        layout: str,
        stored: str,
        keeps_self: bool,
        measure: bool,
    ) -> None:
        ids, similarity = with_self(truth) if keeps_self else (truth.neighbors, truth.similarity)
        numbers = similarity if stored == "cosine" else 1 - similarity
        file = tmp_path / "knn.npz"
        if layout == "idx":
            write_idx(file, ids, numbers)
        else:
            np.savez(file, data=np.stack([ids.astype(np.float32), numbers], axis=1))
        before = file.read_bytes()
        same(read_knn(file, embeddings if measure else None), truth)
        assert file.read_bytes() == before

    @pytest.mark.parametrize("measure", [True, False])
    def test_padding(self, tmp_path: Path, truth: KnnGraph, embeddings: Embeddings, measure: bool) -> None:
        ids, similarity = with_self(truth)
        distance = 1 - similarity
        ids[3, 2:], distance[3, 2:] = -1, -1
        ids[7, 1:], distance[7, 1:] = -1, np.nan
        graph = read_knn(write_idx(tmp_path / "knn.npz", ids, distance), embeddings if measure else None)
        assert graph.k == K
        assert graph.neighbors[3].tolist() == [truth.neighbors[3, 0], -1, -1, -1, -1]
        assert graph.neighbors[7].tolist() == [-1] * K
        assert np.isneginf(graph.similarity[7]).all()
        np.testing.assert_array_equal(graph.neighbors[8:], truth.neighbors[8:])

    @pytest.mark.parametrize("dtype", [np.int64, np.uint32, np.float64])
    def test_ids_alone(self, tmp_path: Path, truth: KnnGraph, embeddings: Embeddings, dtype: type) -> None:
        np.save(tmp_path / "knn.npy", with_self(truth)[0].astype(dtype))
        same(read_knn(tmp_path / "knn.npy", embeddings), truth)
        with refuses("knn-similarities-missing", file=tmp_path / "knn.npy"):
            read_knn(tmp_path / "knn.npy")

    def test_load_of_the_noun(self, tmp_path: Path, truth: KnnGraph) -> None:
        ids, similarity = with_self(truth)
        same(KnnGraph.load(write_idx(tmp_path / "knn.npz", ids, 1 - similarity)), truth)


class TestArranging:
    def test_ties_by_id_repeats_and_self_dropped(self, tmp_path: Path) -> None:
        ids = [[0, 3, 1, 2, 3], [1, 0, 0, 2, 3], [2, 2, 3, 1, 0], [3, -1, 0, -1, -1]]
        distance = [
            [0.0, 0.1, 0.25, 0.25, 0.5],
            [0.0, 0.1, 0.2, 0.3, 0.4],
            [0.0, 0.0, 0.5, 0.5, 0.5],
            [0.0, 9.0, 0.5, 9.0, 9.0],
        ]
        graph = read_knn(write_idx(tmp_path / "knn.npz", ids, distance))
        assert graph.neighbors.tolist() == [[3, 1, 2], [0, 2, 3], [0, 1, 3], [0, -1, -1]]
        np.testing.assert_allclose(
            graph.similarity[:3], [[0.9, 0.75, 0.75], [0.9, 0.7, 0.6], [0.5, 0.5, 0.5]]
        )
        assert graph.similarity[3].tolist() == [0.5, -np.inf, -np.inf]

    def test_images_that_know_only_themselves(self, tmp_path: Path) -> None:
        graph = read_knn(write_idx(tmp_path / "knn.npz", [[0], [1]], [[0.0], [0.0]]))
        assert graph.neighbors.tolist() == [[-1], [-1]]

    def test_rounding_past_one_is_cut(self, tmp_path: Path) -> None:
        graph = read_knn(write_idx(tmp_path / "knn.npz", [[1, 2], [0, 2], [0, 1]], [[-1e-7, 0.5]] * 3))
        assert graph.similarity[0].tolist() == [1.0, 0.5]


class TestMeaning:
    """Whether a file without embeddings holds 1 - cosine or cosine."""

    @pytest.mark.parametrize(
        ("numbers", "similarity"),
        [
            ([[0.1, 0.2]] * 3, [0.9, 0.8]),
            ([[0.9, 0.8]] * 3, [0.9, 0.8]),
            ([[1.5, 1.5]] * 3, [-0.5, -0.5]),
            ([[-0.5, -0.5]] * 3, [-0.5, -0.5]),
        ],
    )
    def test_order_and_range(self, tmp_path: Path, numbers: object, similarity: list[float]) -> None:
        graph = read_knn(write_idx(tmp_path / "knn.npz", [[1, 2], [0, 2], [0, 1]], numbers))
        np.testing.assert_allclose(graph.similarity[0], similarity, atol=1e-6)

    @pytest.mark.parametrize(("own", "similarity"), [(0.0, 0.6), (1.0, 0.4)])
    def test_own_entry(self, tmp_path: Path, own: float, similarity: float) -> None:
        # The image itself stands last, after a pad, so that no order is to be seen.
        ids = [[1, -1, 0], [0, -1, 1]]
        graph = read_knn(write_idx(tmp_path / "knn.npz", ids, [[0.4, 7.0, own]] * 2))
        np.testing.assert_allclose(graph.similarity[:, 0], similarity, atol=1e-6)

    def test_undecidable(self, tmp_path: Path) -> None:
        ids = [[1, 2], [0, 2], [0, 1]]
        file = write_idx(tmp_path / "knn.npz", ids, [[0.5, 0.5]] * 3)
        with refuses("knn-measure-unclear", file=file):
            read_knn(file)
        write_idx(file, ids, [[0.5, 0.6], [0.6, 0.5], [0.5, 0.6]])
        with refuses("knn-measure-unclear", file=file):
            read_knn(file)
        write_idx(
            file, [[0, 1, 2], [1, 0, 2], [2, 0, 1]], [[0.0, 0.6, 0.5], [0.0, -0.5, -0.6], [0.0, -0.3, -0.4]]
        )
        with refuses("knn-measure-unclear", file=file):
            read_knn(file)


class TestBelonging:
    @pytest.mark.parametrize("stored", ["1 - cosine", "cosine"])
    def test_other_embeddings_are_noticed(self, tmp_path: Path, truth: KnnGraph, stored: str) -> None:
        others = Embeddings(np.random.default_rng(1).standard_normal((N, 8)))
        ids, similarity = with_self(truth)
        file = write_idx(tmp_path / "knn.npz", ids, similarity if stored == "cosine" else 1 - similarity)
        with refuses("knn-of-other-embeddings", file=file):
            read_knn(file, others)
        truth.save(tmp_path / "graph")
        with refuses("knn-of-other-embeddings", file=tmp_path / "graph"):
            read_knn(tmp_path / "graph", others)

    def test_squared_distances_are_noticed(
        self, tmp_path: Path, truth: KnnGraph, embeddings: Embeddings
    ) -> None:
        ids, similarity = with_self(truth)
        file = write_idx(tmp_path / "knn.npz", ids, 2 - 2 * similarity)
        with refuses("knn-of-other-embeddings", file=file):
            read_knn(file, embeddings)

    def test_a_few_odd_entries_are_forgiven(
        self, tmp_path: Path, truth: KnnGraph, embeddings: Embeddings
    ) -> None:
        ids, similarity = with_self(truth)
        noisy = (1 - similarity).astype(np.float16)
        noisy[:5, 1] += np.float16(0.3)
        same(read_knn(write_idx(tmp_path / "knn.npz", ids, noisy), embeddings), truth)

    def test_row_count(self, tmp_path: Path, truth: KnnGraph) -> None:
        fewer = Embeddings(np.ones((N - 1, 2), np.float32))
        file = write_idx(tmp_path / "knn.npz", *with_self(truth))
        with refuses("knn-rows-differ", file=file, expected=39, found=40):
            read_knn(file, fewer)
        truth.save(tmp_path / "graph")
        with refuses("knn-rows-differ", file=tmp_path / "graph", expected=39, found=40):
            read_knn(tmp_path / "graph", fewer)


class TestErrors:
    def test_places(self, tmp_path: Path) -> None:
        with refuses("path-missing", file=tmp_path / "gone.npz"):
            read_knn(tmp_path / "gone.npz")
        with refuses("card-missing", folder=tmp_path):
            read_knn(tmp_path)
        (tmp_path / "x.txt").write_text("1 2 3")
        with refuses("knn-kind-unknown", file=tmp_path / "x.txt"):
            read_knn(tmp_path / "x.txt")

    def test_folder_of_something_else(self, tmp_path: Path) -> None:
        Labels.from_array([0, 0, 1]).save(tmp_path / "labels")
        with refuses(
            "artifact-kind-differs", folder=tmp_path / "labels", expected="KnnGraph", found="Labels"
        ):
            read_knn(tmp_path / "labels")

    def test_files(self, tmp_path: Path) -> None:
        file = tmp_path / "x.npz"
        np.savez(file, neighbors=np.zeros((2, 2), int))
        with refuses("knn-arrays-unknown", file=file, found=("neighbors",)):
            read_knn(file)
        np.savez(file, data=np.zeros((3, 3, 4)))
        with refuses("knn-data-shape-wrong", file=file, found=(3, 3, 4)):
            read_knn(file)
        write_idx(file, np.zeros((2, 2), int), np.zeros((2, 3)))
        with refuses("knn-shapes-differ", file=file, idx=(2, 2), dist=(2, 3)):
            read_knn(file)
        write_idx(file, np.zeros((2, 2), int), np.zeros((2, 2), int))
        with refuses("knn-distances-not-floats", file=file, found="int64"):
            read_knn(file)
        write_idx(file, np.zeros((2, 0), int), np.zeros((2, 0)))
        with refuses("knn-not-a-table", file=file, found=(2, 0)):
            read_knn(file)
        file.write_bytes(file.read_bytes()[:30])
        with refuses("npz-damaged", file=file):
            read_knn(file)
        np.save(tmp_path / "x.npy", np.arange(4))
        with refuses("knn-not-a-table", file=tmp_path / "x.npy", found=(4,)):
            read_knn(tmp_path / "x.npy")

    def test_objects_are_refused(self, tmp_path: Path) -> None:
        ragged = np.empty(2, object)
        ragged[:] = [[1], [0, 1]]
        np.savez(tmp_path / "x.npz", data=ragged)
        with refuses("array-pickled", file=tmp_path / "x.npz", entry="data"):
            read_knn(tmp_path / "x.npz")
        np.save(tmp_path / "x.npy", ragged)
        with refuses("array-pickled", file=tmp_path / "x.npy"):
            read_knn(tmp_path / "x.npy")

    @pytest.mark.parametrize(
        ("wrong", "dtype"),
        [(2, np.int64), (-2, np.int64), (0.5, np.float32), (np.nan, np.float32), (np.inf, float)],
    )
    def test_ids(self, tmp_path: Path, wrong: float, dtype: type) -> None:
        ids = np.array([[1, -1], [0, -1]], dtype)
        ids[1, 1] = wrong
        file = write_idx(tmp_path / "x.npz", ids, [[0.5, 0.6]] * 2)
        with refuses("knn-id-out-of-range", file=file, row=1):
            read_knn(file)
        with refuses("knn-id-out-of-range", file=file, row=1):
            read_knn(file, Embeddings(np.eye(2)))

    def test_ids_of_other_kinds(self, tmp_path: Path) -> None:
        file = write_idx(tmp_path / "x.npz", [["a"], ["b"]], [[0.5], [0.5]])
        with refuses("knn-ids-not-whole", file=file, found="<U1"):
            read_knn(file)
        write_idx(file, np.zeros((2049, 1), np.float16), np.zeros((2049, 1)))
        with refuses("knn-ids-inexact", file=file, found="float16"):
            read_knn(file)

    @pytest.mark.parametrize("wrong", [np.nan, np.inf])
    def test_numbers(self, tmp_path: Path, wrong: float) -> None:
        file = write_idx(tmp_path / "x.npz", [[1], [0]], [[0.5], [wrong]])
        with refuses("knn-not-finite", file=file, row=1):
            read_knn(file)
