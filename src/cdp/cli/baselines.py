"""`cdp baselines`: tune the other methods, run them and CDP on the same embeddings, write and print the figures."""

from __future__ import annotations

import json
import os
import platform
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from cdp import __version__
from cdp.cli.label import LabelSettings, check_same_models
from cdp.cli.tables import decimals, percent
from cdp.consensus.estimator import CDP
from cdp.consensus.mediator import Mediator
from cdp.data.views import read_views
from cdp.errors import InputError, OutputExistsError
from cdp.files import write_json
from cdp.graph.search import check_k, knn_graph, knn_graphs
from cdp.lab.baselines.baseline import Baseline
from cdp.lab.baselines.fresh_process import run_in_fresh_process
from cdp.lab.baselines.measure import BaselineFigures, figures_of, measure_baselines
from cdp.lab.baselines.methods import BASELINES, make_baselines, tune
from cdp.memory import parse_bytes
from cdp.parallel import count_threads
from cdp.progress import Progress, progress_bars
from cdp.store import load, save
from cdp.types import ALL_INPUTS, PAPER_INPUTS, Embeddings, KnnGraph, Labels, Views
from cdp.types.arrays import LongArray

FORMAT = 1
WAYS = {"cdp, the paper's inputs": PAPER_INPUTS, "cdp, with common neighbors": ALL_INPUTS}


@dataclass(frozen=True)
class BaselineSettings:
    """Everything that can be said to `cdp baselines`."""

    unlabeled: Path
    tune_on: Path
    out: Path
    methods: tuple[str, ...] | None = None
    learn_from: Path | None = None
    model: str = "base"
    k: int = 20
    method: str = "auto"
    memory_budget: str = "1GB"
    seed: int = 0
    threads: int = 0
    force: bool = False
    quiet: bool = False


@dataclass(frozen=True)
class Part:
    """Embeddings of one model, their truth and their graph."""

    embeddings: Embeddings
    identities: LongArray
    graph: KnnGraph


def compare_baselines(settings: BaselineSettings) -> list[BaselineFigures]:
    """Run `cdp baselines`; the file appears only when everything is in it."""
    methods = _make_methods(settings)
    _check_out(settings)
    unlabeled, tune_on = _read(settings.unlabeled), _read(settings.tune_on)
    labeled = None if settings.learn_from is None else _read(settings.learn_from)
    if labeled is not None:
        check_same_models(
            labeled, unlabeled, LabelSettings(settings.unlabeled, settings.out, settings.learn_from)
        )
    with progress_bars(not settings.quiet) as progress:
        started = time.perf_counter()
        parts = _look(tune_on, settings, progress), _look(unlabeled, settings, progress)
        if parts[0].embeddings.dimensions != parts[1].embeddings.dimensions:
            raise InputError(
                f"{settings.model!r} has {parts[0].embeddings.dimensions} dimensions in {settings.tune_on} and "
                f"{parts[1].embeddings.dimensions} in {settings.unlabeled}; were they embedded by the same network?"
            )
        graph_seconds = time.perf_counter() - started
        rows, tuning = _measure_methods(methods, *parts, progress)
        if labeled is not None:
            more, learning = _measure_cdp(labeled, unlabeled, settings, progress)
            rows, tuning = rows + more, tuning + learning
    about = {
        "format": FORMAT,
        "cdp": __version__,
        "python": platform.python_version(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
        **{
            name: str(value) if isinstance(value, Path) else value
            for name, value in asdict(settings).items()
            if name not in ("out", "force", "quiet", "methods")
        },
        "images": unlabeled.n_images,
        "images_tuned_on": tune_on.n_images,
        "graph_seconds": graph_seconds,
        "rows": [
            {**row.as_dict(), "tuning_seconds": seconds} for row, seconds in zip(rows, tuning, strict=True)
        ],
    }
    write_json(settings.out, about)
    if not settings.quiet:
        _print(rows, tuning, labeled is not None, settings)
    return rows


def _make_methods(settings: BaselineSettings) -> list[Baseline]:
    methods = make_baselines(settings.methods)
    common = {"memory_budget": settings.memory_budget, "seed": settings.seed}
    parse_bytes(settings.memory_budget)
    count_threads(settings.threads)
    prepared = []
    for method in methods:
        if BASELINES[method.name].extra is not None:
            # That a library is missing must not be found out after an hour of work.
            method.label(Embeddings(np.eye(3)))
        known = method.settings
        prepared.append(method.having(**{name: value for name, value in common.items() if name in known}))
    return prepared


def _check_out(settings: BaselineSettings) -> None:
    if settings.out.is_dir():
        raise InputError(f"{settings.out} is a folder, not a file; choose a name such as results.json.")
    if settings.out.exists() and not settings.force:
        raise OutputExistsError(
            f"{settings.out} is there already; choose another name or replace it with --force."
        )
    if not settings.out.absolute().parent.is_dir():
        raise InputError(f"{settings.out}: its folder is not there; make it first.")


def _read(place: Path) -> Views:
    views = read_views(place)
    if views.identities is None or not np.any(views.identities >= 0):
        raise InputError(f"{place}: these views carry no identities, which tuning and measuring need.")
    return views


def _look(views: Views, settings: BaselineSettings, progress: Progress) -> Part:
    """The chosen model's embeddings and graph."""
    check_k(settings.k, views.n_images)
    if settings.model == "ensemble":
        from cdp.nets.ensemble import ensemble

        embeddings = ensemble(views, views.names).base
    elif settings.model in views.names:
        embeddings = dict(zip(views.names, views, strict=True))[settings.model]
    else:
        raise InputError(
            f"--model {settings.model}: these views have {', '.join(views.names)}; or say ensemble."
        )
    graph = knn_graph(
        embeddings,
        settings.k,
        settings.method,
        seed=settings.seed,
        threads=settings.threads,
        progress=progress,
    )
    assert views.identities is not None
    return Part(embeddings, views.identities, graph)


def _measure_methods(
    methods: list[Baseline], tune_on: Part, unlabeled: Part, progress: Progress
) -> tuple[list[BaselineFigures], list[float]]:
    tuned, seconds = [], []
    for done, method in enumerate(methods):
        progress("tuning", done, len(methods))
        started = time.perf_counter()
        tuned.append(tune(method, tune_on.embeddings, tune_on.graph, tune_on.identities))
        seconds.append(time.perf_counter() - started)
    progress("tuning", len(methods), len(methods))
    rows = measure_baselines(
        tuned, unlabeled.embeddings, unlabeled.graph, unlabeled.identities, progress=progress
    )
    return rows, seconds


def _measure_cdp(
    labeled: Views, unlabeled: Views, settings: BaselineSettings, progress: Progress
) -> tuple[list[BaselineFigures], list[float]]:
    """The rows of CDP: the paper's inputs, then with common neighbors, both at the paper's threshold."""
    labeled_graphs, graphs = (
        knn_graphs(
            list(views),
            settings.k,
            settings.method,
            names=[f"{part} {name}" for name in views.names],
            seed=settings.seed,
            threads=settings.threads,
            progress=progress,
        )
        for part, views in (("labeled", labeled), ("unlabeled", unlabeled))
    )
    rows, seconds = [], []
    with tempfile.TemporaryDirectory(prefix="cdp-baselines-") as home:
        folder = Path(home)
        save(unlabeled, folder / "views")
        for number, graph in enumerate(graphs):
            save(graph, folder / f"graph{number}")
        for name, inputs in WAYS.items():
            said: dict[str, Any] = {
                "k": settings.k,
                "memory_budget": settings.memory_budget,
                "seed": settings.seed,
                "threads": settings.threads,
            }
            started = time.perf_counter()
            model = CDP(inputs=inputs, **said).fit(labeled, graphs=labeled_graphs, progress=progress)
            seconds.append(time.perf_counter() - started)
            save(model.mediator_, folder / "mediator", force=True)
            write_json(folder / "cdp.json", said)
            shown = {"threshold": model.threshold, "max_size": model.max_size, "inputs": list(inputs)}
            assert unlabeled.identities is not None
            run = partial(run_in_fresh_process, prepare_cdp, folder, name)
            rows.append(figures_of(name, shown, run, unlabeled.identities))
    return rows, seconds


def prepare_cdp(folder: Path) -> Callable[[], Labels]:
    """In the other process: read everything into memory, then label a few made-up images."""
    said = json.loads((folder / "cdp.json").read_text(encoding="utf-8"))
    mediator = load(folder / "mediator", Mediator)
    on_disk = read_views(folder / "views")
    views = Views(
        np.array(on_disk.base.source),
        {name: np.array(member.source) for name, member in on_disk.committee.items()},
    )
    kept = [load(folder / f"graph{number}", KnnGraph) for number in range(len(views))]
    graphs = [KnnGraph(np.array(graph.neighbors), np.array(graph.similarity)) for graph in kept]
    model = CDP(mediator=mediator, **said)
    generator = np.random.default_rng(0)
    few = max(64, said["k"] + 2)
    made_up = [generator.standard_normal((few, view.dimensions)).astype(view.source.dtype) for view in views]
    model.predict(Views(made_up[0], dict(zip(views.committee, made_up[1:], strict=True))))
    return lambda: model.predict(views, graphs)


def _print(
    rows: list[BaselineFigures], tuning: list[float], with_cdp: bool, settings: BaselineSettings
) -> None:
    console = Console()
    table = Table(title="Pseudo-labels: pairwise figures, discards as groups of one", title_justify="left")
    for name in ("", "tuned", "precision", "recall", "F", "BCubed", "NMI", "labeled", "s", "MB", "tuning s"):
        table.add_column(name, justify="left" if name in ("", "tuned") else "right")
    for row, seconds in zip(rows, tuning, strict=True):
        registered = BASELINES.get(row.name)
        tuned = [] if registered is None else [f"{name} {row.settings[name]}" for name in registered.grid]
        if row.failure is not None:
            table.add_row(row.name, ", ".join(tuned), "failed")
            continue
        scores = [decimals(value) for value in (row.precision, row.recall, row.f, row.bcubed_f, row.nmi)]
        table.add_row(
            row.name,
            ", ".join(tuned),
            *scores,
            percent(row.coverage),
            f"{row.seconds:.2f}",
            "unknown" if row.peak_bytes is None else f"{row.peak_bytes / 1e6:.0f}",
            f"{seconds:.1f}",
        )
    console.print(table)
    for row in rows:
        if row.failure is not None:
            console.print(row.failure, soft_wrap=True, highlight=False)
    seen = f"The methods see {settings.model!r} alone"
    seen += "; CDP sees all models, and its last column is learning, not tuning." if with_cdp else "."
    console.print(
        f"{seen} Seconds and memory are of the labeling, beyond embeddings and k-NN graphs.\n"
        f"Written to {settings.out}.",
        soft_wrap=True,
        highlight=False,
    )
