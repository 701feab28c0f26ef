"""A recipe from images or embeddings to the report: the one function behind `cdp run`."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from cdp.collection.collection import Collection
from cdp.collection.collection_folder import ENTRIES
from cdp.collection.outputs import REPORT
from cdp.config.checks import frozen_file, member_names
from cdp.config.sections import RunRecipe
from cdp.config.writing import write_recipe
from cdp.errors import InputError
from cdp.run.forecast import TimedForecast
from cdp.run.plan import make_stages
from cdp.run.pool import Pool
from cdp.run.record import make_record, now
from cdp.run.run_collection import publish_collection
from cdp.run.runner import Listener, Planned, Ran, alone_in, plan_stages, run_stages
from cdp.run.sources import (
    START,
    TEMPLATE_IMAGES,
    ResolvedRecipe,
    embedding_bytes,
    model_source,
    prepare,
    source_names,
    source_paths,
)
from cdp.run.stages import Ledger, Stage, only
from cdp.storage.artifacts import write_run_record
from cdp.storage.files import (
    LEAST_ROOM,
    check_writable,
    disk_errors,
    refuse_link,
    remove_folder,
    write_text,
)
from cdp.storage.hashes import hash_values
from cdp.types.run_record import RunRecord

RUN = "run"
"""The folder in a collection's folder that the stages of a run work in."""


_MARKS = ("stages", "run.json", "recipe.toml", "drawn")
"""What says that such a folder is a run's."""


@dataclass(frozen=True)
class Outcome:
    """What a run made.

    Attributes:
        record: what `run.json` holds.
    """

    folder: Path
    report: Path
    record: RunRecord
    collection: Collection


def run_recipe(
    recipe: RunRecipe, out: str | Path, *, command: str = "", listener: Listener | None = None
) -> Outcome:
    """Run every stage that is not fresh, then write `run.json`, the collection and its report.

    Args:
        out: folder of the collection; the stages work in `run/` of it, and a run that was killed goes on
            there.

    Raises:
        BusyError: another run is at work in the folder.
        StoreError: the disk is full; the same call goes on later.
    """
    listener = listener or Listener()
    root = Path(out).absolute()
    folder = run_folder(root)
    started = now()
    refuse_other_folder(root, RUN, "cdp run")
    resolved = prepare(recipe, _memory(folder), listener.progress)
    check_writable(root, max(LEAST_ROOM, embedding_bytes(resolved)), "the embeddings")
    for sentence in resolved.said:
        listener.note(sentence)
    with alone_in(folder):
        ledger = Ledger(folder)
        ledger.open()
        if resolved.facts.scan is not None:
            resolved.facts.scan.save(_memory(folder), folder)
        _refuse_inputs_among(make_stages(resolved), resolved.recipe, folder)
        write_text(folder / "recipe.toml", write_recipe(resolved.recipe))
        resolved, ran = _run_stages(resolved, ledger, listener)
        record = make_record(resolved, folder, ran, started, command)
        write_run_record(folder / "run.json", record)
        labels = next(one.stage.settings for one in ran if "labels" in one.stage.makes)
        collection, record = publish_collection(root, folder, labels, record, ledger.hashes)
    return Outcome(root, root / REPORT, record, collection)


def _run_stages(
    resolved: ResolvedRecipe, ledger: Ledger, listener: Listener
) -> tuple[ResolvedRecipe, list[Ran]]:
    """Run all stages, or those up to labels that must not be trained on, with a note."""
    recipe = resolved.recipe
    sources = hash_sources(resolved, ledger)

    def run(stages: Sequence[Stage]) -> list[Ran]:
        forecast = TimedForecast(stages, recipe.engine)
        return run_stages(
            stages,
            ledger,
            listener,
            sources,
            recipe.engine,
            given=resolved.sources,
            forecast=forecast,
            may_stop=True,
        )

    stages = make_stages(resolved)
    ran = run(stages)
    if len(ran) == len(stages):
        return resolved, ran
    why = stages[len(ran)].refuse(ledger.folder)
    n_rounds = sum(one.stage.group == "label" for one in ran)
    if n_rounds < recipe.joint.rounds:
        # Labels of a round between have no scored pairs; the same labels are made once more, as the last
        # ones.
        shorter = replace(recipe, joint=replace(recipe.joint, rounds=n_rounds))
        ran = run(only(make_stages(replace(resolved, recipe=shorter)), ["labels"]))
    return replace(resolved, notes=(*resolved.notes, why)), ran


def _memory(folder: Path) -> Path:
    """Return where a run remembers what was seen of its images."""
    return folder / "stages" / "images.json"


def run_folder(root: Path) -> Path:
    """Return where the stages of a run work."""
    return root / RUN


def run_part(
    resolved: ResolvedRecipe,
    out: str | Path,
    artifacts: Iterable[str],
    *,
    stages: Callable[[ResolvedRecipe], list[Stage]] = make_stages,
    pool: Pool | None = None,
    listener: Listener | None = None,
) -> list[Ran]:
    """Run only what some artifacts need; no `run.json`, no report. `cdp run` in the same folder keeps it all.

    Args:
        artifacts: names as in `cdp.run.plan`, e.g. `labels` or `recognition`.
        stages: all stages of a recipe; those of `cdp run` unless others are given.
        pool: what other runs have made, to take from and to give to.
    """
    folder = Path(out).absolute()
    refuse_other_folder(folder, "stages", "cdp run")
    with alone_in(folder):
        ledger = Ledger(folder)
        ledger.open()
        wanted = only(stages(resolved), artifacts)
        _refuse_inputs_among(wanted, resolved.recipe, folder)
        sources = sources_for(wanted, resolved, ledger)
        return run_stages(
            wanted, ledger, listener or Listener(), sources, resolved.recipe.engine, pool, resolved.sources
        )


def _refuse_inputs_among(stages: Sequence[Stage], recipe: RunRecipe, folder: Path) -> None:
    """Refuse inputs inside a stage's folder, which the stage clears."""
    for name in source_names(recipe):
        for given in source_paths(recipe, name):
            for path in (path for stage in stages for path in stage.makes.values()):
                if Path(os.path.realpath(given)).is_relative_to(os.path.realpath(folder / path)):
                    raise InputError(
                        f"{given} is written by this run ({folder / path}); choose another --out.",
                        code="input-inside-output",
                        file=given,
                    )


def sources_for(stages: Sequence[Stage], resolved: ResolvedRecipe, ledger: Ledger) -> dict[str, str]:
    """Hashes of the user's images if these stages read them; else nothing is read."""
    made = {name for stage in stages for name in stage.makes}
    is_read = any(set(stage.needs) - made for stage in stages)
    return hash_sources(resolved, ledger) if is_read else {}


def plan_recipe(recipe: RunRecipe, out: str | Path) -> list[Planned]:
    """Return what a run would do, and why; nothing is written."""
    folder = run_folder(Path(out).absolute())
    resolved = prepare(recipe, _memory(folder))
    ledger = Ledger(folder)
    return plan_stages(make_stages(resolved), ledger, hash_sources(resolved, ledger))


def clear(out: str | Path) -> None:
    """Throw away an earlier run with its collection; a folder that holds other things is left alone."""
    folder = Path(out).absolute()
    if folder.is_dir():
        refuse_link(folder, out)
        refuse_other_folder(folder, RUN, "cdp run")
        with alone_in(run_folder(folder)):
            remove_folder(folder)


def hash_sources(resolved: ResolvedRecipe, ledger: Ledger) -> dict[str, str]:
    """Return what the user's images or embeddings hold, by source."""
    recipe = resolved.recipe
    if resolved.facts.kind == "images":
        hashes = {
            name: ledger.hashes.of_manifest(resolved.sources.manifest(name)) for name in source_names(recipe)
        }
        if recipe.data.templates:
            protocol = ledger.hashes.of_path(Path(recipe.data.templates), ())
            hashes[TEMPLATE_IMAGES] = hash_values(hashes[TEMPLATE_IMAGES], protocol)
        return hashes | _hash_models(recipe, ledger)
    return {
        # Cards and lists count here: they may hold the order of the committee, or identities.
        name: hash_values([ledger.hashes.of_path(Path(path), ()) for path in source_paths(recipe, name)])
        for name in source_names(recipe)
    }


def _hash_models(recipe: RunRecipe, ledger: Ledger) -> dict[str, str]:
    """Contents of models that are used as they are, with their cards, and of the initial weights."""
    files = {
        network: Path(file) for network in member_names(recipe) if (file := frozen_file(network)) is not None
    }
    weights = Path(recipe.base.weights)
    start = {START: ledger.hashes.of_path(weights) or recipe.base.weights} if recipe.base.weights else {}
    return start | {
        model_source(network): hash_values(
            [ledger.hashes.of_file(one) for one in (file, file.with_suffix(".toml")) if one.is_file()]
        )
        for network, file in files.items()
    }


def refuse_other_folder(folder: Path, mark: str, command: str) -> None:
    """Refuse a folder with other contents that lacks its marker, before filling or clearing it.

    Args:
        folder: that is to be filled.
        mark: a folder in it; `run` marks a collection that a run made, which holds nothing that collections
            do not.
        command: that makes such folders, for the message.
    """
    check_writable(folder)
    with disk_errors(folder):
        if not folder.is_dir():
            return
        found = _visible(folder)
    is_ours = (folder / mark).is_dir()
    if mark == RUN:
        # A command that was killed at once has left an empty folder of this name.
        is_run = any((folder / RUN / name).exists() for name in _MARKS)
        is_ours = found <= ENTRIES and (is_run or (is_ours and not _visible(folder / RUN)))
    if found and not is_ours:
        named = sorted(found - ENTRIES) or sorted(found)
        raise InputError(
            f"{folder} holds other files ({', '.join(named[:3])}); give --out a new folder, or one of an "
            f"earlier {command}.",
            code="output-holds-other-things",
            folder=folder,
        )


def _visible(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir() if not entry.name.startswith(".")}
