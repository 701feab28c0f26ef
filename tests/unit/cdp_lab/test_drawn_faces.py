"""Drawn faces: who is on which picture, what stays, what changes, and what is written."""

import io
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.neighbors import NearestCentroid
from tests.refusals import refuses

from cdp.data.manifest_tables import read_columns
from cdp.data.manifests import read_manifest
from cdp.errors import OutputExistsError
from cdp_lab.drawn_faces import FaceSettings, draw_faces, write_faces
from cdp_lab.drawn_faces import album as album_module
from cdp_lab.drawn_faces.moments import MOMENT
from cdp_lab.drawn_faces.people import TRAITS, make_people
from cdp_lab.drawn_faces.portrait import _almond, _blur, _bow, _box, _develop, _ellipse
from cdp_lab.drawn_faces.random_numbers import Columns, keys, uniforms
from cdp_lab.drawn_faces.roster import find_families, make_roster
from cdp_lab.drawn_faces.sheet import draw_sheet, plan_sheet, write_sheet

SMALL = FaceSettings(identities=12, images=6, size=24, junk=0.1, mislabeled=0.1)


@pytest.fixture(scope="module")
def small():
    return draw_faces(SMALL, threads=1)


def test_threads_and_rows_do_not_change_a_picture(small):
    whole = draw_faces(SMALL, threads=3)
    assert np.array_equal(whole.pixels, small.pixels)
    rows = np.random.default_rng(0).permutation(len(small.pixels))[:20]
    some = draw_faces(SMALL, rows, threads=2)
    assert np.array_equal(some.pixels, small.pixels[rows])
    assert np.array_equal(some.identities, small.identities[rows])
    assert np.array_equal(some.true_identities, small.true_identities[rows])


def test_blocks_do_not_change_a_picture(small, monkeypatch):
    monkeypatch.setattr(album_module, "_PICTURES_PER_BLOCK", 7)
    assert np.array_equal(draw_faces(SMALL).pixels, small.pixels)


def test_a_larger_set_holds_the_smaller_one(small):
    larger = draw_faces(FaceSettings(identities=15, images=6, size=24, junk=0.1, mislabeled=0.1))
    n = len(small.pixels)
    assert len(larger.pixels) > n
    assert np.array_equal(larger.pixels[:n], small.pixels)
    assert np.array_equal(larger.true_identities[:n], small.true_identities)


def test_another_seed_draws_other_pictures(small):
    other = draw_faces(FaceSettings(identities=12, images=6, size=24, seed=1), [0, 1])
    assert (other.pixels[0] != small.pixels[0]).mean() > 0.5


def test_all_rows_are_there_with_at_least_two_pictures_each():
    for images in (2, 20):
        roster = make_roster(FaceSettings(identities=770, images=images))
        counts = np.bincount(roster.people, minlength=770)
        assert counts.min() >= 2
        assert np.array_equal(roster.people, np.repeat(np.arange(770), counts))
        assert all(
            np.array_equal(roster.shots[roster.people == one], np.arange(counts[one])) for one in (0, 9)
        )
    assert counts.min() >= 13
    assert counts.max() <= 27
    assert abs(counts.mean() - 20) < 0.5
    assert len(np.unique(counts)) > 8


def test_shares_of_junk_mislabeled_and_lookalikes():
    wanted = FaceSettings(identities=770, junk=0.05, mislabeled=0.03, lookalikes=0.3)
    roster = make_roster(wanted)
    junk = roster.shown == -1
    wrong = ~junk & (roster.shown != roster.people)
    assert abs(junk.mean() - 0.05) < 0.006
    assert abs(wrong.mean() - 0.03) < 0.005
    assert roster.shown.max() < 770
    assert abs(find_families(wanted, np.arange(770))[1].mean() - 0.3) < 0.05
    clean = make_roster(FaceSettings(junk=0, mislabeled=0))
    assert np.array_equal(clean.shown, clean.people)


def test_lookalikes_are_closer_than_others():
    wanted = FaceSettings(identities=600)
    everybody = np.arange(600)
    parents, varied = find_families(wanted, everybody)
    assert not varied[parents].any()
    people = make_people(wanted, everybody)
    names = ["width", "chin", "jaw", "eye_x", "eye_tilt", "brow_thick", "nose", "mouth", "lips", "hairline"]
    table = np.stack([people[name] for name in names], 1)
    table = (table - table.mean(0)) / table.std(0)
    away = np.linalg.norm(table[varied] - table[parents[varied]], axis=1)
    others = np.linalg.norm(table - np.roll(table, 1, axis=0), axis=1)
    assert np.median(away) < 0.6 * np.median(others)
    assert away.min() > 0
    assert np.array_equal(people["iris"].argmax(1)[varied], people["iris"].argmax(1)[parents[varied]])


def test_lookalikes_look_alike():
    wanted = FaceSettings(identities=200, images=2, size=32, difficulty=0, junk=0, mislabeled=0)
    first = np.flatnonzero(make_roster(wanted).shots == 0)
    pixels = draw_faces(wanted, first).pixels.astype(float)
    parents, varied = find_families(wanted, np.arange(200))
    away = np.abs(pixels[varied] - pixels[parents[varied]]).mean()
    others = np.abs(pixels - np.roll(pixels, 1, axis=0)).mean()
    assert away < 0.7 * others


def test_without_difficulty_all_pictures_of_a_person_are_one():
    still = FaceSettings(identities=5, images=4, size=32, difficulty=0, junk=0, mislabeled=0)
    faces = draw_faces(still)
    first = np.flatnonzero(np.diff(faces.identities, prepend=-1))
    assert np.array_equal(faces.pixels, faces.pixels[first][faces.identities])
    assert len(np.unique(faces.pixels[first].reshape(5, -1), axis=0)) == 5


def test_more_difficulty_means_more_difference():
    spread = []
    for difficulty in (0.3, 1.0, 2.0):
        wanted = FaceSettings(identities=8, images=8, size=24, difficulty=difficulty, junk=0, mislabeled=0)
        faces = draw_faces(wanted)
        spread.append(np.mean([faces.pixels[faces.identities == one].std(0).mean() for one in range(8)]))
    assert spread[0] < 0.8 * spread[1] < 0.8 * spread[2]


def test_traits_are_finite_and_colors_are_colors():
    people = make_people(FaceSettings(), np.arange(770))
    for name in TRAITS.names:
        assert np.isfinite(people[name]).all(), name
    for name in ("skin", "hair", "brow", "iris", "lip", "frame"):
        assert people[name].min() >= 0, name
        assert people[name].max() <= 1, name
    assert people["eye_height"].min() > 0.04


def test_linear_methods_learn_something_and_far_from_all():
    """Mean color says next to nothing, raw pixels something, a linear projection more: the rest is for networks."""
    faces = draw_faces(FaceSettings(identities=40, images=20, size=32))
    held_out = np.arange(len(faces.pixels)) % 4 == 0
    coarse = faces.pixels.reshape(-1, 8, 4, 8, 4, 3).mean((2, 4)).reshape(len(held_out), -1) / 255

    def accuracy(model, pixels):
        model.fit(pixels[~held_out], faces.identities[~held_out])
        return model.score(pixels[held_out], faces.identities[held_out])

    linear = LinearDiscriminantAnalysis(solver="eigen", shrinkage=0.1)
    assert accuracy(LinearDiscriminantAnalysis(), faces.pixels.mean((1, 2)) / 255) < 0.12
    assert 0.15 < accuracy(NearestCentroid(), coarse) < 0.5
    assert 0.4 < accuracy(linear, coarse) < 0.9


def test_the_zip_is_a_manifest_and_holds_the_same_pictures(small, tmp_path):
    steps = []
    truth = write_faces(tmp_path / "set.zip", SMALL, progress=lambda *said: steps.append(said))
    assert truth == tmp_path / "set.truth.csv"
    assert steps[-1] == ("pictures", len(small.pixels), len(small.pixels))
    manifest = read_manifest(tmp_path / "set.zip")
    assert np.array_equal(manifest.identities, small.identities)
    assert manifest.names[3] == "s0-000003"
    with zipfile.ZipFile(tmp_path / "set.zip") as archive:
        read = [np.asarray(Image.open(io.BytesIO(archive.read(name)))) for name in archive.namelist()]
    assert np.array_equal(np.stack(read), small.pixels)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["set.truth.csv", "set.zip"]


def test_the_truth_is_a_table_of_the_same_images(small, tmp_path):
    truth = write_faces(tmp_path / "set.zip", SMALL)
    assert read_manifest(truth).locations == read_manifest(tmp_path / "set.zip").locations
    lines = [line.split(",") for line in truth.read_text().splitlines()]
    assert lines[0] == ["path", "identity", "true_identity"]
    told = [int(shown[-6:]) if shown else -1 for _, _, shown in lines[1:]]
    assert told == small.true_identities.tolist()
    assert len(read_columns(truth)["path"]) == len(small.pixels)


def test_the_same_settings_give_the_same_bytes(tmp_path):
    write_faces(tmp_path / "one.zip", SMALL, threads=1)
    write_faces(tmp_path / "two.zip", SMALL, threads=2)
    assert (tmp_path / "one.zip").read_bytes() == (tmp_path / "two.zip").read_bytes()


def test_sets_of_two_seeds_share_no_name(tmp_path):
    few = {"identities": 3, "images": 2, "size": 16}
    write_faces(tmp_path / "a.zip", FaceSettings(**few, seed=1))
    write_faces(tmp_path / "b.zip", FaceSettings(**few, seed=10))
    names = [set(read_manifest(tmp_path / f"{part}.zip").names) for part in "ab"]
    assert not names[0] & names[1]


def test_nothing_is_overwritten_or_left_half_written(tmp_path):
    few = FaceSettings(identities=3, images=2, size=16)
    write_faces(tmp_path / "set.zip", few)
    before = (tmp_path / "set.zip").read_bytes()
    with refuses("output-exists", OutputExistsError, file=tmp_path / "set.truth.csv"):
        write_faces(tmp_path / "set.zip", few)

    def stop(step, done, total):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_faces(
            tmp_path / "set.zip", FaceSettings(identities=4, images=2, size=16), progress=stop, force=True
        )
    assert (tmp_path / "set.zip").read_bytes() == before
    assert len(list(tmp_path.iterdir())) == 2
    with refuses("drawn-faces-ending-wrong", file="set.tar"):
        write_faces("set.tar", few)


@pytest.mark.parametrize(
    ("bad", "code", "fields"),
    [
        ({"identities": 1}, "setting-out-of-range", {"key": "FaceSettings.identities", "value": 1}),
        ({"images": 1}, "setting-out-of-range", {"key": "FaceSettings.images", "value": 1}),
        ({"size": 8}, "setting-out-of-range", {"key": "FaceSettings.size", "value": 8}),
        ({"size": 40.5}, "setting-type-wrong", {"key": "FaceSettings.size", "value": 40.5}),
        ({"images": True}, "setting-type-wrong", {"key": "FaceSettings.images", "value": True}),
        ({"seed": -1}, "setting-out-of-range", {"key": "FaceSettings.seed", "value": -1}),
        ({"junk": 5}, "setting-out-of-range", {"key": "FaceSettings.junk", "value": 5}),
        ({"lookalikes": -0.1}, "setting-out-of-range", {"key": "FaceSettings.lookalikes", "value": -0.1}),
        ({"mislabeled": float("nan")}, "setting-out-of-range", {"key": "FaceSettings.mislabeled"}),
        ({"junk": 0.6, "mislabeled": 0.5}, "face-shares-too-large", {"junk": 0.6, "mislabeled": 0.5}),
        ({"difficulty": -1}, "setting-out-of-range", {"key": "FaceSettings.difficulty", "value": -1}),
        ({"difficulty": float("inf")}, "setting-out-of-range", {"key": "FaceSettings.difficulty"}),
    ],
)
def test_bad_settings_are_refused(bad, code, fields):
    with refuses(code, **fields):
        FaceSettings(**bad)


def test_bad_rows_are_refused():
    few = FaceSettings(identities=3, images=2, size=16)
    n_images = len(make_roster(few))
    with refuses("drawn-rows-unknown", row=6, count=2, n_images=6):
        draw_faces(few, [0, n_images, -1])
    with refuses("drawn-rows-not-whole"):
        draw_faces(few, [0.5])
    assert draw_faces(few, []).pixels.shape == (0, 16, 16, 3)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 2**63 - 1), st.lists(st.integers(0, 10**6), min_size=1, max_size=8))
def test_chance_depends_on_its_purpose_alone(seed, numbers):
    table = uniforms(keys(seed, 3, np.array(numbers)), 5)
    assert np.array_equal(table[-1:, :2], uniforms(keys(seed, 3, np.array(numbers[-1:])), 2))
    assert ((table > 0) & (table < 1)).all()
    assert not np.array_equal(table, uniforms(keys(seed, 4, np.array(numbers)), 5))


def test_chance_is_even_and_independent():
    table = uniforms(keys(7, 0, np.arange(20_000)), 4)
    assert np.abs(table.mean(0) - 0.5).max() < 0.01
    assert np.abs(table.var(0) - 1 / 12).max() < 0.002
    assert np.abs(np.corrcoef(table.T) - np.eye(4)).max() < 0.03
    normal = Columns(table).normal(2, 3, 2.2)
    assert abs(normal.mean() - 2) < 0.1
    assert abs(normal - 2).max() <= 6.6 + 1e-9


@pytest.mark.parametrize("width", [0.4, 1.3, 30.0])
def test_blur_is_what_scipy_computes(width):
    from scipy.ndimage import correlate1d

    canvas = np.random.default_rng(0).random((20, 20, 3)).astype(np.float32)
    reach = min(19, max(1, int(np.ceil(2.5 * width))))
    weights = np.exp(-0.5 * (np.arange(-reach, reach + 1) / width) ** 2)
    weights /= weights.sum()
    expected = canvas
    for axis in (0, 1):
        expected = correlate1d(expected, weights, axis=axis, mode="nearest")
    _blur(canvas, np.empty_like(canvas), width)
    np.testing.assert_allclose(canvas, expected, atol=1e-5)


def test_shapes_end_where_they_should():
    for angle in np.linspace(0.05, 3.1, 9):
        x, y = 0.7 * np.cos(angle), 0.4 * np.sin(angle)
        assert abs(_ellipse(x, y, 0.7, 0.4)) < 1e-6
        assert abs(_box(x, y, 0.7, 0.4, 0.0)) < 1e-6
        corner = (np.cos(angle) ** 4 + np.sin(angle) ** 4) ** -0.25
        assert abs(_box(corner * x, corner * y, 0.7, 0.4, 1.0)) < 1e-6
        t = np.cos(angle)
        assert abs(_almond(0.7 * t, -0.4 * (1 - t * t), 0.7, 0.4, 0.2)) < 1e-6
        assert abs(_almond(0.7 * t, 0.2 * (1 - t * t), 0.7, 0.4, 0.2)) < 1e-6
        assert abs(_bow(0.7 * t, 0.3 * (1 - t * t), 0.7, 0.3, 0.1) + 0.1 * (1 - 0.5 * t * t)) < 1e-6
    inside = (_ellipse(0.1, 0.1, 0.7, 0.4), _box(0.0, 0.0, 0.7, 0.4, 0.5), _almond(0.1, 0.1, 0.7, 0.4, 0.2))
    outside = (_ellipse(0.8, 0.0, 0.7, 0.4), _box(0.0, 0.5, 0.7, 0.4, 0.5), _bow(1.0, 0.0, 0.7, 0.3, 0.1))
    assert max(inside) < 0 < min(outside)
    # A straight line at 0.3 from the end of a stroke that is half as thick there.
    assert abs(outside[2] - (0.3 - 0.05)) < 1e-6


def test_grain_is_nearly_normal_and_brightness_is_rounded():
    moment = np.zeros(1, MOMENT)[0]
    moment["grain"] = 5
    canvas = np.full((64, 64, 3), 0.5, np.float32)
    canvas[0, 0] = (-0.2, 0.25, 1.4)
    picture = np.empty((64, 64, 3), np.uint8)
    _develop(canvas, moment, picture)
    assert picture[0, 0].tolist() == [0, 64, 255]
    assert (picture[1:] == 128).all()
    moment["noise"] = 0.1
    _develop(canvas, moment, picture)
    grain = (picture[1:].astype(float) - 127.5) / 25.5
    assert abs(grain.mean()) < 0.05
    assert abs(grain.std() - 1) < 0.05
    assert abs(np.mean(np.abs(grain) < 1) - 0.683) < 0.04


def test_a_sheet_shows_families_together_and_accidents_last():
    wanted = FaceSettings(identities=60, images=8, size=16, junk=0.05, mislabeled=0.05)
    plan = plan_sheet(wanted, 8, 6)
    roster = make_roster(wanted)
    assert plan.rows.shape == (8, 6)
    assert plan.parents[0] == plan.people[0] == plan.parents[1] != plan.people[1]
    assert len(set(plan.people.tolist())) == 8
    for person, rows in zip(plan.people, plan.rows, strict=True):
        rows = rows[rows >= 0]
        assert (roster.people[rows] == person).all()
        odd = roster.shown[rows] != person
        assert np.array_equal(odd, np.sort(odd))
    assert (roster.shown[plan.rows[plan.rows >= 0]] == -1).any()


def test_a_sheet_is_drawn_and_written(tmp_path):
    few = FaceSettings(identities=3, images=2, size=16)
    sheet = draw_sheet(few, 12, 4)
    assert sheet.size == (92 + 4 * 19, 22 + 3 * 19)
    roster = make_roster(few)
    plan = plan_sheet(few, 12, 4)
    shown = draw_faces(few, plan.rows[0, :1]).pixels[0]
    assert roster.shown[plan.rows[0, 0]] == plan.people[0]
    assert np.array_equal(np.asarray(sheet)[22 : 22 + 16, 92 : 92 + 16], shown)
    write_sheet(tmp_path / "sheet.png", few, 12, 4)
    with Image.open(tmp_path / "sheet.png") as written:
        assert np.array_equal(np.asarray(written), np.asarray(sheet))
    with refuses("sheet-ending-wrong", file="sheet.jpg"):
        write_sheet("sheet.jpg", few)
