"""Several machines: CPU seconds of the driver and of tasks by step, and what follows for more machines.

The same labeling, from files to the files of a collection, in fresh processes: by one core, by the threads of this machine, and by Ray on two
nodes of one core each, which are processes of this machine: there every block is sent. On one machine threads do the work, whatever the engine.
What starting takes, the same for any number of images, is given apart: all that comes before the images, a hundred people's labeled first so that
libraries and loops are loaded wherever blocks run. Wall-clock time means something only where nothing else runs.

However many machines there are, only tasks get faster: the driver is the process that was started. Two nodes also label half of the images, which
tells what the driver takes per image from what it takes whatever their number. The marks are at most a tenth more CPU time than on threads, and 10
microseconds per image of the driver, from files to files. The last lines apply the rates to 100 million images.

`python -m benchmarks.ray_overhead 200000 32 1` measures so many images in so few dimensions by a base and so many members.
`python -m benchmarks.ray_overhead graph 300000 1000000` measures one graph whose ranges of cells go to both nodes: its CPU time by number of images.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import write_made_up_views
from cdp.data.views import read_views
from cdp.knn.cell_ranges import MOST_RANGES
from cdp.knn.distributed import DRIVER_SECONDS, RANGES_COST, choose_cores
from cdp.knn.ivf_search import approximate_graph
from cdp.runtime.runtime import Runtime
from cdp.runtime.settings import RuntimeSettings
from cdp.types import Embeddings

MOST_OVERHEAD = 0.10
MOST_DRIVER = 10.0
_ONE_CORE, _TWO_NODES, _HALF = "one core", "ray, two nodes", "ray, half"
_BEFORE_AND_AFTER = ("reading", "figures and output")
_GRAPHS = "graphs"
# CPU time of an approximate graph grows with this power of the number of images (benchmarks/graph_growth.py).
_GRAPH_POWER = 1.3
_MANY, _MACHINES, _CORES = 100_000_000, (1, 8, 100), (1, 32)
_STORE = 4 * 10**9
_WARM_UP = 31_000
_TICKS = os.sysconf("SC_CLK_TCK")
_WORKERS = b"ray::"


def measure(*, quick: bool = False) -> dict[str, object]:
    """Seconds by engine, and the overhead of Ray."""
    return compare(5_000, 128, 2) if quick else compare(200_000, 256, 4)


def compare(n_images: int, dimensions: int, members: int) -> dict[str, object]:
    """The same for so many images, dimensions and members of the committee."""
    with tempfile.TemporaryDirectory(prefix="cdp-ray-overhead-") as home:
        whole, half = Path(home) / "whole", Path(home) / "half"
        _save_views(whole, n_images, dimensions, members)
        _save_views(half, n_images // 2, dimensions, members)
        runs: dict[str, Any] = {engine: _run(whole, engine) for engine in (_ONE_CORE, "threads", _TWO_NODES)}
        few = _run(half, _TWO_NODES)
    same = len({run["labels"] for run in runs.values()}) == 1
    spent = {engine: run["cpu"] - run["startup_cpu"] for engine, run in runs.items()}
    took = {engine: run["wall"] - run["startup"] for engine, run in runs.items()}
    overhead = round(spent[_TWO_NODES] / spent["threads"] - 1, 4)
    clock = round(took[_TWO_NODES] / took[_ONE_CORE], 4)
    found = f"{runs['threads']['images']:,} images in one graph; {members + 1} models x {dimensions}"
    print(f"{found}; the same labels: {same}")
    for engine, run in runs.items():
        print(
            f"{engine:14} {run['cpu']:8.1f} CPU seconds, of which imports and start-up {run['startup_cpu']:.1f}; "
            f"{run['wall']:8.1f} s, of which start-up {run['startup']:.1f}"
        )
    show_steps(runs[_TWO_NODES])
    per_image = show_driver(runs[_TWO_NODES], few)
    print(
        f"two nodes to threads, CPU time beyond start-up: {overhead:+.1%} (mark: at most {MOST_OVERHEAD:.0%})"
    )
    print(f"two nodes to one core, on the clock: {clock:.2f} (mark: at most 0.6)")
    show_arithmetic(runs[_TWO_NODES], per_image)
    return {**runs, _HALF: few, "overhead": overhead, "clock": clock, "same": same, "driver": per_image}


def _save_views(home: Path, n_images: int, dimensions: int, members: int) -> None:
    from cdp_lab.synthetic import synthetic_views

    split = synthetic_views(n_images // 12, members=members, dimensions=dimensions, seed=1)
    for name, part in (("labeled", split.labeled), ("unlabeled", split.unlabeled)):
        part.save(home / name)


def _run(home: Path, engine: str) -> dict[str, Any]:
    output = subprocess.run(
        [sys.executable, "-m", "benchmarks.ray_overhead", str(home), engine],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    ).stdout
    answer: dict[str, Any] = json.loads(output.splitlines()[-1])
    return answer


def _label(home: Path, engine_name: str) -> dict[str, Any]:
    from cdp.labeling.pipeline import label
    from cdp.scoring.settings import ConsensusSettings
    from cdp_lab.synthetic import synthetic_views

    if engine_name == _ONE_CORE:
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    engine = RuntimeSettings(engine="ray" if engine_name == _TWO_NODES else "threads", device="cpu")
    start = time.perf_counter()
    if engine_name == _TWO_NODES:
        _start_two_nodes()
    few = synthetic_views(100, members=1, seed=2)
    first = label(
        few.unlabeled,
        ConsensusSettings.of(),
        labeled=[few.labeled],
        keep_scored=True,
        runtime=Runtime(engine),
    )
    _write(home, first, few.unlabeled, few.labeled, Runtime(engine), None)
    startup, startup_cpu = time.perf_counter() - start, _cpu_seconds()
    work = _SplitRuntime(engine)
    tasks, driver = _cpu_seconds(_WORKERS), time.process_time()
    with work.step("reading"):
        labeled, unlabeled = (read_views(home / part, runtime=work) for part in ("labeled", "unlabeled"))
    labeling = label(unlabeled, ConsensusSettings.of(), labeled=[labeled], keep_scored=True, runtime=work)
    with work.step("figures and output"):
        _write(home, labeling, unlabeled, labeled, work, home)
    driver, tasks = time.process_time() - driver - sum(work.readings), _cpu_seconds(_WORKERS) - tasks
    in_all = _cpu_seconds()
    return {
        "images": labeled.n_images + unlabeled.n_images,
        "models": len(unlabeled),
        "labels": hashlib.sha256(labeling.labels.labels.tobytes()).hexdigest(),
        "startup": round(startup, 1),
        "startup_cpu": round(startup_cpu, 1),
        "wall": round(time.perf_counter() - start, 1),
        "cpu": round(in_all, 1),
        "driver": _with_rest(work.driver, driver),
        "tasks": _with_rest(work.tasks, tasks),
        "ray": round(in_all - startup_cpu - driver - tasks, 2),
        "seconds": labeling.seconds,
    }


def _write(
    home: Path, labeling: Any, unlabeled: Any, labeled: Any, work: Runtime, source: Path | None
) -> None:
    """Write what `cdp label` writes."""
    from cdp.collection.collection import open_collection
    from cdp.collection.creation import Origin, keep_labeling
    from cdp.collection.outputs import write_outputs
    from cdp.labeling.figures import measure_labeling

    results = measure_labeling(labeling, unlabeled, runtime=work)
    parts = {"unlabeled": unlabeled, "labeled": labeled}
    with tempfile.TemporaryDirectory(dir=home) as place:
        origin = Origin(source and source / "unlabeled", source and source / "labeled")
        keep_labeling(Path(place), labeling, unlabeled, results, origin, parts, runtime=work)
        write_outputs(open_collection(Path(place)))


def _with_rest(steps: dict[str, float], total: float) -> dict[str, float]:
    measured = {step: round(spent, 2) for step, spent in steps.items()}
    return {**measured, "the rest": round(total - sum(steps.values()), 2)}


@dataclass(frozen=True, eq=False)
class _SplitRuntime(Runtime):
    """A runtime that also keeps the CPU seconds of driver and tasks in every step."""

    driver: dict[str, float] = field(default_factory=dict)
    tasks: dict[str, float] = field(default_factory=dict)
    readings: list[float] = field(default_factory=list)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step on the clock, and on the processors of driver and tasks."""
        tasks, driver = self.cpu_of_tasks(), time.process_time()
        with super().step(name):
            yield
        self.driver[name] = self.driver.get(name, 0.0) + time.process_time() - driver
        self.tasks[name] = self.tasks.get(name, 0.0) + self.cpu_of_tasks() - tasks

    def cpu_of_tasks(self) -> float:
        """Read the CPU seconds of workers; what reading takes is noted, as it is none of the driver's work."""
        start = time.process_time()
        found = _cpu_seconds(_WORKERS)
        self.readings.append(time.process_time() - start)
        return found


def show_steps(run: dict[str, Any]) -> None:
    """Print the CPU time of driver and tasks by step, per image."""
    scale = 1e6 / run["images"]
    print(f"{_TWO_NODES}, microseconds of CPU time per image:")
    print(f"{'step':>20}{'driver':>10}{'tasks':>10}")
    for step in run["driver"]:
        print(f"{step:>20}{scale * run['driver'][step]:10.1f}{scale * run['tasks'][step]:10.1f}")
    driver, tasks = (scale * sum(run[kind].values()) for kind in ("driver", "tasks"))
    print(f"{'in all':>20}{driver:10.1f}{tasks:10.1f}   and {scale * run['ray']:.1f} by Ray itself")
    around = scale * sum(run["driver"][step] for step in _BEFORE_AND_AFTER)
    print(f"{'views to labels':>20}{driver - around:10.1f}")


def show_driver(run: dict[str, Any], few: dict[str, Any]) -> float:
    """Print what the driver takes per image, and whatever their number, by two numbers of images."""
    spent, less = (sum(one["driver"].values()) for one in (run, few))
    per_image = (spent - less) / (run["images"] - few["images"])
    constant = spent - per_image * run["images"]
    print(
        f"driver, from files to files: {1e6 * per_image:.1f} microseconds per image and {constant:.2f} s for any "
        f"number, by {few['images']:,} and {run['images']:,} images (mark: at most {MOST_DRIVER:.0f})"
    )
    return round(1e6 * per_image, 2)


def show_arithmetic(run: dict[str, Any], driver: float) -> None:
    """Print the hours for many images that follow from the rates: what tasks take is shared by all cores.

    `driver` is what the driver takes per image, in microseconds.
    """
    growth = (_MANY / run["images"]) ** (_GRAPH_POWER - 1)
    print(
        f"{_MANY:,} images by these rates, driver and tasks; one machine, and how many times faster more are:"
    )
    ways = {
        "constant rates": (1.0, False),
        f"graphs take {growth:.1f} x per image": (growth, False),
        "the same, graphs placed as cdp does": (growth, True),
    }
    for cores in _CORES:
        for way, (grown, is_placed) in ways.items():
            hours = [_hours(run, driver, machines, cores, grown, is_placed) for machines in _MACHINES]
            faster = ", ".join(
                f"{number}: {hours[0] / one:.1f} x"
                for number, one in zip(_MACHINES[1:], hours[1:], strict=True)
            )
            print(f"{cores:>5} cores, {way}: {hours[0]:.1f} h; {faster}")


def _hours(
    run: dict[str, Any], driver: float, machines: int, cores: int, growth: float, is_placed: bool
) -> float:
    """Compute the hours for many images: seconds of the driver, and those of tasks by the cores that share them.

    Graphs are shared by all cores, or placed: one per machine, or by ranges of cells with the driver's part.
    """
    graphs = growth * run["tasks"][_GRAPHS]
    others = sum(run["tasks"].values()) + run["ray"] - run["tasks"][_GRAPHS]
    shared = graphs / (cores * machines)
    if is_placed and machines > 1:
        if choose_cores([cores] * machines, run["models"], _MANY):
            shared = -(-run["models"] // machines) * graphs / run["models"] / cores
        else:
            driver += 1e6 * run["models"] * DRIVER_SECONDS
            shared = graphs * RANGES_COST / min(cores * machines, MOST_RANGES)
    tasks = (shared + others / (cores * machines)) / run["images"]
    return float(_MANY * (1e-6 * driver + tasks) / 3600)


def measure_ranges(sizes: Sequence[int]) -> None:
    """Print the CPU time per image of a graph by ranges of cells: of driver and tasks, and of the same graph on threads.

    What any number of images takes is left out of the last line, which compares the first size with the last.
    """
    _start_two_nodes()
    spent = []
    with tempfile.TemporaryDirectory(prefix="cdp-ranges-") as home:
        for size in (_WARM_UP, *sizes):
            views = Path(home) / str(size)
            write_made_up_views(views, size, n_models=1, structured=True, labeled=0.01)
            spent.append(_measure_graph(read_views(views / "unlabeled").base, Path(home)))
    (few, less, _), (many, more, _) = spent[1], spent[-1]
    if many > few:
        print(f"driver: {1e6 * (more - less) / (many - few):.2f} microseconds per further image")


def _measure_graph(embeddings: Embeddings, folder: Path) -> tuple[int, float, bytes]:
    """Search a graph on both nodes, then on one thread; return images, CPU seconds of the driver, and a hash."""
    n_images, found = embeddings.n_images, []
    for engine in ("ray", "threads"):
        settings = RuntimeSettings(engine=engine, device="cpu", threads=1, memory_budget="10GB")
        driver, tasks = time.process_time(), _cpu_seconds(_WORKERS)
        main = time.thread_time()
        graph = approximate_graph(embeddings, 20, 0.97, runtime=Runtime(settings, folder=folder))
        main = time.thread_time() - main
        driver, tasks = time.process_time() - driver, _cpu_seconds(_WORKERS) - tasks
        digest = hashlib.sha256(np.ascontiguousarray(graph.neighbors)).digest()
        found.append((n_images, driver, digest))
        parts = f"main thread {1e6 * main / n_images:.2f}, tasks {1e6 * tasks / n_images:.2f}"
        print(
            f"{n_images:,} on {engine}: driver {1e6 * driver / n_images:.2f}, {parts} microseconds per image"
        )
    print(f"the same neighbors: {found[0][2] == found[1][2]}", flush=True)
    return found[0]


def _start_two_nodes() -> None:
    import ray
    from ray.cluster_utils import Cluster

    os.environ["RAY_AUTH_MODE"] = "disabled"  # nodes that are processes of this machine know no common token
    # Such nodes would have a store of 150 MB each, and write to disk what does not fit; a machine's has a third of its memory.
    node = {"num_cpus": 1, "object_store_memory": _STORE}
    cluster = Cluster(initialize_head=True, head_node_args={**node, "include_dashboard": False})
    cluster.add_node(**node)
    ray.init(cluster.address, log_to_driver=False, configure_logging=False, logging_level="ERROR")


def _cpu_seconds(command: bytes = b"") -> float:
    """CPU time of this process and all that it started, and they, dead or alive; or of those by command."""
    ticks, parent = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
            is_counted = not command or (stat.parent / "cmdline").read_bytes().startswith(command)
        except OSError:
            continue
        pid = int(stat.parent.name)
        parent[pid] = int(fields[1])
        ticks[pid] = sum(map(int, fields[11 : 13 if command else 15])) if is_counted else 0

    def belongs(pid: int) -> bool:
        while pid not in (os.getpid(), 0):
            pid = parent.get(pid, 0)
        return pid != 0

    return sum(spent for pid, spent in ticks.items() if belongs(pid)) / _TICKS


if __name__ == "__main__":
    if sys.argv[1] == "graph":
        measure_ranges([int(size) for size in sys.argv[2:]])
    elif sys.argv[-1].isdecimal():
        compare(*map(int, sys.argv[1:]))
    else:
        print(json.dumps(_label(Path(sys.argv[1]), sys.argv[2])))
