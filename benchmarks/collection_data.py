"""Images with true identities that collections are measured on: LFW, Omniglot and drawn faces, each as a known part and the rest.

LFW as in `benchmarks.lfw`. The others are embeddings of finished runs, found in `work/omniglot` and `demo` or as $CDP_RUNS says
(folders separated by colons): the folder of a run, or of views with identities. What is not there is left out.
"""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np

from benchmarks.data import data_folder
from benchmarks.lfw import split_faces
from cdp import Views
from cdp.config.reading import read_recipe
from cdp.data.views import read_views
from cdp.run.label_stage import LabelSettings, Round, read_part, validation_rows

KNOWN_SHARE = 0.1
MOST_IMAGES = 8000
_LABELS = {"omniglot": "omniglot", "demo": "drawn faces"}


def find_data_sets() -> dict[str, Path | None]:
    """Name -> folder of a run or of views; None for LFW, which lies where `data_folder` says."""
    found: dict[str, Path | None] = {}
    if data_folder("lfw") is not None:
        found["lfw"] = None
    folders = os.environ.get("CDP_RUNS", f"work/omniglot{os.pathsep}demo").split(os.pathsep)
    for folder in map(Path, folders):
        if folder.is_dir() and ((folder / "parts").is_dir() or (folder / "card.json").is_file()):
            found[next((label for key, label in _LABELS.items() if key in folder.name), folder.name)] = folder
    return found


def read_data(folder: Path | None, *, quick: bool = False, shown: bool = False) -> tuple[Views, Views]:
    """The known part and the other images; of runs no more than `MOST_IMAGES` of these, whole identities drawn at random.

    With `shown` the others of drawn faces have the identity of who is on the picture, and not of the folder that it lies in, which is
    wrong for one in fifty: one that shows nobody is an identity of its own.
    """
    most = 1500 if quick else MOST_IMAGES
    if folder is None:
        labeled, unlabeled = split_faces()
        return labeled, some_identities(unlabeled, most) if quick else unlabeled
    if (folder / "parts").is_dir():
        known, others = _read_run(folder, shown=shown)
    else:
        views = read_views(folder)
        assert views.identities is not None
        mask = _drawn(views.identities, KNOWN_SHARE * views.n_images)
        known, others = views.take(mask), views.take(~mask)
    return known, some_identities(others, most)


def _read_run(folder: Path, *, shown: bool = False) -> tuple[Views, Views]:
    """The validation part, which no network saw, and the other unlabeled images."""
    recipe = read_recipe(folder / "recipe.toml")
    names = (recipe.base.network, *recipe.committee.networks)
    models = tuple(name.replace(":", "-") for name in names)
    seen = LabelSettings(recipe.consensus, models, Round(), folds=0, from_views=False, seed=0)
    views = read_part(seen, folder, "unlabeled")
    rows = validation_rows(folder, views.n_images)
    assert views.identities is not None
    if rows is None:
        rows = _drawn(views.identities, KNOWN_SHARE * views.n_images)
    known, others = views.take(rows), views.take(~rows)
    if shown and (folder / "drawn").is_dir():
        others = Views(others.base, others.committee, _shown(folder)[~rows])
    return known, others


def _shown(folder: Path) -> np.ndarray:
    """Who is on every unlabeled picture of a run on drawn faces."""
    with (folder / "drawn" / "faces.truth.csv").open() as file:
        truth = {row["path"]: row["true_identity"] for row in csv.DictReader(file)}
    with (folder / "parts" / "unlabeled.csv").open() as file:
        paths = [row["path"].rpartition("/drawn/")[2].removeprefix("drawn/") for row in csv.DictReader(file)]
    names = [truth[path] or path for path in paths]
    return np.unique(names, return_inverse=True)[1]


def some_identities(views: Views, most: int) -> Views:
    """All images of some identities, drawn at random until there are `most`."""
    assert views.identities is not None
    return views if views.n_images <= most else views.take(_drawn(views.identities, most))


def _drawn(identities: np.ndarray, most: float) -> np.ndarray:
    people, counts = np.unique(identities, return_counts=True)
    order = np.random.default_rng(0).permutation(len(people))
    return np.isin(identities, people[order[np.cumsum(counts[order]) <= most]])
