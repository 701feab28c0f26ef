"""Settings of section 3.1: presets, what overrides them, the slices that steps depend on, and what is refused."""

from dataclasses import FrozenInstanceError, fields, replace

import numpy as np
import pytest
from tests.refusals import refuses

from cdp.knn.settings import SearchSettings
from cdp.scoring.settings import (
    PRESETS,
    ConsensusSettings,
    GroupingSettings,
    ScoringSettings,
    SoftLabelSettings,
    ThresholdSettings,
    default_of,
    kept_above,
)
from cdp.settings import plain, settings_of, slice_of
from cdp.types import ALL_INPUTS, PAPER_INPUTS


def test_the_paper_to_the_letter():
    paper = ConsensusSettings.of("paper")
    assert plain(paper) == {
        "preset": "paper", "k": 20, "method": "auto", "recall": 0.97, "mediator": "mlp", "inputs": list(PAPER_INPUTS),
        "train_on": "labeled", "disjoint": None, "min_votes": None, "grouping": "components", "max_cluster_size": 600,
        "step": 0.1, "threshold": 0.96, "min_precision": None, "beta": 1.0, "soft_depth": 0, "soft_decay": 0.2,
    }  # fmt: skip


def test_single_settings_override_a_preset():
    assert ConsensusSettings.of() == ConsensusSettings() == ConsensusSettings.of("best")
    mixed = ConsensusSettings.of("paper", k=30, grouping="average", threshold="auto")
    assert (mixed.k, mixed.grouping, mixed.threshold) == (30, "average", None)
    assert ConsensusSettings.of("paper", mediator="vote").threshold == -1, "any similarity"
    assert ConsensusSettings.of("paper", grouping="average").threshold == 0.3
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
    slices = (SearchSettings, ScoringSettings, GroupingSettings, ThresholdSettings, SoftLabelSettings)
    names = [field.name for kind in slices for field in fields(kind)]
    assert sorted([*names, "preset"]) == sorted(settings_of(ConsensusSettings))
    settings = ConsensusSettings.of(k=7, threshold=0.5)
    assert slice_of(settings, SearchSettings) == SearchSettings(k=7)
    assert slice_of(settings, ThresholdSettings).threshold == 0.5
    # A slice is the key of a step: what is not in it does not change it.
    assert slice_of(replace(settings, threshold=0.6), SearchSettings) == slice_of(settings, SearchSettings)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({}, "mean probability"),
        ({"mediator": "vote"}, "mean probability"),
        ({"grouping": "components"}, "probability"),
        ({"grouping": "components", "mediator": "vote"}, "similarity"),
        ({"mediator": "similarity"}, "z-score"),
    ],
)
def test_what_the_threshold_is_compared_with(given, kind):
    assert ConsensusSettings.of(**given).threshold_kind == kind


def test_average_linkage_keeps_the_same_pairs_at_every_threshold():
    average, paper = ConsensusSettings.of(), ConsensusSettings.of("paper")
    assert kept_above(average, 0.4) == kept_above(average, 0.02) == 0.01
    assert kept_above(average, 0.004) == 0.002
    assert kept_above(paper, 0.9) == 0.9


def test_inputs_come_in_the_papers_order_and_once():
    settings = ConsensusSettings.of(inputs=["affinity", "relationship", "affinity"])
    assert settings.inputs == ("relationship", "affinity")


def test_numpys_numbers_are_numbers():
    settings = ConsensusSettings.of(k=np.int64(12), threshold=np.float32(0.5), beta=np.int32(2))
    assert [repr(value) for value in (settings.k, settings.threshold, settings.beta)] == [
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
        ({"threshold": 96}, "threshold-out-of-range", {"key": "threshold", "value": 96}),
        ({"preset": "paper", "threshold": 96}, "threshold-out-of-range", {"key": "threshold", "value": 96}),
        ({"threshold": -0.5}, "threshold-out-of-range", {"key": "threshold", "value": -0.5}),
        ({"threshold": 1}, "threshold-out-of-range", {"key": "threshold", "value": 1}),
        ({"threshold": "any"}, "setting-type-wrong", {"key": "threshold", "value": "any"}),
        ({"threshold": float("nan")}, "setting-out-of-range", {"key": "threshold"}),
        ({"min_precision": 1.5}, "setting-out-of-range", {"key": "min_precision", "value": 1.5}),
        ({"soft_depth": -1}, "setting-out-of-range", {"key": "soft_depth", "value": -1}),
        ({"k": 0}, "setting-out-of-range", {"key": "k", "value": 0}),
        ({"k": 2.5}, "setting-type-wrong", {"key": "k", "value": 2.5}),
        ({"max_cluster_size": 1}, "setting-out-of-range", {"key": "max_cluster_size", "value": 1}),
        ({"step": 1.0}, "setting-out-of-range", {"key": "step", "value": 1.0}),
        ({"min_votes": -2}, "setting-out-of-range", {"key": "min_votes", "value": -2}),
        (
            {"preset": "paper", "mediator": "vote", "threshold": 1.5},
            "threshold-out-of-range",
            {"key": "threshold", "value": 1.5},
        ),
        ({"threshold": -96}, "setting-out-of-range", {"key": "threshold", "value": -96}),
        ({"grouping": "magic"}, "setting-choice-unknown", {"key": "grouping", "value": "magic"}),
        ({"method": "magic"}, "setting-choice-unknown", {"key": "method", "value": "magic"}),
        (
            {"inputs": ("affinty",)},
            "setting-choice-unknown",
            {"key": "inputs[0]", "value": "affinty"},
        ),
        ({"inputs": ()}, "setting-empty", {"key": "inputs"}),
        ({"disjoint": 1}, "setting-type-wrong", {"key": "disjoint", "value": 1}),
        ({"beta": 0}, "setting-out-of-range", {"key": "beta", "value": 0}),
        ({"soft_decay": 0}, "setting-out-of-range", {"key": "soft_decay", "value": 0}),
    ],
)
def test_wrong_settings_are_named(given, code, fields):
    with refuses(code, **fields):
        ConsensusSettings.of(**given)


def test_settings_do_not_change():
    with pytest.raises(FrozenInstanceError):
        ConsensusSettings().k = 3
