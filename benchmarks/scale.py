"""End to end at growing sizes: CPU time and memory of every step of `cdp label`, recall and F, and how they grow.

Made-up embeddings, five models of 256 dimensions or one (benchmarks/data.py). Every size is labeled in a process of its own and written to
docs/results when it is done; sizes that are there are not measured again, and a size that was stopped goes on after its last finished
graph, so a curve can be made in pieces:

    python -m benchmarks.scale 50000
    python -m benchmarks.scale 1000000 --folder /large/disk
    python -m benchmarks.scale 1000000 --curve structured
    python -m benchmarks.scale 10000000 --curve one_model --folder /large/disk --memory-budget 6GB

| curve | embeddings | recall asked for |
|---|---|---|
| structureless | nothing beyond identities, the hard case | 0.95 of all neighbors |
| same_identity | the same | 0.95 of the neighbors of the same identity, as `cdp label` asks where identities are known |
| structured | with the structure of real embeddings (benchmarks/search.py) | 0.97 of all neighbors |
| one_model | the same by one model alone: a fifth of the work and of the disk | 0.97 of all neighbors |
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.clock import in_own_process
from benchmarks.data import write_made_up_views
from cdp.knn import model_graphs
from cdp.runtime.progress import Progress
from cdp.runtime.runtime import Runtime

SIZES = (50_000, 100_000, 200_000, 500_000, 1_000_000)
_FOLDER = Path(__file__).resolve().parents[1] / "docs" / "results"


@dataclass(frozen=True)
class Curve:
    """What is measured at every size, and where it is kept."""

    file: str
    recall: float
    recall_of: str = "all"
    structured: bool = False
    n_models: int = 5

    def read(self) -> dict[str, Any]:
        """The sizes that are there."""
        file = _FOLDER / self.file
        return json.loads(file.read_text()) if file.exists() else {}

    def add(self, n_images: int, folder: Path, memory: str) -> None:
        """Measure one size and keep it with the others."""
        kept = {**self.read(), str(n_images): measure_size(self, n_images, folder, memory)}
        ordered = {size: kept[size] for size in sorted(kept, key=int)}
        (_FOLDER / self.file).write_text(json.dumps(ordered, indent=2) + "\n")


CURVES = {
    "structureless": Curve("scale.json", 0.95),
    "same_identity": Curve("scale_same_identity.json", 0.95, "same_identity"),
    "structured": Curve("scale_structured.json", 0.97, structured=True),
    "one_model": Curve("scale_one_model.json", 0.97, structured=True, n_models=1),
}
MEMORY = "2GB"
_LOOK_EVERY = 0.1


def measure(*, quick: bool) -> dict[str, Any]:
    """The curves as they were measured; where nothing is kept, their first point: the large ones take long."""
    figures = {}
    for name in ("structureless", "structured", "one_model"):
        curve, folder = CURVES[name], Path(tempfile.gettempdir())
        if quick:
            kept = {"3000": measure_size(curve, 3000, folder)}
        else:
            if not curve.read():
                curve.add(SIZES[0], folder, MEMORY)
            kept = curve.read()
        print(f"{name}:")
        show(kept)
        figures[name] = {"sizes": kept, "exponents": exponents(kept)}
    return figures


def measure_size(curve: Curve, n_images: int, folder: Path, memory: str = MEMORY) -> dict[str, Any]:
    """One size in a process of its own."""
    started = time.strftime("%Y-%m-%d")
    scratch = folder / f"cdp-scale-{Path(curve.file).stem}-{n_images}"
    if not (scratch / "complete").exists():
        write_made_up_views(scratch, n_images, n_models=curve.n_models, structured=curve.structured)
        (scratch / "complete").touch()
    asked = {"recall": curve.recall, "recall_of": curve.recall_of, "memory": memory}
    figures = in_own_process("benchmarks.scale", folder=str(scratch), **asked)
    shutil.rmtree(scratch)
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()
    return {"commit": commit, "date": started, "asked": asked, **figures}


def child(folder: str, recall: float, recall_of: str, memory: str) -> dict[str, Any]:
    """`cdp label` with its preset `best`, step by step."""
    from cdp.collection.collection import open_collection
    from cdp.collection.creation import Origin, keep_labeling
    from cdp.collection.outputs import write_outputs
    from cdp.data.views import read_views
    from cdp.labeling.figures import measure_labeling
    from cdp.labeling.pipeline import label
    from cdp.runtime.settings import RuntimeSettings
    from cdp.runtime.step_cache import StepCache
    from cdp.scoring.settings import ConsensusSettings

    unlabeled, labeled = (read_views(Path(folder) / part) for part in ("unlabeled", "labeled"))
    # Graphs that a run which was stopped had finished are not made again; their time is then not in the figures.
    cache = StepCache(Path(folder) / "cache")
    is_resumed = Path(folder, "cache").exists()
    work = MeteredRuntime(RuntimeSettings(memory_budget=memory), cache, log_steps())
    warned: list[str] = []
    with watching(work.meter), gathering_warnings(warned):
        begun = time.process_time()
        settings = ConsensusSettings.of(recall=recall)
        with aiming_at(recall_of):
            labeling = label(unlabeled, settings, labeled=[labeled], keep_scored=True, runtime=work)
        labeled_after = time.process_time() - begun
        with work.step("figures and output"):
            results = measure_labeling(labeling, unlabeled, runtime=work)
            place, origin = (
                Path(folder) / "faces",
                Origin(Path(folder) / "unlabeled", Path(folder) / "labeled"),
            )
            place.mkdir()
            parts = {"unlabeled": unlabeled, "labeled": labeled}
            keep_labeling(place, labeling, unlabeled, results, origin, parts)
            write_outputs(open_collection(place))
    shutil.rmtree(Path(folder) / "faces")
    truth = results.labels
    named = sum(work.cpu.values()) - work.cpu["figures and output"]
    return {
        "images": unlabeled.n_images + labeled.n_images,
        "models": len(unlabeled),
        "dimensions": unlabeled.base.dimensions,
        "resumed": is_resumed,
        "cpu_seconds": {
            **{step: round(took, 1) for step, took in work.cpu.items()},
            "reading and the rest": round(labeled_after - named, 1),
        },
        "cpu_seconds_in_all": round(time.process_time() - begun, 1),
        "wall_seconds": work.timings,
        "peak_anonymous_mb": {step: round(peak / 1000) for step, peak in work.meter.peaks.items()},
        "graphs": {
            name: {
                "method": graph.method,
                "recall": graph.recall,
                "same_identity_recall": labeling.same_identity_recall.get(name),
            }
            for name, graph in labeling.graphs.items()
        },
        "figures": _figures(truth),
        "warnings": warned,
        "notes": list(labeling.notes),
    }


def _figures(found: Any) -> dict[str, Any]:
    truth = found.true
    return {
        "coverage": round(found.coverage, 4),
        "identities_found": found.identities_found,
        "identities_true": truth.identities_true,
        "pairwise_f_discards_kept": round(truth.discards_kept.pairwise.f, 4),
        "pairwise_f_discards_removed": round(truth.discards_removed.pairwise.f, 4),
    }


def log_steps() -> Progress:
    """A progress that writes a line where a step begins, with the CPU seconds so far: long runs are watched so."""
    begun: set[str] = set()

    def progress(step: str, done: int, total: int) -> None:  # noqa: ARG001
        if step not in begun:
            begun.add(step)
            print(f"{time.process_time():9.1f} CPU s: {step}", file=sys.stderr, flush=True)

    return progress


@contextmanager
def aiming_at(recall_of: str) -> Iterator[None]:
    """Ask for a share of all neighbors, or of those of the same identity, as searches do where identities are known."""
    if recall_of == "same_identity":
        yield
    else:
        with patch.object(model_graphs, "has_shared", lambda _: False):
            yield


@contextmanager
def gathering_warnings(found: list[str]) -> Iterator[None]:
    """What is warned of, as sentences."""
    import warnings

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    found.extend(str(warning.message) for warning in caught)


@dataclass
class Meter:
    """The most memory that each step had which is no file."""

    step: str = "reading and the rest"
    peaks: dict[str, int] = field(default_factory=dict)

    def look(self) -> None:
        """See how much there is now."""
        found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
        if found:
            self.peaks[self.step] = max(self.peaks.get(self.step, 0), int(found[1]))


@contextmanager
def watching(meter: Meter) -> Iterator[None]:
    """Look at the memory many times a second."""
    done = threading.Event()

    def look() -> None:
        while not done.wait(_LOOK_EVERY):
            meter.look()

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()


@dataclass(frozen=True, eq=False)
class MeteredRuntime(Runtime):
    """A runtime that also keeps CPU seconds and memory of every step."""

    cpu: dict[str, float] = field(default_factory=dict)
    meter: Meter = field(default_factory=Meter)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time a step, on the clock and on the processor."""
        before, begun = self.meter.step, time.process_time()
        self.meter.step = name
        with super().step(name):
            yield
        self.meter.look()
        self.meter.step = before
        self.cpu[name] = self.cpu.get(name, 0.0) + time.process_time() - begun


def exponents(kept: dict[str, Any]) -> dict[str, float]:
    """By which power of the number of images CPU time and memory grow, between the smallest and the largest size."""
    if len(kept) < 2:
        return {}
    sizes = np.log([int(size) for size in kept])
    grown = {
        "cpu_seconds": [figures["cpu_seconds_in_all"] for figures in kept.values()],
        "peak_memory": [max(figures["peak_anonymous_mb"].values()) for figures in kept.values()],
        "graphs": [figures["cpu_seconds"]["graphs"] for figures in kept.values()],
    }
    return {name: round(float(np.polyfit(sizes, np.log(of), 1)[0]), 2) for name, of in grown.items()}


def show(kept: dict[str, Any]) -> None:
    print(f"{'images':>10}{'CPU s':>9}{'graphs':>9}{'memory MB':>11}{'recall':>8}{'F':>7}")
    for size, figures in kept.items():
        recalls = [graph["recall"] for graph in figures["graphs"].values() if graph["recall"] is not None]
        score = figures["figures"]["pairwise_f_discards_kept"]
        print(
            f"{int(size):10,}{figures['cpu_seconds_in_all']:9,.0f}{figures['cpu_seconds']['graphs']:9,.0f}"
            f"{max(figures['peak_anonymous_mb'].values()):11,}{min(recalls, default=1.0):8.3f}{score:7.3f}"
        )
    print("grows with this power of the number of images:", exponents(kept))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("n_images", type=int, nargs="+", help="sizes to measure")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()), help="for embeddings")
    parser.add_argument("--memory-budget", default=MEMORY)
    parser.add_argument("--curve", choices=CURVES, default="structureless")
    given = parser.parse_args()
    curve = CURVES[given.curve]
    for n_images in given.n_images:
        if str(n_images) not in curve.read():
            curve.add(n_images, given.folder, given.memory_budget)
    show(curve.read())


if __name__ == "__main__":
    main()
