"""The bar where nobody is known, against the best bar that the truth allows: pairwise F, agreement, and how far off it is.

LFW by each of three networks and by all; a made-up crowd; and the embeddings of finished runs (Omniglot, drawn faces), found as
`benchmarks.presets` says. No identity is given to the labeling; the truth measures it, and finds the best of the same bars.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import data_folder
from benchmarks.presets import made_up_crowd
from cdp import Views, measure_labels
from cdp.consensus.grouping import group
from cdp.consensus.settings import ConsensusSettings
from cdp.engine import Engine
from cdp.labeling.unsupervised import BARS, agree_on_bar, compare_pairs
from cdp.labeling.workspace import Workspace
from cdp.run.labeling import LabelSettings, Round, read_part
from cdp.store import read_run_record
from cdp.types.run_record import Score

FACES = ("mobilefacenet", "sface", "openface")


def measure(*, quick: bool) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for name, views, k in data_sets(quick):
        figures[name] = found = measure_bar(views, k)
        print(
            f"{name:28s} chosen {found['chosen']:.2f}: F {found['f']:.3f}, agreement {found['agreement']:.3f}; best "
            f"{found['best']:.2f}: F {found['best_f']:.3f}; off by {found['off']:.3f}",
            flush=True,
        )
    return figures


def measure_bar(views: Views, k: int) -> dict[str, Any]:
    """The chosen bar and the best one."""
    assert views.identities is not None
    settings = ConsensusSettings.of(mediator="similarity", method="exact", k=k)
    work = Workspace(Engine(threads=1))
    hidden = Views(views.base, views.committee)
    compared = compare_pairs(hidden, settings, work=work)
    found = agree_on_bar(hidden, compared, settings, work=work)

    def score(bar: float) -> Score:
        tried = replace(settings, similar_above=bar)
        return measure_labels(group(compared.at(tried), tried), views.identities).discards_kept.pairwise

    curve = [score(bar) for bar in BARS]
    chosen = score(found.chosen)
    best = int(np.argmax([one.f or 0.0 for one in curve]))
    best_f = curve[best].f or 0.0
    return {
        "images": views.n_images,
        "identities": len(np.unique(views.identities)),
        "chosen": found.chosen,
        "halves": found.halves,
        "agreement": found.agreement,
        "f": chosen.f or 0.0,
        "precision": chosen.precision,
        "recall": chosen.recall,
        "best": BARS[best],
        "best_f": best_f,
        "off": best_f - (chosen.f or 0.0),
        "curve": [
            {"bar": bar, "f": one.f, "agreement": point.agreement}
            for bar, one, point in zip(BARS, curve, found.curve, strict=True)
        ],
    }


def data_sets(quick: bool) -> Iterator[tuple[str, Views, int]]:
    """Name, views with the truth, and k."""
    folder = data_folder("lfw")
    if folder is not None:
        models = {name: np.load(folder / f"{name}.npy") for name in FACES}
        identities = np.load(folder / "identities.npy")
        for name in FACES[:1] if quick else FACES:
            yield f"lfw, {name}", Views(models[name], identities=identities), 20
        if not quick:
            base, *others = FACES
            yield "lfw, all three", Views(models[base], {one: models[one] for one in others}, identities), 20
    for n_models in (1, 5):
        yield f"crowd, {n_models} models", made_up_crowd(60 if quick else 400, 1, n_models)[1], 20
    folders = os.environ.get("CDP_RUNS", f"work/omniglot{os.pathsep}demo").split(os.pathsep)
    for run in map(Path, folders):
        if (run / "run.json").is_file():
            views, k = read_unlabeled(run)
            yield f"{run.name}, base alone", Views(views.base, identities=views.identities), k
            yield f"{run.name}, all models", views, k


def read_unlabeled(run: Path) -> tuple[Views, int]:
    """The unlabeled images of a finished run, validation images among them, as its networks see them; and k."""
    record = read_run_record(run / "run.json")
    members = record.recipe["committee"]["networks"]
    models = tuple(name.replace(":", "-") for name in (record.recipe["base"]["network"], *members))
    seen = LabelSettings(ConsensusSettings.of(), models, Round(), folds=0, from_views=False, seed=0)
    return read_part(seen, run, "unlabeled"), record.recipe["consensus"]["k"]
