"""`cdp review`: look at groups in the browser, and correct them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from cdp.cli.app import app, plain_errors
from cdp.errors import InputError


@app.command()
@plain_errors()
def review(
    collection: Annotated[Path, Argument(help="The folder of a collection.")],
    port: Annotated[int, Option(help="Port on this machine; 0 = any that is free.", min=0, max=65535)] = 0,
    browser: Annotated[bool, Option(help="Open the page in the browser.")] = True,
    report: Annotated[
        Path | None, Option(help="A report to link to [default: report.html in or beside the collection].")
    ] = None,
    quiet: Annotated[bool, Option("--quiet", help="Print nothing but the address.")] = False,
) -> None:
    """Review groups on a page in the browser: merge, split, move, name, reject, undo.

    The page is served to this machine only. Every answer is on disk before the page says so; stop with Ctrl-C.
    """
    from cdp.cli.signals import Stopped
    from cdp.web.review.server import serve

    if report is not None and not report.is_file():
        raise InputError(f"--report {report}: no such file; cdp report writes one.")

    def started(address: str) -> None:
        typer.echo(address)
        if not quiet:
            typer.echo(
                "Open this address; it works on this machine only. Ctrl-C ends the review, and nothing is lost."
            )
        if browser:
            import webbrowser

            webbrowser.open(address)

    try:
        serve(collection, port=port, report=report, started=started)
    except KeyboardInterrupt:
        raise Stopped("every answer is on disk; type the same command again to go on") from None
