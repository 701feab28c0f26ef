"""The figures that docs/results/lfw.md reports, with a margin: real faces, 30 % of the identities labeled."""

import hashlib
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score, roc_auc_score

from cdp import CDP, Labels, Views, knn_graph, measure_labels
from cdp.types import ALL_INPUTS

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def faces(shared_data):
    """The labeled and the unlabeled part with their graphs, split as in benchmarks/lfw.py."""
    folder = shared_data / "lfw"
    identities = np.load(folder / "identities.npy")
    numbers = np.unique(identities)
    np.random.default_rng(0).shuffle(numbers)
    labeled = np.isin(identities, numbers[: int(0.3 * len(numbers))])
    views = Views(
        np.load(folder / "mobilefacenet.npy"),
        {name: np.load(folder / f"{name}.npy") for name in ("sface", "openface")},
        identities,
    )
    parts = views.take(labeled), views.take(~labeled)
    return [(part, [knn_graph(view, 20) for view in part]) for part in parts]


@pytest.fixture(scope="module")
def mediators(faces):
    """Of the paper's inputs, and of all."""
    labeled, graphs = faces[0]
    models = CDP("paper"), CDP("paper", inputs=ALL_INPUTS)
    return [model.fit(labeled, graphs=graphs).mediator_ for model in models]


@pytest.fixture(scope="module")
def paper_labels(faces, mediators):
    return labels_of(CDP("paper", mediator=mediators[0]), faces)


def labels_of(model, faces):
    """Labels of the unlabeled part, whose identities are not given."""
    unlabeled, graphs = faces[1]
    return model.fit(Views(unlabeled.base, unlabeled.committee), graphs=graphs).labeling_.labels


def pairwise_f(model, faces):
    return measure_labels(labels_of(model, faces), faces[1][0].identities).discards_kept.pairwise.f


def digest(array):
    return hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:16]


def with_discards_alone(labels):
    return np.where(labels >= 0, labels, -1 - np.arange(len(labels)))


def test_the_papers_labels_are_what_they_were(faces, paper_labels):
    """Bit for bit on a processor that rounds as the one that wrote them; elsewhere nearly."""
    stored = np.load(Path(__file__).with_name("lfw_paper_labels.npy"))
    assert adjusted_rand_score(with_discards_alone(stored), with_discards_alone(paper_labels.labels)) > 0.999
    base_graph = faces[1][1][0]
    if digest(base_graph.similarity) == "1db3e1e2a31594d6":
        names = ("labels", "status", "confidence")
        assert {name: digest(getattr(paper_labels, name)) for name in names} == {
            "labels": "c21623f1ad6125bb",
            "status": "941cd96adf85ef1e",
            "confidence": "cff63c9a2a319f46",
        }


def test_paper_inputs_reach_the_mark(faces, paper_labels):
    assert measure_labels(paper_labels, faces[1][0].identities).discards_kept.pairwise.f >= 0.937


def test_common_neighbors_reach_the_mark(faces, mediators):
    assert pairwise_f(CDP("paper", inputs=ALL_INPUTS, mediator=mediators[1]), faces) >= 0.987


def test_grouping_by_the_mean_reaches_the_mark(faces, mediators):
    # Measured: 0.993 and 0.991; components reach 0.955 and 0.991 with the same mediators.
    papers, of_all = mediators
    assert pairwise_f(CDP("paper", grouping="average", mediator=papers), faces) >= 0.985
    assert pairwise_f(CDP("paper", inputs=ALL_INPUTS, grouping="average", mediator=of_all), faces) >= 0.985


def test_the_preset_best_reaches_the_mark(faces):
    # Measured: 0.990; its threshold is chosen, so three tenths of the labeled identities are not trained on.
    (labeled, _), (unlabeled, _) = faces
    model = CDP().fit(labeled)
    figures = measure_labels(model.predict(unlabeled), unlabeled.identities)
    assert model.labeling_.tuning is not None
    assert figures.discards_kept.pairwise.f >= 0.985


def test_single_model_and_vote_reach_their_marks(faces):
    # At their best thresholds, which a user without labels would not know.
    assert pairwise_f(CDP("paper", mediator="vote", min_votes=0, threshold=0.46), faces) >= 0.965
    assert pairwise_f(CDP("paper", mediator="vote", threshold=0.40), faces) >= 0.89


def test_confidence_separates_right_from_wrong(faces, paper_labels):
    labels: Labels = paper_labels
    truth = faces[1][0].identities
    right = np.zeros(len(labels), bool)
    for group in range(labels.n_identities):
        rows = np.flatnonzero(labels.labels == group)
        right[rows] = truth[rows] == np.bincount(truth[rows]).argmax()
    kept = labels.labels >= 0
    assert 0 < (~right[kept]).sum() < 200
    assert roc_auc_score(right[kept], labels.confidence[kept]) > 0.7
