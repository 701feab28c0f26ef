"""Where average linkage stops without labels: the rule on made-up similarities, its parts against slow twins."""

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score

from cdp.grouping.exact_linkage import link_exactly
from cdp.labeling.false_merges import find_merge_threshold
from cdp.labeling.impostors import ZScale, pairs_between
from cdp.labeling.merge_steps import LinkedImages, MergeSteps
from cdp.labeling.unsupervised_threshold import _mutual_neighbors
from cdp.runtime.runtime import Runtime


def faces(sizes, *, noise=0.55, dimensions=128, seed=0):
    """Unit vectors around identities, and the identities."""
    generator = np.random.default_rng(seed)
    people = np.repeat(np.arange(len(sizes)), sizes)
    centers = generator.normal(size=(len(sizes), dimensions)) / np.sqrt(dimensions)
    vectors = centers[people] + noise * generator.normal(size=(len(people), dimensions)) / np.sqrt(dimensions)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True), people


def linked(vectors, scale=1.0, offset=0.0):
    """Images under average linkage; similarity = offset + scale * cosine."""
    vectors = (np.sqrt(scale) * vectors).astype(np.float32)
    similarity = offset + vectors @ vectors.T
    ids = np.stack(np.triu_indices(len(vectors), 1), axis=1).astype(np.int32)
    scores = similarity[tuple(ids.T)]
    lowest = offset - 0.2 * scale
    merges = link_exactly(ids, vectors, offset, lowest, runtime=Runtime())

    def of_some(rows):
        return similarity[np.ix_(rows, rows)]

    first = _mutual_neighbors(ids, scores, len(vectors))
    return LinkedImages(len(vectors), merges, first, of_some, scale + offset, lowest)


def groups(vectors):
    images = linked(vectors)
    found = find_merge_threshold(images)
    return np.arange(len(vectors)) if found is None else MergeSteps.of(images).cut(found.at)


ALBUMS = {
    "everybody a few times": [5] * 40,
    "half of them once": [4] * 25 + [1] * 100,
    "nearly all once": [3] * 5 + [1] * 150,
    "two people are most of it": [60, 50] + [1] * 40,
    "one person is nearly all": [40, 2, 1, 1, 1],
    "a few dozen": [4, 4, 3, 3, 2, 1, 1, 1],
    "large and small": [50, 30, 20, 10, 5, 5, 4, 3, 2, 2, 1, 1, 1],
}


@pytest.mark.parametrize("name", ALBUMS)
@pytest.mark.parametrize("seed", [0, 1])
def test_albums_of_all_kinds(name, seed):
    vectors, people = faces(ALBUMS[name], seed=seed)
    assert adjusted_rand_score(people, groups(vectors)) > 0.95


@pytest.mark.parametrize("n_images", [20, 60, 300])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_where_nobody_is_there_twice_hardly_anything_is_merged(n_images, seed):
    vectors, _ = faces([1] * n_images, seed=seed)
    assert len(set(groups(vectors).tolist())) >= 0.93 * n_images


@pytest.mark.parametrize("dimensions", [64, 128, 512])
@pytest.mark.parametrize("n_centers", [3, 10, 30])
def test_blobs(dimensions, n_centers):
    points, truth = make_blobs(300, centers=n_centers, n_features=dimensions, random_state=0)
    points /= np.linalg.norm(points, axis=1, keepdims=True)
    assert adjusted_rand_score(truth, groups(points)) > 0.99


@pytest.mark.parametrize(
    ("n_images", "dimensions", "seed"), [(50, 8, 3), (1000, 8, 3), (50, 512, 2), (200, 512, 2)]
)
def test_a_few_blobs_are_found_by_the_clear_gap_between_them(n_images, dimensions, seed):
    points, truth = make_blobs(n_images, centers=10, n_features=dimensions, random_state=seed)
    vectors = points / np.linalg.norm(points, axis=1, keepdims=True)
    assert adjusted_rand_score(truth, groups(vectors)) > 0.99


def test_the_gap_below_copies_does_not_end_merges_of_people():
    vectors, people = faces(np.full(20, 5), noise=0.8)
    twice = np.concatenate([vectors, vectors + 0.001])
    found = groups(twice / np.linalg.norm(twice, axis=1, keepdims=True))
    assert adjusted_rand_score(np.tile(people, 2), found) > 0.95


def test_more_images_raise_the_threshold():
    few, many = (
        find_merge_threshold(linked(faces([3] * 60 + [1] * n, noise=0.8)[0])).threshold for n in (0, 1500)
    )
    assert many > few


def test_the_threshold_follows_the_unit_of_the_similarities():
    vectors, _ = faces([4] * 30 + [1] * 50)
    plain, scaled = find_merge_threshold(linked(vectors)), find_merge_threshold(linked(vectors, 7, 3))
    assert scaled.threshold == pytest.approx(7 * plain.threshold + 3, rel=1e-3)
    assert scaled.at == plain.at


def test_expected_precision_is_near_the_truth():
    vectors, people = faces([4] * 60 + [1] * 150, noise=0.75)
    found = find_merge_threshold(linked(vectors))
    labels = MergeSteps.of(linked(vectors)).cut(found.at)
    same_group = np.triu(labels[:, None] == labels[None, :], 1)
    same_person = people[:, None] == people[None, :]
    assert found.precision[found.at] == pytest.approx(same_person[same_group].mean(), abs=0.05)
    assert (np.diff(found.heights) <= 0).all()


def test_counts_of_groups_equal_a_walk_over_the_merges():
    vectors, _ = faces([6, 3, 2, 1, 1])
    tree = MergeSteps.of(linked(vectors))
    for at in range(len(tree.height)):
        sizes = np.bincount(tree.cut(at - 1))
        assert tree.groups[at].sum() == len(sizes)
        assert tree.groups[at, 0] == (sizes == 1).sum()
        assert tree.groups[at, 1] == (sizes == 2).sum()


def test_pairs_between_groups_weigh_the_same_for_every_two_groups():
    similarity = np.random.default_rng(0).normal(size=(6, 6))
    similarity += similarity.T
    between = pairs_between(similarity, np.array([0, 0, 0, 1, 1, 2]))
    assert len(between.values) == 3 * 2 + 3 * 1 + 2 * 1
    assert between.weight.sum() == pytest.approx(3)
    assert (np.diff(between.values) >= 0).all()


def test_mutual_neighbors_are_the_first_groups():
    similarity = np.array([[0, 9, 1, 2], [9, 0, 8, 1], [1, 8, 0, 3], [2, 1, 3, 0]], float)
    ids = np.stack(np.triu_indices(4, 1), axis=1).astype(np.int32)
    assert _mutual_neighbors(ids, similarity[tuple(ids.T)], 4).tolist() == [0, 0, 1, 2]


def test_z_is_the_logarithm_of_the_distance_and_can_be_undone():
    between = pairs_between(np.random.default_rng(0).normal(0, 0.09, (200, 200)), np.arange(200))
    scale = ZScale.of(between, 1.0)
    assert scale.highest == pytest.approx((1 - scale.center) / scale.spread)
    half = (1 + scale.center) / 2
    assert scale.z(np.array(half)) == pytest.approx(scale.highest * np.log(2))
    assert scale.z(np.array(scale.center - scale.spread)) == pytest.approx(-1)
    narrow = ZScale.of(between, 0.15)
    assert narrow.z(np.array(0.149)) > 3
    for one in (scale, narrow):
        for value in (-0.2, 0.0, 0.1, 0.14):
            assert one.similarity(float(one.z(np.array(value)))) == pytest.approx(value, abs=1e-9)


def test_too_few_images_are_not_merged():
    assert find_merge_threshold(linked(np.eye(2))) is None
