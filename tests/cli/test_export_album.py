"""From photos with names to photos with names: regions in, every export out, and in again."""

import csv
import json
import os
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

pytest.importorskip("onnxruntime", reason="models need the extra onnx")
pytest.importorskip("onnx")

from tests.marked_photos import PLACES, RELATIVE, SIDE, photograph
from tests.onnx_builders import embedder, marker_detector
from tests.xmp_photos import packet

from cdp.cli.main import app
from cdp.collection.collection import open_collection
from cdp.collection.corrections import read_corrections
from cdp.faces.face_regions import read_regions

SHARED = Path(__file__).resolve().parents[3] / "shared"


def call(words, code=0):
    result = CliRunner().invoke(app, words.split())
    assert result.exit_code == code, result.output
    return " ".join((result.stdout + result.stderr).split())


def region(name, place):
    """A region around one of the two people on a drawn photo, a little larger than the detector's."""
    x, y = (side + SIDE / 2 for side in PLACES[place])
    return name, x / 128, y / 128, 52 / 128, 52 / 128


def rows(file):
    with Path(file).open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """An album of six people, two of them named by sidecars, in folders with names of their own."""
    home = tmp_path_factory.mktemp("exports")
    before = os.getcwd()
    os.chdir(home)
    try:
        for shot, people in enumerate((one, (one + step) % 6) for step in (1, 2, 3) for one in range(6)):
            photograph(Path(f"photos/{people[0]}{people[1]}.png"), people, shot)
        Path("photos/01.png.xmp").write_bytes(packet(region("Nora", 0), region("Olga", 1)))
        Path("photos/02.png.xmp").write_bytes(packet(region("Nora", 0), region("", 1)))
        Path("photos/12.xmp").write_bytes(packet(region("Olga", 0)))
        Path("photos/23.png.xmp").write_bytes(b"<!DOCTYPE x [<!ENTITY a 'b'>]>" + packet(region("&a;", 0)))
        marker_detector(home / "models/scrfd.onnx", RELATIVE)
        for seed, name in enumerate(("arcface", "sface")):
            embedder(home / f"models/{name}.onnx", size=112, dimensions=24, seed=seed)
        call("label photos --models models --out album --threads 1 --quiet")
        yield home
    finally:
        os.chdir(before)


@pytest.fixture
def home(made, tmp_path, monkeypatch):
    shutil.copytree(made, tmp_path / "home", symlinks=True)
    monkeypatch.chdir(tmp_path / "home")
    return tmp_path / "home"


def test_regions_name_people_and_come_out_again(home):
    collection = open_collection("album")
    said = {one.name: len(one.images) for one in read_corrections("album") if one.source == "xmp"}
    assert said == {"Nora": 2, "Olga": 2}
    counts = Counter(collection.names.get(int(one), "") for one in collection.identity)
    assert counts == {"Nora": 6, "Olga": 6, "": 24}, "a name on two photos is that of the whole group"

    photos = {one: one.read_bytes() for one in Path("photos").iterdir()}
    told = call("export album --format xmp --out photos")
    assert "photos: 12 faces of 2 people as xmp." in told
    assert "23.png.xmp" not in told, "nobody on it has a name, and so it is not even opened"
    for file, content in photos.items():
        assert file.suffix != ".png" or file.read_bytes() == content, "photos are never changed"
    assert {one.name for one in read_regions("photos/30.png")} == {"Nora"}
    assert {one.name for one in read_regions("photos/01.png")} == {"Nora", "Olga"}
    assert read_regions("photos/34.png") == []
    assert not Path("photos/34.png.xmp").exists()
    if shutil.which("exiftool"):
        asked = ["exiftool", "-q", "-struct", "-j", "-RegionInfo", "-Subject", "photos/30.png.xmp"]
        (found,) = json.loads(subprocess.run(asked, capture_output=True, check=True).stdout)
        assert found["Subject"] == ["Nora"] or found["Subject"] == "Nora"
        assert found["RegionInfo"]["RegionList"][0]["Name"] == "Nora"

    # Another album of the same photos begins with all these names.
    call("label photos --models models --out again --threads 1 --quiet")
    again = Counter(one.name for one in read_corrections("again") for _ in one.images if one.source == "xmp")
    assert again == {"Nora": 6, "Olga": 6}
    call("export album --format xmp --out album/faces", 2)


def test_a_region_wins_over_a_folder(home):
    Path("named").mkdir()
    for person, name in enumerate(("Wrong", "Right")):
        for shot in range(3):
            photograph(Path(f"named/{name}/{shot}.png"), (person,), shot)
    for shot in range(3):
        Path(f"named/Wrong/{shot}.png.xmp").write_bytes(packet(region("Vera", 0)))
    call("label named --models models --identities folders --out people --threads 1 --quiet")
    assert set(open_collection("people").names.values()) == {"Vera", "Right"}


def test_every_format_takes_an_album(home):
    call("export album --out faces --copies")
    assert "whole: 36 photos of 6 people as folders." in call("export album --photos --out whole")
    assert sorted(os.listdir("whole/Nora")) == ["01.png", "02.png", "03.png", "30.png", "40.png", "50.png"]
    crops = {name.partition("_")[2] for name in os.listdir("faces/Nora")}
    assert {name.partition("-")[0] for name in crops} == {"01", "02", "03", "30", "40", "50"}
    call("export album --format csv --out who.csv")
    table = rows("who.csv")
    assert len(table) == 36
    for one in table:
        left, top = float(one["left"]), float(one["top"])
        assert min(abs(left - x) + abs(top - y) for x, y in PLACES) < 8
        assert Path(one["photo"]).is_file()
        with Image.open(one["photo"]) as image:
            assert float(one["right"]) <= image.width + 8
    for form in ("parquet", "coco", "fiftyone", "imagefolder", "records", "webdataset", "list"):
        out = "who.parquet" if form == "parquet" else form
        assert " of 6 people as " in call(f"export album --format {form} --out {out}")
    assert len(json.loads(Path("coco/instances.json").read_text())["annotations"]) == 36
    assert len(json.loads(Path("fiftyone/labels.json").read_text())["labels"]) == 18
    assert len(Path("imagefolder/metadata.jsonl").read_text().splitlines()) == 18
    # Photos are never replaced by an export, even where they are in a folder that cdp wrote.
    shutil.copy("coco/card.json", "photos/card.json")
    call("export album --format coco --out photos --force", 2)


def test_real_photos_keep_their_names(tmp_path, monkeypatch):
    photos, models = SHARED / "data/lfw_photos", SHARED / "models"
    detector, network = models / "face_detection_yunet_2023mar.onnx", models / "mobilefacenet_foamliu.onnx"
    for needed in (photos, detector, network):
        if not needed.exists():
            pytest.skip(f"{needed} is not there")
    from cdp.faces.photo_scan import scan_photos
    from cdp.run.photo_collection import add_photos
    from cdp.run.photo_models import open_photo_models

    monkeypatch.chdir(tmp_path)
    Path("models").mkdir()
    Path("photos/turned").mkdir(parents=True)
    for file in (detector, network):
        shutil.copy(file, "models")
    Path("models/mobilefacenet_foamliu.toml").write_text(
        'size = 112\ncolor = "RGB"\nmean = [123.675, 116.28, 103.53]\nstd = [58.395, 57.12, 57.375]\n'
    )
    counts = Counter(file.stem.rpartition("_")[0] for file in photos.glob("*.jpg"))
    often = [name for name, count in counts.most_common(3)]
    chosen = sorted(file for file in photos.glob("*.jpg") if file.stem.rpartition("_")[0] in often)[:24]
    exif = Image.Exif()
    exif[0x0112] = 6
    for at, file in enumerate(chosen):
        if at % 3:
            shutil.copy(file, "photos")
        else:  # stored on its side, as phones do
            with Image.open(file) as image:
                image.transpose(Image.Transpose.ROTATE_90).save(
                    f"photos/turned/{file.name}", exif=exif, quality=95
                )
    added = add_photos(scan_photos("photos"), open_photo_models("models"), "album")
    first = added.collection
    name = "Some Body"
    call("export album --format csv --out before.csv")
    table = rows("before.csv")
    largest = Counter(one["identity"] for one in table).most_common(1)[0][0]
    first.correct(*_named(name, [int(one["row"]) for one in table if one["identity"] == largest]))
    first.regroup()
    call("export album --format xmp --out photos")
    found = {one["photo"]: [float(one[side]) for side in ("left", "top", "right", "bottom")]
             for one in table if one["identity"] == largest}  # fmt: skip
    assert any("turned" in one for one in found)
    for photo, box in found.items():
        (back,) = read_regions(photo)
        assert back.name == name
        with Image.open(photo) as image:
            wide, high = image.size if "turned" not in photo else image.size[::-1]
        clipped = [max(box[0], 0), max(box[1], 0), min(box[2], wide), min(box[3], high)]
        assert back.box == pytest.approx(clipped, abs=0.1)


def _named(name, images):
    from cdp.collection.corrections import named

    return [named(name, *images)]
