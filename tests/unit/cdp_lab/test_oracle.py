"""Labels corrected by the truth: every group from its definition, and what must hold for any labels."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.refusals import refuses

from cdp.evaluate.label_figures import measure_labels
from cdp.types import Labels, Status
from cdp_lab.labelers import correct_by_truth

CASES = st.lists(st.tuples(st.integers(-1, 4), st.integers(-1, 3)), min_size=1, max_size=30)


def groups(labels: Labels) -> set[frozenset[int]]:
    return {frozenset(np.flatnonzero(labels.labels == c).tolist()) for c in range(labels.n_identities)}


def by_definition(labels: Labels, truth: np.ndarray, mistakes: str) -> set[frozenset[int]]:
    """The corrected groups, one at a time."""
    now = [sorted(group) for group in groups(labels)]
    if mistakes in ("mixtures", "all"):
        now = [
            [image for image in group if truth[image] == who]
            for group in now
            for who in set(truth[group].tolist())
        ]
    if mistakes in ("splits", "all"):
        joined: dict[object, list[int]] = {}
        for number, group in enumerate(now):
            counts = Counter(who for who in truth[group].tolist() if who >= 0)
            mostly = min(counts, key=lambda who: (-counts[who], who)) if counts else f"group {number}"
            joined.setdefault(mostly, []).extend(group)
        now = list(joined.values())
    return {frozenset(group) for group in now if len(group) > 1}


@given(CASES, st.sampled_from(["splits", "mixtures", "all"]))
def test_groups_are_those_of_the_definition(rows, mistakes):
    found, truth = (np.array(column) for column in zip(*rows, strict=True))
    assume((truth >= 0).any())
    labels = Labels.from_array(found)
    corrected = correct_by_truth(labels, truth, mistakes)
    assert groups(corrected) == by_definition(labels, truth, mistakes)
    discarded = labels.labels < 0
    assert (corrected.status[discarded] == labels.status[discarded]).all()
    assert (corrected.status[~discarded & (corrected.labels < 0)] == Status.ISOLATED).all()


@pytest.mark.slow
@given(CASES)
def test_each_kind_of_mistake_is_gone(rows):
    found, truth = (np.array(column) for column in zip(*rows, strict=True))
    assume((truth >= 0).any())
    labels = Labels.from_array(found)
    for mistakes in ("mixtures", "all"):
        corrected = correct_by_truth(labels, truth, mistakes)
        assert measure_labels(corrected, truth).discards_kept.pairwise.precision in (None, 1.0)
    recall = measure_labels(corrected, truth).discards_removed.pairwise.recall
    assert recall in (None, 1.0), "all: images of one identity share one label"


def test_the_truth_must_be_about_the_same_images():
    with refuses("truth-identities-differ", expected=2, found=3):
        correct_by_truth(Labels.from_array([0, 0]), [1, 1, 1], "all")
    with refuses("truth-unknown"):
        correct_by_truth(Labels.from_array([0, 0]), [-1, -1], "splits")
