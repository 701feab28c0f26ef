"""What keys must not be together, and what a recipe names outside itself."""

import pytest

from cdp.config.checks import check_recipe
from cdp.config.environment import check_environment, check_networks, check_paths, source_kind
from cdp.config.reading import recipe_from
from cdp.errors import InputError

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
        {**IMAGES, "consensus.tune": True, "split.validation": 0.0},
        {**PARTS, "consensus.tune": True, "data.validation": "v"},
        {**PARTS, "split.labeled": 1.0},  # nothing is split
        {**PARTS, **TESTED},
        {"data.images": "faces", "data.test": "t"},
        {**IMAGES, "committee.networks": [], "consensus.mediator": "vote", "consensus.quorum": 0},
        {**IMAGES, "committee.networks": ["small_resnet:0", "small_resnet:1"]},
    ],
)
def test_recipes_that_can_be_run(values):
    assert check_recipe(recipe_with(values)) is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {},
            "data.images, data.embeddings and data.labeled are all empty: name what is to be split (data.images or "
            "data.embeddings), or parts that are split already (data.labeled and data.unlabeled).",
        ),
        (
            {**IMAGES, **PARTS},
            "data.images and data.labeled are both given: images and embeddings are split here, labeled is split "
            "already; leave one of them empty.",
        ),
        (
            {**PARTS, "data.unlabeled": []},
            "data.labeled is given without data.unlabeled: name the unlabeled parts too.",
        ),
        ({**PARTS, "data.unlabeled": [""]}, "data.unlabeled holds an empty path: remove it."),
        (
            {**IMAGES, "data.validation": "v"},
            "data.validation goes with data.labeled; with data.images the part comes from [split]: leave "
            "data.validation empty.",
        ),
        (
            {**IMAGES, "split.labeled": 1.0},
            "split.labeled = 1: nothing is left to be labeled; give a smaller share, e.g. 0.1.",
        ),
        (
            {**IMAGES, "split.validation": 0.8},
            "split.validation, split.probes and split.distractors together are 1 or more: leave a share of the images "
            "for training.",
        ),
        (
            {**IMAGES, "split.use_parts": 11},
            "split.use_parts = 11: there are 10 unlabeled parts; use as many at most, or raise split.unlabeled_parts.",
        ),
        (
            {"data.images": "faces", "split.probes": 0.1, "split.distractors": 0},
            "split.distractors = 0: evaluation needs probes and distractors; give both a share, e.g. 0.1.",
        ),
        (
            {"data.images": "faces", "split.distractors": 0.1, "split.probes": 0},
            "split.probes = 0: evaluation needs probes and distractors; give both a share, e.g. 0.1.",
        ),
        (
            {**IMAGES, "data.test": "t"},
            "split.probes and split.distractors do not go with data.test, which has both: set them to 0.",
        ),
        (
            {**PARTS, "split.test_probes": 1.0},
            "split.test_probes = 1: no distractors are left; give a smaller share, e.g. 0.5.",
        ),
        (
            {**IMAGES, "base.network": "small_resnet:x"},
            'base.network: "small_resnet:x" is not NAME or NAME:SEED with a whole number, e.g. small_resnet:1.',
        ),
        (
            {**IMAGES, "committee.networks": [""]},
            'committee.networks: "" is not NAME or NAME:SEED with a whole number, e.g. small_resnet:1.',
        ),
        (
            {**IMAGES, "committee.networks": ["small_resnet"]},
            'committee.networks: "small_resnet" is there already (in base.network); another of the same kind needs '
            "another seed, e.g. small_resnet:1.",
        ),
        (
            {**IMAGES, "committee.networks": ["a:1", "a:01"]},
            'committee.networks: "a:01" is there already (in committee.networks); another of the same kind needs '
            "another seed, e.g. a:1.",
        ),
        (
            {**IMAGES, "consensus.inputs": ["relationship"], "committee.networks": []},
            "consensus.inputs has relationship only, which is about the committee, and committee.networks is empty: "
            "add affinity, or members.",
        ),
        (
            {**IMAGES, "consensus.quorum": 5},
            "consensus.quorum = 5: the committee has 4 members; ask for as many at most, or -1 for all.",
        ),
        (
            {**IMAGES, "consensus.mediator": "vote", "train.folds": 3},
            "train.folds = 3 is about how the mediator is trained, and a vote is not: set train.folds = 0, or "
            'consensus.mediator = "mlp".',
        ),
        (
            {**IMAGES, "consensus.train_on": "validation", "train.folds": 2},
            'consensus.train_on = "validation" and train.folds = 2 both say what the mediator is trained on: set '
            'train.folds = 0, or consensus.train_on = "labeled".',
        ),
        (
            {**IMAGES, "consensus.train_on": "validation", "split.validation": 0},
            'consensus.train_on = "validation" needs a validation part: give split.validation a share, e.g. 0.1, or '
            "data.validation.",
        ),
        (
            {**PARTS, "consensus.train_on": "validation"},
            'consensus.train_on = "validation" needs a validation part: give split.validation a share, e.g. 0.1, or '
            "data.validation.",
        ),
        (
            {**IMAGES, "joint.rounds": 2, "train.folds": 2},
            "joint.rounds = 2 with train.folds = 2: networks of a later round have seen all labeled identities: set "
            "train.folds = 0, or joint.rounds = 1.",
        ),
    ],
)
def test_recipes_that_cannot_be_run(values, message):
    with pytest.raises(InputError) as caught:
        check_recipe(recipe_with(values))
    assert str(caught.value) == message


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
    with pytest.raises(InputError) as caught:
        source_kind(recipe_with(values))
    named = {key: f"data.{key}{'[0]' if key == 'unlabeled' else ''}" for key in keys}
    views = next(named[key] for key in keys if key != other)
    assert str(caught.value) == (
        f"{views} holds embeddings and {named[other]} holds images: give all parts as images, or all as embeddings."
    )


def test_embeddings_given_as_images_are_named(embeddings):
    with pytest.raises(InputError) as caught:
        source_kind(recipe_with({"data.images": embeddings}))
    assert str(caught.value) == (f"data.images = {embeddings} holds embeddings: give it as data.embeddings.")


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "data.rotations",
            True,
            "data.rotations is about images, and there are embeddings only: leave it out.",
        ),
        (
            "joint.rounds",
            2,
            "joint.rounds trains networks, and there are embeddings only: set joint.rounds = 1.",
        ),
        (
            "train.folds",
            2,
            "train.folds trains networks, and there are embeddings only: set train.folds = 0.",
        ),
    ],
)
@pytest.mark.parametrize("is_split", [True, False])
def test_what_only_images_have_is_refused_for_embeddings(embeddings, is_split, key, value, message):
    """Whether they are split here or in parts; parts used to be rotated row by row."""
    source = (
        {"data.embeddings": embeddings}
        if is_split
        else {"data.labeled": embeddings, "data.unlabeled": [embeddings]}
    )
    assert check_environment(recipe_with(source)) is False
    with pytest.raises(InputError) as caught:
        check_environment(recipe_with({**source, key: value}))
    assert str(caught.value) == message


def test_paths_must_be_there(tmp_path):
    (tmp_path / "s-0.tar").touch()
    (tmp_path / "s-1.tar").touch()
    there = str(tmp_path)
    check_paths(recipe_with({"data.labeled": there, "data.unlabeled": [f"{there}/s-{{0..1}}.tar", there]}))
    gone = f"{there}/gone"
    for key, value, named in (
        ("images", gone, "images"),
        ("unlabeled", [there, gone], "unlabeled[1]"),
        ("test", gone, "test"),
        ("root", gone, "root"),
        ("skip", f"{gone}", "skip"),
    ):
        with pytest.raises(InputError) as caught:
            check_paths(recipe_with({f"data.{key}": value}))
        assert str(caught.value) == (
            f"data.{named} = {gone}: no such file or folder; relative paths start from the recipe's folder, and "
            "data/ is also looked for in the working directory and in $CDP_DATA."
        )
    with pytest.raises(InputError, match=r"^data\.images: .*s-2\.tar"):
        check_paths(recipe_with({"data.images": f"{there}/s-{{0..2}}.tar"}))


@pytest.mark.slow
def test_networks_must_be_known():
    pytest.importorskip("torch")
    assert check_networks(recipe_with({"committee.networks": ["small_vgg:3"]}))
    with pytest.raises(
        InputError, match=r"^committee\.networks: network 'small_vg' .* Did you mean small_vgg\?$"
    ):
        check_networks(recipe_with({"committee.networks": ["small_vg"]}))
    with pytest.raises(InputError) as caught:
        check_networks(recipe_with({"base.network": "inception_resnet_v2", "train.size": 299}))
    assert str(caught.value).startswith("base.network: inception_resnet_v2 needs images of ")
    assert "joint.size is 32; choose a larger size or a small network (cdp networks)." in str(caught.value)


def test_without_torch_networks_are_not_checked(monkeypatch):
    monkeypatch.setattr("cdp.config.environment.find_spec", lambda name: None)
    assert check_networks(recipe_with({"base.network": "nobody"})) is False
