"""Every command that writes, killed as by `kill -9` at any moment, and typed again: the same bytes as without, and nothing lost."""

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import msgspec

from bad_inputs import Bench, Case, _be, run_case
from cdp.collection.collection import open_collection
from cdp.collection.corrections import read_journal


@dataclass(frozen=True)
class Writer:
    """A command that writes: its words, what it writes, and whether it has done so for good, so that it is not typed again."""

    words: str
    out: str
    is_done: Callable[[Path], bool] = lambda _: False


def _grew(home: Path, folder: str, n_images: int) -> bool:
    return open_collection(home / folder).n_images > n_images


WRITERS = (
    Writer("label views --labeled known --k 3 --out out --quiet", "out"),
    Writer("label photos --models models --out out --quiet", "out"),
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
    return {name: data for name, data in found.items() if not name.startswith(".") and "/." not in name}


def said(home: Path) -> list[bytes]:
    """All corrections of all collections, without their times."""
    return [
        msgspec.json.encode(msgspec.structs.replace(one, when=""))
        for folder in ("faces", "album", "out")
        if (home / folder / "corrections.jsonl").exists()
        for one in read_journal(home / folder)
    ]


def kill_often(bench: Bench, writer: Writer, n_kills: int, seed: int = 0) -> Iterator[str]:
    """Kill a command at some moments; yields what was not as it would have been without."""
    random, home = Random(f"{seed} {writer.words}"), bench.base / "home"
    case = Case(writer.words, "", "", tuple(writer.words.split()))
    bench.restore()
    start_said = said(home)
    whole = run_case(case, bench.base)
    if whole.code != 0:
        yield f"{writer.words}: {whole.said[-300:]}"
        return
    wanted, wanted_said = contents(home / writer.out), said(home)
    for _ in range(n_kills):
        bench.restore()
        moment = whole.seconds * random.uniform(0.02, 1.0)
        shown = f"{writer.words}, killed after {moment:.3f} of {whole.seconds:.3f} s"
        _run_and_kill(case, bench.base, moment)
        try:
            if said(home)[: len(start_said)] != start_said:
                yield f"{shown}: corrections are lost"
            if not writer.is_done(home):
                again = run_case(case, bench.base)
                if again.problem or (
                    again.code and "is there already" not in again.said and "no such" not in again.said
                ):
                    yield f"{shown}: typed again: {again.said[-300:]}"
            if writer.out in ("faces", "album", "out") and (home / writer.out / "labels.csv").exists():
                run_case(Case("show", "", "", ("show", writer.out)), bench.base)
            found = contents(home / writer.out)
            differing = [name for name in {*found, *wanted} if found.get(name) != wanted.get(name)]
            # A step that was begun and typed again has another number; what people read of it is the same.
            if any("labels.csv" in name for name in wanted):
                differing = [
                    name for name in differing if Path(name).name in ("labels.csv", "labels.parquet")
                ]
            if differing:
                yield f"{shown}: other bytes in {sorted(differing)[:4]}"
            if said(home) != wanted_said:
                yield f"{shown}: other corrections"
        except Exception as error:
            yield f"{shown}: {type(error).__name__}: {error}"
        left = [one.name for one in home.rglob(".*.partial-*")]
        if left:
            yield f"{shown}: left {left[:3]}"


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
