"""`cdp split`, `cdp check` and `cdp faces`: images into parts, which of them cannot be read, and drawn ones."""

from __future__ import annotations

from fractions import Fraction
from json import dumps
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from cdp.cli.app import (
    ForceOption,
    JsonOption,
    OutOption,
    QuietOption,
    SeedOption,
    ThreadsOption,
    app,
    plain_errors,
    print_table,
)
from cdp.cli.derived_options import Given, with_settings
from cdp.engine import MOST_THREADS
from cdp.errors import InputError
from cdp_lab.face_settings import FaceSettings

ManifestArgument = Annotated[
    str,
    Argument(
        help="Images: a folder per identity, .csv, .parquet, list.txt, .zip, .tar (or a pattern), .rec."
    ),
]
RootOption = Annotated[
    Path | None, Option(help="What relative paths in a table start from [default: its folder].")
]
ProcessesOption = Annotated[
    int, Option(help="Processes that decode images; 0 = as many as cores.", min=0, max=MOST_THREADS)
]


@app.command()
@plain_errors()
def split(
    manifest: ManifestArgument,
    out: OutOption,
    labeled: Annotated[str, Option(help="Labeled share of what the test parts leave.")] = "1/11",
    unlabeled_parts: Annotated[int, Option(help="Equal unlabeled parts of the rest.", min=1, max=9999)] = 10,
    validation: Annotated[str, Option(help="Share of all images for choosing settings.")] = "0",
    probes: Annotated[str, Option(help="Share of all images: people to be identified in the test.")] = "0",
    distractors: Annotated[str, Option(help="Share of all images: people who are not probes.")] = "0",
    seed: SeedOption = 0,
    rotations: Annotated[
        bool, Option("--rotations", help="Every image four times; each turn of an identity is its own.")
    ] = False,
    root: RootOption = None,
    skip: Annotated[Path | None, Option(help="Leave out the images listed by `cdp check --list`.")] = None,
    skip_unreadable: Annotated[
        bool,
        Option("--skip-unreadable", help="Scan first; list unreadable images in OUT/unreadable.csv, go on."),
    ] = False,
    table: Annotated[str, Option(help="csv or parquet.")] = "csv",
    threads: ProcessesOption = 0,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Split images into labeled, unlabeled and test parts; no identity is in two of them."""
    from dataclasses import replace

    from cdp.data.check import Unreadable, check_images, write_unreadable
    from cdp.data.manifests import read_manifest, without_unreadable
    from cdp.data.split import rotated, split_by_identity
    from cdp.files import writing_folder
    from cdp.progress import progress_bars

    if table not in ("csv", "parquet"):
        raise InputError(f"--table {table}: choose csv or parquet.")
    given = {"labeled": labeled, "validation": validation, "probes": probes, "distractors": distractors}
    shares = {name: parse_share(f"--{name}", text) for name, text in given.items()}
    unreadable: list[Unreadable] = []
    with writing_folder(out, force=force, kind="Split", inputs=[manifest, skip]) as folder:
        images = read_manifest(manifest, root=root, skip=skip)
        if skip_unreadable:
            with progress_bars(not quiet) as progress:
                unreadable = check_images(images, threads, progress)
            write_unreadable(images, unreadable, folder / "unreadable.csv")
            images = without_unreadable(images, [one.row for one in unreadable])
        if rotations:
            images = rotated(images)
        parts = split_by_identity(images, **shares, unlabeled_parts=unlabeled_parts, seed=seed)
        more = {"manifest": manifest, "rotations": rotations, "unreadable": len(unreadable)}
        parts = replace(parts, settings={**parts.settings, **more})
        parts.fill(folder, f".{table}")
    if not quiet:
        rows = [
            (name, f"{part.n_images:,}", f"{part.n_identities:,}", f"{(part.sizes == 1).sum():,}")
            for name, part in parts.parts()
        ]
        print_table(f"Parts in {out}", ("part", ">images", ">identities", ">with one image"), rows)
        if unreadable:
            typer.echo(f"{len(unreadable):,} unreadable images were left out; see {out / 'unreadable.csv'}.")


def parse_share(option: str, text: str) -> float:
    """`1/11`, `0.25` or `25%` as a number."""
    try:
        if text.endswith("%"):
            return float(Fraction(text[:-1].strip()) / 100)
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError, OverflowError):
        raise InputError(f"{option} {text}: not a share; write for example 1/11, 0.25 or 25%.") from None


@app.command()
@plain_errors()
def check(
    manifest: ManifestArgument,
    root: RootOption = None,
    list_file: Annotated[
        Path | None, Option("--list", help="Also write the unreadable images to this .csv file.")
    ] = None,
    threads: ProcessesOption = 0,
    force: Annotated[bool, Option("--force", help="Replace the list if it is there.")] = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Decode every image and list those that cannot be read; the exit code is 2 if there are any."""
    from cdp.data.check import check_images, write_unreadable
    from cdp.data.manifests import read_manifest
    from cdp.files import check_output
    from cdp.progress import progress_bars

    if list_file is not None:
        check_output(list_file, force=force, inputs=[manifest])
    images = read_manifest(manifest, root=root)
    with progress_bars(not quiet) as progress:
        unreadable = check_images(images, threads, progress)
    if list_file is not None:
        write_unreadable(images, unreadable, list_file, force=force, inputs=[manifest])
    counts = {
        "images": images.n_images,
        "identities": images.n_identities,
        "identities_with_one_image": int((images.sizes == 1).sum()),
        "images_without_identity": int((images.identities < 0).sum()),
    }
    if json:
        listed = [one._asdict() for one in unreadable]
        print(dumps({**counts, "unreadable": listed}, indent=2, ensure_ascii=False))
    else:
        for one in unreadable:
            print(f"row {one.row} ({one.location}): {one.reason}")
        if not quiet:
            names = [f">{name.replace('_', ' ')}" for name in counts]
            print_table(
                "", [*names, ">unreadable"], [[f"{n:,}" for n in (*counts.values(), len(unreadable))]]
            )
    if unreadable:
        way_out = "leave them out with cdp split --skip-unreadable, or list them with --list."
        if list_file is not None:
            way_out = f"leave them out with cdp split --skip {list_file}."
        raise InputError(f"{len(unreadable):,} of {images.n_images:,} images cannot be read; {way_out}")


@app.command()
@with_settings(FaceSettings)
@plain_errors()
def faces(
    out: Annotated[Path, Option("--out", help="The .zip file to write; NAME.truth.csv goes beside it.")],
    given: Given,
    sheet: Annotated[
        Path | None, Option(help="Also draw a sheet of some people to look at, as .png.")
    ] = None,
    threads: ThreadsOption = 0,
    force: Annotated[bool, Option("--force", help="Replace the files if they are there.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Draw faces of people who do not exist, a folder per person in one .zip file, and the truth beside it."""
    from cdp.data.manifests import read_manifest
    from cdp.progress import progress_bars
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
