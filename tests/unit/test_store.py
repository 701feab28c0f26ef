import errno
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from cdp import CDP, ConsensusGraph, KnnGraph, Labels, Mediator, Views, knn_graph
from cdp.errors import InputError, OutputExistsError, StoreError
from cdp.lab.synthetic import synthetic_views
from cdp.store import load, read_card, save, writing


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
    for name in ("labels", "fate", "confidence"):
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
    mediator = CDP(k=5).fit(split.labeled).mediator_
    mediator.save(tmp_path / "mediator")
    back = Mediator.load(tmp_path / "mediator")
    opinions = np.random.default_rng(0).normal(size=(50, 11)).astype(np.float32)
    np.testing.assert_array_equal(back.doubt(opinions), mediator.doubt(opinions))
    assert (back.committee, back.inputs, back.k) == (mediator.committee, mediator.inputs, mediator.k)
    files = {file.suffix for file in (tmp_path / "mediator").iterdir()}
    assert files == {".npy", ".json"}


def test_a_foreign_classifier_cannot_be_saved(tmp_path):
    from sklearn.linear_model import LogisticRegression

    split = synthetic_views(60, 8, members=1, dimensions=16)
    mediator = CDP(k=5, mediator=LogisticRegression()).fit(split.labeled).mediator_
    with pytest.raises(InputError, match="LogisticRegression cannot be saved without pickle"):
        mediator.save(tmp_path / "mediator")
    assert not list(tmp_path.iterdir())


def test_nothing_is_overwritten_without_force(tmp_path, labels):
    labels.save(tmp_path / "labels")
    before = (tmp_path / "labels" / "card.json").read_text()
    with pytest.raises(OutputExistsError, match="is there already"):
        Labels.from_array([0, 0]).save(tmp_path / "labels")
    assert (tmp_path / "labels" / "card.json").read_text() == before
    Labels.from_array([0, 0]).save(tmp_path / "labels", force=True)
    assert len(Labels.load(tmp_path / "labels")) == 2
    assert [entry.name for entry in tmp_path.iterdir()] == ["labels"]


def test_a_failure_leaves_the_old_folder_and_no_debris(tmp_path, labels):
    labels.save(tmp_path / "labels")

    def fail():
        with writing(tmp_path / "labels", force=True) as folder:
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
    with pytest.raises(StoreError, match="the disk is full; nothing was changed there"):
        labels.save(tmp_path / "labels")
    assert not list(tmp_path.iterdir())


def test_an_unwritable_place_is_told_plainly(tmp_path, labels):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be written"):
        labels.save(tmp_path / "file" / "labels")
    with pytest.raises(InputError, match="is a file, not a folder"):
        labels.save(tmp_path / "file", force=True)


def test_what_a_killed_run_left_is_swept_away(tmp_path, labels):
    script = (
        "import sys, time; from cdp.store import writing\n"
        "with writing(sys.argv[1]) as folder:\n"
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
        with writing(tmp_path / "labels") as folder:
            (folder / "slow").write_text("x")
            with writing(tmp_path / "labels") as other:
                (other / "quick").write_text("x")
            assert (folder / "slow").exists()

    with pytest.raises(OutputExistsError, match="appeared while this was running"):
        slow_run()
    assert [file.name for file in (tmp_path / "labels").iterdir()] == ["quick"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["labels"]


def test_damage_is_found(tmp_path, labels):
    folder = tmp_path / "labels"
    labels.save(folder)
    np.save(folder / "confidence.npy", np.zeros(5, np.float32))
    with pytest.raises(StoreError, match="is not what its card describes"):
        load(folder, Labels)
    np.save(folder / "confidence.npy", np.zeros(4, np.float32))
    with pytest.raises(StoreError, match="its card says"):
        load(folder, Labels)
    (folder / "confidence.npy").write_bytes((folder / "confidence.npy").read_bytes()[:-3])
    with pytest.raises(InputError, match="cut short"):
        load(folder, Labels)
    (folder / "card.json").write_text("{")
    with pytest.raises(StoreError, match="damaged"):
        load(folder, Labels)


def test_cards_of_another_kind_or_a_newer_cdp_are_refused(tmp_path, labels):
    labels.save(tmp_path / "labels")
    with pytest.raises(InputError, match="holds Labels, not ConsensusGraph"):
        ConsensusGraph.load(tmp_path / "labels")
    card = read_card(tmp_path / "labels")
    (tmp_path / "labels" / "card.json").write_text(json.dumps(card | {"format": 99}))
    with pytest.raises(
        InputError,
        match=r"written by a newer cdp .*; fetch the newer source and run pip install -c constraints.txt . in",
    ):
        Labels.load(tmp_path / "labels")
    with pytest.raises(InputError, match=r"no card\.json there"):
        Labels.load(tmp_path)


def test_the_card_tells_what_it_was_made_from(tmp_path, labels):
    save(labels, tmp_path / "labels", settings={"k": 20}, made_from={"base": "abc"})
    card = read_card(tmp_path / "labels")
    assert card["settings"] == {"k": 20}
    assert card["made_from"] == {"base": "abc"}
    assert card["arrays"]["labels"]["shape"] == [5]


def test_time_stands_still_for_hashes(tmp_path, labels):
    labels.save(tmp_path / "one")
    time.sleep(0.01)
    labels.save(tmp_path / "two")
    assert read_card(tmp_path / "one")["arrays"] == read_card(tmp_path / "two")["arrays"]
    assert (
        Path(tmp_path / "one" / "card.json").read_bytes() == Path(tmp_path / "two" / "card.json").read_bytes()
    )
