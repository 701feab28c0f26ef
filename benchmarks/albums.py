"""The threshold without labels, in albums of 100 to 2,000 images: pairwise F against the best one that the truth allows, mean and worst.

Albums are drawn from what `benchmarks.unsupervised` measures whole. Of three kinds: 5 to 40 people, few with many photos, and strangers on a
fifth or more of them ("album"); 2 to 15 images of everybody ("even"); strangers on three quarters ("strangers"). And of one
more, where nobody is there twice: there is nothing to find, so the share of images that are joined all the same is measured.

    python -m benchmarks albums --out docs/results/albums.json

$CDP_SEEDS names the seeds (`1:2`). Settings of the rule were chosen with seed 0 in view; the others were not looked at.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.presets import made_up_crowd
from benchmarks.unsupervised import real_sets, score_without_labels
from cdp import Views, measure_labels
from cdp.grouping.group import group, pairs_at
from cdp.labeling.unsupervised_threshold import estimate_threshold
from cdp.runtime.runtime import Runtime
from cdp.runtime.settings import RuntimeSettings
from cdp.scoring.settings import ConsensusSettings
from cdp.scoring.zscore import ZScoredPairs, max_z_score
from cdp.types.arrays import LongArray

SIZES = (100, 200, 500, 1000, 2000)
KINDS = ("album", "even", "strangers", "nobody twice")
HIGHEST = 12.0


def measure(*, quick: bool) -> dict[str, Any]:
    figures: dict[str, Any] = {}
    for name, views in albums(quick):
        figures[name] = found = measure_album(views, joined="nobody twice" in name)
        shown = ", ".join(
            f"{key} {value:.3f}" for key, value in found.items() if isinstance(value, float) and key != "best"
        )
        print(f"{name:55s} {shown}", flush=True)
    return figures


def albums(quick: bool) -> Iterator[tuple[str, Views]]:
    """Name and views with the truth, smallest first."""
    sets = [] if quick else list(model_sets())
    crowd = made_up_crowd(60 if quick else 400, 1, 5)[1]
    sets += [
        ("made-up, one model", Views(crowd.base, identities=crowd.identities)),
        ("made-up, all models", crowd),
    ]
    seeds = [1] if quick else [int(one) for one in os.environ.get("CDP_SEEDS", "1").split(os.pathsep)]
    for size in SIZES[:1] if quick else SIZES:
        for seed in seeds:
            for name, views in sets:
                assert views.identities is not None
                for number, kind in enumerate(KINDS, 1):
                    rows = draw(views.identities, size, kind, np.random.default_rng([seed, size, number]))
                    if len(rows) > 0.9 * size:
                        yield f"{name}, {kind}, {size}, seed {seed}", views.take(rows)


def model_sets() -> Iterator[tuple[str, Views]]:
    """LFW by each network and by all; of finished runs the base, the last member, and all."""
    for name, base, views, _ in real_sets():
        if "50 images each" in name:
            continue
        models = dict(zip((base, *views.committee), views, strict=True))
        wanted = list(models) if name == "lfw" else [base, list(models)[-1]]
        for model in wanted:
            yield f"{name}, {model}", Views(models[model], identities=views.identities)
        if len(models) > 1:
            yield f"{name}, all models", views


def draw(identities: LongArray, size: int, kind: str, generator: np.random.Generator) -> LongArray:
    """Rows of an album of about so many images."""
    people, sizes = np.unique(identities, return_counts=True)
    order = generator.permutation(len(people))
    rows: list[LongArray] = []

    def add(person: int, most: int) -> None:
        theirs = np.flatnonzero(identities == people[person])
        rows.append(generator.permutation(theirs)[:most])

    def is_short_of(share: float) -> bool:
        return sum(map(len, rows)) < share * size

    friends: list[int] = []
    if kind == "album":
        n_friends, share = int(generator.integers(5, 41)), 1 - generator.uniform(0.15, 0.4)
        weight = 1 / np.arange(1, n_friends + 1) ** generator.uniform(0.6, 1.1)
        most = np.maximum(3, weight / weight.sum() * share * size).astype(int)
        likely = np.minimum(sizes[order], 60) * generator.uniform(0.5, 1, len(order))
        for rank, person in enumerate(order[np.argsort(-likely, kind="stable")].tolist()):
            if not is_short_of(share):
                break
            friends.append(person)
            add(person, int(most[rank]) if rank < n_friends else int(generator.integers(3, 15)))
    elif kind in ("even", "strangers"):
        low, high, share = (2, 16, 1.0) if kind == "even" else (4, 20, 0.25)
        for person in order[sizes[order] >= (2 if kind == "even" else 5)].tolist():
            if not is_short_of(share):
                break
            friends.append(person)
            add(person, int(generator.integers(low, high)))
    for person in np.setdiff1d(order, friends)[generator.permutation(len(order) - len(friends))].tolist():
        if kind == "even" or not is_short_of(1):
            break
        add(person, 1 if kind == "nobody twice" else int(generator.integers(1, 3)))
    return np.sort(np.concatenate(rows)[:size])


def measure_album(views: Views, *, joined: bool) -> dict[str, Any]:
    """The chosen threshold and the best one; or, where nobody is there twice, the share of images that are joined."""
    assert views.identities is not None
    settings = ConsensusSettings.of(mediator="similarity", method="exact", k=min(20, views.n_images - 1))
    identities, work = views.identities, Runtime(RuntimeSettings(threads=1))
    hidden = Views(views.base, views.committee)
    whole = score_without_labels(hidden, settings, work)
    scored = whole.scored
    assert isinstance(scored, ZScoredPairs)
    found = estimate_threshold(hidden, whole, settings, runtime=work)

    def labels_at(threshold: float) -> Any:
        return group(pairs_at(scored, settings, threshold), settings, threshold)

    figures: dict[str, Any] = {
        "images": views.n_images,
        "people": len(np.unique(views.identities)),
        "chosen": found.chosen,
        "agreement": found.agreement,
    }
    if joined:
        return {**figures, "joined": float((labels_at(found.chosen).labels >= 0).mean())}
    top = min(max_z_score(scored.null), HIGHEST)
    thresholds = [found.chosen, *np.round(np.linspace(0.06, 1, 40) * top, 3).tolist()]
    curve = {
        threshold: measure_labels(labels_at(threshold), identities).discards_kept.pairwise.f or 0.0
        for threshold in thresholds
    }
    best = max(curve, key=curve.__getitem__)
    f, best_f = curve[found.chosen], curve[best]
    return {**figures, "f": f, "best": best, "best_f": best_f, "off": best_f - f}
