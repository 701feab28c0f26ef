"""All embeddings of a collection as one: its batches, new images after them, and the labeled images last."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cdp.collection.collection import Collection
from cdp.collection.collection_folder import open_batch
from cdp.errors import InputError
from cdp.labeling.density_matching import use_share
from cdp.runtime.memory import parse_bytes
from cdp.runtime.runtime import Runtime
from cdp.types import Views


@contextmanager
def read_all_views(
    collection: Collection, new: Views | None, runtime: Runtime, share: float = 1.0
) -> Iterator[Views]:
    """Read the embeddings of all images, in one piece on disk where they are larger than the memory budget.

    Args:
        collection: whose embeddings they are; they are read in place.
        new: images that follow the collection's own.
        runtime: how it runs.
        share: of the labeled images that are used.

    Raises:
        InputError: embeddings are gone or changed, or the new images were seen by other models.
    """
    old = [batch.read() for batch in collection.batches]
    seed = collection.state.seed
    labeled = [use_share(views, share, seed) for views in read_labeled_views(collection)]
    if new is not None:
        _check_models(old[0], new)
    parts = [*old, *([] if new is None else [new]), *labeled]
    size = sum(model.source.nbytes for views in parts for model in views)
    bare = [Views(part.base, part.committee) for part in parts]
    if size <= parse_bytes(runtime.settings.memory_budget):
        yield Views.concatenate(bare)
        return
    with tempfile.TemporaryDirectory(prefix=".views-", dir=collection.folder) as folder:
        yield Views.concatenate(bare, Path(folder))


def read_labeled_views(collection: Collection) -> list[Views]:
    """Return the embeddings of all labeled images with their identities: one part, or none."""
    return [open_batch(collection.folder, number).read() for number in collection.state.labeled]


def _check_models(old: Views, new: Views) -> None:
    theirs, ours = (
        {name: model.dimensions for name, model in zip(views.names, views, strict=True)}
        for views in (new, old)
    )
    if theirs != ours:
        raise InputError(
            f"The new images have the models {theirs} (name: dimensions), the collection has {ours}; embed "
            "them with the same models.",
            code="views-models-differ",
            expected=ours,
            found=theirs,
        )
