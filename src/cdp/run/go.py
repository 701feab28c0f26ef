"""A recipe from images to the report: the one function behind `cdp run`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cdp.config.checks import check_recipe
from cdp.config.environment import check_networks, check_paths, embedding_files
from cdp.config.sections import RunRecipe
from cdp.config.writing import write_recipe
from cdp.errors import InputError
from cdp.files import refuse_link, write_text
from cdp.report.write import write_report
from cdp.run.parts import read_sources, source_names
from cdp.run.plan import make_stages
from cdp.run.pool import Pool
from cdp.run.record import make_record, now, write_record
from cdp.run.runner import Listener, NullListener, Planned, Ran, alone_in, plan_stages, run_stages
from cdp.run.stages import Ledger, Stage, only


@dataclass(frozen=True)
class Outcome:
    """What a run made.

    Attributes:
        folder: everything lies here.
        report: the page.
        record: what `run.json` holds.
    """

    folder: Path
    report: Path
    record: dict[str, Any]


def run_recipe(
    recipe: RunRecipe, out: str | Path, *, command: str = "", listener: Listener | None = None
) -> Outcome:
    """Run every stage that is not fresh, then write `run.json` and the report.

    Args:
        recipe: what to do.
        out: the run's folder; a run that was killed goes on in it.
        command: as typed, for the record.
        listener: told how it goes.

    Raises:
        BusyError: another run is at work in the folder.
        InputError: the recipe or the images do not fit.
        StoreError: the disk is full; the same call goes on later.
    """
    check_recipe(recipe)
    _require_images(recipe)
    check_paths(recipe)
    check_networks(recipe)
    folder = Path(out).absolute()
    started = now()
    _refuse_strangers(folder)
    with alone_in(folder):
        ledger = Ledger(folder)
        ledger.open()
        write_text(folder / "recipe.toml", write_recipe(recipe))
        stages = make_stages(recipe, folder)
        ran = run_stages(stages, ledger, listener or NullListener(), hash_sources(recipe, ledger))
        record = make_record(recipe, folder, ran, started, command)
        write_record(folder, record)
        report = write_report(folder)
    return Outcome(folder, report, record)


def run_part(
    recipe: RunRecipe,
    out: str | Path,
    artifacts: Iterable[str],
    *,
    stages: Callable[[RunRecipe, Path], list[Stage]] = make_stages,
    pool: Pool | None = None,
    listener: Listener | None = None,
) -> list[Ran]:
    """Run only what some artifacts need; no `run.json`, no report. `cdp run` in the same folder keeps it all.

    Args:
        recipe: what to do.
        out: the run's folder.
        artifacts: names as in `cdp.run.plan`, e.g. `label figures` or `recognition`.
        stages: all stages of a recipe in a folder; those of `cdp run` unless others are given.
        pool: what other runs have made, to take from and to give to.
        listener: told how it goes.
    """
    check_recipe(recipe)
    folder = Path(out).absolute()
    _refuse_strangers(folder)
    with alone_in(folder):
        ledger = Ledger(folder)
        ledger.open()
        chosen = only(stages(recipe, folder), artifacts)
        return run_stages(
            chosen, ledger, listener or NullListener(), sources_for(chosen, recipe, ledger), pool
        )


def sources_for(stages: Sequence[Stage], recipe: RunRecipe, ledger: Ledger) -> dict[str, str]:
    """Hashes of the user's images if these stages read them; else nothing is read."""
    made = {name for stage in stages for name in stage.makes}
    is_read = any(set(stage.needs) - made for stage in stages)
    return hash_sources(recipe, ledger) if is_read else {}


def plan_recipe(recipe: RunRecipe, out: str | Path) -> list[Planned]:
    """What a run would do, and why; nothing is written."""
    check_recipe(recipe)
    _require_images(recipe)
    check_paths(recipe)
    ledger = Ledger(Path(out).absolute())
    return plan_stages(make_stages(recipe, ledger.folder), ledger, hash_sources(recipe, ledger))


def _require_images(recipe: RunRecipe) -> None:
    if recipe.data.embeddings:
        raise InputError(
            "data.embeddings: a run trains networks, which needs images; label embeddings with `cdp label`, or compare "
            "ways to label them with `cdp study`."
        )


def clear(out: str | Path) -> None:
    """Throw away an earlier run; a folder that holds other things is left alone."""
    import shutil

    folder = Path(out).absolute()
    if folder.is_dir():
        refuse_link(folder)
        _refuse_strangers(folder)
        with alone_in(folder):
            shutil.rmtree(folder)


def hash_sources(recipe: RunRecipe, ledger: Ledger) -> dict[str, str]:
    """What the user's images hold, by source; drawn faces are made by a stage of their own."""
    if recipe.data.is_drawn:
        return {}
    sources = read_sources(recipe, ledger.folder)
    told = {name: ledger.hashes.of_manifest(sources[name]) for name in source_names(recipe)}
    if recipe.data.embeddings:
        for name, file in embedding_files(recipe).items():
            told[f"embeddings {name}"] = ledger.hashes.of_file(file)
    return told


def _refuse_strangers(folder: Path) -> None:
    """A folder that holds other things is not to be filled, let alone cleared."""
    if not folder.is_dir():
        return
    held = [entry.name for entry in folder.iterdir() if not entry.name.startswith(".")]
    if held and not (folder / "stages").is_dir():
        raise InputError(
            f"{folder} holds other things ({', '.join(sorted(held)[:3])}); give --out a new folder, or one of "
            "an earlier cdp run."
        )
