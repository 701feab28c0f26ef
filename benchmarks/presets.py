"""From `paper` to `best`, part by part, on every data set at hand: pairwise F of the labels, several seeds or splits.

LFW as in `benchmarks.lfw`, over splits; a made-up crowd without structure beyond identities; and the embeddings of finished
runs, labeled again with each preset: the folders of `cdp run recipes/omniglot.toml` and `cdp demo`, found in `work/omniglot`
and `demo`, or as $CDP_RUNS says (folders separated by colons). What is not there is left out. $CDP_ONLY names the data sets to measure
(`lfw:crowd`), so that several processes can share the work.

Beside them other methods on the concatenated embeddings of all models, tuned on the same known images among the others. k-means and
HDBSCAN take minutes for every number of clusters or images; they are in the study *baselines*.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import fmean, stdev
from types import MappingProxyType
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np

from benchmarks.data import data_folder
from benchmarks.lfw import split_faces
from cdp import Views, measure_labels
from cdp.input_blocks import PAPER_INPUTS
from cdp.knn.search import knn_graph
from cdp.labeling import fitting
from cdp.labeling.labeling import Labeling
from cdp.labeling.pipeline import label
from cdp.nets.ensemble import ensemble
from cdp.run.labeling import LabelSettings, Round, read_part, validation_rows
from cdp.runtime.runtime import Runtime
from cdp.runtime.step_cache import StepCache
from cdp.scoring.settings import ConsensusSettings
from cdp.scoring.tree_features import ALL_BLOCKS
from cdp.scoring.tree_scorer import TreeScorer
from cdp.storage.artifacts import read_run_record
from cdp.types.arrays import LongArray
from cdp_lab.baselines.methods import make_baselines, tune

_MLP = {"mediator": "mlp", "train_on": "auto"}


class Way(NamedTuple):
    """Settings, and what of the tree scorer differs from its defaults."""

    settings: ConsensusSettings = ConsensusSettings.of()
    scorer: Mapping[str, Any] = MappingProxyType({})

    def label(self, views: Views, **options: Any) -> Labeling:
        """Label views this way."""
        with patch.object(fitting, "TreeScorer", partial(TreeScorer, **self.scorer)):
            return label(views, **options)


WAYS = {
    "paper": Way(ConsensusSettings.of("paper")),
    "average linkage, tuned": Way(ConsensusSettings.of(**_MLP, inputs=PAPER_INPUTS)),
    "common neighbors": Way(ConsensusSettings.of(**_MLP)),
    "trees": Way(scorer={"passes": 1}),
    "best": Way(),
    "a third pass": Way(scorer={"passes": 3}),
    **{
        f"best without {block}": Way(scorer={"blocks": tuple(one for one in ALL_BLOCKS if one != block)})
        for block in ALL_BLOCKS
    },
}
"""Each way adds to the one before it, up to `best`; then what else was tried, and `best` without one block of pair features."""

OTHER_METHODS = ("hierarchical_average", "dbscan", "rank_order", "chinese_whispers", "finch")


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
    only = os.environ.get("CDP_ONLY", "")

    def wanted(name: str) -> bool:
        return not only or name in only.split(os.pathsep)

    if data_folder("lfw") is not None:
        parts = [split_faces(split) for split in range(2 if quick else 3)]
        if wanted("lfw"):
            yield "lfw", _label_all(parts)
        for base in () if quick else ("openface", "sface"):
            if wanted(f"lfw, {base}"):
                labeled, unlabeled = parts[0]
                yield f"lfw, {base}", _label_all([(with_base(labeled, base), with_base(unlabeled, base))])
    if wanted("crowd"):
        crowds = [made_up_crowd(150 if quick else 400, seed) for seed in range(1, 2 if quick else 3)]
        yield "crowd", _label_all(crowds)
    folders = os.environ.get("CDP_RUNS", f"work/omniglot{os.pathsep}demo").split(os.pathsep)
    for folder in map(Path, folders):
        if (folder / "run" / "run.json").is_file() and wanted(folder.name):
            yield folder.name, _label_run_all(folder, 1 if quick else 2)


def with_base(views: Views, base: str) -> Views:
    """The same views with another model as the base."""
    models = dict(zip(("mobilefacenet", *views.committee), views, strict=True))
    return Views(models.pop(base), models, views.identities)


def _label_all(parts: Sequence[tuple[Views, Views]]) -> dict[str, list[Outcome]]:
    """The labels of unlabeled parts, by every way; graphs are searched once."""
    with tempfile.TemporaryDirectory() as steps:
        work = Runtime(cache=StepCache(Path(steps)))
        found = {way: [_label(way, *part, work) for part in parts] for way in WAYS}
    others = [_other_methods(*put_together(*part)) for part in parts]
    return found | {name: [one[name] for one in others] for name in OTHER_METHODS}


def put_together(labeled: Views, unlabeled: Views) -> tuple[Views, LongArray, LongArray]:
    """Both parts as one, the identities known in it, and those to measure by; -1 = not known, not counted."""
    assert labeled.identities is not None
    assert unlabeled.identities is not None
    models = [
        np.concatenate([first.vectors, second.vectors])
        for first, second in zip(labeled, unlabeled, strict=True)
    ]
    views = Views(models[0], dict(zip(unlabeled.committee, models[1:], strict=True)))
    unknown, not_counted = np.full(unlabeled.n_images, -1), np.full(labeled.n_images, -1)
    return (
        views,
        np.concatenate([labeled.identities, unknown]),
        np.concatenate([not_counted, unlabeled.identities]),
    )


def _other_methods(views: Views, known: LongArray, counted: LongArray) -> dict[str, Outcome]:
    embeddings = ensemble(views, views.names).base
    graph = knn_graph(embeddings, 20, method="exact")
    found = {}
    for method in make_baselines(OTHER_METHODS):
        tuned = tune(method, embeddings, graph, known, among_others=True)
        found[method.name] = Outcome(
            measure_labels(tuned.label(embeddings, graph), counted).discards_kept.pairwise.f or 0.0, None
        )
    return found


def _label(way: str, labeled: Views, unlabeled: Views, work: Runtime) -> Outcome:
    settings = replace(WAYS[way].settings, method="exact")
    found = WAYS[way].label(unlabeled, settings=settings, labeled=[labeled], runtime=work)
    assert unlabeled.identities is not None
    return _outcome(found, unlabeled.identities)


def _outcome(found: Labeling, counted: LongArray) -> Outcome:
    score = measure_labels(found.labels, counted).discards_kept.pairwise
    expected = None if found.expected is None else found.expected.precision.value
    wrong = None if expected is None or score.precision is None else abs(expected - score.precision)
    return Outcome(score.f or 0.0, wrong)


def _label_run_all(folder: Path, n_seeds: int) -> dict[str, list[Outcome]]:
    """The labels of a finished run's embeddings, by several seeds of the mediator; validation images do not count."""
    run = folder / "run"
    record = read_run_record(run / "run.json")
    members = record.recipe["committee"]["networks"]
    models = tuple(name.replace(":", "-") for name in (record.recipe["base"]["network"], *members))
    k = record.recipe["consensus"]["k"]
    seen = LabelSettings(ConsensusSettings.of(k=k), models, Round(), folds=0, from_views=False, seed=0)
    labeled, unlabeled = read_part(seen, run, "labeled"), read_part(seen, run, "unlabeled")
    rows = validation_rows(run, unlabeled.n_images)
    assert unlabeled.identities is not None
    identities = unlabeled.identities
    counted = identities if rows is None else np.where(rows, -1, identities)
    work = Runtime(cache=StepCache(run / "steps"))
    options: dict[str, Any] = {
        "labeled": [labeled],
        "validation": rows,
        "networks_saw_labeled": True,
        "runtime": work,
    }
    found = {
        name: [
            _outcome(way.label(unlabeled, settings=replace(way.settings, k=k), seed=seed, **options), counted)
            for seed in range(n_seeds)
        ]
        for name, way in WAYS.items()
    }
    if rows is not None:
        others = _other_methods(unlabeled, np.where(rows, identities, -1), counted)
        found |= {name: [one] for name, one in others.items()}
    return found


def made_up_crowd(
    n_people: int,
    seed: int,
    models: int = 5,
    dimensions: int = 256,
    *,
    spread: float = 0.65,
    largest: int = 160,
) -> tuple[Views, Views]:
    """A labeled tenth and the rest of people with 1 to 160 images (16 in the median), seen by several models.

    Images differ in difficulty with a heavy tail; most of the noise is a model's own, some is shared by all.
    """
    generator = np.random.default_rng(seed)
    sizes = np.clip(generator.lognormal(np.log(16), spread, n_people).astype(int), 1, largest)
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
