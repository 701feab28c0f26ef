"""Views that do not suit labeling."""

import numpy as np
import pytest
from tests.refusals import refuses

from cdp.labeling.view_checks import check_views
from cdp.scoring.settings import ConsensusSettings
from cdp.types import Views

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
    with refuses("models-identical", models=names):
        check_views(ConsensusSettings.of(k=5), Views(BASE, committee))


def test_models_that_differ_in_some_rows_are_two():
    nearly = BASE.copy()
    nearly[7] = OTHER[7]
    check_views(
        ConsensusSettings.of(k=5), Views(BASE, {"other": OTHER, "nearly": nearly, "narrow": BASE[:, :4]})
    )


def test_one_image_is_too_few():
    with refuses("knn-one-image"):
        check_views(ConsensusSettings.of(k=5), Views(BASE[:1], {"other": OTHER[:1]}))
