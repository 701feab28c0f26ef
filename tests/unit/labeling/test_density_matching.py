"""Known images as dense as the unlabeled ones."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cdp import Views
from cdp.collection.combined_views import read_all_views
from cdp.collection.creation import create_collection
from cdp.collection.extension import extend
from cdp.collection.scored_files import read_scored_pairs, read_share
from cdp.knn.exact import exact_graph
from cdp.labeling import density_matching
from cdp.labeling.density_matching import images_per_identity, is_as_dense, matching_share, order_of_use
from cdp.labeling.pipeline import label
from cdp.runtime.runtime import Runtime
from cdp.scoring.settings import ConsensusSettings
from cdp.types import ConsensusGraph

SETTINGS = ConsensusSettings.of(k=6, mediator="trees")


@given(st.lists(st.integers(1, 9), min_size=1, max_size=6), st.floats(0, 0.999), st.integers(0, 5))
def test_a_share_is_taken_of_every_identity_and_a_greater_one_only_adds(counts, share, seed):
    identities = np.repeat(np.arange(len(counts)), counts)
    use = order_of_use(identities, seed)
    assert sorted(use.rows.tolist()) == list(range(len(identities)))
    assert (np.diff(use.share) >= 0).all()
    assert (use.share < 1).all()
    used = np.bincount(identities[use.rows[use.share <= share]], minlength=len(counts))
    for images, count in zip(used, counts, strict=True):
        assert abs(images - (1 + share * (count - 1))) < 1
    for at, row in enumerate(use.rows):
        assert use.before[at] == (identities[use.rows[:at]] == identities[row]).sum()


def test_images_per_identity_are_counted_one_by_one():
    generator = np.random.default_rng(0)
    ids = np.array([(one, other) for one in range(12) for other in range(one + 1, 12)], np.int32)
    doubt = generator.random(len(ids)).astype(np.float32)
    known = np.array([-1] * 7 + [4, 4, 4, 5, 5])
    sizes = []
    for image in range(12):
        partners = 0.0
        for (one, other), wrong in zip(ids, doubt, strict=True):
            if image in (one, other) and known[one] < 0 and known[other] < 0:
                partners += 2 * (1 - wrong) / (2 - wrong)
            elif image in (one, other) and known[one] == known[other]:
                partners += 1
        sizes.append(1 / (1 + partners))
    found = images_per_identity(ConsensusGraph(ids, doubt, 12), known)
    assert found == pytest.approx((7 / sum(sizes[:7]), 5 / sum(sizes[7:])))
    assert found[1] == pytest.approx(5 / 2)


def test_never_fewer_than_there_are_pairs_to_learn_from():
    identities = np.repeat(np.arange(50), 8)
    known = np.concatenate([np.full(100, -1), identities])
    rows = 100 + np.arange(400).reshape(50, 8)
    ids = np.array(
        [(group[a], group[b]) for group in rows for a in range(8) for b in range(a + 1, 8)], np.int32
    )
    scored = ConsensusGraph(ids, np.zeros(len(ids), np.float32), len(known))
    share = matching_share(scored, known, 1.0, identities, seed=0)
    use = order_of_use(identities, 0)
    assert 500 <= use.before[use.share <= share].sum() < 520, "nobody seems to be there twice"
    few = matching_share(scored, np.concatenate([known[:100], identities]), 1.0, identities[:20], seed=0)
    assert few == 1.0, "there are not so many at all"
    assert is_as_dense(1.0, 0.8)
    assert not is_as_dense(1.0, 0.5)


def _faces(generator, counts):
    identities = np.repeat(np.arange(len(counts)), counts)

    def embed(noise):
        centers = generator.normal(size=(len(counts), 16))
        return (centers[identities] + noise * generator.normal(size=(len(identities), 16))).astype(np.float32)

    return Views(embed(0.7), {"other": embed(0.8)}, identities)


def test_known_images_are_left_out_and_come_back_as_a_collection_grows(tmp_path):
    generator = np.random.default_rng(1)
    known, others = _faces(generator, [12] * 40), _faces(generator, [6] * 40)
    shuffled = others.take(generator.permutation(others.n_images))
    bare = Views(shuffled.base, shuffled.committee)
    first, second = bare.take(slice(0, 60)), bare.take(slice(60, None))
    labeling = label(first, SETTINGS, labeled=[known], keep_scored=True)
    n_used = int((labeling.kept.identities >= 0).sum())
    assert n_used < 240
    assert labeling.joined.n_images == 480
    assert any(f"{n_used} of 480 labeled images were used" in note for note in labeling.notes)
    grown = create_collection(tmp_path / "faces", first, labeled=[known], settings=SETTINGS)
    np.testing.assert_array_equal(grown.identity, labeling.labels.labels)
    grown, _ = extend(grown, second)
    place, work = grown.scored_place, Runtime()
    with read_all_views(grown, None, work, read_share(place)) as views:
        scored, _ = read_scored_pairs(place, SETTINGS, grown.state.threshold, views, 0, work)
    assert read_share(place) > labeling.share
    theirs = scored.identities[240:]
    assert len(theirs) > n_used
    np.testing.assert_array_equal(
        theirs[:n_used], labeling.kept.identities[60:], "what was there comes first"
    )
    # The lists are those of a search among all of them: the same images in another order.
    use = order_of_use(known.identities, 0)
    everybody = Views.concatenate([bare, Views(known.base, known.committee).take(use.rows[: len(theirs)])])
    np.testing.assert_array_equal(
        scored.graphs["base"].neighbors,
        exact_graph(everybody.base, scored.graphs["base"].k, runtime=Runtime()).neighbors,
    )


@pytest.mark.parametrize("widest", [0, 8])
def test_weights_of_a_block_are_added_to_their_images(monkeypatch, widest):
    monkeypatch.setattr(density_matching, "_WIDEST_RANGE", widest)
    generator = np.random.default_rng(0)
    images, weight = generator.integers(3, 40, 60).astype(np.int32), generator.random(60)
    sums = generator.random(50)
    expected = sums + np.bincount(images, weight, 50)
    density_matching._add_weights(sums, images, weight)
    np.testing.assert_array_equal(sums, expected)
