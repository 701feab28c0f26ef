"""Commands one after the other, as people use them: what one writes, the next one takes, also after the folder was moved."""

import csv
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from tests.killed_commands import kill_at
from tests.marked_photos import RELATIVE, photograph
from tests.onnx_builders import embedder, marker_detector
from tests.review_collection import TOKEN, Browser
from typer.testing import CliRunner

pytest.importorskip("starlette", reason="the review page needs the extra review")

from cdp import CDP, Views
from cdp.cli.main import app
from cdp.collection.collection import open_collection
from cdp.web.review.session import Session
from cdp.web.review.web_app import web_app

N_PEOPLE, N_IMAGES, N_FIRST, N_NEW = 30, 8, 6, 4


def cdp(words: str) -> str:
    """Run a command that succeeds, and return what it printed."""
    result = CliRunner().invoke(app, words.split())
    assert result.exit_code == 0, result.output
    return " ".join(result.output.split())


def rows(file: Path) -> list[dict[str, str]]:
    with file.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def groups(folder: Path) -> dict[int, list[int]]:
    """Rows by identity, as labels.csv has them."""
    found: dict[int, list[int]] = {}
    for row in rows(folder / "labels.csv"):
        if int(row["identity"]) >= 0:
            found.setdefault(int(row["identity"]), []).append(int(row["row"]))
    return found


def move(folder: Path, target: Path) -> Path:
    """The same folder in another place; the old one is gone."""
    target.parent.mkdir(parents=True, exist_ok=True)
    folder.rename(target)
    return target


def name_group(folder: Path, images: list[int], name: str) -> None:
    """Name a group on the review page, and apply it."""
    browser = Browser(web_app(Session(folder), TOKEN))
    answer = browser.post("name", {"image": [str(row) for row in images], "name": name})
    assert "refused" not in answer.headers["location"]
    assert browser.post("apply", {}).status == 303


@pytest.fixture
def home(tmp_path, monkeypatch):
    """Pictures of people, and their embeddings by two models: labeled, unlabeled and later ones."""
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(5)
    people = np.repeat(np.arange(3 * N_PEOPLE), N_IMAGES)
    centers = [generator.normal(size=(3 * N_PEOPLE, 16)) for _ in range(2)]
    seen = [center[people] + 0.2 * generator.normal(size=(len(people), 16)) for center in centers]
    pictures = []
    for row, person in enumerate(people):
        file = tmp_path / "pictures" / f"{row:03d}.png"
        file.parent.mkdir(exist_ok=True)
        color = np.random.default_rng(int(person)).integers(0, 255, 3).astype(np.uint8)
        Image.fromarray(np.broadcast_to(color, (16, 16, 3)).copy()).save(file)
        pictures.append(str(file))
    number = np.tile(np.arange(N_IMAGES), 3 * N_PEOPLE)
    parts = {
        "labeled": people < N_PEOPLE,
        "unlabeled": (people >= N_PEOPLE) & (people < 2 * N_PEOPLE) & (number < N_FIRST),
        # The other images of the same people, and four people who are new.
        "later": ((people >= N_PEOPLE) & (people < 2 * N_PEOPLE) & (number >= N_FIRST))
        | ((people >= 2 * N_PEOPLE) & (people < 2 * N_PEOPLE + N_NEW)),
    }
    for name, chosen in parts.items():
        order = generator.permutation(np.flatnonzero(chosen))
        paths = [pictures[row] for row in order]
        base, other = (one[order].astype(np.float32) for one in seen)
        Views(base, {"other": other}, people[order] if name == "labeled" else None, paths).save(
            tmp_path / name
        )
    return tmp_path


def test_label_add_review_regroup_export(home):
    assert "embeddings" in cdp("label unlabeled --labeled labeled --out faces --k 12 --threads 1")
    first = groups(Path("faces"))
    assert len(first) == N_PEOPLE
    assert {len(images) for images in first.values()} == {N_FIRST}
    folder = move(home / "faces", home / "elsewhere" / "album")
    joined = N_PEOPLE * (N_IMAGES - N_FIRST)
    assert f"{joined} images joined identities, {N_NEW} new identities" in cdp(
        f"add {folder} later --threads 1"
    )
    grown = groups(folder)
    assert all(set(images) <= set(grown[number]) for number, images in first.items()), "numbers last"
    assert len(grown) == N_PEOPLE + N_NEW

    number, images = next(iter(grown.items()))
    before = (folder / "report.html").read_text(encoding="utf-8")
    name_group(folder, images, "Anna")
    assert {row["name"] for row in rows(folder / "labels.csv") if int(row["identity"]) == number} == {"Anna"}
    assert open_collection(folder).names == {number: "Anna"}
    assert "<b>Anna</b>" in (folder / "report.html").read_text(encoding="utf-8")
    assert (folder / "metrics.json").is_file()

    one, other, *_ = [members for key, members in grown.items() if key != number]
    Path("facts.csv").write_text(f"kind,row,other_row\nsame,{one[0]},{other[0]}\n")
    assert "merged into" in cdp(f"regroup {folder} --corrections facts.csv")
    merged = groups(folder)
    assert sorted(one + other) in [sorted(members) for members in merged.values()]
    assert (folder / "report.html").read_text(encoding="utf-8") != before
    folder = move(folder, home / "album")
    shown = cdp("show album")
    assert f"identities found │ {len(merged)}" in shown
    cdp("export album --out people --copies")
    assert len(list(Path("people/Anna").glob("*.png"))) == len(images)
    assert "pairwise" in cdp("eval labels album --identities truth.npy" if save_truth(home) else "")


def save_truth(home: Path) -> bool:
    """True identities of the collection's images, from the colors of their pictures."""
    paths = open_collection(home / "album").paths
    colors = [tuple(np.asarray(Image.open(path))[0, 0].tolist()) for path in paths]
    np.save(home / "truth.npy", np.unique(colors, axis=0, return_inverse=True)[1].ravel())
    return True


def test_export_sort_by_hand_regroup(home):
    cdp("label unlabeled --labeled labeled --out faces --k 12 --threads 1")
    cdp("export faces --out people --copies")
    folders = sorted(one for one in Path("people").iterdir() if one.is_dir())
    for file in folders[0].iterdir():
        shutil.move(file, folders[1] / file.name)
    folders[0].rmdir()
    folders[2].rename("people/Berta")
    moved, exported = move(home / "faces", home / "there" / "faces"), move(home / "people", home / "sorted")
    plan = cdp(f"regroup {moved} --folders {exported} --plan")
    assert "would be recorded" in plan
    assert len(groups(moved)) == N_PEOPLE
    assert "recorded" in cdp(f"regroup {moved} --folders {exported}")
    found = groups(moved)
    assert len(found) == N_PEOPLE - 1
    assert sorted(map(len, found.values()))[-1] == 2 * N_FIRST
    assert "Berta" in {row["name"] for row in rows(moved / "labels.csv")}


def test_the_estimator_writes_the_same_collection(home):
    model = CDP(k=12, threads=1)
    model.fit(Views.load("labeled")).predict(Views.load("unlabeled"))
    model.save("saved")
    cdp("label unlabeled --labeled labeled --out faces --k 12 --threads 1")
    assert groups(Path("saved")) == groups(Path("faces"))
    shutil.rmtree("unlabeled")
    cdp("add saved later --threads 1")
    assert len(groups(Path("saved"))) == N_PEOPLE + N_NEW
    assert "Error" not in cdp("show saved")


@pytest.mark.slow
def test_killed_at_every_step(home):
    words = "label unlabeled --labeled labeled --out faces --k 12 --threads 1"
    moment = 1
    while kill_at(words.split(), moment):
        assert not Path("faces").exists(), "whole or not at all"
        moment += 3
    whole = groups(Path("faces"))
    assert len(whole) == N_PEOPLE
    shutil.copytree("faces", "kept")
    moment = 1
    while True:
        shutil.rmtree("faces")
        shutil.copytree("kept", "faces", copy_function=shutil.copy2)
        if not kill_at(["add", "faces", "later", "--threads", "1"], moment):
            break
        assert open_collection("faces").n_images == open_collection("kept").n_images
        assert groups(Path("faces")) == whole
        assert "identities found" in cdp("show faces")
        cdp("add faces later --threads 1")
        assert len(groups(Path("faces"))) == N_PEOPLE + N_NEW
        moment += 3


@pytest.mark.slow
def test_photos_review_more_photos_export(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for shot, people in enumerate((one, (one + step) % 6) for step in (1, 2, 3) for one in range(6)):
        photograph(Path(f"photos/{people[0]}{people[1]}.png"), people, shot)
    marker_detector(tmp_path / "models/scrfd.onnx", RELATIVE)
    for seed, name in enumerate(("arcface", "sface")):
        embedder(tmp_path / f"models/{name}.onnx", size=112, dimensions=24, seed=seed)
    assert "18 photos, 36 faces, 6 people" in cdp("label photos --models models --out album --threads 1")
    found = groups(Path("album"))
    assert sorted(map(len, found.values())) == [6] * 6
    table = rows(Path("album/labels.csv"))
    assert all((Path("album") / row[column]).is_file() for row in table for column in ("path", "photo"))
    number, images = next(iter(found.items()))
    name_group(Path("album"), images, "Clara")
    named = {row["row"] for row in rows(Path("album/labels.csv")) if row["name"] == "Clara"}
    assert named == {str(row) for row in images}, "labels.csv has the new name"
    assert "Clara" in CliRunner().invoke(
        app, ["export", "album", "--format", "csv", "--out", "who.csv"]
    ).output or ("Clara" in Path("who.csv").read_text())
    folder = move(Path("album"), Path("elsewhere/album"))
    os.rename("photos", "elsewhere/photos")
    assert "No photo is new." in cdp(f"add {folder} elsewhere/photos --threads 1")
    photograph(Path("elsewhere/photos/new.png"), (0, 1), 99)
    assert "1 new photo, 2 faces" in cdp(f"add {folder} elsewhere/photos --threads 1")
    grown = groups(folder)
    steps = [event.kind for event in open_collection(folder).events if event.identity < 0]
    assert steps == ["created", "regrouped", "extended"], "later photos are grouped once"
    assert {row["name"] for row in rows(folder / "labels.csv") if int(row["identity"]) == number} == {"Clara"}
    assert sum(map(len, grown.values())) == 38
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "<h1>6 people on 19 photos, 38 faces</h1>" in page
    assert str(tmp_path) not in page


def test_run_show_review_export(made_run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = shutil.copytree(made_run[0], tmp_path / "moved")
    assert "identities found" in cdp("show moved")
    found = groups(folder)
    number, images = max(found.items(), key=lambda one: len(one[1]))
    name_group(folder, images, "Dora")
    assert open_collection(folder).names[number] == "Dora"
    assert {row["name"] for row in rows(folder / "labels.csv") if int(row["identity"]) == number} == {"Dora"}
    page = (folder / "report.html").read_text(encoding="utf-8")
    assert "Did it help?" in page, "the report is still that of the run"
    cdp("regroup moved")
    cdp("export moved --out people --copies")
    assert len(list(Path("people/Dora").glob("*.png"))) == len(images)
    views = open_collection(folder).batches[0].read()
    Views(views.base, views.committee).take(slice(0, 20)).save(tmp_path / "more")
    assert "joined identities" in cdp("add moved more --threads 1")
    assert open_collection(folder).n_images == views.n_images + 20
    assert open_collection(folder).names[number] == "Dora"
