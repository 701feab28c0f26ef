"""`cdp export` and `cdp import`: groups for other programs, and back what was corrected there."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from cdp.cli.app import ForceOption, QuietOption, app, plain_errors


@app.command()
@plain_errors()
def export(
    source: Annotated[Path, Argument(help="A collection, or what cdp label or cdp run wrote.")],
    out: Annotated[Path, Option("--out", help="Folder or table to write; must not exist unless --force.")],
    form: Annotated[
        str, Option("--format", help="folders, csv, parquet, records, webdataset or list.")
    ] = "folders",
    copies: Annotated[
        bool, Option("--copies", help="folders: copy the images instead of linking to them.")
    ] = False,
    discarded: Annotated[
        bool, Option("--discarded", help="folders, csv, parquet: the images in no group too.")
    ] = False,
    images_per_shard: Annotated[int, Option(help="webdataset: images in one .tar file.", min=1)] = 10_000,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Write groups for other programs: a folder per person, tables, record files, WebDataset shards, lists."""
    from cdp.export.export_formats import ExportOptions, export_images
    from cdp.export.grouped_images import read_grouped_images
    from cdp.files import check_output
    from cdp.progress import progress_bars

    kind = "" if form in ("csv", "parquet") else "Export"
    check_output(out, force=force, kind=kind, inputs=[source])
    grouped = read_grouped_images(source)
    options = ExportOptions(copies, discarded, images_per_shard, force)
    inputs: list[str | Path | None] = [source]
    if grouped.images is not None and grouped.images.root != ".":
        inputs.append(grouped.images.root)
    with progress_bars(not quiet) as progress:
        n_images = export_images(grouped, form, out, options, inputs=inputs, progress=progress)
    if not quiet:
        typer.echo(f"{out}: {n_images:,} images of {len(grouped.people):,} people as {form}.")


@app.command("import")
@plain_errors()
def import_(
    collection: Annotated[Path, Argument(help="The collection that was exported.")],
    folder: Annotated[Path, Argument(help="What cdp export --format folders wrote, sorted again by hand.")],
    plan: Annotated[bool, Option("--plan", help="Say what would be recorded, and stop.")] = False,
    reject_missing: Annotated[
        bool, Option("--reject-missing", help="Images that were removed from the folders belong to no group.")
    ] = False,
    quiet: Annotated[bool, Option("--quiet", help="Print nothing.")] = False,
) -> None:
    """Take corrections from exported folders that were sorted again in a file manager."""
    from cdp.export.resorted_folders import import_folders

    found = import_folders(collection, folder, reject_missing=reject_missing, plan=plan)
    if quiet:
        return
    for line in found.sentences:
        typer.echo(line)
    if found.corrections:
        done = "would be recorded" if plan else f"recorded; cdp review {collection} shows and applies them"
        typer.echo(f"{len(found.corrections):,} corrections {done}.")
    else:
        typer.echo("Nothing was changed by hand; nothing is recorded.")
