"""Stages and their keys: each follows from its settings, its inputs and its version, and from nothing else."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from cdp.config.checks import check_recipe
from cdp.config.reading import recipe_from
from cdp.config.sections import SECTIONS, RunRecipe
from cdp.run.plan import make_stages
from cdp.run.sources import Facts, resolve
from cdp.run.stages import Stage, only
from cdp.settings import settings_of

IMAGES = Facts("images")
VIEWS = Facts("embeddings", models=("base", "member"))
BASIC = {
    "data.images": "x",
    "base.network": "a",
    "committee.networks": ["b"],
    "split.validation": 0.1,
    "split.probes": 0.1,
    "split.distractors": 0.1,
}
SETTINGS = {
    "one round": {},
    "three rounds": {"joint.rounds": 3, "consensus.soft_depth": 2},
    "folds": {"train.folds": 2},
    "without validation": {"split.validation": 0.0},
}


def stages(facts: Facts = IMAGES, **values: Any) -> dict[str, Stage]:
    recipe = recipe_from({}, {**BASIC, **values})
    check_recipe(recipe)
    return {stage.name: stage for stage in make_stages(resolve(recipe, facts))}


def keys(made: dict[str, Stage]) -> dict[str, str]:
    """Keys if all inputs were the same."""
    return {name: stage.key(dict.fromkeys(stage.needs, "same")) for name, stage in made.items()}


def changed(one: dict[str, Stage], other: dict[str, Stage]) -> set[str]:
    """Names of the stages of both plans whose keys differ."""
    before, after = keys(one), keys(other)
    assert before.keys() == after.keys()
    return {name for name in before if before[name] != after[name]}


def other_value(value: Any) -> Any:
    """Another value of the same type that a setting takes."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 2
    if value is None:
        return 0.5
    if isinstance(value, float):
        return value + 0.0625
    return f"{value}x" if isinstance(value, str) else (*value, "x")


def variations(settings: Any) -> Iterator[tuple[str, Any]]:
    """Every field of a settings dataclass, however deep, and the settings with that one changed."""
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        inner = variations(value) if dataclasses.is_dataclass(value) else [("", other_value(value))]
        for name, changed_value in inner:
            copy = dataclasses.replace(settings)
            # Past the checks of the constructor: a key must follow from any value.
            object.__setattr__(copy, field.name, changed_value)
            yield f"{field.name}.{name}".rstrip("."), copy


@pytest.mark.parametrize("facts", [IMAGES, VIEWS], ids=["images", "embeddings"])
def test_the_key_changes_with_every_field_of_the_settings_and_with_the_version(facts):
    made = stages(facts) | (stages(facts, **SETTINGS["folds"]) if facts is IMAGES else {})
    bodies = {stage.body.__name__ for stage in made.values()}
    if facts is IMAGES:
        assert bodies == {
            "split_sources", "train_network", "embed_parts", "label_images", "train_on_both", "train_bound",
            "measure_recognition", "measure_members",
        }  # fmt: skip
    for stage in made.values():
        digests = dict.fromkeys(stage.needs, "same")
        seen = {stage.key(digests)}
        names = []
        for name, settings in variations(stage.settings):
            key = dataclasses.replace(stage, settings=settings).key(digests)
            if name in stage.idle:
                assert key == stage.key(digests), name
                continue
            names.append(name)
            seen.add(key)
        assert len(seen) == 1 + len(names), (stage.name, names)

        def newer(settings, context):
            pass

        newer.version = stage.body.version + 1
        assert dataclasses.replace(stage, body=newer).key(digests) not in seen
        for name in stage.needs:
            assert stage.key({**digests, name: "other"}) not in seen


LABELED_BY = {
    "k": ("consensus.k", 5),
    "method": ("consensus.method", "exact"),
    "mediator": ("consensus.mediator", "vote"),
    "grouping": ("consensus.grouping", "components"),
    "threshold": ("consensus.threshold", 0.5),
    "beta": ("consensus.beta", 2.0),
}


@pytest.mark.parametrize("trained_on", ["validation", "folds", "labeled"])
@pytest.mark.parametrize("key", LABELED_BY)
def test_labels_go_stale_with_whatever_the_mediator_and_the_groups_depend_on(trained_on, key):
    """The mediator's key used to lack `method` where it was trained on validation images or folds."""
    basic = {
        "validation": {"consensus.train_on": "validation"},
        "folds": {"train.folds": 2},
        "labeled": {"consensus.train_on": "labeled"},
    }[trained_on]
    name, value = LABELED_BY[key]
    if (trained_on, key) == ("folds", "mediator"):
        pytest.skip("a vote is not trained")
    assert changed(stages(**basic), stages(**basic, **{name: value})) == {"label"}


def all_keys() -> Iterator[tuple[str, Any]]:
    for section, kind in SECTIONS.items():
        yield from ((f"{section}.{name}", one) for name, one in settings_of(kind).items())


def test_nothing_else_in_the_recipe_makes_labels_stale():
    """RuntimeSettings, evaluation and the like change no key of a stage that they do not change."""
    values: dict[str, Any] = {
        "consensus.preset": "paper",
        "engine.device": "cuda:1",
        "engine.threads": 3,
        "engine.memory_budget": "1GB",
        "engine.checkpoint_every": 7,
    }
    # A preset's name alone is no setting: the same values have the same keys.
    same = {
        f"consensus.{name}": value
        for name, value in RunRecipe().as_dict()["consensus"].items()
        if name != "preset"
    }
    for key, value in values.items():
        assert changed(stages(**same), stages(**same, **{key: value})) == set(), key
    tested = {"measure recognition", "measure members"}
    for key, value, stale in (
        ("evaluation.fpr", [0.5], tested),
        ("evaluation.replicates", 70, tested),
        ("evaluation.pairs", 100, tested),
        ("evaluation.ensemble", 2, {"measure members"}),
        ("joint.rate", 0.01, {"train with pseudo-labels", "train with all labels"}),
        ("joint.labeled_share", 0.5, {"train with pseudo-labels"}),
        ("train.rate", 0.01, {"train a", "train b"}),
        ("split.labeled", 0.5, {"split"}),
        ("data.truth", False, {"split"}),
        ("consensus.soft_decay", 0.5, set()),
        ("consensus.inputs", ["affinity"], set()),
        ("consensus.min_votes", 1, set()),
        ("consensus.step", 0.2, set()),
        ("split.test_probes", 0.3, set()),
        ("train.margin", 0.2, set()),
        ("train.dropout", 0.2, set()),
        ("train.compile", True, set()),
        ("joint.channels_last", False, set()),
        ("joint.least_precision", 0.0, set()),
        ("consensus.soft_depth", 2, {"label", "train with pseudo-labels"}),
    ):
        before, after = (
            stages(**{"evaluation.bound": False}),
            stages(**{"evaluation.bound": False, key: value}),
        )
        if key == "joint.rate":
            before, after = stages(), stages(**{key: value})
        assert changed(before, after) == stale, key


@pytest.mark.parametrize(
    ("given", "key", "value"),
    [
        ({"train.loss": "arcface", "joint.loss": "arcface"}, "train.dropout", 0.2),
        ({"train.loss": "cosface", "joint.loss": "cosface"}, "train.margin", 0.2),
        ({"consensus.soft_depth": 2}, "consensus.soft_decay", 0.5),
        ({"consensus.preset": "paper"}, "consensus.inputs", ["affinity"]),
        ({"consensus.preset": "paper"}, "consensus.step", 0.2),
        ({"consensus.mediator": "vote"}, "consensus.min_votes", 1),
        ({}, "consensus.beta", 2.0),
        ({}, "consensus.recall", 0.9),
        ({"data.test": "t", "split.probes": 0.0, "split.distractors": 0.0}, "split.test_probes", 0.3),
    ],
)
def test_a_setting_that_something_else_wakes_is_in_the_key_again(given, key, value):
    assert changed(stages(**given), stages(**given, **{key: value})) != set()


def test_moved_weights_are_the_same_weights():
    """Their contents are an input; the path used to be a setting."""
    one, other = (stages(**{"base.weights": f"{name}/a.safetensors"}) for name in ("here", "there"))
    assert changed(one, other) == set()


def test_every_key_of_a_recipe_is_in_some_stage_or_in_none_by_intent():
    """What a key changes follows from the stages' own settings; a key that none has is about something else."""
    held = set()
    for made in (stages(), stages(**SETTINGS["folds"]), stages(VIEWS)):
        for stage in made.values():
            held |= {name.rpartition(".")[2] for name, _ in variations(stage.settings)}
    free = {key for key, one in all_keys() if one.name not in held and not key.startswith("data.")}
    assert free == {
        # Which stages there are, and from which networks.
        "committee.networks", "joint.rounds", "joint.least_precision", "evaluation.bound", "evaluation.members", "base.weights",
        # How, not what.
        "engine.device", "engine.threads", "engine.memory_budget", "engine.checkpoint_every",
        "engine.engine", "engine.ray_address",
    }  # fmt: skip
    # Of the sources their contents count.
    assert {"rotations", "truth"} <= held


@pytest.mark.parametrize("values", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("facts", [IMAGES, VIEWS], ids=["images", "embeddings"])
def test_what_a_stage_needs_is_made_before_it_and_nothing_is_made_twice(facts, values):
    if facts is VIEWS and {"joint.rounds", "train.folds"} & set(values):
        pytest.skip("nothing is trained")
    found = stages(facts, **values)
    made = {"images"}
    for stage in found.values():
        assert set(stage.needs) <= made, stage.name
        assert not set(stage.makes) & made
        made |= set(stage.makes)
    paths = [path for stage in found.values() for path in stage.makes.values()]
    assert len(set(paths)) == len(paths)


def test_one_round_is_the_papers_way():
    assert not [name for name in stages() if "round" in name]


def test_every_round_is_trained_on_the_one_before():
    found = stages(**{"joint.rounds": 3})
    assert found["train round2/a"].needs == ("labeled", "unlabeled", "round1 labels")
    assert found["train round3/b"].needs == ("labeled", "unlabeled", "round2 labels")
    assert found["train with pseudo-labels"].needs == ("labeled", "unlabeled", "labels")
    assert "round2/b of unlabeled" in found["round2 label"].needs
    assert "round3/b of unlabeled" in found["label"].needs
    assert "networks/a of unlabeled" not in found["label"].needs
    assert found["round1 label"].makes == {"round1 labels": "rounds/1/labels"}
    assert found["label"].makes == {"labels": "labels"}
    names = [stage.name for stage in only(list(found.values()), ["round2 labels"])]
    assert "train round2/a" in names
    assert "train round3/a" not in names


def test_with_distillation_the_base_follows_the_networks_of_the_last_round_and_no_other_does():
    one, two = stages(**{"joint.distill": 2.0}), stages(**{"joint.distill": 2.0, "joint.rounds": 2})
    seen = ("networks/a of unlabeled", "networks/b of unlabeled")
    assert one["train with pseudo-labels"].needs == ("labeled", "unlabeled", "labels", *seen)
    seen = ("round2/a of unlabeled", "round2/b of unlabeled")
    assert two["train with pseudo-labels"].needs == ("labeled", "unlabeled", "labels", *seen)
    assert changed(stages(**{"joint.rounds": 2}), two) == {"train with pseudo-labels"}
    assert changed(stages(), one) == {"train with pseudo-labels"}


def test_the_mediator_is_trained_on_folds_that_its_networks_did_not_see():
    found = stages(**{"train.folds": 2})
    assert found["train fold1/b"].needs == ("without_fold1",)
    assert found["embed fold1/b"].makes == {"fold1/b of fold1": "embeddings/fold1/b/fold1"}
    assert {"fold1", "fold2", "fold2/b of fold2", "networks/b of unlabeled"} <= set(found["label"].needs)
    assert "labeled" not in found["label"].needs
    assert "without_fold2" in found["split"].makes


def test_who_is_the_base_and_the_order_of_members_are_part_of_the_key():
    def label_keys(base: str, *members: str) -> set[str]:
        made = keys(stages(**{"base.network": base, "committee.networks": list(members)}))
        return {made["label"], made["measure members"]}

    first = label_keys("a", "b", "c")
    assert first == label_keys("a", "b", "c")
    for other in (label_keys("b", "a", "c"), label_keys("a", "c", "b")):
        assert not first & other


def test_views_by_other_models_are_other_views():
    """A study of committees on one folder of embeddings used to label every committee with the first one's views."""
    one, other = stages(VIEWS), stages(Facts("embeddings", models=("base",)))
    assert changed(one, other) == {"views", "test views", "label", "measure members"}


def test_a_test_part_does_not_change_the_labels():
    """Counts of all parts used to be an input of the labels."""
    without = {"split.probes": 0.0, "split.distractors": 0.0}
    for facts in (IMAGES, VIEWS):
        one, other = stages(facts)["label"], stages(facts, **without)["label"]
        assert one.needs == other.needs
        assert one.settings == other.settings


def test_without_a_test_part_nothing_is_tested_and_without_truth_there_is_no_bound():
    bare = {"split.probes": 0.0, "split.distractors": 0.0}
    for facts in (IMAGES, VIEWS):
        found = stages(facts, **bare)
        assert not [name for name in found if name.startswith(("test", "measure", "train with all"))]
        assert "probes" not in found["split"].makes
    assert "train with pseudo-labels" in stages(**bare)
    assert "train with all labels" in stages()
    assert "train with all labels" not in stages(Facts("images", unlabeled_known=False))
    assert "train with all labels" not in stages(**{"data.truth": False})
    assert "measure recognition" in stages(**{"data.truth": False})
