"""`cdp collect`, `cdp extend` and `cdp regroup`: collections that grow and are corrected."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cdp.cli.app import ForceOption, OutOption, QuietOption, SeedOption, app, plain_errors
from cdp.cli.derived_options import Given, settings_from, with_settings
from cdp.cli.label_commands import CorrectionsOption, check_teacher
from cdp.collection.collection_settings import GrowthSettings
from cdp.consensus.settings import ConsensusSettings, GroupingSettings
from cdp.engine import Engine
from cdp.settings import settings_of

if TYPE_CHECKING:
    from cdp.collection.collection import Collection
    from cdp.collection.corrections import Correction
    from cdp.collection.numbering import Changes

CollectionArgument = Annotated[Path, typer.Argument(help="A collection, as `cdp collect` makes it.")]


@app.command()
@with_settings(ConsensusSettings, Engine)
def collect(
    views: Annotated[Path, typer.Argument(help="Views of the images: a folder, .npz, .parquet or .npy.")],
    *,
    out: OutOption,
    labeled: Annotated[
        Path | None, typer.Option(help="Views of the labeled part, with identities, to learn from.")
    ] = None,
    corrections: CorrectionsOption = None,
    names: Annotated[
        Path | None,
        typer.Option(
            help="A table with the columns name and identity (a known person's number in the labeled part), path or row (of an image)."
        ),
    ] = None,
    seed: SeedOption = 0,
    force: ForceOption = False,
    quiet: QuietOption = False,
    given: Given,
) -> None:
    """Label images and keep them as a collection, which can be extended, corrected and reviewed.

    The embeddings are referred to, not copied: leave them where they are.
    """
    with plain_errors():
        from cdp.collection.correction_tables import read_correction_table, read_name_table
        from cdp.collection.creation import create_collection
        from cdp.data.views import read_views
        from cdp.labeling.cache import Cache
        from cdp.labeling.workspace import Workspace
        from cdp.progress import progress_bars

        engine = settings_from(Engine, given)
        settings = settings_from(ConsensusSettings, given, ConsensusSettings.of)
        check_teacher(labeled, None, settings)
        known: list[Correction] = []
        people: dict[int, str] = {}
        if corrections is not None or names is not None:
            images = read_views(views)
            if corrections is not None:
                known = read_correction_table(corrections, images.n_images, images.paths)
            if names is not None:
                people, said = read_name_table(names, images.n_images, images.paths)
                known += said
        with progress_bars(not quiet) as progress:
            collection = create_collection(
                out,
                views,
                labeled=[] if labeled is None else [labeled],
                settings=settings,
                names=people,
                corrections=known,
                seed=seed,
                force=force,
                workspace=Workspace(engine, Cache(), progress),
            )
        if not quiet:
            typer.echo(f"{collection} -> {out}")


@app.command()
@with_settings(GrowthSettings, Engine)
def extend(
    collection: CollectionArgument,
    views: Annotated[Path, typer.Argument(help="Views of new images by the same models.")],
    *,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Extend a copy in this folder, and leave the collection as it is."),
    ] = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
    given: Given,
) -> None:
    """Put new images into a collection: they join identities that are there, or found new ones.

    Identities keep their numbers and names; whatever merges or splits is written into the collection's log.
    """
    with plain_errors():
        from cdp.collection.collection import open_collection
        from cdp.collection.extension import extend as extend_collection
        from cdp.labeling.cache import Cache
        from cdp.labeling.workspace import Workspace
        from cdp.progress import progress_bars

        target = _copy(collection, out, views, force=force)
        with progress_bars(not quiet) as progress:
            workspace = Workspace(settings_from(Engine, given), Cache(), progress)
            opened = open_collection(target)
            growth = settings_from(GrowthSettings, given, partial(replace, opened.parts.growth_settings))
            grown, changes = extend_collection(opened, views, growth=growth, workspace=workspace)
        if not quiet:
            _print_changes(grown, changes)


@app.command()
@with_settings(GroupingSettings, GrowthSettings, without=("quorum", "retrain_after"))
def regroup(
    collection: CollectionArgument,
    *,
    corrections: CorrectionsOption = None,
    retrain: Annotated[
        bool, typer.Option("--retrain", help="Train trees anew first: they learn from the corrections.")
    ] = False,
    quiet: QuietOption = False,
    given: Given,
) -> None:
    """Make a collection's groups anew under all corrections so far, from the probabilities that are there.

    Corrections of a table are added to the collection's journal first. Other settings of how groups are made count from now on.
    """
    with plain_errors():
        from cdp.collection.collection import open_collection
        from cdp.collection.correction_tables import read_correction_table
        from cdp.collection.corrections import append_corrections
        from cdp.collection.regrouping import regroup as make_groups
        from cdp.collection.retraining import retrain as retrain_trees
        from cdp.labeling.workspace import Workspace
        from cdp.progress import progress_bars

        opened = open_collection(collection)
        if corrections is not None:
            known = read_correction_table(corrections, opened.n_images, opened.paths)
            append_corrections(collection, known, source="table")
        if retrain:
            with progress_bars(not quiet) as progress:
                opened, _ = retrain_trees(opened, workspace=Workspace(progress=progress))
        regrouped, changes = make_groups(
            opened,
            settings=replace(opened.settings, **_only(GroupingSettings, given)),
            growth=settings_from(GrowthSettings, given, partial(replace, opened.parts.growth_settings)),
        )
        if not quiet:
            _print_changes(regrouped, changes)


def _only(owner: type, given: Given) -> Given:
    """Those of the given values that are settings of a class."""
    return {name: given[name] for name in settings_of(owner) if name in given}


def _copy(collection: Path, out: Path | None, views: Path, *, force: bool) -> Path:
    if out is None:
        return collection
    from cdp.collection.collection_folder import KIND, read_parts
    from cdp.files import writing_folder

    read_parts(collection)
    with writing_folder(out, force=force, kind=KIND, inputs=[collection, views]) as partial:
        shutil.copytree(collection, partial, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".*"))
    return out


def _print_changes(collection: Collection, changes: Changes) -> None:
    typer.echo(str(collection))
    for event in changes.events:
        if event.kind in ("merged", "split", "moved"):
            word = {"merged": "went up in", "split": "lost images to the new", "moved": "gave images to"}[
                event.kind
            ]
            typer.echo(f"  {event.identity} {word} {event.other} ({event.images} images): {event.why}")
    typer.echo(
        f"{changes.joined} images joined identities, {changes.founded} identities are new, {changes.left} images left theirs; "
        f"{100 * changes.kept:.1f} % of the identities kept their number."
    )
