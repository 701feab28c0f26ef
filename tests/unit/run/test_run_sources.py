"""What a recipe starts from, and what is decided before anything runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refuses

from cdp.config.reading import recipe_from
from cdp.config.sections import RunRecipe
from cdp.run.parts import SplitSettings, make_parts
from cdp.run.sources import Facts, look_at, read_source, resolve, rows_of_part, views_of_source
from cdp.types import Views

IMAGES, UNKNOWN = Facts("images"), Facts("images", unlabeled_known=False)
VIEWS = Facts("embeddings", models=("base",))
SPLIT = {"data.images": "x"}
PARTS = {"data.labeled": "a", "data.unlabeled": ["b"]}
NOT_CHOSEN = (
    "threshold = 0.3, the default, was not chosen on labeled identities: there is no validation part; give"
)
NO_PROBES = "There are no probe images, so recognition was not measured; give data.test"
NO_BOUND = "The upper bound was left out: not every unlabeled image has a true identity to train on."


def recipe(**values: Any) -> RunRecipe:
    return recipe_from({}, values)


@pytest.mark.parametrize(
    ("facts", "values", "shares"),
    [
        (IMAGES, SPLIT, (1 / 11, 0.1, 0.1)),
        (IMAGES, {**SPLIT, "consensus.preset": "paper"}, (0, 0.1, 0.1)),
        (IMAGES, {**SPLIT, "consensus.preset": "paper", "consensus.train_on": "validation"}, (1 / 11, 0.1, 0.1)),
        (IMAGES, {**SPLIT, "data.test": "t"}, (1 / 11, 0, 0)),
        (IMAGES, {**SPLIT, "split.probes": 0.3}, (1 / 11, 0.3, 0.3)),
        (IMAGES, {**SPLIT, "split.distractors": 0.0}, (1 / 11, 0, 0)),
        (IMAGES, {**SPLIT, "split.validation": 0.2}, (0.2, 0.1, 0.1)),
        # Given parts have shares of nothing, whatever a recipe says.
        (IMAGES, {**PARTS, "split.validation": 0.2, "split.probes": 0.1}, (0, 0, 0)),
        (VIEWS, {"data.embeddings": "x"}, (1 / 11, 0, 0)),
        (VIEWS, {"data.embeddings": "x", "split.probes": 0.2}, (1 / 11, 0.2, 0.2)),
    ],
)  # fmt: skip
def test_shares_that_are_left_open(facts, values, shares):
    split = resolve(recipe(**values), facts).recipe.split
    assert (split.validation, split.probes, split.distractors) == pytest.approx(shares)


@pytest.mark.parametrize(
    ("facts", "values", "trained_on", "threshold", "notes"),
    [
        (IMAGES, SPLIT, "validation", None, []),
        (IMAGES, {**SPLIT, "train.folds": 2}, "labeled", None, []),
        (IMAGES, {**SPLIT, "consensus.train_on": "labeled"}, "labeled", None, []),
        (IMAGES, {**SPLIT, "split.validation": 0.0}, "labeled", 0.3, [f"{NOT_CHOSEN} split.validation a share."]),
        (
            IMAGES,
            {**SPLIT, "split.probes": 0.0},
            "validation",
            None,
            [f"{NO_PROBES}, or split.probes and split.distractors a share."],
        ),
        (IMAGES, PARTS, "labeled", 0.3, [f"{NOT_CHOSEN} data.validation.", f"{NO_PROBES}."]),
        (IMAGES, {**PARTS, "data.validation": "v", "data.test": "t"}, "validation", None, []),
        (UNKNOWN, {**PARTS, "data.validation": "v", "data.test": "t"}, "validation", None, [NO_BOUND]),
        (UNKNOWN, {**PARTS, "data.test": "t", "evaluation.bound": False}, "labeled", 0.3, [f"{NOT_CHOSEN} data.validation."]),
        (IMAGES, {**SPLIT, "data.truth": False}, "validation", None, [NO_BOUND]),
        # Embeddings were made by others: labeled identities serve for all, and nothing is trained that could be tested.
        (VIEWS, PARTS, "labeled", None, []),
        (VIEWS, {"data.embeddings": "x"}, "labeled", None, []),
    ],
)  # fmt: skip
def test_what_cannot_be_done_is_left_out_with_a_sentence(facts, values, trained_on, threshold, notes):
    resolved = resolve(recipe(**values), facts)
    assert (resolved.recipe.consensus.train_on, resolved.recipe.consensus.threshold) == (
        trained_on,
        threshold,
    )
    assert list(resolved.notes) == notes
    again = resolve(resolved.recipe, facts)
    assert again.recipe == resolved.recipe, "what is resolved stays"


@pytest.fixture
def people() -> Views:
    generator = np.random.default_rng(0)
    return Views(
        generator.normal(size=(12, 4)).astype("f4"),
        {"other": generator.normal(size=(12, 3)).astype("f4")},
        np.repeat(np.arange(4), 3),
    )


def write_npz(file: Path, views: Views, names: list[str]) -> str:
    arrays = {"base": np.asarray(views.base.source), "other": np.asarray(views.committee["other"].source)}
    np.savez(file, **arrays, identities=np.array(names))
    return str(file)


def test_people_of_several_files_are_matched_by_name(people, tmp_path):
    """Views number the names of each file by themselves; the same number used to be the same person."""
    first = write_npz(
        tmp_path / "a.npz", people.take(slice(0, 6)), ["ann", "ann", "ann", "bob", "bob", "bob"]
    )
    second = write_npz(
        tmp_path / "b.npz", people.take(slice(6, 12)), ["bob", "eve", "eve", "joe", "joe", "joe"]
    )
    given = recipe(**{"data.labeled": first, "data.unlabeled": [first, second]})
    merged = read_source(given, "unlabeled images")
    assert merged.names is not None
    assert [merged.names[number] for number in merged.identities] == [
        "ann", "ann", "ann", "bob", "bob", "bob", "bob", "eve", "eve", "joe", "joe", "joe",
    ]  # fmt: skip


@pytest.mark.parametrize("layout", ["folder", "npz", "networks", "features"])
def test_parts_are_the_rows_of_the_files(people, tmp_path, layout):
    folder = tmp_path / "given"
    if layout == "folder":
        people.save(folder)
    elif layout == "npz":
        folder = tmp_path / "given.npz"
        arrays = {
            "base": np.asarray(people.base.source),
            "other": np.asarray(people.committee["other"].source),
        }
        np.savez(folder, **arrays, identities=people.identities)
    elif layout == "networks":
        folder.mkdir()
        np.save(folder / "ours.npy", people.base.source)
        np.save(folder / "other.npy", people.committee["other"].source)
        np.save(folder / "identities.npy", people.identities)
    else:
        (folder / "features").mkdir(parents=True)
        people.base.source.astype("<f4").tofile(folder / "features" / "base.bin")
        people.committee["other"].source.astype("<f4").tofile(folder / "features" / "other.bin")
        np.savetxt(folder / "meta.txt", people.identities, fmt="%d")
    given = recipe(
        **{"data.embeddings": str(folder), "base.network": "ours", "committee.networks": ["other"]}
    )
    models = ("ours" if layout == "networks" else "base", "other")
    assert look_at(given) == Facts("embeddings", models=models, identities=4)
    table = read_source(given, "images")
    np.testing.assert_array_equal(table.identities, people.identities)
    rows = np.array([7, 2, 3])
    pieces = rows_of_part(table.take(rows), views_of_source(given, "images"))
    assert [found.tolist() for _, found in pieces] == [[7, 2, 3]]
    np.testing.assert_array_equal(pieces[0][0].take(rows).base.source, people.base.source[rows])
    np.testing.assert_array_equal(
        pieces[0][0].take(rows).committee["other"].source, people.committee["other"].source[rows]
    )
    assert Path(table.locations[0].rpartition("!")[0]).is_file(), "whose contents are hashed"


def test_parts_by_other_models_are_refused(people, tmp_path):
    people.save(tmp_path / "a")
    Views(people.base, {}, people.identities).save(tmp_path / "b")
    given = recipe(
        **{
            "data.labeled": str(tmp_path / "a"),
            "data.unlabeled": [str(tmp_path / "a")],
            "data.test": str(tmp_path / "b"),
        }
    )
    with refuses("sources-models-differ", expected=("base", "other"), found=("base",)) as caught:
        look_at(given)
    assert str(caught.value) == (
        f"{tmp_path / 'b'} has the models base, and {tmp_path / 'a'} has base, other: embed all parts with the same models."
    )


def test_a_missing_network_and_rows_that_do_not_fit_are_named(people, tmp_path):
    np.save(tmp_path / "identities.npy", people.identities)
    np.save(tmp_path / "ours.npy", people.base.source)
    given = recipe(
        **{"data.embeddings": str(tmp_path), "base.network": "ours", "committee.networks": ["other:1"]}
    )
    with refuses("network-embeddings-missing", file=tmp_path / "other-1.npy"):
        look_at(given)
    np.save(tmp_path / "other-1.npy", people.base.source[:3])
    with refuses("views-rows-differ", folder=tmp_path, model="other-1", expected=12, found=3):
        look_at(given)


def test_images_whose_identity_is_unknown_are_noticed(tmp_path):
    for name in ("a.png", "b.png"):
        (tmp_path / name).write_bytes(b"")
    (tmp_path / "known.csv").write_text("path,identity\na.png,0\nb.png,1\n")
    (tmp_path / "partly.csv").write_text("path,identity\na.png,0\nb.png,\n")
    for name, known in (("known", True), ("partly", False)):
        table = str(tmp_path / f"{name}.csv")
        assert look_at(recipe(**{"data.labeled": table, "data.unlabeled": [table]})).unlabeled_known is known


def test_one_labeled_identity_is_too_few(people, tmp_path):
    people.save(tmp_path / "views")
    shares = {"split.unlabeled_parts": 1, "split.labeled": 0.2, "split.validation": 0.0}
    given = recipe(**{"data.embeddings": str(tmp_path / "views"), **shares})
    sources = {"images": read_source(given, "images")}
    with refuses("split-labeled-too-small", key="split.labeled", value=0.2):
        make_parts(SplitSettings(resolve(given, VIEWS).recipe.split, False, True, 0, 0), sources)


def test_without_truth_only_the_validation_part_keeps_its_identities(people, tmp_path):
    people.save(tmp_path / "views")
    path = str(tmp_path / "views")
    given = recipe(**{"data.labeled": path, "data.unlabeled": [path], "data.validation": path})
    names = ("labeled images", "unlabeled images", "validation images")
    sources = {name: read_source(given, name) for name in names}
    parts = make_parts(SplitSettings(given.split, False, False, 0, 0), sources)
    assert len(parts["validation"]) == 12
    assert (parts["unlabeled"].identities[:12] == -1).all()
    np.testing.assert_array_equal(parts["unlabeled"].identities[12:], people.identities)


def test_every_source_is_read_once(monkeypatch, small_views, tmp_path):
    from cdp.run import sources

    small_views.save(tmp_path / "views")
    given = recipe(**{"data.embeddings": str(tmp_path / "views")})
    read = []
    monkeypatch.setattr(sources, "read_views", lambda path: read.append(path) or Views.load(path))
    resolved = sources.prepare(given)
    assert resolved.sources is resolved.sources
    for _ in range(2):
        resolved.sources.manifest("images")
        resolved.sources.views("images")
    assert len(read) <= 2, "once for its rows, once for its embeddings"
