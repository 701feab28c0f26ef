"""Tables, figures and the report of a collection, written whenever its groups change.

labels.csv, labels.parquet     row, path, photo, identity, name, status, confidence
mixed_groups.csv               groups that are most likely two identities
split_groups.csv               pairs of groups that are most likely one
soft_labels.npz                if `soft_depth` asks for them
metrics.json                   all figures
report.html                    the same as a page, with pictures

All of it follows from the other files: whatever is missing, damaged or older than the groups is made again
by `refresh_outputs`.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from cdp import __version__
from cdp.collection.collection import Collection, open_collection, read_groups_facts
from cdp.collection.collection_folder import Batch
from cdp.collection.image_root import find_image_root
from cdp.collection.scored_files import Measured, read_identities, read_measured
from cdp.data.manifest_tables import read_some_columns, read_table
from cdp.errors import CdpError, InputError
from cdp.grouping.cohesion import GroupTies
from cdp.grouping.group import accepted_pairs
from cdp.grouping.soft_labels import diffuse, likely_pairs
from cdp.labeling.figures import measure_label_figures
from cdp.labeling.joined_views import first_lists
from cdp.labeling.output import SOFT_LABELS, label_table, write_doubts, write_soft_labels, write_tables
from cdp.runtime.runtime import Runtime
from cdp.scoring.mediator import Mediator
from cdp.settings import plain
from cdp.storage.array_files import hash_contents
from cdp.storage.artifacts import load, read_json, read_run_record
from cdp.storage.files import check_writable, write_json
from cdp.types import KnnGraph, Labels, Manifest
from cdp.types.arrays import LongArray
from cdp.types.run_record import PartRecord, Results, RunRecord, StageRecord

if TYPE_CHECKING:
    from cdp.web.report.report_inputs import Artifacts

FACES, REPORT, METRICS = "faces.csv", "report.html", "metrics.json"
_STAMP = ".outputs"
_FILES = (
    "labels.csv",
    "labels.parquet",
    METRICS,
    REPORT,
    "mixed_groups.csv",
    "split_groups.csv",
    SOFT_LABELS,
)


class _Stamp(msgspec.Struct, frozen=True):
    """Which groups the files were written of, and the hash of each as it was written."""

    groups: int
    files: dict[str, str]


def refresh_outputs(folder: str | Path) -> None:
    """Write what people read again, if any of it is missing, damaged or older than the groups."""
    place = Path(folder)
    collection = open_collection(place)
    try:
        stamp: _Stamp | None = read_json(place / _STAMP, _Stamp)
    except CdpError:
        stamp = None
    if stamp is None or stamp.groups != collection.state.groups:
        check_writable(place)
        write_outputs(collection)
        return
    now = _hash_outputs(place)
    changed = [name for name, before in stamp.files.items() if now.get(name, before) != before]
    if now != stamp.files:
        check_writable(place)
        write_outputs(collection)
    if changed:
        warnings.warn(
            f"{place}: {', '.join(changed)} changed or damaged since written; written again.", stacklevel=2
        )


def _hash_outputs(folder: Path) -> dict[str, str]:
    """Return the hash of every file that people read; one that cannot be read counts as changed."""
    found = {}
    for name in _FILES:
        with suppress(FileNotFoundError):
            try:
                found[name] = hash_contents(folder / name)
            except InputError:
                found[name] = ""
    return found


def write_outputs(
    collection: Collection, *, quote_formulas: bool = False, record: RunRecord | None = None
) -> Results:
    """Write everything that people read of a collection, and return its figures.

    Args:
        collection: as it is now.
        quote_formulas: see `write_tables`.
        record: of the run that made it; unless given, it is read from the folder.
    """
    folder, settings = collection.folder, collection.settings
    labels = collection.labels
    scored = collection.scored
    paths, photos = _locations(collection)
    table = label_table(labels, collection.identity, paths=paths, photos=photos, names=collection.names)
    write_tables(folder, table, quote_formulas=quote_formulas)
    ties = write_doubts(folder, labels, scored, settings.k, _numbers(collection, labels))
    if settings.soft_depth:
        walked = likely_pairs(scored) if settings.grouping == "average" else scored
        write_soft_labels(folder, diffuse(walked, labels, settings.soft_depth, settings.soft_decay))
    else:
        (folder / SOFT_LABELS).unlink(missing_ok=True)
    measured = read_measured(collection.scored_place)
    results = _figures(collection, labels, measured)
    write_json(folder / METRICS, msgspec.to_builtins(results))
    _write_report(collection, labels, results, measured, ties, photos, record)
    write_json(folder / _STAMP, msgspec.to_builtins(_Stamp(collection.state.groups, _hash_outputs(folder))))
    return results


def _numbers(collection: Collection, labels: Labels) -> LongArray:
    """Return the number of every label's identity, int64 (groups,)."""
    numbers = np.zeros(labels.n_identities, np.int64)
    kept = labels.labels >= 0
    numbers[labels.labels[kept]] = collection.identity[kept]
    return numbers


def _locations(collection: Collection) -> tuple[list[str] | None, list[str] | None]:
    """Locate images and their photos, relative to the collection if they move with it."""
    home = os.path.realpath(collection.folder)
    photos: list[str] = []
    for batch in collection.batches:
        faces = batch.images
        if faces is not None and (faces / FACES).is_file():
            found = _photos_of(faces / FACES, batch)
            photos += [
                one and os.path.relpath(os.path.normpath(os.path.join(os.path.realpath(faces), one)), home)
                for one in found
            ]
        else:
            photos += [""] * batch.facts.n_images
    paths = None if collection.paths is None else [_shown(one, home) for one in collection.paths]
    return paths, photos if any(photos) else None


def _photos_of(table: Path, batch: Batch) -> list[str]:
    """Find the photo of every image of a batch in its table; empty where a damaged table lacks it."""

    def choose(file: Path, header: list[str]) -> list[str]:
        if missing := {"photo", "path"} - set(header):
            raise InputError(
                f"{file}: no column called {min(missing)}; find the faces again.",
                code="face-table-damaged",
                file=file,
            )
        return ["photo", "path"]

    columns = read_some_columns(table, choose)
    photos, crops = ([str(one) for one in columns[name]] for name in ("photo", "path"))
    if len(photos) == batch.facts.n_images:
        return photos
    by_crop = {os.path.basename(crop): photo for crop, photo in zip(crops, photos, strict=True)}
    return [by_crop.get(os.path.basename(one), "") for one in batch.paths or [""] * batch.facts.n_images]


def _shown(path: str, home: str) -> str:
    """Return an image inside the folder from there, any other as it was given."""
    return os.path.relpath(path, home) if path.startswith(home + os.sep) else path


def _truth(collection: Collection) -> LongArray:
    """Collect true identities; -1 where embeddings carry none, are gone or damaged."""
    parts = []
    for batch in collection.batches:
        try:
            identities = batch.identities
            if identities is not None and len(identities) != batch.facts.n_images:
                identities = None
        except CdpError as error:
            warnings.warn(f"{error} Tables and report are written without them.", stacklevel=2)
            identities = None
        parts.append(np.full(batch.facts.n_images, -1) if identities is None else identities)
    return np.concatenate(parts).astype(np.int64)


def _figures(collection: Collection, labels: Labels, measured: Measured) -> Results:
    """Collect the figures of the current groups.

    Figures of models, tuning and the mediator date from scoring.
    """
    settings, before = collection.settings, measured.results
    # What was learned from would flatter the result.
    learned = read_identities(collection.scored_place)[: collection.n_images] >= 0
    counted = np.where(learned, -1, _truth(collection))
    now = measure_label_figures(labels, counted, settings.threshold_kind, collection.state.threshold)
    if msgspec.structs.replace(before.labels, true=None) == msgspec.structs.replace(now, true=None):
        # The same groups: with what was counted among all candidate pairs, which are not stored.
        now = before.labels
    expected = read_groups_facts(collection).expected
    return msgspec.structs.replace(before, labels=now, expected=expected)


def _write_report(
    collection: Collection,
    labels: Labels,
    results: Results,
    measured: Measured,
    ties: GroupTies,
    photos: Sequence[str] | None,
    record: RunRecord | None,
) -> None:
    from cdp.web.report.write import write_page
    from cdp.web.words import counted

    title = ""
    if photos is not None:
        who = counted(labels.n_identities, "person", "people")
        title = f"{who} on {counted(len(set(photos)), 'photo')}, {counted(collection.n_images, 'face')}"
    about = _record(collection, results, measured, record)
    artifacts = report_artifacts(collection, labels, ties, photos)
    write_page(about, artifacts, collection.folder / REPORT, title)


def report_artifacts(
    collection: Collection, labels: Labels, ties: GroupTies, photos: Sequence[str] | None = None
) -> Artifacts:
    """Collect what a report shows besides figures: groups, pairs, pictures, photos, likely split groups."""
    from cdp.web.report.report_inputs import SPLITS_SHOWN, Artifacts, SplitGroups, first_layer

    place = collection.scored_place
    mediator = load(place / "mediator", Mediator) if (place / "mediator").is_dir() else None
    truth = _truth(collection)
    images = _pictures(collection, truth)
    likely = zip(ties.ids[:SPLITS_SHOWN].tolist(), ties.probability.tolist(), strict=False)
    return Artifacts(
        labels=labels,
        consensus=accepted_pairs(collection.scored, labels, collection.settings),
        base_graph=first_lists(load(place / "base_graph", KnnGraph), collection.n_images, Runtime()),
        weights=None if mediator is None else first_layer(mediator),
        images=images,
        identities=truth if (truth >= 0).any() and images is None else None,
        split_groups=tuple(SplitGroups(one, other, round(chance, 6)) for (one, other), chance in likely),
        numbers=_numbers(collection, labels),
        people=collection.names,
        photos=photos,
    )


def _pictures(collection: Collection, truth: LongArray) -> Manifest | None:
    """Locate the images, relative to the folder if they move with it."""
    if collection.paths is None:
        return None
    names = _true_names(collection)
    home, root = os.path.realpath(collection.folder), os.path.realpath(find_image_root(collection))
    full = [os.path.join(root, one) for one in collection.paths]
    if not all(one.startswith(home + os.sep) for one in full):
        return Manifest(tuple(collection.paths), truth, names, root)
    return Manifest(tuple(os.path.relpath(one, home) for one in full), truth, names, home)


def _true_names(collection: Collection) -> tuple[str, ...] | None:
    """Names of the true identities, which a run has in its tables."""
    table = collection.folder / "run" / "parts" / "unlabeled.csv"
    return read_table(table).names if table.is_file() else None


def _record(
    collection: Collection, results: Results, measured: Measured, given: RunRecord | None
) -> RunRecord:
    """Return the record of the run that made the collection, with the present figures, or of labeling."""
    made_by = collection.folder / "run" / "run.json"
    record = given or (read_run_record(made_by) if made_by.is_file() else None)
    if record is not None:
        whole = msgspec.structs.replace(record.results, labels=results.labels, expected=results.expected)
        return msgspec.structs.replace(record, results=whole)
    parts = dict(measured.parts)
    if parts.get("unlabeled", PartRecord(images=0)).images != collection.n_images:
        parts["unlabeled"] = PartRecord(images=collection.n_images)
    return RunRecord(
        cdp=__version__,
        seconds=sum(measured.seconds.values()),
        recipe={"consensus": plain(collection.settings)},
        parts=parts,
        stages=[StageRecord(name=name, group=name, seconds=took) for name, took in measured.seconds.items()],
        results=results,
        notes=list(collection.state.notes),
    )
