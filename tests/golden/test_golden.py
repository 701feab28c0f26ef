"""Every released format still opens, and a tiny run keeps its figures."""

from pathlib import Path

import numpy as np
import pytest

from cdp import CDP, ConsensusGraph, KnnGraph, Labels, Mediator, Views, measure_labels, propagate
from cdp_lab.synthetic import synthetic_views

FORMATS = sorted(Path(__file__).parent.glob("format*"))


@pytest.mark.parametrize("folder", FORMATS, ids=lambda folder: folder.name)
def test_released_formats_still_open(folder):
    views = Views.load(folder / "views")
    graph = KnnGraph.load(folder / "knn")
    consensus = ConsensusGraph.load(folder / "consensus")
    labels = Labels.load(folder / "labels")
    mediator = Mediator.load(folder / "mediator")
    assert views.names == ("base", "member1", "member2")
    assert graph.neighbors.shape == (60, 5)
    assert mediator.training["pairs"] == 260
    assert labels.n_images == consensus.n_images == views.n_images == 60
    # The stored parts still fit together: same mediator, same views, same labels up to rounding.
    model = CDP("paper", k=5, mediator=mediator).fit(Views(views.base, views.committee))
    np.testing.assert_array_equal(model.labels_, labels.labels)
    again = model.labeling_.accepted
    np.testing.assert_array_equal(again.ids, consensus.ids)
    np.testing.assert_allclose(again.doubt, consensus.doubt, rtol=1e-3)
    np.testing.assert_array_equal(propagate(consensus).labels, labels.labels)


@pytest.mark.whole_training
def test_a_tiny_run_keeps_its_figures():
    split = synthetic_views(150, 8, members=3, dimensions=32, seed=5)
    labels = CDP("paper", k=10).fit(split.labeled).predict(split.unlabeled)
    figures = measure_labels(Labels.from_array(labels), split.unlabeled.identities)
    assert figures.discards_kept.bcubed.f == pytest.approx(0.901, abs=0.03)
    assert figures.coverage == pytest.approx(0.899, abs=0.03)
