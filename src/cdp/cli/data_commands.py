"""`cdp data`: images into parts, which of them cannot be read, faces cut from photos, and recipes."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from cdp.cli.app import (
    ForceOption,
    JsonOption,
    OutOption,
    QuietOption,
    SeedOption,
    data,
    plain_errors,
    print_table,
)
from cdp.cli.derived_options import Given, settings_from, with_settings
from cdp.cli.help_pages import Command, help_page, refuse_option_as_file
from cdp.cli.image_options import ManifestArgument, PhotoOptions, ProcessesOption, RootOption
from cdp.cli.recipe_options import with_recipe
from cdp.errors import InputError, install_command
from cdp.faces.align_settings import AlignSettings
from cdp.runtime.settings import RuntimeSettings

if TYPE_CHECKING:
    from cdp.config.sections import RunRecipe
    from cdp.data.split import Split
    from cdp.faces.face import Face


@data.command(cls=Command)
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
        bool, Option("--rotations", help="Add every image turned by 90, 180 and 270 degrees.")
    ] = False,
    root: RootOption = None,
    skip: Annotated[
        Path | None, Option(help="Leave out the images listed by `cdp data check --list`.")
    ] = None,
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
    from cdp.runtime.progress import progress_bars
    from cdp.storage.files import writing_folder

    if table not in ("csv", "parquet"):
        raise InputError(
            f"--table {table}: choose csv or parquet.",
            code="split-table-kind-unknown",
            option="--table",
            value=table,
        )
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
        _print_parts(parts, out, len(unreadable))


def _print_parts(split: Split, out: Path, n_unreadable: int) -> None:
    rows = [
        (name, f"{part.n_images:,}", f"{part.n_identities:,}", f"{(part.sizes == 1).sum():,}")
        for name, part in split.parts()
    ]
    print_table(f"Parts in {out}", ("part", ">images", ">identities", ">with one image"), rows)
    if n_unreadable:
        typer.echo(f"{n_unreadable:,} unreadable images were left out; see {out / 'unreadable.csv'}.")


def parse_share(option: str, text: str) -> float:
    """`1/11`, `0.25` or `25%` as a number."""
    try:
        if text.endswith("%"):
            return float(Fraction(text[:-1].strip()) / 100)
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError, OverflowError):
        raise InputError(
            f"{option} {text}: not a share; write for example 1/11, 0.25 or 25%.",
            code="share-not-a-number",
            option=option,
            value=text,
        ) from None


@data.command(cls=Command)
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
    from cdp.runtime.progress import progress_bars
    from cdp.storage.files import check_output

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
        way_out = "leave them out with cdp data split --skip-unreadable, or list them with --list."
        if list_file is not None:
            way_out = f"leave them out with cdp data split --skip {list_file}."
        raise InputError(
            f"{len(unreadable):,} of {images.n_images:,} images cannot be read; {way_out}",
            code="images-unreadable",
            count=len(unreadable),
            images=images.n_images,
        )


@data.command(cls=Command)
@with_settings(
    AlignSettings,
    RuntimeSettings,
    PhotoOptions,
    only=(*AlignSettings.__dataclass_fields__, "device", "threads", "root", "skip", "identities"),
)
@help_page(
    "cdp data align photos --out faces",
    "cdp data align photos --detector scrfd.onnx --out faces",
    Input="photos detector",
    Result="out min_score min_face force",
    Machine="threads device quiet",
)
@plain_errors()
def align(
    photos: ManifestArgument,
    out: OutOption,
    given: Given,
    detector: Annotated[
        Path | None,
        typer.Option(help="SCRFD, YuNet or RetinaFace as .onnx; YuNet is downloaded once if not given."),
    ] = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Find the faces of photos and align them at 112 x 112 pixels, ready for cdp embed.

    OUT/faces.csv has a row per face with its photo, box and landmarks, OUT/dropped.csv what was left out and
    why, OUT/different.csv pairs of faces that are on one photo and so are two people.
    """
    from cdp.cli.photo_summary import print_notes
    from cdp.faces.align_photos import KIND, align_faces
    from cdp.nets import model_downloads
    from cdp.runtime.progress import progress_bars
    from cdp.storage.files import check_output

    options, engine = settings_from(PhotoOptions, given), settings_from(RuntimeSettings, given)
    settings = settings_from(AlignSettings, given)
    check_output(out, force=force, kind=KIND, inputs=[photos, detector, options.skip])
    scan = options.scan(photos)
    with progress_bars(not quiet) as progress:
        if detector is None and settings.ready != "all":
            fetched = model_downloads.fetch_models([model_downloads.DETECTOR], progress=progress)
            (detector,) = fetched.files
            print_notes(fetched.notes)
        made = align_faces(
            scan.photos,
            detector,
            out,
            settings,
            threads=engine.threads,
            device=engine.device,
            force=force,
            inputs=[photos, options.skip],
            progress=progress,
        )
    if quiet:
        return
    reasons = Counter(_kind_of(face) for face in made.dropped)
    rows = [
        ("faces taken", f"{len(made.faces):,}"),
        *((name, f"{count:,}") for name, count in sorted(reasons.items())),
    ]
    print_table(f"{len(made.photos):,} photos", ("", ">number"), rows)
    if scan.left_out:
        first = scan.left_out[0]
        typer.echo(f"{len(scan.left_out):,} files left out, e.g. {first.path}: {first.reason}.")
    typer.echo(
        f"{len(made.different):,} pairs of faces are on one photo, so they are two people "
        f"({out / 'different.csv'})."
    )
    typer.echo(f"Written to {out}. Next: cdp embed {out} --model MODEL.onnx --out views")


def _kind_of(face: Face) -> str:
    """Return a few words that stand for many reasons."""
    from cdp.faces.face import NOTHING_FOUND

    if face.landmarks is not None:
        return f"faces left out by {face.reason.partition(' ')[0]}".replace("by its", "by landmarks")
    return "photos without a face" if face.reason == NOTHING_FOUND else "photos that cannot be read"


@data.command(cls=Command)
@with_recipe
@help_page(
    "cdp data recipe mine.toml --images faces --consensus.k 30",
    "cdp data recipe mine.toml --check",
    Result="file check bare force json",
    Input="data__images data__labeled data__unlabeled data__embeddings",
)
@plain_errors()
def recipe(
    file: Annotated[Path, Argument(metavar="FILE", help="The recipe, e.g. mine.toml; - prints it.")],
    overrides: Given,
    check: Annotated[
        bool, Option("--check", help="Check a recipe that is there, without running it.")
    ] = False,
    bare: Annotated[bool, Option("--bare", help="Keys only, without their help.")] = False,
    force: Annotated[bool, Option("--force", help="Replace the file if it exists.")] = False,
    json: Annotated[bool, Option("--json", help="With --check: print all keys as JSON.")] = False,
) -> None:
    """Write a recipe for cdp run with every key and a sentence about it, or check one.

    Keys at their defaults are comments. Options set keys, in a new recipe or on top of the one that is
    checked.
    """
    refuse_option_as_file(file)
    if check:
        _check_recipe(file, overrides, as_json=json)
        return
    from cdp.config.reading import recipe_from
    from cdp.config.writing import write_recipe
    from cdp.run.sources import source_names, source_paths
    from cdp.storage.files import check_output, write_text

    made = recipe_from({}, overrides)
    text = write_recipe(made, commented=not bare, template=not bare)
    if str(file) == "-":
        typer.echo(text, nl=False)
        return
    inputs = [path for name in source_names(made) for path in source_paths(made, name)]
    check_output(file, force=force, inputs=inputs)
    write_text(file, text)
    typer.echo(f"Written to {file}. Next: fill in [data], then cdp data recipe {file} --check")


def _check_recipe(file: Path, overrides: Given, *, as_json: bool) -> None:
    """Keys, values, paths and networks of a recipe; what differs from the defaults is shown."""
    from cdp.config.checks import check_recipe
    from cdp.config.environment import check_environment, source_kind
    from cdp.config.reading import read_recipe
    from cdp.config.writing import differences, to_toml

    found: RunRecipe = read_recipe(file, overrides)
    try:
        check_recipe(found)
        networks_known = check_environment(found)
        kind = source_kind(found)
    except InputError as error:
        raise InputError(f"{file}: {error}", **error.details(file=file)) from None
    if as_json:
        typer.echo(dumps({"recipe": found.as_dict(), "networks_checked": networks_known}, indent=2))
        return
    typer.echo(f"{file}: valid; cdp run can run it.")
    if not networks_known and kind == "images":
        typer.echo(f"The networks' names were not checked; that needs {install_command('nets')}.")
    changed = differences(found)
    typer.echo("Changed from the defaults:" if changed else "All keys have their defaults.")
    width = max((len(one.key) for one in changed), default=0)
    for one in changed:
        typer.echo(f"  {one.key:{width}} = {to_toml(one.value)}  (default {to_toml(one.default)})")
