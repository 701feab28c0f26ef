"""`cdp label` on photos: from photos to people in one command; more photos later by `cdp add`."""

import re
import shutil
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

pytest.importorskip("onnxruntime", reason="models need the extra onnx")
pytest.importorskip("onnx")

from tests.killed_commands import kill_at
from tests.marked_photos import RELATIVE, photograph
from tests.onnx_builders import embedder, marker_detector

from cdp.cli.main import app
from cdp.collection.collection import open_collection
from cdp.collection.correction_tables import read_correction_table
from cdp.data.manifest_tables import read_some_columns
from cdp.data.manifests import read_manifest
from cdp.data.views import read_views
from cdp.run.photo_models import open_photo_models
from cdp.web.review.thumbnails import Pictures


def call(words):
    return CliRunner().invoke(app, words.split())


def said(result):
    return " ".join((result.stdout + result.stderr).split())


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Six people, each on one photo with every one of three others; a landscape; a detector and two models."""
    monkeypatch.chdir(tmp_path)
    for shot, people in enumerate((one, (one + step) % 6) for step in (1, 2, 3) for one in range(6)):
        photograph(Path(f"photos/{people[0]}{people[1]}.png"), people, shot)
    photograph(Path("photos/landscape.png"), (), 0)
    marker_detector(tmp_path / "models/scrfd.onnx", RELATIVE)
    for seed, name in enumerate(("arcface", "sface")):
        embedder(tmp_path / f"models/{name}.onnx", size=112, dimensions=24, seed=seed)
    return tmp_path


def people_of(collection):
    """Identity numbers by who is truly on the crops, from the photos' names and the order from left to right."""
    found: dict[str, list[int]] = {}
    photos: list[str] = []
    for folder in sorted(Path("album/faces").glob("[0-9][0-9][0-9][0-9]")):
        photos += read_some_columns(folder / "faces.csv", lambda _file, _header: ["photo"])["photo"]
    before = ""
    for photo, identity in zip(photos, collection.identity.tolist(), strict=True):
        found.setdefault(Path(photo).stem[1 if photo == before else 0], []).append(identity)
        before = photo
    return found


@pytest.mark.slow
def test_photos_become_people_and_more_photos_join_them(home, monkeypatch):
    # What a killed run leaves does not count.
    assert call("data align photos --ready all --out album/faces/0001 --threads 1 --quiet").exit_code == 0
    first = call("label photos --models models --out album --threads 1")
    assert first.exit_code == 0, first.output
    assert "18 photos, 36 faces, 6 people; 0 faces seen once." in said(first)
    assert "Expected errors: about 0.0% of the pairs in groups (estimated without labels)." in said(first)
    assert "Left out: 1 without a face. The list: album/faces/photos.csv" in said(first)
    assert "Nobody is labeled, so the threshold was estimated without labels" in said(first)
    assert "photos: taken as photos; otherwise give --input faces or embeddings." in said(first)
    assert "Look: album/report.html. Next: cdp review album" in said(first)
    page = Path("album/report.html").read_text()
    assert page.count("data:image/jpeg;base64,") >= 6
    assert 'title="01.png, person ' in page
    assert "<h1>6 people on 18 photos, 36 faces</h1>" in page
    assert str(home) not in page
    table = read_some_columns(Path("album/labels.csv"), lambda _file, header: list(header))
    assert len(table["path"]) == 36
    assert all((Path("album") / one).is_file() for name in ("path", "photo") for one in table[name])
    people = open_collection("album")
    who = people_of(people)
    assert all(len(set(numbers)) == 1 for numbers in who.values()), who
    assert len({numbers[0] for numbers in who.values()} - {-1}) == 6
    assert len(people.constraints.cannot) == 18
    # The review page finds the pictures from any folder, also when the album was moved.
    Path("elsewhere").mkdir()
    Path("album").rename("elsewhere/moved")
    monkeypatch.chdir(home / "models")
    assert Pictures(open_collection(home / "elsewhere/moved").paths).thumbnail(35)
    monkeypatch.chdir(home)
    Path("elsewhere/moved").rename("album")

    before = sorted((one, one.stat().st_mtime_ns) for one in Path("album").rglob("*"))
    nothing = call("add album photos --threads 1")
    assert nothing.exit_code == 0, nothing.output
    assert "No photo is new. 18 photos, 36 faces, 6 people;" in said(nothing)
    assert sorted((one, one.stat().st_mtime_ns) for one in Path("album").rglob("*")) == before

    # Photos without a face are looked at once.
    Image.new("RGB", (128, 128), (0, 40, 90)).save("photos/sea.png")
    for _ in range(2):
        faceless = call("add album photos --threads 1")
        assert faceless.exit_code == 0, faceless.output
        assert "Left out: 2 without a face." in said(faceless)
    assert "No photo is new." in said(faceless)
    assert "../../photos/sea.png,no face,0,no face was found," in Path("album/faces/photos.csv").read_text()

    photograph(Path("photos/05.png"), (0, 5), 99)
    photograph(Path("photos/13x.png"), (1, 3), 98)
    second = call("add album photos --threads 1")
    assert second.exit_code == 0, second.output
    assert "2 new photos, 4 faces: 1 joined person " in said(second)
    assert "0 new people. In all: 20 photos, 40 faces, 6 people;" in said(second)
    assert len(open_collection("album").constraints.cannot) == 20
    grown = people_of(open_collection("album"))
    assert {one: numbers[0] for one, numbers in grown.items()} == {one: n[0] for one, n in who.items()}
    assert all(len(set(numbers)) == 1 for numbers in grown.values()), grown

    embedder(home / "models/sface.onnx", size=112, dimensions=24, seed=7)
    photograph(Path("photos/24x.png"), (2, 4), 97)
    other = call("add album photos")
    assert other.exit_code == 2
    assert "album was made with arcface, sface (base arcface), not arcface, sface" in (said(other))
    assert "[photo-models-differ]" in said(other)


def contents(folder):
    """All files of a folder by name, without the times that are written down in them."""
    times = re.compile(
        rb'"when":"[^"]*"|\b\d{19}\b|"seconds": \{[^}]*\}|The run took .*?<h3>Time</h3>.*?</svg>|\d+\.\d s</td>',
        re.DOTALL,
    )
    return {
        str(one.relative_to(folder)): times.sub(b"", one.read_bytes())
        for one in Path(folder).rglob("*")
        if one.is_file()
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "moments"),
    [
        ("data align photos --detector models/scrfd.onnx --out album --threads 1", (1,)),
        ("label photos --models models --out album --threads 1", (2, 12)),
    ],
)
def test_a_killed_command_typed_again_gives_the_same_bytes(home, command, moments):
    assert call(f"{command} --quiet").exit_code == 0
    whole = contents("album")
    shutil.rmtree("album")
    # At moment after moment, without tidying up between them.
    assert all(kill_at(command.split(), moment) for moment in moments)
    assert not Path("album/labels.csv").exists()
    again = call(f"{command} --quiet")
    assert again.exit_code == 0, again.output
    assert contents("album") == whole
    assert {one.name for one in home.iterdir()} == {"photos", "models", "album"}


@pytest.mark.slow
def test_the_pairs_that_align_writes_are_corrections_that_groups_keep(home):
    """By hand, the same steps: `different.csv` of `cdp data align` is a table for --corrections."""
    for words in (
        "data align photos --detector models/scrfd.onnx --out faces --threads 1 --quiet",
        "embed faces --model models/arcface.onnx --out views --threads 1 --quiet",
        "label views --corrections faces/different.csv --mediator vote --k 3 --threads 1 --out people --quiet",
    ):
        result = call(words)
        assert result.exit_code == 0, result.output
    views = read_views("views")
    pairs = [one.images for one in read_correction_table("faces/different.csv", 36, views.paths)]
    assert pairs == [(row, row + 1) for row in range(0, 36, 2)]
    people = open_collection("people")
    assert [one.images for one in people.corrections] == pairs
    assert not any(people.identity[one] == people.identity[other] >= 0 for one, other in pairs)


def test_a_table_without_pairs_is_one_without_corrections(home):
    photograph(Path("alone/0.png"), (0,), 0)
    assert call("data align alone --detector models/scrfd.onnx --out faces --quiet").exit_code == 0
    assert read_correction_table("faces/different.csv", 1, read_manifest("faces").locations) == []


def test_one_face_is_not_the_beginning_of_an_album(home):
    photograph(Path("few/0.png"), (0,), 0)
    result = call("label few --models models --out album --threads 1")
    assert result.exit_code == 2
    assert "[photos-with-one-face]" in said(result)
    assert not Path("album/card.json").exists()


@pytest.mark.slow
def test_an_album_begins_small_and_its_threshold_and_its_neighbors_grow(home):
    for shot, people in enumerate([(0, 1), (0, 2), (1, 2), (2, 0)]):
        photograph(Path(f"few/{shot}.png"), people, shot)
    begun = call("label few --models models --out album --threads 1")
    assert begun.exit_code == 0, begun.output
    assert open_collection("album").settings.k == 7
    grown = call("add album photos --threads 1")
    assert grown.exit_code == 0, grown.output
    assert "Nobody is labeled, so the threshold was estimated without labels" in said(grown)
    people = open_collection("album")
    assert (people.n_images, people.settings.k) == (42, 20), "few/0.png has the bytes of photos/01.png"
    assert people.n_identities == 6


def test_models_are_told_by_what_they_are(home):
    (home / "models/genderage.onnx").write_bytes(b"no embedding model, and not even opened")
    models = home / "models"
    chosen = open_photo_models(models)
    assert chosen.detector is not None
    assert [one.name for one in chosen.embedders] == ["arcface", "sface"]
    assert [one.name for one in open_photo_models(models, base="sface").embedders] == ["sface", "arcface"]
    (models / "scrfd.onnx").rename(home / "elsewhere.onnx")
    assert open_photo_models(models).detector is None
    assert open_photo_models(models, detector=home / "elsewhere.onnx").detector is not None


@pytest.mark.slow
def test_photos_are_not_added_by_label_and_replaced_only_by_force(home):
    words = "label photos --models models --out album --threads 1 --quiet"
    assert call(words).exit_code == 0
    again = call(words)
    assert again.exit_code == 2
    assert (
        "album already exists; add photos with cdp add album photos, or replace it with --force. [output-exists]"
        in (said(again))
    )
    before = contents("album")
    photograph(Path("one/a.png"), (0,), 0)
    refused = call("label one --models models --out album --threads 1 --quiet --force")
    assert "[photos-with-one-face]" in said(refused)
    assert contents("album") == before
    assert kill_at(
        ["label", "photos", "--models", "models", "--out", "album", "--threads", "1", "--force"], 1
    )
    assert contents("album") == before
    Path("photos/05.png").unlink(missing_ok=True)
    Path("photos/01.png").unlink()
    replaced = call(f"{words} --force")
    assert replaced.exit_code == 0, replaced.output
    assert open_collection("album").n_images == 34
    assert not list(home.glob(".album*"))


@pytest.mark.slow
def test_a_copy_grows_and_the_collection_stays(home):
    assert call("label photos --models models --out album --threads 1 --quiet").exit_code == 0
    before = contents("album")
    photograph(Path("more/05.png"), (0, 5), 99)
    grown = call("add album more --out second --threads 1")
    assert grown.exit_code == 0, grown.output
    assert contents("album") == before
    assert open_collection("second").n_images == 38
    assert call("add second more --models models --threads 1 --quiet").exit_code == 0


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--models nowhere --out album", "models-folder-missing"),
        ("--models photos --out album", "models-without-embedder"),
        ("--models models --base glint --out album", "base-model-unknown"),
        ("--models two --out album", "detectors-ambiguous"),
        ("--models models --out photos/album", "output-among-photos"),
        ("--models models --out models", "output-holds-other-things"),
        ("--models faceless --out album", "detector-missing"),
        ("--models models --labeled views --out album", "option-needs-embeddings"),
    ],
)
def test_what_is_wrong_is_said_and_nothing_is_written(home, words, code):
    for name in "ab":
        marker_detector(home / f"two/{name}.onnx", RELATIVE)
    embedder(home / "faceless/arcface.onnx", size=112)
    result = call(f"label photos {words}")
    assert result.exit_code == 2, result.output
    assert f"[{code}]" in said(result)
    assert not Path("album/card.json").exists()
    assert not Path("photos/album").exists()
