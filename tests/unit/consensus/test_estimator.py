import numpy as np
import pytest
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from cdp import (
    CDP,
    ConsensusGraph,
    InputError,
    KnnGraph,
    Labels,
    Mediator,
    Views,
    Vote,
    candidate_pairs,
    collect_opinions,
    knn_graph,
    measure_labels,
    propagate,
)
from cdp.consensus.agglomeration import agglomerate
from cdp.lab.synthetic import synthetic_views
from cdp.types import ALL_INPUTS


@pytest.fixture(scope="module")
def split():
    return synthetic_views(120, 8, members=2, dimensions=32, noise=0.4)


@pytest.fixture(scope="module")
def model(split):
    return CDP(k=10).fit(split.labeled)


def test_finds_identities(split, model):
    labels = model.predict(split.unlabeled)
    figures = measure_labels(labels, split.unlabeled.identities)
    assert figures.discards_kept.bcubed.f > 0.7
    assert labels.sizes.max() <= 600


def test_same_seed_same_labels_on_any_number_of_threads(split):
    alone = CDP(k=10, threads=1).fit(split.labeled).predict(split.unlabeled)
    together = CDP(k=10, threads=4).fit(split.labeled).predict(split.unlabeled)
    np.testing.assert_array_equal(alone.labels, together.labels)
    np.testing.assert_array_equal(alone.confidence, together.confidence)


def test_a_small_memory_budget_changes_no_label(split):
    roomy = CDP(k=10).fit(split.labeled).consensus(split.unlabeled)
    tight = CDP(k=10, memory_budget="100KB")
    tight.mediator = CDP(k=10).fit(split.labeled).mediator_
    graph = tight.consensus(split.unlabeled)
    np.testing.assert_array_equal(roomy.ids, graph.ids)
    # Blocks of other shapes round their matrix products differently in the last bit.
    np.testing.assert_allclose(roomy.doubt, graph.doubt, rtol=1e-4)


def test_learns_within_a_small_memory_budget(split):
    # 1,024 pairs at a time is the least a block holds, far fewer than there are.
    model = CDP(k=10, memory_budget=1).fit(split.labeled)
    assert model.mediator_.lessons["pairs"] > 1024
    figures = measure_labels(model.predict(split.unlabeled), split.unlabeled.identities)
    assert figures.discards_kept.bcubed.f > 0.7


def test_numbering_the_images_differently_changes_no_group(split, model):
    order = np.random.default_rng(1).permutation(split.unlabeled.n_images)
    before = model.predict(split.unlabeled).labels
    after = model.predict(split.unlabeled.take(order)).labels
    np.testing.assert_array_equal(Labels.from_array(before[order]).labels, after)


def test_identities_of_the_unlabeled_part_are_not_looked_at(split, model):
    blind = Views(split.unlabeled.base, split.unlabeled.committee)
    np.testing.assert_array_equal(model.predict(split.unlabeled).labels, model.predict(blind).labels)


def test_given_graphs_are_used_in_order_or_by_name(split, model):
    graphs = [knn_graph(view, 10) for view in split.unlabeled]
    expected = model.predict(split.unlabeled).labels
    np.testing.assert_array_equal(model.predict(split.unlabeled, graphs=graphs).labels, expected)
    named = dict(zip(split.unlabeled.names, graphs, strict=True))
    np.testing.assert_array_equal(model.predict(split.unlabeled, graphs=named).labels, expected)
    with pytest.raises(InputError, match="2 k-NN graphs for 3 models"):
        model.predict(split.unlabeled, graphs=graphs[:2])


def test_the_steps_by_hand_give_the_same(split, model):
    graphs = [knn_graph(view, 10, method="exact") for view in split.unlabeled]
    pairs = candidate_pairs(graphs[0])
    doubt = model.mediator_.doubt(collect_opinions(pairs, split.unlabeled, graphs).matrix())
    graph = model.consensus(split.unlabeled, graphs)
    accepted = doubt < 1 - 0.96
    np.testing.assert_array_equal(graph.ids, pairs.ids[accepted])
    np.testing.assert_array_equal(propagate(graph, 600, 0.1).labels, model.predict(split.unlabeled).labels)


def test_vote_works_on_one_array(split):
    embeddings = split.unlabeled.base.vectors
    estimator = CDP(k=10, max_size=10_000, mediator=Vote(threshold=0.6))
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
    graph = CDP(k=10, mediator=Vote()).consensus(split.unlabeled)
    assert len(graph) > 0


def test_any_classifier_can_mediate_and_stays_untouched(split):
    classifier = LogisticRegression(max_iter=500)
    labels = CDP(k=10, mediator=classifier).fit(split.labeled).predict(split.unlabeled)
    assert measure_labels(labels, split.unlabeled.identities).discards_kept.bcubed.f > 0.6
    assert not hasattr(classifier, "coef_")


def test_a_learned_mediator_serves_without_the_labeled_part(split, model, tmp_path):
    model.mediator_.save(tmp_path / "mediator")
    learned = Mediator.load(tmp_path / "mediator")
    labels = CDP(k=10, mediator=learned).predict(split.unlabeled)
    np.testing.assert_array_equal(labels.labels, model.predict(split.unlabeled).labels)


def test_common_neighbors_can_be_added_and_blocks_left_out(split):
    assert len(CDP(k=10, inputs=ALL_INPUTS).fit(split.labeled).mediator_.columns) == 6 * 2 + 5 + 3
    assert len(CDP(k=10, inputs=("relationship",)).fit(split.labeled).mediator_.columns) == 2


def test_an_empty_committee_leaves_five_inputs(split):
    alone = Views(split.labeled.base, identities=split.labeled.identities)
    assert len(CDP(k=10).fit(alone).mediator_.columns) == 5


def test_scikit_learn_manners(split):
    estimator = CDP(k=7, mediator=Vote(threshold=0.5), inputs=ALL_INPUTS)
    copy = clone(estimator)
    assert copy.get_params()["k"] == 7
    assert copy.get_params()["mediator__threshold"] == 0.5
    assert copy.set_params(k=9, mediator__threshold=0.7) is copy
    assert (copy.k, copy.mediator.threshold) == (9, 0.7)
    assert estimator.fit(split.labeled) is estimator
    assert "k=7" in repr(estimator)


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
    ("settings", "message"),
    [
        (
            {"threshold": 96},
            r"CDP\(threshold=96\): threshold is a probability in \[0, 1\]. Did you mean 0.96\?",
        ),
        ({"threshold": -0.5}, r"threshold is a probability in \[0, 1\]\.$"),
        ({"threshold": float("nan")}, r"threshold is a probability in \[0, 1\]"),
        ({"k": 0}, "at least 1 neighbor"),
        ({"k": 2.5}, "k is a whole number"),
        ({"k": 100_000}, "cannot be found among"),
        ({"max_size": 1}, "at least 2 images"),
        ({"step": 1.0}, "step lies between 0 and 1"),
        ({"grouping": "magic"}, r"CDP\(grouping='magic'\): choose from components, average\.$"),
        ({"join_above": 1}, r"CDP\(join_above=1\): a mean probability between 0 and 1, both excluded\.$"),
        ({"method": "magic"}, "choose from auto, exact, nndescent"),
        ({"inputs": ("affinty",)}, "'affinty' is not an input block"),
        ({"inputs": ()}, "choose at least one"),
        ({"memory_budget": "lots"}, "'lots' is not a size"),
        ({"threads": -1}, "give a number of threads, or 0 for all cores"),
        ({"mediator": "vote"}, r"give Vote\(\), or a classifier"),
        ({"mediator": Vote(quorum=9)}, "the committee has 2 members"),
    ],
)
def test_wrong_settings_are_named(split, settings, message):
    with pytest.raises(InputError, match=message):
        CDP(**settings).fit(split.labeled).predict(split.unlabeled)


def test_bad_labeled_parts_are_named(split):
    labeled = split.labeled
    with pytest.raises(InputError, match="the labeled part has none"):
        CDP(k=10).fit(Views(labeled.base, labeled.committee))
    with pytest.raises(InputError, match="one identity only"):
        CDP(k=10).fit(Views(labeled.base, identities=np.zeros(labeled.n_images, int)))
    with pytest.raises(InputError, match=r"all .* candidate pairs of the labeled part are of two identities"):
        CDP(k=10).fit(Views(labeled.base, identities=np.arange(labeled.n_images)))
    unknown = np.array(labeled.identities)
    unknown[[3, 5]] = -1
    with pytest.raises(
        InputError,
        match=r"no identity for rows 3, 5 .* leave these images out, or say crowd=True to keep them as company\.$",
    ):
        CDP(k=10).fit(Views(labeled.base, identities=unknown))


def test_all_pairs_positive_are_refused():
    # Two identities far apart and k small: every neighbor is a true one.
    generator = np.random.default_rng(0)
    near = np.repeat(np.eye(2, 8), 20, axis=0) + 0.01 * generator.normal(size=(40, 8))
    with pytest.raises(InputError, match=r"are of one identity\. Give more identities"):
        CDP(k=3).fit(Views(near, identities=np.repeat([0, 1], 20)))


def test_predicting_before_learning_says_what_to_do(split):
    with pytest.raises(InputError, match=r"call fit\(labeled\) first"):
        CDP(k=10).predict(split.unlabeled)


def test_another_committee_or_k_is_refused(split, model):
    renamed = Views(split.unlabeled.base, {"x": split.unlabeled.base})
    with pytest.raises(InputError, match=r"committee \(member1, member2\), these views have \(x\)"):
        model.predict(renamed)
    with pytest.raises(InputError, match="k=10, here k=5"):
        CDP(k=5, mediator=model.mediator_).predict(split.unlabeled)


def test_a_graph_of_other_images_is_refused(split, model):
    graph = KnnGraph(np.array([[1], [0]]), np.array([[0.5], [0.5]]))
    with pytest.raises(InputError, match="'base' has 2 images"):
        model.predict(split.unlabeled, graphs=[graph, graph, graph])


def _in_crowd(labeled, unlabeled):
    """One set of views, with the unlabeled images as company whose identities nobody knows."""
    return Views(
        np.concatenate([labeled.base.source, unlabeled.base.source]),
        {
            name: np.concatenate([labeled.committee[name].source, unlabeled.committee[name].source])
            for name in labeled.committee
        },
        np.concatenate([labeled.identities, np.full(unlabeled.n_images, -1)]),
    )


def test_average_grouping_is_agglomeration_of_all_pairs_that_are_not_negligible(split, model):
    average = CDP(k=10, grouping="average", join_above=0.4, max_size=9, mediator=model.mediator_)
    labels = average.predict(split.unlabeled)
    everything = CDP(k=10, threshold=0, mediator=model.mediator_).consensus(split.unlabeled)
    kept = everything.probability > 0.04
    graph = ConsensusGraph(everything.ids[kept], everything.doubt[kept], everything.n_images)
    np.testing.assert_array_equal(labels.labels, agglomerate(graph, 10, 0.4, 9).labels)
    assert labels.sizes.max() <= 9
    assert 0 < kept.sum() < len(kept)


def test_average_grouping_serves_a_vote(split):
    labels = CDP(k=10, mediator=Vote(quorum=1), grouping="average", join_above=0.5).predict(split.unlabeled)
    assert measure_labels(labels, split.unlabeled.identities).discards_kept.bcubed.f > 0.5


def test_learning_in_the_crowd_makes_probabilities_true_and_labels_better():
    hard = synthetic_views(300, 8, labeled=0.15, members=2, dimensions=32, noise=0.4)
    truth = hard.unlabeled.identities
    errors, gaps, labeled_well = [], [], []
    for lesson, crowd in ((hard.labeled, False), (_in_crowd(hard.labeled, hard.unlabeled), True)):
        model = CDP(k=10, threshold=0).fit(lesson, crowd=crowd)
        graph = model.consensus(hard.unlabeled)
        same = truth[graph.ids[:, 0]] == truth[graph.ids[:, 1]]
        errors.append(float(np.mean((graph.probability - same) ** 2)))
        gaps.append(abs(float(graph.probability.mean() - same.mean())))
        labeled_well.append(
            [
                measure_labels(labels, truth).discards_kept.pairwise.f
                for labels in (
                    CDP(k=10, grouping=grouping, mediator=model.mediator_).predict(hard.unlabeled)
                    for grouping in ("components", "average")
                )
            ]
        )
    assert model.mediator_.impostors == pytest.approx(
        (hard.labeled.n_images + hard.unlabeled.n_images) / hard.labeled.n_images
    )
    assert errors[1] < 0.7 * errors[0]  # measured: 0.028 and 0.062
    assert gaps[1] < 0.5 * gaps[0]  # measured: 0.017 and 0.085
    # Measured: components 0.305 alone and 0.849 in the crowd, average grouping 0.896 and 0.937.
    assert labeled_well[1][0] > labeled_well[0][0] + 0.3
    assert labeled_well[0][1] > 0.85
    assert labeled_well[1][1] > 0.91


def test_nothing_is_learned_from_images_without_identity(split):
    crowd = _in_crowd(split.labeled, split.unlabeled)
    known = crowd.identities >= 0
    pairs = candidate_pairs(knn_graph(crowd.base, 10)).ids
    ends = crowd.identities[pairs[known[pairs].all(axis=1)]]
    lessons = CDP(k=10).fit(crowd, crowd=True).mediator_.lessons
    assert lessons == {"pairs": len(ends), "positive": pytest.approx(np.mean(ends[:, 0] == ends[:, 1]))}


def test_crowd_changes_nothing_where_all_identities_are_known(split, model):
    again = CDP(k=10).fit(split.labeled, crowd=True)
    assert again.mediator_.impostors == 1
    for mine, theirs in zip(
        again.mediator_.classifier.weights_, model.mediator_.classifier.weights_, strict=True
    ):
        np.testing.assert_array_equal(mine[0], theirs[0])


def test_several_lessons_are_learned_from_together(split):
    half = split.labeled.identities % 2 == 0
    lessons = [split.labeled.take(half), split.labeled.take(~half)]
    graphs = [[knn_graph(view, 10) for view in views] for views in lessons]
    n_pairs = sum(len(candidate_pairs(held[0])) for held in graphs)
    roomy = CDP(k=10).fit_lessons(lessons, graphs=graphs)
    assert roomy.mediator_.lessons["pairs"] == n_pairs
    figures = measure_labels(roomy.predict(split.unlabeled), split.unlabeled.identities)
    assert figures.discards_kept.bcubed.f > 0.6
    blocks = CDP(k=7, memory_budget=1).fit_lessons(lessons).mediator_.lessons
    assert blocks["pairs"] > 1024  # more than one block at a time
    one = CDP(k=10).fit_lessons([split.labeled])
    other = CDP(k=10).fit(split.labeled)
    np.testing.assert_array_equal(
        one.mediator_.classifier.weights_[0][0], other.mediator_.classifier.weights_[0][0]
    )


def test_another_classifier_gets_the_same_odds_for_a_crowd(split, tmp_path):
    crowd = _in_crowd(split.labeled, split.unlabeled)
    learned = CDP(k=10, mediator=LogisticRegression(max_iter=500)).fit(crowd, crowd=True).mediator_
    plain = Mediator(learned.classifier, learned.committee, learned.inputs, learned.k)
    matrix = np.random.default_rng(0).normal(size=(20, len(learned.columns))).astype(np.float32)
    odds, less = ((1 - doubt) / doubt for doubt in (plain.doubt(matrix), learned.doubt(matrix)))
    np.testing.assert_allclose(less, odds / learned.impostors, rtol=1e-3, atol=1e-6)
    network = CDP(k=10).fit(crowd, crowd=True).mediator_
    network.save(tmp_path / "mediator")
    np.testing.assert_array_equal(Mediator.load(tmp_path / "mediator").doubt(matrix), network.doubt(matrix))


def test_lessons_that_cannot_be_learned_from_are_named(split):
    with pytest.raises(InputError) as caught:
        CDP(k=10).fit_lessons([])
    assert str(caught.value) == "fit_lessons: there are no lessons; give at least one."
    labeled = split.labeled
    other = Views(labeled.base, {"someone": labeled.base}, labeled.identities)
    with pytest.raises(InputError) as caught:
        CDP(k=10).fit_lessons([labeled, other])
    assert str(caught.value) == (
        "fit_lessons: lesson 0 has the committee (member1, member2), lesson 1 has (someone); "
        "give the same members in the same order."
    )
