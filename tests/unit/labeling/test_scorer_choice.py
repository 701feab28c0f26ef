"""Trees or similarity, and whether labeled people are among the unlabeled images."""

import numpy as np
import pytest
from tests.unit.scoring.test_zscore import make_views

from cdp import CDP, Collection, Labels, Views
from cdp.labeling.scorer_choice import is_clearly_better, may_be_kept, shows_overlap
from cdp.scoring.settings import ConsensusSettings


def faces(n_people=60, per_person=6, noise=0.5, seed=0):
    """Embeddings that separate people well, and who they show."""
    generator = np.random.default_rng(seed)
    people = np.repeat(np.arange(n_people), per_person)
    vectors = generator.normal(size=(n_people, 64))[people] + noise * generator.normal(size=(len(people), 64))
    return vectors.astype(np.float32), people


def test_few_identities_need_a_wider_margin():
    identities = np.repeat(np.arange(30), 4)
    right = Labels.from_array(identities)
    halves = Labels.from_array(np.arange(120) // 2)
    one_wrong = Labels.from_array(np.where(np.arange(120) == 0, 1, identities))
    assert is_clearly_better(right, halves, identities)
    assert not is_clearly_better(right, one_wrong, identities)
    assert not is_clearly_better(right, right, identities)


def test_of_many_or_large_identities_similarity_is_not_tried():
    settings = ConsensusSettings.of(max_cluster_size=10)
    assert may_be_kept(np.repeat(np.arange(30), 10), settings)
    assert not may_be_kept(np.repeat(np.arange(30), 11), settings)
    assert not may_be_kept(np.repeat(np.arange(501), 2), settings)


def test_partners_show_whether_people_are_shared():
    labels = Labels.from_array(np.repeat(np.arange(20), 4))
    whole = np.where(np.arange(80) < 40, labels.labels, -1)
    half = np.where(np.arange(80) % 2, labels.labels, -1)
    assert not shows_overlap(labels, whole)
    assert shows_overlap(labels, half)
    assert not shows_overlap(labels, np.where(np.arange(80) < 4, labels.labels, -1)), "too few to say"


@pytest.mark.parametrize("n_known", [1, 3, 25])
@pytest.mark.parametrize("share", [0.5, 1.0])
def test_known_people_only_add(n_known, share):
    vectors, people = faces()
    known = np.where((people < n_known) & (np.arange(len(people)) % 6 < 6 * share), people, -1)
    model = CDP().fit(vectors, known)
    assert model.labeling_.settings.mediator == "similarity"
    for person in range(n_known):
        assert len(set(model.labels_[people == person].tolist())) == 1
    nobody = CDP().fit_predict(vectors)
    others = known < 0
    np.testing.assert_array_equal(nobody[others] >= 0, model.labels_[others] >= 0)
    assert model.labeling_.settings.is_disjoint == (share == 1 or n_known < 3)


def test_trees_score_where_they_are_clearly_better():
    views = make_views(n_people=120, per_person=5, models=3)
    known = np.where(views.identities < 60, views.identities, -1)
    model = CDP(k=10).fit(Views(views.base, views.committee), known)
    by_similarity = CDP(k=10, mediator="similarity").fit(Views(views.base, views.committee))
    expected = is_clearly_better(model.labeling_.labels, by_similarity.labeling_.labels, known)
    assert (model.labeling_.settings.mediator == "trees") == expected


def test_a_collection_keeps_given_identities_when_it_is_regrouped(tmp_path):
    vectors, people = faces()
    # One person is given as two: groups must keep that, now and later.
    given = np.where(people < 3, people, -1)
    given[(people == 0) & (np.arange(len(people)) % 2 == 0)] = 99
    model = CDP().fit(vectors, given)
    model.save(tmp_path / "album")
    first = np.array(Collection.open(tmp_path / "album").identity)
    assert first[0] != first[1]
    regrouped, _ = Collection.open(tmp_path / "album").regroup()
    np.testing.assert_array_equal(np.array(regrouped.identity), first)
