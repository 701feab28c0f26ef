"""What `cdp export` can write, by name, and the one function that writes it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cdp.errors import InputError
from cdp.export.grouped_images import GroupedImages
from cdp.runtime.progress import Progress, no_progress
from cdp.storage.files import writing_file, writing_folder

FORMATS = {
    "folders": "a folder per person, with links to the images",
    "csv": "a table: row, path, identity, name, confidence",
    "parquet": "the same table as Parquet",
    "records": "InsightFace record files, train.rec and train.idx",
    "webdataset": "WebDataset shards, .tar files",
    "list": "list.txt and meta.txt for the authors' framework",
}


@dataclass(frozen=True)
class ExportOptions:
    """How an export is written.

    Attributes:
        copies: copy images into folders instead of linking to them.
        discarded: write the images that are in no group too, where the format has a place for them.
        images_per_shard: images in one .tar file.
        force: replace an export that is there.
    """

    copies: bool = False
    discarded: bool = False
    images_per_shard: int = 10_000
    force: bool = False


def export_images(
    grouped: GroupedImages,
    form: str,
    out: Path,
    options: ExportOptions | None = None,
    *,
    inputs: Iterable[str | Path | None] = (),
    progress: Progress = no_progress,
) -> int:
    """Write groups in one of `FORMATS`, whole or not at all, and return how many images were written.

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
    if form not in FORMATS:
        raise InputError(
            f"{form}: no such format; choose one of {', '.join(FORMATS)}.",
            code="export-format-unknown",
            value=form,
        )
    if chosen.discarded and form not in ("folders", "csv", "parquet"):
        raise InputError(
            f"{form} has no place for images in no group; leave --discarded out, or choose folders or csv.",
            code="export-format-without-discarded",
            value=form,
        )
    if not len(grouped.people) and not chosen.discarded:
        raise InputError(
            "There is no group to export; label with a lower threshold, or export --discarded as csv.",
            code="export-without-groups",
        )
    if form in ("csv", "parquet"):
        from cdp.export.label_lists import write_group_table

        if out.suffix.lower() != f".{form}":
            raise InputError(
                f"{out}: a {form} table is one file; call it {out.with_suffix(f'.{form}').name}.",
                code="export-suffix-wrong",
                file=out,
            )
        with writing_file(out, force=chosen.force, inputs=inputs) as partial:
            return write_group_table(partial, grouped, out.absolute().parent, discarded=chosen.discarded)
    with writing_folder(out, force=chosen.force, kind="Export", inputs=inputs) as folder:
        n_images = _fill(folder, grouped, form, out, chosen, progress)
        _write_card(folder, grouped, form, chosen, n_images)
    return n_images


def _fill(
    folder: Path, grouped: GroupedImages, form: str, out: Path, chosen: ExportOptions, progress: Progress
) -> int:
    if form == "folders":
        from cdp.export.person_folders import write_person_folders

        return write_person_folders(
            folder, grouped, copies=chosen.copies, discarded=chosen.discarded, progress=progress
        )
    if form == "records":
        from cdp.export.record_writer import write_record_files

        return write_record_files(folder, grouped, progress)
    if form == "webdataset":
        from cdp.export.shard_writer import write_shards

        return write_shards(folder, grouped, chosen.images_per_shard, progress)
    from cdp.export.label_lists import write_list_and_meta

    return write_list_and_meta(folder, grouped, out.absolute())


def _write_card(
    folder: Path, grouped: GroupedImages, form: str, chosen: ExportOptions, n_images: int
) -> None:
    from cdp.storage.artifacts import write_card

    summary = f"{n_images:,} images of {len(grouped.people):,} people as {form}"
    settings = {"format": form, "copies": chosen.copies, "discarded": chosen.discarded}
    write_card(folder, "Export", summary, settings, {})
