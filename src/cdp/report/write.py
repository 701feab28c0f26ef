"""At the edge: a record and artifacts in, a page out."""

from __future__ import annotations

from pathlib import Path

from cdp.errors import OutputExistsError
from cdp.files import write_text
from cdp.report.artifacts import Artifacts, read_run_artifacts
from cdp.report.page import build_page
from cdp.types.run_record import RunRecord, read_run_record


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
    write_page(read_run_record(folder / "run.json"), read_run_artifacts(folder), target)
    return target


def write_page(record: RunRecord, artifacts: Artifacts, file: Path) -> None:
    """Write the report, whole or not at all; a page that is there is replaced."""
    write_text(file, build_page(record, artifacts))
