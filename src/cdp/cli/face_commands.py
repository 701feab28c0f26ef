"""`cdp faces`: drawn faces in one .zip file, and a sheet to look at."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Option

from cdp.cli.app import QuietOption, ThreadsOption, app, plain_errors


@app.command()
@plain_errors()
def faces(
    out: Annotated[Path, Option("--out", help="The .zip file to write; NAME.truth.csv goes beside it.")],
    identities: Annotated[int, Option(help="How many people.")] = 770,
    images: Annotated[int, Option(help="Pictures per person; numbers vary mildly around it.")] = 20,
    size: Annotated[int, Option(help="Width and height in pixels.")] = 40,
    seed: Annotated[int, Option(help="Other seeds draw other people.")] = 0,
    junk: Annotated[float, Option(help="Share of pictures that show no person of the set.")] = 0.01,
    mislabeled: Annotated[float, Option(help="Share of pictures in another person's folder.")] = 0.01,
    lookalikes: Annotated[float, Option(help="Share of people drawn similar to another person.")] = 0.2,
    difficulty: Annotated[
        float, Option(help="Scales changes of pose, light, blur, ...; 0 = no change.")
    ] = 1.0,
    sheet: Annotated[
        Path | None, Option(help="Also draw a sheet of some people to look at, as .png.")
    ] = None,
    threads: ThreadsOption = 0,
    force: Annotated[bool, Option("--force", help="Replace the files if they are there.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Draw faces of people who do not exist, a folder per person in one .zip file, and the truth beside it."""
    from cdp.data.manifests import read_manifest
    from cdp.lab.drawn_faces import FaceSettings, write_faces
    from cdp.lab.drawn_faces.sheet import write_sheet
    from cdp.progress import progress_bars

    settings = FaceSettings(identities, images, size, seed, junk, mislabeled, lookalikes, difficulty)
    # The sheet first, because it is quick and its name may be wrong.
    if sheet is not None:
        write_sheet(sheet, settings, force=force)
    with progress_bars(not quiet) as progress:
        truth = write_faces(out, settings, threads=threads, progress=progress, force=force)
    if not quiet:
        manifest = read_manifest(out)
        typer.echo(
            f"{manifest.n_images:,} pictures of {manifest.n_identities:,} people in {out}; "
            f"who is really on them: {truth}"
        )
