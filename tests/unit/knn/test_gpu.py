"""Does the search on a device find what the search on the CPU finds, and does the device reach it?"""

import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("torch", reason="the search on a device needs pip install 'cdp[nets]'")

import torch
from tests.refusals import refuses

from cdp.errors import MissingExtraError
from cdp.knn import autotune, exact, gpu, probe
from cdp.knn.recall import measure_recall
from cdp.knn.search import each_knn_graph, knn_graph, knn_graphs
from cdp.runtime import devices
from cdp.runtime.runtime import Runtime
from cdp.types import Embeddings


@pytest.fixture
def small_tiles(monkeypatch):
    """Several tiles and blocks, the last ones ragged."""
    monkeypatch.setattr(exact, "TILE_ROWS", 32)
    monkeypatch.setattr(exact, "BLOCK_ROWS", 50)
    monkeypatch.setattr(gpu, "BLOCK_ROWS", 50)


@pytest.fixture
def through_torch(monkeypatch):
    """Every device is torch's CPU."""
    for module in (exact, probe):
        monkeypatch.setattr(
            module, "find_accelerator", lambda name: None if name == "cpu" else torch.device("cpu")
        )


def _faces(dtype):
    generator = np.random.default_rng(0)
    return generator.normal(size=(333, 24)).astype(dtype)


def _signs(_):
    """Rows of +-1: nearly everything ties."""
    return np.random.default_rng(0).choice(np.float32([-1, 1]), size=(333, 12))


def _copies(dtype):
    vectors = _faces(dtype)
    vectors[100:160] = vectors[7]
    return vectors


@pytest.mark.parametrize("resident", [2**32, 0], ids=["resident", "streamed"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("make", [_faces, _signs, _copies])
def test_the_same_neighbors_and_similarities(monkeypatch, small_tiles, through_torch, make, dtype, resident):
    monkeypatch.setattr(gpu, "_FREE_BYTES", resident)
    vectors = make(dtype)
    for k in (1, 9, 332):
        here = knn_graph(vectors, k, runtime=Runtime.of(threads=1, device="cpu"))
        there = knn_graph(vectors, k, runtime=Runtime.of(threads=1, device="cuda"))
        np.testing.assert_array_equal(there.neighbors, here.neighbors)
        np.testing.assert_allclose(there.similarity, here.similarity, atol=1e-6)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("make", [_faces, _signs, _copies])
def test_a_graph_is_extended_to_that_of_all_images(small_tiles, through_torch, make, device):
    vectors = make(np.float32)
    wanted = knn_graph(vectors, 9, runtime=Runtime.of(threads=1, device="cpu"))
    for start, stop in ((0, 70), (120, 300), (332, 333)):
        before = knn_graph(
            np.delete(vectors, slice(start, stop), axis=0),
            9,
            runtime=Runtime.of(threads=1, device="cpu"),
        )
        found = exact.extend_graph(
            before.insert_rows(start, stop - start),
            Embeddings(vectors),
            (start, stop),
            runtime=Runtime.of(threads=2, device=device),
        )
        np.testing.assert_array_equal(found.neighbors, wanted.neighbors)
        np.testing.assert_array_equal(found.similarity, wanted.similarity)


def test_some_rows_and_two_images(through_torch):
    embeddings = Embeddings(_faces(np.float32))
    rows = np.array([5, 300, 17], np.int32)
    for here, there in zip(
        exact.search_rows(embeddings, rows, 4, runtime=Runtime.of(device="cpu")),
        exact.search_rows(embeddings, rows, 4, runtime=Runtime.of(device="cuda")),
        strict=True,
    ):
        np.testing.assert_array_equal(here, there)
    np.testing.assert_array_equal(
        knn_graph(_faces(np.float32)[:2], 1, runtime=Runtime.of(device="cuda")).neighbors, [[1], [0]]
    )


def test_real_faces(through_torch, shared_data):
    vectors = np.load(shared_data / "lfw" / "sface.npy", mmap_mode="r")[:2000]
    here, there = (
        knn_graph(vectors, 20, runtime=Runtime.of(threads=1, device=device)) for device in ("cpu", "cuda")
    )
    np.testing.assert_array_equal(there.neighbors, here.neighbors)
    np.testing.assert_allclose(there.similarity, here.similarity, atol=1e-6)


@pytest.mark.parametrize("resident", [2**34, 0], ids=["resident", "streamed"])
def test_the_approximate_search_finds_the_same(monkeypatch, small_tiles, through_torch, resident):
    monkeypatch.setattr(gpu, "_FREE_BYTES", resident)
    monkeypatch.setattr(autotune, "_exact_cost", lambda embeddings: np.inf)
    monkeypatch.setattr(autotune, "LAYOUTS", ((20, (2, 4, 8), False),))
    here, there = (
        knn_graph(
            _faces(np.float32), 5, "approximate", recall=0.9, runtime=Runtime.of(threads=2, device=device)
        )
        for device in ("cpu", "cuda")
    )
    assert here.method == there.method == "approximate"
    np.testing.assert_array_equal(there.neighbors, here.neighbors)
    np.testing.assert_array_equal(there.similarity, here.similarity)


def test_the_device_reaches_every_search(monkeypatch, small_views):
    asked = []
    monkeypatch.setattr(exact, "find_accelerator", asked.append)
    graph = knn_graph(small_views.base, 3, runtime=Runtime.of(device="cuda:1"))
    knn_graphs(list(small_views), 3, runtime=Runtime.of(device="cuda:2"))
    list(each_knn_graph(list(small_views), 3, "exact", runtime=Runtime.of(device="cuda:3")))
    measure_recall(small_views.base, graph, runtime=Runtime.of(device="cuda:4"))
    assert asked == ["cuda:1", *["cuda:2"] * 3, *["cuda:3"] * 3, "cuda:4"]


@pytest.mark.slow
def test_products_are_made_on_the_device():
    """The device `meta` has no data: the first copy back from it fails."""
    search = gpu.make_top_k_search(Embeddings(_faces(np.float32)), 5, torch.device("meta"))
    with pytest.raises(NotImplementedError, match="meta"):
        search(np.arange(10, dtype=np.int32))


def test_names_of_devices(monkeypatch):
    assert devices.resolve_device("auto").type in ("cpu", "cuda", "mps")
    assert devices.resolve_device("cpu") == torch.device("cpu")
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert devices.resolve_device("auto") == devices.resolve_device("cuda") == torch.device("cuda:0")
    assert devices.resolve_device("cuda:1") == torch.device("cuda:1")
    with refuses("device-unknown", device="cuda:2") as caught:
        devices.resolve_device("cuda:2")
    assert str(caught.value) == (
        "device='cuda:2': no such device; choose from auto, cpu, cuda:0, cuda:1, cuda."
    )
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 0)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    for name in ("cuda", "mps", "gpu"):
        with refuses("device-unknown"):
            knn_graph(_faces(np.float32), 3, runtime=Runtime.of(device=name))
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert devices.resolve_device("auto") == torch.device("mps")


def test_without_torch_auto_is_the_cpu(monkeypatch):
    monkeypatch.setattr(devices, "find_spec", lambda name: None)
    assert devices.find_accelerator("auto") is None
    with refuses("torch-missing", MissingExtraError, device="cuda"):
        knn_graph(_faces(np.float32), 3, runtime=Runtime.of(device="cuda"))


@pytest.mark.slow
@pytest.mark.parametrize(("version", "is_imported"), [("2.6.0+cpu", False), ("2.6.0", True)])
def test_torch_is_imported_only_where_it_may_have_a_gpu(version, is_imported):
    code = (
        "import sys; from cdp.runtime import devices; devices.version = lambda name: sys.argv[1]\n"
        "devices.find_accelerator('cpu'); assert 'torch' not in sys.modules\n"
        "devices.find_accelerator('auto'); print('torch' in sys.modules)"
    )
    words = [sys.executable, "-c", code, version]
    said = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    assert said.strip() == str(is_imported)
