import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression
from tests.refusals import refuses

from cdp import (
    CDP,
    ConsensusGraph,
    KnnGraph,
    Labels,
    Mediator,
    Views,
    candidate_pairs,
    collect_opinions,
    knn_graph,
    measure_labels,
    propagate,
)
from cdp.grouping.average_linkage import agglomerate
from cdp.types import ALL_INPUTS


@pytest.fixture(scope="module")
def model(split):
    return CDP("paper", k=10).fit(split.labeled)


def pairwise_f(labels, views):
    return measure_labels(labels, views.identities).discards_kept.pairwise.f


def test_finds_identities(split, model):
    labels = model.predict(split.unlabeled)
    assert measure_labels(labels, split.unlabeled.identities).discards_kept.bcubed.f > 0.7
    assert labels.sizes.max() <= 600
    assert model.labeling_.labels is labels


@pytest.mark.slow
def test_the_default_preset_tunes_and_is_better_than_the_paper(large_split):
    best = CDP(k=10).fit(large_split.labeled)
    labels = best.predict(large_split.unlabeled)
    assert best.labeling_.tuning.chosen == best.labeling_.threshold
    assert best.labeling_.notes == ()
    paper = CDP("paper", k=10).fit(large_split.labeled).predict(large_split.unlabeled)
    assert pairwise_f(labels, large_split.unlabeled) > pairwise_f(paper, large_split.unlabeled)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["paper", "best"])
def test_same_seed_same_labels_on_any_number_of_threads(large_split, preset):
    alone, together = (
        CDP(preset, k=10, threads=threads).fit(large_split.labeled).predict(large_split.unlabeled)
        for threads in (1, 4)
    )
    np.testing.assert_array_equal(alone.labels, together.labels)
    np.testing.assert_array_equal(alone.confidence, together.confidence)


def test_a_small_memory_budget_changes_no_label(split, model):
    tight = CDP("paper", k=10, memory_budget="100KB", mediator=model.mediator_)
    model.predict(split.unlabeled)
    with pytest.warns(UserWarning, match="memory_budget = 100KB is too little"):
        tight.predict(split.unlabeled)
    roomy, graph = model.labeling_.accepted, tight.labeling_.accepted
    np.testing.assert_array_equal(roomy.ids, graph.ids)
    # Blocks of other shapes round their matrix products differently in the last bit.
    np.testing.assert_allclose(roomy.doubt, graph.doubt, rtol=1e-4)


def test_numbering_the_images_differently_changes_no_group(split, model):
    order = np.random.default_rng(1).permutation(split.unlabeled.n_images)
    before = model.predict(split.unlabeled).labels
    after = model.predict(split.unlabeled.take(order)).labels
    np.testing.assert_array_equal(Labels.from_array(before[order]).labels, after)


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["paper", "best"])
def test_identities_of_the_unlabeled_part_are_not_looked_at(large_split, preset):
    unlabeled = large_split.unlabeled
    model = CDP(preset, k=10).fit(large_split.labeled)
    expected = model.predict(Views(unlabeled.base, unlabeled.committee)).labels
    wrong = Views(unlabeled.base, unlabeled.committee, np.zeros(unlabeled.n_images, int))
    for views in (unlabeled, wrong):
        np.testing.assert_array_equal(model.predict(views).labels, expected)


def test_given_graphs_are_used_in_order_or_by_name(split, model):
    graphs = [knn_graph(view, 10) for view in split.unlabeled]
    expected = model.predict(split.unlabeled).labels
    np.testing.assert_array_equal(model.predict(split.unlabeled, graphs=graphs).labels, expected)
    named = dict(zip(split.unlabeled.names, graphs, strict=True))
    np.testing.assert_array_equal(model.predict(split.unlabeled, graphs=named).labels, expected)
    some = {"member2": graphs[2]}
    np.testing.assert_array_equal(model.predict(split.unlabeled, graphs=some).labels, expected)
    with refuses("graphs-models-differ", expected=3, found=2):
        model.predict(split.unlabeled, graphs=graphs[:2])
    with refuses("graph-model-unknown", model="member3") as caught:
        model.predict(split.unlabeled, graphs={"member3": graphs[0]})
    assert str(caught.value) == "A k-NN graph is given for 'member3'; the models are base, member1, member2."


def test_given_graphs_are_cut_to_k_and_refused_below(split, model):
    expected = model.predict(split.unlabeled).labels
    long = [knn_graph(view, 13) for view in split.unlabeled]
    np.testing.assert_array_equal(model.predict(split.unlabeled, graphs=long).labels, expected)
    with refuses("graph-k-differs", model="base", expected=10, found=7):
        model.predict(split.unlabeled, graphs={"base": knn_graph(split.unlabeled.base, 7)})


def test_the_steps_by_hand_give_the_same(split, model):
    labels = model.predict(split.unlabeled)
    graph = model.labeling_.accepted
    graphs = [knn_graph(view, 10, method="exact") for view in split.unlabeled]
    pairs = candidate_pairs(graphs[0])
    doubt = model.mediator_.doubt(collect_opinions(pairs, split.unlabeled, graphs).matrix())
    np.testing.assert_array_equal(graph.ids, pairs.ids[doubt < 1 - 0.96])
    np.testing.assert_array_equal(propagate(graph, 600, 0.1).labels, labels.labels)


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
    model.predict(split.unlabeled)
    assert len(model.labeling_.accepted) > 0


def test_any_classifier_can_mediate_and_stays_untouched(split):
    classifier = LogisticRegression(max_iter=500)
    labels = CDP("paper", k=10, mediator=classifier).fit(split.labeled).predict(split.unlabeled)
    assert measure_labels(labels, split.unlabeled.identities).discards_kept.bcubed.f > 0.6
    assert not hasattr(classifier, "coef_")


def test_a_learned_mediator_serves_without_the_labeled_part(split, model, tmp_path):
    model.mediator_.save(tmp_path / "mediator")
    learned = CDP("paper", k=10, mediator=Mediator.load(tmp_path / "mediator"))
    expected = model.predict(split.unlabeled).labels
    np.testing.assert_array_equal(learned.predict(split.unlabeled).labels, expected)
    np.testing.assert_array_equal(learned.fit(split.labeled).predict(split.unlabeled).labels, expected)
    # It keeps its own inputs, whatever the preset's are, and the record says so.
    other = CDP(k=10, mediator=learned.mediator)
    other.predict(split.unlabeled)
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
    assert (copy.settings.k, copy.settings.vote_threshold) == (9, 0.7)
    assert estimator.fit(split.labeled) is estimator
    assert "k=7" in repr(estimator)


def test_settings_changed_after_fit_count_in_predict(split):
    model = CDP("paper", k=10).fit(split.labeled)
    low = model.predict(split.unlabeled)
    high = model.set_params(threshold=0.999).predict(split.unlabeled)
    assert high.coverage < low.coverage
    with refuses("mediator-k-differs", expected=10, found=5):
        model.set_params(k=5).predict(split.unlabeled)
    with refuses("mediator-not-used", key="mediator", value="vote"):
        model.set_params(k=10, mediator="vote").predict(split.unlabeled)
    with refuses("mediator-not-trained"):
        CDP("paper", k=10, mediator="vote").fit(split.labeled).set_params(mediator="mlp").predict(
            split.unlabeled
        )


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
        ({"threshold": 96}, "setting-out-of-range", {"key": "threshold", "value": 96}),
        ({"treshold": 0.9}, "setting-unknown", {"key": "treshold"}),
        ({"k": 100_000}, "knn-too-few-images", {"k": 100000, "n_images": 303}),
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
        ({"mediator": "vote", "quorum": 9}, "min-votes-exceed-committee", {"value": 9, "members": 2}),
        ({"train_on": "validation"}, "train-on-validation-in-fit", {"key": "train_on"}),
    ],
)
def test_wrong_settings_are_named(split, settings, code, fields):
    with refuses(code, **fields):
        CDP(**settings).fit(split.labeled).predict(split.unlabeled)


def test_bad_labeled_parts_are_named(split):
    labeled = split.labeled
    with refuses("labeled-identities-missing"):
        CDP("paper", k=10).fit(Views(labeled.base, labeled.committee))
    with refuses("labeled-one-identity"):
        CDP("paper", k=10).fit(Views(labeled.base, identities=np.zeros(labeled.n_images, int)))
    with refuses("mediator-pairs-one-sided", pairs=1976):
        CDP("paper", k=10).fit(Views(labeled.base, identities=np.arange(labeled.n_images)))
    unknown = np.array(labeled.identities)
    unknown[[3, 5]] = -1
    with refuses("labeled-identities-incomplete", row=3, count=2):
        CDP("paper", k=10).fit(Views(labeled.base, identities=unknown))


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
    ("preset", "code"), [("paper", "mediator-committee-differs"), ("best", "known-committee-differs")]
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
    labels = average.predict(split.unlabeled)
    everything = CDP("paper", k=10, threshold=0, mediator=model.mediator_)
    everything.predict(split.unlabeled)
    scored = everything.labeling_.accepted
    kept = scored.probability > 0.04
    graph = ConsensusGraph(scored.ids[kept], scored.doubt[kept], scored.n_images)
    np.testing.assert_array_equal(labels.labels, agglomerate(graph, 10, 0.4, 9).labels)
    assert labels.sizes.max() <= 9
    assert 0 < kept.sum() < len(kept)


def test_average_grouping_serves_a_vote(split):
    model = CDP(k=10, mediator="vote", min_votes=1, threshold=0.5)
    labels = model.predict(split.unlabeled)
    assert measure_labels(labels, split.unlabeled.identities).discards_kept.bcubed.f > 0.5


@pytest.mark.slow
def test_fit_predict_learns_from_the_known_and_labels_all(large_split):
    views = Views.concatenate(
        [large_split.labeled, Views(large_split.unlabeled.base, large_split.unlabeled.committee)]
    )
    known = views.identities >= 0
    model = CDP(k=10)
    labels = model.fit_predict(views)
    np.testing.assert_array_equal(model.labels_, labels.labels)
    assert labels.n_images == views.n_images
    assert model.labeling_.notes == ()
    # Trees are trained and the bar is chosen on all known images, by folds.
    np.testing.assert_array_equal(model.labeling_.validation, known)
    # An MLP is trained on some of them, and the bar is chosen on the others.
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
    np.testing.assert_array_equal(CDP(k=10).fit_predict(blind, names).labels, labels.labels)


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
    assert model.labeling_.notes == (f"join_above = 0.3 was not tuned: {why}.",)
    assert not model.labeling_.validation.any()


@pytest.mark.slow
def test_a_fitted_model_can_be_pickled(large_split):
    model = CDP(k=10).fit(large_split.labeled)
    again = pickle.loads(pickle.dumps(model))
    expected = model.predict(large_split.unlabeled)
    np.testing.assert_array_equal(again.predict(large_split.unlabeled).labels, expected.labels)
