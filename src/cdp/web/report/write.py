"""At the edge: a record and artifacts in, a page out."""

from __future__ import annotations

from pathlib import Path

from cdp.files import check_output, write_text
from cdp.store import read_run_record
from cdp.types.run_record import RunRecord
from cdp.web.report.artifacts import Artifacts, read_run_artifacts
from cdp.web.report.page import build_page


def write_report(folder: Path, out: Path | None = None, *, force: bool = False) -> Path:
    """Write the report of a run and say where.

    Args:
        folder: what `cdp run --out` wrote.
        out: the page; `report.html` in the folder unless given, which is made anew if it is there.

    Raises:
        OutputExistsError: `out` is there already, is not the folder's own report, and `force` is not given or may not
            replace it.
        StoreError: something is damaged, or the page cannot be written.
    """
    own = folder / "report.html"
    target = own if out is None else out
    if target.resolve() != own.resolve():
        check_output(target, force=force, inputs=[folder])
    write_page(read_run_record(folder / "run.json"), read_run_artifacts(folder), target)
    return target


def write_page(record: RunRecord, artifacts: Artifacts, file: Path, title: str = "") -> None:
    """Write the report, whole or not at all; a page that is there is replaced."""
    write_text(file, build_page(record, artifacts, title))
