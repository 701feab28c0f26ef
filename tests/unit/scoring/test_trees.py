"""Evidence, second-order evidence and boosted trees, against slow twins written from their definitions."""

from dataclasses import replace

import numpy as np
import pytest

from cdp import CDP, KnnGraph, Views, knn_graph, measure_labels
from cdp.labeling.pipeline import label
from cdp.runtime.runtime import Runtime
from cdp.runtime.settings import RuntimeSettings
from cdp.scoring import boosting as boosted_trees
from cdp.scoring.adjacency import build_adjacency
from cdp.scoring.boosting import grow_trees
from cdp.scoring.fused_graph import search_fused
from cdp.scoring.pairs import candidate_pairs
from cdp.scoring.second_order import COLUMNS, second_order
from cdp.scoring.settings import ConsensusSettings
from cdp.scoring.tree_features import ALL_BLOCKS, BLOCKS, extract_tree_features, prepare_tree_features
from cdp.scoring.tree_scorer import labeled_among_impostors, seem_to_overlap, seem_unlike
from cdp.scoring.trees import FOLDS, label_pairs
from cdp_lab.synthetic import synthetic_views


@pytest.fixture(scope="module")
def split():
    return synthetic_views(110, 7, labeled=0.4, members=1, dimensions=16, noise=0.6, seed=2)


@pytest.fixture(scope="module")
def few():
    return synthetic_views(12, 6, members=1, dimensions=8).unlabeled


def slow_evidence(vectors, graph, one, other):
    """The ten columns of one model about a pair, from the lists themselves."""
    lists = [[int(image) for image in graph.neighbors[end] if image >= 0] for end in (one, other)]
    half = graph.k // 2
    near = [graph.similarity[end, :half].astype(np.float64) for end in (one, other)]
    cosine = float(vectors[one] @ vectors[other])
    ranks = [
        lists[0].index(other) if other in lists[0] else graph.k,
        lists[1].index(one) if one in lists[1] else graph.k,
    ]
    shared = set(lists[0]) & set(lists[1])
    places = [(lists[0].index(image), lists[1].index(image)) for image in shared]
    tenth = min(9, graph.k - 1)
    return [
        cosine,
        cosine - 0.5 * (near[0].mean() + near[1].mean()),
        cosine - max(graph.similarity[one, tenth], graph.similarity[other, tenth]),
        min(ranks),
        max(ranks),
        sum(a < half and b < half for a, b in places),
        len(shared),
        sum(1 / (1 + a + b) for a, b in places),
        min(near[0].mean(), near[1].mean()),
        max(near[0].std(), near[1].std()),
    ]


def test_evidence_is_what_its_definition_says(few):
    graphs = [knn_graph(model, 12) for model in few]
    together = search_fused(few, graphs, 12, runtime=Runtime())
    source = prepare_tree_features(few, graphs, together)
    joined = np.concatenate([model.vectors for model in few], axis=1) / np.sqrt(len(few))
    vectors, graphs = [*(model.vectors for model in few), joined], [*graphs, together]
    pairs = candidate_pairs(graphs[-1]).ids[::7]
    matrix = extract_tree_features(source, pairs)
    assert matrix.shape[1] == len(source.columns) == 10 * 3
    some = prepare_tree_features(few, graphs[:-1], together, ("similarity", "common_neighbors"))
    rows = [at for at, name in enumerate(source.columns) if name in some.columns]
    assert len(rows) == 6 * 3
    np.testing.assert_array_equal(extract_tree_features(some, pairs), matrix[:, rows])
    for row, (one, other) in enumerate(pairs):
        for number, (model, graph) in enumerate(zip(vectors, graphs, strict=True)):
            expected = slow_evidence(model, graph, one, other)
            np.testing.assert_allclose(matrix[row, 10 * number : 10 * (number + 1)], expected, atol=1e-5)
    np.testing.assert_allclose(
        extract_tree_features(source, pairs[:, ::-1].copy()),
        matrix,
        atol=1e-6,
        err_msg="a pair has no first image",
    )


def test_neighbors_in_all_models_together_are_those_of_the_mean_similarity(few):
    graphs = [knn_graph(model, 30) for model in few]
    mean = np.mean([model.vectors @ model.vectors.T for model in few], axis=0)
    np.fill_diagonal(mean, -2)
    together = search_fused(few, graphs, 8, runtime=Runtime.of(threads=2))
    expected = np.argsort(-mean, axis=1, kind="stable")[:, :8]
    np.testing.assert_array_equal(together.neighbors, expected)
    np.testing.assert_allclose(together.similarity, np.take_along_axis(mean, expected, axis=1), atol=1e-5)
    short = search_fused(few, [graph.nearest(2) for graph in graphs], 8, runtime=Runtime())
    assert (short.neighbors[:, 4:] == -1).all(), "two lists of two have four neighbors at most"
    assert search_fused(Views(few.base), graphs[:1], 8, runtime=Runtime()).k == 8


@pytest.mark.parametrize("n_rows", [60, 3000])
def test_walked_trees_say_what_the_library_says(n_rows):
    from sklearn.ensemble import HistGradientBoostingClassifier

    generator = np.random.default_rng(4)
    matrix = generator.normal(size=(n_rows, 6)).astype(np.float32)
    same = matrix[:, 0] + matrix[:, 1] ** 2 + 0.3 * generator.normal(size=n_rows) > 1
    found = grow_trees(matrix, same, seed=3).log_odds(matrix)
    library = HistGradientBoostingClassifier(
        max_iter=15,
        learning_rate=boosted_trees.RATE,
        max_leaf_nodes=boosted_trees.N_LEAVES,
        max_bins=boosted_trees.N_BINS,
        l2_regularization=1.0,
        early_stopping=False,
        random_state=3,
    ).fit(matrix, same)
    np.testing.assert_allclose(1 / (1 + np.exp(-found)), library.predict_proba(matrix)[:, 1], rtol=1e-6)


def test_trees_without_two_classes_know_the_share_only():
    matrix = np.zeros((5, 2), np.float32)
    assert (grow_trees(matrix, np.ones(5, bool), 0).log_odds(matrix) > 5).all()
    assert (grow_trees(matrix, np.zeros(5, bool), 0).log_odds(matrix) < -5).all()


def test_only_one_thread_at_a_time_is_where_the_library_changes_the_warning_filters(monkeypatch):
    """Without the lock another thread finds the list empty now and then, and warns."""
    from sklearn.ensemble._hist_gradient_boosting.binning import _BinMapper

    seen, fit = [], _BinMapper.fit

    def look(*positional, **named):
        seen.append(boosted_trees._BINNING.locked())
        return fit(*positional, **named)

    monkeypatch.setattr(_BinMapper, "fit", look)
    matrix = np.random.default_rng(0).random((60, 2)).astype(np.float32)
    grow_trees(matrix, matrix[:, 0] > 0.5, 0)
    assert seen == [True]


def slow_second_order(table, one, other):
    """The columns of a pair from a dictionary of dictionaries of probabilities."""
    mine, theirs = table[one], table[other]
    common = [image for image in mine if image in theirs and image not in (one, other)]
    totals = sum(mine.values()), sum(theirs.values())
    both = sum(mine[image] * theirs[image] for image in common)
    least = [min(mine[image], theirs[image]) for image in common]
    rests = (
        sum(value for image, value in mine.items() if image not in theirs),
        sum(value for image, value in theirs.items() if image not in mine and image != one),
    )
    return [
        mine[other],
        both,
        max(least, default=0),
        sum(max(mine[image], theirs[image]) * (1 - min(mine[image], theirs[image])) for image in common),
        sum(value > 0.5 for value in least),
        min(totals),
        max(totals),
        both / (min(totals) + 1e-3),
        both / (sum(totals) - both + 1e-3),
        min(rests),
        max(rests),
    ]


def test_second_order_evidence_is_what_its_definition_says(few):
    pairs = candidate_pairs(knn_graph(few.base, 8))
    probability = np.random.default_rng(3).random(len(pairs)).astype(np.float32)
    table = {image: {} for image in range(pairs.n_images)}
    for (one, other), value in zip(pairs.ids.tolist(), probability.tolist(), strict=True):
        table[one][other] = table[other][one] = value
    found = np.empty((len(pairs), len(COLUMNS)), np.float32)
    second_order(pairs.ids, probability, *build_adjacency(pairs.ids, pairs.n_images, probability), found)
    for row, (one, other) in enumerate(pairs.ids.tolist()):
        np.testing.assert_allclose(found[row], slow_second_order(table, one, other), rtol=1e-4, atol=1e-4)


def test_pairs_with_a_labeled_image_are_training_pairs(few):
    pairs = candidate_pairs(knn_graph(few.base, 5))
    identities = np.where(np.arange(few.n_images) % 2, few.identities, -1)
    known = identities[pairs.ids] >= 0
    complete = label_pairs(pairs, identities, seed=0)
    rows = np.concatenate(list(complete.training_rows(pairs, FOLDS)))
    np.testing.assert_array_equal(rows, np.flatnonzero(known.any(axis=1)))
    for fold in range(FOLDS):
        outside = (complete.fold[pairs.ids[rows]] != fold).all(axis=1)
        (found,) = complete.training_rows(pairs, fold)
        np.testing.assert_array_equal(found, rows[outside])
    every = np.arange(len(pairs))
    one, other = identities[pairs.ids].T
    np.testing.assert_array_equal(complete.same(pairs.ids, every), (one == other) & known.all(axis=1))
    people = {}
    for person, fold in zip(identities.tolist(), complete.fold.tolist(), strict=True):
        assert people.setdefault(person, fold) == fold, "a person is in one fold"


@pytest.mark.slow
def test_trees_label_better_than_the_paper_and_whatever_the_threads(split):
    chosen = ConsensusSettings.of(mediator="trees", k=10)
    found = label(
        split.unlabeled, chosen, labeled=[split.labeled], runtime=Runtime(RuntimeSettings(threads=1))
    )
    again = label(
        split.unlabeled, chosen, labeled=[split.labeled], runtime=Runtime(RuntimeSettings(threads=3))
    )
    np.testing.assert_array_equal(found.labels.labels, again.labels.labels)
    np.testing.assert_array_equal(found.labels.confidence, again.labels.confidence)
    paper = label(split.unlabeled, ConsensusSettings.of("paper", k=10), labeled=[split.labeled])
    truth = split.unlabeled.identities
    scores = [measure_labels(one.labels, truth).discards_kept.pairwise.f for one in (found, paper)]
    assert scores[0] > scores[1] + 0.02
    assert found.labels.n_images == split.unlabeled.n_images == found.candidates.n_images
    assert found.mediator is None
    assert all(graph.k == 10 for graph in found.graphs.values())


@pytest.mark.slow
def test_trees_take_known_rows_in_the_midst_and_look_at_no_others(split):
    views = Views.concatenate([split.unlabeled, split.labeled])
    mask = np.arange(views.n_images) >= split.unlabeled.n_images
    chosen = ConsensusSettings.of(mediator="trees", k=10)
    seen = label(views, chosen, validation=mask)
    blind = Views(views.base, views.committee, np.where(mask, views.identities, -1))
    np.testing.assert_array_equal(label(blind, chosen, validation=mask).labels.labels, seen.labels.labels)
    apart = label(split.unlabeled, chosen, labeled=[split.labeled])
    assert (apart.labels.labels >= 0).mean() == pytest.approx(
        (seen.labels.labels[~mask] >= 0).mean(), abs=0.05
    )


def test_with_too_few_labeled_identities_pairs_are_scored_by_similarity(split):
    one = np.unique(split.labeled.identities)[:5]
    few = split.labeled.take(np.isin(split.labeled.identities, one))
    settings = ConsensusSettings.of(mediator="trees", k=10)
    found = label(split.unlabeled, settings, labeled=[few])
    assert found.settings.mediator == "similarity"
    assert found.notes[0].endswith("pairs are scored by similarity, and groups keep the given identities.")
    model = CDP(mediator="trees", k=10).fit(few)
    np.testing.assert_array_equal(model.predict(split.unlabeled), found.labels.labels)
    # A threshold that is a probability needs a mediator.
    given = label(split.unlabeled, replace(settings, threshold=0.4), labeled=[few])
    assert given.mediator is not None
    assert any('mediator = "mlp" instead of "trees"' in note for note in given.notes)
    # Where they are among the images, groups keep them.
    views = Views(split.labeled.base, split.labeled.committee)
    known = np.where(np.isin(split.labeled.identities, one), split.labeled.identities, -1)
    among = CDP(k=10, disjoint=False).fit(views, known)
    assert among.labeling_.notes[0].endswith("and groups keep the given identities.")
    for person in one:
        assert len(set(among.labels_[known == person].tolist())) == 1
    assert len({int(among.labels_[known == person][0]) for person in one}) == len(one)
    graphs = [knn_graph(model, 20) for model in split.unlabeled]
    given = label(split.unlabeled, settings, labeled=[split.labeled], graphs=graphs)
    assert any("the given k-NN graphs do not contain the labeled images" in note for note in given.notes)


def test_given_lists_are_used_as_they_are(split):
    views = Views.concatenate([split.unlabeled, split.labeled])
    mask = np.arange(views.n_images) >= split.unlabeled.n_images
    graphs = {name: knn_graph(model, 12) for name, model in zip(views.names, views, strict=True)}
    chosen = ConsensusSettings.of(mediator="trees", k=10)
    found = label(views, chosen, validation=mask, graphs=graphs)
    assert isinstance(found.graphs["base"], KnnGraph)
    assert found.graphs["base"].k == 10


def test_blocks_are_named():
    assert [len(columns) for columns in BLOCKS.values()] == [3, 2, 3, 2]
    assert tuple(BLOCKS) == ALL_BLOCKS


def test_known_people_among_the_unknown_images_are_noticed(split):
    views = Views.concatenate([split.unlabeled, split.labeled])
    identities, n_images = views.identities, views.n_images
    candidates = knn_graph(views.base, 10)
    by_identity = np.where(np.arange(n_images) >= split.unlabeled.n_images, identities, -1)
    by_image = np.where(np.random.default_rng(0).random(n_images) < 0.5, identities, -1)
    assert not seem_to_overlap(candidates, by_identity)
    assert seem_to_overlap(candidates, by_image)
    assert not seem_to_overlap(candidates, np.where(np.arange(n_images) < 20, identities, -1)), (
        "too few to say"
    )
    model = CDP(k=10)
    model.fit_predict(views, by_image)
    assert any("set disjoint = false" in note for note in model.labeling_.notes)
    model = CDP(k=10, disjoint=False)
    model.fit_predict(views, by_image)
    assert not any("disjoint" in note for note in model.labeling_.notes)


def test_unlabeled_images_that_look_unlike_the_known_ones_are_noticed(split):
    views = Views.concatenate([split.unlabeled, split.labeled])
    known = np.where(np.arange(views.n_images) >= split.unlabeled.n_images, views.identities, -1)
    candidates = knn_graph(views.base, 10)
    twin = _known_among_strangers_twin(candidates, known)
    assert labeled_among_impostors(candidates, known) == pytest.approx(twin)
    assert not seem_unlike(*twin)
    moved = [_moved(model) for model in split.unlabeled]
    elsewhere = Views(moved[0], dict(zip(split.unlabeled.names[1:], moved[1:], strict=True)))
    found = label(elsewhere, ConsensusSettings.of(k=10), labeled=[split.labeled])
    assert any("look unlike the labeled ones" in note for note in found.notes)
    few = np.where(np.arange(views.n_images) < 20, views.identities, -1)
    assert labeled_among_impostors(candidates, few) is None, "too few to say"


def _moved(model):
    vectors = model.take(np.arange(model.n_images))
    return vectors + 1.0 / np.sqrt(vectors.shape[1])


def _known_among_strangers_twin(candidates, known):
    found, chance, n_strangers = 0, 0.0, 0
    for image in np.flatnonzero(known >= 0):
        strangers = [other for other in candidates.neighbors[image] if known[other] != known[image]]
        n_same = int((known == known[image]).sum())
        n_strangers += len(strangers)
        found += sum(known[other] >= 0 for other in strangers)
        chance += len(strangers) * ((known >= 0).sum() - n_same) / (len(known) - n_same)
    return found / n_strangers, chance / n_strangers
