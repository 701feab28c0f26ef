"""A stage: what it makes, what from, and how to tell whether that is still true."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from cdp.config.sections import EngineSection
from cdp.errors import InputError, StoreError
from cdp.run.contents import ContentHashes, flatten
from cdp.run.sources import Sources
from cdp.runtime.progress import Progress
from cdp.storage.files import sweep, write_json
from cdp.storage.hashes import hash_values

FORMAT = 3
Body = Callable[[Any, "Context"], None]


@dataclass(frozen=True)
class Context:
    """Where and how a stage works; nothing here changes what it makes.

    Attributes:
        folder: of the run.
        cache: of steps inside a stage.
        engine: device, threads, memory, checkpoints.
        progress: called as the work goes on.
        sources: what the user gave, for stages that are made from it.
    """

    folder: Path
    cache: Path
    engine: EngineSection
    progress: Progress
    sources: Sources | None = None


def tell_nothing(folder: Path) -> list[str]:  # noqa: ARG001
    """No sentence."""
    return []


def refuse_nothing(folder: Path) -> str:  # noqa: ARG001
    """Nothing speaks against a stage."""
    return ""


def version(number: int) -> Callable[[Body], Body]:
    """Decorate a stage body with its version, part of its key.

    Raise it when the same settings give another result.
    """

    def mark(body: Body) -> Body:
        body.version = number  # type: ignore[attr-defined]
        return body

    return mark


@dataclass(frozen=True, eq=False)
class Stage:
    """One step of a run: a function of typed settings and of artifacts.

    The function is given the settings and a context, and no recipe, so the settings are all that it can
    depend on in addition to what it reads: they are its key.

    Attributes:
        name: unique; what people read.
        group: which kind of step, for sums of times.
        body: does the work, into the run's folder.
        settings: a frozen dataclass, the only settings that the body gets.
        needs: names of the artifacts it is made from.
        makes: artifact -> path in the run's folder.
        is_shared: whether other runs may have what it made; not where that names files of the user.
        unmoved: artifact -> settings (`a.b`) that do not change it, where that is known before it is made.
        idle: settings (`a.b`) that cannot change what is made, as the others are; they are no part of the
            key.
        tell: sentences for who waits, from the run's folder, once the stage is done.
        refuse: why the stage is not to run and the run ends before it, from the run's folder; empty = it
            runs.
    """

    name: str
    group: str
    body: Body = field(repr=False)
    settings: Any
    needs: tuple[str, ...]
    makes: Mapping[str, str]
    is_shared: bool = True
    unmoved: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    idle: frozenset[str] = frozenset()
    tell: Callable[[Path], Sequence[str]] = field(default=tell_nothing, repr=False)
    refuse: Callable[[Path], str] = field(default=refuse_nothing, repr=False)

    @property
    def plain_settings(self) -> dict[str, Any]:
        """The settings and the version of the code, as JSON holds them."""
        settings: dict[str, Any] = json.loads(json.dumps(asdict(self.settings)))
        return settings | {"version": getattr(self.body, "version", 1)}

    @property
    def key_settings(self) -> dict[str, Any]:
        """Return the settings that affect the result as `a.b` -> value, and the code version."""
        return {name: value for name, value in flatten(self.plain_settings).items() if name not in self.idle}

    def key(self, digests: Mapping[str, str]) -> str:
        """Return a hash of settings, version and the contents of all that it is made from."""
        return hash_values(FORMAT, self.name, self.key_settings, {name: digests[name] for name in self.needs})


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
        steps: seconds of steps inside.
    """

    key: str
    done: bool
    settings: Mapping[str, Any]
    needs: Mapping[str, str]
    makes: Mapping[str, str]
    seconds: float = 0.0
    peak_memory: int = 0
    steps: Mapping[str, float] = field(default_factory=dict)


def read_record(file: Path) -> Record | None:
    """Return the record in a file; None if it is damaged."""
    try:
        return msgspec.json.decode(file.read_text(encoding="utf-8"), type=Record)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


class Ledger:
    """The records of all stages of a run's folder, and the hashes of what it holds."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._records = folder / "stages"
        self.hashes = ContentHashes(self._records / "contents.json")

    def open(self) -> None:
        """Make the folder of the records."""
        self._records.mkdir(parents=True, exist_ok=True)

    def read(self, stage: Stage) -> Record | None:
        """Return what is known about a stage; a damaged record is as good as none.

        Raises:
            StoreError: there is a record, but it may not be read; what it is about must not be made again.
        """
        file = self._file(stage)
        try:
            return read_record(file)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StoreError(
                f"{file}: cannot be read ({error.strerror}); give this user permission to read it, or choose "
                "another --out.",
                code="stage-record-unreadable",
                file=file,
            ) from None

    def write(self, stage: Stage, record: Record) -> None:
        """Write a record, whole or not at all."""
        write_json(self._file(stage), asdict(record))

    def digests(self, stage: Stage) -> dict[str, str | None]:
        """Hash of every output as it is now."""
        return {name: self.hashes.of_path(self.folder / path) for name, path in stage.makes.items()}

    def why_stale(self, stage: Stage, record: Record | None, digests: Mapping[str, str]) -> str:
        """Explain why a stage must run; empty if its result exists for the same inputs and settings."""
        if record is None:
            return "not made yet"
        if record.key != stage.key(digests):
            return _what_changed(stage, record, digests)
        if not record.done:
            return "was interrupted"
        for name, digest in self.digests(stage).items():
            if digest != record.makes.get(name):
                return f"{stage.makes[name]} is {'gone' if digest is None else 'damaged'}"
        return ""

    def begin(self, stage: Stage, digests: Mapping[str, str]) -> None:
        """Note that a stage is under way; what an older one left is cleared, a killed one's work is kept."""
        key = stage.key(digests)
        record = self.read(stage)
        if record is None or record.key != key or record.done:
            for path in stage.makes.values():
                remove(self.folder / path)
        needs = {name: digests[name] for name in stage.needs}
        self.write(stage, Record(key, False, stage.plain_settings, needs, {}))

    def _file(self, stage: Stage) -> Path:
        return self._records / f"{stage.name.replace(' ', '_').replace('/', '_')}.json"


def _what_changed(stage: Stage, record: Record, digests: Mapping[str, str]) -> str:
    now = stage.key_settings
    before = {name: value for name, value in flatten(record.settings).items() if name not in stage.idle}
    changed = [name for name in sorted({*before, *now}) if before.get(name) != now.get(name)]
    if changed:
        words = ", ".join(f"{name} {before.get(name)!r} → {now.get(name)!r}" for name in changed[:3])
        return words + (f" and {len(changed) - 3} more" if len(changed) > 3 else "")
    inputs = [name for name in stage.needs if record.needs.get(name) != digests[name]]
    if inputs:
        more = f" and {len(inputs) - 2} more" if len(inputs) > 2 else ""
        return f"other {', '.join(inputs[:2])}{more}"
    return "made from other inputs" if set(record.needs) != set(stage.needs) else "made by another cdp"


def only(stages: Sequence[Stage], artifacts: Iterable[str]) -> list[Stage]:
    """Return the stages that some artifacts need, in order: their own, and those that these are made from."""
    wanted = set(artifacts)
    unknown = wanted - {name for stage in stages for name in stage.makes}
    if unknown:
        raise InputError(
            f"No stage of this recipe makes {', '.join(sorted(unknown))}.",
            code="stage-artifacts-unknown",
            artifacts=tuple(sorted(unknown)),
        )
    kept = []
    for stage in reversed(stages):
        if wanted & set(stage.makes):
            kept.append(stage)
            wanted |= set(stage.needs)
    return kept[::-1]


def signatures(stages: Sequence[Stage], about: str = "") -> list[str]:
    """Hash per stage all settings that led to it; equal hashes give equal results from equal sources.

    Unlike `Stage.key` it is known before anything has run. `about` stands for the sources.
    """
    made: dict[str, str] = {}
    signed = []
    for stage in stages:
        needs = {name: made.get(name, about) for name in stage.needs}
        flat = stage.key_settings
        for name in stage.makes:
            moved = {key: value for key, value in flat.items() if key not in stage.unmoved.get(name, ())}
            made[name] = hash_values(FORMAT, stage.name, moved, needs, name)
        signed.append(hash_values(FORMAT, stage.name, flat, needs))
    return signed


def remove(path: Path) -> None:
    """Clear what a stage made, and what it began."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    # What a dead process half wrote is swept; on a shared file system another host may be alive and writing.
    sweep(path.parent, path.name)
    for left in path.parent.glob(f".{path.name}.*"):
        if ".partial-" not in left.name:
            shutil.rmtree(left) if left.is_dir() else left.unlink(missing_ok=True)
