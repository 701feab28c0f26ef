"""Freshness: contents and settings decide, never names or times."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cdp.errors import InputError, StoreError
from cdp.progress import Progress
from cdp.run.contents import ContentHashes, flatten
from cdp.run.peak_memory import PeakMemory
from cdp.run.runner import BusyError, NullListener, alone_in, plan_stages, run_stages
from cdp.run.stages import Ledger, Stage
from cdp.types.manifest import Manifest


class Kitchen:
    """A run of three stages that only write text: a -> b, and c from both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cooked: list[str] = []
        self.settings: dict[str, dict[str, Any]] = {"a": {"salt": 1}, "b": {"oil": "olive"}, "c": {}}
        self.ledger = Ledger(folder)
        self.ledger.open()

    def stages(self) -> list[Stage]:
        return [
            self._stage("a", ("source",), lambda: str(self.settings["a"]["salt"] > 1)),
            self._stage("b", ("a",), lambda: self._read("a") + self.settings["b"]["oil"]),
            self._stage("c", ("a", "b"), lambda: self._read("a") + self._read("b")),
        ]

    def run(self, source: str = "1") -> list[str]:
        self.cooked.clear()
        run_stages(self.stages(), Ledger(self.folder), NullListener(), {"source": source})
        return list(self.cooked)

    def plan(self, source: str = "1") -> list[tuple[str, str]]:
        return [
            (one.state, one.why)
            for one in plan_stages(self.stages(), Ledger(self.folder), {"source": source})
        ]

    def _read(self, name: str) -> str:
        return (self.folder / f"{name}.txt").read_text()

    def _stage(self, name: str, needs: tuple[str, ...], make: Callable[[], str]) -> Stage:
        def work(progress: Progress) -> None:
            self.cooked.append(name)
            (self.folder / f"{name}.txt").write_text(make())

        return Stage(name, "kitchen", self.settings[name], needs, {name: f"{name}.txt"}, work)


@pytest.fixture
def kitchen(tmp_path: Path) -> Kitchen:
    return Kitchen(tmp_path)


def test_second_run_does_nothing(kitchen: Kitchen) -> None:
    assert kitchen.plan() == [("run", "not made yet")] * 3
    assert kitchen.run() == ["a", "b", "c"]
    assert kitchen.plan() == [("fresh", "up to date")] * 3
    assert kitchen.run() == []


def test_changed_setting_redoes_what_depends_on_it(kitchen: Kitchen) -> None:
    kitchen.run()
    kitchen.settings["b"]["oil"] = "sunflower"
    assert kitchen.plan() == [
        ("fresh", "up to date"),
        ("run", "oil 'olive' → 'sunflower'"),
        ("perhaps", "after b"),
    ]
    assert kitchen.run() == ["b", "c"]


def test_same_contents_stop_the_chain(kitchen: Kitchen) -> None:
    kitchen.run()
    kitchen.settings["a"]["salt"] = 0
    assert kitchen.run() == ["a"]


def test_changed_source_is_named(kitchen: Kitchen) -> None:
    kitchen.run()
    assert kitchen.plan("2")[0] == ("run", "other source")


def test_touching_is_not_changing(kitchen: Kitchen) -> None:
    kitchen.run()
    os.utime(kitchen.folder / "a.txt", (1, 1))
    assert kitchen.run() == []


def test_damaged_and_missing_outputs_are_made_again(kitchen: Kitchen) -> None:
    kitchen.run()
    (kitchen.folder / "b.txt").write_text("spoiled")
    assert kitchen.plan()[1] == ("run", "b.txt is damaged")
    assert kitchen.run() == ["b"]
    (kitchen.folder / "b.txt").unlink()
    assert kitchen.plan()[1] == ("run", "b.txt is gone")
    assert kitchen.run() == ["b"]


def test_failed_stage_runs_again_and_keeps_its_half_done_work(kitchen: Kitchen) -> None:
    kitchen.run()
    kitchen.settings["b"]["oil"] = "walnut"
    half_done = kitchen.folder / "b.txt"

    def broken(progress: Progress) -> None:
        assert not half_done.exists(), "what another setting made must be cleared first"
        half_done.write_text("half")
        raise RuntimeError("power cut")

    stages = kitchen.stages()
    stages[1] = Stage("b", "kitchen", kitchen.settings["b"], ("a",), {"b": "b.txt"}, broken)
    with pytest.raises(RuntimeError, match="power cut"):
        run_stages(stages, Ledger(kitchen.folder), NullListener(), {"source": "1"})
    assert kitchen.plan()[1] == ("run", "was interrupted")
    assert half_done.read_text() == "half"
    assert kitchen.run() == ["b", "c"]


def test_full_disk_is_one_sentence(kitchen: Kitchen) -> None:
    def full(progress: Progress) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    stage = Stage("bake", "kitchen", {}, (), {"bread": "bread"}, full)
    with pytest.raises(StoreError) as caught:
        run_stages([stage], kitchen.ledger, NullListener(), {})
    assert str(caught.value) == (
        "bake: the disk is full; what is done is kept. Free space and run the same command again."
    )


def test_a_stage_that_writes_nothing_is_an_error(kitchen: Kitchen) -> None:
    stage = Stage("bake", "kitchen", {}, (), {"bread": "bread"}, lambda progress: None)
    with pytest.raises(StoreError, match=r"bake: bread was not written; run again\."):
        run_stages([stage], kitchen.ledger, NullListener(), {})


def test_damaged_records_count_as_none(kitchen: Kitchen) -> None:
    kitchen.run()
    (kitchen.folder / "stages" / "a.json").write_text("{")
    (kitchen.folder / "stages" / "contents.json").write_text("[1]")
    assert kitchen.run() == ["a"]


def test_second_run_in_one_folder_is_refused_and_a_dead_one_is_not(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from cdp.run.runner import alone_in\n"
        "with alone_in(Path(sys.argv[1])): print('in', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "in\n"
        with pytest.raises(BusyError) as caught, alone_in(tmp_path):
            pass
        assert str(caught.value) == (
            f"{tmp_path}: another cdp is at work in this folder; wait for it, or choose another --out."
        )
    finally:
        other.kill()
        other.communicate()
    with alone_in(tmp_path):
        pass


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with (
        pytest.raises(InputError, match=r"is a file, not a folder; choose another --out\."),
        alone_in(tmp_path / "file"),
    ):
        pass


def test_hash_of_images_ignores_where_they_lie(tmp_path: Path) -> None:
    hashes = ContentHashes(tmp_path / "contents.json")

    def manifest(folder: str, names: tuple[str, ...], identities: list[int]) -> Manifest:
        (tmp_path / folder).mkdir(exist_ok=True)
        for number, name in enumerate(names):
            (tmp_path / folder / name).write_bytes(bytes([number]))
        return Manifest(names, np.array(identities), root=str(tmp_path / folder))

    here = hashes.of_manifest(manifest("here", ("a.png", "b.png"), [0, 1]))
    assert hashes.of_manifest(manifest("there", ("x.png", "y.png"), [0, 1])) == here
    assert hashes.of_manifest(manifest("there", ("x.png", "y.png"), [0, 0])) != here
    (tmp_path / "there" / "x.png").write_bytes(b"other")
    assert (
        hashes.of_manifest(Manifest(("x.png", "y.png"), np.array([0, 1]), root=str(tmp_path / "there")))
        != here
    )


def test_hashes_are_remembered_but_not_trusted(tmp_path: Path) -> None:
    file = tmp_path / "data.npy"
    file.write_bytes(b"first")
    hashes = ContentHashes(tmp_path / "contents.json")
    first = hashes.of_file(file)
    hashes.save()
    assert ContentHashes(tmp_path / "contents.json").of_file(file) == first
    file.write_bytes(b"second")
    assert ContentHashes(tmp_path / "contents.json").of_file(file) != first


def test_cards_and_logs_are_not_contents(tmp_path: Path) -> None:
    folder = tmp_path / "network"
    folder.mkdir()
    (folder / "weights.npy").write_bytes(b"weights")
    hashes = ContentHashes(tmp_path / "contents.json")
    before = hashes.of_path(folder)
    (folder / "card.json").write_text(json.dumps({"when": "now"}))
    (folder / ".partial").write_text("")
    assert hashes.of_path(folder) == before
    assert hashes.of_path(tmp_path / "nothing") is None


def test_flatten() -> None:
    assert flatten({"a": {"b": 1, "c": {"d": 2}}, "e": [3]}) == {"a.b": 1, "a.c.d": 2, "e": [3]}


def test_peak_memory_sees_a_large_array() -> None:
    with PeakMemory() as small:
        pass
    with PeakMemory() as large:
        np.ones(2**24).sum()
    assert large.peak - small.peak > 100e6
