"""The collection of a run: corrected, extended, and made again by a run with other settings."""

import shutil

import numpy as np
import pytest

from cdp.collection.collection import open_collection
from cdp.collection.corrections import append_corrections, named
from cdp.collection.extension import extend
from cdp.collection.regrouping import regroup
from cdp.config.reading import recipe_from
from cdp.run.run_recipe import run_recipe
from cdp.types import Labels


@pytest.fixture
def made(small_views, tmp_path):
    """A run on embeddings, and how to run it with another threshold."""
    known = small_views.identities < 25
    small_views.take(known).save(tmp_path / "labeled")
    small_views.take(~known).save(tmp_path / "unlabeled")
    data = {"labeled": str(tmp_path / "labeled"), "unlabeled": [str(tmp_path / "unlabeled")]}

    def run(**consensus):
        recipe = {
            "data": data,
            "consensus": {"k": 8, "threshold": 0.3, **consensus},
            "engine": {"threads": 1},
        }
        return run_recipe(recipe_from(recipe), tmp_path / "work")

    run(threshold=0.3)
    return tmp_path / "work", run


def test_the_collection_has_the_labels_of_the_run(made):
    folder, run = made
    before = open_collection(folder)
    np.testing.assert_array_equal(before.identity, Labels.load(folder / "run" / "labels").labels)
    run(threshold=0.3)
    assert open_collection(folder).state == before.state, "nothing changed, nothing is made again"


def test_corrections_and_numbers_outlast_other_labels(made):
    folder, run = made
    group = np.flatnonzero(open_collection(folder).identity == 3)
    append_corrections(folder, [named("Anna", *group.tolist())])
    regroup(open_collection(folder))
    run(threshold=0.9)
    after = open_collection(folder)
    assert set(after.identity[group].tolist()) == {3}
    assert after.names == {3: "Anna"}
    shutil.move(folder, folder.with_name("moved"))
    assert regroup(open_collection(folder.with_name("moved")))[0].names == {3: "Anna"}


def test_other_labels_without_corrections_are_taken_as_they_are(made):
    folder, run = made
    run(threshold=0.9)
    after, labels = open_collection(folder), Labels.load(folder / "run" / "labels")
    np.testing.assert_array_equal(after.labels.labels, labels.labels)


def test_images_that_were_added_are_not_lost(made, small_views):
    folder, run = made
    unlabeled = small_views.take(small_views.identities >= 25)
    grown, _ = extend(open_collection(folder), unlabeled.take(slice(0, 10)))
    outcome = run(threshold=0.9)
    assert any("keeps its groups" in note for note in outcome.record.notes)
    assert open_collection(folder).n_images == grown.n_images
    np.testing.assert_array_equal(open_collection(folder).identity, grown.identity)
