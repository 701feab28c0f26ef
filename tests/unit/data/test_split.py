"""Splits by identity, and rotations that stay together."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.refusals import refuses

from cdp.data.manifests import read_manifest
from cdp.data.split import Split, families, rotated, split_by_identity
from cdp.types import Manifest


def crowd(sizes) -> Manifest:
    identities = np.random.default_rng(3).permutation(np.repeat(np.arange(len(sizes)) * 5, sizes))
    return Manifest(tuple(f"{row}.png" for row in range(len(identities))), identities, root="/pictures")


def test_eleven_equal_parts_by_default():
    split = split_by_identity(crowd([20] * 110))
    assert len(split.unlabeled) == 10
    assert {part.n_images for _, part in split.parts()} == {200}
    assert (split.validation, split.probes, split.distractors) == (None, None, None)


@settings(max_examples=40, deadline=None)
@given(
    sizes=st.lists(st.integers(1, 30), min_size=40, max_size=80),
    seed=st.integers(0, 5),
    tests=st.booleans(),
)
def test_nobody_is_on_two_sides_and_nothing_is_lost(sizes, seed, tests):
    manifest = crowd([*sizes, *[4] * 12])
    shares = {"validation": 0.1, "probes": 0.1, "distractors": 0.1} if tests else {}
    split = split_by_identity(manifest, labeled=0.25, unlabeled_parts=3, seed=seed, **shares)
    parts = dict(split.parts())
    for one, other in itertools.combinations(parts.values(), 2):
        assert not set(one.identities.tolist()) & set(other.identities.tolist())
    everything = sorted(itertools.chain(*(part.locations for part in parts.values())))
    assert everything == sorted(manifest.locations)
    for part in parts.values():
        rows = [int(place.removesuffix(".png")) for place in part.locations]
        assert rows == sorted(rows)
        assert part.identities.tolist() == manifest.identities[rows].tolist()
    if tests:
        assert parts["probes"].sizes.min() >= 2


def test_balanced_by_images_although_identities_differ_in_size():
    sizes = np.random.default_rng(0).geometric(0.05, 600)
    manifest = crowd(sizes)
    split = split_by_identity(manifest, labeled=0.2, unlabeled_parts=4, validation=0.05)
    remains = 0.95 * manifest.n_images
    for name, part in split.parts():
        target = 0.05 * manifest.n_images if name == "validation" else remains / 5
        assert part.n_images == pytest.approx(target, abs=3)
        assert part.sizes.mean() == pytest.approx(sizes.mean(), rel=0.15)


def test_seeded():
    manifest = crowd([5] * 60)
    one, again, other = (split_by_identity(manifest, seed=seed) for seed in (1, 1, 2))
    assert one.labeled.locations == again.labeled.locations
    assert one.labeled.locations != other.labeled.locations


def test_rotations_are_four_identities_of_one_family():
    manifest = Manifest(("a", "b", "c"), np.array([3, 3, -1]), names=("", "", "", "x"), root="/pictures")
    turned = rotated(manifest)
    assert turned.locations == ("a", "b", "c") * 4
    assert turned.turns.tolist() == [0] * 3 + [1] * 3 + [2] * 3 + [3] * 3
    assert turned.identities.tolist() == [12, 12, -1, 13, 13, -1, 14, 14, -1, 15, 15, -1]
    assert turned.names[13] == "x turned 90"
    assert families(turned).tolist() == [0, 0, -1] * 4
    with refuses("manifest-turned-already"):
        rotated(turned)


def test_rotations_of_one_character_stay_in_one_part(tmp_path):
    manifest = rotated(crowd([4] * 33))
    split = split_by_identity(manifest)
    split.save(tmp_path / "parts")
    for part in dict(Split.load(tmp_path / "parts").parts()).values():
        assert part.n_identities == 12
        counts = np.unique(part.identities // 4, return_counts=True)[1]
        assert set(counts.tolist()) == {16}
    with_family = split_by_identity(manifest, family=manifest.identities // 4)
    assert with_family.labeled.n_identities == 12


def test_a_family_array_must_not_tear_an_identity():
    manifest = crowd([4] * 33)
    with refuses("split-identity-two-families", row=23, identity=0):
        split_by_identity(manifest, family=np.arange(132))
    with refuses("split-family-shape-wrong", expected=132, found=(2,)):
        split_by_identity(manifest, family=[1, 2])


def test_families_grow_along_shared_pictures():
    manifest = Manifest(("a", "b", "b", "c", "c", "d"), np.array([0, 0, 1, 1, 2, 3]))
    assert families(manifest).tolist() == [0, 0, 0, 0, 0, 1]


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_save_and_load(tmp_path, suffix):
    manifest = crowd([6] * 30)
    split = split_by_identity(manifest, labeled=0.5, unlabeled_parts=1, probes=0.2, distractors=0.2)
    split.save(tmp_path / "parts", suffix=suffix)
    back = Split.load(tmp_path / "parts")
    assert [name for name, _ in back.parts()] == ["labeled", "unlabeled1", "probes", "distractors"]
    for (_, one), (_, other) in zip(split.parts(), back.parts(), strict=True):
        assert one.identities.tolist() == other.identities.tolist()
    assert back.settings["labeled"] == 0.5
    assert back.made_from == split.made_from
    assert repr(back) == repr(split)
    with refuses("split-suffix-unknown", suffix=".txt"):
        split.save(tmp_path / "others", suffix=".txt")
    assert not (tmp_path / "others").exists()


@pytest.mark.parametrize(
    ("changes", "code", "fields"),
    [
        ({"labeled": 1.5}, "split-share-out-of-range", {"key": "labeled", "value": 1.5}),
        ({"labeled": float("nan")}, "split-share-out-of-range", {"key": "labeled"}),
        ({"labeled": 0}, "split-labeled-zero", {"key": "labeled"}),
        ({"labeled": 1}, "split-labeled-and-parts-differ", {}),
        ({"unlabeled_parts": 0}, "split-labeled-and-parts-differ", {}),
        ({"unlabeled_parts": -1}, "split-parts-negative", {"key": "unlabeled_parts", "value": -1}),
        ({"validation": 0.5, "probes": 0.5}, "split-shares-too-large", {"found": 1.0}),
        ({"unlabeled_parts": 50}, "split-part-empty", {"part": "unlabeled16"}),
        ({"validation": 1e-9}, "split-part-empty", {"part": "validation"}),
    ],
)
def test_impossible_wishes(changes, code, fields):
    with refuses(code, **fields):
        split_by_identity(crowd([3] * 20), **changes)


def test_probes_reach_their_share_although_most_people_have_one_picture():
    manifest = crowd([1] * 4000 + [2] * 800 + [5] * 400)
    split = split_by_identity(manifest, probes=0.2, distractors=0.2)
    assert split.probes.n_images == pytest.approx(0.2 * manifest.n_images, rel=0.01)
    assert split.distractors.n_images == pytest.approx(0.2 * manifest.n_images, rel=0.01)
    assert split.labeled.n_images == pytest.approx(0.6 / 11 * manifest.n_images, rel=0.01)
    assert split.probes.sizes.min() == 2


def test_probes_need_people_with_two_images():
    with refuses("split-part-empty", part="probes"):
        split_by_identity(crowd([1] * 200), probes=0.2)


def test_identities_that_cannot_be_split():
    with refuses("split-one-identity"):
        split_by_identity(crowd([9]))
    unknown = Manifest(("a", "b", "c"), np.array([0, -1, 1]))
    with refuses("split-identities-missing", row=1, count=1):
        split_by_identity(unknown)


def test_everything_labeled():
    split = split_by_identity(crowd([3] * 20), labeled=1, unlabeled_parts=0, validation=0.2)
    assert split.labeled.n_images + split.validation.n_images == 60
    assert split.unlabeled == ()


def test_omniglot_in_eleven_parts(shared_data):
    archive = shared_data / "omniglot" / "images_background.zip"
    manifest = rotated(read_manifest(archive))
    assert (manifest.n_images, manifest.n_identities) == (77_120, 3_856)
    split = split_by_identity(manifest)
    assert {part.n_images for _, part in split.parts()} == {6_960, 7_040}
