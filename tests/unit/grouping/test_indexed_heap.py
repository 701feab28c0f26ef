"""The most probable link first, whatever changed since; its twin sorts all links again before every step."""

import numpy as np
import pytest

from cdp.grouping.indexed_heap import heap_of, pop, put, remove


@pytest.mark.parametrize("seed", range(5))
def test_links_come_out_in_the_order_of_a_sorted_list(seed):
    generator = np.random.default_rng(seed)
    n_links = int(generator.integers(1, 60))
    mean = np.round(generator.random(n_links), 1)  # many alike: totals and numbers decide
    total = np.round(generator.random(n_links), 1)
    order, place = np.empty(n_links, np.int32), np.full(n_links, -1, np.int32)
    heap = heap_of(mean, total, 0.3, order, place)
    there = set(np.flatnonzero(mean > 0.3).tolist())
    for _ in range(300):
        link = int(generator.integers(n_links))
        match int(generator.integers(3)):
            case 0:
                mean[link], total[link] = np.round(generator.random(2), 1)
                put(heap, link)
                there.add(link)
            case 1:
                remove(heap, link)
                there.discard(link)
            case _ if there:
                first = min(there, key=lambda one: (-mean[one], -total[one], one))
                assert pop(heap) == first
                there.remove(first)
        assert heap.n_links[0] == len(there)
        assert {one for one in range(n_links) if heap.place[one] >= 0} == there
