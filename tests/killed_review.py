"""`cdp review` over HTTP, killed as by `kill -9` while somebody answers: no acknowledged answer is lost."""

import http.client
import os
import select
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from urllib.parse import parse_qs, urlencode, urlsplit

import msgspec

from bad_inputs import SECONDS, Bench, Case, run_case
from cdp.collection.corrections import Correction, append_corrections, read_journal
from file_faults import Fault, kill

ANSWERS = (
    ("name", {"image": [0, 1], "name": "Ann"}),
    ("images", {"how": "reject", "image": [5], "shown": [5]}),
    ("name", {"image": [8], "name": "Bob"}),
    ("undo", {"number": [2]}),
    ("apply", {}),
    ("name", {"image": [20], "name": "Carl"}),
    ("name", {"image": [24], "name": "Dora"}),
    ("groups", {"how": "name", "name": "Eve", "group": [1], "shown1": [40]}),
    ("apply", {}),
)
"""What somebody says, one after the other: names, an image out, an undo, and twice that it be applied."""


@dataclass
class Answered:
    """How far somebody came: entries that the server acknowledged, and what it refused."""

    numbers: set[int] = field(default_factory=set)
    refused: list[str] = field(default_factory=list)
    n_done: int = 0


def review(home: Path, prepare: Callable[[], None] = int, moment: float | None = None) -> Answered:
    """Serve the review of `home/faces` in a process of its own, and answer until it is killed or all is said.

    Args:
        prepare: called in that process first.
        moment: seconds after the first answer at which it is killed; None = at the end.
    """
    reader, writer = os.pipe()
    process = os.fork()
    if process == 0:
        _serve(home, writer, prepare)
    os.close(writer)
    answered = Answered()
    killer = threading.Timer(0.0 if moment is None else moment, os.kill, (process, signal.SIGKILL))
    try:
        if not select.select([reader], [], [], SECONDS)[0]:
            raise RuntimeError("the server did not start")
        address = os.read(reader, 4096).decode()
        if address and moment is not None:
            killer.start()
        if address:
            _answer_all(address, answered)
    finally:
        killer.cancel()
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        os.close(reader)
    return answered


def _serve(home: Path, output: int, prepare: Callable[[], None]) -> None:
    """The forked process: nothing of it comes back."""
    try:
        os.setpgid(0, 0)
        os.chdir(home)
        prepare()
        from cdp.web.review.server import serve

        serve("faces", started=lambda address: os.write(output, address.encode()) and None)
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(70)


def _answer_all(address: str, answered: Answered) -> None:
    parts = urlsplit(address)
    for action, fields in ANSWERS:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=SECONDS)
        headers = {
            "origin": f"http://{parts.netloc}",
            "sec-fetch-site": "same-origin",
            "content-type": "application/x-www-form-urlencoded",
        }
        try:
            connection.request("POST", f"{parts.path}do/{action}", urlencode(fields, doseq=True), headers)
            reply = connection.getresponse()
        except (OSError, http.client.HTTPException):  # it was killed
            return
        finally:
            connection.close()
        query = parse_qs(urlsplit(reply.headers["location"] or "").query)
        if reply.status != 303 or "refused" in query:
            answered.refused.append(f"{action} {fields}: {reply.status} {query}")
        for numbers in query.get("said", []):
            first, _, last = numbers.partition("-")
            answered.numbers |= set(range(int(first), int(last or first) + 1))
        answered.n_done += 1


def kill_review(
    bench: Bench, n_timed: int, n_counted: int, seed: int = 0, tell: Callable[[list[str]], object] = len
) -> Iterator[str]:
    """Kill a review at some moments; yields acknowledged answers that are lost, and whatever else is wrong then.

    Args:
        n_timed: how often it is killed after some time.
        n_counted: how often it is killed right before some change of a file.
        tell: called with what is done, for each time.
    """
    home, random = bench.base / "home", Random(f"{seed} review")
    bench.restore()
    counted, start = Fault(kill, 0, home), time.perf_counter()
    whole = review(home, counted.arm)
    seconds = time.perf_counter() - start
    said, labels = _journal(home), (home / "faces" / "labels.csv").read_bytes()
    assert whole.n_done == len(ANSWERS), "somebody could not say everything"
    assert not whole.refused, whole.refused
    changes = sorted(random.sample(range(1, counted.n_changes + 1), min(n_counted, counted.n_changes)))
    moments: list[tuple[str, Callable[[], None], float | None]] = [
        (f"killed at change {at} of {counted.n_changes}", Fault(kill, at, home).arm, None) for at in changes
    ]
    for _ in range(n_timed):
        moment = seconds * random.uniform(0.0, 1.0)
        moments.append((f"killed after {moment:.3f} of {seconds:.3f} s", int, moment))
    for shown, prepare, moment in moments:
        bench.restore()
        answered = review(home, prepare, moment)
        tell(["killed after a time" if moment is not None else "killed at a change"])
        yield from (f"review faces, {shown}: {one}" for one in _judge(bench, answered, said, labels))


def _judge(bench: Bench, answered: Answered, said: list[Correction], labels: bytes) -> Iterator[str]:
    home = bench.base / "home"
    if answered.refused:
        yield f"refused {answered.refused}"
    found = _journal(home)
    if found != said[: len(found)]:
        yield f"other entries {found}"
    if lost := [number for number in sorted(answered.numbers) if number >= len(found)]:
        yield f"acknowledged answers are lost: {lost} of {len(found)}"
    append_corrections(home / "faces", said[len(found) :])  # what was not acknowledged is said again
    for words in (("regroup", "faces", "--quiet"), ("show", "faces")):
        again = run_case(Case(words[0], "", "", words), bench.base)
        if again.code or again.said:
            yield f"{words[0]}: {again.said[-300:]}"
    if (home / "faces" / "labels.csv").read_bytes() != labels:
        yield "other labels"
    left = [one.name for one in home.rglob(".*.partial-*")]
    if left:
        yield f"left {left[:3]}"


def _journal(home: Path) -> list[Correction]:
    """All that was said, without its times."""
    return [msgspec.structs.replace(one, when="") for one in read_journal(home / "faces")]
