"""Replace the embeddings of a collection.

Images, corrections, names and numbers stay; pairs and groups are recomputed.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec

from cdp.collection.collection import Collection, open_collection
from cdp.collection.collection_folder import numbered, write_batch
from cdp.collection.numbering import Changes
from cdp.collection.outputs import write_outputs
from cdp.collection.regrouping import write_groups
from cdp.collection.scored_files import Measured, write_scored
from cdp.data.views import read_views
from cdp.errors import InputError
from cdp.labeling.figures import measure_labeling
from cdp.labeling.labeling import Labeling
from cdp.labeling.pipeline import label
from cdp.runtime.runtime import Runtime
from cdp.scoring.settings import ConsensusSettings
from cdp.settings import plain
from cdp.storage.files import locked
from cdp.types import Views
from cdp.types.arrays import BoolArray
from cdp.types.run_record import PartRecord


def replace_embeddings(
    collection: Collection,
    sources: Sequence[Path],
    models: str = "",
    *,
    reliable: BoolArray | None = None,
    runtime: Runtime | None = None,
) -> tuple[Collection, Changes]:
    """Label the images of a collection again by other embeddings; its folder changes at once or not at all.

    Args:
        collection: whose embeddings are replaced.
        sources: where the new embeddings of every batch are stored, in order.
        models: where the models are, for whoever adds photos later.
        reliable: bool (n,), images on which the threshold is estimated; all unless given.
        runtime: how it runs.

    Raises:
        InputError: labeled images were embedded by other models, or there are not as many embeddings as
            images.
    """
    runtime, folder = runtime or Runtime(), collection.folder
    if collection.state.labeled:
        raise InputError(
            f"{folder} learned from labeled images, whose embeddings would have to be replaced too; label "
            "the images again.",
            code="labeled-images-embedded-before",
            folder=folder,
        )
    with locked(folder):
        now = open_collection(folder)
        batches, whole = _write_batches(now, sources)
        constraints = now.constraints
        labeling = label(
            whole,
            replace(now.settings, k=max(now.settings.k, ConsensusSettings.of().k)),
            constraints=constraints if len(constraints) else None,
            reliable=reliable,
            keep_scored=True,
            seed=now.state.seed,
            runtime=runtime,
        )
        _write_scored(numbered(folder, "scored", batches[-1] + 1), labeling, whole, now.state.seed, runtime)
        state = msgspec.structs.replace(
            now.state,
            batches=batches,
            scored=batches[-1] + 1,
            consensus=plain(labeling.settings),
            threshold=labeling.threshold,
            n_trained=whole.n_images,
            notes=labeling.notes,
            models=models or now.state.models,
        )
        changes = write_groups(folder, state, now.identity, now.named, "embedded", now.describe)
        write_outputs(open_collection(folder))
        for batch in now.batches:
            _remove_inside(batch.source, folder)
            shutil.rmtree(batch.folder, ignore_errors=True)
    return open_collection(folder), changes


def _write_scored(place: Path, labeling: Labeling, views: Views, seed: int, runtime: Runtime) -> None:
    assert labeling.kept is not None
    results = measure_labeling(labeling, views, seed=seed, runtime=runtime)
    counted = {"unlabeled": PartRecord(images=views.n_images)}
    measured = Measured(results=results, seconds=labeling.seconds, parts=counted)
    write_scored(place, labeling.kept, labeling.mediator, measured, with_graphs=False)


def _write_batches(now: Collection, sources: Sequence[Path]) -> tuple[tuple[int, ...], Views]:
    """Write the new embeddings of every batch by reference; their numbers, and all embeddings as one."""
    parts = [read_views(source) for source in sources]
    number, numbers = now.state.newest, []
    for batch, views, source in zip(now.batches, parts, sources, strict=True):
        if views.n_images != batch.facts.n_images:
            raise InputError(
                f"{source}: {views.n_images:,} embeddings of {batch.facts.n_images:,} images; embed all of "
                "them.",
                code="embeddings-not-as-many",
                file=source,
                expected=batch.facts.n_images,
                found=views.n_images,
            )
        number += 1
        numbers.append(number)
        write_batch(now.folder, number, views, source, batch.images)
    return tuple(numbers), Views.concatenate([Views(one.base, one.committee) for one in parts])


def _remove_inside(source: Path, folder: Path) -> None:
    """Remove embeddings that no longer count, if they are the collection's own."""
    if Path(os.path.realpath(source)).is_relative_to(os.path.realpath(folder)):
        shutil.rmtree(source, ignore_errors=True)
