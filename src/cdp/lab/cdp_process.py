"""CDP as a row beside other methods: the labeling repeated in a fresh process, to learn its seconds and its memory."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from cdp.consensus.mediator import Mediator
from cdp.consensus.settings import ConsensusSettings, plain
from cdp.data.views import read_views
from cdp.errors import InputError
from cdp.files import write_json
from cdp.lab.baselines.fresh_process import run_in_fresh_process
from cdp.lab.baselines.measure import BaselineFigures, figures_of
from cdp.lab.synthetic import synthetic_views
from cdp.labeling.pipeline import Fitted, Labeling, label, replace_identities
from cdp.store import load, save
from cdp.types import KnnGraph, Labels, Views
from cdp.types.arrays import LongArray


def measure_cdp(name: str, labeling: Labeling, views: Views, identities: LongArray) -> BaselineFigures:
    """The row of CDP: the same pairs, scored and grouped again with graphs and mediator given.

    Args:
        name: of the row.
        labeling: of these views.
        views: that were labeled.
        identities: the truth that counts; negative = unknown.
    """
    settings = replace(labeling.settings, tune=False)
    if settings.mediator == "trees":
        raise InputError(
            'mediator = "trees" learns while it labels, so its time is not compared; use mediator = "mlp".'
        )
    with tempfile.TemporaryDirectory(prefix="cdp-process-") as home:
        folder = Path(home)
        save(replace_identities(views, None), folder / "views")
        for number, graph in enumerate(labeling.graphs.values()):
            save(graph, folder / f"graph{number}")
        if labeling.mediator is not None:
            save(labeling.mediator, folder / "mediator")
        write_json(folder / "settings.json", plain(settings))
        shown = {
            settings.bar_key: settings.bar,
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
    fitted = Fitted(mediator)
    few = synthetic_views(20 + settings.k, 8, members=len(views.committee)).unlabeled
    label(
        Views(few.base, dict(zip(views.committee, few.committee.values(), strict=True))),
        settings,
        fitted=fitted,
    )
    return lambda: label(views, settings, fitted=fitted, graphs=graphs).labels
