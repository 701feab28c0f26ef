"""Settings of section 3.1: presets, what overrides them, the slices that steps depend on, and what is refused."""

from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest
from tests.refusals import refuses

from cdp.scoring.settings import (
    PRESETS,
    ConsensusSettings,
    GroupingSettings,
    MediatorSettings,
    SearchSettings,
    SoftLabelSettings,
    TuningSettings,
    default_of,
)
from cdp.settings import plain, settings_of, slice_of
from cdp.types import ALL_INPUTS, PAPER_INPUTS


def test_the_paper_to_the_letter():
    paper = ConsensusSettings.of("paper")
    assert plain(paper) == {
        "preset": "paper", "k": 20, "method": "auto", "recall": 0.97, "recall_of": "same_identity", "mediator": "mlp", "inputs": list(PAPER_INPUTS),
        "evidence": ["similarity", "ranks", "common_neighbors", "density"],
        "train_on": "labeled", "passes": 2, "disjoint": True, "correction_weight": 10.0, "similar_above": 0.0, "threshold": 0.96, "quorum": -1, "vote_threshold": -1.0, "grouping": "components",
        "join_above": 0.3, "max_size": 600, "step": 0.1, "tune": False, "precision": 0.0, "recall_weight": 1.0, "soft_depth": 0,
        "soft_decay": 0.2,
    }  # fmt: skip


def test_single_settings_override_a_preset():
    assert ConsensusSettings.of() == ConsensusSettings() == ConsensusSettings.of("best")
    mixed = ConsensusSettings.of("paper", k=30, grouping="average", tune=True)
    assert (mixed.k, mixed.grouping, mixed.tune) == (30, "average", True)
    assert mixed.inputs == PAPER_INPUTS
    assert ConsensusSettings.of("paper").inputs != ConsensusSettings.of("best").inputs == ALL_INPUTS


def test_presets_set_what_there_is_and_say_their_defaults():
    known = settings_of(ConsensusSettings)
    for preset, values in PRESETS.items():
        assert set(values) <= set(known)
        resolved = ConsensusSettings.of(preset)
        for name in set(known) - {"preset"}:
            assert default_of(name, preset) == getattr(resolved, name)


def test_every_setting_is_in_one_slice():
    slices = (SearchSettings, MediatorSettings, GroupingSettings, TuningSettings, SoftLabelSettings)
    names = [field.name for kind in slices for field in fields(kind)]
    assert sorted([*names, "preset"]) == sorted(settings_of(ConsensusSettings))
    settings = ConsensusSettings.of(k=7, threshold=0.5)
    assert slice_of(settings, SearchSettings) == SearchSettings(k=7)
    assert slice_of(settings, GroupingSettings).threshold == 0.5
    # A slice is the key of a step: what is not in it does not change it.
    assert slice_of(replace(settings, threshold=0.6), SearchSettings) == slice_of(settings, SearchSettings)


@pytest.mark.parametrize(
    ("given", "bar"),
    [
        ({}, "join_above"),
        ({"mediator": "vote"}, "join_above"),
        ({"grouping": "components"}, "threshold"),
        ({"grouping": "components", "mediator": "vote"}, "vote_threshold"),
    ],
)
def test_which_setting_is_the_bar(given, bar):
    settings = ConsensusSettings.of(**given)
    assert settings.bar_key == bar
    assert settings.bar == getattr(settings, bar)


def test_average_grouping_keeps_the_same_pairs_whatever_the_bar():
    assert ConsensusSettings.of(join_above=0.4).kept_above == ConsensusSettings.of(join_above=0.02).kept_above
    assert ConsensusSettings.of(join_above=0.004).kept_above == 0.002
    assert ConsensusSettings.of("paper", threshold=0.9).kept_above == 0.9


def test_inputs_come_in_the_papers_order_and_once():
    settings = ConsensusSettings.of(inputs=["affinity", "relationship", "affinity"])
    assert settings.inputs == ("relationship", "affinity")


def test_numpys_numbers_are_numbers():
    settings = ConsensusSettings.of(k=np.int64(12), threshold=np.float32(0.5), recall_weight=np.int32(2))
    assert [repr(value) for value in (settings.k, settings.threshold, settings.recall_weight)] == [
        "12",
        "0.5",
        "2.0",
    ]


@pytest.mark.parametrize(
    ("given", "code", "fields"),
    [
        ({"treshold": 0.9}, "setting-unknown", {"key": "treshold"}),
        ({"crowd": True}, "setting-unknown", {"key": "crowd"}),
        ({"preset": "papr"}, "preset-unknown", {"key": "preset", "value": "papr"}),
        ({"threshold": 96}, "setting-out-of-range", {"key": "threshold", "value": 96}),
        ({"threshold": -0.5}, "setting-out-of-range", {"key": "threshold", "value": -0.5}),
        ({"threshold": float("nan")}, "setting-out-of-range", {"key": "threshold"}),
        ({"join_above": 30}, "setting-out-of-range", {"key": "join_above", "value": 30}),
        ({"join_above": 1}, "setting-out-of-range", {"key": "join_above", "value": 1}),
        ({"soft_depth": -1}, "setting-out-of-range", {"key": "soft_depth", "value": -1}),
        ({"k": 0}, "setting-out-of-range", {"key": "k", "value": 0}),
        ({"k": 2.5}, "setting-type-wrong", {"key": "k", "value": 2.5}),
        ({"max_size": 1}, "setting-out-of-range", {"key": "max_size", "value": 1}),
        ({"step": 1.0}, "setting-out-of-range", {"key": "step", "value": 1.0}),
        ({"quorum": -2}, "setting-out-of-range", {"key": "quorum", "value": -2}),
        ({"vote_threshold": 1.5}, "setting-out-of-range", {"key": "vote_threshold", "value": 1.5}),
        ({"vote_threshold": -96}, "setting-out-of-range", {"key": "vote_threshold", "value": -96}),
        ({"grouping": "magic"}, "setting-choice-unknown", {"key": "grouping", "value": "magic"}),
        ({"method": "magic"}, "setting-choice-unknown", {"key": "method", "value": "magic"}),
        (
            {"inputs": ("affinty",)},
            "setting-choice-unknown",
            {"key": "inputs[0]", "value": "affinty"},
        ),
        ({"inputs": ()}, "setting-empty", {"key": "inputs"}),
        ({"tune": 1}, "setting-type-wrong", {"key": "tune", "value": 1}),
        ({"recall_weight": 0}, "setting-out-of-range", {"key": "recall_weight", "value": 0}),
        ({"soft_decay": 0}, "setting-out-of-range", {"key": "soft_decay", "value": 0}),
    ],
)
def test_wrong_settings_are_named(given, code, fields):
    with refuses(code, **fields):
        ConsensusSettings.of(**given)


def test_settings_do_not_change():
    with pytest.raises(FrozenInstanceError):
        ConsensusSettings().k = 3
