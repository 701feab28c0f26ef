"""The frame of `cdp-lab`, and its short commands: drawn faces, the ensemble baseline, compiled loops."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from cdp.cli.app import ForceOption, OutOption, QuietOption, ThreadsOption, by_commas, make_app, plain_errors
from cdp.cli.derived_options import Given, with_settings
from cdp.cli.help_pages import Command
from cdp_lab.face_settings import FaceSettings

app = make_app("Compare and reproduce: baselines, the paper's tables, drawn faces.", add_completion=True)


@app.command(cls=Command)
@with_settings(FaceSettings)
@plain_errors()
def faces(
    out: Annotated[
        Path, Option("--out", metavar="FILE", help="The .zip file to write; NAME.truth.csv goes next to it.")
    ],
    given: Given,
    sheet: Annotated[
        Path | None, Option(metavar="FILE", help="Also draw a sheet of some people, as .png.")
    ] = None,
    threads: ThreadsOption = 0,
    force: Annotated[bool, Option("--force", help="Replace the files if they exist.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Draw synthetic faces, a folder per person in one .zip file, and the truth next to it."""
    from cdp.data.manifests import read_manifest
    from cdp.runtime.progress import progress_bars
    from cdp_lab.drawn_faces import write_faces
    from cdp_lab.drawn_faces.sheet import write_sheet

    settings = FaceSettings(**given)
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


@app.command(cls=Command)
@plain_errors()
def ensemble(
    views: Annotated[Path, Argument(metavar="VIEWS", help="Embeddings by several models.")],
    models: Annotated[str, Option(metavar="X,Y", help="Models by commas, e.g. base,resnet18,vgg16.")],
    out: OutOption,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Concatenate the embeddings of several models into one: the paper's ensemble baseline."""
    from cdp.data.views import read_views
    from cdp.nets.ensemble import ensemble as concatenate
    from cdp.storage.artifacts import save

    made = concatenate(read_views(views), by_commas(models) or ())
    save(made, out, force=force, inputs=[views])
    if not quiet:
        typer.echo(f"{made}\nWritten to {out}.")


@app.command("compile", cls=Command)
@plain_errors()
def compile_command(quiet: QuietOption = False) -> None:
    """Compile all loops now, in about half a minute, so that no later command waits for it."""
    from cdp.runtime.progress import progress_bars
    from cdp_lab.compile_loops import compile_loops

    with progress_bars(not quiet) as progress:
        compile_loops(progress)
    if not quiet:
        typer.echo("All loops are compiled and kept on disk.")
