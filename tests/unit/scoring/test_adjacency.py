"""Compressed sparse rows: the pairs of every image, in the order of the pairs."""

import numpy as np
import pytest

from cdp.scoring.adjacency import build_adjacency


@pytest.mark.parametrize("weighted", [True, False])
def test_lists_are_the_pairs_of_every_image(weighted):
    generator = np.random.default_rng(0)
    ids = generator.integers(0, 12, (40, 2)).astype(np.int32)
    ids = ids[ids[:, 0] != ids[:, 1]]
    weights = generator.random(len(ids)).astype(np.float32)
    starts, neighbors, weight = build_adjacency(ids, 13, weights if weighted else None)
    for image in range(13):
        rows = [row for row, pair in enumerate(ids) if image in pair]
        mine = slice(starts[image], starts[image + 1])
        assert neighbors[mine].tolist() == [int(ids[row].sum()) - image for row in rows]
        assert weight[mine].tolist() == ([float(weights[row]) for row in rows] if weighted else [])
    assert len(neighbors) == 2 * len(ids)
    assert len(weight) == 2 * len(ids) * weighted


def test_no_pairs_give_empty_lists():
    starts, neighbors, weight = build_adjacency(np.empty((0, 2), np.int32), 3)
    assert starts.tolist() == [0, 0, 0, 0]
    assert len(neighbors) == len(weight) == 0
