"""`cdp report`: the page of a run, drawn again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from cdp.cli.app import QuietOption, app, plain_errors


@app.command()
@plain_errors()
def report(
    run_folder: Annotated[Path, Argument(help="The folder that `cdp run --out` wrote.")],
    out: Annotated[Path | None, Option(help="The page to write [default: RUN_FOLDER/report.html].")] = None,
    force: Annotated[bool, Option("--force", help="Replace the file at --out if it is there.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Write the report of a run again: one HTML page, with everything inside it."""
    from cdp.report.write import write_report

    page = write_report(run_folder, out, force=force)
    if not quiet:
        typer.echo(f"{page}: {page.stat().st_size / 1e6:.1f} MB; open it in a browser.")
