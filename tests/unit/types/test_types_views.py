import dataclasses
import mmap

import numpy as np
import pytest
from tests.refusals import refuses

from cdp.errors import OutputExistsError
from cdp.types import Embeddings, Views
from cdp.types import embeddings as module


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
    assert repr(Views(_array())) == "Views: 5 images, without identities, base and committee of 0"


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
    ("arguments", "code", "fields"),
    [
        (
            {"committee": {"base": _array()}},
            "views-member-name-wrong",
            {"model": "base"},
        ),
        (
            {"committee": {"": _array()}},
            "views-member-name-wrong",
            {"model": ""},
        ),
        (
            {"committee": {3: _array()}},
            "views-member-name-wrong",
            {"model": 3},
        ),
        (
            {"committee": {"sface": _array(4)}},
            "views-rows-differ",
            {"model": "sface", "expected": 5, "found": 4},
        ),
        (
            {"committee": {"sface": np.full((5, 2), np.nan)}},
            "embeddings-not-finite",
            {"model": "sface", "row": 0, "count": 5},
        ),
        (
            {"identities": [1, 2]},
            "identities-shape-wrong",
            {"expected": 5, "found": (2,)},
        ),
        (
            {"identities": [0.5, 1, 1, 1, 1]},
            "identities-not-numbers-or-names",
            {"row": 0, "count": 1, "value": 0.5},
        ),
        (
            {"identities": [np.nan, 1, 1, 1, 1]},
            "identities-not-numbers-or-names",
            {"row": 0, "count": 1},
        ),
        (
            {"identities": np.array([2**63, 1, 1, 1, 1], np.uint64)},
            "identities-too-large",
            {},
        ),
        ({"paths": ["a.jpg"]}, "views-paths-differ", {"expected": 5, "found": 1}),
    ],
)
def test_refusals(arguments, code, fields):
    with refuses(code, **fields):
        Views(_array(), **arguments)


def test_the_base_is_named_when_it_is_at_fault():
    with refuses("embeddings-not-a-table", model="base", found=(3,)):
        Views(np.ones(3))


def test_concatenate_puts_the_images_one_after_the_other():
    first = Views(_array(3), {"a": _array(3, 2)}, identities=[4, 9, 4], paths=list("xyz"))
    second = Views(_array(2, seed=1), {"a": _array(2, 2, 1)}, identities=[9, -1], paths=["v", "w"])
    both = Views.concatenate([first, second])
    np.testing.assert_array_equal(both.base.source, np.vstack([first.base.source, second.base.source]))
    np.testing.assert_array_equal(both.committee["a"].vectors[3:], second.committee["a"].vectors)
    np.testing.assert_array_equal(both.identities, [4, 9, 4, 9, -1])
    assert both.paths == tuple("xyzvw")


def test_concatenate_marks_images_of_a_part_without_identities_as_unknown_and_drops_incomplete_paths():
    known, unknown = Views(_array(2), identities=[5, 6], paths=["a", "b"]), Views(_array(3))
    both = Views.concatenate([unknown, known])
    np.testing.assert_array_equal(both.identities, [-1, -1, -1, 5, 6])
    assert both.paths is None
    assert Views.concatenate([unknown, unknown]).identities is None


def test_concatenate_matches_committee_members_by_name_in_the_order_of_the_first_part():
    first = Views(_array(2), {"a": _array(2, 4), "b": _array(2, 6)})
    second = Views(_array(1), {"b": _array(1, 6, 7), "a": _array(1, 4, 8)})
    both = Views.concatenate([first, second])
    assert both.names == ("base", "a", "b")
    np.testing.assert_array_equal(both.committee["a"].source[2:], second.committee["a"].source)


def test_concatenate_into_a_folder_is_memory_mapped_and_written_in_blocks(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_BLOCK_BYTES", 2 * 3 * 8)  # two rows of three at a time
    parts = [
        Views(_array(5).astype(np.float16), {"a": _array(5, 2)}),
        Views(_array(4, 3, 1), {"a": _array(4, 2)}),
    ]
    both = Views.concatenate(parts, tmp_path / "views")
    in_memory = Views.concatenate(parts)
    owner = both.base.source
    while isinstance(owner, np.ndarray):
        owner = owner.base
    assert isinstance(owner, mmap.mmap)
    for mapped, plain in zip(both, in_memory, strict=True):
        assert mapped.source.dtype == plain.source.dtype == np.float32
        np.testing.assert_array_equal(mapped.source, plain.source)
    np.testing.assert_array_equal(
        np.load(tmp_path / "views" / "committee" / "a.npy"), in_memory.committee["a"].source
    )
    with refuses("views-file-exists", OutputExistsError, file=tmp_path / "views/base.npy"):
        Views.concatenate([both], tmp_path / "views")


@pytest.mark.parametrize(
    ("other", "code", "fields"),
    [
        ({"b": _array(5, 2)}, "views-parts-models-differ", {"part": 1}),
        ({"a": _array(5, 4)}, "views-parts-models-differ", {"part": 1}),
        ({}, "views-parts-models-differ", {"part": 1}),
    ],
)
def test_concatenate_refuses_parts_by_other_models(other, code, fields):
    with refuses(code, **fields):
        Views.concatenate([Views(_array(), {"a": _array(5, 2)}), Views(_array(), other)])


def test_concatenate_refuses_no_parts():
    with refuses("views-parts-missing"):
        Views.concatenate([])
