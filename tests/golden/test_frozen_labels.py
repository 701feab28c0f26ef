"""Labels, confidences and graphs keep their bytes while code is moved: hashes of both presets and of labeling without labels.

Run this file as a script to print the hashes after a change that is meant to change results.
"""

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from cdp import CDP, Views
from cdp_lab.synthetic import synthetic_views

FROZEN = Path(__file__).with_name("frozen_labels.json")
WAYS = ("best", "trees", "paper", "unlabeled")
PRESET_OF = {"unlabeled": "best"}


def _hash(*arrays):
    """A hash that does not see the last bits of floating-point numbers, which other processors round otherwise."""
    digest = hashlib.sha256()
    for array in arrays:
        array = np.asarray(array)
        rounded = np.round(array.astype(np.float64), 3) + 0.0 if array.dtype.kind == "f" else array
        digest.update(np.ascontiguousarray(rounded).tobytes())
    return digest.hexdigest()[:16]


def made_up():
    split = synthetic_views(400, 10, members=3, dimensions=48, seed=11)
    return split.labeled, split.unlabeled


def lfw(folder):
    identities = np.load(folder / "identities.npy")
    models = {name: np.load(folder / f"{name}.npy") for name in ("sface", "mobilefacenet", "openface")}
    base, *committee = models.items()
    views = Views(base[1], dict(committee), identities)
    people = np.random.default_rng(3).permutation(np.unique(identities))
    is_labeled = np.isin(identities, people[: len(people) // 3])
    return views.take(is_labeled), views.take(~is_labeled)


def hashes(labeled, unlabeled, way):
    model = CDP(mediator="trees", seed=0) if way == "trees" else CDP(PRESET_OF.get(way, way), seed=0)
    views = Views(unlabeled.base, unlabeled.committee)
    if way == "unlabeled":
        model.fit(views)
    else:
        model.fit(labeled).predict(views)
    labels = model.labeling_.labels
    graphs = model.labeling_.graphs.values()
    return {
        "labels": _hash(labels.labels),
        "confidence": _hash(labels.confidence),
        "graphs": _hash(*(graph.neighbors for graph in graphs)),
    }


def _expected(data, way):
    return json.loads(FROZEN.read_text())[data][way]


@pytest.mark.slow
@pytest.mark.whole_training
@pytest.mark.parametrize("way", WAYS)
def test_made_up_embeddings_keep_their_labels(way):
    assert hashes(*made_up(), way) == _expected("made_up", way)


@pytest.mark.slow
@pytest.mark.whole_training
@pytest.mark.parametrize("way", WAYS)
def test_lfw_keeps_its_labels(way, shared_data):
    assert hashes(*lfw(shared_data / "lfw"), way) == _expected("lfw", way)


if __name__ == "__main__":
    parts = {"made_up": made_up(), "lfw": lfw(Path(__file__).parents[3] / "shared" / "data" / "lfw")}
    frozen = {data: {way: hashes(*views, way) for way in WAYS} for data, views in parts.items()}
    FROZEN.write_text(json.dumps(frozen, indent=2) + "\n")
