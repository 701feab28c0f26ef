"""`cdp align` and `cdp people`: photos into aligned faces, and into people."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cdp.cli.app import ForceOption, OutOption, QuietOption, SeedOption, app, plain_errors, print_table
from cdp.cli.derived_options import Given, settings_from, with_settings
from cdp.cli.image_commands import ManifestArgument
from cdp.cli.network_commands import RunOptions
from cdp.engine import Engine
from cdp.errors import InputError
from cdp.faces.align_settings import AlignSettings

if TYPE_CHECKING:
    from cdp.faces.face import Face

_with_photo_options = with_settings(
    AlignSettings,
    Engine,
    RunOptions,
    only=(*AlignSettings.__dataclass_fields__, "device", "threads", "root", "skip"),
)


@app.command()
@_with_photo_options
@plain_errors()
def align(
    photos: ManifestArgument,
    out: OutOption,
    given: Given,
    detector: Annotated[
        Path | None, typer.Option(help="A face detector as .onnx: SCRFD, YuNet or RetinaFace.")
    ] = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Find the faces of photos and align them at 112 x 112 pixels, ready for cdp embed.

    OUT/faces.csv has a row per face with its photo, box and landmarks, OUT/dropped.csv what was left out and why,
    OUT/different.csv pairs of faces that are on one photo and so are two people.
    """
    from cdp.faces.align_photos import align_faces
    from cdp.progress import progress_bars

    options, engine = settings_from(RunOptions, given), settings_from(Engine, given)
    with progress_bars(not quiet) as progress:
        made = align_faces(
            options.read(photos),
            detector,
            out,
            settings_from(AlignSettings, given),
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
    typer.echo(
        f"{len(made.different):,} pairs of faces are on one photo, so they are two people ({out / 'different.csv'})."
    )
    typer.echo(f"Written to {out}. Next: cdp embed {out} --model MODEL.onnx --out views")


def _kind_of(face: Face) -> str:
    """A few words that stand for many reasons."""
    from cdp.faces.align_photos import NO_FACE

    if face.landmarks is not None:
        return f"faces left out by {face.reason.partition(' ')[0]}".replace("by its", "by landmarks")
    return "photos without a face" if face.reason == NO_FACE else "photos that cannot be read"


@app.command()
@_with_photo_options
@plain_errors()
def people(
    photos: ManifestArgument,
    models: Annotated[
        Path, typer.Option(help="Folder of .onnx models: a face detector, and one or more that embed faces.")
    ],
    out: Annotated[
        Path, typer.Option(help="The album; if it is there, photos that are new are added to it.")
    ],
    given: Given,
    detector: Annotated[
        Path | None, typer.Option(help="The face detector [default: the one in --models].")
    ] = None,
    base: Annotated[
        str | None, typer.Option(help="Which embedding model is the base [default: the first by name].")
    ] = None,
    seed: SeedOption = 0,
    quiet: QuietOption = False,
) -> None:
    """Find out who is on photos: align faces, embed them, group them, ready for review.

    OUT/people is the collection, OUT/labels.csv says who is on which photo, OUT/report.html shows the groups. Faces on one photo are kept apart. The same command with more photos adds those.
    """
    from cdp.cli.signals import resumable
    from cdp.labeling.cache import Cache
    from cdp.labeling.workspace import Workspace
    from cdp.progress import progress_bars
    from cdp.run.album_outputs import REPORT
    from cdp.run.photo_album import PEOPLE, add_photos, choose_models

    if Path(photos).is_dir() and out.resolve().is_relative_to(Path(photos).resolve()):
        raise InputError(
            f"--out {out} lies in {photos}, and its faces would be taken for photos; choose another place."
        )
    options, engine = settings_from(RunOptions, given), settings_from(Engine, given)
    read = options.read(photos)
    chosen = choose_models(models, detector=detector, base=base)
    with resumable(), progress_bars(not quiet) as progress:
        work = Workspace(engine, Cache(), progress)
        album = add_photos(read, chosen, out, settings_from(AlignSettings, given), seed=seed, workspace=work)
    for note in album.notes:
        typer.echo(f"Note: {note}", err=True)
    if quiet:
        return
    if album.n_photos:
        typer.echo(
            f"{album.n_photos:,} new photos, {album.n_faces:,} faces; {album.n_apart:,} pairs of them are on one photo and "
            "kept apart."
        )
    else:
        typer.echo("No photo is new.")
    typer.echo(f"{album.people}\nLook at {out / REPORT}, or correct the groups: cdp review {out / PEOPLE}")
