"""`cdp report`: options here, work elsewhere, nothing heavy imported."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cdp.cli.app import QuietOption, app, plain_errors


@app.command()
def report(
    run_folder: Annotated[Path, typer.Argument(help="The folder that `cdp run --out` wrote.")],
    out: Annotated[
        Path | None, typer.Option("--out", help="The page to write [default: RUN_FOLDER/report.html].")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file at --out if it is there.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Draw the report of a run anew: one HTML page, with everything inside it."""
    with plain_errors():
        from cdp.report.write import write_report

        page = write_report(run_folder, out, force=force)
        if not quiet:
            typer.echo(f"{page}: {page.stat().st_size / 1e6:.1f} MB; open it in a browser.")
