"""The hash tables of loops hold what a dictionary holds."""

import numpy as np
import pytest

from cdp.scoring.id_table import find_slot, make_table


@pytest.mark.parametrize("most", [1, 7, 200])
@pytest.mark.parametrize("step", [1, 2**16, 2**20])
def test_a_table_holds_what_a_dictionary_holds(most, step):
    generator = np.random.default_rng(most)
    keys, places = make_table(most)
    images = (generator.permutation(2 * most)[:most] * step).astype(np.int32)
    expected = {}
    for place, image in enumerate(images.tolist()):
        slot = find_slot(keys, image)
        assert keys[slot] < 0, "an image comes once"
        keys[slot], places[slot] = image, place
        expected[image] = place
    for image in (np.arange(2 * most) * step).tolist():
        slot = find_slot(keys, image)
        found = places[slot] if keys[slot] == image else None
        assert found == expected.get(image)
