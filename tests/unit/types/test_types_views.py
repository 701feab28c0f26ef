import dataclasses

import numpy as np
import pytest

from cdp.errors import InputError
from cdp.types import Embeddings, Views


def _array(n_images=5, dimensions=3, seed=0):
    return np.random.default_rng(seed).normal(size=(n_images, dimensions)).astype(np.float32)


def test_iterates_over_the_base_and_then_the_committee_in_order(small_views):
    models = list(small_views)
    assert models[0] is small_views.base
    assert models[1:] == list(small_views.committee.values())
    assert small_views.names == ("base", "small", "wide")
    assert len(small_views) == 3
    assert small_views.n_images == 300
    assert [model.dimensions for model in models] == [24, 12, 40]


def test_accepts_embeddings_as_they_are_and_an_empty_committee():
    base = Embeddings(_array())
    views = Views(base)
    assert views.base is base
    assert len(views) == 1
    assert list(views) == [base]
    assert views.identities is None
    assert views.paths is None


@pytest.mark.parametrize(
    "given", [[4, 4, 9, -1, 4], np.array([[4], [4], [9], [-1], [4]], np.int32), [4.0, 4.0, 9.0, -1.0, 4.0]]
)
def test_identities_become_one_column_of_whole_numbers(given):
    views = Views(_array(), identities=given)
    assert views.identities.dtype == np.int64
    np.testing.assert_array_equal(views.identities, [4, 4, 9, -1, 4])
    with pytest.raises(ValueError, match="read-only"):
        views.identities[0] = 1


@pytest.mark.parametrize("dtype", [None, object])
def test_identities_may_be_names(dtype):
    views = Views(_array(), identities=np.array(["eve", "ann", "eve", "bob", "ann"], dtype=dtype))
    np.testing.assert_array_equal(views.identities, [2, 0, 2, 1, 0])


def test_repr_counts_known_identities_and_members():
    views = Views(_array(), {"sface": _array()}, identities=[7, 7, -1, 3, -1])
    assert repr(views) == "Views: 5 images, 2 identities, base and committee of 1 (sface)"
    assert repr(Views(_array())) == "Views: 5 images, without identities, base and committee of 0 (nobody)"


@pytest.mark.parametrize("rows", [[3, 0], np.array([True, False, False, True, False])])
def test_take_picks_the_same_rows_everywhere(rows):
    views = Views(_array(), {"a": _array(5, 2, 1)}, identities=[5, 6, 7, 8, 9], paths=list("vwxyz"))
    part = views.take(rows)
    index = np.arange(5)[rows]
    np.testing.assert_array_equal(part.base.vectors, views.base.vectors[index])
    np.testing.assert_array_equal(part.committee["a"].vectors, views.committee["a"].vectors[index])
    np.testing.assert_array_equal(part.identities, views.identities[index])
    assert part.paths == tuple("vwxyz"[row] for row in index)


def test_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        Views(_array()).base = Embeddings(_array())


def test_the_callers_committee_can_grow_without_changing_the_views():
    committee = {"a": _array()}
    views = Views(_array(), committee)
    committee["b"] = _array()
    assert views.names == ("base", "a")


def test_the_committee_cannot_be_changed_in_place():
    views = Views(_array(), {"a": _array()})
    with pytest.raises((TypeError, AttributeError)):
        views.committee["b"] = Embeddings(_array())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"committee": {"base": _array()}},
            "Views: 'base' cannot name a committee member; use another text than 'base'.",
        ),
        (
            {"committee": {"": _array()}},
            "Views: '' cannot name a committee member; use another text than 'base'.",
        ),
        (
            {"committee": {3: _array()}},
            "Views: 3 cannot name a committee member; use another text than 'base'.",
        ),
        (
            {"committee": {"sface": _array(4)}},
            "Views: committee member 'sface' has 4 rows, the base has 5; "
            "all models must embed the same images in the same order.",
        ),
        (
            {"committee": {"sface": np.full((5, 2), np.nan)}},
            "Embeddings of 'sface': NaN or infinity in rows 0, 1, 2, 3, 4 (counted from 0); "
            "remove these images or embed them again.",
        ),
        (
            {"identities": [1, 2]},
            "Views: identities have shape (2,) for 5 images; one identity per row is needed.",
        ),
        (
            {"identities": [0.5, 1, 1, 1, 1]},
            "Views: identities must be whole numbers or names, got float64.",
        ),
        (
            {"identities": [np.nan, 1, 1, 1, 1]},
            "Views: identities must be whole numbers or names, got float64.",
        ),
        (
            {"identities": np.array([2**63, 1, 1, 1, 1], np.uint64)},
            "Views: identities must fit 64-bit signed numbers.",
        ),
        ({"paths": ["a.jpg"]}, "Views: 1 paths for 5 images."),
    ],
)
def test_refusals(arguments, message):
    with pytest.raises(InputError) as error:
        Views(_array(), **arguments)
    assert str(error.value) == message


def test_the_base_is_named_when_it_is_at_fault():
    with pytest.raises(InputError, match=r"^Embeddings of 'base': expected a table of images x dimensions"):
        Views(np.ones(3))
