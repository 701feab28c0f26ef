import itertools
import json

import numpy as np
import pytest
from msgspec import to_builtins
from tests.refusals import refuses

import reference
from cdp import ConsensusGraph, Labels, measure_labels
from cdp.evaluate.label_figures import measure_pairs
from cdp.types import Pairs


def slow_pairwise(found, true):
    pairs = list(itertools.combinations(range(len(found)), 2))
    together = sum(found[a] == found[b] and true[a] == true[b] for a, b in pairs)
    in_group = sum(found[a] == found[b] for a, b in pairs)
    in_person = sum(true[a] == true[b] for a, b in pairs)
    return together, in_group, in_person


def slow_bcubed(found, true):
    def share(image, inside, of):
        members = [other for other in range(len(found)) if of[other] == of[image]]
        return sum(inside[other] == inside[image] for other in members) / len(members)

    n = len(found)
    return sum(share(i, true, found) for i in range(n)) / n, sum(share(i, found, true) for i in range(n)) / n


@pytest.mark.parametrize("seed", range(6))
def test_both_conventions_agree_with_the_slow_twins(seed):
    generator = np.random.default_rng(seed)
    true = generator.integers(0, 5, 25)
    found = generator.integers(-1, 6, 25)
    figures = measure_labels(found, true)
    singles = np.where(found < 0, 100 + np.arange(25), found)
    for groups, (f, t) in (
        (figures.discards_kept, (singles, true)),
        (figures.discards_removed, (found[found >= 0], true[found >= 0])),
    ):
        together, in_group, in_person = slow_pairwise(f, t)
        assert groups.pairwise.precision == pytest.approx(together / in_group)
        assert groups.pairwise.recall == pytest.approx(together / in_person)
        precision, recall = slow_bcubed(f, t)
        assert groups.bcubed.precision == pytest.approx(precision)
        assert groups.bcubed.recall == pytest.approx(recall)
        assert groups.bcubed.f == pytest.approx(2 * precision * recall / (precision + recall))
    assert figures.coverage == pytest.approx((found >= 0).mean())


def test_perfect_groups_with_thirty_percent_discarded():
    # The worked example of the protocol: 10 identities of 100 images, 30 of each discarded.
    true = np.repeat(np.arange(10), 100)
    found = np.where(np.tile(np.arange(100), 10) < 30, -1, true)
    figures = measure_labels(found, true)
    assert figures.discards_kept.pairwise.f == pytest.approx(0.655, abs=0.002)
    assert figures.discards_removed.pairwise.f == 1.0
    assert figures.coverage == 0.7


def test_nothing_labeled_is_undefined_not_nan():
    figures = measure_labels(Labels.from_array([-1, -1, -1]), [0, 0, 1])
    assert figures.discards_removed.pairwise.f is None
    assert figures.discards_kept.pairwise.precision is None
    assert figures.discards_kept.pairwise.recall == 0
    assert json.loads(json.dumps(to_builtins(figures), allow_nan=False))["coverage"] == 0


def test_unknown_identities_do_not_count():
    figures = measure_labels([0, 0, 1, 1, 0], [7, 7, 8, 8, -1])
    assert figures.images == 4
    assert figures.discards_kept.pairwise.f == 1.0


def test_identities_are_counted():
    figures = measure_labels([0, 0, 1, 1, 1, -1], [0, 0, 0, 0, 0, 1])
    assert (figures.identities_found, figures.identities_true, figures.identities_true_shared) == (2, 2, 1)


def test_pairs_are_measured_among_candidates():
    candidates = Pairs(np.array([[0, 1], [0, 2], [1, 2], [2, 3]]), 4)
    graph = ConsensusGraph(np.array([[0, 1], [1, 2]]), np.array([0.01, 0.02]), 4)
    figures = measure_pairs(graph, candidates, [5, 5, 6, 6])
    assert (figures.candidates, figures.true_candidates, figures.accepted) == (4, 2, 2)
    assert (figures.precision, figures.recall) == (0.5, 0.5)
    nothing = measure_pairs(ConsensusGraph(np.empty((0, 2), int), np.empty(0), 4), candidates, [1, 2, 3, 4])
    assert (nothing.precision, nothing.recall) == (None, None)


@pytest.mark.parametrize("identities", [[0.5, 0.5, 1.0], [0.0, np.nan, 1.0], ["ann", "ann", "bob"]])
def test_identities_that_are_no_whole_numbers_are_refused(identities):
    with refuses("identities-not-whole"):
        measure_labels([0, 0, 1], identities)
    graph, candidates = ConsensusGraph(np.array([[0, 1]]), np.zeros(1), 3), Pairs(np.array([[0, 1]]), 3)
    with refuses("identities-not-whole"):
        measure_pairs(graph, candidates, identities)


def test_counts_must_match():
    with refuses("measured-identities-differ", expected=3, found=2):
        measure_labels([0, 0, 1], [1, 2])
    with refuses("measured-identities-unknown"):
        measure_labels([0, 0], [-1, -1])


def test_nmi_is_its_definition_with_discards_as_groups_of_one():
    generator = np.random.default_rng(0)
    identities = generator.integers(0, 5, 60)
    labels = Labels.from_array(np.where(generator.random(60) < 0.3, -1, generator.integers(0, 4, 60)))
    figures = measure_labels(labels, identities)
    kept = labels.labels >= 0
    alone = np.where(kept, labels.labels, 100 + np.arange(60))
    assert figures.discards_kept.nmi == pytest.approx(reference.mutual_information(alone, identities))
    assert figures.discards_removed.nmi == pytest.approx(
        reference.mutual_information(labels.labels[kept], identities[kept])
    )
    assert measure_labels(identities, identities).discards_kept.nmi == pytest.approx(1)
