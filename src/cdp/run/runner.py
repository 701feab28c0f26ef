"""The runner: executes stale stages in order, one run per folder, safe to interrupt."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cdp.config.sections import EngineSection
from cdp.errors import InputError, StoreError
from cdp.run.peak_memory import PeakMemory
from cdp.run.pool import Pool
from cdp.run.sources import Sources
from cdp.run.stages import Context, Ledger, Record, Stage
from cdp.storage.artifacts import read_facts
from cdp.storage.files import disk_errors, locked


class Listener:
    """Called as a run goes on; does nothing unless a subclass does, such as the terminal."""

    def started(self, stage: Stage, why: str, at: int, n_stages: int) -> None:
        """Announce that a stage begins."""

    def progress(self, step: str, done: int, total: int) -> None:
        """Report the progress of a stage."""

    def finished(
        self, stage: Stage, record: Record, *, fresh: bool, at: int, n_stages: int, left: float | None = None
    ) -> None:
        """Report a finished or fresh stage, and about how many seconds are left, if known."""

    def message(self, stage: Stage, sentence: str) -> None:
        """Report a message about a finished stage."""

    def note(self, sentence: str) -> None:
        """Report a message about the whole run."""


@dataclass(frozen=True)
class Planned:
    """A stage and its state: `fresh`, `run`, or `perhaps` if that depends on an earlier stage."""

    stage: Stage
    state: str
    why: str


@dataclass(frozen=True)
class Ran:
    """A stage of a finished run."""

    stage: Stage
    record: Record
    fresh: bool


class Forecast:
    """Called before and after stages to say how long the rest takes; says nothing unless a subclass does."""

    def before(
        self, stages: Sequence[Stage], ledger: Ledger, digests: Mapping[str, str], listener: Listener
    ) -> None:
        """Announce that the first of these stages is about to run."""

    def after(self, ran: Ran) -> float | None:  # noqa: ARG002
        """Return a stage is done, or was fresh already; how many seconds are left, if that is known."""
        return None


def run_stages(
    stages: Sequence[Stage],
    ledger: Ledger,
    listener: Listener,
    sources: Mapping[str, str],
    engine: EngineSection,
    pool: Pool | None = None,
    given: Sources | None = None,
    *,
    forecast: Forecast | None = None,
    may_stop: bool = False,
) -> list[Ran]:
    """Bring every stage up to date, in order.

    Args:
        stages: all of them, or those that `only` left.
        ledger: of the run's folder.
        listener: called as it goes on.
        sources: the hashes of what the user gives.
        engine: what it may take of the machine.
        pool: what other runs have made, to take from and to give to.
        given: what the user gives, for stages that read it.
        forecast: how long the rest takes, for who waits.
        may_stop: whether a stage may refuse to run, where the run ends; studies measure what comes of it.
    """
    digests = dict(sources)
    # Steps inside a stage are shared like stages are.
    cache = (ledger.folder if pool is None else pool.folder) / "steps"
    context = Context(ledger.folder, cache, engine, listener.progress, given)
    ran = []
    for at, stage in enumerate(stages, start=1):
        record = ledger.read(stage)
        why = ledger.why_stale(stage, record, digests)
        record = None if why else record
        if may_stop and stage.refuse(ledger.folder):
            break
        if record is None and forecast is not None:
            forecast.before(stages[at - 1 :], ledger, digests, listener)
        with disk_errors(stage.name, "what is done is kept"):
            if record is None and pool is not None:
                record = pool.fetch(stage, stage.key(digests), ledger)
            is_fresh = record is not None
            if record is None:
                listener.started(stage, why, at, len(stages))
                record = _run(stage, ledger, digests, context)
            if pool is not None:
                pool.publish(stage, record, ledger)
        digests |= record.makes
        ran.append(Ran(stage, record, is_fresh))
        left = None if forecast is None else forecast.after(ran[-1])
        listener.finished(stage, record, fresh=is_fresh, at=at, n_stages=len(stages), left=left)
        for sentence in stage.tell(ledger.folder):
            listener.message(stage, sentence)
    return ran


def plan_stages(stages: Sequence[Stage], ledger: Ledger, sources: Mapping[str, str]) -> list[Planned]:
    """Return what would run, and why; nothing is changed. Sources without a hash may be anything."""
    digests = dict(sources)
    unknown: dict[str, str] = {}
    plan = []
    for stage in stages:
        record = ledger.read(stage)
        waits = [unknown.get(name, name) for name in stage.needs if name not in digests]
        if record is not None and waits:
            planned = Planned(stage, "perhaps", f"after {waits[0]}")
        else:
            why = ledger.why_stale(stage, record, digests)
            planned = Planned(stage, "run" if why else "fresh", why or "up to date")
        if record is not None and planned.state == "fresh":
            digests |= record.makes
        else:
            unknown |= dict.fromkeys(stage.makes, stage.name)
        plan.append(planned)
    return plan


def _run(stage: Stage, ledger: Ledger, digests: dict[str, str], context: Context) -> Record:
    ledger.begin(stage, digests)
    start = time.perf_counter()
    with PeakMemory() as memory:
        try:
            stage.body(stage.settings, context)
        except Exception as error:
            error.add_note(stage.name)
            raise
    made = {}
    for name, digest in ledger.digests(stage).items():
        if digest is None:
            raise StoreError(
                f"{stage.name}: {stage.makes[name]} was not written; run again.",
                code="stage-output-missing",
                stage=stage.name,
                file=stage.makes[name],
            )
        made[name] = digest
    record = Record(
        key=stage.key(digests),
        done=True,
        settings=stage.plain_settings,
        needs={name: digests[name] for name in stage.needs},
        makes=made,
        seconds=time.perf_counter() - start,
        peak_memory=memory.peak,
        steps=_inner_steps(stage, ledger.folder),
    )
    ledger.write(stage, record)
    ledger.hashes.save()
    return record


def _inner_steps(stage: Stage, folder: Path) -> dict[str, float]:
    """Return the seconds of the steps inside a stage, if the card of its result has them."""
    steps: dict[str, float] = {}
    for path in stage.makes.values():
        if (folder / path / "card.json").is_file():
            steps |= read_facts(folder / path).seconds
    return steps


@contextmanager
def alone_in(folder: Path) -> Iterator[None]:
    """Allow one run per folder, which is created if needed."""
    if folder.exists() and not folder.is_dir():
        raise InputError(
            f"{folder} is a file, not a folder; choose another --out.", code="output-is-a-file", file=folder
        )
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        yield
