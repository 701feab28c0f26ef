"""Freshness: contents and settings decide, never names or times."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.refusals import refuses

from cdp.config.sections import EngineSection
from cdp.errors import BusyError, StoreError
from cdp.run.contents import ContentHashes, flatten
from cdp.run.runner import Listener, alone_in, plan_stages, run_stages
from cdp.run.stages import Body, Context, Ledger, Stage, remove, version
from cdp.storage.files import partial_beside
from cdp.types.manifest import Manifest

ENGINE = EngineSection(threads=1)


@dataclass(frozen=True)
class Salt:
    salt: int = 1


@dataclass(frozen=True)
class Oil:
    oil: str = "olive"
    more: Salt = Salt()


@dataclass(frozen=True)
class Nothing:
    pass


class Chain:
    """A run of three stages that only write text: a -> b, and c from both."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.ran: list[str] = []
        self.settings: dict[str, Any] = {"a": Salt(), "b": Oil(), "c": Nothing()}
        self.versions = {"a": 1, "b": 1, "c": 1}
        self.ledger = Ledger(folder)
        self.ledger.open()

    def stages(self) -> list[Stage]:
        return [
            self.stage("a", ("source",), lambda salt: str(salt.salt > 1)),
            self.stage("b", ("a",), lambda oil: self._read("a") + oil.oil),
            self.stage("c", ("a", "b"), lambda nothing: self._read("a") + self._read("b")),
        ]

    def run(self, source: str = "1") -> list[str]:
        self.ran.clear()
        run_stages(self.stages(), Ledger(self.folder), Listener(), {"source": source}, ENGINE)
        return list(self.ran)

    def plan(self, source: str = "1") -> list[tuple[str, str]]:
        planned = plan_stages(self.stages(), Ledger(self.folder), {"source": source})
        return [(one.state, one.why) for one in planned]

    def _read(self, name: str) -> str:
        return (self.folder / f"{name}.txt").read_text()

    def stage(self, name: str, needs: tuple[str, ...], make: Callable[[Any], str]) -> Stage:
        @version(self.versions[name])
        def body(settings: Any, context: Context) -> None:
            self.ran.append(name)
            (context.folder / f"{name}.txt").write_text(make(settings))

        return Stage(name, "chain", body, self.settings[name], needs, {name: f"{name}.txt"})


def alone(body: Body) -> Stage:
    return Stage("bake", "chain", body, Nothing(), (), {"bread": "bread"})


@pytest.fixture
def chain(tmp_path: Path) -> Chain:
    return Chain(tmp_path)


def test_second_run_does_nothing(chain: Chain) -> None:
    assert chain.plan() == [("run", "not made yet")] * 3
    assert chain.run() == ["a", "b", "c"]
    assert chain.plan() == [("fresh", "up to date")] * 3
    assert chain.run() == []


def test_what_a_stage_tells_is_told_before_the_next_one(chain: Chain) -> None:
    heard: list[str] = []

    class Hears(Listener):
        def message(self, stage: Stage, sentence: str) -> None:
            heard.append(f"{stage.name}: {sentence}")

    first, *others = chain.stages()
    stages = [replace(first, tell=lambda folder: [(folder / "a.txt").read_text(), *chain.ran]), *others]
    for _ in range(2):  # made, then kept
        run_stages(stages, Ledger(chain.folder), Hears(), {"source": "1"}, ENGINE)
        assert heard[:2] == ["a: False", "a: a"]
        heard.clear()


def test_changed_setting_redoes_what_depends_on_it(chain: Chain) -> None:
    chain.run()
    chain.settings["b"] = Oil("sunflower")
    assert chain.plan() == [
        ("fresh", "up to date"),
        ("run", "oil 'olive' → 'sunflower'"),
        ("perhaps", "after b"),
    ]
    assert chain.run() == ["b", "c"]
    chain.settings["b"] = Oil("sunflower", Salt(3))
    assert chain.plan()[1] == ("run", "more.salt 1 → 3")


def test_a_setting_without_effect_redoes_nothing(chain: Chain) -> None:
    def stages() -> list[Stage]:
        first, second, third = chain.stages()
        return [first, replace(second, idle=frozenset({"more.salt"})), third]

    def run() -> list[str]:
        chain.ran.clear()
        run_stages(stages(), Ledger(chain.folder), Listener(), {"source": "1"}, ENGINE)
        return list(chain.ran)

    assert run() == ["a", "b", "c"]
    chain.settings["b"] = Oil(more=Salt(3))
    assert run() == []
    chain.settings["b"] = Oil("sunflower", Salt(4))
    planned = plan_stages(stages(), Ledger(chain.folder), {"source": "1"})
    assert planned[1].why == "oil 'olive' → 'sunflower'", "what has no effect is not named as a reason"


def test_a_stage_may_refuse_and_ends_the_run_where_that_is_allowed(chain: Chain) -> None:
    first, second, third = chain.stages()
    stages = [first, replace(second, refuse=lambda folder: (folder / "a.txt").read_text()), third]
    for may_stop, names in ((True, ["a"]), (False, ["a", "b", "c"])):
        ran = run_stages(stages, Ledger(chain.folder), Listener(), {"source": "1"}, ENGINE, may_stop=may_stop)
        assert [one.stage.name for one in ran] == names


def test_another_version_of_the_code_redoes_what_it_made(chain: Chain) -> None:
    chain.run()
    chain.versions["b"] = 2
    assert chain.plan()[1] == ("run", "version 1 → 2")
    assert chain.run() == ["b"], "it made the same, so the chain stops"


def test_same_contents_stop_the_chain(chain: Chain) -> None:
    chain.run()
    chain.settings["a"] = Salt(0)
    assert chain.run() == ["a"]


def test_changed_source_is_named(chain: Chain) -> None:
    chain.run()
    assert chain.plan("2")[0] == ("run", "other source")


def test_touching_is_not_changing(chain: Chain) -> None:
    chain.run()
    os.utime(chain.folder / "a.txt", (1, 1))
    assert chain.run() == []


def test_damaged_and_missing_outputs_are_made_again(chain: Chain) -> None:
    chain.run()
    (chain.folder / "b.txt").write_text("spoiled")
    assert chain.plan()[1] == ("run", "b.txt is damaged")
    assert chain.run() == ["b"]
    (chain.folder / "b.txt").unlink()
    assert chain.plan()[1] == ("run", "b.txt is gone")
    assert chain.run() == ["b"]


def test_failed_stage_runs_again_and_keeps_its_half_done_work(chain: Chain) -> None:
    chain.run()
    chain.settings["b"] = Oil("walnut")
    half_done = chain.folder / "b.txt"

    def broken(settings: Oil, context: Context) -> None:
        assert not half_done.exists(), "what another setting made must be cleared first"
        half_done.write_text("half")
        raise RuntimeError("power cut")

    stages = chain.stages()
    stages[1] = replace(stages[1], body=broken)
    with pytest.raises(RuntimeError, match="power cut"):
        run_stages(stages, Ledger(chain.folder), Listener(), {"source": "1"}, ENGINE)
    assert chain.plan()[1] == ("run", "was interrupted")
    assert half_done.read_text() == "half"
    assert chain.run() == ["b", "c"]


def test_full_disk_is_one_sentence(chain: Chain) -> None:
    def full(settings: Nothing, context: Context) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with refuses("disk-full", StoreError, file="bake") as caught:
        run_stages([alone(full)], chain.ledger, Listener(), {}, ENGINE)
    assert str(caught.value) == (
        "bake: the disk is full; what is done is kept. Free space and run the same command again."
    )


def test_a_stage_that_writes_nothing_is_an_error(chain: Chain) -> None:
    with refuses("stage-output-missing", StoreError, stage="bake", file="bread"):
        run_stages([alone(lambda settings, context: None)], chain.ledger, Listener(), {}, ENGINE)


@pytest.mark.parametrize(
    ("record", "contents"),
    [
        ("{", "[1]"),
        ('{"key": "x", "done": true, "settings": [], "needs": {}, "makes": {}}', '{"a": 3}'),
        ('{"key": "x", "done": true, "settings": {}, "needs": {}, "makes": "all"}', '{"a": ["1", 2, 3, 4]}'),
        ("[" * 100_000, "[" * 100_000),
    ],
)
def test_damaged_records_count_as_none(chain: Chain, record: str, contents: str) -> None:
    chain.run()
    (chain.folder / "stages" / "a.json").write_text(record)
    (chain.folder / "stages" / "contents.json").write_text(contents)
    assert chain.run() == ["a"]


@pytest.mark.parametrize("simulated", [True, False])
def test_a_record_that_may_not_be_read_is_not_taken_for_none(
    chain: Chain, simulated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run by another user must not train everything again."""
    chain.run()
    record = chain.folder / "stages" / "b.json"
    if simulated:
        read_text = Path.read_text

        def refuse(file: Path, *args: Any, **named: Any) -> str:
            if file == record:
                raise PermissionError(errno.EACCES, "Permission denied", str(file))
            return read_text(file, *args, **named)

        monkeypatch.setattr(Path, "read_text", refuse)
    else:
        if os.geteuid() == 0:
            pytest.skip("root may read everything")
        record.chmod(0)
    for act in (chain.run, chain.plan):
        with refuses("stage-record-unreadable", StoreError):
            act()
    assert chain.ran == []


def test_a_plan_without_the_sources_knows_what_is_not_made(chain: Chain) -> None:
    def planned() -> list[tuple[str, str]]:
        return [(one.state, one.why) for one in plan_stages(chain.stages(), Ledger(chain.folder), {})]

    assert planned() == [("run", "not made yet")] * 3
    chain.run()
    assert planned() == [("perhaps", "after source"), ("perhaps", "after a"), ("perhaps", "after a")]


def test_what_another_host_is_writing_is_not_swept(tmp_path: Path) -> None:
    """Two hosts share a file system; a process number means something on its own host only."""
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    name = partial_beside(tmp_path / "network").name
    elsewhere = tmp_path / re.sub(r"partial-[^-]+-\d+-", f"partial-elsewhere-{dead.pid}-", name)
    here = tmp_path / name.replace(f"-{os.getpid()}-", f"-{dead.pid}-")
    begun = tmp_path / ".network.embedding"
    for folder in (tmp_path / "network", elsewhere, here, begun):
        folder.mkdir()
    remove(tmp_path / "network")
    assert [path.name for path in tmp_path.iterdir()] == [elsewhere.name]


def test_second_run_in_one_folder_is_refused_and_a_dead_one_is_not(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from cdp.run.runner import alone_in\n"
        "with alone_in(Path(sys.argv[1])): print('in', flush=True); time.sleep(60)"
    )
    other = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "in\n"
        with refuses("folder-busy", BusyError, folder=tmp_path), alone_in(tmp_path):
            pass
    finally:
        other.kill()
        other.communicate()
    with alone_in(tmp_path):
        pass


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with refuses("output-is-a-file", file=tmp_path / "file"), alone_in(tmp_path / "file"):
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
    (folder / "labels.csv").write_text("row,path")
    assert hashes.of_path(folder) == before
    # A user's own files may say in a card or a list who is who.
    everything = hashes.of_path(folder, ())
    (folder / "meta.txt").write_text("0")
    assert hashes.of_path(folder) == before
    assert hashes.of_path(folder, ()) != everything
    assert hashes.of_path(tmp_path / "nothing") is None


def test_flatten() -> None:
    assert flatten({"a": {"b": 1, "c": {"d": 2}}, "e": [3]}) == {"a.b": 1, "a.c.d": 2, "e": [3]}


def test_peak_memory_sees_a_large_array() -> None:
    # In a process of its own: here, memory that earlier tests gave back may be used again and no new peak be reached.
    code = (
        "import numpy as np\n"
        "from cdp.run.peak_memory import PeakMemory\n"
        "with PeakMemory() as small: pass\n"
        "with PeakMemory() as large: np.ones(2**24).sum()\n"
        "assert large.peak - small.peak > 100e6, (small.peak, large.peak)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
