"""Every command that writes, killed as by `kill -9` at any moment, or on a full disk, and typed again.

The same bytes are there as without, and no correction is lost.
"""

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random

import msgspec

from bad_inputs import SECONDS, Bench, Case, Verdict, _be, run_case
from cdp.collection.collection import open_collection
from cdp.collection.corrections import read_journal
from cdp.storage.files import artifact_kind
from cdp_lab import demo, synthetic
from file_faults import Fault, fill_disk, kill


@dataclass(frozen=True)
class Writer:
    """A command that writes.

    Attributes:
        words: the command.
        out: what it writes.
        is_done: whether it has done so for good, so that it is not typed again.
        takes_long: whether it is killed at fewer moments.
    """

    words: str
    out: str
    is_done: Callable[[Path], bool] = lambda _: False
    takes_long: bool = False

    @property
    def case(self) -> Case:
        """The command as a case that can be run."""
        return Case(self.words, "", "", tuple(self.words.split()))


def _grew(home: Path, folder: str, n_images: int) -> bool:
    return open_collection(home / folder).n_images > n_images


WRITERS = (
    Writer("label views --labeled known --k 3 --out out --quiet", "out"),
    Writer("label photos --models models --out out --quiet", "out"),
    Writer("label photos --models models --out album --force --quiet", "album"),
    Writer("label views --labeled known --k 3 --out faces --force --quiet", "faces"),
    Writer(
        "add faces more --out out --quiet",
        "out",
        lambda home: (home / "out").exists() and _grew(home, "out", 48),
    ),
    Writer("add faces more --quiet", "faces", lambda home: _grew(home, "faces", 48)),
    Writer("add album more_photos --models models --quiet", "album", lambda home: _grew(home, "album", 12)),
    Writer(
        "regroup faces --corrections facts.csv --quiet",
        "faces",
        lambda home: len(read_journal(home / "faces")) > 2,
    ),
    Writer(
        "forget faces 0 --yes --quiet", "faces", lambda home: open_collection(home / "faces").n_images < 48
    ),
    Writer("show faces --report out.html --force", "faces"),
    Writer("export faces --out out.csv --format csv --quiet", "out.csv"),
    Writer("export album --out out --copies --quiet", "out"),
    Writer("export album --out out --format records --quiet", "out"),
    Writer("run --embeddings known --out out --quiet", "out/labels.csv"),
    Writer("train people --network small_vgg --out out --epochs 2 --size 16 --quiet", "out"),
    Writer("embed people --model models/a.onnx --out out --quiet", "out"),
    Writer("embed people --networks nets --base small_vgg --out out --quiet", "out"),
    Writer("data split people --out out --unlabeled-parts 2 --quiet", "out"),
    Writer("data align photos --detector models/detector.onnx --out out --quiet", "out"),
    Writer("data recipe out.toml --images people", "out.toml"),
    Writer("faces --out out.zip --identities 3 --images 4 --size 32 --quiet", "out.zip"),
    Writer("baselines known --validation others --methods kmeans --out out.json --k 3 --quiet", "out.json"),
    Writer("study k study.toml --out out --seeds 1 --variants k10,k20 --quiet", "out", takes_long=True),
    Writer("demo --out out --embeddings --quiet", "out", takes_long=True),
    Writer(
        "demo --out out --quick --base.network small_vgg --committee.networks small_vgg:1 --quiet",
        "out",
        takes_long=True,
    ),
)
# A demo of few people: the smallest that it offers takes minutes.
demo._AMOUNTS = {
    **demo._AMOUNTS,
    "quick": demo._Amount(40, 12, 0.15, {"train.epochs": 2, "joint.epochs": 2, "evaluation.replicates": 20}),
}
synthetic.synthetic_views = partial(
    lambda make, n_identities, **more: make(min(n_identities, 100), **more), synthetic.synthetic_views
)
COMPARED = (
    ".npy",
    ".npz",
    ".csv",
    ".parquet",
    ".safetensors",
    ".png",
    ".zip",
    ".rec",
    ".idx",
    ".toml",
    ".txt",
)
"""Endings of what is compared byte by byte; JSON, logs and pages say when and how fast."""


def contents(path: Path) -> dict[str, bytes]:
    """What a command wrote, as far as it does not say when."""
    if path.is_file():
        return {"": path.read_bytes()} if path.suffix in COMPARED else {}
    files = (one for one in sorted(path.rglob("*")) if one.is_file() and not one.is_symlink())
    found = {str(one.relative_to(path)): one.read_bytes() for one in files if one.suffix in COMPARED}
    found = {name: data for name, data in found.items() if not name.startswith(".") and "/." not in name}
    if (path / "results.json").exists():  # of a study
        rows = msgspec.json.decode((path / "results.json").read_bytes())["rows"]
        found["results.json"] = msgspec.json.encode(rows)
    return found


def said(home: Path) -> list[bytes]:
    """All corrections of all collections, without their times."""
    return [
        msgspec.json.encode(msgspec.structs.replace(one, when=""))
        for folder in ("faces", "album", "out")
        if (home / folder / "corrections.jsonl").exists()
        for one in read_journal(home / folder)
    ]


@dataclass(frozen=True)
class Whole:
    """A command that nothing stopped: seconds, changes of files, what it wrote, and corrections before and after."""

    seconds: float
    n_changes: int
    written: dict[str, bytes]
    said_before: list[bytes]
    said: list[bytes]


def _do_whole(bench: Bench, writer: Writer) -> Whole:
    home = bench.base / "home"
    bench.restore()
    before, counted = said(home), Fault(kill, 0, home)
    done = run_case(writer.case, bench.base, 600.0, counted.arm)
    assert done.code == 0, f"{writer.words}: {done.said[-300:]}"
    return Whole(done.seconds, counted.n_changes, contents(home / writer.out), before, said(home))


def kill_often(
    bench: Bench,
    writer: Writer,
    n_timed: int,
    n_counted: int,
    n_full: int,
    seed: int = 0,
    tell: Callable[[list[str]], object] = len,
) -> Iterator[str]:
    """Kill a command at some moments; yields what was not as it would have been without.

    Args:
        n_timed: how often it is killed after some time.
        n_counted: how often it is killed right before some change of a file.
        n_full: how often the disk is full at some change of a file, for that change.
        tell: called with what is done, for each time.
    """
    random, whole = Random(f"{seed} {writer.words}"), _do_whole(bench, writer)
    for _ in range(n_timed):
        bench.restore()
        moment = whole.seconds * random.uniform(0.02, 1.0)
        _run_and_kill(writer.case, bench.base, moment)
        tell(["killed after a time"])
        shown = f"{writer.words}, killed after {moment:.3f} of {whole.seconds:.3f} s"
        yield from (f"{shown}: {one}" for one in _compare(bench, writer, whole))
    for what, at in [(kill, one) for one in _moments(random, whole, n_counted)] + [
        (fill_disk, one) for one in _moments(random, whole, n_full)
    ]:
        bench.restore()
        fault = Fault(what, at, bench.base / "home")
        verdict = run_case(writer.case, bench.base, SECONDS + 10 * whole.seconds, fault.arm)
        tell(["killed at a change" if what is kill else "full disk"])
        shown = f"{writer.words}, {what.__name__} at change {at} of {whole.n_changes}"
        if what is fill_disk:
            yield from (f"{shown}: {one}" for one in _judge_full(bench, verdict))
        is_done = what is fill_disk and verdict.code == 0
        yield from (f"{shown}: {one}" for one in _compare(bench, writer, whole, is_done=is_done))


def _moments(random: Random, whole: Whole, count: int) -> list[int]:
    return sorted(random.sample(range(1, whole.n_changes + 1), min(count, whole.n_changes)))


def _judge_full(bench: Bench, verdict: Verdict) -> Iterator[str]:
    """A full disk is one sentence, which leaves nothing half-written; or it does not matter."""
    if verdict.problem or (verdict.code and "the disk is full" not in verdict.said):
        yield f"{verdict.problem} {verdict.said[-500:]}"
    left = [one.name for one in (bench.base / "home").rglob(".*.partial-*")]
    if left:
        yield f"left at once {left[:3]}"


def _compare(bench: Bench, writer: Writer, whole: Whole, *, is_done: bool = False) -> Iterator[str]:
    """Type a command again that was stopped; yields what is not as it would be if nothing had stopped it."""
    home = bench.base / "home"
    try:
        now = said(home)
        if now[: len(whole.said_before)] != whole.said_before and now != whole.said:
            yield "corrections are lost"
        if not is_done and not writer.is_done(home):
            again = run_case(writer.case, bench.base, SECONDS + 10 * whole.seconds)
            if again.problem or (
                again.code and "already exists" not in again.said and "no such" not in again.said
            ):
                yield f"typed again: {again.problem} {again.said[-300:]}"
        if artifact_kind(home / writer.out) == "Collection":  # makes tables that are missing again
            shown = run_case(Case("show", "", "", ("show", writer.out)), bench.base)
            if shown.code:
                yield f"show: {shown.said[-300:]}"
        found, wanted = contents(home / writer.out), whole.written
        differing = [name for name in {*found, *wanted} if found.get(name) != wanted.get(name)]
        # A step that was begun and typed again has another number; what people read of it is the same.
        if any("labels.csv" in name for name in wanted):
            differing = [
                name
                for name in differing
                if Path(name).name in ("labels.csv", "labels.parquet", "results.json")
                or name.endswith((".safetensors", ".zip"))
            ]
        if differing:
            yield f"other bytes in {sorted(differing)[:4]}"
        if said(home) != whole.said:
            yield "other corrections"
    except Exception as error:
        yield f"{type(error).__name__}: {error}"
    left = [one.name for one in home.rglob(".*.partial-*")]
    if left:
        yield f"left {left[:3]}"


def _run_and_kill(case: Case, base: Path, seconds: float) -> None:
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        _be(case, base / "home", writer)
    os.close(writer)
    time.sleep(seconds)
    os.kill(process, signal.SIGKILL)
    os.waitpid(process, 0)
    os.close(reader)
