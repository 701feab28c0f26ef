"""Figures of several baselines, and of CDP, on the same embeddings: quality, seconds, memory."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from cdp.data.views import read_views
from cdp.errors import CdpError, InputError
from cdp.evaluate.label_figures import measure_labels
from cdp.knn.search import knn_graph
from cdp.labeling.fitting import Fitted
from cdp.labeling.joined_views import replace_identities
from cdp.labeling.labeling import Labeling
from cdp.labeling.pipeline import label
from cdp.runtime.progress import Progress, no_progress
from cdp.runtime.runtime import Runtime
from cdp.scoring.mediator import Mediator
from cdp.scoring.settings import ConsensusSettings
from cdp.settings import plain
from cdp.storage.artifacts import load, save
from cdp.storage.files import write_json
from cdp.types import Embeddings, KnnGraph, Labels, Views
from cdp.types.arrays import AnyArray, LongArray
from cdp_lab.baselines.baseline import DEFAULT_K, Baseline
from cdp_lab.baselines.fresh_process import MeasuredLabels, run_in_fresh_process
from cdp_lab.baselines.methods import BASELINES
from cdp_lab.synthetic import synthetic_views

_WARM_UP_IMAGES = 64


@dataclass(frozen=True)
class BaselineFigures:
    """One row: what a method is, how good its labels are (discards as groups of one), what they cost.

    Precision, recall and F are pairwise, `coverage` is the share of images with a label, `identities` the
    number of groups; None where nothing could be counted. `seconds` and `peak_bytes` are of the labeling
    alone, beyond embeddings, graph and libraries. `failure` says why there are no figures, if there are none.
    """

    name: str
    settings: dict[str, Any]
    precision: float | None = None
    recall: float | None = None
    f: float | None = None
    bcubed_f: float | None = None
    nmi: float | None = None
    coverage: float | None = None
    identities: int | None = None
    seconds: float | None = None
    peak_bytes: int | None = None
    failure: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


def measure_baselines(
    baselines: Sequence[Baseline],
    embeddings: Embeddings,
    graph: KnnGraph | None,
    identities: npt.ArrayLike,
    *,
    progress: Progress = no_progress,
) -> list[BaselineFigures]:
    """Figures of every baseline, each run in a fresh process.

    Without a graph, 20 neighbors are searched once for all; a negative identity is unknown and not counted.
    """
    truth = np.asarray(identities)
    if truth.shape != (embeddings.n_images,):
        raise InputError(
            f"measure_baselines: {truth.size:,} identities for {embeddings.n_images:,} images.",
            code="baseline-identities-differ",
            expected=embeddings.n_images,
            found=truth.size,
        )
    for baseline in baselines:
        if baseline.name not in BASELINES:
            raise InputError(
                f"measure_baselines: {baseline.name!r} is not in BASELINES, so the process that measures it "
                "cannot find it; register it there.",
                code="baseline-not-registered",
                baseline=baseline.name,
            )
    if graph is None:
        graph = knn_graph(
            embeddings, min(DEFAULT_K, embeddings.n_images - 1), runtime=Runtime(progress=progress)
        )
    rows = []
    with tempfile.TemporaryDirectory(prefix="cdp-baselines-") as home:
        folder = Path(home)
        np.save(folder / "embeddings.npy", embeddings.source)
        np.save(folder / "neighbors.npy", graph.neighbors)
        np.save(folder / "similarity.npy", graph.similarity)
        for done, baseline in enumerate(baselines):
            progress("baselines", done, len(baselines))
            job = {"name": baseline.name, "settings": baseline.settings}
            (folder / "baseline.json").write_text(json.dumps(job))
            run = partial(run_in_fresh_process, prepare_baseline, folder, baseline.name)
            rows.append(figures_of(baseline.name, baseline.settings, run, truth))
        progress("baselines", len(baselines), len(baselines))
    return rows


def figures_of(
    name: str, settings: dict[str, Any], run: Callable[[], MeasuredLabels], identities: AnyArray
) -> BaselineFigures:
    """Return the row of one run; a method that fails gets a row that says so, and the others go on."""
    try:
        measured = run()
    except CdpError as error:
        return BaselineFigures(name, settings, failure=str(error))
    figures = measure_labels(measured.labels, identities)
    pairwise = figures.discards_kept.pairwise
    return BaselineFigures(
        name=name,
        settings=settings,
        precision=pairwise.precision,
        recall=pairwise.recall,
        f=pairwise.f,
        bcubed_f=figures.discards_kept.bcubed.f,
        nmi=figures.discards_kept.nmi,
        coverage=figures.coverage,
        identities=figures.identities_found,
        seconds=measured.seconds,
        peak_bytes=measured.peak_bytes,
    )


def prepare_baseline(folder: Path) -> Callable[[], Labels]:
    """Prepare the other process: read, and label a few images so that everything is compiled."""
    job = json.loads((folder / "baseline.json").read_text())
    baseline = BASELINES[job["name"]].make(**job["settings"])
    embeddings = Embeddings(np.load(folder / "embeddings.npy"))
    graph = KnnGraph(np.load(folder / "neighbors.npy"), np.load(folder / "similarity.npy"))
    random = np.random.default_rng(0).standard_normal((_WARM_UP_IMAGES, embeddings.dimensions))
    made_up = Embeddings(random.astype(embeddings.source.dtype))
    baseline.label(made_up, knn_graph(made_up, min(graph.k, _WARM_UP_IMAGES - 1)))
    if "memory_budget" in job["settings"]:
        # The way for large sets is another program; a few images alone would not compile it.
        baseline.having(memory_budget=1).label(made_up, knn_graph(made_up, 20))
    return lambda: baseline.label(embeddings, graph)


def measure_cdp(name: str, labeling: Labeling, views: Views, identities: LongArray) -> BaselineFigures:
    """Return the row of CDP: the same pairs, scored and grouped again with graphs and mediator given.

    Trees learn while they label: their seconds are those of the labeling itself, learning and tuning included
    and graphs left out, and their memory is not known.

    Args:
        identities: the truth that counts; negative = unknown.
    """
    settings = replace(labeling.settings, threshold=labeling.threshold)
    if settings.mediator in ("auto", "trees"):
        seconds = sum(took for step, took in labeling.seconds.items() if not step.endswith("graphs"))
        measured = MeasuredLabels(labeling.labels.labels, seconds, None)
        shown = {"threshold": labeling.threshold, "mediator": "trees"}
        return figures_of(name, shown, lambda: measured, identities)
    with tempfile.TemporaryDirectory(prefix="cdp-process-") as home:
        folder = Path(home)
        save(replace_identities(views, None), folder / "views")
        for number, graph in enumerate(labeling.graphs.values()):
            save(graph, folder / f"graph{number}")
        if labeling.mediator is not None:
            save(labeling.mediator, folder / "mediator")
        write_json(folder / "settings.json", plain(settings))
        shown = {
            "threshold": labeling.threshold,
            "grouping": settings.grouping,
            "inputs": list(settings.inputs),
        }
        return figures_of(name, shown, partial(run_in_fresh_process, prepare_cdp, folder, name), identities)


def prepare_cdp(folder: Path) -> Callable[[], Labels]:
    """In the other process: everything in memory, then a few made-up images labeled, to compile."""
    settings = ConsensusSettings(**json.loads((folder / "settings.json").read_text(encoding="utf-8")))
    mediator = load(folder / "mediator", Mediator) if (folder / "mediator").is_dir() else None
    on_disk = read_views(folder / "views")
    views = Views(
        np.array(on_disk.base.source),
        {name: np.array(member.source) for name, member in on_disk.committee.items()},
    )
    kept = [load(folder / f"graph{number}", KnnGraph) for number in range(len(views))]
    graphs = [KnnGraph(np.array(graph.neighbors), np.array(graph.similarity)) for graph in kept]
    fitted = Fitted(settings, mediator)
    few = synthetic_views(20 + settings.k, 8, members=len(views.committee)).unlabeled
    label(
        Views(few.base, dict(zip(views.committee, few.committee.values(), strict=True))),
        settings,
        fitted=fitted,
    )
    return lambda: label(views, settings, fitted=fitted, graphs=graphs).labels
