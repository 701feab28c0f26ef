"""A stage: what it makes, what from, and how to tell whether that is still true."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cdp.errors import InputError
from cdp.files import write_json
from cdp.progress import Progress
from cdp.run.contents import ContentHashes, flatten, hash_settings

FORMAT = 1


@dataclass(frozen=True, eq=False)
class Stage:
    """One step of a run.

    Attributes:
        name: unique; what people read.
        group: which kind of step, for sums of times.
        settings: everything the result depends on beside what it is made from.
        needs: names of the artifacts it is made from.
        makes: artifact -> path in the run's folder.
        work: does it, into the run's folder.
        is_shared: whether other runs may have what it made; not where that names places in this run's folder.
        unmoved: artifact -> settings (`a.b`) that do not change it, where that is known before it is made.
    """

    name: str
    group: str
    settings: Mapping[str, Any]
    needs: tuple[str, ...]
    makes: Mapping[str, str]
    work: Callable[[Progress], None] = field(repr=False)
    is_shared: bool = True
    unmoved: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def key(self, digests: Mapping[str, str]) -> str:
        """A hash of settings and of the contents of all that it is made from."""
        return hash_settings(
            FORMAT, self.name, dict(self.settings), {name: digests[name] for name in self.needs}
        )


@dataclass(frozen=True)
class Record:
    """What is written down about a stage.

    Attributes:
        key: of settings and inputs.
        done: False while it is under way.
        settings: to say what changed.
        needs: hash of every input.
        makes: hash of every output.
        seconds: it took.
        peak_memory: bytes the process held at most.
    """

    key: str
    done: bool
    settings: Mapping[str, Any]
    needs: Mapping[str, str]
    makes: Mapping[str, str]
    seconds: float = 0.0
    peak_memory: int = 0


@dataclass(frozen=True)
class Freshness:
    """Whether a stage need not run, and otherwise why it must."""

    is_fresh: bool
    why: str


class Ledger:
    """The records of all stages of a run's folder, and the hashes of what it holds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._records = folder / "stages"
        self.hashes = ContentHashes(self._records / "contents.json")

    def open(self) -> None:
        """Make room for records."""
        self._records.mkdir(parents=True, exist_ok=True)

    def read(self, stage: Stage) -> Record | None:
        """What is known about a stage; a damaged record is as good as none."""
        try:
            return Record(**json.loads(self._place(stage).read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError):
            return None

    def write(self, stage: Stage, record: Record) -> None:
        """Write a record, whole or not at all."""
        write_json(self._place(stage), asdict(record))

    def digests(self, stage: Stage) -> dict[str, str | None]:
        """Hash of every output as it is now."""
        return {name: self.hashes.of_path(self.folder / path) for name, path in stage.makes.items()}

    def judge(self, stage: Stage, digests: Mapping[str, str]) -> Freshness:
        """Is what the stage would make there, made from the same inputs with the same settings?"""
        record = self.read(stage)
        if record is None:
            return Freshness(False, "not made yet")
        if record.key != stage.key(digests):
            return Freshness(False, _what_changed(stage, record, digests))
        if not record.done:
            return Freshness(False, "was interrupted")
        for name, digest in self.digests(stage).items():
            if digest != record.makes.get(name):
                return Freshness(False, f"{stage.makes[name]} is {'gone' if digest is None else 'damaged'}")
        return Freshness(True, "up to date")

    def begin(self, stage: Stage, digests: Mapping[str, str]) -> None:
        """Note that a stage is under way; what an older one left is cleared, a killed one's work is kept."""
        key = stage.key(digests)
        record = self.read(stage)
        if record is None or record.key != key or record.done:
            for path in stage.makes.values():
                remove(self.folder / path)
        needs = {name: digests[name] for name in stage.needs}
        self.write(stage, Record(key, False, dict(stage.settings), needs, {}))

    def _place(self, stage: Stage) -> Path:
        return self._records / f"{stage.name.replace(' ', '_').replace('/', '_')}.json"


def _what_changed(stage: Stage, record: Record, digests: Mapping[str, str]) -> str:
    before, now = flatten(record.settings), flatten(json.loads(json.dumps(dict(stage.settings))))
    changed = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    if changed:
        told = ", ".join(f"{name} {before.get(name)!r} → {now.get(name)!r}" for name in changed[:3])
        return told + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
    inputs = [name for name in stage.needs if record.needs.get(name) != digests[name]]
    if inputs:
        more = f" and {len(inputs) - 2} more" if len(inputs) > 2 else ""
        return f"other {', '.join(inputs[:2])}{more}"
    return "made from other inputs" if set(record.needs) != set(stage.needs) else "made by another cdp"


def only(stages: Sequence[Stage], artifacts: Iterable[str]) -> list[Stage]:
    """The stages that some artifacts need, in order: their own, and those that these are made from."""
    wanted = set(artifacts)
    unknown = wanted - {name for stage in stages for name in stage.makes}
    if unknown:
        raise InputError(f"No stage of this recipe makes {', '.join(sorted(unknown))}.")
    kept = []
    for stage in reversed(stages):
        if wanted & set(stage.makes):
            kept.append(stage)
            wanted |= set(stage.needs)
    return kept[::-1]


def signatures(stages: Sequence[Stage], about: str = "") -> list[str]:
    """A hash per stage of all settings that led to it: equal ones make equal things from the same sources.

    Unlike `Stage.key` it is known before anything has run. `about` tells sources apart.
    """
    made: dict[str, str] = {}
    signed = []
    for stage in stages:
        needs = {name: made.get(name, about) for name in stage.needs}
        flat = flatten(json.loads(json.dumps(dict(stage.settings))))
        for name in stage.makes:
            moved = {key: value for key, value in flat.items() if key not in stage.unmoved.get(name, ())}
            made[name] = hash_settings(FORMAT, stage.name, moved, needs, name)
        signed.append(hash_settings(FORMAT, stage.name, flat, needs))
    return signed


def remove(path: Path) -> None:
    """Clear what a stage made, and what it began."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    # Half-done work lies beside its goal under a hidden name.
    for left in path.parent.glob(f".{path.name}.*"):
        shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
