"""`cdp add`, `regroup`, `show`, `review` and `export`: living with a collection."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from cdp.cli.app import ForceOption, QuietOption, app, plain_errors
from cdp.cli.derived_options import Given, settings_from, with_settings
from cdp.cli.help_pages import Command, help_page
from cdp.cli.image_options import PhotoOptions
from cdp.cli.input_kinds import InputKindOption, find_kind
from cdp.cli.label_command import BaseOption, CorrectionsOption, DetectorOption, ModelsOption
from cdp.cli.signals import resumable
from cdp.collection.collection_settings import GrowthSettings
from cdp.errors import InputError, OutputExistsError, StoreError
from cdp.faces.align_settings import AlignSettings
from cdp.runtime.settings import RuntimeSettings
from cdp.scoring.settings import GroupingSettings, ThresholdSettings
from cdp.settings import settings_of

if TYPE_CHECKING:
    from cdp.collection.collection import Collection
    from cdp.export.grouped_images import GroupedImages
    from cdp.run.photo_collection import AddedPhotos
    from cdp.runtime.runtime import Runtime

_NOT_WRITTEN = ("output-unwritable", "disk-full", "free-space-too-little")
"""Codes of errors that do not hinder who only looks."""

CollectionArgument = Annotated[
    Path, Argument(metavar="COLLECTION", help="Folder written by cdp label, cdp run or cdp demo.")
]


@app.command(cls=Command)
@with_settings(GrowthSettings, RuntimeSettings, AlignSettings, PhotoOptions, defaults=False)
@help_page(
    "cdp add album new_photos",
    "cdp add faces new_embeddings --out faces2",
    Input="collection source models input_kind",
    Result="out force id_stability",
    Machine="threads memory_budget device quiet",
)
@plain_errors()
def add(
    collection: CollectionArgument,
    source: Annotated[str, Argument(metavar="INPUT", help="More photos, or embeddings by the same models.")],
    *,
    models: ModelsOption = None,
    input_kind: InputKindOption = "auto",
    detector: DetectorOption = None,
    base: BaseOption = None,
    out: Annotated[
        Path | None,
        Option(
            "--out",
            metavar="FOLDER",
            help="Add to a copy, and leave COLLECTION as it is.",
            rich_help_panel="Result",
        ),
    ] = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
    given: Given,
) -> None:
    """Add images to a collection: they join its identities or found new ones.

    Identities keep their numbers and names. Photos that the collection has already are skipped.
    """
    from cdp.cli.photo_summary import print_photos
    from cdp.cli.terminal import print_changes
    from cdp.collection.collection import open_collection
    from cdp.collection.extension import extend
    from cdp.runtime.progress import progress_bars
    from cdp.runtime.runtime import Runtime
    from cdp.storage.files import check_writable

    check_writable(out or collection)
    growth = settings_from(
        GrowthSettings, given, partial(replace, open_collection(collection).state.growth_settings)
    )
    kind = find_kind(source, input_kind, quiet=quiet)
    _check_addition(collection, source, kind, out, given)
    with _grown(collection, out, source, force=force) as target, progress_bars(not quiet) as progress:
        opened = open_collection(target)
        runtime = Runtime(settings_from(RuntimeSettings, given), progress=progress)
        if kind != "embeddings":
            more = (models, detector, base)
            _note_other_faces(opened, given)
            added = _add_photos(source, opened, more, _align(opened, kind, given), given, growth, runtime)
        else:
            _, changes = extend(opened, Path(source), growth=growth, runtime=runtime)
    target = out or collection
    if kind != "embeddings":
        print_photos(replace(added, collection=open_collection(target)), target, quiet=quiet)
    elif not quiet:
        print_changes(open_collection(target), changes, target)


def _check_addition(collection: Path, source: str, kind: str, out: Path | None, given: Given) -> None:
    """Check the new images and the room for them, and for the copy, before a collection is copied."""
    from cdp.cli.label_command import refuse_output_among
    from cdp.data.views import read_views
    from cdp.faces.align_photos import CROP_BYTES
    from cdp.storage.files import LEAST_ROOM, check_writable, folder_bytes

    n_bytes = 0 if out is None else folder_bytes(collection)
    if kind == "embeddings":
        views = read_views(source)
        n_bytes += 4 * views.n_images * sum(one.dimensions for one in views)
    else:
        refuse_output_among(source, out or collection)
        n_bytes += CROP_BYTES * len(settings_from(PhotoOptions, given).scan(source).photos)
    check_writable(out or collection, max(LEAST_ROOM, n_bytes), "the copy and the new images")


def _align(collection: Collection, kind: str, given: Given) -> AlignSettings:
    """Return the settings of the existing faces, except for those given."""
    from cdp.run.photo_collection import align_settings_of

    before = align_settings_of(collection)
    return settings_from(
        AlignSettings, given, partial(replace, before, ready="all" if kind == "faces" else before.ready)
    )


def _note_other_faces(collection: Collection, given: Given) -> None:
    """Say that other settings of which faces are taken hold for new photos only."""
    from cdp.run.photo_collection import align_settings_of

    before = align_settings_of(collection)
    for name in settings_of(AlignSettings):
        if name in given and given[name] != getattr(before, name):
            option = "--" + name.replace("_", "-")
            typer.echo(
                f"Note: {option} {given[name]} applies to new photos only; the others were read with "
                f"{getattr(before, name)}. To read all of them again, make a new album with cdp label.",
                err=True,
            )


def _add_photos(
    source: str,
    collection: Collection,
    more: tuple[Path | None, Path | None, str | None],
    align: AlignSettings,
    given: Given,
    growth: GrowthSettings,
    runtime: Runtime,
) -> AddedPhotos:
    from cdp.cli.photo_summary import print_notes
    from cdp.run.photo_collection import add_photos
    from cdp.run.photo_models import models_of, open_photo_models

    folder, detector, base = more
    before = models_of(collection)
    opened = open_photo_models(
        folder or before.found,
        detector=detector or (before.detector_found if folder is None else None),
        base=base or before.base,
        device=runtime.settings.device,
        needs_detector=align.ready != "all",
        before=before,
        progress=runtime.progress,
    )
    print_notes((*opened.licenses, *opened.notes))
    photos = settings_from(PhotoOptions, given).scan(source)
    return add_photos(photos, opened, collection.folder, align, growth=growth, runtime=runtime)


@contextmanager
def _grown(collection: Path, out: Path | None, source: str, *, force: bool) -> Iterator[Path]:
    """Open the collection to add to.

    A copy takes the place of `out` only with what was added, so the same command can be typed again.
    """
    if out is None:
        with resumable():
            yield collection
        return
    from cdp.collection.collection_folder import KIND, copy_collection
    from cdp.storage.files import writing_folder

    with writing_folder(out, force=force, kind=KIND, inputs=[collection, source]) as partial_folder:
        copy_collection(collection, partial_folder, out)
        yield partial_folder


FoldersOption = Annotated[
    Path | None,
    Option(
        metavar="FOLDER",
        help="Folders written by cdp export and sorted by hand.",
        rich_help_panel="Input",
    ),
]
RejectOption = Annotated[
    bool,
    Option(
        "--reject-missing",
        help="With --folders: images removed from them belong to no group.",
        rich_help_panel="Input",
    ),
]
RetrainOption = Annotated[
    bool, Option("--retrain", help="Train the trees again, on the corrections too.", rich_help_panel="Result")
]
DryOption = Annotated[
    bool,
    Option("--plan", help="With --folders: show the corrections found, and stop.", rich_help_panel="Result"),
]


@app.command(cls=Command)
@with_settings(
    GroupingSettings,
    ThresholdSettings,
    GrowthSettings,
    without=("retrain_after", "min_precision", "beta"),
    defaults=False,
)
@help_page(
    "cdp regroup faces --corrections facts.csv",
    "cdp regroup album --models better_models",
    Input="collection corrections folders reject_missing models base",
    Result="threshold max_cluster_size retrain id_stability plan",
    Machine="quiet",
)
@plain_errors()
def regroup(
    collection: CollectionArgument,
    *,
    corrections: CorrectionsOption = None,
    folders: FoldersOption = None,
    reject_missing: RejectOption = False,
    models: ModelsOption = None,
    base: BaseOption = None,
    retrain: RetrainOption = False,
    plan: DryOption = False,
    quiet: QuietOption = False,
    given: Given,
) -> None:
    """Recompute the groups with all corrections applied. Pair probabilities are reused.

    Corrections from a table or from folders sorted by hand are recorded first. With --models, all faces of an
    album are embedded by other models first; names, corrections and numbers stay. Settings that are not given
    stay as they are.
    """
    from cdp.cli.terminal import print_changes
    from cdp.collection.collection import open_collection
    from cdp.collection.correction_tables import read_correction_table
    from cdp.collection.corrections import append_rest
    from cdp.collection.regrouping import regroup as make_groups
    from cdp.collection.retraining import retrain as retrain_trees
    from cdp.runtime.progress import progress_bars
    from cdp.runtime.runtime import Runtime
    from cdp.storage.files import check_writable

    check_writable(collection)
    opened = open_collection(collection)
    if (plan or reject_missing) and folders is None:
        raise InputError(
            "--plan and --reject-missing go with --folders FOLDER.", code="folders-options-without-folders"
        )
    if folders is not None:
        _import_folders(collection, folders, reject_missing=reject_missing, plan=plan, quiet=quiet)
        if plan:
            return
    if corrections is not None:
        said = read_correction_table(corrections, opened.n_images, opened.paths)
        opened.refuse_contradictions(said)
        append_rest(collection, said, source="table")
    if models is not None:
        _switch_models(opened, models, base, quiet=quiet)
        opened = open_collection(collection)
        if not given and not retrain:  # grouped already
            return
    if retrain:
        with progress_bars(not quiet) as progress:
            opened, _ = retrain_trees(opened, runtime=Runtime(progress=progress))
    chosen = {name: given[name] for name in (*settings_of(GroupingSettings), "threshold") if name in given}
    regrouped, changes = make_groups(
        opened,
        settings=replace(opened.settings, **chosen),
        growth=settings_from(GrowthSettings, given, partial(replace, opened.state.growth_settings)),
    )
    if not quiet:
        print_changes(regrouped, changes, collection)


def _switch_models(collection: Collection, models: Path, base: str | None, *, quiet: bool) -> None:
    from cdp.cli.photo_summary import print_notes
    from cdp.cli.terminal import print_changes
    from cdp.run.photo_collection import faces_folders, switch_models
    from cdp.run.photo_models import open_photo_models, settle_models
    from cdp.runtime.progress import progress_bars
    from cdp.runtime.runtime import Runtime

    with progress_bars(not quiet) as progress:
        opened = open_photo_models(models, base=base)
        if folders := faces_folders(collection):
            opened = settle_models(opened, folders, runtime=Runtime(progress=progress))
        switched, changes, notes = switch_models(collection, opened, runtime=Runtime(progress=progress))
    print_notes((*opened.notes, *dict.fromkeys(notes)))
    if not quiet:
        print_changes(switched, changes, collection.folder)


def _import_folders(
    collection: Path, folders: Path, *, reject_missing: bool, plan: bool, quiet: bool
) -> None:
    from cdp.export.resorted_folders import import_folders
    from cdp.web.words import counted

    found = import_folders(collection, folders, reject_missing=reject_missing, plan=plan)
    if quiet:
        return
    for line in found.sentences:
        typer.echo(line)
    if found.corrections:
        done = "would be recorded" if plan else "recorded"
        typer.echo(f"{counted(len(found.corrections), 'correction')} {done}.")
    else:
        typer.echo("Nothing was changed by hand.")


@app.command(cls=Command)
@help_page("cdp forget album 'Colin Powell'", "cdp forget album --gone")
@plain_errors()
def forget(
    collection: CollectionArgument,
    people: Annotated[
        list[str] | None, Argument(metavar="PERSON", help="Names or numbers of the people to forget.")
    ] = None,
    gone: Annotated[bool, Option("--gone", help="Also the faces of photos whose files are gone.")] = False,
    yes: Annotated[bool, Option("--yes", help="Do not ask.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Remove people from a collection for good: faces, crops, embeddings, pairs, corrections and history.

    Photos and given embeddings are not touched. This cannot be undone.
    """
    from cdp.collection.collection import open_collection
    from cdp.run.forgetting import find_person
    from cdp.run.forgetting import forget as forget_people
    from cdp.storage.files import check_writable
    from cdp.web.words import counted

    check_writable(collection)
    opened = open_collection(collection)
    if not people and not gone:
        raise InputError("Nobody to forget: give a name or a number, or --gone.", code="nobody-to-forget")
    identities = [identity for text in people or () for identity in find_person(opened, text)]
    n_images = int(sum((opened.identity == identity).sum() for identity in identities))
    if not yes:
        what = counted(n_images, "image") + (", and those of photos that are gone" if gone else "")
        typer.confirm(f"Remove {what} from {collection} for good?", abort=True)
    left, n_removed = forget_people(opened, people or (), gone=gone)
    if not quiet:
        typer.echo(f"{counted(n_removed, 'image')} removed. {left}")
        if (collection / "run").is_dir():
            typer.echo(
                f"{collection / 'run'} still holds what the run made of them; delete it if that must go too."
            )


@app.command(cls=Command)
@help_page("cdp show faces", "cdp show faces --report faces.html")
@plain_errors()
def show(
    folder: Annotated[Path, Argument(metavar="FOLDER", help="Any folder written by cdp.")],
    report: Annotated[
        Path | None,
        Option(metavar="FILE", help="Also write the report of a collection to this .html file."),
    ] = None,
    json: Annotated[bool, Option("--json", help="Print the card, or the figures, as JSON.")] = False,
    force: Annotated[bool, Option("--force", help="Replace the file at --report if it exists.")] = False,
) -> None:
    """Show what a folder is, how it was made, and what to do next."""
    from cdp.storage.files import artifact_kind

    if artifact_kind(folder) == "Collection":
        from cdp.cli.terminal import print_collection
        from cdp.collection.collection import open_collection
        from cdp.collection.outputs import METRICS, REPORT, refresh_outputs

        try:
            refresh_outputs(folder)
        except StoreError as error:
            if report is not None or json or error.code not in _NOT_WRITTEN:
                raise
            warnings.warn(f"{error} Its tables and its report are not up to date.", stacklevel=2)
        if report is not None:
            _copy_report(folder / REPORT, report, force=force)
        if json:
            print((folder / METRICS).read_text(encoding="utf-8"), end="")
        else:
            print_collection(open_collection(folder), folder)
        return
    if report is not None:
        raise InputError(
            f"{folder} is not a collection and has no report; give what cdp label or cdp run wrote.",
            code="report-of-no-collection",
            folder=folder,
        )
    from cdp.cli.terminal import print_card
    from cdp.storage.artifacts import read_card

    if artifact_kind(folder) == "run":
        is_finished = artifact_kind(folder.absolute().parent) == "Collection"
        raise InputError(
            f"{folder} holds the stages of a run; cdp show {folder.parent} shows what it made."
            if is_finished
            else f"{folder} holds the stages of a run that is not finished; run the same command again.",
            code="run-stages-shown" if is_finished else "run-not-finished",
            folder=folder,
        )
    card = read_card(folder)
    if json:
        print(dumps(card.as_dict(), indent=2, ensure_ascii=False))
    else:
        print_card(folder, card)


def _copy_report(page: Path, out: Path, *, force: bool) -> None:
    from cdp.storage.files import check_output, write_bytes

    check_output(out, force=force, inputs=[page.parent])
    write_bytes(out, page.read_bytes())


@app.command(cls=Command)
@help_page("cdp review faces", "cdp review faces --no-browser --port 8000")
@plain_errors()
def review(
    collection: CollectionArgument,
    port: Annotated[int, Option(help="Port on this machine; 0 = any that is free.", min=0, max=65535)] = 0,
    browser: Annotated[bool, Option(help="Open the page in the browser.")] = True,
    quiet: Annotated[bool, Option("--quiet", help="Print the address only.")] = False,
) -> None:
    """Review groups on a page in the browser: merge, split, move, name, reject, undo.

    The page is served to this machine only. Every answer is on disk before the page says so; stop with
    Ctrl-C.
    """
    from cdp.cli.signals import Stopped
    from cdp.web.review.server import serve

    def started(address: str) -> None:
        typer.echo(address)
        if not quiet:
            typer.echo("Open this address on this machine. Ctrl-C ends the review; answers are saved.")
        if browser:
            import webbrowser

            webbrowser.open(address)

    try:
        serve(collection, port=port, started=started)
    except KeyboardInterrupt:
        raise Stopped("all answers are saved; run the same command again to continue") from None


@app.command(cls=Command)
@help_page("cdp export faces --out people", "cdp export album --format xmp --out photos")
@plain_errors()
def export(
    collection: CollectionArgument,
    out: Annotated[Path, Option("--out", metavar="PATH", help="Folder or table to write.")],
    form: Annotated[
        str,
        Option(
            "--format",
            metavar="NAME",
            help="folders, csv, parquet, xmp, coco, fiftyone, imagefolder, records, webdataset or list.",
        ),
    ] = "folders",
    copies: Annotated[
        bool,
        Option("--copies", help="Copy images into folders instead of linking."),
    ] = False,
    photos: Annotated[bool, Option("--photos", help="folders: whole photos instead of faces.")] = False,
    discarded: Annotated[
        bool, Option("--discarded", help="folders, csv, parquet: also images in no group.")
    ] = False,
    unnamed: Annotated[bool, Option("--unnamed", help="xmp: also people without a name.")] = False,
    images_per_shard: Annotated[
        int, Option(help="webdataset: images in one .tar file.", min=1, max=10**9)
    ] = 10_000,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Export groups as folders, tables, XMP sidecars, detection data sets or training formats."""
    from cdp.export.export_formats import TABLES, ExportOptions, export_images
    from cdp.export.grouped_images import read_grouped_images
    from cdp.runtime.progress import progress_bars
    from cdp.storage.files import check_output, check_writable
    from cdp.web.words import counted

    if form == "xmp":
        _refuse_inside(out, collection)
        check_writable(out)
    else:
        check_output(out, force=force, kind="" if form in TABLES else "Export", inputs=[collection])
    grouped = read_grouped_images(collection)
    options = ExportOptions(copies, discarded, images_per_shard, force, photos, unnamed)
    inputs = [collection, *_images_in(out, grouped)]
    with progress_bars(not quiet) as progress:
        result = export_images(grouped, form, out, options, inputs=inputs, progress=progress)
    if not quiet:
        what = "face" if form == "xmp" else "photo" if photos else "image"
        people = counted(result.n_people, "person", "people")
        typer.echo(f"{out}: {counted(result.n_images, what)} of {people} as {form}.")
        for note in result.notes:
            typer.echo(note)


def _refuse_inside(out: Path, collection: Path) -> None:
    """Sidecars are written into folders that are there, but never into a collection."""
    home = os.path.realpath(collection)
    if (os.path.realpath(out) + os.sep).startswith(home + os.sep):
        raise OutputExistsError(
            f"{out} is inside the collection; give the folder of the photos, or a new one.",
            code="output-inside-collection",
            file=out,
        )


def _images_in(folder: Path, grouped: GroupedImages) -> list[Path]:
    """Return one image or photo in a folder, if any; such a folder is not replaced."""
    home = os.path.realpath(folder) + os.sep
    full: list[str] = []
    if grouped.images is not None:
        root = os.path.realpath(grouped.images.root)
        full = [os.path.normpath(os.path.join(root, one)) for one in grouped.images.locations]
    full += [one.photo for one in grouped.faces or () if one is not None]
    return [Path(one) for one in full if one.startswith(home)][:1]
