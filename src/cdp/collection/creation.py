"""A new collection: images are labeled, and everything that reviewing them and adding more will need is kept."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from cdp.collection.collection import Collection, ViewsSource, open_collection
from cdp.collection.collection_folder import KIND, Parts, numbered, write_batch
from cdp.collection.corrections import Correction, append_unsaid, to_constraints
from cdp.collection.outputs import write_outputs
from cdp.collection.regrouping import write_groups
from cdp.collection.scored_files import Measured, write_scored
from cdp.consensus.settings import ConsensusSettings, plain
from cdp.data.views import read_views
from cdp.files import writing_folder
from cdp.labeling.figures import measure_labeling
from cdp.labeling.judged import Labeling
from cdp.labeling.pipeline import label
from cdp.labeling.workspace import Workspace
from cdp.types import Views
from cdp.types.run_record import PartRecord, Results

Source = Path | Mapping[str, Path] | None
"""Where embeddings are stored: one place, one per model, or nowhere."""


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
    quote_formulas: bool = False,
    source: Path | None = None,
    labeled_source: Path | None = None,
    inputs: Sequence[str | Path | None] = (),
    models: str = "",
    workspace: Workspace | None = None,
    in_place: bool = False,
    how: Mapping[str, Any] | None = None,
    **options: Any,
) -> Collection:
    """Label images and keep everything that reviewing them and adding more will need.

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
        quote_formulas: see `write_tables`.
        source, labeled_source: where views and labeled views in memory were read from, to be referred to.
        inputs: what else is read and is never replaced.
        models: folder of the models that embedded the images, where these are faces on photos.
        workspace: engine, cache and progress.
        in_place: the folder is there, with other things that belong to the collection; it counts once its card is written.
        how: what `read_views` needs to read the embeddings again.
        options: `fitted`, `validation` and `graphs`, as `label` takes them.
    """
    work = workspace or Workspace()
    unlabeled, *parts = [one if isinstance(one, Views) else read_views(one) for one in (views, *labeled)]
    source = source if isinstance(views, Views) else Path(views)
    if labeled_source is None and len(labeled) == 1 and not isinstance(labeled[0], Views):
        labeled_source = Path(labeled[0])
    corrections = list(corrections)

    def fill_folder(place: Path) -> None:
        said = to_constraints(corrections, unlabeled.n_images)
        labeling = label(
            unlabeled,
            settings or ConsensusSettings.of(),
            labeled=parts,
            constraints=said if len(said) else None,
            keep_judged=True,
            seed=seed,
            workspace=work,
            **options,
        )
        others = None if labeling.judged is None else labeling.judged.others
        # Where they are all that was given, they are stored there; else some were held out, and are stored nowhere.
        is_whole = others is not None and len(parts) == 1 and others.n_images == parts[0].n_images
        results = measure_labeling(labeling, unlabeled, seed=seed, scratch=work.scratch)
        keep_labeling(
            place,
            labeling,
            unlabeled,
            results,
            source=source,
            known_source=labeled_source if is_whole else None,
            parts={"unlabeled": unlabeled} | ({"labeled": parts[0]} if parts else {}),
            names=names,
            corrections=corrections,
            images=images,
            seed=seed,
            with_graphs=options.get("graphs") is not None,
            models=models,
            how=how,
        )
        write_outputs(open_collection(place), quote_formulas=quote_formulas)

    if in_place:
        fill_folder(Path(folder))
    else:
        read = [source, labeled_source, *inputs, *(one for one in labeled if not isinstance(one, Views))]
        with writing_folder(folder, force=force, kind=KIND, inputs=read) as partial:
            fill_folder(partial)
    return open_collection(folder)


def keep_labeling(
    folder: Path,
    labeling: Labeling,
    unlabeled: Views,
    results: Results,
    *,
    source: Source,
    known_source: Source = None,
    parts: Mapping[str, Views] | None = None,
    names: Mapping[int, str] | None = None,
    corrections: Sequence[Correction] = (),
    images: Path | None = None,
    seed: int = 0,
    with_graphs: bool = False,
    models: str = "",
    how: Mapping[str, Any] | None = None,
) -> None:
    """Write a labeling as a collection into a folder; its card comes last, and makes it one.

    Args:
        folder: to fill.
        labeling: with all judged pairs.
        unlabeled: the images that were labeled.
        results: its figures.
        source: where their embeddings are stored; those that are stored nowhere are written into the collection.
        known_source: the same of the labeled images that are among them.
        parts: what was given, to be counted for the report.
        names: identity number of a labeled person -> name.
        corrections: what the labels were made under.
        images: the folder that the images' relative paths start from.
        seed: of everything random.
        with_graphs: store the k-NN graphs, because they were given and cannot be searched again.
        models: folder of the models that embedded the images, where these are faces on photos.
        how: what `read_views` needs to read the embeddings again.
    """
    judged = labeling.judged
    assert judged is not None
    write_batch(folder, 1, unlabeled, source, images, how)
    known: tuple[int, ...] = ()
    if judged.others is not None:
        write_batch(folder, 2, judged.others, known_source, None, how)
        known = (2,)
    counted = {name: _count(views) for name, views in (parts or {}).items()}
    measured = Measured(results=results, seconds=labeling.seconds, parts=counted)
    write_scored(numbered(folder, "scored", 1), judged, labeling.mediator, measured, with_graphs=with_graphs)
    append_unsaid(folder, corrections)
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
        models=models,
    )
    nothing = np.full(unlabeled.n_images, -1, np.int32)
    # A name keeps an image that is alone, which labeling does not know of.
    given = None if any(one.kind == "name" for one in corrections) else (labeling.labels, labeling.expected)
    write_groups(folder, start, nothing, {}, "created", given=given)


def _count(views: Views) -> PartRecord:
    known = None if views.identities is None else len(np.unique(views.identities[views.identities >= 0]))
    return PartRecord(images=views.n_images, identities=known or None)
