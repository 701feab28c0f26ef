"""Union-find: a spanning forest, the smallest image as root, and what constraints refuse."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests import reference

from cdp.grouping.union_find import compress_paths, make_union_find, may_unite, unite, unite_pairs
from cdp.types.constraints import Constraints

ALL = np.empty(0, np.bool_)
pairs = st.lists(
    st.tuples(st.integers(0, 14), st.integers(0, 14)).filter(lambda pair: pair[0] != pair[1]),
    max_size=40,
)


@given(pairs)
def test_pairs_that_united_are_a_spanning_forest_with_the_smallest_roots(drawn):
    ids = np.array(drawn, np.int32).reshape(-1, 2)
    parent = np.arange(15, dtype=np.int32)
    is_used = unite_pairs(parent, ids, ALL)
    compress_paths(parent)
    assert parent.tolist() == reference.components(ids, 15)
    assert reference.components(ids[is_used], 15) == parent.tolist()
    assert is_used.sum() == 15 - len(set(parent.tolist()))


def test_constraints_refuse_what_follows_from_unions():
    constraints = Constraints(
        8, must=np.array([[0, 1]]), cannot=np.array([[1, 2]]), named={4: "Anna", 5: "Ben", 6: "Anna"}
    )
    state = make_union_find(8, constraints)
    assert may_unite(state, 0, 1, 2), "united from the start"
    assert may_unite(state, 4, 6, 2), "one name"
    assert not may_unite(state, 0, 2, 8), "0 = 1 and 1 != 2"
    assert not may_unite(state, 6, 5, 8), "two names"
    assert not may_unite(state, 0, 3, 2), "too many images"
    unite(state, 2, 3)
    assert not may_unite(state, 0, 3, 8)
    unite(state, 3, 4)
    assert not may_unite(state, 7, 5, 1)
    assert may_unite(state, 7, 5, 2)
    assert not may_unite(state, 2, 5, 8)
