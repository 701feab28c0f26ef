"""Views that do not suit labeling."""

import numpy as np
import pytest

from cdp.consensus.settings import ConsensusSettings
from cdp.errors import InputError
from cdp.labeling.view_checks import check_views
from cdp.types import Views
from refusals import refuses

BASE = np.random.default_rng(0).normal(size=(50, 8)).astype(np.float32)
OTHER = np.random.default_rng(1).normal(size=(50, 8)).astype(np.float32)


@pytest.mark.parametrize(
    ("committee", "names"),
    [
        ({"copy": BASE}, ("base", "copy")),
        ({"other": OTHER, "scaled": 3 * BASE.astype(np.float64)}, ("base", "scaled")),
        ({"one": OTHER, "two": OTHER}, ("one", "two")),
    ],
)
def test_a_model_that_is_there_twice_is_refused(committee, names):
    with pytest.raises(InputError) as caught:
        check_views(ConsensusSettings.of(k=5), Views(BASE, committee))
    assert str(caught.value) == (
        f"{names[0]!r} and {names[1]!r} hold the same embeddings, so their agreement would be evidence of nothing; leave "
        f"{names[1]!r} out, or give the embeddings that are meant."
    )


def test_models_that_differ_in_some_rows_are_two():
    nearly = BASE.copy()
    nearly[7] = OTHER[7]
    check_views(
        ConsensusSettings.of(k=5), Views(BASE, {"other": OTHER, "nearly": nearly, "narrow": BASE[:, :4]})
    )


def test_one_image_is_too_few():
    with refuses("knn-one-image"):
        check_views(ConsensusSettings.of(k=5), Views(BASE[:1], {"other": OTHER[:1]}))
