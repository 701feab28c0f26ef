"""A small collection, made by a run: tiny networks on drawn patterns, some of them hard to recognize."""

import tempfile
from pathlib import Path

import numpy as np
from PIL import Image

from cdp.collection.collection import open_collection
from cdp.collection.outputs import report_artifacts
from cdp.config.reading import recipe_from
from cdp.grouping.cohesion import tie_groups
from cdp.run.run_recipe import run_recipe
from cdp.types.run_record import RunRecord
from cdp.web.report.report_inputs import Artifacts

_TRAINING = {"epochs": 10, "batch": 32, "size": 16, "dimensions": 16, "rate": 0.05}
RECIPE = {
    "split": {
        "labeled": 0.35,
        "unlabeled_parts": 1,
        "validation": 0.15,
        "probes": 0.15,
        "distractors": 0.15,
    },
    "base": {"network": "small_vgg"},
    "committee": {"networks": ["small_vgg:1", "small_inception"]},
    "train": _TRAINING,
    "joint": {**_TRAINING, "epochs": 6},
    "consensus": {"preset": "paper", "k": 8, "max_cluster_size": 20, "threshold": "auto"},
    "evaluation": {"replicates": 20, "fpr": [0.2, 0.1]},
    "engine": {"threads": 1},
}


def make_run_folder(folder: Path) -> RunRecord:
    """Fill `folder` by a run, and return what run.json says."""
    images = Path(tempfile.mkdtemp(prefix="people-", dir=folder.parent))
    draw_people(images)
    recipe = recipe_from({**RECIPE, "data": {"images": str(images)}})
    return run_recipe(recipe, folder, command="cdp run --images people --out work").record


def draw_people(folder: Path, n_identities: int = 60, n_images: int = 8, side: int = 16) -> None:
    """A folder per person: a pattern, shifted and noisy; every other person resembles the one before."""
    for identity in range(n_identities):
        generator = np.random.default_rng(identity)
        coarse = generator.uniform(0, 255, (4, 4, 3))
        if identity % 2:
            coarse = 0.6 * np.random.default_rng(identity - 1).uniform(0, 255, (4, 4, 3)) + 0.4 * coarse
        pattern = np.kron(coarse, np.ones((side // 4, side // 4, 1)))
        home = folder / f"person{identity:03d}"
        home.mkdir()
        for image in range(n_images):
            shaken = np.roll(pattern, generator.integers(-1, 2, 2), axis=(0, 1))
            noisy = shaken + generator.normal(0, generator.uniform(10, 50), pattern.shape)
            Image.fromarray(np.clip(noisy, 0, 255).astype(np.uint8)).save(home / f"{image}.png")


def artifacts_of(folder: Path) -> Artifacts:
    """What the report of a collection shows beside figures."""
    collection = open_collection(folder)
    labels = collection.labels
    return report_artifacts(collection, labels, tie_groups(collection.scored, labels, collection.settings.k))
