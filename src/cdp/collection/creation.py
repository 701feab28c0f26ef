"""A new collection: images are labeled, and everything that labeling more of them will need is kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cdp.collection.collection import Collection, ViewsSource, open_collection
from cdp.collection.collection_folder import KIND, Parts, numbered, write_batch
from cdp.collection.corrections import Correction, append_corrections, to_constraints
from cdp.collection.judged_files import write_judged
from cdp.collection.regrouping import write_groups
from cdp.consensus.settings import ConsensusSettings, plain
from cdp.data.views import read_views
from cdp.files import writing_folder
from cdp.labeling.judged import Judged
from cdp.labeling.pipeline import label
from cdp.labeling.workspace import Workspace
from cdp.types import Views


def create_collection(
    folder: str | Path,
    views: ViewsSource,
    *,
    labeled: Sequence[ViewsSource] = (),
    settings: ConsensusSettings | None = None,
    names: Mapping[int, str] | None = None,
    corrections: Iterable[Correction] = (),
    images: Path | None = None,
    seed: int = 0,
    force: bool = False,
    workspace: Workspace | None = None,
) -> Collection:
    """Label images and keep everything that labeling more of them will need.

    Args:
        folder: to write; whole or not at all.
        views: the images; a path is referred to, views in memory are written into the collection.
        labeled: views with identities to learn from.
        settings: of section 3.1; unless given, those of the preset `best`.
        names: identity number in `labeled` -> name. Where known and unknown images may show the same people (disjoint =
            false), groups that show a known person get these names.
        corrections: what is known of the images already.
        images: the folder that the images' relative paths start from, if it is to move with the collection.
        seed: of everything random.
        force: replace a collection that is there.
        workspace: engine, cache and progress.
    """
    settings = settings or ConsensusSettings.of()
    inputs = [one for one in (views, *labeled) if not isinstance(one, Views)]
    with writing_folder(folder, force=force, kind=KIND, inputs=inputs) as partial:
        unlabeled, *parts = [one if isinstance(one, Views) else read_views(one) for one in (views, *labeled)]
        corrections = list(corrections)
        said = to_constraints(corrections, unlabeled.n_images)
        options: dict[str, Any] = {"constraints": said, "keep_judged": True, "seed": seed}
        labeling = label(unlabeled, settings, labeled=parts, workspace=workspace, **options)
        assert labeling.judged is not None
        write_batch(partial, 1, unlabeled, None if isinstance(views, Views) else Path(views), images)
        known = _write_known(partial, labeling.judged, labeled, parts)
        write_judged(numbered(partial, "judged", 1), labeling.judged, labeling.mediator)
        append_corrections(partial, corrections)
        start = Parts(
            batches=(1,),
            known=known,
            judged=1,
            groups=0,
            next_identity=0,
            consensus=plain(labeling.settings),
            seed=seed,
            n_trained=unlabeled.n_images,
            known_names={str(number): name for number, name in (names or {}).items()},
            notes=labeling.notes,
            bar_is_chosen=labeling.unsupervised is not None,
        )
        nothing = np.full(unlabeled.n_images, -1, np.int32)
        write_groups(partial, start, nothing, {}, "created")
    return open_collection(folder)


def _write_known(
    folder: Path, judged: Judged, labeled: Sequence[ViewsSource], parts: Sequence[Views]
) -> tuple[int, ...]:
    """The numbers of the batches of known images, which are written here."""
    if judged.others is None:
        return ()
    # Where they are all that was given, they lie there; else some were held out, and lie nowhere.
    whole = len(labeled) == 1 and judged.others.n_images == parts[0].n_images
    source = labeled[0] if whole and not isinstance(labeled[0], Views) else None
    write_batch(folder, 2, judged.others, None if source is None else Path(source))
    return (2,)
