"""The sections: the contract's keys and defaults, and one definition of the training settings."""

import json
from dataclasses import fields, replace

import pytest

from cdp.config.sections import (
    SECTIONS,
    ConsensusSection,
    EngineSection,
    EvaluationSection,
    JointSection,
    RunRecipe,
    TrainSection,
)
from cdp.consensus.settings import ConsensusSettings, slice_of
from cdp.engine import Engine
from cdp.errors import InputError
from cdp.nets.recipe import Recipe, TrainingSettings
from cdp.settings import settings_of


def test_every_field_is_a_setting_with_a_sentence():
    assert set(settings_of(RunRecipe)) == {field.name for field in fields(RunRecipe)} - set(SECTIONS)
    for owner in (RunRecipe, Recipe, *SECTIONS.values()):
        known = settings_of(owner)
        assert owner is RunRecipe or set(known) == {field.name for field in fields(owner)}
        for one in known.values():
            assert one.help[0].isupper() or one.help[0].isdigit(), one
            assert one.help.endswith("."), one


def test_training_settings_become_the_recipe_of_the_networks():
    assert slice_of(TrainSection(folds=2), TrainingSettings) == TrainingSettings()
    section = JointSection(rate=0.1, loss="cosface", rounds=2)
    assert slice_of(section, TrainingSettings) == TrainingSettings(epochs=8, rate=0.1, loss="cosface")
    assert settings_of(TrainSection)["rate"] == settings_of(Recipe)["rate"]


def test_the_networks_recipe_is_what_it_was():
    """Cards and unfinished runs hold these values; another spelling would orphan them."""
    assert Recipe().as_dict() == {
        "epochs": 20, "batch": 128, "rate": 0.05, "momentum": 0.9, "weight_decay": 5e-4, "schedule": "one_cycle",
        "size": 32, "scale": 0, "color": True, "dimensions": 256, "loss": "softmax", "margin": 0.0,
        "logit_scale": 0.0, "dropout": 0.4, "label_smoothing": 0.0, "flip": False, "shift": 0.0, "rotate": 0.0,
        "zoom": 0.0, "enlarge": False, "sample_classes": 1.0, "shard_classes": False, "precision": "float32",
        "channels_last": True, "compile": False, "seed": 0,
    }  # fmt: skip
    assert repr(Recipe().epochs) == "20"
    for wrong, message in {
        ("rate", -1): "rate = -1: the highest learning rate from 0 to 1000.",
        ("epochs", 0): "epochs = 0: a number of passes over the images, above 0 and at most 1e+06.",
        ("loss", "x"): 'loss = "x": choose one of softmax, arcface, cosface.',
        ("size", 4): "size = 4: pixels a side, 8 or more.",
        (
            "scale",
            20,
        ): "scale = 20, size = 32: a crop of 32 does not fit into 20; scale is 0 or at least size.",
    }.items():
        with pytest.raises(InputError) as caught:
            replace(Recipe(), **dict([wrong]))
        assert str(caught.value) == message
    with pytest.raises(InputError) as caught:
        Recipe(shard_classes=True, label_smoothing=0.1)
    assert str(caught.value) == (
        "sample_classes, shard_classes: these work with the softmax loss without smoothing only."
    )


@pytest.mark.parametrize(
    ("section", "wrong", "message"),
    [
        (TrainSection, {"epochs": 0}, "train.epochs = 0: a number of passes over the images, above 0 and at most 1e+06."),
        (TrainSection, {"zoom": 1}, "train.zoom = 1: a share from 0 to 0.9."),
        (TrainSection, {"momentum": 2}, "train.momentum = 2: the momentum of SGD from 0 to 1. Did you mean 0.02?"),
        (
            JointSection,
            {"scale": 20},
            "joint.scale = 20, joint.size = 32: a crop of 32 does not fit into 20; scale is 0 or at least size.",
        ),
        (
            JointSection,
            {"sample_classes": 0.5, "loss": "arcface"},
            "joint.sample_classes, joint.shard_classes: these work with the softmax loss without smoothing only.",
        ),
        (JointSection, {"labeled_share": -0.5}, "joint.labeled_share = -0.5: a share from 0 to 1, or -1."),
        (ConsensusSection, {"threshold": 96}, "consensus.threshold = 96: a probability from 0 to 1. Did you mean 0.96?"),
        (TrainSection, {"folds": 1}, "train.folds = 1: a number of folds, 2 or more, or 0."),
        (ConsensusSection, {"step": 1}, "consensus.step = 1: a share, above 0 and below 1."),
        (
            EngineSection,
            {"memory_budget": "much"},
            "engine.memory_budget: 'much' is not a size; write for example '2GB' or '500MB'.",
        ),
        (RunRecipe, {"seed": -1}, "seed = -1: a whole number from 0 to 4294967295."),
        (RunRecipe, {"seed": 1.5}, "seed = 1.5: a whole number is needed, not a number with a point."),
    ],
)  # fmt: skip
def test_wrong_values_are_named_by_section(section, wrong, message):
    with pytest.raises(InputError) as caught:
        section(**wrong)
    assert str(caught.value) == message


def test_plain_values_survive_json():
    values = RunRecipe(seed=7).as_dict()
    assert json.loads(json.dumps(values)) == values
    assert values["evaluation"]["fpr"] == [0.01, 0.001]
    assert list(values) == ["seed", *SECTIONS]


def test_settings_are_shared_not_copied():
    for section, owner in (
        (TrainSection, TrainingSettings),
        (ConsensusSection, ConsensusSettings),
        (EngineSection, Engine),
    ):
        assert {name: settings_of(section)[name] for name in settings_of(owner)} == dict(settings_of(owner))
    assert issubclass(Recipe, TrainingSettings)


def test_an_empty_list_of_rates_is_refused():
    with pytest.raises(InputError) as caught:
        EvaluationSection(fpr=[])
    assert str(caught.value) == "evaluation.fpr is empty: give at least one rate, e.g. [0.01]."
