import inspect
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from tests.refusals import refuses

from cdp import CDP, ConsensusGraph, KnnGraph, Labels, Mediator, Views, knn_graph, measure_labels, propagate
from cdp.grouping.average_linkage import agglomerate
from cdp.scoring.pairs import candidate_pairs
from cdp.scoring.paper_features import collect_opinions
from cdp.types import ALL_INPUTS


@pytest.fixture(scope="module")
def model(split):
    return CDP("paper", k=10).fit(split.labeled)


def pairwise_f(labels, views):
    return measure_labels(labels, views.identities).discards_kept.pairwise.f


def test_finds_identities(split, model):
    labels = model.predict(split.unlabeled)
    assert measure_labels(labels, split.unlabeled.identities).discards_kept.bcubed.f > 0.7
    assert model.labeling_.labels.sizes.max() <= 600
    np.testing.assert_array_equal(model.labeling_.labels.labels, labels)


@pytest.mark.slow
def test_the_default_preset_tunes_and_is_better_than_the_paper(large_split):
    best = CDP(k=10, mediator="trees").fit(large_split.labeled)
    labels = best.predict(large_split.unlabeled)
    assert best.labeling_.tuning.chosen == best.labeling_.threshold
    assert best.labeling_.notes == ()
    paper = CDP("paper", k=10).fit(large_split.labeled).predict(large_split.unlabeled)
    assert pairwise_f(labels, large_split.unlabeled) > pairwise_f(paper, large_split.unlabeled)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["paper", "best"])
def test_same_seed_same_labels_on_any_number_of_threads(large_split, preset):
    found = []
    for threads in (1, 4):
        model = CDP(preset, k=10, threads=threads).fit(large_split.labeled)
        model.predict(large_split.unlabeled)
        found.append(model.labeling_.labels)
    np.testing.assert_array_equal(found[0].labels, found[1].labels)
    np.testing.assert_array_equal(found[0].confidence, found[1].confidence)


def test_a_small_memory_budget_changes_no_label(split, model):
    tight = CDP("paper", k=10, memory_budget="100KB", mediator=model.mediator_)
    model.predict(split.unlabeled)
    with pytest.warns(UserWarning, match="memory_budget = 100KB is too little"):
        tight.fit(Views(split.unlabeled.base, split.unlabeled.committee))
    roomy, graph = model.labeling_.accepted, tight.labeling_.accepted
    np.testing.assert_array_equal(roomy.ids, graph.ids)
    # Blocks of other shapes round their matrix products differently in the last bit.
    np.testing.assert_allclose(roomy.doubt, graph.doubt, rtol=1e-4)


def test_numbering_the_images_differently_changes_no_group(split, model):
    order = np.random.default_rng(1).permutation(split.unlabeled.n_images)
    before = model.predict(split.unlabeled)
    after = model.predict(split.unlabeled.take(order))
    np.testing.assert_array_equal(Labels.from_array(before[order]).labels, after)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["paper", "best"])
def test_identities_of_the_unlabeled_part_are_not_looked_at(large_split, preset):
    unlabeled = large_split.unlabeled
    model = CDP(preset, k=10).fit(large_split.labeled)
    expected = model.predict(Views(unlabeled.base, unlabeled.committee))
    wrong = Views(unlabeled.base, unlabeled.committee, np.zeros(unlabeled.n_images, int))
    for views in (unlabeled, wrong):
        np.testing.assert_array_equal(model.predict(views), expected)


def test_given_graphs_are_used_in_order_or_by_name(split, model):
    graphs = [knn_graph(view, 10) for view in split.unlabeled]
    expected = model.predict(split.unlabeled)
    np.testing.assert_array_equal(model.predict(split.unlabeled, graphs=graphs), expected)
    named = dict(zip(split.unlabeled.names, graphs, strict=True))
    np.testing.assert_array_equal(model.predict(split.unlabeled, graphs=named), expected)
    some = {"member2": graphs[2]}
    np.testing.assert_array_equal(model.predict(split.unlabeled, graphs=some), expected)
    with refuses("graphs-models-differ", expected=3, found=2):
        model.predict(split.unlabeled, graphs=graphs[:2])
    with refuses("graph-model-unknown", model="member3") as caught:
        model.predict(split.unlabeled, graphs={"member3": graphs[0]})
    assert str(caught.value) == "A k-NN graph is given for 'member3'; the models are base, member1, member2."


def test_given_graphs_are_cut_to_k_and_refused_below(split, model):
    expected = model.predict(split.unlabeled)
    long = [knn_graph(view, 13) for view in split.unlabeled]
    np.testing.assert_array_equal(model.predict(split.unlabeled, graphs=long), expected)
    with refuses("graph-k-differs", model="base", expected=10, found=7):
        model.predict(split.unlabeled, graphs={"base": knn_graph(split.unlabeled.base, 7)})


def test_the_steps_by_hand_give_the_same(split, model):
    labels = model.predict(split.unlabeled)
    graph = model.labeling_.accepted
    graphs = [knn_graph(view, 10, method="exact") for view in split.unlabeled]
    pairs = candidate_pairs(graphs[0])
    doubt = model.mediator_.doubt(collect_opinions(pairs, split.unlabeled, graphs).matrix())
    np.testing.assert_array_equal(graph.ids, pairs.ids[doubt < 1 - 0.96])
    np.testing.assert_array_equal(propagate(graph, 600, 0.1).labels, labels)


def test_vote_works_on_one_array(split):
    embeddings = split.unlabeled.base.vectors
    estimator = CDP("paper", k=10, max_cluster_size=10_000, mediator="vote", threshold=0.6)
    labels = estimator.fit_predict(embeddings)
    assert np.asarray(labels).shape == (len(embeddings),)
    np.testing.assert_array_equal(estimator.labels_, np.asarray(labels))
    graph = knn_graph(embeddings, 10)
    for image, label in enumerate(labels):
        linked = (graph.similarity[image] > np.float32(0.6)).any() or any(
            graph.similarity[other][graph.neighbors[other] == image] > np.float32(0.6)
            for other in range(len(embeddings))
            if image in graph.neighbors[other]
        )
        assert (label >= 0) == linked


def test_three_views_with_unanimous_votes_give_pairs(split):
    model = CDP("paper", k=10, mediator="vote")
    model.fit(Views(split.unlabeled.base, split.unlabeled.committee))
    assert len(model.labeling_.accepted) > 0


def test_any_classifier_can_mediate_and_stays_untouched(split):
    classifier = LogisticRegression(max_iter=500)
    labels = CDP("paper", k=10, mediator=classifier).fit(split.labeled).predict(split.unlabeled)
    assert measure_labels(labels, split.unlabeled.identities).discards_kept.bcubed.f > 0.6
    assert not hasattr(classifier, "coef_")


def test_a_learned_mediator_serves_without_the_labeled_part(split, model, tmp_path):
    model.mediator_.save(tmp_path / "mediator")
    learned = CDP("paper", k=10, mediator=Mediator.load(tmp_path / "mediator"))
    expected = model.predict(split.unlabeled)
    blind = Views(split.unlabeled.base, split.unlabeled.committee)
    np.testing.assert_array_equal(learned.fit_predict(blind), expected)
    np.testing.assert_array_equal(learned.fit(split.labeled).predict(split.unlabeled), expected)
    # It keeps its own inputs, whatever the preset's are, and the record says so.
    other = CDP(k=10, mediator=learned.mediator)
    other.fit(blind)
    assert other.labeling_.settings.inputs == learned.mediator.inputs != other.settings.inputs


def test_common_neighbors_can_be_added_and_blocks_left_out(split):
    assert len(CDP("paper", k=10, inputs=ALL_INPUTS).fit(split.labeled).mediator_.columns) == 6 * 2 + 5 + 3
    assert len(CDP("paper", k=10, inputs=("relationship",)).fit(split.labeled).mediator_.columns) == 2


def test_an_empty_committee_leaves_five_inputs(split):
    alone = Views(split.labeled.base, identities=split.labeled.identities)
    assert len(CDP("paper", k=10).fit(alone).mediator_.columns) == 5
    with refuses("inputs-need-committee", key="inputs"):
        CDP("paper", k=10, inputs=("relationship",)).fit(alone)


def test_scikit_learn_conventions(split):
    estimator = CDP("paper", k=7, mediator="vote", inputs=ALL_INPUTS)
    copy = clone(estimator)
    assert copy.get_params()["k"] == 7
    assert copy.get_params()["threshold"] is None
    assert copy.set_params(k=9, threshold=0.7) is copy
    assert (copy.settings.k, copy.settings.threshold) == (9, 0.7)
    assert estimator.fit(split.labeled) is estimator
    assert "k=7" in repr(estimator)


def test_settings_count_when_it_is_fitted(split):
    model = CDP("paper", k=10).fit(split.labeled)
    low = model.predict(split.unlabeled)
    np.testing.assert_array_equal(model.set_params(threshold=0.999).predict(split.unlabeled), low)
    high = model.fit(split.labeled).predict(split.unlabeled)
    assert (high >= 0).sum() < (low >= 0).sum()


def test_the_mediator_may_not_depend_on_the_order_of_a_pair(split, model):
    graphs = [knn_graph(view, 10) for view in split.unlabeled]
    pairs = candidate_pairs(graphs[0])
    opinions = collect_opinions(pairs, split.unlabeled, graphs)
    n = 3
    turned = np.array(opinions.matrix())
    for block in (2 + 3, 2 + 3 + 2 * n):
        turned[:, block : block + 2 * n] = np.roll(turned[:, block : block + 2 * n], n, axis=1)
    np.testing.assert_allclose(
        model.mediator_.doubt(opinions.matrix()), model.mediator_.doubt(turned), rtol=1e-4
    )


@pytest.mark.parametrize(
    ("settings", "code", "fields"),
    [
        ({"threshold": 96}, "threshold-out-of-range", {"key": "threshold", "value": 96}),
        ({"memory_budget": "lots"}, "memory-budget-not-a-size", {"key": "memory_budget", "value": "lots"}),
        ({"seed": -1}, "seed-wrong", {"key": "seed", "value": -1}),
        ({"threads": -1}, "setting-out-of-range", {"key": "threads", "value": -1}),
        (
            {"mediator": "vot"},
            "setting-choice-unknown",
            {"key": "mediator", "value": "vot"},
        ),
        (
            {"mediator": 3},
            "mediator-unknown",
            {"key": "mediator", "value": "3"},
        ),
        ({"mediator": "vote", "min_votes": 9}, "min-votes-exceed-committee", {"value": 9, "members": 2}),
        ({"train_on": "validation"}, "train-on-validation-in-fit", {"key": "train_on"}),
    ],
)
def test_wrong_settings_are_named(split, settings, code, fields):
    with refuses(code, **fields):
        CDP(**settings).fit(split.labeled).predict(split.unlabeled)


def test_bad_labeled_parts_are_named(split):
    labeled = split.labeled
    with refuses("mediator-without-identities", key="mediator"):
        CDP("paper", k=10).fit(Views(labeled.base, labeled.committee))
    with refuses("labeled-one-identity"):
        CDP("paper", k=10).fit(Views(labeled.base, identities=np.zeros(labeled.n_images, int)))
    with refuses("mediator-pairs-one-sided", pairs=1976):
        CDP("paper", k=10).fit(Views(labeled.base, identities=np.arange(labeled.n_images)))


def test_all_pairs_positive_are_refused():
    # Two identities far from each other and k small: every neighbor is a true one.
    generator = np.random.default_rng(0)
    near = np.repeat(np.eye(2, 8), 20, axis=0) + 0.01 * generator.normal(size=(40, 8))
    with refuses("mediator-pairs-one-sided", pairs=83):
        CDP("paper", k=3).fit(Views(near, identities=np.repeat([0, 1], 20)))


def test_predicting_before_learning_says_what_to_do(split):
    with refuses("cdp-not-fitted"):
        CDP(k=10).predict(split.unlabeled)


@pytest.mark.parametrize(
    ("preset", "code"), [("paper", "mediator-committee-differs"), ("best", "labeled-committee-differs")]
)
def test_another_committee_is_refused_before_anything_is_searched(large_split, preset, code):
    model = CDP(preset, k=10).fit(large_split.labeled)
    renamed = Views(large_split.unlabeled.base, {"x": large_split.unlabeled.committee["member1"]})
    steps = []
    with refuses(code, expected=("member1", "member2"), found=("x",)):
        model.predict(renamed, progress=lambda step, *_: steps.append(step))
    assert steps == []


def test_a_graph_of_other_images_is_refused(split, model):
    neighbors = np.array([[other for other in range(11) if other != row] for row in range(11)])
    graph = KnnGraph(neighbors, np.full(neighbors.shape, 0.5))
    with refuses("graph-images-differ", model="base", expected=811, found=11):
        model.predict(split.unlabeled, graphs=[graph, graph, graph])


def test_average_grouping_is_agglomeration_of_all_pairs_that_are_not_negligible(split, model):
    average = CDP(
        "paper", k=10, grouping="average", threshold=0.4, max_cluster_size=9, mediator=model.mediator_
    )
    blind = Views(split.unlabeled.base, split.unlabeled.committee)
    labels = average.fit(blind).labeling_.labels
    everything = CDP("paper", k=10, threshold=0, mediator=model.mediator_)
    everything.fit(blind)
    scored = everything.labeling_.accepted
    kept = scored.probability > 0.04
    graph = ConsensusGraph(scored.ids[kept], scored.doubt[kept], scored.n_images)
    np.testing.assert_array_equal(labels.labels, agglomerate(graph, 10, 0.4, 9).labels)
    assert labels.sizes.max() <= 9
    assert 0 < kept.sum() < len(kept)


def test_average_grouping_serves_a_vote(split):
    model = CDP(k=10, mediator="vote", min_votes=1, threshold=0.5)
    labels = model.fit_predict(Views(split.unlabeled.base, split.unlabeled.committee))
    assert measure_labels(labels, split.unlabeled.identities).discards_kept.bcubed.f > 0.5


@pytest.mark.slow
def test_fit_predict_learns_from_the_known_and_labels_all(large_split):
    views = Views.concatenate(
        [large_split.labeled, Views(large_split.unlabeled.base, large_split.unlabeled.committee)]
    )
    known = views.identities >= 0
    model = CDP(k=10, mediator="trees")
    labels = model.fit_predict(views)
    np.testing.assert_array_equal(model.labels_, labels)
    assert labels.shape == (views.n_images,)
    assert model.labeling_.notes == ()
    # Trees are trained and the threshold is chosen on all labeled images, by folds.
    np.testing.assert_array_equal(model.labeling_.validation, known)
    # An MLP is trained on some of them, and the threshold is chosen on the others.
    mlp = CDP(k=10, mediator="mlp")
    mlp.fit_predict(views)
    validation = mlp.labeling_.validation
    assert 0 < validation.sum() < known.sum()
    assert not validation[~known].any()
    assert not set(views.identities[validation]) & set(views.identities[known & ~validation])
    truth = np.concatenate([large_split.labeled.identities, large_split.unlabeled.identities])
    assert measure_labels(labels, truth).discards_kept.pairwise.f > 0.7
    # The same with y of its own, by name.
    names = np.array([f"id{number:03d}" if number >= 0 else None for number in views.identities], object)
    blind = Views(views.base, views.committee)
    np.testing.assert_array_equal(CDP(k=10, mediator="trees").fit_predict(blind, names), labels)


def test_fit_predict_of_a_vote_chooses_its_bar_on_all_known_images(large_split):
    views = Views.concatenate(
        [large_split.labeled, Views(large_split.unlabeled.base, large_split.unlabeled.committee)]
    )
    model = CDP(k=10, mediator="vote")
    model.fit_predict(views)
    np.testing.assert_array_equal(model.labeling_.validation, views.identities >= 0)
    assert model.labeling_.tuning is not None


def test_fit_predict_without_identities_says_what_to_do(split):
    blind = Views(split.unlabeled.base, split.unlabeled.committee)
    for y in (None, np.full(blind.n_images, -1)):
        with refuses("mediator-without-identities", key="mediator"):
            CDP(k=10, mediator="mlp").fit_predict(blind, y)


def test_too_few_known_identities_are_a_note(split):
    views = Views.concatenate([split.labeled, Views(split.unlabeled.base, split.unlabeled.committee)])
    model = CDP(k=10, mediator="mlp")
    model.fit_predict(views)
    why = "too few labeled identities have two images or more"
    assert model.labeling_.notes == (
        f"threshold = 0.3, the default, was not chosen on labeled identities: {why}.",
    )
    assert not model.labeling_.validation.any()


@pytest.mark.slow
def test_a_fitted_model_can_be_pickled(large_split):
    model = CDP(k=10).fit(large_split.labeled)
    again = pickle.loads(pickle.dumps(model))
    expected = model.predict(large_split.unlabeled)
    np.testing.assert_array_equal(again.predict(large_split.unlabeled), expected)


def test_too_few_images_lower_k_with_a_note(split):
    model = CDP(k=100_000).fit(Views(split.unlabeled.base).take(np.arange(60)))
    assert model.labeling_.settings.k == 59
    assert "k = 59 instead of 100000: there are 60 images." in model.labeling_.notes


def test_where_all_identities_are_known_there_is_nothing_to_label(split):
    model = CDP("paper", k=10).fit(split.labeled)
    np.testing.assert_array_equal(model.labels_, Labels.from_array(split.labeled.identities).labels)
    assert (model.probabilities_ == 1).all()
    assert model.n_clusters_ == len(np.unique(split.labeled.identities))


EXPECTED_FAILURES = {
    "check_estimators_dtypes": "rounded to integers, some rows are all zero, and a zero vector has no cosine similarity",
    "check_methods_subset_invariance": "images are labeled by their neighbors among the images that are given with them",
    "check_methods_sample_order_invariance": "groups are numbered by their first image, so another order has other numbers",
    "check_dict_unchanged": "predict keeps the labeling (accepted pairs, threshold, notes) for a look and for save",
}
"""Checks of scikit-learn that the estimator fails, each with the reason."""


def test_it_is_an_estimator_as_scikit_learn_checks_it():
    from sklearn.utils.estimator_checks import check_estimator

    found = check_estimator(CDP(), expected_failed_checks=EXPECTED_FAILURES, on_skip=None)
    failed = {one["check_name"] for one in found if one["status"] == "xfail"}
    # Its order is drawn without a seed, and one in a few gives the same numbers by chance.
    failed.add("check_methods_sample_order_invariance")
    assert failed == set(EXPECTED_FAILURES), "a check that passes now is expected to fail no longer"


@pytest.mark.slow
def test_a_grid_search_over_k(split):
    from sklearn.model_selection import GridSearchCV, GroupKFold

    views = split.labeled
    search = GridSearchCV(CDP("paper"), {"k": [5, 10]}, cv=GroupKFold(2), error_score="raise")
    search.fit(views.base.vectors, views.identities, groups=views.identities)
    assert search.best_params_["k"] in (5, 10)
    assert 0.2 < search.best_score_ <= 1


@pytest.mark.parametrize(
    "shape",
    [
        lambda one, two: [one, two],
        lambda one, two: (one, two),
        lambda one, two: {"first": one, "second": two},
        lambda one, two: Views(one, {"second": two}),
    ],
)
def test_several_models_come_as_list_dict_or_views(split, shape):
    one, two = (model.vectors[:200] for model in list(split.unlabeled)[:2])
    expected = CDP(k=10).fit_predict(Views(one, {"model2": two}))
    np.testing.assert_array_equal(CDP(k=10).fit_predict(shape(one, two)), expected)


def test_a_data_frame_keeps_the_names_of_its_columns(split):
    pandas = pytest.importorskip("pandas")
    vectors = split.unlabeled.base.vectors[:200]
    frame = pandas.DataFrame(vectors, columns=[f"x{number}" for number in range(vectors.shape[1])])
    model = CDP(k=10).fit(frame)
    np.testing.assert_array_equal(model.labels_, CDP(k=10).fit_predict(vectors))
    assert model.feature_names_in_[0] == "x0"
    assert model.n_features_in_ == vectors.shape[1]


@pytest.mark.parametrize(
    "unknown",
    [
        lambda y: np.where(y % 2, y, -1),
        lambda y: np.where(y % 2, y, np.nan),
        lambda y: [int(one) if one % 2 else None for one in y],
        lambda y: [f"id{one:04d}" if one % 2 else None for one in y],
        lambda y: [f"id{one:04d}" if one % 2 else np.nan for one in y],
    ],
)
def test_unknown_identities_are_minus_one_none_or_nan(split, unknown):
    vectors, y = split.labeled.base.vectors, split.labeled.identities
    model = CDP("paper", k=10).fit(vectors, unknown(y))
    expected = CDP("paper", k=10).fit(vectors, np.where(y % 2, y, -1))
    np.testing.assert_array_equal(model.labels_, expected.labels_)
    assert expected.mediator_ is not None


def test_the_signature_is_written_out_and_names_every_setting():

    from cdp.runtime.settings import RuntimeSettings
    from cdp.scoring.settings import ConsensusSettings
    from cdp.settings import settings_of

    known = [*settings_of(ConsensusSettings), *settings_of(RuntimeSettings)]
    named = [name for name in inspect.signature(CDP).parameters if name not in ("seed", "verbose")]
    assert sorted(named) == sorted(known)
    for name in (*named, "seed", "verbose"):
        assert f"    {name}: " in (inspect.getdoc(CDP) or "")


def test_it_can_be_shown_in_a_notebook():
    model = CDP(k=7)
    assert repr(model) == "CDP(k=7)"
    assert "CDP" in model._repr_html_()
