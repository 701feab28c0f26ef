"""`paper` beside `best`, and `best` with trees, on every data set at hand: pairwise F of the labels, several seeds or splits.

LFW as in `benchmarks.lfw`, over splits; a made-up crowd without structure beyond identities; and the embeddings of finished
runs, labeled again with each preset: the folders of `cdp run recipes/omniglot.toml` and `cdp demo`, found in `work/omniglot`
and `demo`, or as $CDP_RUNS says (folders separated by colons). What is not there is left out.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np

from benchmarks.data import data_folder
from benchmarks.lfw import split_faces
from cdp import Views, measure_labels
from cdp.consensus.settings import ConsensusSettings
from cdp.labeling.cache import Cache
from cdp.labeling.pipeline import label
from cdp.labeling.workspace import Workspace
from cdp.run.labeling import LabelSettings, Round, read_part, validation_rows
from cdp.types.run_record import read_run_record

WAYS = {
    "paper": ConsensusSettings.of("paper"),
    "best": ConsensusSettings.of(),
    "best with trees": ConsensusSettings.of(mediator="trees"),
}


def measure(*, quick: bool) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for name, scores in _data_sets(quick):
        figures[name] = {
            preset: {"mean": fmean(values), "sd": stdev(values) if len(values) > 1 else None, "f": values}
            for preset, values in scores.items()
        }
        line = "  ".join(
            f"{preset} {fmean(values):.3f} ± {stdev(values) if len(values) > 1 else 0:.3f}"
            for preset, values in scores.items()
        )
        print(f"{name:14s} {line}  ({len(next(iter(scores.values())))} runs)", flush=True)
    return figures


def _data_sets(quick: bool) -> Iterator[tuple[str, dict[str, list[float]]]]:
    if data_folder("lfw") is not None:
        parts = [split_faces(split) for split in range(2 if quick else 3)]
        yield "lfw", {way: [_f(way, *part) for part in parts] for way in WAYS}
    crowds = [made_up_crowd(150 if quick else 400, seed) for seed in range(1, 2 if quick else 3)]
    yield "crowd", {way: [_f(way, *crowd) for crowd in crowds] for way in WAYS}
    folders = os.environ.get("CDP_RUNS", f"work/omniglot{os.pathsep}demo").split(os.pathsep)
    for folder in map(Path, folders):
        if (folder / "run.json").is_file():
            yield folder.name, {way: _f_of_run(way, folder, 1 if quick else 2) for way in WAYS}


def _f(way: str, labeled: Views, unlabeled: Views) -> float:
    found = label(unlabeled, replace(WAYS[way], method="exact"), labeled=[labeled])
    assert unlabeled.identities is not None
    return measure_labels(found.labels, unlabeled.identities).discards_kept.pairwise.f or 0.0


def _f_of_run(way: str, folder: Path, n_seeds: int) -> list[float]:
    """The labels of a finished run's embeddings, by several seeds of the mediator; validation images do not count."""
    record = read_run_record(folder / "run.json")
    members = record.recipe["committee"]["networks"]
    models = tuple(name.replace(":", "-") for name in (record.recipe["base"]["network"], *members))
    settings = replace(WAYS[way], k=record.recipe["consensus"]["k"])
    seen = LabelSettings(settings, models, Round(), folds=0, from_views=False, seed=0)
    labeled, unlabeled = read_part(seen, folder, "labeled"), read_part(seen, folder, "unlabeled")
    rows = validation_rows(folder, unlabeled.n_images)
    assert unlabeled.identities is not None
    counted = unlabeled.identities if rows is None else np.where(rows, -1, unlabeled.identities)
    scores = []
    for seed in range(n_seeds):
        found = label(
            unlabeled,
            settings,
            labeled=[labeled],
            validation=rows,
            networks_saw_labeled=True,
            seed=seed,
            workspace=Workspace(cache=Cache(folder / "steps")),
        )
        scores.append(measure_labels(found.labels, counted).discards_kept.pairwise.f or 0.0)
    return scores


def made_up_crowd(n_people: int, seed: int, models: int = 5, dimensions: int = 256) -> tuple[Views, Views]:
    """A labeled tenth and the rest of people with 1 to 160 images (16 in the median), seen by several models.

    Images differ in difficulty with a heavy tail; most of the noise is a model's own, some is shared by all.
    """
    generator = np.random.default_rng(seed)
    sizes = np.clip(generator.lognormal(np.log(16), 0.65, n_people).astype(int), 1, 160)
    people = np.repeat(np.arange(n_people), sizes)
    labeled = np.isin(people, generator.permutation(n_people)[: n_people // 10])
    latent = 64

    def noise() -> Any:
        return generator.standard_normal((len(people), latent), dtype=np.float32)

    centers = generator.standard_normal((n_people, latent), dtype=np.float32)[people]
    difficulty = generator.gamma(3, 1 / 3, len(people)).astype(np.float32)[:, None]
    shared = 0.75 * difficulty * noise()
    seen = []
    for _ in range(models):
        looks = centers + shared + 0.9 * difficulty * noise()
        seen.append(looks @ generator.standard_normal((latent, dimensions), dtype=np.float32))
    views = Views(seen[0], {f"m{number}": one for number, one in enumerate(seen[1:], start=1)}, people)
    return views.take(labeled), views.take(~labeled)
