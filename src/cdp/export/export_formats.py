"""What `cdp export` can write, by name, and the one function that writes it."""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cdp.errors import InputError
from cdp.export.export_result import ExportResult
from cdp.export.grouped_images import GroupedImages
from cdp.runtime.progress import Progress, no_progress
from cdp.storage.files import check_room, disk_errors, writing_file, writing_folder

FORMATS = {
    "folders": "a folder per person, with links to the images",
    "csv": "a table: row, path, identity, name, confidence; photo and box of faces on photos",
    "parquet": "the same table as Parquet",
    "xmp": "sidecars with face regions for digiKam, Immich and Lightroom",
    "coco": "COCO: instances.json and images",
    "fiftyone": "FiftyOne: labels.json and data",
    "imagefolder": "Hugging Face: metadata.jsonl and images",
    "records": "InsightFace record files, train.rec and train.idx",
    "webdataset": "WebDataset shards, .tar files",
    "list": "list.txt and meta.txt for the authors' framework",
}
TABLES = ("csv", "parquet")
_ONLY = {"discarded": ("folders", *TABLES), "photos": ("folders",), "unnamed": ("xmp",)}
"""Options that some formats have, and which."""


@dataclass(frozen=True)
class ExportOptions:
    """How an export is written.

    Attributes:
        copies: copy images into folders instead of linking to them.
        discarded: write the images that are in no group too, where the format has a place for them.
        images_per_shard: images in one .tar file.
        photos: folders of whole photos instead of faces.
        unnamed: write people without a name into sidecars too.
        force: replace an export that is there.
    """

    copies: bool = False
    discarded: bool = False
    images_per_shard: int = 10_000
    force: bool = False
    photos: bool = False
    unnamed: bool = False


def export_images(
    grouped: GroupedImages,
    form: str,
    out: Path,
    options: ExportOptions | None = None,
    *,
    inputs: Iterable[str | Path | None] = (),
    progress: Progress = no_progress,
) -> ExportResult:
    """Write groups in one of `FORMATS`, atomically; XMP sidecars are merged one by one.

    Args:
        grouped: who is on which image.
        form: which format.
        out: a .csv or .parquet file for a table, else a folder.
        options: how.
        inputs: what is read, which is never replaced.
        progress: called as images are done.

    Raises:
        InputError: there is no such format, no group, or no image where images are needed.
        OutputExistsError: `out` is there and is not to be replaced.
        StoreError: it cannot be written.
    """
    chosen = options or ExportOptions()
    _check(grouped, form, chosen)
    if form == "xmp":
        return _write_xmp(grouped, out, chosen, progress)
    if form in TABLES:
        from cdp.export.label_lists import write_group_table

        if out.suffix.lower() != f".{form}":
            raise InputError(
                f"{out}: a {form} table is one file; call it {out.with_suffix(f'.{form}').name}.",
                code="export-suffix-wrong",
                file=out,
            )
        with writing_file(out, force=chosen.force, inputs=inputs) as partial:
            n_images = write_group_table(partial, grouped, out.absolute().parent, discarded=chosen.discarded)
            return ExportResult(n_images, len(grouped.people))
    with writing_folder(out, force=chosen.force, kind="Export", inputs=inputs) as folder:
        if chosen.copies:
            check_room(folder, _bytes_of(grouped), "the copies of the images")
        result = _fill(folder, grouped, form, out.absolute(), chosen, progress)
        _write_card(folder, form, chosen, result)
    return result


def _bytes_of(grouped: GroupedImages) -> int:
    """Sum the sizes of the images' files; those in archives are not counted."""
    sizes, images = 0, grouped.images
    if images is not None:
        for path in images.locations:
            with suppress(OSError, ValueError):
                sizes += os.stat(os.path.join(images.root, path)).st_size
    return sizes


def _check(grouped: GroupedImages, form: str, chosen: ExportOptions) -> None:
    """Refuse formats and options that are not there."""
    if form not in FORMATS:
        raise InputError(
            f"{form}: no such format; choose one of {', '.join(FORMATS)}.",
            code="export-format-unknown",
            value=form,
        )
    for option, forms in _ONLY.items():
        if getattr(chosen, option) and form not in forms:
            raise InputError(
                f"{form} has no --{option}; leave it out, or choose {' or '.join(forms)}.",
                code="export-option-of-other-format",
                value=form,
                option=option,
            )
    if not len(grouped.people) and not chosen.discarded:
        raise InputError(
            "There is no group to export; label with a lower threshold, or export --discarded as csv.",
            code="export-without-groups",
        )


def _write_xmp(grouped: GroupedImages, out: Path, chosen: ExportOptions, progress: Progress) -> ExportResult:
    from cdp.export.xmp_sidecars import write_sidecars

    if out.exists() and not out.is_dir():
        raise InputError(
            f"{out} is a file, not a folder; choose another name.", code="output-is-a-file", file=out
        )
    with disk_errors(out, "sidecars that were written are whole"):
        return write_sidecars(out, grouped, unnamed=chosen.unnamed, progress=progress)


def _fill(
    folder: Path, grouped: GroupedImages, form: str, home: Path, chosen: ExportOptions, progress: Progress
) -> ExportResult:
    if form == "folders":
        from cdp.export.person_folders import write_person_folders, write_photo_folders

        which: dict[str, Any] = {"copies": chosen.copies, "discarded": chosen.discarded, "progress": progress}
        if chosen.photos:
            return write_photo_folders(folder, grouped, home, **which)
        return ExportResult(write_person_folders(folder, grouped, home, **which), len(grouped.people))
    if form in ("coco", "fiftyone", "imagefolder"):
        from cdp.export.boxed_datasets import write_coco, write_fiftyone, write_imagefolder

        write = {"coco": write_coco, "fiftyone": write_fiftyone, "imagefolder": write_imagefolder}[form]
        return write(folder, grouped, copies=chosen.copies, progress=progress)
    return ExportResult(
        _fill_for_training(folder, grouped, form, home, chosen, progress), len(grouped.people)
    )


def _fill_for_training(
    folder: Path, grouped: GroupedImages, form: str, home: Path, chosen: ExportOptions, progress: Progress
) -> int:
    if form == "records":
        from cdp.export.record_writer import write_record_files

        return write_record_files(folder, grouped, home, progress)
    if form == "webdataset":
        from cdp.export.shard_writer import write_shards

        return write_shards(folder, grouped, home, chosen.images_per_shard, progress)
    from cdp.export.label_lists import write_list_and_meta

    return write_list_and_meta(folder, grouped, home)


def _write_card(folder: Path, form: str, chosen: ExportOptions, result: ExportResult) -> None:
    from cdp.storage.artifacts import write_card

    summary = f"{result.n_images:,} images of {result.n_people:,} people as {form}"
    settings = {
        "format": form,
        "copies": chosen.copies,
        "discarded": chosen.discarded,
        "photos": chosen.photos,
    }
    write_card(folder, "Export", summary, settings, {})
