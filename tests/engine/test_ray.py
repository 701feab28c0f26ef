"""Threads and Ray give the same bytes, on a cluster of two nodes that loses a worker and then a node."""

import contextlib
import hashlib
import importlib.util
import os
import signal
import socket
import sys
import threading
import time
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.refusals import refuses
from typer.testing import CliRunner

from cdp.cli.main import app
from cdp.errors import CdpError, InputError, MissingExtraError
from cdp.grouping.average_linkage import agglomerate
from cdp.grouping.components import find_components
from cdp.grouping.propagation import propagate
from cdp.knn import cell_ranges, search
from cdp.knn.distributed import find_machines
from cdp.knn.exact import extend_graph
from cdp.knn.model_graphs import find_graphs
from cdp.knn.search import knn_graph, knn_graphs
from cdp.labeling.pipeline import label
from cdp.runtime import ray_pool
from cdp.runtime.ray_pool import RayPool
from cdp.runtime.runtime import Runtime
from cdp.runtime.settings import RuntimeSettings
from cdp.runtime.spill import SpillFiles
from cdp.runtime.step_cache import StepCache
from cdp.scoring.settings import ConsensusSettings
from cdp.types import ConsensusGraph, Embeddings, KnnGraph, Views

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("default"),  # Ray's own
    pytest.mark.xdist_group("ray"),
]
RAY = RuntimeSettings(engine="ray")


@pytest.fixture(scope="module")
def crowded_views():
    """Enough images, and alike enough, that looking into clusters is cheaper than exact search."""
    generator = np.random.default_rng(0)
    spread = np.exp(-np.arange(384) / 4)

    def see():
        people = np.repeat(generator.normal(size=(400, 384)), 10, axis=0)
        return Embeddings(((people + 0.3 * generator.normal(size=people.shape)) * spread).astype(np.float32))

    return Views(see(), {"member": see()})


@pytest.fixture(scope="module")
def cluster():
    """Two nodes of one core on this machine."""
    environment = {
        "RAY_AUTH_MODE": "disabled",
        "RAY_health_check_failure_threshold": "60",
        # A node that was killed is noticed after a quarter of a minute.
        "RAY_health_check_period_ms": "250",
        "RAY_memory_monitor_refresh_ms": "0",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        import ray
        from ray.cluster_utils import Cluster

        node = {"num_cpus": 1, "object_store_memory": 10**8, "include_dashboard": False}
        made = Cluster(initialize_head=True, head_node_args=node)
        made.add_node(num_cpus=1, object_store_memory=10**8)
        ray.init(made.address, log_to_driver=False, configure_logging=False, logging_level="ERROR")
        yield made
        ray.shutdown()
        made.shutdown()


def add_up(shared, item):
    return shared * item[0] + item[1].sum()


def die_once(marker, item):
    """As a worker does that the system kills for its memory."""
    if item == 3:
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            return item
        os.kill(os.getpid(), signal.SIGKILL)
    return item


def refuse(_, item):
    raise InputError(f"row {item} is wrong; leave it out.", code="row-wrong", row=item)


def hashes(labeling):
    arrays = {
        "labels": labeling.labels.labels,
        "confidence": labeling.labels.confidence,
        "pairs": labeling.scored.ids,
        "doubt": labeling.scored.doubt,
        **{f"{name} {part}": getattr(graph, part) for name, graph in labeling.graphs.items() for part in ("neighbors", "similarity")},
    }  # fmt: skip
    return {
        name: hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()
        for name, array in arrays.items()
    }


SETTINGS = {
    "trees": ConsensusSettings.of(k=8, method="exact"),
    "paper": ConsensusSettings.of("paper", k=8, method="approximate", recall=0.9, threshold="auto"),
}


def label_small(views, name, engine, **more):
    known = np.arange(views.n_images) < 150
    labeling = label(views, SETTINGS[name], validation=known, runtime=Runtime(engine, **more))
    return hashes(labeling)


def test_results_come_in_order_and_blocks_travel_together(cluster):
    items = [(number, np.full(1000, number)) for number in range(300)]
    expected = list(Runtime.of(threads=1).map(add_up, 5, items))
    assert list(Runtime(RAY).map(add_up, 5, iter(items))) == expected
    assert list(Runtime(replace(RAY, memory_budget="40KB")).map(add_up, 5, iter(items))) == expected
    assert list(Runtime(RAY).map(add_up, 5, [])) == []


def test_what_a_block_refuses_is_said_as_on_threads(cluster):
    with refuses("row-wrong", row=0) as caught:
        list(Runtime(RAY).map(refuse, None, range(10)))
    assert str(caught.value) == "row 0 is wrong; leave it out."


def test_storage_that_a_node_does_not_see_is_named(cluster, tmp_path):
    np.save(tmp_path / "vectors.npy", np.random.default_rng(0).normal(size=(60, 8)))
    vectors = np.load(tmp_path / "vectors.npy", mmap_mode="r")
    (tmp_path / "vectors.npy").unlink()
    with refuses("packed-file-unseen", file=tmp_path / "vectors.npy"):
        knn_graph(vectors, 3, runtime=Runtime(RAY))


@pytest.mark.parametrize("name", ["trees", "paper"])
def test_threads_and_ray_give_the_same_bytes(cluster, small_views, name):
    expected = label_small(small_views, name, RuntimeSettings(threads=1))
    assert label_small(small_views, name, RuntimeSettings(threads=4)) == expected
    assert label_small(small_views, name, RAY) == expected


def test_a_graph_is_extended_on_the_nodes_with_the_same_bytes(cluster, small_views):
    model = next(iter(small_views))
    before = knn_graph(
        Embeddings(np.asarray(model.source)[:250]), 8, runtime=Runtime.of(threads=1)
    ).insert_rows(250, 50)
    here, there = (
        extend_graph(before, model, (250, 300), runtime=Runtime(how))
        for how in (RuntimeSettings(threads=1), RAY)
    )
    assert here.neighbors.tobytes() == there.neighbors.tobytes()
    assert here.similarity.tobytes() == there.similarity.tobytes()


def test_components_are_grouped_on_the_nodes_with_the_same_bytes(cluster, tmp_path):
    generator = np.random.default_rng(0)
    one = generator.integers(0, 4000, 20_000)
    other = np.where(
        generator.random(20_000) < 0.9, one // 40 * 40 + generator.integers(0, 40, 20_000), (one + 1) % 4000
    )
    key = np.unique(np.minimum(one, other) * 4000 + np.maximum(one, other))
    ids = np.stack([key // 4000, key % 4000], axis=1).astype(np.int32)
    ids = ids[ids[:, 0] < ids[:, 1]]
    spill = SpillFiles(0, tmp_path, is_shared=True)
    lists = (spill.done(spill.copy(array)) for array in (ids, generator.random(len(ids)).astype(np.float32)))
    graph = ConsensusGraph(*lists, 4000)
    settings = RuntimeSettings(engine="ray", memory_budget="1MB")
    tight = Runtime(settings, shared_spill=spill)
    assert len(graph) > 2 * 4096, "more than one batch"
    for joins in (None, graph.doubt < 0.1):
        found = find_components(graph.ids, 4000, joins, runtime=tight, pairs_per_shard=2000)
        np.testing.assert_array_equal(found, find_components(graph.ids, 4000, joins))
    thresholds = [0.9, 0.95]
    here = [propagate(graph, 300), *(agglomerate(graph, 20, threshold, 300) for threshold in thresholds)]
    there = [
        propagate(graph, 300, runtime=tight),
        *(agglomerate(graph, 20, threshold, 300, runtime=tight) for threshold in thresholds),
    ]
    for mine, theirs in zip(here, there, strict=True):
        for name in ("labels", "status", "confidence"):
            assert getattr(mine, name).tobytes() == getattr(theirs, name).tobytes()


def test_the_command_writes_the_same_files(cluster, small_views, tmp_path):
    small_views.save(tmp_path / "views")
    for engine in ("threads", "ray"):
        options = ["--mediator", "vote", "--k", "5", "--engine", engine, "--quiet"]
        result = CliRunner().invoke(
            app, ["label", f"{tmp_path}/views", "--out", f"{tmp_path}/{engine}", *options]
        )
        assert result.exit_code == 0, result.output
    one, other = ((tmp_path / engine / "labels.csv").read_bytes() for engine in ("threads", "ray"))
    assert one == other


def test_images_are_embedded_alike(cluster, tmp_path):
    import drawn_images
    from cdp.nets.embed_images import embed_images
    from cdp.nets.extract import open_networks
    from cdp.nets.onnx_models import open_models
    from cdp.nets.recipe import Recipe
    from cdp.nets.supervised import train_supervised
    from onnx_builders import embedder

    images = drawn_images.draw(tmp_path / "images")
    train_supervised(
        images, ["small_resnet"], tmp_path / "nets", recipe=Recipe(epochs=1, batch=16, size=16, dimensions=8)
    )
    models = open_networks(tmp_path / "nets", "small_resnet")
    models += open_models([embedder(tmp_path / "w600k_r50.onnx")], "cpu")
    here = embed_images(images, models, tmp_path / "here", batch=16, runtime=Runtime.of(threads=2)).views
    there = embed_images(images, models, tmp_path / "there", batch=16, runtime=Runtime(RAY)).views
    for one, other in zip(here, there, strict=True):
        np.testing.assert_array_equal(one.source, other.source)
    (tmp_path / "images" / images.locations[20]).write_bytes(b"")
    with refuses("image-empty", row=20, file=images.locations[20]):
        embed_images(images, models, tmp_path / "broken", batch=16, runtime=Runtime(RAY))


def test_where_there_is_no_other_machine_threads_do_the_work(cluster, monkeypatch):
    import ray

    assert isinstance(Runtime(RAY).pool, RayPool)
    node = ray.nodes()[0]
    alone = replace(RAY, threads=3, ray_address="auto")
    monkeypatch.setattr(ray, "nodes", lambda: [node, {**node, "Alive": False}])
    with pytest.warns(UserWarning, match="^engine = 'ray', but the cluster has no other machine"):
        runtime = Runtime(alone)
    assert not runtime.spill.is_shared
    assert (runtime.pool, runtime.n_threads) == (None, 3)
    assert runtime.on_gpus().pool is None, "no GPUs that would be worth processes"
    assert runtime.search_device == "auto"
    for other in ({"NodeManagerHostname": "another"}, {"Resources": {"memory": 1.0}}):
        monkeypatch.setattr(ray, "nodes", lambda other=other: [{**node, **other}])
        assert isinstance(Runtime(alone).pool, RayPool), other
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(
        ray, "init", lambda *_, **__: pytest.fail("Ray is not started for this machine alone")
    )
    with pytest.warns(UserWarning, match="no other machine"):
        assert Runtime(replace(alone, ray_address="local")).pool is None


def test_every_gpu_of_one_machine_gets_a_process(cluster, monkeypatch):
    import ray

    node = ray.nodes()[0]
    monkeypatch.setattr(ray, "nodes", lambda: [node])
    monkeypatch.setattr("cdp.runtime.devices.count_gpus", lambda: 2)
    with pytest.warns(UserWarning, match="no other machine"):
        assert Runtime(RAY).on_gpus().pool == RAY.ray_pool().with_gpus()
    with pytest.warns(UserWarning, match="no other machine"):
        assert Runtime(replace(RAY, device="cpu")).on_gpus().pool is None


@pytest.mark.parametrize(
    ("cores", "n_graphs", "n_images", "each"),
    [
        ([1, 1], 5, 10**6, 1),
        ([4, 32, 32, 32, 32, 32], 5, 10**6, 32),
        ([4, 32, 32], 2, 10**6, 32),
        ([8, 0], 5, 10**6, 8),
        ([16] * 100, 5, 10**6, 16),
        ([32] * 8, 1, 10**6, 32),
        ([32] * 8, 1, 10**8, None),  # ranges of one graph go to all machines: the driver's part is smaller
        ([1] * 8, 2, 10**6, None),
        ([1] * 100, 5, 10**6, None),
        ([1] * 4, 1, 10**5, None),
        ([], 5, 10**6, None),
    ],
)
def test_graphs_go_to_the_machines_that_are_done_first(cluster, monkeypatch, cores, n_graphs, n_images, each):
    import ray

    nodes = [{"Alive": True, "Resources": {"CPU": float(count)} if count else {}} for count in cores]
    there = Runtime(RAY).pool
    monkeypatch.setattr(ray, "nodes", lambda: [*nodes, {"Alive": False, "Resources": {"CPU": 64.0}}])
    found = find_machines(there, n_graphs, n_images)
    assert found == (None if each is None else replace(there, cores=each))
    assert find_machines(there, 0, n_images) is None
    assert find_machines(None, n_graphs, n_images) is None


@pytest.mark.parametrize("keeps", [True, False])
def test_graphs_of_several_models_are_searched_on_a_machine_each(
    cluster, crowded_views, tmp_path, monkeypatch, keeps
):
    settings = replace(SETTINGS["paper"], recall=0.8)
    # Workers were started in another folder than that.
    monkeypatch.chdir(tmp_path)
    steps, cache = set(), StepCache(Path("cache")) if keeps else StepCache()
    about = {"cache": cache, "progress": lambda step, *_: steps.add(step), "folder": Path("files")}
    there = find_graphs(crowded_views, settings, runtime=Runtime(RAY, **about)).graphs
    assert steps == {"k-NN graphs"}
    here = find_graphs(crowded_views, settings, runtime=Runtime(RuntimeSettings(threads=2)))
    for name, graph in here.graphs.items():
        assert graph.method == "approximate"
        np.testing.assert_array_equal(graph.neighbors, there[name].neighbors)
        np.testing.assert_array_equal(graph.similarity, there[name].similarity)
        assert graph.recall == there[name].recall
    if keeps:
        monkeypatch.setattr(
            RayPool, "map", lambda *_: pytest.fail("graphs that are kept are not searched again")
        )
        find_graphs(crowded_views, settings, runtime=Runtime(RAY, **about))


def test_blocks_of_one_approximate_graph_go_to_all_machines(cluster, crowded_views):
    here, there = (
        knn_graph(crowded_views.base, 8, "approximate", recall=0.8, runtime=Runtime(how))
        for how in (RuntimeSettings(threads=1), RAY)
    )
    assert here.method == there.method == "approximate"
    np.testing.assert_array_equal(here.neighbors, there.neighbors)
    np.testing.assert_array_equal(here.similarity, there.similarity)


def test_a_low_recall_that_another_machine_reached_is_said_here(monkeypatch):
    graph = KnnGraph(np.array([[1], [0]]), np.ones((2, 1), np.float32), "approximate", 0.7)
    monkeypatch.setattr(search, "_on_machines", lambda *_, **__: iter([graph]))
    models = [Embeddings(np.eye(2))]
    with pytest.warns(
        UserWarning, match="^k-NN graph base: the approximate search found 70.0% of the nearest"
    ):
        knn_graphs(models, 1, names=["base"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # whoever asks for neighbors of the same identity says it
        knn_graphs(models, 1, names=["base"], identities=np.zeros(2, np.int64))


def test_a_killed_worker_is_replaced(cluster, tmp_path):
    assert list(Runtime(RAY).map(die_once, str(tmp_path / "died"), range(8))) == list(range(8))
    assert (tmp_path / "died").exists()


class _Trouble:
    """A progress that adds a node, slows the workers down and takes the new node away again, one by one."""

    def __init__(self, cluster):
        self.cluster, self.node, self.workers = cluster, None, []
        self.calls, self.slowed = 0, False

    def __call__(self, *_):
        self.calls += 1
        if self.calls == 1:
            self.workers = own_workers()
            self.node = self.cluster.add_node(num_cpus=1, object_store_memory=10**8)
        elif self.calls == 3:
            # Of a node that stays: a node that is gone with a worker that stands still is noticed after minutes.
            self.slowed = slow_down(self.workers, 0.5)
        elif self.calls == 5:
            self.leave()

    def leave(self):
        """Take the node away, if it is there."""
        if self.node is not None:
            self.cluster.remove_node(self.node, allow_graceful=False)
            self.node = None


def own_workers():
    """The workers of Ray that this process has started."""
    parent, workers = {}, []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent[int(process.name)] = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if (process / "cmdline").read_bytes().startswith((b"ray::run_blocks", b"ray::IDLE")):
                workers.append(int(process.name))

    def is_own(number):
        while number and number != os.getpid():
            number = parent.get(number, 0)
        return number != 0

    return [number for number in workers if is_own(number)]


def slow_down(workers, seconds):
    """Stop one of the workers for some time, as on a machine that does something else; False if there is none."""
    for worker in reversed(workers):
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGSTOP)
            threading.Timer(seconds, go_on, [worker]).start()
            return True
    return False


def go_on(worker):
    with contextlib.suppress(ProcessLookupError):
        os.kill(worker, signal.SIGCONT)


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="needs /proc")
@pytest.mark.parametrize("what", ["graph", "labeling"])
def test_nodes_that_come_are_slow_or_go_give_the_same_bytes(
    cluster, crowded_views, small_views, monkeypatch, what
):
    monkeypatch.setattr(ray_pool, "_LOOK_AGAIN", 0.1)
    monkeypatch.setattr(ray_pool, "_SECONDS_PER_TASK", 0.02)
    monkeypatch.setattr(cell_ranges, "_FEWEST_CELLS", 4)
    monkeypatch.setattr(cell_ranges, "_FEWEST_IMAGES", 400)

    def compute(how, progress=lambda *_: None):
        if what == "labeling":
            return label_small(small_views, "trees", how, progress=progress)
        runtime = Runtime(how, progress=progress)
        graph = knn_graph(crowded_views.base, 8, "approximate", recall=0.8, runtime=runtime)
        assert graph.method == "approximate"
        return graph.neighbors.tobytes(), graph.similarity.tobytes()

    trouble = _Trouble(cluster)
    try:
        assert compute(RAY, trouble) == compute(RuntimeSettings(threads=1))
        assert trouble.calls >= 5
        assert trouble.slowed
    finally:
        trouble.leave()


def test_a_killed_node_is_done_without(cluster, small_views):
    seen = []

    def progress(step, done, total):
        if step == "k-NN graph small" and not seen:
            node = next(iter(cluster.worker_nodes))
            cluster.remove_node(node, allow_graceful=False)
            seen.append(node)

    expected = label_small(small_views, "trees", RuntimeSettings(threads=1))
    assert label_small(small_views, "trees", RAY, progress=progress) == expected
    assert seen


def test_a_cluster_without_cores_ends_with_a_sentence(cluster, monkeypatch):
    import ray

    monkeypatch.setattr(ray_pool, "_PATIENCE", 0.0)
    monkeypatch.setattr(ray_pool, "_LOOK_AGAIN", 0.01)
    node = ray.nodes()[0]
    monkeypatch.setattr(ray, "nodes", lambda: [{**node, "Resources": {}}])
    with refuses("ray-cores-missing", CdpError, cores=1):
        list(_Waiting().map(time.sleep, None, [1]))
    monkeypatch.setattr(ray, "nodes", lambda: [{**node, "Resources": {"CPU": 4.0}}])
    with refuses("ray-cores-missing", CdpError, cores=8):
        list(_Waiting(cores=8).map(time.sleep, None, [1]))


class _Waiting(RayPool):
    """A pool whose tasks nobody takes."""

    def _resources(self, ray):
        return {"num_cpus": 1000}


def test_a_cluster_that_is_not_there_is_refused(monkeypatch):
    import ray

    def fail(**_):
        raise ConnectionError("Could not find any running Ray instance.\nMore.")

    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.setattr(ray, "init", fail)
    with refuses("ray-cluster-unreachable", key="ray_address", value="auto"):
        list(RayPool("auto").map(add_up, 1, [(1, np.ones(1))]))
    # Where nothing listens, Ray is not even asked: it would try for minutes.
    with socket.socket() as held:
        held.bind(("127.0.0.1", 0))
        port = held.getsockname()[1]
        for address in (f"127.0.0.1:{port}", f"ray://127.0.0.1:{port}"):
            with refuses("ray-cluster-unreachable", key="ray_address", value=address):
                list(RayPool(address).map(add_up, 1, [(1, np.ones(1))]))


def test_without_the_extra_its_install_command_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(ray_pool, "find_spec", lambda name: None)
    with refuses("ray-missing", MissingExtraError, extra="ray"):
        list(Runtime(RAY).map(add_up, 1, [(1, np.ones(1))]))
