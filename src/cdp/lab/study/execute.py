"""Variants times seeds: every run in its own folder, what they share made once, results after each."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from cdp import __version__
from cdp.config.checks import check_recipe
from cdp.config.environment import check_paths
from cdp.config.reading import PATH_KEYS, recipe_from
from cdp.config.sections import RunRecipe
from cdp.errors import InputError
from cdp.files import write_json
from cdp.lab.study.design import Finished, Measure, Options, Study, Variant
from cdp.lab.study.result_tables import results_of
from cdp.lab.study.study_page import write_pages
from cdp.run.pool import Pool
from cdp.run.record import commit, now, versions
from cdp.run.run_recipe import run_part, sources_for
from cdp.run.runner import Listener, NullListener, Ran, alone_in, plan_stages
from cdp.run.sources import Facts, Settled, look_at, settle
from cdp.run.stages import Ledger, Record, Stage, only, signatures

FORMAT = 1


@dataclass(frozen=True)
class Left:
    """What is still to be done.

    Attributes:
        runs: variants times seeds.
        stages: different ones that have not run.
        seconds: they will take, by the stages of the same kind that have; None if nothing is known yet.
    """

    runs: int
    stages: int
    seconds: float | None


class StudyListener(Listener, Protocol):
    """Told how a study goes, and how each stage of its runs goes."""

    def run_started(self, variant: Variant, seed: int, at: int, n_runs: int, left: Left) -> None:
        """A run begins."""

    def run_finished(
        self, variant: Variant, seed: int, ran: Sequence[Ran], at: int, n_runs: int, left: Left
    ) -> None:
        """A run is done."""


class NullStudyListener(NullListener):
    """Listens to nothing."""

    def run_started(self, variant: Variant, seed: int, at: int, n_runs: int, left: Left) -> None:
        """Nothing."""

    def run_finished(
        self, variant: Variant, seed: int, ran: Sequence[Ran], at: int, n_runs: int, left: Left
    ) -> None:
        """Nothing."""


@dataclass(frozen=True)
class Job:
    """One variant with one seed."""

    variant: Variant
    seed: int
    settled: Settled
    folder: Path

    def stages(self) -> list[Stage]:
        """Those that its figures need."""
        return only(self.variant.stages(self.settled), self.variant.wanted)

    def signatures(self) -> list[str]:
        """Of its stages; the same in two jobs = made once."""
        data = self.settled.recipe.as_dict()["data"]
        return signatures(self.stages(), repr(sorted(data.items())))


@dataclass(frozen=True)
class PlannedRun:
    """A job, and how many of its stages are there, come from another run, or run."""

    job: Job
    n_kept: int
    n_shared: int
    runs: tuple[str, ...]


def make_jobs(
    study: Study,
    recipe: RunRecipe,
    out: Path,
    *,
    n_seeds: int = 3,
    variants: Sequence[str] | None = None,
    options: Options | None = None,
) -> list[Job]:
    """Every variant with every seed, all variants of the first seed first.

    Raises:
        InputError: a variant is not known, or its recipe cannot be run.
    """
    if n_seeds < 1:
        raise InputError(f"--seeds {n_seeds}: one seed or more is needed.")
    known = {one.slug: one for one in study.variants(recipe, options or Options())}
    for slug in variants or ():
        if slug not in known:
            raise InputError(f"{study.name} has no variant {slug}; it has {', '.join(known)}.")
    chosen = [known[slug] for slug in (variants or known)]
    jobs: list[Job] = []
    facts: Facts | None = None
    for seed in range(recipe.seed, recipe.seed + n_seeds):
        for variant in chosen:
            varied = recipe_from(recipe.as_dict(), {**variant.overrides, "seed": seed})
            check_recipe(varied)
            check_paths(varied)
            facts = facts or look_at(varied)
            folder = out.absolute() / "runs" / variant.slug / f"seed{seed}"
            job = Job(variant, seed, settle(varied, facts), folder)
            _require_images(study, job)
            jobs.append(job)
    return jobs


def _require_images(study: Study, job: Job) -> None:
    if job.settled.facts.kind == "images":
        return
    made = {name for stage in job.variant.stages(job.settled) for name in stage.makes}
    if not made >= set(job.variant.wanted):
        raise InputError(
            f"{study.name}: this study trains networks, and embeddings are no images to train on; give data.images, "
            "or choose a study of labels, e.g. k or mediator_inputs."
        )


def plan_study(jobs: Sequence[Job]) -> list[PlannedRun]:
    """What a study would do; nothing is written."""
    seen: set[str] = set()
    plan = []
    for job in jobs:
        kept, shared, runs = 0, 0, []
        ledger = Ledger(job.folder)
        stages = job.stages()
        planned = plan_stages(stages, ledger, sources_for(stages, job.settled, ledger))
        for one, signature in zip(planned, job.signatures(), strict=True):
            if one.state == "fresh":
                kept += 1
            elif signature in seen and one.stage.is_shared:
                shared += 1
            else:
                runs.append(one.stage.name)
            seen.add(signature)
        plan.append(PlannedRun(job, kept, shared, tuple(runs)))
    return plan


@dataclass
class _Clock:
    """How long stages took, and which are still to come."""

    jobs: Sequence[Job]
    took: dict[str, list[float]] = field(default_factory=dict)
    done: set[str] = field(default_factory=set)

    def note(self, job: Job, ran: Sequence[Ran]) -> None:
        """A run is done."""
        for one, signature in zip(ran, job.signatures(), strict=True):
            if signature not in self.done:
                self.done.add(signature)
                for name in (one.stage.name, one.stage.group):
                    self.took.setdefault(name, []).append(one.record.seconds)

    def left(self, at: int) -> Left:
        """Of the jobs from `at` on."""
        coming = {
            signature: stage
            for job in self.jobs[at:]
            for stage, signature in zip(job.stages(), job.signatures(), strict=True)
            if signature not in self.done
        }
        seconds = 0.0
        for stage in coming.values():
            known = self.took.get(stage.name) or self.took.get(stage.group)
            if known is None:
                return Left(len(self.jobs) - at, len(coming), None)
            seconds += sum(known) / len(known)
        return Left(len(self.jobs) - at, len(coming), seconds)


def run_study(
    study: Study,
    recipe: RunRecipe,
    out: str | Path,
    jobs: Sequence[Job],
    *,
    pool: str | Path | None = None,
    command: str = "",
    listener: StudyListener | None = None,
) -> dict[str, Any]:
    """Run what is not there, then write `results.json`, `README.md`, `study.html` and the plots.

    A study that was killed goes on in the same folder: a finished stage is never made twice, by whichever variant.

    Args:
        study: what is compared.
        recipe: what all variants start from.
        out: the study's folder.
        jobs: from `make_jobs`.
        pool: folder of finished stages; studies of one recipe that are given the same one train its networks once.
            `pool` in the study's folder unless given.
        command: as typed, for the record.
        listener: told how it goes.

    Returns:
        what `results.json` holds.
    """
    folder = Path(out).absolute()
    told = listener or NullStudyListener()
    started, made_at = now(), commit()
    clock = _Clock(jobs)
    with alone_in(folder):
        _refuse_strangers(folder)
        (folder / "runs").mkdir(exist_ok=True)
        shared = Pool(folder / "pool" if pool is None else Path(pool).absolute())
        shared.folder.mkdir(parents=True, exist_ok=True)
        shared.sweep()
        measured: list[tuple[Job, list[Measure]]] = []
        extra: dict[str, Any] = {}
        times: dict[str, float] = {}
        runs = []
        for at, job in enumerate(jobs):
            told.run_started(job.variant, job.seed, at + 1, len(jobs), clock.left(at))
            ran = run_part(
                job.settled,
                job.folder,
                job.variant.wanted,
                stages=job.variant.stages,
                pool=shared,
                listener=told,
            )
            clock.note(job, ran)
            finished = Finished(job.folder, job.settled.recipe, ran)
            measured.append((job, job.variant.read(finished)))
            if job.variant.extra is not None and job.variant.slug not in extra:
                extra[job.variant.slug] = job.variant.extra(finished)
            times |= {one.record.key: one.record.seconds for one in ran}
            runs.append(_told(job, ran))
            told.run_finished(job.variant, job.seed, ran, at + 1, len(jobs), clock.left(at + 1))
            results = {
                "kind": "Study",
                "format": FORMAT,
                "cdp": __version__,
                "study": study.name,
                "command": command,
                "recipe": _with_relative_paths(recipe),
                "seeds": sorted({one.seed for one, _ in measured}),
                "versions": versions(),
                "commit": made_at,
                "cores": os.cpu_count() or 1,
                "started": started.isoformat(timespec="seconds"),
                # A stage that several runs share took its time once.
                "seconds": sum(times.values()),
                "runs_done": at + 1,
                "runs": len(jobs),
                **results_of(
                    study, recipe, [(one.variant.slug, one.seed, rows) for one, rows in measured], extra
                ),
                "variants": _variants(jobs),
                "made": runs,
            }
            write_json(folder / "results.json", results)
        write_pages(folder, results)
    return results


def _with_relative_paths(recipe: RunRecipe) -> dict[str, Any]:
    """The recipe with paths from the working directory: results travel, somebody's folders do not."""
    told = recipe.as_dict()
    for key in PATH_KEYS:
        if told["data"][key]:
            told["data"][key] = Path(os.path.relpath(told["data"][key])).as_posix()
    told["data"]["unlabeled"] = [Path(os.path.relpath(path)).as_posix() for path in told["data"]["unlabeled"]]
    return told


def _variants(jobs: Sequence[Job]) -> list[dict[str, Any]]:
    return [
        {"slug": slug, "overrides": dict(overrides)}
        for slug, overrides in {job.variant.slug: job.variant.overrides for job in jobs}.items()
    ]


def _told(job: Job, ran: Sequence[Ran]) -> dict[str, Any]:
    def about(record: Record) -> Mapping[str, Any]:
        return {"seconds": record.seconds, "peak_memory": record.peak_memory, "key": record.key}

    return {
        "variant": job.variant.slug,
        "seed": job.seed,
        "stages": [{"name": one.stage.name, "group": one.stage.group, **about(one.record)} for one in ran],
    }


def _refuse_strangers(folder: Path) -> None:
    held = [entry.name for entry in folder.iterdir() if not entry.name.startswith(".")]
    if held and not (folder / "runs").is_dir():
        raise InputError(
            f"{folder} holds other things ({', '.join(sorted(held)[:3])}); give --out a new folder, or one of an "
            "earlier cdp study."
        )
