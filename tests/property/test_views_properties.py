"""What must hold when views are cut into parts and put together again."""

import tempfile
from pathlib import Path

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from cdp.types import Views


@st.composite
def lists_of_views(draw):
    """One to four parts by the same models; precision, identities and paths differ from part to part."""
    dimensions = draw(st.dictionaries(st.sampled_from(["a", "b", "c"]), st.integers(1, 5), max_size=3))
    generator = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    parts = []
    for n_images in draw(st.lists(st.integers(1, 6), min_size=1, max_size=4)):
        dtype = draw(st.sampled_from(["float16", "float32", "float64"]))
        arrays = {
            name: generator.uniform(0.1, 1, (n_images, size)).astype(dtype)
            for name, size in {"base": 3, **dimensions}.items()
        }
        identities = generator.integers(-1, 4, n_images) if draw(st.booleans()) else None
        paths = [f"{image}.jpg" for image in range(n_images)] if draw(st.booleans()) else None
        parts.append(Views(arrays.pop("base"), arrays, identities, paths))
    return parts


@given(lists_of_views(), st.booleans())
@settings(max_examples=60)
def test_taking_the_rows_of_a_part_from_the_concatenation_gives_the_part_back(parts, on_disk):
    with tempfile.TemporaryDirectory() as folder:
        together = Views.concatenate(parts, Path(folder) if on_disk else None)
        start = 0
        for part in parts:
            again = together.take(slice(start, start + part.n_images))
            start += part.n_images
            assert again.names == part.names
            for model, original in zip(again, part, strict=True):
                np.testing.assert_array_equal(model.source, original.source)
                np.testing.assert_array_equal(model.scale, original.scale)
            if part.identities is not None:
                np.testing.assert_array_equal(again.identities, part.identities)
            elif again.identities is not None:
                assert set(again.identities) == {-1}
            assert again.paths == (part.paths if together.paths is not None else None)
        assert together.n_images == start
        assert (together.paths is None) == any(part.paths is None for part in parts)
