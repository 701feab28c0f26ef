"""Expected quality of labels from labeled images, against loops over images and against the truth."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdp.grouping.cohesion import tie_groups, tie_to_group
from cdp.labeling.expectation import calibrate, count_by_identity, expect, measure_calibration
from cdp.labeling.output import rank_mixed_groups
from cdp.labeling.pipeline import label
from cdp.scoring.settings import ConsensusSettings
from cdp.types import ConsensusGraph, Labels
from cdp_lab.synthetic import synthetic_views

SOME = st.lists(st.tuples(st.integers(-1, 4), st.integers(-1, 4)), min_size=2, max_size=30)


def by_hand(labels, identities):
    """found, in groups, to find, grouped, images; from pairs of images."""
    n_images = len(labels)
    scale = np.mean(identities < 0) or 1.0
    total = np.zeros(5)
    for image in np.flatnonzero(identities >= 0):
        for other in range(n_images):
            if other == image:
                continue
            same_group = labels[image] == labels[other] >= 0
            same_identity = identities[image] == identities[other]
            total += [
                same_group and same_identity,
                same_group * (1 if same_identity else scale),
                same_identity,
                0,
                0,
            ]
        total += [0, 0, 0, labels[image] >= 0, 1]
    return total


@given(SOME)
def test_counts_are_those_of_pairs(rows):
    given_labels, identities = np.array(rows).T
    labels = Labels.from_array(given_labels)
    found = count_by_identity(labels, identities.astype(np.int64)).sum(axis=0)
    np.testing.assert_allclose(found, by_hand(labels.labels, identities))


@given(SOME)
def test_with_labeled_people_among_the_unlabeled_images_impostors_are_extrapolated(rows):
    given_labels, identities = np.array(rows).T
    labels = Labels.from_array(given_labels)
    known = np.flatnonzero(identities >= 0)
    n_unlabeled = int((identities < 0).sum())
    found = count_by_identity(labels, identities.astype(np.int64), disjoint=False).sum(axis=0)
    in_groups = 0.0
    for image in known:
        if labels.labels[image] < 0:
            continue
        mates = [
            one for one in range(len(rows)) if one != image and labels.labels[one] == labels.labels[image]
        ]
        own = sum(identities[one] == identities[image] for one in mates)
        impostors = sum(identities[one] >= 0 for one in mates) - own
        unlabeled = sum(identities[one] < 0 for one in mates)
        wrong = min(unlabeled, impostors * n_unlabeled / max(1, len(known) - 1))
        share = own / (own + unlabeled - wrong) if own else 1.0
        in_groups += own + (impostors + wrong) * share
    if len(known):
        assert found[1] == pytest.approx(in_groups)
        assert found[[0, 2, 3, 4]] == pytest.approx(
            by_hand(labels.labels[known], identities[known])[[0, 2, 3, 4]]
        )


@given(SOME, st.integers(1, 5), st.integers(0, 99))
def test_ties_are_means_over_the_pairs_a_graph_can_hold(rows, k, seed):
    labels = Labels.from_array(np.array(rows)[:, 0])
    n_images = len(labels)
    ends = np.array([(a, b) for a in range(n_images) for b in range(a + 1, n_images)], np.int32)
    generator = np.random.default_rng(seed)
    ends = ends[generator.random(len(ends)) < 0.5]
    doubt = generator.random(len(ends)).astype(np.float32)
    scored = ConsensusGraph(ends, doubt, n_images)
    tie = tie_to_group(scored, labels, k)
    groups = {number: np.flatnonzero(labels.labels == number) for number in range(labels.n_identities)}
    pairs = {tuple(pair): 1 - float(value) for pair, value in zip(ends.tolist(), doubt, strict=True)}
    for image in range(n_images):
        own = groups.get(int(labels.labels[image]), [])
        values = [pairs[pair] for one in own if (pair := tuple(sorted((image, int(one))))) in pairs]
        expected = sum(values) / max(len(values), min(len(own) - 1, k), 1)
        assert tie[image] == pytest.approx(expected, abs=1e-6)
    ties = tie_groups(scored, labels, k)
    assert (np.diff(ties.probability) <= 0).all()
    for (one, other), value in zip(ties.ids.tolist(), ties.probability, strict=True):
        between = [
            pairs[p]
            for a in groups[one]
            for b in groups[other]
            if (p := tuple(sorted((int(a), int(b))))) in pairs
        ]
        sizes = len(groups[one]), len(groups[other])
        possible = sizes[0] * sizes[1] * min(1, k / (sum(sizes) - 1))
        assert value == pytest.approx(sum(between) / max(possible, len(between)), abs=1e-6)


@pytest.mark.whole_training
def test_expectation_and_confidence_hold_on_images_nobody_looked_at(large_split):
    labeling = label(
        large_split.unlabeled, ConsensusSettings.of(k=10, mediator="trees"), labeled=[large_split.labeled]
    )
    truth, found = large_split.unlabeled.identities, labeling.labels.labels
    same = (truth[:, None] == truth) & ~np.eye(len(truth), dtype=bool)
    together = (found[:, None] == found) & (found >= 0)[:, None] & ~np.eye(len(truth), dtype=bool)
    expected = labeling.expected
    assert expected.precision.value == pytest.approx(same[together].mean(), abs=0.05)
    # Labeled pairs are scored by trees that saw two thirds of the labeled images: fewer are found than of the others.
    assert together[same].mean() - 0.12 < expected.recall.value < together[same].mean() + 0.03
    assert expected.coverage.value == pytest.approx((found >= 0).mean(), abs=0.05)
    assert expected.precision.low <= expected.precision.value <= expected.precision.high
    assert expected.identities == len(np.unique(large_split.labeled.identities))
    share = (same & together).sum(axis=1) / np.maximum(together.sum(axis=1), 1)
    confidence = labeling.labels.confidence
    for half in (
        confidence < np.median(confidence[found >= 0]),
        confidence >= np.median(confidence[found >= 0]),
    ):
        rows = half & (found >= 0)
        assert share[rows].mean() - 0.2 < confidence[rows].mean() < share[rows].mean() + 0.03, "not too sure"
    assert sum(one.pairs for one in labeling.calibration) > 100
    assert labeling.calibration[0].same < 0.2 < 0.8 < labeling.calibration[-1].same


@pytest.mark.slow
def test_a_precision_is_kept_or_a_note_says_that_it_cannot_be(large_split):
    parts = {"labeled": [large_split.labeled]}
    free = label(large_split.unlabeled, ConsensusSettings.of(k=10, mediator="trees"), **parts)
    promised = label(
        large_split.unlabeled, ConsensusSettings.of(k=10, mediator="trees", min_precision=0.99), **parts
    )
    assert promised.expected.precision.value >= 0.99
    assert promised.expected.recall.value <= free.expected.recall.value
    assert promised.tuning.min_precision == 0.99
    assert promised.notes == ()
    hard = synthetic_views(120, 6, labeled=0.5, members=1, dimensions=8, noise=1.5)
    other = label(hard.unlabeled, ConsensusSettings.of(k=10, min_precision=0.9999), labeled=[hard.labeled])
    assert other.expected.precision.value < 0.9999
    assert any("No threshold reaches precision 0.9999" in note for note in other.notes)


def test_few_known_images_leave_the_confidence_as_it_is():
    labels = Labels.from_array(np.repeat(np.arange(5), 4))
    scored = ConsensusGraph(np.array([[0, 1]], np.int32), np.array([0.1], np.float32), 20)
    assert calibrate(scored, labels, np.repeat(np.arange(5), 4), 3) is labels
    assert expect(labels, np.where(np.arange(20) < 8, np.arange(20) // 4, -1)).precision.value == 1.0
    apart = measure_calibration(scored, np.where(np.arange(20) == 0, 7, -1), disjoint=False)
    assert apart == []


def test_the_most_doubtful_group_comes_first():
    labels = Labels.from_array(np.array([0, 0, 1, 1, 1, -1]))
    doubted = Labels(labels.labels, labels.status, np.array([0.9, 0.8, 0.5, 0.4, 0.6, 0], np.float32))
    ranked = rank_mixed_groups(doubted)
    assert list(ranked["identity"]) == [1, 0]
    assert list(ranked["least_certain_row"]) == [3, 1]
    assert list(ranked["doubtful_pairs"]) == pytest.approx([1.5, 0.2], abs=0.06)
