"""At the edge: a run folder in, a page out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cdp.errors import OutputExistsError
from cdp.files import write_text
from cdp.report.artifacts import accepted_only, read_artifacts, read_run
from cdp.report.page import build_page


def write_report(folder: Path, out: Path | None = None, *, force: bool = False) -> Path:
    """Write the report of a run and say where.

    Args:
        folder: what `cdp run --out` wrote.
        out: the page; `report.html` in the folder unless given, which is made anew if it is there.
        force: replace another file at `out`.

    Raises:
        InputError: the folder is not that of a run, or its parts do not belong together.
        OutputExistsError: `out` is there already and is not the folder's own report.
        StoreError: something is damaged, or the page cannot be written.
    """
    own = folder / "report.html"
    target = own if out is None else out
    if target.exists() and not force and target.resolve() != own.resolve():
        raise OutputExistsError(f"{target} is there already; choose another name or replace it with --force.")
    run = read_run(folder)
    page = build_page(run, accepted_only(run, read_artifacts(folder, _base(run))))
    write_text(target, page)
    return target


def _base(run: Mapping[str, Any]) -> str | None:
    """The name of the base network's folder."""
    told = ((run.get("results") or {}).get("headline") or {}).get("network")
    return None if told is None else str(told)
