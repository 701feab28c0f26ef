import dataclasses

import numpy as np
import pytest
from tests.refusals import refuses

import reference
from cdp.types import Labels, Status
from cdp.types.labels import first_rows, number_by_first_appearance


@pytest.fixture
def labels():
    return Labels(np.array([0, -1, 1, 0, -1]), np.array([0, 1, 0, 0, 3]), np.array([0.9, 0, 0.5, 1, 0]))


def test_behaves_like_the_plain_array(labels):
    np.testing.assert_array_equal(np.asarray(labels), [0, -1, 1, 0, -1])
    assert np.asarray(labels).dtype == np.int32
    assert np.asarray(labels, dtype=np.int64).dtype == np.int64
    assert list(labels) == [0, -1, 1, 0, -1]
    assert len(labels) == 5
    assert labels[2] == 1
    np.testing.assert_array_equal(labels[1:3], [-1, 1])
    np.testing.assert_array_equal(labels[np.array([True, False, False, True, False])], [0, 0])


def test_a_copy_may_be_written_the_noun_may_not(labels):
    copy = np.array(labels)
    copy[0] = 7
    assert labels[0] == 0
    for array in (labels.labels, labels.status, labels.confidence, np.asarray(labels)):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
    with pytest.raises(dataclasses.FrozenInstanceError):
        labels.labels = copy


def test_summary(labels):
    assert (labels.n_images, labels.n_identities, labels.coverage) == (5, 2, 0.6)
    np.testing.assert_array_equal(labels.sizes, [2, 1])
    assert (labels.status.dtype, labels.confidence.dtype) == (np.uint8, np.float32)
    assert repr(labels) == "Labels: 5 images -> 2 identities, 40.0 % discarded"


def test_nobody_labeled():
    no_progress = Labels.from_array([-1, -1])
    assert (no_progress.n_identities, no_progress.coverage, no_progress.sizes.size) == (0, 0.0, 0)


def test_from_array_numbers_by_first_appearance():
    labels = Labels.from_array(np.array([42, -7, 5, 42, 0, 5]))
    np.testing.assert_array_equal(labels, [0, -1, 1, 0, 2, 1])
    np.testing.assert_array_equal(labels.status, [0, 1, 0, 0, 0, 0])
    np.testing.assert_array_equal(labels.confidence, [1, 0, 1, 1, 1, 1])


def test_numbering_agrees_with_its_twin():
    generator = np.random.default_rng(3)
    for _ in range(20):
        given = generator.integers(-3, 9, size=30) * 1000
        np.testing.assert_array_equal(
            number_by_first_appearance(given), reference.number_by_first_appearance(given)
        )


def test_every_fate_has_a_sentence_of_its_own():
    assert [int(status) for status in Status] == [0, 1, 2, 3, 4]
    assert len({status.sentence for status in Status}) == 5
    assert Status.NO_ACCEPTED_PAIR.sentence == "no accepted pair"


@pytest.mark.parametrize(
    ("labels", "status", "confidence", "code", "fields"),
    [
        ([0.0], [0], [1.0], "labels-not-a-row", {"found": ("float64", (1,))}),
        ([[0]], [[0]], [[1.0]], "labels-not-a-row", {"found": ("int64", (1, 1))}),
        ([0, 0], [0], [1.0, 1.0], "labels-lengths-differ", {}),
        ([0, 0], [0, 0], [1.0], "labels-lengths-differ", {}),
        ([0, -2], [0, 1], [1.0, 0.0], "labels-below-minus-one", {}),
        (
            [1, 0],
            [0, 0],
            [1.0, 1.0],
            "labels-not-in-order",
            {},
        ),
        (
            [0, 2],
            [0, 0],
            [1.0, 1.0],
            "labels-not-in-order",
            {},
        ),
        ([0, -1], [0, 5], [1.0, 0.0], "labels-status-unknown", {}),
        ([0, -1], [0, 0], [1.0, 0.0], "labels-status-contradicts", {}),
        ([0, 0], [0, 2], [1.0, 0.0], "labels-status-contradicts", {}),
        ([0], [0], [1.5], "labels-confidence-out-of-range", {}),
        ([0], [0], [np.nan], "labels-confidence-out-of-range", {}),
    ],
)
def test_refusals(labels, status, confidence, code, fields):
    with refuses(code, **fields):
        Labels(np.array(labels), np.array(status), np.array(confidence))


@pytest.mark.parametrize("status", [-1, 1.7])
def test_a_fate_that_is_none_of_the_known_is_refused(status):
    with refuses("labels-status-unknown"):
        Labels(np.array([0, -1]), np.array([0, status]), np.array([1.0, 0.0]))


def test_the_first_rows_keep_their_groups_and_lose_those_that_are_alone():
    labels = Labels(
        [0, 1, 1, 2, 2, -1, 0, 2],
        [0, 0, 0, 0, 0, Status.UNSPLITTABLE, 0, 0],
        [0.9, 0.8, 0.7, 0.6, 0.5, 0, 0.4, 0.3],
    )
    first = first_rows(labels, 6)
    assert first.labels.tolist() == [-1, 0, 0, 1, 1, -1]
    assert first.status.tolist() == [Status.ISOLATED, 0, 0, 0, 0, Status.UNSPLITTABLE]
    np.testing.assert_allclose(first.confidence, [0, 0.8, 0.7, 0.6, 0.5, 0])
    assert first_rows(labels, 1).labels.tolist() == [-1]
    assert first_rows(labels, 8).labels.tolist() == labels.labels.tolist()
    assert first_rows(Labels.from_array([-1, -1]), 1).labels.tolist() == [-1]
    kept = first_rows(labels, 1, keep=[0])
    assert kept.labels.tolist() == [0]
    assert kept.status.tolist() == labels.status[:1].tolist()
