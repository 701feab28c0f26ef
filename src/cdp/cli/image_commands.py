"""`cdp split` and `cdp check`: options here, work elsewhere, nothing heavy imported."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cdp.cli.app import ForceOption, JsonOption, OutOption, QuietOption, app, plain_errors

ManifestArgument = Annotated[
    str,
    typer.Argument(
        help="Images: a folder per identity, .csv, .parquet, list.txt, .zip, .tar (or a pattern), .rec."
    ),
]
RootOption = Annotated[
    Path | None, typer.Option(help="What relative paths in a table start from [default: its folder].")
]
JobsOption = Annotated[int, typer.Option(help="Processes that decode images; 0 = as many as cores.")]


@app.command()
def split(
    manifest: ManifestArgument,
    out: OutOption,
    labeled: Annotated[str, typer.Option(help="Labeled share of what the test parts leave.")] = "1/11",
    unlabeled_parts: Annotated[int, typer.Option(help="Equal unlabeled parts made of the rest.")] = 10,
    validation: Annotated[str, typer.Option(help="Share of all images for choosing settings.")] = "0",
    probes: Annotated[str, typer.Option(help="Share of all images: people to be found again.")] = "0",
    distractors: Annotated[str, typer.Option(help="Share of all images: people who are not probes.")] = "0",
    seed: Annotated[int, typer.Option(help="Which of the equally good splits.")] = 0,
    rotations: Annotated[
        bool, typer.Option("--rotations", help="Every image four times; each turn of an identity is its own.")
    ] = False,
    root: RootOption = None,
    skip: Annotated[
        Path | None, typer.Option(help="Leave out the images listed here by `cdp check --list`.")
    ] = None,
    skip_unreadable: Annotated[
        bool,
        typer.Option(
            "--skip-unreadable",
            help="Scan first; list unreadable images in OUT/unreadable.csv, go on without.",
        ),
    ] = False,
    table: Annotated[str, typer.Option(help="csv or parquet.")] = "csv",
    threads: JobsOption = 0,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Part images into labeled, unlabeled and test parts, with nobody on two sides."""
    with plain_errors():
        from cdp.cli.images import SplitSettings, split_images

        split_images(
            SplitSettings(
                manifest=manifest,
                out=out,
                labeled=labeled,
                unlabeled_parts=unlabeled_parts,
                validation=validation,
                probes=probes,
                distractors=distractors,
                seed=seed,
                rotations=rotations,
                root=root,
                skip=skip,
                skip_unreadable=skip_unreadable,
                table=table,
                threads=threads,
                force=force,
                quiet=quiet,
            )
        )


@app.command()
def check(
    manifest: ManifestArgument,
    root: RootOption = None,
    list_file: Annotated[
        Path | None, typer.Option("--list", help="Also write the unreadable images to this .csv file.")
    ] = None,
    threads: JobsOption = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace the list if it is there.")] = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Decode every image and list those that cannot be read; the exit code is 2 if there are any."""
    with plain_errors():
        from cdp.cli.images import check_manifest

        check_manifest(
            manifest, root=root, list_file=list_file, threads=threads, force=force, as_json=json, quiet=quiet
        )
