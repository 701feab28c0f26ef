"""The threshold without labels, against the best one that the truth allows: pairwise F, agreement, and how far off it is.

LFW by each of three networks and by all; the embeddings of finished runs (Omniglot, drawn faces), found as `benchmarks.presets` says, likewise;
views with identities in the folders that $CDP_VIEWS names; made-up crowds; and a few images of all. No identity is given to the labeling: the
truth measures it, and finds the best threshold for the same pairs and the same grouping.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.data import data_folder
from benchmarks.presets import made_up_crowd
from cdp import Views, measure_labels
from cdp.data.views import read_views
from cdp.grouping.group import group, pairs_at
from cdp.labeling.unsupervised_threshold import estimate_threshold
from cdp.run.label_stage import LabelSettings, Round, read_part
from cdp.runtime.runtime import Runtime
from cdp.runtime.settings import RuntimeSettings
from cdp.scoring.scored_pairs import ScoredPairs
from cdp.scoring.settings import ConsensusSettings
from cdp.scoring.similarity import SimilarityScorer
from cdp.scoring.zscore import ZScoredPairs
from cdp.storage.artifacts import read_run_record
from cdp.types.arrays import LongArray
from cdp.types.run_record import Score

FACES = ("mobilefacenet", "sface", "openface")
THRESHOLDS = tuple(round(1 + 0.3 * step, 1) for step in range(31))


def measure(*, quick: bool) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for name, views, k in data_sets(quick):
        figures[name] = found = measure_threshold(views, k)
        agreement = "none" if found["agreement"] is None else f"{found['agreement']:.3f}"
        print(
            f"{name:40s} chosen {found['chosen']:.2f}: F {found['f']:.3f}, agreement {agreement}; best {found['best']:.2f}: "
            f"F {found['best_f']:.3f}; off by {found['off']:.3f}",
            flush=True,
        )
    return figures


def measure_threshold(views: Views, k: int) -> dict[str, Any]:
    """The chosen threshold and the best one."""
    assert views.identities is not None
    settings = ConsensusSettings.of(mediator="similarity", method="exact", k=k)
    work = Runtime(RuntimeSettings(threads=1))
    hidden = Views(views.base, views.committee)
    whole = score_without_labels(hidden, settings, work)
    scored = whole.scored
    assert isinstance(scored, ZScoredPairs)
    found = estimate_threshold(hidden, whole, settings, runtime=work)

    def score(threshold: float) -> Score:
        labels = group(pairs_at(scored, settings, threshold), settings, threshold)
        return measure_labels(labels, views.identities).discards_kept.pairwise

    curve = {threshold: score(threshold).f or 0.0 for threshold in THRESHOLDS}
    best = max(curve, key=curve.__getitem__)
    for step in (-0.2, -0.1, 0.1, 0.2):
        near = round(best + step, 1)
        curve[near] = score(near).f or 0.0
    chosen = score(found.chosen)
    curve[found.chosen] = chosen.f or 0.0
    best = max(curve, key=curve.__getitem__)
    best_f = curve[best]
    return {
        "images": views.n_images,
        "identities": len(np.unique(views.identities)),
        "chosen": found.chosen,
        "share_above": found.share_above,
        "agreement": found.agreement,
        "estimated_precision": found.precision,
        "estimated_recall": found.recall,
        "f": chosen.f or 0.0,
        "precision": chosen.precision,
        "recall": chosen.recall,
        "best": best,
        "best_f": best_f,
        "off": best_f - (chosen.f or 0.0),
        "curve": {f"{threshold:g}": round(curve[threshold], 4) for threshold in sorted(curve)},
    }


def score_without_labels(views: Views, settings: ConsensusSettings, runtime: Runtime) -> ScoredPairs:
    """Score the candidate pairs of all models by similarity."""
    return SimilarityScorer(settings).score(views, np.full(views.n_images, -1, np.int64), runtime)


def data_sets(quick: bool) -> Iterator[tuple[str, Views, int]]:
    """Name, views with the truth, and k."""
    sets = {} if quick else {name: (base, views, k) for name, base, views, k in real_sets()}
    for name, (base, views, k) in sets.items():
        for model, one in zip((base, *views.committee), views, strict=True):
            yield f"{name}, {model}", Views(one, identities=views.identities), k
        if views.committee:
            yield f"{name}, all models", views, k
    crowd = made_up_crowd(60 if quick else 400, 1, 5)[1]
    yield "crowd, 1 model", Views(crowd.base, identities=crowd.identities), 20
    yield "crowd, 5 models", crowd, 20
    if quick:
        return
    for seed in (2, 3):
        uneven = made_up_crowd(120, seed, 1, spread=1.5, largest=600)[1]
        yield f"crowd of 1 to 600 images each, seed {seed}", uneven, 20
    for name, (base, views, k) in {**sets, "crowd": ("one model", crowd, 20)}.items():
        yield from small_sets(f"{name}, {base}", views, k)


def real_sets() -> Iterator[tuple[str, str, Views, int]]:
    """What is at hand: LFW, finished runs, and given views; the base's name, all models together, and k."""
    folder = data_folder("lfw")
    if folder is not None:
        models = {name: np.load(folder / f"{name}.npy") for name in FACES}
        identities = np.load(folder / "identities.npy")
        base, few = models.pop(FACES[0]), at_most(identities, 50)
        yield "lfw", FACES[0], Views(base, models, identities), 20
        yield (
            "lfw, 50 images each",
            "openface",
            Views(models["openface"][few], identities=identities[few]),
            20,
        )
    folders = os.environ.get("CDP_RUNS", f"work/omniglot{os.pathsep}demo").split(os.pathsep)
    for run in map(Path, folders):
        if (run / "run" / "run.json").is_file():
            views, k = read_unlabeled(run)
            yield run.name, read_run_record(run / "run" / "run.json").recipe["base"]["network"], views, k
    for folder in map(Path, filter(None, os.environ.get("CDP_VIEWS", "").split(os.pathsep))):
        yield folder.name, "base", read_views(folder), 20


def at_most(identities: LongArray, most: int) -> LongArray:
    """The rows of the first images of everybody."""
    order = np.argsort(identities, kind="stable")
    _, starts, sizes = np.unique(identities[order], return_index=True, return_counts=True)
    rank = np.arange(len(order)) - np.repeat(starts, sizes)
    return np.sort(order[rank < most])


def small_sets(name: str, views: Views, k: int) -> Iterator[tuple[str, Views, int]]:
    """A few people with two images or more, seen by the base model; `benchmarks.albums` has more images."""
    assert views.identities is not None
    people, sizes = np.unique(views.identities, return_counts=True)
    for n_people, most in ((5, 6),):
        drawn = np.random.default_rng(n_people).choice(people[sizes > 1], n_people, replace=False)
        rows = np.concatenate([np.flatnonzero(views.identities == one)[:most] for one in drawn])
        small = Views(views.base.take(rows), identities=views.identities[rows])
        yield f"{name}, {len(rows)} images of {n_people}", small, min(k, len(rows) - 1)


def read_unlabeled(run: Path) -> tuple[Views, int]:
    """The unlabeled images of a finished run, validation images among them, as its networks see them; and k."""
    record = read_run_record(run / "run" / "run.json")
    members = record.recipe["committee"]["networks"]
    models = tuple(name.replace(":", "-") for name in (record.recipe["base"]["network"], *members))
    seen = LabelSettings(ConsensusSettings.of(), models, Round(), folds=0, from_views=False, seed=0)
    return read_part(seen, run / "run", "unlabeled"), record.recipe["consensus"]["k"]
