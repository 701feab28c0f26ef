import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.refusals import refuses

from cdp import CDP, ConsensusGraph, KnnGraph, Labels, Mediator, Views, knn_graph
from cdp.errors import OutputExistsError, StoreError
from cdp.storage.artifacts import load, read_card, read_facts, save
from cdp.storage.files import writing_folder
from cdp_lab.synthetic import synthetic_views


@pytest.fixture
def labels():
    return Labels.from_array([3, 3, -1, 5, 5])


def test_nouns_come_back_as_they_were(tmp_path, small_views, labels):
    graph = knn_graph(small_views.base, 5)
    save(graph, tmp_path / "graph")
    back = KnnGraph.load(tmp_path / "graph")
    np.testing.assert_array_equal(back.neighbors, graph.neighbors)
    np.testing.assert_array_equal(back.similarity, graph.similarity)
    assert back.method == "exact"

    labels.save(tmp_path / "labels")
    for name in ("labels", "status", "confidence"):
        np.testing.assert_array_equal(getattr(Labels.load(tmp_path / "labels"), name), getattr(labels, name))

    consensus = ConsensusGraph(np.array([[0, 1], [2, 3]]), np.array([1e-30, 0.02]), 9)
    consensus.save(tmp_path / "consensus")
    again = ConsensusGraph.load(tmp_path / "consensus")
    np.testing.assert_array_equal(again.doubt, consensus.doubt)
    assert again.n_images == 9
    empty = ConsensusGraph(np.empty((0, 2), np.int32), np.empty(0), 9)
    empty.save(tmp_path / "empty")
    assert len(ConsensusGraph.load(tmp_path / "empty")) == 0

    small_views.save(tmp_path / "views")
    views = Views.load(tmp_path / "views")
    assert views.names == small_views.names
    assert views.paths == small_views.paths
    for one, other in zip(views, small_views, strict=True):
        np.testing.assert_array_equal(one.source, other.source)
    np.testing.assert_array_equal(views.identities, small_views.identities)


def test_the_mediator_comes_back_without_pickle(tmp_path):
    split = synthetic_views(60, 8, members=1, dimensions=16)
    mediator = CDP("paper", k=5).fit(split.labeled).mediator_
    mediator.save(tmp_path / "mediator")
    back = Mediator.load(tmp_path / "mediator")
    opinions = np.random.default_rng(0).normal(size=(50, 11)).astype(np.float32)
    np.testing.assert_array_equal(back.doubt(opinions), mediator.doubt(opinions))
    for name in ("committee", "inputs", "k", "training"):
        assert getattr(back, name) == getattr(mediator, name)
    files = {file.suffix for file in (tmp_path / "mediator").iterdir()}
    assert files == {".npy", ".json"}


def test_a_foreign_classifier_cannot_be_saved(tmp_path):
    from sklearn.linear_model import LogisticRegression

    split = synthetic_views(60, 8, members=1, dimensions=16)
    mediator = CDP("paper", k=5, mediator=LogisticRegression()).fit(split.labeled).mediator_
    with refuses("mediator-not-savable", kind="LogisticRegression"):
        mediator.save(tmp_path / "mediator")
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten_without_force(tmp_path, labels):
    labels.save(tmp_path / "labels")
    before = (tmp_path / "labels" / "card.json").read_text()
    with refuses("output-exists", OutputExistsError, file=tmp_path / "labels"):
        Labels.from_array([0, 0]).save(tmp_path / "labels")
    assert (tmp_path / "labels" / "card.json").read_text() == before
    Labels.from_array([0, 0]).save(tmp_path / "labels", force=True)
    assert len(Labels.load(tmp_path / "labels")) == 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["labels"]


def test_a_failure_leaves_the_old_folder_and_no_debris(tmp_path, labels):
    labels.save(tmp_path / "labels")

    def fail():
        with writing_folder(tmp_path / "labels", force=True) as folder:
            (folder / "half").write_text("written")
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError, match="power cut"):
        fail()
    assert len(Labels.load(tmp_path / "labels")) == 5
    assert [entry.name for entry in tmp_path.iterdir()] == ["labels"]


def test_a_full_disk_is_told_plainly(tmp_path, monkeypatch, labels):
    def full(*_args, **_settings):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "save", full)
    with refuses("disk-full", StoreError, file=tmp_path / "labels"):
        labels.save(tmp_path / "labels")
    assert not list(tmp_path.iterdir())


def test_an_unwritable_place_is_told_plainly(tmp_path, labels):
    (tmp_path / "file").write_text("")
    with refuses("output-unwritable", StoreError, file=tmp_path / "file/labels"):
        labels.save(tmp_path / "file" / "labels")
    with refuses("output-is-a-file", file=tmp_path / "file"):
        labels.save(tmp_path / "file", force=True)


def test_what_a_killed_run_left_is_swept_away(tmp_path, labels):
    script = (
        "import sys, time; from cdp.storage.files import writing_folder\n"
        "with writing_folder(sys.argv[1]) as folder:\n"
        "    (folder / 'half').write_text('x'); print('ready', flush=True); time.sleep(60)\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path / "labels")], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline().strip() == "ready"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()
    assert len(list(tmp_path.iterdir())) == 1
    assert not (tmp_path / "labels").exists()
    labels.save(tmp_path / "labels")
    assert [entry.name for entry in tmp_path.iterdir()] == ["labels"]


def test_of_two_runs_at_once_the_first_to_finish_wins(tmp_path):
    def slow_run():
        with writing_folder(tmp_path / "labels") as folder:
            (folder / "slow").write_text("x")
            with writing_folder(tmp_path / "labels") as other:
                (other / "quick").write_text("x")
            assert (folder / "slow").exists()

    with refuses("output-appeared", OutputExistsError, file=tmp_path / "labels"):
        slow_run()
    assert [file.name for file in (tmp_path / "labels").iterdir()] == ["quick"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["labels"]


def test_damage_is_found(tmp_path, labels):
    folder = tmp_path / "labels"
    labels.save(folder)
    np.save(folder / "confidence.npy", np.zeros(5, np.float32))
    with refuses("array-checksum-differs", StoreError, file=tmp_path / "labels/confidence.npy"):
        load(folder, Labels)
    np.save(folder / "confidence.npy", np.zeros(4, np.float32))
    with refuses(
        "array-differs-from-card",
        StoreError,
        file=tmp_path / "labels/confidence.npy",
        expected=("float32", (5,)),
        found=("float32", (4,)),
    ):
        load(folder, Labels)
    (folder / "confidence.npy").write_bytes((folder / "confidence.npy").read_bytes()[:-3])
    with refuses("npy-cut-short", file=tmp_path / "labels/confidence.npy", expected=16, found=13):
        load(folder, Labels)
    (folder / "card.json").write_text("{")
    with refuses("card-damaged", StoreError, file=tmp_path / "labels/card.json"):
        load(folder, Labels)


def test_cards_of_another_kind_or_a_newer_cdp_are_refused(tmp_path, labels):
    labels.save(tmp_path / "labels")
    with refuses(
        "artifact-kind-differs", folder=tmp_path / "labels", expected="ConsensusGraph", found="Labels"
    ):
        ConsensusGraph.load(tmp_path / "labels")
    for newer in (read_card(tmp_path / "labels").as_dict() | {"format": 99}, {"format": 2, "cdp": "9.0"}):
        (tmp_path / "labels" / "card.json").write_text(json.dumps(newer))
        with refuses("card-newer", folder=tmp_path / "labels"):
            Labels.load(tmp_path / "labels")
    with refuses("card-missing", folder=tmp_path):
        Labels.load(tmp_path)


def deep(levels):
    return '{"a":' * levels + "1" + "}" * levels


@pytest.mark.parametrize(
    ("change", "code", "fields"),
    [
        ({"kind": 3}, "card-damaged", {}),
        ({"format": "1"}, "card-damaged", {}),
        ({"format": 0}, "card-damaged", {}),
        ({"format": None}, "card-damaged", {}),
        ({"settings": []}, "card-damaged", {}),
        ({"made_from": {"base": 1}}, "card-damaged", {}),
        ({"arrays": {"labels": {"dtype": "int32", "shape": [5]}}}, "card-damaged", {}),
        ({"arrays": {"labels": {"dtype": "int32", "shape": ["5"], "sha256": ""}}}, "card-damaged", {}),
        ({"arrays": {}}, "card-array-missing", {"array": "labels"}),
    ],
)
def test_a_card_of_other_types_is_damaged(tmp_path, labels, change, code, fields):
    labels.save(tmp_path / "labels")
    file = tmp_path / "labels" / "card.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with refuses(code, StoreError, **fields):
        Labels.load(tmp_path / "labels")


@pytest.mark.parametrize("key", ["kind", "format", "settings", "made_from", "arrays"])
def test_a_card_that_lacks_a_key_is_damaged(tmp_path, labels, key):
    labels.save(tmp_path / "labels")
    file = tmp_path / "labels" / "card.json"
    card = json.loads(file.read_text())
    del card[key]
    file.write_text(json.dumps(card))
    with refuses("card-damaged", StoreError, file=tmp_path / "labels/card.json"):
        Labels.load(tmp_path / "labels")


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b"null",
        b"\xff\xfe",
        b'{"kind": "\xff", "format": 1}',
        b'{"format": 1, "kind": NaN}',
        b"[" * 100_000,
        deep(100_000).encode(),
        f'{{"kind":"Labels","format":1,"settings":{deep(200)},"made_from":{{}},"arrays":{{}}}}'.encode(),
    ],
    ids=["empty", "list", "null", "not text", "bad bytes", "NaN", "open", "bottomless", "deep"],
)
def test_a_card_that_is_none_is_damaged(tmp_path, labels, content):
    labels.save(tmp_path / "labels")
    (tmp_path / "labels" / "card.json").write_bytes(content)
    with refuses("card-damaged", StoreError, file=tmp_path / "labels/card.json"):
        Labels.load(tmp_path / "labels")


def test_something_else_in_the_place_of_a_card(tmp_path, labels):
    (tmp_path / "folder" / "card.json").mkdir(parents=True)
    (tmp_path / "loop").mkdir()
    (tmp_path / "loop" / "card.json").symlink_to("card.json")
    (tmp_path / "pipe").mkdir()
    os.mkfifo(tmp_path / "pipe" / "card.json")
    for name in ("folder", "loop", "pipe"):
        with refuses("card-not-a-file", StoreError):
            read_card(tmp_path / name)
    (tmp_path / "file").touch()
    with refuses("card-missing", folder=tmp_path / "file"):
        read_card(tmp_path / "file")


def test_a_card_that_may_not_be_read_is_named(tmp_path, labels, monkeypatch):
    labels.save(tmp_path / "labels")

    def refuse(file):
        raise PermissionError(errno.EACCES, "Permission denied", str(file))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    with refuses("file-not-permitted", file=tmp_path / "labels/card.json"):
        read_card(tmp_path / "labels")


@pytest.mark.parametrize(
    ("noun", "change", "code"),
    [
        ("knn", {"method": None}, "card-settings-damaged"),
        ("knn", {"recall": "high"}, "card-settings-damaged"),
        ("consensus", {"n_images": -1}, "card-settings-damaged"),
        ("consensus", {"n_images": 60.5}, "card-settings-damaged"),
        ("mediator", {"k": "5"}, "card-settings-damaged"),
        ("mediator", {"committee": "member1"}, "card-settings-damaged"),
        (
            "mediator",
            {"network": {"hidden": [50, 50], "learning_rate": 1, "random_state": 0, "x": 1}},
            "card-settings-damaged",
        ),
        ("mediator", {"network": {"hidden": [50], "learning_rate": 0.05}}, "card-settings-damaged"),
    ],
)
def test_settings_of_other_types_are_damaged(tmp_path, noun, change, code):
    folder = shutil.copytree(Path(__file__).parents[2] / "golden" / "format1" / noun, tmp_path / noun)
    card = json.loads((folder / "card.json").read_text())
    card["settings"] |= change
    (folder / "card.json").write_text(json.dumps(card))
    kind = {"knn": KnnGraph, "consensus": ConsensusGraph, "mediator": Mediator}[noun]
    with refuses(code, StoreError):
        load(folder, kind)


def test_what_does_not_fit_together_names_its_folder(tmp_path):
    folder = shutil.copytree(Path(__file__).parents[2] / "golden" / "format1" / "mediator", tmp_path / "m")
    card = json.loads((folder / "card.json").read_text())
    card["settings"]["inputs"] = ["tea leaves"]
    (folder / "card.json").write_text(json.dumps(card))
    with refuses("inputs-unknown", folder=tmp_path / "m", key="inputs", value="tea leaves"):
        Mediator.load(folder)
    card["settings"] |= {"inputs": ["affinity"], "impostors": 4}
    (folder / "card.json").write_text(json.dumps(card))
    with refuses("mediator-odds-divided", folder=tmp_path / "m", value=4.0):
        Mediator.load(folder)
    card["settings"]["impostors"] = 1
    card["settings"]["network"]["hidden"] = [50, 50, 50]
    (folder / "card.json").write_text(json.dumps(card))
    with refuses("card-array-missing", StoreError, file=tmp_path / "m/card.json", array="layer4_weights"):
        Mediator.load(folder)


def test_the_card_tells_what_it_was_made_from(tmp_path, labels):
    save(labels, tmp_path / "labels", settings={"k": 20}, made_from={"base": "abc"})
    card = read_card(tmp_path / "labels")
    assert (card.kind, card.format, card.summary) == ("Labels", 1, repr(labels))
    assert card.settings == {"k": 20}
    assert card.made_from == {"base": "abc"}
    assert card.arrays["labels"].shape == (5,)
    text = (tmp_path / "labels" / "card.json").read_text()
    assert json.dumps(card.as_dict(), indent=2) + "\n" == text


def test_time_stands_still_for_hashes(tmp_path, labels):
    labels.save(tmp_path / "one")
    time.sleep(0.01)
    labels.save(tmp_path / "two")
    assert read_card(tmp_path / "one") == read_card(tmp_path / "two")
    assert (
        Path(tmp_path / "one" / "card.json").read_bytes() == Path(tmp_path / "two" / "card.json").read_bytes()
    )


def test_what_a_run_reads_of_cards_is_checked(tmp_path, labels):
    save(labels, tmp_path / "labels", settings={"seconds": {"graphs": 2}, "notes": ["small"], "other": 1})
    facts = read_facts(tmp_path / "labels")
    assert (facts.seconds, facts.notes, facts.parameters) == ({"graphs": 2.0}, ["small"], None)
    save(labels, tmp_path / "labels", settings={"seconds": [2]}, force=True)
    with refuses("card-settings-damaged", StoreError, file=tmp_path / "labels/card.json"):
        read_facts(tmp_path / "labels")


def test_a_mediator_whose_arrays_do_not_fit_its_card_is_refused(tmp_path):
    shutil.copytree(Path(__file__).parents[2] / "golden" / "format1" / "mediator", tmp_path / "mediator")
    file = tmp_path / "mediator" / "card.json"
    card = json.loads(file.read_text())
    card["settings"]["committee"].append("third")
    file.write_text(json.dumps(card))
    with refuses("mediator-arrays-differ", folder=tmp_path / "mediator") as caught:
        Mediator.load(tmp_path / "mediator")
    assert str(caught.value) == (
        f"{tmp_path / 'mediator'}: its arrays do not fit its inputs and layers; train this mediator again."
    )
