"""The sections: the contract's keys and defaults, and one definition of the training settings."""

import json
from dataclasses import fields, replace

import pytest
from tests.refusals import refuses

from cdp.config.sections import (
    SECTIONS,
    ConsensusSection,
    EngineSection,
    EvaluationSection,
    JointSection,
    RunRecipe,
    TrainSection,
)
from cdp.nets.recipe import Recipe, TrainingSettings
from cdp.runtime.settings import RuntimeSettings
from cdp.scoring.settings import ConsensusSettings
from cdp.settings import settings_of, slice_of


def test_every_field_is_a_setting_with_a_sentence():
    assert set(settings_of(RunRecipe)) == {field.name for field in fields(RunRecipe)} - set(SECTIONS)
    for owner in (RunRecipe, Recipe, *SECTIONS.values()):
        known = settings_of(owner)
        assert owner is RunRecipe or set(known) == {field.name for field in fields(owner)}
        for one in known.values():
            assert one.help[0].isupper() or one.help[0].isdigit() or one.help.startswith("k-NN"), one
            assert one.help.endswith("."), one


def test_training_settings_become_the_recipe_of_the_networks():
    assert slice_of(TrainSection(folds=2, size=32), TrainingSettings) == TrainingSettings()
    section = JointSection(rate=0.1, loss="cosface", rounds=2, size=32)
    assert slice_of(section, TrainingSettings) == TrainingSettings(epochs=8, rate=0.1, loss="cosface")
    assert settings_of(TrainSection)["rate"] == settings_of(Recipe)["rate"]


def test_the_networks_recipe_is_what_it_was():
    """Cards and unfinished runs hold these values; another spelling would orphan them."""
    assert Recipe().as_dict() == {
        "epochs": 20, "batch": 128, "rate": 0.05, "momentum": 0.9, "weight_decay": 5e-4, "schedule": "one_cycle",
        "size": 32, "scale": 0, "color": True, "dimensions": 256, "loss": "softmax", "margin": 0.0,
        "logit_scale": 0.0, "dropout": 0.4, "label_smoothing": 0.0, "flip": False, "shift": 0.0, "rotate": 0.0,
        "zoom": 0.0, "sample_classes": 1.0, "shard_classes": False, "precision": "float32",
        "channels_last": True, "compile": False, "seed": 0,
    }  # fmt: skip
    assert repr(Recipe().epochs) == "20"
    for key, value, code in (
        ("rate", -1, "setting-out-of-range"),
        ("epochs", 0, "setting-out-of-range"),
        ("loss", "x", "setting-choice-unknown"),
        ("size", 4, "setting-out-of-range"),
    ):
        with refuses(code, key=key, value=value):
            replace(Recipe(), **{key: value})
    with refuses("scale-below-size", scale=20, size=32):
        replace(Recipe(), scale=20)
    with refuses("sampling-needs-softmax"):
        Recipe(shard_classes=True, label_smoothing=0.1)


@pytest.mark.parametrize(
    ("section", "wrong", "code", "fields"),
    [
        (TrainSection, {"epochs": 0}, "setting-out-of-range", {"key": "train.epochs", "value": 0}),
        (TrainSection, {"zoom": 1}, "setting-out-of-range", {"key": "train.zoom", "value": 1}),
        (TrainSection, {"momentum": 2}, "setting-out-of-range", {"key": "train.momentum", "value": 2}),
        (
            JointSection,
            {"scale": 20, "size": 32},
            "scale-below-size", {"scale": 20, "size": 32},
        ),
        (
            JointSection,
            {"sample_classes": 0.5, "loss": "arcface"},
            "sampling-needs-softmax", {},
        ),
        (JointSection, {"labeled_share": -0.5}, "setting-out-of-range", {"key": "joint.labeled_share", "value": -0.5}),
        (ConsensusSection, {"threshold": 96}, "threshold-out-of-range", {"key": "consensus.threshold", "value": 96}),
        (TrainSection, {"folds": 1}, "setting-out-of-range", {"key": "train.folds", "value": 1}),
        (ConsensusSection, {"step": 1}, "setting-out-of-range", {"key": "consensus.step", "value": 1}),
        (
            EngineSection,
            {"memory_budget": "much"},
            "memory-budget-not-a-size", {"key": "engine.memory_budget", "value": "much"},
        ),
        (RunRecipe, {"seed": -1}, "setting-out-of-range", {"key": "seed", "value": -1}),
        (RunRecipe, {"seed": 1.5}, "setting-type-wrong", {"key": "seed", "value": 1.5}),
    ],
)  # fmt: skip
def test_wrong_values_are_named_by_section(section, wrong, code, fields):
    with refuses(code, **fields):
        section(**wrong)


def test_plain_values_survive_json():
    values = RunRecipe(seed=7).as_dict()
    assert json.loads(json.dumps(values)) == values
    assert values["evaluation"]["fpr"] == [0.01, 0.001]
    assert list(values) == ["seed", *SECTIONS]


def test_settings_are_shared_not_copied():
    for section, owner in (
        (TrainSection, TrainingSettings),
        (ConsensusSection, ConsensusSettings),
        (EngineSection, RuntimeSettings),
    ):
        # A run chooses the size by its images, which `cdp train` does not look at.
        known = {name: one for name, one in settings_of(owner).items() if name != "size"}
        assert {name: settings_of(section)[name] for name in known} == known
    assert issubclass(Recipe, TrainingSettings)


def test_an_empty_list_of_rates_is_refused():
    with refuses("evaluation-fpr-empty", key="evaluation.fpr"):
        EvaluationSection(fpr=[])
