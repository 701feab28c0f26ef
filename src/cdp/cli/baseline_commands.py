"""`cdp baselines`: other clustering methods, tuned, and CDP on the same embeddings; figures written and printed."""

from __future__ import annotations

import json
import platform
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from cdp.cli.app import QuietOption, SeedOption, app, plain_errors, print_table
from cdp.errors import InputError, OutputExistsError

if TYPE_CHECKING:
    from cdp.lab.baselines.baseline import Baseline
    from cdp.lab.baselines.measure import BaselineFigures
    from cdp.progress import Progress
    from cdp.types import Embeddings, KnnGraph, Labels, Views
    from cdp.types.arrays import LongArray

    Search = Callable[..., list[KnnGraph]]
    Part = tuple[Embeddings, KnnGraph, LongArray]
    Row = tuple[BaselineFigures, float]
    """A method's figures, and how many seconds its tuning (of CDP: its learning) took before."""

FORMAT = 1


@app.command()
@plain_errors()
def baselines(
    unlabeled: Annotated[
        Path, Argument(help="Views of the images to label, with identities to measure against.")
    ],
    tune_on: Annotated[
        Path, Option(help="Views with identities on which every method's settings are tuned.")
    ],
    out: Annotated[Path, Option("--out", help="JSON file to write; must not exist unless --force.")],
    methods: Annotated[
        str | None,
        Option(help="Which methods, by commas [default: all but leiden and infomap, which are extras]."),
    ] = None,
    learn_from: Annotated[
        Path | None, Option(help="Views of a labeled part: adds rows for CDP, whose mediator learns here.")
    ] = None,
    model: Annotated[
        str, Option(help="Whose embeddings the methods get: base, a member's name, or ensemble.")
    ] = "base",
    k: Annotated[int, Option(help="Neighbors per image in every graph.")] = 20,
    method: Annotated[
        str, Option(help="k-NN search: auto (exact up to 50,000 images), exact or nndescent.")
    ] = "auto",
    memory_budget: Annotated[
        str, Option(help="Memory for all pairs in hierarchical clustering, and for CDP's blocks.")
    ] = "1GB",
    seed: SeedOption = 0,
    threads: Annotated[int, Option(help="Threads, where a method uses several; 0 = all cores.")] = 0,
    force: Annotated[bool, Option("--force", help="Replace the output file if it is there.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Label by other clustering methods, tuned, beside CDP: quality, seconds and memory on the same embeddings."""
    from cdp import __version__
    from cdp.files import replacing, write_json
    from cdp.graph.search import knn_graphs
    from cdp.parallel import count_threads
    from cdp.progress import progress_bars

    prepared = _prepare_methods(methods, memory_budget, seed)
    options = {"k": k, "memory_budget": memory_budget, "seed": seed, "threads": threads}
    count_threads(threads)
    if out.exists() and not force:
        raise OutputExistsError(f"{out} is there already; choose another name or replace it with --force.")
    # Opened first: that the output cannot be written must not be found out after an hour of work.
    with replacing(out) as file:
        views = {path: _read(path) for path in (unlabeled, tune_on, learn_from) if path is not None}
        if learn_from is not None:
            _check_same_models(views, learn_from, unlabeled)
        embeddings = {path: _choose_model(views[path], model) for path in (tune_on, unlabeled)}
        _check_same_models(views, tune_on, unlabeled, None if model == "ensemble" else [model])
        with progress_bars(not quiet) as progress:
            search = partial(knn_graphs, k=k, method=method, seed=seed, threads=threads, progress=progress)
            started = time.perf_counter()
            tuning, measured = (
                _search(views[path], embeddings[path], search) for path in (tune_on, unlabeled)
            )
            graph_seconds = time.perf_counter() - started
            rows = _measure_methods(prepared, tuning, measured, progress)
            if learn_from is not None:
                rows += _measure_cdp(views[learn_from], views[unlabeled], options, search, progress)
        result = {
            "format": FORMAT,
            "cdp": __version__,
            "python": platform.python_version(),
            "cores": count_threads(),
            "unlabeled": str(unlabeled),
            "tune_on": str(tune_on),
            "learn_from": None if learn_from is None else str(learn_from),
            "model": model,
            "method": method,
            **options,
            "images": views[unlabeled].n_images,
            "images_tuned_on": views[tune_on].n_images,
            "graph_seconds": graph_seconds,
            "rows": [{**figures.as_dict(), "tuning_seconds": seconds} for figures, seconds in rows],
        }
        write_json(file, result)
    if not quiet:
        _print_rows(rows)
        cdp_row = (
            "" if learn_from is None else "; CDP sees all models, and its last column is learning, not tuning"
        )
        typer.echo(
            f"The methods see {model!r} alone{cdp_row}. Seconds and memory are of the labeling, beyond embeddings "
            f"and k-NN graphs.\nWritten to {out}."
        )


def _prepare_methods(names: str | None, memory_budget: str, seed: int) -> list[Baseline]:
    import numpy as np

    from cdp.lab.baselines.methods import BASELINES, make_baselines
    from cdp.memory import parse_bytes
    from cdp.types import Embeddings

    parse_bytes(memory_budget)
    common = {"memory_budget": memory_budget, "seed": seed}
    prepared = []
    for method in make_baselines(names and [name.strip() for name in names.split(",") if name.strip()]):
        if BASELINES[method.name].extra is not None:
            # That a library is missing must not be found out after an hour of work.
            method.label(Embeddings(np.eye(3)))
        known = {name: value for name, value in common.items() if name in method.settings}
        prepared.append(method.having(**known))
    return prepared


def _read(path: Path) -> Views:
    from cdp.data.views import read_views

    views = read_views(path)
    if views.identities is None or not (views.identities >= 0).any():
        raise InputError(f"{path}: these views carry no identities, which tuning and measuring need.")
    return views


def _choose_model(views: Views, model: str) -> Embeddings:
    if model == "ensemble":
        from cdp.nets.ensemble import ensemble

        return ensemble(views, views.names).base
    if model not in views.names:
        raise InputError(f"--model {model}: these views have {', '.join(views.names)}; or say ensemble.")
    return dict(zip(views.names, views, strict=True))[model]


def _search(views: Views, embeddings: Embeddings, search: Search) -> Part:
    assert views.identities is not None, "looked for when they were read"
    return embeddings, search([embeddings])[0], views.identities


def _check_same_models(
    views: Mapping[Path, Views], one: Path, other: Path, names: Sequence[str] | None = None
) -> None:
    """Refuse parts that were not embedded by the same models."""
    models = [
        ", ".join(
            f"{name} ({model.dimensions} dimensions)"
            for name, model in zip(views[path].names, views[path], strict=True)
            if names is None or name in names
        )
        for path in (one, other)
    ]
    if models[0] != models[1]:
        raise InputError(
            f"{one} has {models[0]}, {other} has {models[1]}; both must be embedded by the same networks."
        )


def _measure_methods(
    methods: Sequence[Baseline], tuning: Part, measured: Part, progress: Progress
) -> list[Row]:
    """The rows of the other methods, tuned on one part and measured on the other."""
    from cdp.lab.baselines.measure import measure_baselines
    from cdp.lab.baselines.methods import tune

    tuned, seconds = [], []
    for done, method in enumerate(methods):
        progress("tuning", done, len(methods))
        started = time.perf_counter()
        tuned.append(tune(method, *tuning))
        seconds.append(time.perf_counter() - started)
    progress("tuning", len(methods), len(methods))
    return list(zip(measure_baselines(tuned, *measured, progress=progress), seconds, strict=True))


def _measure_cdp(
    labeled: Views, unlabeled: Views, options: dict[str, Any], search: Search, progress: Progress
) -> list[Row]:
    """The rows of CDP: the paper's inputs, then with common neighbors, both at the paper's threshold."""
    from cdp.files import write_json
    from cdp.lab.baselines.fresh_process import run_apart
    from cdp.lab.baselines.measure import figures_of
    from cdp.labeling.estimator import CDP
    from cdp.store import save
    from cdp.types import ALL_INPUTS, PAPER_INPUTS

    assert unlabeled.identities is not None
    labeled_graphs, graphs = (
        search(list(views), names=[f"{part} {name}" for name in views.names])
        for part, views in (("labeled", labeled), ("unlabeled", unlabeled))
    )
    rows = []
    with tempfile.TemporaryDirectory(prefix="cdp-baselines-") as temporary:
        folder = Path(temporary)
        save(unlabeled, folder / "views")
        for number, graph in enumerate(graphs):
            save(graph, folder / f"graph{number}")
        write_json(folder / "cdp.json", options)
        for name, inputs in (
            ("cdp, the paper's inputs", PAPER_INPUTS),
            ("cdp, with common neighbors", ALL_INPUTS),
        ):
            started = time.perf_counter()
            model = CDP("paper", inputs=inputs, **options)
            model.fit(labeled, graphs=labeled_graphs, progress=progress)
            seconds = time.perf_counter() - started
            save(model.mediator_, folder / "mediator", force=True)
            shown = {name: getattr(model.settings, name) for name in ("threshold", "max_size", "inputs")}
            run = partial(run_apart, prepare_cdp, folder, name)
            rows.append((figures_of(name, shown, run, unlabeled.identities), seconds))
    return rows


def prepare_cdp(folder: Path) -> Callable[[], Labels]:
    """In the other process: read everything into memory, then label a few made-up images."""
    import numpy as np

    from cdp.consensus.mediator import Mediator
    from cdp.data.views import read_views
    from cdp.labeling.estimator import CDP
    from cdp.store import load
    from cdp.types import KnnGraph, Views

    options = json.loads((folder / "cdp.json").read_text(encoding="utf-8"))
    model = CDP("paper", mediator=load(folder / "mediator", Mediator), **options)
    on_disk = read_views(folder / "views")
    arrays = [np.array(view.source) for view in on_disk]
    views = Views(arrays[0], dict(zip(on_disk.committee, arrays[1:], strict=True)))
    graphs = [load(folder / f"graph{number}", KnnGraph) for number in range(len(views))]
    graphs = [KnnGraph(np.array(graph.neighbors), np.array(graph.similarity)) for graph in graphs]
    generator = np.random.default_rng(0)
    few = max(64, options["k"] + 2)
    made_up = [generator.standard_normal((few, view.dimensions)).astype(view.source.dtype) for view in views]
    model.predict(Views(made_up[0], dict(zip(views.committee, made_up[1:], strict=True))))
    return lambda: model.predict(views, graphs=graphs)


def _print_rows(rows: Sequence[Row]) -> None:
    from cdp.cli.terminal import decimals, percent
    from cdp.lab.baselines.methods import BASELINES

    lines: list[Sequence[str]] = []
    for figures, tuning_seconds in rows:
        grid = BASELINES[figures.name].grid if figures.name in BASELINES else ()
        tuned = ", ".join(f"{name} {figures.settings[name]}" for name in grid)
        if figures.failure is not None:
            lines.append((figures.name, tuned, "failed"))
            continue
        memory = "unknown" if figures.peak_bytes is None else f"{figures.peak_bytes / 1e6:.0f}"
        scores = (figures.precision, figures.recall, figures.f, figures.bcubed_f, figures.nmi)
        costs = (f"{figures.seconds:.2f}", memory, f"{tuning_seconds:.1f}")
        lines.append((figures.name, tuned, *map(decimals, scores), percent(figures.coverage), *costs))
    columns = (">precision", ">recall", ">F", ">BCubed", ">NMI", ">labeled", ">s", ">MB", ">tuning s")
    print_table("Pseudo-labels: pairwise figures, discards as groups of one", ("", "tuned", *columns), lines)
    for figures, _ in rows:
        if figures.failure is not None:
            typer.echo(figures.failure)
