"""Bad values and bad files for every option and argument of every command: each ends in one sentence, soon.

A case is a valid command with one thing in it replaced. It runs in a process of its own, which is forked from one that has imported
everything, so that starting it takes no time.
"""

import importlib
import os
import pickle
import select
import shutil
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from tests.onnx_builders import constant_detector, embedder

from cdp.cli.commands import app
from cdp.collection.creation import create_collection
from cdp.scoring.settings import ConsensusSettings
from cdp.types import Views
from cdp_lab.cli.lab_main import app as lab
from image_layouts import picture

COMMANDS = {
    "label": "label views --labeled known --k 3 --out out --quiet",
    "label photos": "label photos --models models --out out --quiet",
    "add": "add faces more --out out --quiet",
    "add photos": "add album more_photos --models models --out out --quiet",
    "regroup": "regroup faces --corrections facts.csv --quiet",
    "regroup folders": "regroup album --folders exported --plan --quiet",
    "forget": "forget faces 0 --yes --quiet",
    "show": "show faces",
    "show report": "show faces --report out.html",
    "review": "review missing --no-browser",
    "export": "export faces --out out.csv --format csv --quiet",
    "export folders": "export album --out out --quiet",
    "run": "run --embeddings known --out out --plan --quiet",
    "run images": "run --images people --out out --plan --quiet",
    "run parts": "run --labeled people --unlabeled people --out out --plan --quiet",
    "run recipe": "run recipe.toml --out out --plan --quiet",
    "demo": "demo --out out --quick --plan --quiet",
    "train": "train people --network small_vgg --out out --epochs 1 --size 16 --quiet",
    "train joint": "train people --network small_vgg --unlabeled people --labels people.npy --out out --epochs 1 --size 16 --quiet",
    "networks": "train --list-networks",
    "embed": "embed people --model models/a.onnx --out out --quiet",
    "embed networks": "embed people --networks nets --base small_vgg --out out --quiet",
    "eval labels": "eval labels faces --identities people.npy",
    "eval verification": "eval verification --embeddings known --pairs pairs.csv --folds 2 --quiet",
    "eval pack": "eval verification --pack pack.bin --network nets/small_vgg --folds 2 --quiet",
    "eval identification": "eval identification --probes known --distractors views --quiet",
    "data split": "data split people --out out --unlabeled-parts 1 --quiet",
    "data check": "data check people --list out.csv --quiet",
    "data align": "data align photos --detector models/detector.onnx --out out --quiet",
    "data recipe": "data recipe out.toml --images people",
    "data recipe check": "data recipe recipe.toml --check",
    "faces": "faces --out out.zip --identities 2 --images 2 --size 16 --quiet",
    "ensemble": "ensemble known --models base,other --out out --quiet",
    "baselines": "baselines known --validation others --methods kmeans --out out.json --k 3 --quiet",
    "study": "study k recipe.toml --out out --plan",
    "study page": "study page study --out out.html",
}
"""Valid commands, or nearly, that take no time on the files of `make_home`."""

LAB = ("faces", "ensemble", "baselines", "study")
VALUES = (
    "", " ", "nan", "inf", "-inf", "-1", "0", "1e309", "0.5", "9" * 400, str(2**31), str(2**63), str(2**64), "-" + "9" * 30, "é",
    "\udcff", "x" * 300, "1,,2", ",", "[red]", "{0}", "%s", "None", "true", "../..", "--out", "a=b", "\n", "٣", "1_0", "0x10",
)  # fmt: skip
PATHS = (
    "missing", "../bad/empty", "../bad/fifo", "../bad/loop", "../bad/loop/x", "../bad/dangling", "../bad/folder", "../bad/zeros", "../bad/garbage", "../bad/text",
    "../bad/garbage.npy", "../bad/garbage.npz", "../bad/garbage.parquet", "../bad/garbage.csv", "../bad/garbage.onnx", "../bad/garbage.toml", "../bad/fifo.csv",
    "../bad/fifo.npy", "../bad/fifo.onnx", "../bad/fifo.toml", "../bad/fifo.bin", "../bad/fifo.json", "../bad/zip.zip", "../bad/tar.tar", "../bad/rec.rec",
    "../bad/name\udcff", "/dev/null", "/dev/zero", "/dev/stdin", "/proc/self/mem", "/", ".", "..", "", "x" * 300, "x/" * 2100, "known",
    "faces", "album", "people", "photos", "recipe.toml", "pairs.csv", "people.npy", "../bad/inf.npy", "../bad/nan.npy", "../bad/objects.npy",
    "../bad/dates.parquet", "../bad/one.npy", "../bad/huge.npy", "views/base.npy", "views/card.json", "*", "[", "{1..3}", "~", "http://a/b", "a:b",
)  # fmt: skip
SECONDS = 180.0
"""After which a command is said not to end; most of it is for compiling loops where no compiled ones are kept."""
for _module in (
    "cdp.cli.label_command", "cdp.collection.extension", "cdp.run.photo_collection", "cdp.run.run_recipe", "cdp.nets.joint",
    "cdp.nets.extract", "cdp.web.report.page", "cdp.evaluate.verification", "cdp_lab.study.execute", "onnxruntime", "onnx",
):  # fmt: skip
    importlib.import_module(_module)


def make_home(base: Path) -> None:
    """What valid commands read, in `base/home`, and what bad ones are given, in `base/bad`."""
    home, rng = base / "home", np.random.default_rng(0)
    home.mkdir()
    people = np.repeat(np.arange(12), 4)
    centers = rng.normal(size=(12, 16))

    def embed(noise: float) -> np.ndarray:
        return (centers[people] + noise * rng.normal(size=(48, 16))).astype(np.float32)

    paths = [f"{row}.png" for row in range(48)]
    for name in ("known", "others"):
        Views(embed(0.3), {"other": embed(0.3)}, people, paths).save(home / name)
    for name in ("views", "more"):
        Views(embed(0.3), {"other": embed(0.3)}, None, paths).save(home / name)
    settings = ConsensusSettings.of(preset="paper", mediator="vote", threshold=0.5, k=3)
    create_collection(home / "faces", home / "views", settings=settings)
    for folder, count in (("photos", 12), ("more_photos", 3)):
        (home / folder).mkdir()
        for row in range(count):
            seed = 7 * row + len(folder)
            (home / folder / f"{seed}.png").write_bytes(picture(seed, width=80, height=80))
    for person in range(12):
        (home / "people" / f"{person}").mkdir(parents=True)
        for row in range(4):
            (home / "people" / f"{person}" / f"{row}.png").write_bytes(
                picture(20 * person + row, width=16, height=16)
            )
    np.save(home / "people.npy", people)
    embedder(home / "models" / "a.onnx", size=112)
    points = np.array([[20, 20], [40, 20], [30, 30], [22, 42], [38, 42]])
    constant_detector(home / "models" / "detector.onnx", "scrfd", [(0.9, (10, 8, 50, 56), points)])
    (home / "facts.csv").write_text("kind,row,other_row,name\nsame,0,1,\nname,2,,Anna\n")
    lines = [f"{n},{n + 1},{int(n // 4 == (n + 1) // 4)}\n" for n in range(40)]
    (home / "pairs.csv").write_text("first_row,second_row,same\n" + "".join(lines))
    (home / "recipe.toml").write_text('[data]\nembeddings = "known"\n')
    parts = "[split]\nlabeled = 0.4\nvalidation = 0.2\nunlabeled_parts = 1\n[consensus]\nk = 3\n"
    (home / "study.toml").write_text(f'[data]\nembeddings = "known"\n{parts}')
    (home / "pack.bin").write_bytes(pickle.dumps(([picture(n) for n in range(8)], [True, False] * 2), 2))
    for folder in ("study", "../bad/folder"):
        (home / folder).mkdir(parents=True)
    for words in (
        "label photos --models models --out album --quiet",
        "regroup album --corrections facts.csv --quiet",
        "export album --out exported --copies --quiet",
        "train people --network small_vgg --out nets --epochs 1 --size 16 --quiet",
    ):
        # The first commands compile all loops, where no compiled ones are kept.
        verdict = run_case(Case(words, "", "", tuple(words.split())), base, 600.0)
        assert verdict.code == 0, f"{words} ended with {verdict.code}: {verdict.said}"
    _make_bad_files(base / "bad", rng)


def _make_bad_files(bad: Path, rng: np.random.Generator) -> None:
    (bad / "empty").touch()
    for name in ("fifo", "fifo.csv", "fifo.npy", "fifo.onnx", "fifo.toml", "fifo.bin", "fifo.json"):
        os.mkfifo(bad / name)
    (bad / "loop").symlink_to("loop")
    (bad / "dangling").symlink_to("nowhere")
    (bad / "zeros").write_bytes(bytes(5000))
    (bad / "text").write_text("kind,row\nsame\n")
    for ending in ("", ".npy", ".npz", ".parquet", ".csv", ".onnx", ".toml"):
        (bad / f"garbage{ending}").write_bytes(rng.bytes(3000))
    for name in ("zip.zip", "tar.tar", "rec.rec"):
        (bad / name).write_bytes(rng.bytes(3000))
    Path(os.fsdecode(os.fsencode(bad) + b"/name\xff")).write_bytes(b"x")
    np.save(bad / "inf.npy", np.full((48, 16), np.inf, np.float32))
    np.save(bad / "nan.npy", np.full((48, 16), np.nan, np.float32))
    np.save(bad / "objects.npy", np.array([{}, None], object), allow_pickle=True)
    np.save(bad / "one.npy", np.ones((1, 16), np.float32))
    np.save(bad / "huge.npy", np.full((48, 16), 3e38, np.float32))
    dates = pa.array([10**15] * 3, pa.timestamp("us"))
    pq.write_table(
        pa.table({"kind": ["name"] * 3, "row": dates, "path": dates, "name": dates}), bad / "dates.parquet"
    )


@dataclass(frozen=True)
class Case:
    """One bad command: what was replaced by what, and all words."""

    command: str
    place: str
    value: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.command}: {self.place} {self.value[:40]!a}"


def all_cases() -> Iterator[Case]:
    """Every option of every command with every bad value, and every word of a valid command replaced by every bad path."""
    for name, text in COMMANDS.items():
        words = text.split()
        for at, word in enumerate(words):
            if at and not word.startswith("--") and words[0] not in (word,):
                # A collection that is there would be served until somebody says stop.
                for value in (
                    one for one in (*PATHS, *VALUES) if words[0] != "review" or one not in ("faces", "album")
                ):
                    yield Case(name, f"word {at}", value, (*words[:at], value, *words[at + 1 :]))
        for option in _options(words):
            for value in (*VALUES, *PATHS):
                yield Case(name, option, value, (*words, option, value))


def _options(words: Sequence[str]) -> list[str]:
    found = typer.main.get_command(lab if words[0] in LAB else app)
    for word in words:
        inner = getattr(found, "commands", {}).get(word)
        if inner is None:
            break
        found = inner
    options = [one for one in found.params if getattr(one, "opts", [""])[0].startswith("--")]
    return [one.opts[0] for one in options if not one.is_flag]


def pick_cases(n_cases: int, seed: int = 0) -> list[Case]:
    """Some of all cases: as many of every command, in a fixed order."""
    by_command: dict[str, list[Case]] = {}
    for case in all_cases():
        by_command.setdefault(case.command, []).append(case)
    each = -(-n_cases // len(by_command))
    picked = []
    for name, cases in by_command.items():
        picked += Random(f"{seed} {name}").sample(cases, min(each, len(cases)))
    return picked


@dataclass(frozen=True)
class Verdict:
    """How a case ended: exit code (None = it did not end), what it said on standard error, seconds, and what is wrong with that."""

    code: int | None
    said: str
    seconds: float
    problem: str


def run_case(case: Case, base: Path, seconds: float = SECONDS, prepare: Callable[[], None] = int) -> Verdict:
    """Run a bad command in a process of its own, and judge how it ended; what it wrote stays in `base/home`.

    Args:
        prepare: called in that process first.
    """
    reader, writer = os.pipe()
    start = time.perf_counter()
    process = os.fork()
    if process == 0:
        prepare()
        _be(case, base / "home", writer)
    os.close(writer)
    said, is_over = b"", False
    while not is_over and time.perf_counter() - start < seconds:
        if select.select([reader], [], [], 0.5)[0]:
            block = os.read(reader, 65536)
            said, is_over = said + block, not block
    if not is_over:
        os.killpg(process, signal.SIGKILL)
    os.close(reader)
    status = os.waitpid(process, 0)[1]
    code = os.waitstatus_to_exitcode(status) if is_over else None
    text = said.decode("utf-8", "replace")
    return Verdict(code, text, time.perf_counter() - start, _judge(code, text))


class Bench:
    """Runs cases one after the other, each on files as they were."""

    def __init__(self, base: Path) -> None:
        self.base = base
        make_home(base)
        shutil.copytree(base / "home", base / "whole")

    def run(self, case: Case, seconds: float = SECONDS) -> Verdict:
        """Run one case; inputs that a command which only reads has changed are a problem."""
        verdict = run_case(case, self.base, seconds)
        self.restore()
        return verdict

    def restore(self) -> None:
        """Put all files back as they were."""
        shutil.rmtree(self.base / "home")
        shutil.copytree(self.base / "whole", self.base / "home", symlinks=True)


def _judge(code: int | None, said: str) -> str:
    if code is None:
        return "did not end"
    if "Traceback" in said or code not in (0, 1, 2):
        return f"ended with {code}"
    errors = [line for line in said.splitlines() if line.startswith("Error")]
    if code and len(errors) != 1 and "Usage" not in said:
        return f"{len(errors)} errors"
    if any(not line.rstrip("]").strip() for line in errors):
        return "an empty error"
    return ""


def _be(case: Case, home: Path, output: int) -> None:
    """The forked process: nothing of it comes back."""
    code = 70
    try:
        os.setpgid(0, 0)
        os.chdir(home)
        nothing = os.open(os.devnull, os.O_RDWR)
        os.dup2(nothing, 0)
        os.dup2(nothing, 1)
        os.dup2(output, 2)
        sys.stdin, sys.stdout = os.fdopen(0), os.fdopen(1, "w")
        sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace")
        (lab if case.words[0] in LAB else app)(list(case.words))
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 0 if ended.code is None else 1
    except BaseException:
        sys.stderr.write(traceback.format_exc())
    finally:
        sys.stderr.flush()
        os._exit(code)
