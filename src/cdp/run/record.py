"""`run.json`: settings, versions, seeds, times, memory, hashes and results of a run."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from cdp import __version__
from cdp.config.writing import differences, write_recipe
from cdp.run.runner import Ran
from cdp.run.sources import ResolvedRecipe
from cdp.run.stages import Stage
from cdp.runtime.devices import find_accelerator
from cdp.storage.artifacts import read_facts, read_json
from cdp.types.run_record import Committee, Headline, PartRecord, Results, RunRecord, StageRecord

_LIBRARIES = ("numpy", "scipy", "numba", "scikit-learn", "pillow", "torch", "timm")


def make_record(
    resolved: ResolvedRecipe, folder: Path, ran: Sequence[Ran], started: datetime, command: str
) -> RunRecord:
    """Return all that is known about a finished run."""
    recipe = resolved.recipe
    parts: dict[str, PartRecord] = read_json(folder / "parts" / "counts.json", dict[str, PartRecord])
    notes = [*resolved.notes, *read_facts(folder / "labels").notes]
    if "probes" in parts and parts["probes"].identities == 1:
        notes.append(
            "There is one probe identity only, so verification was not measured; give more of them, e.g. "
            "split.probes a larger share."
        )
    return RunRecord(
        cdp=__version__,
        command=command,
        recipe=recipe.as_dict(),
        recipe_text=write_recipe(recipe, commented=False),
        differences={one.key: _plain(one.value) for one in differences(recipe)},
        versions=versions(),
        commit=commit(),
        cores=os.cpu_count() or 1,
        device=device_name(recipe.engine.device),
        seed=recipe.seed,
        started=started.isoformat(timespec="seconds"),
        seconds=sum(one.record.seconds for one in ran),
        parts=parts,
        stages=[
            StageRecord(
                name=one.stage.name,
                group=one.stage.group,
                seconds=one.record.seconds,
                peak_memory=one.record.peak_memory,
                fresh=one.fresh,
                key=one.record.key,
                made=dict(one.record.makes),
                steps=dict(one.record.steps),
            )
            for one in ran
        ],
        results=collect_results(folder, [one.stage for one in ran]),
        notes=notes,
    )


def _plain(value: Any) -> Any:
    """Convert to what JSON would give back."""
    return list(value) if isinstance(value, tuple) else value


def collect_results(folder: Path, stages: Sequence[Stage]) -> Results:
    """Collect all figures of a run: labels, earlier rounds, recognition, and single models.

    Only what these stages made is read: an earlier run with other settings may have left more.
    """
    made = {name: path for stage in stages for name, path in stage.makes.items()}
    results: Results = read_json(folder / made["labels"] / "metrics.json", Results)
    earlier = [
        read_json(folder / path / "metrics.json", Results).labels
        for name, path in made.items()
        if name.endswith(" labels")
    ]
    headline, tested = (
        read_json(folder / made[name], kind) if name in made else None
        for name, kind in (("recognition", Headline), ("member figures", Committee))
    )
    committee = _merge_members(results.committee, tested)
    return replace(results, headline=headline, earlier_rounds=earlier, committee=committee)


def _merge_members(graphs: Committee | None, tested: Committee | None) -> Committee | None:
    """Return every model with what its graph shows, and what it recognizes where that was measured."""
    if graphs is None or tested is None:
        return graphs
    found = {member.name: member for member in tested.members}
    members = [
        replace(found.get(member.name, member), role=member.role, edge_precision=member.edge_precision)
        for member in graphs.members
    ]
    return replace(graphs, members=members, ensemble=tested.ensemble)


def device_name(device: str) -> str:
    """Return what a run computes on, by name."""
    accelerator = find_accelerator(device)
    return "cpu" if accelerator is None else str(accelerator)


def versions() -> dict[str, str]:
    """Return the versions of Python and of the libraries that results depend on."""
    found = {"python": platform.python_version()}
    for name in _LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            found[name] = metadata.version(name)
    return found


def commit() -> str | None:
    """Return the commit of this checkout, with `+` if files changed; None outside of one."""
    source = Path(__file__).parent
    # The package must be where the repository has it, not merely somewhere inside a user's own repository.
    if not (source.parents[2] / ".git").exists():
        return None
    answers = []
    for words in ("rev-parse --short=12 HEAD", "status --porcelain --untracked-files=no src"):
        command = ["git", "-C", str(source.parents[2]), *words.split()]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
        except (OSError, subprocess.SubprocessError):
            return None
        answers.append(done.stdout.strip())
    return answers[0] + ("+" if answers[1] else "")


def now() -> datetime:
    """Return the time, with its zone."""
    return datetime.now(UTC)
