"""At the edge: a record and artifacts in, a page out."""

from __future__ import annotations

from pathlib import Path

from cdp.storage.files import write_text
from cdp.types.run_record import RunRecord
from cdp.web.report.page import build_page
from cdp.web.report.report_inputs import Artifacts


def write_page(record: RunRecord, artifacts: Artifacts, file: Path, title: str = "") -> None:
    """Write the report, whole or not at all; a page that is there is replaced."""
    write_text(file, build_page(record, artifacts, title))
