from itertools import combinations

import numpy as np
import pytest
from tests.refusals import refuses

import reference
from cdp.grouping import average_linkage
from cdp.grouping.average_linkage import agglomerate, build_dendrogram
from cdp.grouping.propagation import propagate
from cdp.types import ConsensusGraph, Status


def _clique(images, doubt):
    return [(first, second, doubt) for first, second in combinations(images, 2)]


def _graph(edges, n_images):
    return ConsensusGraph(
        np.array([edge[:2] for edge in edges], np.int32).reshape(-1, 2),
        np.array([edge[2] for edge in edges], np.float64),
        n_images,
    )


@pytest.mark.parametrize("stages", [(0.5,), (0.95, 0.6, 0.55, 0.3, 0.2, 0.1)])
def test_stages_are_one_piece_bit_for_bit(stages, monkeypatch):
    generator = np.random.default_rng(7)
    for _ in range(40):
        ends = generator.integers(0, 40, (200, 2))
        ends = ends[ends[:, 0] != ends[:, 1]]
        doubt = generator.random(len(ends))
        # Also with few different values: many means tie, with each other and with where stages end.
        for tied in (doubt, np.round(doubt, 1)):
            graph = ConsensusGraph(ends, tied, 40)
            found = []
            for some in ((), stages):
                monkeypatch.setattr(average_linkage, "_STAGE_ENDS", some)
                dendrogram = build_dendrogram(graph, 4, 0.05, 12)
                found.append([dendrogram.cut(threshold) for threshold in (0.05, 0.17, 0.3, 0.62)])
            for one, other in zip(*found, strict=True):
                for name in ("labels", "status", "confidence"):
                    assert getattr(one, name).tobytes() == getattr(other, name).tobytes()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_random_graphs_agree_with_the_definition(dtype):
    sizes = set()
    for seed in range(60):
        generator = np.random.default_rng(seed)
        n_images = int(generator.integers(2, 25))
        every = np.array(list(combinations(range(n_images), 2)))
        n_pairs = min(len(every), int(generator.integers(1, 6 * n_images)))
        ends = every[np.sort(generator.choice(len(every), n_pairs, replace=False))]
        doubt = (generator.random(n_pairs) ** 2).astype(dtype)
        k, max_cluster_size = int(generator.integers(1, 12)), int(generator.integers(2, 20))
        threshold = float(generator.choice([0.05, 0.2, 0.4, 0.7]))
        labels = agglomerate(ConsensusGraph(ends, doubt, n_images), k, threshold, max_cluster_size)
        twin = reference.agglomerate(
            ends, 1 - doubt.astype(np.float64), n_images, k, threshold, max_cluster_size
        )
        assert reference.partition(labels.labels) == twin
        inside = [
            row
            for row, (first, second) in enumerate(ends)
            if 0 <= labels[first] == labels[second] and doubt[row] < 1 - threshold
        ]
        np.testing.assert_allclose(
            labels.confidence, reference.confidence(ends, doubt, inside, labels.labels), atol=1e-6
        )
        sizes |= {len(group) for group in twin}
    assert max(sizes) > 5


def test_two_cliques_joined_by_a_false_pair_stay_apart_where_components_join_them():
    graph = _graph([*_clique(range(5), 0.1), *_clique(range(5, 10), 0.1), (4, 5, 0.001)], 10)
    assert propagate(graph).n_identities == 1
    labels = agglomerate(graph, k=20)
    # The false pair is the most probable of all and is merged first; its images then pull no others along.
    assert reference.partition(labels.labels) != {frozenset(range(10))}
    calm = _graph([*_clique(range(5), 0.1), *_clique(range(5, 10), 0.1), (4, 5, 0.2)], 10)
    assert propagate(calm).n_identities == 1
    assert reference.partition(agglomerate(calm, k=20).labels) == {
        frozenset(range(5)),
        frozenset(range(5, 10)),
    }


def test_a_group_larger_than_k_is_not_broken_by_the_pairs_a_knn_graph_cannot_hold():
    # 60 images of one person on a ring, each tied to its 4 neighbors on either side: 8 of 59 possible pairs.
    pairs = {tuple(sorted((image, (image + step) % 60))) for image in range(60) for step in (1, 2, 3, 4)}
    found = {8: [], 59: []}
    for seed in range(20):
        doubts = 0.2 * np.random.default_rng(seed).random(len(pairs))
        graph = _graph([(*pair, doubt) for pair, doubt in zip(sorted(pairs), doubts, strict=True)], 60)
        for k, counts in found.items():
            counts.append(agglomerate(graph, k=k).n_identities)
    assert sum(found[8]) < 0.9 * sum(found[59])


def test_fates_say_why_an_image_is_alone():
    graph = _graph([*_clique(range(6), 0.1), (5, 6, 0.5), (0, 7, 0.9)], 9)
    labels = agglomerate(graph, k=20, threshold=0.4)
    assert labels.labels.tolist() == [0, 0, 0, 0, 0, 0, -1, -1, -1]
    assert labels.status[6:].tolist() == [Status.ISOLATED, Status.NO_ACCEPTED_PAIR, Status.NO_ACCEPTED_PAIR]
    np.testing.assert_allclose(labels.confidence, [0.9] * 4 + [0.9, 0.9, 0, 0, 0], atol=1e-6)


def test_no_pairs_and_voted_doubts_above_one():
    assert agglomerate(_graph([], 3), k=2).status.tolist() == [Status.NO_ACCEPTED_PAIR] * 3
    labels = agglomerate(_graph([(0, 1, 0.2), (1, 2, 1.5)], 3), k=2)
    assert labels.labels.tolist() == [0, 0, -1]


@pytest.mark.parametrize(
    ("settings", "code", "fields"),
    [
        (
            {"threshold": 1.0},
            "linkage-threshold-out-of-range",
            {"value": 1.0},
        ),
        ({"threshold": 0}, "linkage-threshold-out-of-range", {"value": 0}),
        ({"max_cluster_size": 1}, "max-cluster-size-too-small", {"value": 1}),
        ({"k": 0}, "k-too-small", {"value": 0}),
    ],
)
def test_impossible_settings_are_refused(settings, code, fields):
    with refuses(code, **fields):
        agglomerate(_graph([(0, 1, 0.1)], 2), **{"k": 3, **settings})
