"""From views to labels: where validation comes from, what counts as accepted, what results do not depend on."""

from dataclasses import replace

import numpy as np
import pytest
from tests.refusals import refuses

from cdp import Views, knn_graph, measure_labels
from cdp.labeling.fitting import LabeledImages, fit
from cdp.labeling.pipeline import label
from cdp.runtime.runtime import Runtime
from cdp.runtime.settings import RuntimeSettings
from cdp.scoring.mediator import _PAIRS_PER_BLOCK, select_training_pairs, train_mediator
from cdp.scoring.pairs import candidate_pairs
from cdp.scoring.paper_features import prepare_features
from cdp.scoring.settings import ConsensusSettings
from cdp.types import KnnGraph, Status

BEST = ConsensusSettings.of(k=10, mediator="mlp")
PAPER = ConsensusSettings.of("paper", k=10)


@pytest.fixture(scope="module")
def validation(large_split):
    """Half of the labeled part to train on, half to choose the threshold on."""
    half = large_split.labeled.identities % 2 == 0
    return large_split.labeled.take(half), large_split.labeled.take(~half)


def assert_no_group_of_one(labels):
    assert labels.sizes.min(initial=2) >= 2


@pytest.mark.parametrize(
    "given", [{"mediator": "trees"}, {"grouping": "components", "mediator": "mlp"}, {"mediator": "vote"}]
)
def test_validation_views_are_put_among_the_unlabeled_images_and_left_out_of_the_result(
    large_split, validation, given
):
    settings = ConsensusSettings.of(k=10, soft_depth=2, **given)
    training, others = validation
    labeling = label(large_split.unlabeled, settings, labeled=[training], validation=others)
    n_images = large_split.unlabeled.n_images
    assert labeling.tuning is not None
    assert labeling.labels.n_images == labeling.accepted.n_images == len(labeling.validation) == n_images
    assert labeling.soft_labels.shape == (n_images, labeling.labels.n_identities)
    assert not labeling.validation.any()
    assert all(graph.n_images == n_images for graph in labeling.graphs.values())
    assert_no_group_of_one(labeling.labels)
    sums = labeling.soft_labels.sum(axis=1)
    np.testing.assert_allclose(sums, labeling.labels.labels >= 0, atol=1e-5)
    likeliest = np.argmax(labeling.soft_labels.toarray(), axis=1)
    kept = labeling.labels.labels >= 0
    assert np.mean(likeliest[kept] == labeling.labels.labels[kept]) > 0.9


def test_views_and_mask_give_the_same_groups(large_split, validation):
    training, others = validation
    apart = label(large_split.unlabeled, BEST, labeled=[training], validation=others)
    together = Views.concatenate([large_split.unlabeled, others])
    mask = np.arange(together.n_images) >= large_split.unlabeled.n_images
    within = label(together, BEST, labeled=[training], validation=mask)
    assert within.labels.n_images == together.n_images
    np.testing.assert_array_equal(within.validation, mask)
    assert within.tuning.chosen == apart.tuning.chosen
    # The same groups, but for images that are alone without the validation images in their group.
    n_images = large_split.unlabeled.n_images
    for image in range(0, n_images, 7):
        if apart.labels[image] >= 0:
            mates = np.flatnonzero(within.labels.labels[:n_images] == within.labels[image])
            np.testing.assert_array_equal(mates, np.flatnonzero(apart.labels.labels == apart.labels[image]))
    lonely = (apart.labels.labels < 0) & (within.labels.labels[:n_images] >= 0)
    assert np.all(apart.labels.status[lonely] == Status.ISOLATED)


def test_identities_outside_the_mask_are_not_looked_at(large_split, validation):
    training, others = validation
    together = Views.concatenate([large_split.unlabeled, others])
    mask = np.arange(together.n_images) >= large_split.unlabeled.n_images
    hidden = Views(together.base, together.committee, np.where(mask, together.identities, 0))
    expected = label(together, BEST, labeled=[training], validation=mask)
    found = label(hidden, BEST, labeled=[training], validation=mask)
    np.testing.assert_array_equal(found.labels.labels, expected.labels.labels)


def test_a_mask_without_rows_is_no_validation_part(large_split):
    no_rows = np.zeros(large_split.unlabeled.n_images, bool)
    expected = label(large_split.unlabeled, BEST, labeled=[large_split.labeled])
    found = label(large_split.unlabeled, BEST, labeled=[large_split.labeled], validation=no_rows)
    assert found.tuning.chosen == expected.tuning.chosen
    np.testing.assert_array_equal(found.labels.labels, expected.labels.labels)


@pytest.mark.parametrize("rows", [np.array([1, 2, 3]), np.ones(7, bool), np.ones(678)])
def test_other_masks_are_refused(large_split, rows):
    with refuses("validation-mask-wrong", n_images=678):
        label(large_split.unlabeled, BEST, labeled=[large_split.labeled], validation=rows)


@pytest.mark.slow
def test_the_mediator_is_trained_where_train_on_says(large_split, validation):
    training, others = validation
    together = Views.concatenate([large_split.unlabeled, others])
    mask = np.arange(together.n_images) >= large_split.unlabeled.n_images

    def trained_on(part, **how):
        settings = replace(BEST, train_on=part)
        return label(together, settings, labeled=[training], validation=mask, **how).mediator.training

    of_labeled = fit(LabeledImages((training,)), replace(BEST, threshold=0.3)).mediator.training
    of_validation = fit(LabeledImages((others,)), replace(BEST, threshold=0.3)).mediator.training
    assert of_labeled != of_validation
    assert trained_on("labeled", networks_saw_labeled=True) == of_labeled
    assert trained_on("auto") == of_labeled
    assert trained_on("auto", networks_saw_labeled=True) == of_validation
    assert trained_on("validation") == of_validation
    # The same with views of their own.
    settings = replace(BEST, train_on="validation")
    views = label(large_split.unlabeled, settings, labeled=[training], validation=others)
    assert views.mediator.training == of_validation
    with refuses("train-on-validation-missing", key="train_on"):
        label(large_split.unlabeled, settings, labeled=[training])


def test_several_labeled_parts_are_learned_from_together(large_split):
    half = large_split.labeled.identities % 2 == 0
    parts = [large_split.labeled.take(half), large_split.labeled.take(~half)]
    n_pairs = sum(len(candidate_pairs(knn_graph(part.base, 10))) for part in parts)
    assert fit(LabeledImages(tuple(parts)), PAPER).mediator.training["pairs"] == n_pairs
    labels = label(large_split.unlabeled, PAPER, labeled=parts).labels
    assert measure_labels(labels, large_split.unlabeled.identities).discards_kept.bcubed.f > 0.6


def test_labeled_parts_that_cannot_be_learned_from_are_named(split):
    with refuses("labeled-missing") as caught:
        fit(LabeledImages(), PAPER)
    assert str(caught.value) == (
        "The mediator needs labeled images; give a labeled part or a trained mediator, or use "
        'mediator = "vote".'
    )
    labeled = split.labeled
    other = Views(labeled.base, {"someone": labeled.committee["member1"]}, labeled.identities)
    with refuses("labeled-committees-differ", part=1, expected=("member1", "member2"), found=("someone",)):
        fit(LabeledImages((labeled, other)), PAPER)


@pytest.mark.parametrize(
    "given",
    [
        {"mediator": "mlp"},
        {"mediator": "mlp", "grouping": "components"},
        {"mediator": "vote"},
        {"mediator": "vote", "grouping": "components"},
    ],
)
def test_an_accepted_pair_has_one_definition(large_split, given):
    """A candidate above the threshold with components; with average linkage, one that counted and whose images were joined."""
    settings = ConsensusSettings.of(k=10, min_votes=1, threshold=0.3, **given)
    labeling = label(large_split.unlabeled, settings, labeled=[large_split.labeled])
    accepted = {tuple(pair) for pair in labeling.accepted.ids.tolist()}
    candidates = {tuple(pair) for pair in candidate_pairs(labeling.graphs["base"]).ids.tolist()}
    assert accepted < candidates
    joined = {
        pair
        for pair in candidates
        if labeling.labels[pair[0]] == labeling.labels[pair[1]] and labeling.labels[pair[0]] >= 0
    }
    if settings.grouping == "components":
        threshold = 1 - 0.3 if settings.mediator == "mlp" else np.float32(1) - np.float32(0.3)
        assert labeling.accepted.doubt.max() < threshold
        # Nothing was too large, so nothing was split: whatever is accepted is joined.
        assert accepted <= joined
    else:
        assert accepted <= joined
        assert labeling.accepted.doubt.max() < 1 or settings.mediator == "vote"
    ends = labeling.labels.labels[labeling.accepted.ids]
    np.testing.assert_array_equal(ends[:, 0], ends[:, 1])


def ring_of_graphs(n_images, k, n_models):
    """Graphs that need no search: the neighbors of an image are the next ones, at steps that differ by model."""
    graphs = []
    for model in range(n_models):
        neighbors = (np.arange(n_images)[:, None] + np.arange(1, k + 1) * (model + 1)) % n_images
        similarity = np.tile(np.linspace(0.9, 0.1, k, dtype=np.float32), (n_images, 1))
        graphs.append(KnnGraph(neighbors.astype(np.int32), similarity))
    return graphs


@pytest.mark.slow
def test_the_memory_budget_does_not_change_the_mediators_weights():
    # More pairs than one block of training has, so that the number of blocks could matter.
    generator = np.random.default_rng(0)
    n_images, k = 9_000, 8
    models = [generator.normal(size=(n_images, 3)).astype(np.float32) for _ in range(2)]
    views = Views(models[0], {"a": models[1]}, np.arange(n_images) // 4)
    source = prepare_features(views, ring_of_graphs(n_images, k, 2))
    pairs = select_training_pairs(source, candidate_pairs(source.graphs[0]), views.identities)
    assert len(pairs.ids) > _PAIRS_PER_BLOCK
    # The least that is ever taken at once is 1,024 pairs.
    tight, roomy = (
        train_mediator([pairs], runtime=Runtime.of(memory_budget=budget)) for budget in ("1KB", "4GB")
    )
    for mine, theirs in zip(tight.classifier.weights_, roomy.classifier.weights_, strict=True):
        np.testing.assert_array_equal(mine[0], theirs[0])
        np.testing.assert_array_equal(mine[1], theirs[1])
    assert tight.classifier.losses_ == roomy.classifier.losses_


@pytest.mark.slow
def test_a_small_memory_budget_changes_no_label(large_split):
    expected = label(large_split.unlabeled, BEST, labeled=[large_split.labeled])
    tight = Runtime(RuntimeSettings(memory_budget="10KB", threads=2))
    with pytest.warns(UserWarning, match="memory_budget = 10KB is too little"):
        found = label(large_split.unlabeled, BEST, labeled=[large_split.labeled], runtime=tight)
    np.testing.assert_array_equal(found.labels.labels, expected.labels.labels)
    np.testing.assert_allclose(found.labels.confidence, expected.labels.confidence, atol=1e-5)


def test_seconds_of_every_step_are_kept(large_split):
    labeling = label(large_split.unlabeled, replace(BEST, soft_depth=1), labeled=[large_split.labeled])
    assert list(labeling.seconds) == [
        "labeled graphs", "mediator", "graphs", "consensus", "tuning", "groups", "soft labels",
    ]  # fmt: skip
