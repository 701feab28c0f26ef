"""`cdp faces`: options here, work elsewhere, nothing heavy imported."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cdp.cli.app import QuietOption, app, plain_errors


@app.command()
def faces(
    out: Annotated[
        Path, typer.Option("--out", help="The .zip file to write; NAME.truth.csv goes beside it.")
    ],
    identities: Annotated[int, typer.Option(help="How many people.")] = 770,
    images: Annotated[int, typer.Option(help="Pictures per person; numbers vary mildly around it.")] = 20,
    size: Annotated[int, typer.Option(help="Width and height in pixels.")] = 40,
    seed: Annotated[int, typer.Option(help="Other seeds draw other people.")] = 0,
    junk: Annotated[float, typer.Option(help="Share of pictures that show nobody in particular.")] = 0.01,
    mislabeled: Annotated[float, typer.Option(help="Share of pictures in somebody else's folder.")] = 0.01,
    lookalikes: Annotated[float, typer.Option(help="Share of people made after somebody else.")] = 0.2,
    difficulty: Annotated[
        float, typer.Option(help="Scales pose, light, blur and all else that changes; 0 = nothing does.")
    ] = 1.0,
    sheet: Annotated[
        Path | None, typer.Option(help="Also draw a sheet of some people to look at, as .png.")
    ] = None,
    threads: Annotated[int, typer.Option(help="Threads; 0 = all cores.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace the files if they are there.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Draw faces of people who do not exist, a folder per person in one .zip file, and the truth beside it."""
    with plain_errors():
        from cdp.cli.faces import write_set
        from cdp.lab.drawn_faces import FaceSettings

        settings = FaceSettings(identities, images, size, seed, junk, mislabeled, lookalikes, difficulty)
        write_set(out, settings, sheet=sheet, threads=threads, force=force, quiet=quiet)
