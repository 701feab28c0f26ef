"""Creation of a collection: label images and store what review and extension need."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from cdp.collection.collection import Collection, ViewsSource, open_collection
from cdp.collection.collection_folder import KIND, State, numbered, write_batch
from cdp.collection.corrections import Correction, append_unsaid, to_constraints
from cdp.collection.outputs import write_outputs
from cdp.collection.regrouping import write_groups
from cdp.collection.scored_files import Measured, write_scored
from cdp.data.views import name_identities, read_views
from cdp.labeling.figures import measure_labeling
from cdp.labeling.labeling import Labeling
from cdp.labeling.pipeline import label
from cdp.runtime.runtime import Runtime
from cdp.scoring.settings import ConsensusSettings
from cdp.settings import plain
from cdp.storage.files import writing_folder
from cdp.types import Views
from cdp.types.run_record import PartRecord, Results

Source = Path | Mapping[str, Path] | None
"""Where embeddings are stored: one place, one per model, or nowhere."""


@dataclass(frozen=True)
class Origin:
    """Where the images of a new collection come from, and what is known of them already.

    Attributes:
        source, labeled_source: where embeddings are stored; those that are stored nowhere are written into
            the collection.
        how: what `read_views` needs to read them again.
        images: the folder that the images' relative paths start from, if it is to move with the collection.
        models: folder of the models that embedded the images, where these are faces on photos.
        names: identity number of a labeled person -> name.
        corrections: what groups must keep.
        notes: what is said of the embeddings, for the report.
        seed: of everything random.
    """

    source: Source = None
    labeled_source: Source = None
    how: Mapping[str, Any] = field(default_factory=dict)
    images: Path | None = None
    models: str = ""
    names: Mapping[int, str] = field(default_factory=dict)
    corrections: tuple[Correction, ...] = ()
    notes: tuple[str, ...] = ()
    seed: int = 0


def create_collection(
    folder: str | Path,
    views: ViewsSource,
    *,
    labeled: Sequence[ViewsSource] = (),
    settings: ConsensusSettings | None = None,
    names: Mapping[int, str] | None = None,
    corrections: Iterable[Correction] = (),
    seed: int = 0,
    force: bool = False,
    runtime: Runtime | None = None,
) -> Collection:
    """Label images and keep everything that reviewing them and adding more will need.

    Args:
        folder: to write; whole or not at all.
        views: the images; a path is referred to, views in memory are written into the collection.
        labeled: views with identities to learn from.
        settings: of section 3.1; unless given, those of the preset `best`.
        names: identity number in `labeled` -> name, unless the file of the labeled images has it. Where
            labeled and unlabeled images may show the same people (disjoint = false), groups that show a
            labeled identity get these names.
        corrections: what is known of the images already.
        seed: of everything random.
        force: replace a collection that is there.
        runtime: how it runs.
    """
    unlabeled, *parts = [one if isinstance(one, Views) else read_views(one) for one in (views, *labeled)]
    stored = [None if isinstance(one, Views) else Path(one) for one in (views, *labeled)]
    labeled_source = stored[1] if len(labeled) == 1 else None
    if labeled_source is not None:
        names = name_identities(labeled_source, parts[0].identities) | dict(names or {})
    origin = Origin(stored[0], labeled_source, names=names or {}, corrections=tuple(corrections), seed=seed)
    settings, runtime = settings or ConsensusSettings.of(), runtime or Runtime()
    with writing_folder(folder, force=force, kind=KIND, inputs=stored) as partial:
        label_into(partial, unlabeled, parts, settings, origin, runtime)
        write_outputs(open_collection(partial))
    return open_collection(folder)


def label_into(
    folder: Path,
    unlabeled: Views,
    labeled: Sequence[Views],
    settings: ConsensusSettings,
    origin: Origin,
    runtime: Runtime,
    **options: Any,
) -> None:
    """Label images and write a collection into an existing folder, without its tables and report.

    Args:
        folder: to fill; it is a collection once its card is written, which comes last.
        unlabeled: the images.
        labeled: views with identities to learn from.
        settings: of section 3.1.
        origin: where the images come from, and what is known of them.
        runtime: how it runs.
        options: `fitted`, `validation` and `graphs`, as `label` takes them.
    """
    said = to_constraints(origin.corrections, unlabeled.n_images)
    labeling = label(
        unlabeled,
        settings,
        labeled=labeled,
        constraints=said if len(said) else None,
        keep_scored=True,
        seed=origin.seed,
        runtime=runtime,
        **options,
    )
    results = measure_labeling(labeling, unlabeled, seed=origin.seed, runtime=runtime)
    parts = {"unlabeled": unlabeled} | ({"labeled": labeled[0]} if labeled else {})
    with_graphs = options.get("graphs") is not None
    keep_labeling(
        folder, labeling, unlabeled, results, origin, parts, with_graphs=with_graphs, runtime=runtime
    )


def keep_labeling(
    folder: Path,
    labeling: Labeling,
    unlabeled: Views,
    results: Results,
    origin: Origin,
    parts: Mapping[str, Views],
    *,
    with_graphs: bool = False,
    runtime: Runtime | None = None,
) -> None:
    """Write a labeling as a collection into a folder; its card comes last, and makes it one.

    Args:
        folder: to fill.
        labeling: with all scored pairs.
        unlabeled: the images that were labeled.
        results: its figures.
        origin: where the images come from, and what is known of them.
        parts: what was given, to be counted for the report.
        with_graphs: store the k-NN graphs, because they were given and cannot be searched again.
        runtime: how arrays are written and hashed.
    """
    kept, joined = labeling.kept, labeling.joined
    assert kept is not None
    _write_batches(folder, unlabeled, joined, origin, parts, runtime)
    counted = {name: _count(views) for name, views in parts.items()}
    measured = Measured(results=results, seconds=labeling.seconds, parts=counted)
    place = numbered(folder, "scored", 1)
    write_scored(
        place,
        kept,
        labeling.mediator,
        measured,
        share=labeling.share,
        with_graphs=with_graphs,
        runtime=runtime,
    )
    append_unsaid(folder, origin.corrections)
    start = State(
        batches=(1,),
        labeled=() if joined is None else (2,),
        scored=1,
        groups=0,
        next_identity=0,
        consensus=plain(labeling.settings),
        threshold=labeling.threshold,
        seed=origin.seed,
        n_trained=unlabeled.n_images,
        labeled_names={str(number): name for number, name in origin.names.items()},
        notes=(*origin.notes, *labeling.notes),
        models=origin.models,
    )
    nothing = np.full(unlabeled.n_images, -1, np.int32)
    # A name keeps an image that is alone, which labeling does not know of.
    is_named = any(one.kind == "name" for one in origin.corrections)
    given = None if is_named else (labeling.labels, labeling.expected)
    write_groups(folder, start, nothing, {}, "created", given=given)


def _write_batches(
    folder: Path,
    unlabeled: Views,
    joined: Views | None,
    origin: Origin,
    parts: Mapping[str, Views],
    runtime: Runtime | None,
) -> None:
    write_batch(folder, 1, unlabeled, origin.source, origin.images, origin.how, runtime)
    if joined is not None:
        # Where they are all that was given, they are stored there; else some were held out, and are stored
        # nowhere.
        is_whole = "labeled" in parts and joined.n_images == parts["labeled"].n_images
        source = origin.labeled_source if is_whole else None
        write_batch(folder, 2, joined, source, None, origin.how, runtime)


def _count(views: Views) -> PartRecord:
    n_identities = (
        None if views.identities is None else len(np.unique(views.identities[views.identities >= 0]))
    )
    return PartRecord(images=views.n_images, identities=n_identities or None)
