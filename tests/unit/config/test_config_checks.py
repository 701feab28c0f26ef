"""What keys must not be together, and what a recipe names outside itself."""

import pytest
from tests.refusals import refuses

from cdp.config.checks import check_recipe
from cdp.config.environment import check_environment, check_networks, check_paths, least_size, source_kind
from cdp.config.reading import recipe_from

TESTED = {"split.probes": 0.1, "split.distractors": 0.1}
IMAGES = {"data.images": "faces", **TESTED}
PARTS = {"data.labeled": "a", "data.unlabeled": ["b"], "data.test": "c"}


def recipe_with(values):
    nested = {}
    for key, value in values.items():
        section, _, name = key.partition(".")
        nested.setdefault(section, {})[name] = value
    return recipe_from(nested)


@pytest.mark.parametrize(
    "values",
    [
        IMAGES,
        PARTS,
        {"data.images": "faces"},
        {"data.images": "faces", "split.probes": 0},
        {"data.embeddings": "faces", "data.test": "t"},
        {"data.labeled": "a", "data.unlabeled": ["b"]},
        {**IMAGES, "consensus.threshold": "auto", "split.validation": 0.0},
        {**PARTS, "consensus.threshold": "auto", "data.validation": "v"},
        {**PARTS, "split.labeled": 1.0},  # nothing is split
        {**PARTS, **TESTED},
        {"data.images": "faces", "data.test": "t"},
        {**IMAGES, "committee.networks": [], "consensus.mediator": "vote", "consensus.min_votes": 0},
        {**IMAGES, "committee.networks": ["small_resnet:0", "small_resnet:1"]},
    ],
)
def test_recipes_that_can_be_run(values):
    assert check_recipe(recipe_with(values)) is None


@pytest.mark.parametrize(
    ("values", "code", "fields"),
    [
        (
            {},
            "recipe-sources-missing",
            {"keys": ("data.images", "data.embeddings", "data.labeled")},
        ),
        (
            {**IMAGES, **PARTS},
            "recipe-sources-clash",
            {"keys": ("data.images", "data.labeled")},
        ),
        (
            {**PARTS, "data.unlabeled": []},
            "recipe-unlabeled-missing",
            {"key": "data.unlabeled"},
        ),
        ({**PARTS, "data.unlabeled": [""]}, "recipe-unlabeled-path-empty", {"key": "data.unlabeled"}),
        (
            {**IMAGES, "data.validation": "v"},
            "recipe-part-not-split-here",
            {"key": "data.validation"},
        ),
        (
            {**IMAGES, "split.labeled": 1.0},
            "recipe-labeled-share-whole",
            {"key": "split.labeled"},
        ),
        (
            {**IMAGES, "split.validation": 0.8},
            "recipe-shares-too-large",
            {"keys": ("split.validation", "split.probes", "split.distractors")},
        ),
        (
            {**IMAGES, "split.use_parts": 11, "split.unlabeled_parts": 10},
            "recipe-use-parts-too-many",
            {"key": "split.use_parts", "value": 11, "most": 10},
        ),
        (
            {"data.images": "faces", "split.probes": 0.1, "split.distractors": 0},
            "recipe-test-share-missing",
            {"key": "split.distractors"},
        ),
        (
            {"data.images": "faces", "split.distractors": 0.1, "split.probes": 0},
            "recipe-test-share-missing",
            {"key": "split.probes"},
        ),
        (
            {**IMAGES, "data.test": "t"},
            "recipe-test-shares-clash",
            {"keys": ("split.probes", "split.distractors")},
        ),
        (
            {**PARTS, "split.test_probes": 1.0},
            "recipe-test-probes-whole",
            {"key": "split.test_probes"},
        ),
        (
            {**IMAGES, "base.network": "small_resnet:x"},
            "recipe-network-text-wrong",
            {"key": "base.network", "value": "small_resnet:x"},
        ),
        (
            {**IMAGES, "committee.networks": [""]},
            "recipe-network-text-wrong",
            {"key": "committee.networks", "value": ""},
        ),
        (
            {**IMAGES, "committee.networks": ["small_resnet"]},
            "recipe-network-repeated",
            {"key": "committee.networks", "value": "small_resnet"},
        ),
        (
            {**IMAGES, "committee.networks": ["a:1", "a:01"]},
            "recipe-network-repeated",
            {"key": "committee.networks", "value": "a:01"},
        ),
        (
            {**IMAGES, "consensus.inputs": ["relationship"], "committee.networks": []},
            "inputs-need-committee",
            {"key": "consensus.inputs"},
        ),
        (
            {**IMAGES, "consensus.min_votes": 5},
            "min-votes-exceed-committee",
            {"key": "consensus.min_votes", "value": 5, "members": 4},
        ),
        (
            {**IMAGES, "consensus.mediator": "vote", "train.folds": 3},
            "recipe-folds-with-vote",
            {"key": "train.folds", "value": 3},
        ),
        (
            {**IMAGES, "consensus.train_on": "validation", "train.folds": 2},
            "recipe-folds-with-validation",
            {"key": "train.folds", "value": 2},
        ),
        (
            {**IMAGES, "consensus.train_on": "validation", "split.validation": 0},
            "train-on-validation-missing",
            {"key": "consensus.train_on"},
        ),
        (
            {**PARTS, "consensus.train_on": "validation"},
            "train-on-validation-missing",
            {"key": "consensus.train_on"},
        ),
        (
            {**IMAGES, "joint.rounds": 2, "train.folds": 2},
            "recipe-rounds-with-folds",
            {"rounds": 2, "folds": 2},
        ),
    ],
)
def test_recipes_that_cannot_be_run(values, code, fields):
    with refuses(code, **fields):
        check_recipe(recipe_with(values))


@pytest.fixture
def embeddings(tmp_path):
    """A folder that looks like views."""
    (tmp_path / "views").mkdir()
    (tmp_path / "views" / "base.npy").touch()
    return str(tmp_path / "views")


def test_what_a_recipe_starts_from_is_seen_in_its_files(embeddings, tmp_path):
    folder = str(tmp_path)
    assert source_kind(recipe_with({"data.images": folder})) == "images"
    assert source_kind(recipe_with({"data.embeddings": folder, "data.test": folder})) == "embeddings"
    assert source_kind(recipe_with({"data.labeled": folder, "data.unlabeled": [folder]})) == "images"
    parts = {"data.labeled": embeddings, "data.unlabeled": [embeddings, "x.npz"]}
    assert source_kind(recipe_with(parts)) == "embeddings"


@pytest.mark.parametrize("other", ["labeled", "unlabeled", "validation", "test"])
def test_images_and_embeddings_do_not_mix(embeddings, tmp_path, other):
    keys = ("labeled", "unlabeled", "validation", "test")
    paths = {key: str(tmp_path) if key == other else embeddings for key in keys}
    values = {f"data.{key}": [path] if key == "unlabeled" else path for key, path in paths.items()}
    with refuses("recipe-sources-mixed") as caught:
        source_kind(recipe_with(values))
    named = {key: f"data.{key}{'[0]' if key == 'unlabeled' else ''}" for key in keys}
    views = next(named[key] for key in keys if key != other)
    assert str(caught.value) == (
        f"{views} holds embeddings and {named[other]} holds images: give all parts as images, or all as embeddings."
    )


def test_embeddings_given_as_images_are_named(embeddings):
    with refuses("recipe-images-are-embeddings", key="data.images", file=embeddings):
        source_kind(recipe_with({"data.images": embeddings}))


@pytest.mark.parametrize(
    ("key", "value", "code", "fields"),
    [
        (
            "data.rotations",
            True,
            "recipe-key-needs-images",
            {"key": "data.rotations"},
        ),
        (
            "joint.rounds",
            2,
            "recipe-key-needs-training",
            {"key": "joint.rounds", "value": 2},
        ),
        (
            "train.folds",
            2,
            "recipe-key-needs-training",
            {"key": "train.folds", "value": 2},
        ),
    ],
)
@pytest.mark.parametrize("is_split", [True, False])
def test_what_only_images_have_is_refused_for_embeddings(embeddings, is_split, key, value, code, fields):
    """Whether they are split here or in parts; parts used to be rotated row by row."""
    source = (
        {"data.embeddings": embeddings}
        if is_split
        else {"data.labeled": embeddings, "data.unlabeled": [embeddings]}
    )
    assert check_environment(recipe_with(source)) is False
    with refuses(code, **fields):
        check_environment(recipe_with({**source, key: value}))


def test_paths_must_be_there(tmp_path):
    (tmp_path / "s-0.tar").touch()
    (tmp_path / "s-1.tar").touch()
    there = str(tmp_path)
    check_paths(recipe_with({"data.labeled": there, "data.unlabeled": [f"{there}/s-{{0..1}}.tar", there]}))
    gone = f"{there}/gone"
    for key, value, named in (
        ("images", gone, "data.images"),
        ("unlabeled", [there, gone], "data.unlabeled[1]"),
        ("test", gone, "data.test"),
        ("root", gone, "data.root"),
        ("skip", gone, "data.skip"),
    ):
        with refuses("recipe-path-missing", key=named, file=gone):
            check_paths(recipe_with({f"data.{key}": value}))
    with refuses(
        "shard-missing", key="data.images", pattern=tmp_path / "s-{0..2}.tar", file=tmp_path / "s-2.tar"
    ):
        check_paths(recipe_with({"data.images": f"{there}/s-{{0..2}}.tar"}))


@pytest.mark.slow
def test_networks_must_be_known():
    pytest.importorskip("torch")
    assert check_networks(recipe_with({"committee.networks": ["small_vgg:3"]}))
    with refuses("network-unknown", key="committee.networks", network="small_vg"):
        check_networks(recipe_with({"committee.networks": ["small_vg"]}))
    with refuses("network-images-too-small", key="base.network", network="inception_resnet_v2", found=32):
        check_networks(
            recipe_with({"base.network": "inception_resnet_v2", "train.size": 299, "joint.size": 32})
        )
    left_open = recipe_with({"base.network": "inception_resnet_v2", "train.size": 299})
    assert check_networks(left_open)
    assert least_size(left_open) == 75, "a size that is left open suits all networks"


def test_without_torch_networks_are_not_checked(monkeypatch):
    monkeypatch.setattr("cdp.config.environment.find_spec", lambda name: None)
    assert check_networks(recipe_with({"base.network": "nobody"})) is False
