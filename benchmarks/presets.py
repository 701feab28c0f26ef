"""From `paper` to `best`, part by part, on every data set at hand: pairwise F of the labels, several seeds or splits.

LFW as in `benchmarks.lfw`, over splits; a made-up crowd without structure beyond identities; and the embeddings of finished
runs, labeled again with each preset: the folders of `cdp run recipes/omniglot.toml` and `cdp demo`, found in `work/omniglot`
and `demo`, or as $CDP_RUNS says (folders separated by colons). What is not there is left out.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, NamedTuple

import numpy as np

from benchmarks.data import data_folder
from benchmarks.lfw import split_faces
from cdp import Views, measure_labels
from cdp.consensus.settings import ConsensusSettings
from cdp.input_blocks import EVIDENCE, PAPER_INPUTS
from cdp.labeling.cache import Cache
from cdp.labeling.judged import Labeling
from cdp.labeling.pipeline import label
from cdp.labeling.workspace import Workspace
from cdp.run.labeling import LabelSettings, Round, read_part, validation_rows
from cdp.store import read_run_record
from cdp.types.arrays import LongArray

_MLP = {"mediator": "mlp", "train_on": "auto"}
WAYS = {
    "paper": ConsensusSettings.of("paper"),
    "average linkage, tuned": ConsensusSettings.of(**_MLP, inputs=PAPER_INPUTS),
    "common neighbors": ConsensusSettings.of(**_MLP),
    "trees": ConsensusSettings.of(passes=1),
    "best": ConsensusSettings.of(),
    "a third pass": ConsensusSettings.of(passes=3),
    **{
        f"best without {block}": ConsensusSettings.of(evidence=tuple(one for one in EVIDENCE if one != block))
        for block in EVIDENCE
    },
}
"""Each way adds to the one before it, up to `best`; then what else was tried, and `best` without one block of evidence."""


def measure(*, quick: bool) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for name, scores in _data_sets(quick):
        figures[name] = {}
        for way, found in scores.items():
            values, off = [one.f for one in found], [one.off for one in found if one.off is not None]
            spread = stdev(values) if len(values) > 1 else None
            figures[name][way] = {"mean": fmean(values), "sd": spread, "f": values, "expected_off": off}
            wrong = f"  expected precision off by {max(off):.3f}" if off else ""
            print(f"{name:10s} {way:32s} {fmean(values):.4f} ± {spread or 0:.4f}{wrong}", flush=True)
    return figures


class Outcome(NamedTuple):
    """Pairwise F, and by how much the expected precision was wrong."""

    f: float
    off: float | None


def _data_sets(quick: bool) -> Iterator[tuple[str, dict[str, list[Outcome]]]]:
    if data_folder("lfw") is not None:
        parts = [split_faces(split) for split in range(2 if quick else 3)]
        yield "lfw", _label_all(parts)
        for base in () if quick else ("openface", "sface"):
            yield f"lfw, {base}", _label_all([tuple(with_base(part, base) for part in parts[0])])
    yield (
        "crowd",
        _label_all([made_up_crowd(150 if quick else 400, seed) for seed in range(1, 2 if quick else 3)]),
    )
    folders = os.environ.get("CDP_RUNS", f"work/omniglot{os.pathsep}demo").split(os.pathsep)
    for folder in map(Path, folders):
        if (folder / "run.json").is_file():
            yield folder.name, {way: _label_run(way, folder, 1 if quick else 2) for way in WAYS}


def with_base(views: Views, base: str) -> Views:
    """The same views with another model as the base."""
    models = dict(zip(("mobilefacenet", *views.committee), views, strict=True))
    return Views(models.pop(base), models, views.identities)


def _label_all(parts: Sequence[tuple[Views, Views]]) -> dict[str, list[Outcome]]:
    """The labels of unlabeled parts, by every way; graphs are searched once."""
    with tempfile.TemporaryDirectory() as steps:
        work = Workspace(cache=Cache(Path(steps)))
        return {way: [_label(way, *part, work) for part in parts] for way in WAYS}


def _label(way: str, labeled: Views, unlabeled: Views, work: Workspace) -> Outcome:
    found = label(unlabeled, replace(WAYS[way], method="exact"), labeled=[labeled], workspace=work)
    assert unlabeled.identities is not None
    return _outcome(found, unlabeled.identities)


def _outcome(found: Labeling, counted: LongArray) -> Outcome:
    score = measure_labels(found.labels, counted).discards_kept.pairwise
    expected = None if found.expected is None else found.expected.precision.value
    wrong = None if expected is None or score.precision is None else abs(expected - score.precision)
    return Outcome(score.f or 0.0, wrong)


def _label_run(way: str, folder: Path, n_seeds: int) -> list[Outcome]:
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
    work = Workspace(cache=Cache(folder / "steps"))
    options = {"labeled": [labeled], "validation": rows, "networks_saw_labeled": True, "workspace": work}
    return [
        _outcome(label(unlabeled, settings, seed=seed, **options), counted)  # type: ignore[arg-type]
        for seed in range(n_seeds)
    ]


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
