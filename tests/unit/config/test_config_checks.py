"""What keys must not be together, and what a recipe names outside itself."""

import pytest

from cdp.config.checks import check_recipe
from cdp.config.environment import check_networks, check_paths
from cdp.config.reading import recipe_from
from cdp.errors import InputError

TESTED = {"split.probes": 0.1, "split.distractors": 0.1}
IMAGES = {"data.images": "faces", **TESTED}
PARTS = {"data.labeled": "a", "data.unlabeled": ["b"], "data.test": "c"}
DRAWN = {"data.images": "drawn"}


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
        DRAWN,
        {**IMAGES, "consensus.tune": True, "split.validation": 0.1},
        {**PARTS, "consensus.tune": True, "data.validation": "v"},
        {**PARTS, "split.labeled": 1.0},  # nothing is split
        {"data.images": "faces", "data.test": "t"},
        {**DRAWN, "drawn.test_identities": 0, **TESTED},
        {**IMAGES, "committee.networks": [], "consensus.mediator": "vote", "consensus.quorum": 0},
        {**IMAGES, "committee.networks": ["small_resnet:0", "small_resnet:1"]},
        {**DRAWN, "drawn.size": 16, "train.enlarge": True, "joint.enlarge": True},
    ],
)
def test_recipes_that_can_be_run(values):
    assert check_recipe(recipe_with(values)) is None


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (
            {},
            "data.images and data.labeled are both empty: name the images that are to be split (data.images, "
            '"drawn" for drawn faces), or parts that are split already (data.labeled and data.unlabeled).',
        ),
        (
            {**IMAGES, **PARTS},
            "data.images and data.labeled are both given: images are split here, labeled is split already; leave one "
            "of them empty.",
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
            {"data.images": "faces"},
            "There is nobody to be found again: give split.probes and split.distractors a share of the images, e.g. "
            "0.1 each, or name other images in data.test.",
        ),
        (
            {**DRAWN, "drawn.test_identities": 0},
            "There is nobody to be found again: give split.probes and split.distractors a share of the images, e.g. "
            "0.1 each, or name other images in data.test (or drawn.test_identities).",
        ),
        (
            {**PARTS, "data.test": ""},
            "There is nobody to be found again: name images with identities in data.test.",
        ),
        (
            {"data.images": "faces", "split.probes": 0.1},
            "split.distractors = 0: evaluation needs probes and distractors; give both a share, e.g. 0.1.",
        ),
        (
            {"data.images": "faces", "split.distractors": 0.1},
            "split.probes = 0: evaluation needs probes and distractors; give both a share, e.g. 0.1.",
        ),
        (
            {**IMAGES, "data.test": "t"},
            "split.probes and split.distractors do not go with data.test, which has both: set them to 0, or set "
            'data.test = "".',
        ),
        (
            {**DRAWN, **TESTED},
            "split.probes and split.distractors do not go with drawn.test_identities, which has both: set them to 0, "
            "or set drawn.test_identities = 0.",
        ),
        (
            {**DRAWN, "data.test": "t"},
            "data.test and drawn.test_identities are both given: leave data.test empty, or set "
            "drawn.test_identities = 0.",
        ),
        (
            {**PARTS, "split.test_probes": 1.0},
            "split.test_probes = 1: nobody is left to be a distractor; give a smaller share, e.g. 0.5.",
        ),
        (
            {**DRAWN, "drawn.test_identities": 1},
            "drawn.test_identities = 1 with split.test_probes = 0.5: there must be a probe and a distractor at least; "
            "draw more.",
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
            {**IMAGES, "consensus.inputs": []},
            "consensus.inputs is empty: the mediator must hear something, e.g. affinity.",
        ),
        (
            {**IMAGES, "consensus.inputs": ["affinity", "affinity"]},
            "consensus.inputs names one input twice: affinity and affinity; remove one.",
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
            {**IMAGES, "consensus.mediator": "vote", "consensus.folds": 3},
            "consensus.folds = 3 is about how the mediator learns, and a vote does not learn: set consensus.folds = 0, "
            'or consensus.mediator = "mlp".',
        ),
        (
            {**IMAGES, "consensus.mediator": "hierarchical", "consensus.folds": 2},
            "consensus.folds = 2 is about how the mediator learns, and clustering does not learn: set "
            'consensus.folds = 0, or consensus.mediator = "mlp".',
        ),
        (
            {**IMAGES, "consensus.mediator": "hierarchical", "joint.soft_depth": 3},
            "joint.soft_depth = 3: soft labels come from accepted pairs, and clustering has none: set "
            'joint.soft_depth = 0, or consensus.mediator = "mlp".',
        ),
        (
            {**IMAGES, "split.validation": 0.1, "consensus.tune": True, "consensus.pair_recall": 0.3},
            "consensus.tune and consensus.pair_recall both choose the threshold: set consensus.tune = false, or "
            "consensus.pair_recall = -1.",
        ),
        (
            {**IMAGES, "consensus.grouping": "average", "consensus.pair_recall": 0.3},
            "consensus.pair_recall is about accepted pairs, which only grouping components has with mediator mlp or "
            "vote: set consensus.pair_recall = -1.",
        ),
        (
            {**IMAGES, "data.truth": False, "consensus.pair_recall": 0.3},
            "consensus.pair_recall looks at the truth, and data.truth is false: set consensus.pair_recall = -1.",
        ),
        (
            {**IMAGES, "consensus.tune": True},
            "consensus.tune needs images to choose the threshold on: give split.validation a share, e.g. 0.1, or set "
            "consensus.tune = false.",
        ),
        (
            {**PARTS, "consensus.tune": True},
            "consensus.tune needs images to choose the threshold on: name some with identities in data.validation, or "
            "set consensus.tune = false.",
        ),
        (
            {**DRAWN, "drawn.size": 36, "joint.scale": 38},
            "drawn.size = 36: joint wants images of 38 pixels a side; draw them larger, or set joint.enlarge = true.",
        ),
    ],
)
def test_recipes_that_cannot_be_run(values, message):
    with pytest.raises(InputError) as caught:
        check_recipe(recipe_with(values))
    assert str(caught.value) == message


def test_paths_must_be_there(tmp_path):
    (tmp_path / "s-0.tar").touch()
    (tmp_path / "s-1.tar").touch()
    there = str(tmp_path)
    check_paths(recipe_with(DRAWN))
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
