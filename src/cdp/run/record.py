"""`run.json`: settings, versions, seeds, times, memory, hashes and results of a run."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from cdp import __version__
from cdp.config.sections import RunRecipe
from cdp.config.writing import write_recipe
from cdp.files import write_json
from cdp.run.evaluation import read_results
from cdp.run.runner import Ran

_TOLD = ("numpy", "scipy", "numba", "scikit-learn", "pynndescent", "pillow", "torch", "timm")


def make_record(
    recipe: RunRecipe, folder: Path, ran: Sequence[Ran], started: datetime, command: str
) -> dict[str, Any]:
    """All that is known about a finished run, as plain values."""
    return {
        "kind": "Run",
        "format": 1,
        "cdp": __version__,
        "command": command,
        "recipe": recipe.as_dict(),
        "recipe_text": write_recipe(recipe, commented=False),
        "versions": versions(),
        "commit": commit(),
        "cores": os.cpu_count() or 1,
        "seed": recipe.seed,
        "started": started.isoformat(timespec="seconds"),
        "seconds": sum(one.record.seconds for one in ran),
        "parts": json.loads((folder / "parts" / "counts.json").read_text(encoding="utf-8")),
        "stages": [
            {
                "name": one.stage.name,
                "group": one.stage.group,
                "seconds": one.record.seconds,
                "peak_memory": one.record.peak_memory,
                "fresh": one.fresh,
                "key": one.record.key,
                "made": dict(one.record.makes),
            }
            for one in ran
        ],
        "results": read_results(folder, recipe.consensus.rounds),
    }


def write_record(folder: Path, record: dict[str, Any]) -> None:
    """Write `run.json`, whole or not at all."""
    write_json(folder / "run.json", record)


def versions() -> dict[str, str]:
    """Of Python and of the libraries that results rest on."""
    told = {"python": platform.python_version()}
    for name in _TOLD:
        try:
            told[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return told


def commit() -> str | None:
    """The commit this code is at, `+` behind it if files were changed since; None if it is not a checkout of cdp."""
    source = Path(__file__).parent
    # The package must lie where the repository has it, not merely somewhere inside a user's own repository.
    if not (source.parents[2] / ".git").exists():
        return None
    told = []
    for words in (
        ["rev-parse", "--short=12", "HEAD"],
        ["status", "--porcelain", "--untracked-files=no", "src"],
    ):
        try:
            done = subprocess.run(
                ["git", "-C", str(source.parents[2]), *words], capture_output=True, text=True, timeout=10
            )
        except (OSError, subprocess.SubprocessError):
            return None
        if done.returncode:
            return None
        told.append(done.stdout.strip())
    return told[0] + ("+" if told[1] else "")


def now() -> datetime:
    """The time, with its zone."""
    return datetime.now(UTC)
