"""Variants times seeds: every run in its own folder, what they share made once, results after each."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from cdp import __version__
from cdp.config.checks import check_recipe, trained_members
from cdp.config.environment import check_environment, source_kind
from cdp.config.reading import PATH_KEYS, recipe_from
from cdp.config.sections import RunRecipe
from cdp.data.views import looks_like_views
from cdp.errors import InputError
from cdp.run.pool import Pool
from cdp.run.record import commit, now, versions
from cdp.run.run_recipe import refuse_other_folder, run_part, sources_for
from cdp.run.runner import Listener, Ran, alone_in, plan_stages
from cdp.run.sources import Facts, ResolvedRecipe, look_at, resolve, resolve_shares
from cdp.run.stages import Ledger, Stage, only, signatures
from cdp.scoring.settings import DEFAULT_THRESHOLDS
from cdp.storage.files import write_json
from cdp_lab.study.design import Finished, Measure, Options, Study, Variant
from cdp_lab.study.result_tables import results_of
from cdp_lab.study.study_page import write_pages

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


class StudyListener(Listener):
    """Called as a study goes on, and as the stages of its runs do; does nothing unless a subclass does."""

    def run_started(self, variant: Variant, seed: int, at: int, n_runs: int, left: Left) -> None:
        """Note that a run begins."""

    def run_finished(
        self, variant: Variant, seed: int, ran: Sequence[Ran], at: int, n_runs: int, left: Left
    ) -> None:
        """Note that a run is done."""


@dataclass(frozen=True)
class Job:
    """One variant with one seed."""

    variant: Variant
    seed: int
    resolved: ResolvedRecipe
    folder: Path

    def stages(self) -> list[Stage]:
        """Return those that its figures need."""
        return only(self.variant.stages(self.resolved), self.variant.wanted)

    def signatures(self) -> list[str]:
        """Of its stages; the same in two jobs = made once."""
        data = self.resolved.recipe.as_dict()["data"]
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
    """Return every variant with every seed, all variants of the first seed first."""
    if n_seeds < 1:
        raise InputError(
            f"--seeds {n_seeds}: one seed or more is needed.",
            code="study-seeds-too-few",
            option="--seeds",
            value=n_seeds,
        )
    check_recipe(recipe)
    check_environment(recipe)
    # Variants that tune and variants that do not are compared on one split.
    recipe = resolve_shares(recipe, source_kind(recipe) == "images" and bool(trained_members(recipe)))
    known = {one.slug: one for one in study.variants(recipe, options or Options())}
    for slug in variants or ():
        if slug not in known:
            raise InputError(
                f"{study.name} has no variant {slug}; it has {', '.join(known)}.",
                code="study-variant-unknown",
                study=study.name,
                variant=slug,
            )
    jobs: list[Job] = []
    facts: dict[Any, Facts] = {}
    for seed in range(recipe.seed, recipe.seed + n_seeds):
        for slug in variants or known:
            overrides = _with_own_threshold(recipe, known[slug].overrides)
            varied = recipe_from(recipe.as_dict(), {**overrides, "seed": seed})
            named = (varied.data, varied.base, varied.committee)
            check_recipe(varied)
            if named not in facts:
                check_environment(varied)
                facts[named] = look_at(varied)
            folder = out.absolute() / "runs" / slug / f"seed{seed}"
            jobs.append(Job(known[slug], seed, resolve(varied, facts[named]), folder))
            _require_images(study, jobs[-1])
    return jobs


def _with_own_threshold(recipe: RunRecipe, overrides: Mapping[str, Any]) -> Mapping[str, Any]:
    """Drop the recipe's threshold for variants that compare it with something else."""
    given = {name: overrides.get(f"consensus.{name}") for name in ("mediator", "grouping")}
    changed = {name: value for name, value in given.items() if value is not None}
    kind = replace(recipe.consensus, threshold=None, **changed).threshold_kind
    is_same = kind == recipe.consensus.threshold_kind
    if recipe.consensus.threshold is None or "consensus.threshold" in overrides or is_same:
        return overrides
    return {**overrides, "consensus.threshold": DEFAULT_THRESHOLDS.get(kind)}


def _require_images(study: Study, job: Job) -> None:
    """Refuse a study whose variants need networks to be trained, or named, where there are embeddings."""
    if job.resolved.facts.kind == "images":
        return
    data, overrides = job.resolved.recipe.data, job.variant.overrides
    made = {name for stage in job.variant.stages(job.resolved) for name in stage.makes}
    if not made >= set(job.variant.wanted):
        raise InputError(
            f"{study.name} trains networks and needs images; set data.images, or choose a study of "
            "labels, e.g. k or mediator_inputs.",
            code="study-needs-images",
            study=study.name,
        )
    if "committee.networks" in overrides and looks_like_views(data.embeddings or data.labeled):
        raise InputError(
            f"{study.name} varies committee.networks, but views have a fixed committee; set "
            "data.embeddings to a folder with identities.npy and one .npy per network.",
            code="study-needs-networks",
            study=study.name,
        )


def plan_study(jobs: Sequence[Job]) -> list[PlannedRun]:
    """Return what a study would do; nothing is written."""
    seen: set[str] = set()
    plan = []
    for job in jobs:
        kept, shared, runs = 0, 0, []
        ledger = Ledger(job.folder)
        stages = job.stages()
        planned = plan_stages(stages, ledger, sources_for(stages, job.resolved, ledger))
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
        """Note that a run is done."""
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

    A study that was killed goes on in the same folder: a finished stage is never made twice, by whichever
    variant.

    Args:
        recipe: what all variants start from.
        pool: folder of finished stages; studies of one recipe that are given the same one train its networks
            once. `pool` in the study's folder unless given.

    Returns:
        what `results.json` holds.
    """
    folder = Path(out).absolute()
    listener = listener or StudyListener()
    gathered = _Results(study, recipe, jobs, command)
    clock = _Clock(jobs)
    with alone_in(folder):
        refuse_other_folder(folder, "runs", "cdp-lab study")
        (folder / "runs").mkdir(exist_ok=True)
        shared = Pool(folder / "pool" if pool is None else Path(pool).absolute())
        shared.folder.mkdir(parents=True, exist_ok=True)
        shared.sweep()
        results: dict[str, Any] = {}
        for at, job in enumerate(jobs):
            variant = job.variant
            listener.run_started(variant, job.seed, at + 1, len(jobs), clock.left(at))
            ran = run_part(
                job.resolved,
                job.folder,
                variant.wanted,
                stages=variant.stages,
                pool=shared,
                listener=listener,
            )
            clock.note(job, ran)
            results = gathered.add(job, ran)
            listener.run_finished(variant, job.seed, ran, at + 1, len(jobs), clock.left(at + 1))
            write_json(folder / "results.json", results)
        write_pages(folder, results)
    return results


class _Results:
    """What `results.json` holds, as it grows with every run."""

    def __init__(self, study: Study, recipe: RunRecipe, jobs: Sequence[Job], command: str) -> None:
        self.study, self.recipe = study, recipe
        self.measured: list[tuple[str, int, list[Measure]]] = []
        self.extra: dict[str, Any] = {}
        self.runs: list[dict[str, Any]] = []
        self.times: dict[str, float] = {}
        self.about = {
            "kind": "Study",
            "format": FORMAT,
            "cdp": __version__,
            "study": study.name,
            "command": command,
            "recipe": _with_relative_paths(recipe),
            "versions": versions(),
            "commit": commit(),
            "cores": os.cpu_count() or 1,
            "started": now().isoformat(timespec="seconds"),
            "runs": len(jobs),
            "variants": [
                {"slug": slug, "overrides": dict(overrides)}
                for slug, overrides in {job.variant.slug: job.variant.overrides for job in jobs}.items()
            ],
        }

    def add(self, job: Job, ran: Sequence[Ran]) -> dict[str, Any]:
        """Everything so far, with a run that is done."""
        variant, finished = job.variant, Finished(job.folder, job.resolved.recipe, ran)
        self.measured.append((variant.slug, job.seed, variant.read(finished)))
        if variant.extra is not None and variant.slug not in self.extra:
            self.extra[variant.slug] = variant.extra(finished)
        self.runs.append(_about_run(job, ran))
        # A stage that several runs share took its time once.
        self.times |= {one.record.key: one.record.seconds for one in ran}
        return {
            **self.about,
            "seeds": sorted({seed for _, seed, _ in self.measured}),
            "seconds": sum(self.times.values()),
            "runs_done": len(self.runs),
            **results_of(self.study, self.recipe, self.measured, self.extra),
            "made": self.runs,
        }


def _with_relative_paths(recipe: RunRecipe) -> dict[str, Any]:
    """Return the recipe with paths from the working directory: results travel, folders do not."""
    values = recipe.as_dict()
    data = values["data"]
    for key in PATH_KEYS:
        data[key] = data[key] and _relative(data[key])
    data["unlabeled"] = [_relative(path) for path in data["unlabeled"]]
    return values


def _relative(path: str) -> str:
    return Path(os.path.relpath(path)).as_posix()


def _about_run(job: Job, ran: Sequence[Ran]) -> dict[str, Any]:
    stages = [
        {
            "name": one.stage.name,
            "group": one.stage.group,
            "seconds": one.record.seconds,
            "peak_memory": one.record.peak_memory,
            "key": one.record.key,
        }
        for one in ran
    ]
    return {"variant": job.variant.slug, "seed": job.seed, "stages": stages}
