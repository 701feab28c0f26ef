import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from tests.refusals import refuses

from cdp.errors import CdpError, NotFittedError
from cdp.scoring.mediator import Mediator, PaperMLP
from cdp.types import PAPER_INPUTS, column_names


def _toy(n_pairs, seed=0):
    """Opinions of a base and one member (11 inputs); a pair is one identity if its affinities sum above 1."""
    generator = np.random.default_rng(seed)
    matrix = generator.random((n_pairs, 11)).astype(np.float32)
    margin = matrix[:, 1] + matrix[:, 2] - 1
    return matrix[np.abs(margin) > 0.1], (margin > 0)[np.abs(margin) > 0.1]


@pytest.fixture(scope="module")
def learned():
    return PaperMLP(random_state=1).fit(*_toy(3000))


def test_learns_a_separable_problem(learned):
    matrix, same = _toy(2000, seed=9)
    probability = learned.predict_proba(matrix)
    assert probability.shape == (len(matrix), 2)
    np.testing.assert_allclose(probability.sum(axis=1), 1)
    assert np.mean((probability[:, 1] > 0.5) == same) > 0.97
    assert learned.doubt(matrix)[same].mean() < 0.1 < 0.9 < learned.doubt(matrix)[~same].mean()
    np.testing.assert_array_equal(learned.predict(matrix), probability[:, 1] > 0.5)


@pytest.mark.slow
def test_learns_what_no_straight_line_separates():
    generator = np.random.default_rng(2)
    matrix = generator.uniform(-1, 1, size=(4000, 2)).astype(np.float32)
    same = matrix[:, 0] * matrix[:, 1] > 0
    accuracy = np.mean((PaperMLP().fit(matrix, same).doubt(matrix) < 0.5) == same)
    assert accuracy > 0.9
    assert LogisticRegression().fit(matrix, same).score(matrix, same) < 0.7


@pytest.mark.slow
def test_inputs_of_any_scale_and_constant_inputs_are_learned_from():
    matrix, same = _toy(2000)
    matrix = matrix * np.float32([1, 1e3, 1e3, 1, 1, 1, 1, 1, 1, 1, 1]) + np.float32(100)
    matrix[:, 0] = 7
    doubt = PaperMLP().fit(matrix, same).doubt(matrix)
    assert np.all(np.isfinite(doubt))
    assert np.mean((doubt < 0.5) == same) > 0.9


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes_and_another_seed_does_not():
    matrix, same = _toy(500)
    one, again, other = (PaperMLP(random_state=seed).fit(matrix, same).doubt(matrix) for seed in (3, 3, 4))
    assert one.tobytes() == again.tobytes()
    assert one.tobytes() != other.tobytes()


def test_fitting_leaves_the_callers_arrays_alone():
    matrix, same = _toy(300)
    before = matrix.copy(), same.copy()
    PaperMLP().fit(matrix, same).doubt(matrix)
    np.testing.assert_array_equal(matrix, before[0])
    np.testing.assert_array_equal(same, before[1])


def test_doubts_stay_distinct_where_probabilities_are_rounded_to_one(learned):
    # Outside the training data, in the direction of "same", the logits go on growing.
    sure = np.tile(np.float32(0.5), (200, 11))
    sure[:, 1] = sure[:, 2] = np.linspace(0.5, 5, 200)
    doubt = learned.doubt(sure)
    assert doubt.dtype == np.float32
    rounded = (doubt < 1e-9) & (doubt > 1e-30)
    assert rounded.sum() >= 5
    assert np.all(learned.predict_proba(sure[rounded])[:, 1].astype(np.float32) == 1)
    assert np.all(np.diff(doubt[rounded]) < 0)


def test_nothing_is_predicted_before_fit():
    for ask in (PaperMLP().doubt, PaperMLP().predict_proba):
        with refuses("mediator-not-fitted", NotFittedError) as error:
            ask(np.zeros((1, 5)))
        assert isinstance(error.value, CdpError)


def _mediator(classifier, committee=("a",), inputs=PAPER_INPUTS):
    return Mediator(classifier, committee=committee, inputs=inputs, k=5)


def _swap_ends(matrix):
    names = column_names(["a"])
    other_end = str.maketrans({"<": ">", ">": "<"})
    turned = [n.replace("first", "<").replace("second", ">").translate(other_end) for n in names]
    original = [n.replace("first", "<").replace("second", ">") for n in names]
    return matrix[:, [original.index(name) for name in turned]]


def class_doubts(classifier, matrix):
    return classifier.predict_proba(matrix)[:, 0]


@pytest.mark.parametrize("other", [None, GaussianNB()])
def test_a_pair_has_no_first_image(learned, other):
    matrix, same = _toy(500)
    classifier = learned if other is None else other.fit(matrix, same)
    swapped = _swap_ends(matrix)
    assert np.any(swapped != matrix)
    doubt = _mediator(classifier).doubt(matrix)
    assert (doubt.dtype, doubt.shape) == (np.float32, (len(matrix),))
    np.testing.assert_allclose(doubt, _mediator(classifier).doubt(swapped), rtol=1e-5)
    assert np.abs(class_doubts(classifier, matrix) - class_doubts(classifier, swapped)).max() > 1e-3


def test_where_the_ends_do_not_differ_the_doubt_is_the_classifiers(learned):
    matrix, same = _toy(400)
    matrix[:, 5:7], matrix[:, 9:11] = matrix[:, 3:5], matrix[:, 7:9]
    np.testing.assert_allclose(_mediator(learned).doubt(matrix), learned.doubt(matrix), rtol=1e-5)
    bayes = GaussianNB().fit(matrix, same)
    np.testing.assert_allclose(
        _mediator(bayes).doubt(matrix), bayes.predict_proba(matrix)[:, 0], rtol=1e-5, atol=1e-30
    )


def test_a_classifier_of_truth_values_is_understood():
    matrix, same = _toy(400)
    classifier = LogisticRegression().fit(matrix[:, 1:3], same)
    assert list(classifier.classes_) == [False, True]
    doubt = _mediator(classifier, inputs=("affinity",)).doubt(matrix[:, 1:3])
    np.testing.assert_allclose(doubt, 1 - classifier.predict_proba(matrix[:, 1:3])[:, 1], atol=1e-6)


def test_inputs_are_put_in_the_papers_order_and_named(learned):
    mediator = _mediator(learned, inputs=("distribution", "relationship", "affinity"))
    assert mediator.inputs == PAPER_INPUTS
    assert mediator.columns == column_names(["a"])


def test_refusals(learned):
    with refuses("mediator-inputs-differ", expected=11, found=5):
        _mediator(learned).doubt(np.zeros((2, 5), np.float32))
    with refuses("inputs-unknown", key="inputs", value="structure"):
        _mediator(learned, inputs=("structure",))
    three = GaussianNB().fit(np.arange(12, dtype=float).reshape(6, 2), [0, 0, 1, 1, 2, 2])
    with refuses("mediator-classes-wrong", found=(4, 3), pairs=4):
        _mediator(three, inputs=("affinity",)).doubt(np.zeros((4, 2), np.float32))
