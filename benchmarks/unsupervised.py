"""The bar where nobody is known, against the best bar that the truth allows: pairwise F, agreement, and how far off it is.

LFW by each of three networks and by all; a made-up crowd; small parts of both; the embeddings of finished runs (Omniglot, drawn faces),
found as `benchmarks.presets` says; and views with identities in the folders that $CDP_VIEWS names. No identity is given to the labeling; the truth measures it, and finds the best of the same bars.
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
from cdp.data.views import read_views
from cdp.engine import Engine
from cdp.labeling.halves import compare_pairs
from cdp.labeling.unsupervised import choose_bar
from cdp.labeling.workspace import Workspace
from cdp.run.labeling import LabelSettings, Round, read_part
from cdp.store import read_run_record
from cdp.types.run_record import Score

FACES = ("mobilefacenet", "sface", "openface")
BARS = tuple(round(1 + 0.3 * step, 1) for step in range(31))


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
    found = choose_bar(hidden, compared, settings, work=work)

    def score(bar: float) -> Score:
        tried = replace(settings, similar_above=bar)
        return measure_labels(group(compared.at(tried), tried), views.identities).discards_kept.pairwise

    curve = {bar: score(bar).f or 0.0 for bar in BARS}
    best = max(curve, key=curve.__getitem__)
    for step in (-0.2, -0.1, 0.1, 0.2):
        bar = round(best + step, 1)
        curve[bar] = score(bar).f or 0.0
    chosen = score(found.chosen)
    curve[found.chosen] = chosen.f or 0.0
    best = max(curve, key=curve.__getitem__)
    best_f = curve[best]
    return {
        "images": views.n_images,
        "identities": len(np.unique(views.identities)),
        "chosen": found.chosen,
        "agreement": found.agreement,
        "estimated_precision": found.precision,
        "estimated_recall": found.recall,
        "f": chosen.f or 0.0,
        "precision": chosen.precision,
        "recall": chosen.recall,
        "best": best,
        "best_f": best_f,
        "off": best_f - (chosen.f or 0.0),
        "curve": {f"{bar:g}": round(curve[bar], 4) for bar in sorted(curve)},
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
    if not quick:
        yield from small_sets()
    folders = os.environ.get("CDP_RUNS", f"work/omniglot{os.pathsep}demo").split(os.pathsep)
    for run in map(Path, folders):
        if (run / "run.json").is_file():
            views, k = read_unlabeled(run)
            names = [read_run_record(run / "run.json").recipe["base"]["network"], *views.committee]
            for model, one in zip(names, views, strict=True):
                yield f"{run.name}, {model}", Views(one, identities=views.identities), k
            yield f"{run.name}, all models", views, k
    for folder in map(Path, filter(None, os.environ.get("CDP_VIEWS", "").split(os.pathsep))):
        views = read_views(folder)
        for model, one in zip(("base", *views.committee), views, strict=True):
            yield f"{folder.name}, {model}", Views(one, identities=views.identities), 20
        yield f"{folder.name}, all models", views, 20


def small_sets() -> Iterator[tuple[str, Views, int]]:
    """Some people of the made-up crowd, and of LFW where it is at hand, one model: as few images as an album has."""
    crowd = made_up_crowd(400, 1, 1)[1]
    sets = {"crowd": (crowd.base.vectors, crowd.identities)}
    folder = data_folder("lfw")
    if folder is not None:
        sets["lfw, mobilefacenet"] = (
            np.load(folder / "mobilefacenet.npy"),
            np.load(folder / "identities.npy"),
        )
    for name, (vectors, identities) in sets.items():
        assert identities is not None
        people, sizes = np.unique(identities, return_counts=True)
        for n_people, most in ((5, 6), (12, 10), (40, 10), (100, 15)):
            drawn = np.random.default_rng(n_people).choice(people[sizes > 1], n_people, replace=False)
            rows = np.concatenate([np.flatnonzero(identities == one)[:most] for one in drawn])
            views = Views(vectors[rows], identities=identities[rows])
            yield f"{name}, {len(rows)} images of {n_people}", views, min(20, len(rows) - 1)


def read_unlabeled(run: Path) -> tuple[Views, int]:
    """The unlabeled images of a finished run, validation images among them, as its networks see them; and k."""
    record = read_run_record(run / "run.json")
    members = record.recipe["committee"]["networks"]
    models = tuple(name.replace(":", "-") for name in (record.recipe["base"]["network"], *members))
    seen = LabelSettings(ConsensusSettings.of(), models, Round(), folds=0, from_views=False, seed=0)
    return read_part(seen, run, "unlabeled"), record.recipe["consensus"]["k"]
