"""`cdp-lab baselines`: tuned clustering methods and CDP on the same embeddings."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from cdp.cli.app import QuietOption, SeedOption, by_commas, plain_errors, print_table
from cdp.cli.derived_options import Given, settings_from, with_settings
from cdp.cli.help_pages import Command
from cdp.errors import InputError
from cdp.knn.settings import SearchSettings
from cdp.runtime.settings import ON_RAY, RuntimeSettings
from cdp.scoring.settings import PRESETS, ConsensusSettings
from cdp_lab.cli.lab_app import app

if TYPE_CHECKING:
    from cdp.runtime.progress import Progress
    from cdp.runtime.runtime import Runtime
    from cdp.types import Embeddings, KnnGraph, Views
    from cdp.types.arrays import LongArray
    from cdp_lab.baselines.baseline import Baseline
    from cdp_lab.baselines.measure import BaselineFigures

    Part = tuple[Embeddings, KnnGraph, LongArray]
    Row = tuple[BaselineFigures, float]
    """A method's figures, and how many seconds its tuning (of CDP: its learning) took before."""

FORMAT = 1


@app.command(cls=Command)
@with_settings(SearchSettings, RuntimeSettings, without=["device", *ON_RAY])
@plain_errors()
def baselines(
    unlabeled: Annotated[
        Path, Argument(help="Views of the images to label, with identities to measure against.")
    ],
    validation: Annotated[
        Path, Option(help="Views with identities on which every method's settings are tuned.")
    ],
    out: Annotated[Path, Option("--out", help="JSON file to write; must not exist unless --force.")],
    given: Given,
    methods: Annotated[
        str | None,
        Option(help="Which methods, by commas [default: all but leiden and infomap, which are extras]."),
    ] = None,
    labeled: Annotated[
        Path | None, Option(help="Views of a labeled part: adds a row per preset of CDP, which learns here.")
    ] = None,
    model: Annotated[
        str, Option(help="Whose embeddings the methods get: base, a member's name, or ensemble.")
    ] = "base",
    seed: SeedOption = 0,
    force: Annotated[bool, Option("--force", help="Replace the output file if it is there.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Compare CDP with tuned clustering methods: quality, time and memory on the same embeddings."""
    from cdp import __version__
    from cdp.runtime.parallel import count_threads
    from cdp.runtime.progress import progress_bars
    from cdp.runtime.runtime import Runtime
    from cdp.storage.files import write_json, writing_file

    search, engine = settings_from(SearchSettings, given), settings_from(RuntimeSettings, given)
    prepared = _prepare_methods(methods, engine.memory_budget, seed)
    about = {
        "format": FORMAT,
        "cdp": __version__,
        "python": platform.python_version(),
        "cores": count_threads(),
        "unlabeled": str(unlabeled),
        "tune_on": str(validation),
        "learn_from": None if labeled is None else str(labeled),
        "model": model,
        **asdict(search),
        "memory_budget": engine.memory_budget,
        "seed": seed,
        "threads": engine.threads,
    }
    # Opened first: that the output cannot be written must not be found out after an hour of work.
    with writing_file(out, force=force, inputs=[unlabeled, validation, labeled]) as file:
        with progress_bars(not quiet) as progress:
            runtime = Runtime(engine, progress=progress)
            rows, counts = _measure(prepared, unlabeled, validation, labeled, model, search, seed, runtime)
        figures = [{**row.as_dict(), "tuning_seconds": seconds} for row, seconds in rows]
        write_json(file, {**about, **counts, "rows": figures})
    if not quiet:
        _print_rows(rows, model)
        typer.echo(f"Written to {out}.")


def _prepare_methods(names: str | None, memory_budget: str, seed: int) -> list[Baseline]:
    import numpy as np

    from cdp.types import Embeddings
    from cdp_lab.baselines.methods import BASELINES, make_baselines

    common = {"memory_budget": memory_budget, "seed": seed}
    prepared = []
    for method in make_baselines(by_commas(names)):
        if BASELINES[method.name].extra is not None:
            # That a library is missing must not be found out after an hour of work.
            method.label(Embeddings(np.eye(3)))
        known = {name: value for name, value in common.items() if name in method.settings}
        prepared.append(method.having(**known))
    return prepared


def _measure(
    methods: Sequence[Baseline],
    unlabeled: Path,
    validation: Path,
    labeled: Path | None,
    model: str,
    search: SearchSettings,
    seed: int,
    runtime: Runtime,
) -> tuple[list[Row], dict[str, Any]]:
    """Return all rows, and how many images they are about and how long their graphs took."""
    from cdp.knn.model_graphs import find_graphs
    from cdp.labeling.view_checks import check_same_models
    from cdp.types import Views

    if os.path.realpath(unlabeled) == os.path.realpath(validation):
        raise InputError(
            f"--validation {validation} is what is measured on; give other views to tune on.",
            code="baseline-tuned-on-itself",
            option="--validation",
            file=validation,
        )
    views = {path: _read(path) for path in (unlabeled, validation, labeled) if path is not None}
    if labeled is not None:
        check_same_models({path: views[path] for path in (labeled, unlabeled)})
    embeddings = {path: _choose_model(views[path], model) for path in (validation, unlabeled)}
    names = None if model == "ensemble" else [model]
    check_same_models({path: views[path] for path in (validation, unlabeled)}, names)
    search = _suit_k(search, min(one.n_images for one in embeddings.values()))
    started = time.perf_counter()
    parts: list[Part] = []
    for path, one in embeddings.items():
        identities = views[path].identities
        assert identities is not None, "looked for when they were read"
        parts.append((one, find_graphs(Views(one), search, seed=seed, runtime=runtime).base, identities))
    counts = {
        "k": search.k,
        "images": views[unlabeled].n_images,
        "images_tuned_on": views[validation].n_images,
        "graph_seconds": time.perf_counter() - started,
    }
    tuning, measured = parts
    rows = _measure_methods(methods, tuning, measured, runtime.progress)
    if labeled is not None:
        rows += _measure_cdp(views[labeled], views[unlabeled], search, seed, runtime)
    return rows, counts


def _suit_k(search: SearchSettings, n_images: int) -> SearchSettings:
    """Lower k, with a note, where a part has too few images for as many neighbors."""
    if not 1 < n_images <= search.k:
        return search
    note = f"Note: k = {n_images - 1} instead of {search.k}: one of the parts has {n_images:,} images only."
    typer.echo(note, err=True)
    return replace(search, k=n_images - 1)


def _read(path: Path) -> Views:
    from cdp.data.views import read_views

    views = read_views(path)
    if views.identities is None or not (views.identities >= 0).any():
        raise InputError(
            f"{path}: these views have no identities, which tuning and measuring need.",
            code="baseline-identities-missing",
            file=path,
        )
    return views


def _choose_model(views: Views, model: str) -> Embeddings:
    if model == "ensemble":
        from cdp.nets.ensemble import ensemble

        return ensemble(views, views.names).base
    if model not in views.names:
        raise InputError(
            f"--model {model}: these views have {', '.join(views.names)}; or say ensemble.",
            code="baseline-model-unknown",
            option="--model",
            value=model,
        )
    return dict(zip(views.names, views, strict=True))[model]


def _measure_methods(
    methods: Sequence[Baseline], tuning: Part, measured: Part, progress: Progress
) -> list[Row]:
    """Return the rows of the other methods, tuned on one part and measured on the other."""
    from cdp_lab.baselines.measure import measure_baselines
    from cdp_lab.baselines.methods import tune

    tuned, seconds = [], []
    for done, method in enumerate(methods):
        progress("tuning", done, len(methods))
        started = time.perf_counter()
        tuned.append(tune(method, *tuning))
        seconds.append(time.perf_counter() - started)
    progress("tuning", len(methods), len(methods))
    return list(zip(measure_baselines(tuned, *measured, progress=progress), seconds, strict=True))


def _measure_cdp(
    labeled: Views, unlabeled: Views, search: SearchSettings, seed: int, runtime: Runtime
) -> list[Row]:
    """Return the rows of CDP, one per preset; a preset that tunes holds out labeled identities for it."""
    from cdp.knn.model_graphs import find_graphs
    from cdp.labeling.pipeline import label
    from cdp.runtime.runtime import Runtime
    from cdp_lab.baselines.measure import measure_cdp

    assert unlabeled.identities is not None, "looked for when they were read"
    graphs = find_graphs(unlabeled, search, seed=seed, runtime=runtime)
    rows = []
    for preset in PRESETS:
        settings = ConsensusSettings.of(preset, **asdict(search))
        labeling = label(
            unlabeled,
            settings,
            labeled=[labeled],
            # Tuning puts the held-out images among the unlabeled ones, so it needs graphs of its own.
            graphs=None if settings.threshold is None else graphs.graphs,
            seed=seed,
            runtime=Runtime(runtime.settings, progress=runtime.progress),
        )
        learning = sum(labeling.seconds.get(step, 0.0) for step in ("mediator", "tuning"))
        labeling = replace(labeling, graphs=graphs.graphs)
        rows.append(
            (measure_cdp(f"cdp, preset {preset}", labeling, unlabeled, unlabeled.identities), learning)
        )
    return rows


def _print_rows(rows: Sequence[Row], model: str) -> None:
    from cdp.web.words import decimals, percent
    from cdp_lab.baselines.methods import BASELINES

    lines: list[Sequence[str]] = []
    for figures, tuning_seconds in rows:
        # CDP's first setting is its threshold.
        grid = BASELINES[figures.name].grid if figures.name in BASELINES else list(figures.settings)[:1]
        tuned = ", ".join(f"{name} {figures.settings[name]}" for name in grid)
        if figures.failure is not None:
            lines.append((figures.name, tuned, "failed"))
            continue
        memory = "unknown" if figures.peak_bytes is None else f"{figures.peak_bytes / 1e6:.0f}"
        scores = (figures.precision, figures.recall, figures.f, figures.bcubed_f, figures.nmi)
        costs = (f"{figures.seconds:.2f}", memory, f"{tuning_seconds:.1f}")
        lines.append(
            (figures.name, tuned, *(decimals(one, 3) for one in scores), percent(figures.coverage), *costs)
        )
    columns = (">precision", ">recall", ">F", ">BCubed", ">NMI", ">labeled", ">s", ">MB", ">tuning s")
    print_table("Pseudo-labels: pairwise figures, discards as groups of one", ("", "tuned", *columns), lines)
    for figures, _ in rows:
        if figures.failure is not None:
            typer.echo(figures.failure)
    has_cdp = any(figures.name not in BASELINES for figures, _ in rows)
    cdp_row = "; CDP sees all models, and its last column is learning, not tuning" if has_cdp else ""
    typer.echo(
        f"The methods see {model!r} alone{cdp_row}. Seconds and memory are of the labeling, beyond "
        "embeddings and k-NN graphs."
    )
