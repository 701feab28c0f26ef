"""What an album shows beside its collection: a table of who is on which photo, and a report with pictures."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from cdp import __version__
from cdp.collection.collection import Collection
from cdp.collection.collection_folder import numbered
from cdp.collection.judged_files import read_judged
from cdp.consensus.grouping import accepted_pairs
from cdp.consensus.settings import plain
from cdp.data.manifest_tables import read_some_columns, write_csv
from cdp.faces.align_photos import FACES
from cdp.files import replacing
from cdp.labeling.figures import measure_label_figures
from cdp.types import Labels, Manifest
from cdp.types.labels import number_by_first_appearance
from cdp.types.run_record import Results, RunRecord
from cdp.web.report.artifacts import Artifacts
from cdp.web.report.write import write_page
from cdp.web.words import counted

REPORT, LABELS = "report.html", "labels.csv"


def write_album_table(album: Path, people: Collection, faces: Sequence[Path]) -> int:
    """Write labels.csv: crop, photo, identity, name and confidence of every face; paths start from the album.

    Args:
        album: folder to write to.
        people: its collection.
        faces: the folders of crops, in the order of the collection's batches.

    Returns:
        on how many photos there are faces.
    """
    columns: dict[str, list[str]] = {"path": [], "photo": []}
    for folder in faces:
        found = read_some_columns(folder / FACES, lambda _file, _header: ["path", "photo"])
        for name, values in found.items():
            columns[name] += [os.path.normpath(os.path.join(folder.name, str(one))) for one in values]
    identity = people.identity.tolist()
    names = people.names
    with replacing(album / LABELS) as file:
        write_csv(
            file,
            {
                **columns,
                "identity": identity,
                "identity_name": [names.get(one, "") for one in identity],
                "confidence": [f"{one:.4f}" for one in people.confidence],
            },
        )
    return len(set(columns["photo"]))


def write_album_report(album: Path, people: Collection, n_photos: int) -> None:
    """Write report.html: groups with their pictures, figures, and how sure the bar is."""
    labels = Labels(number_by_first_appearance(people.identity), people.fate, people.confidence)
    judged, _ = read_judged(numbered(people.folder, "judged", people.parts.judged), people.settings)
    unknown = np.full(people.n_images, -1, np.int64)
    settings = people.settings
    record = RunRecord(
        cdp=__version__,
        recipe={"consensus": plain(settings)},
        results=Results(labels=measure_label_figures(labels, unknown, settings.bar_key, settings.bar)),
        notes=list(people.parts.notes),
    )
    # From the album, so that the page is the same wherever the album lies, and tells nobody's folders.
    paths = None if people.paths is None else tuple(os.path.relpath(one, album) for one in people.paths)
    artifacts = Artifacts(
        labels=labels,
        consensus=accepted_pairs(people.scored, labels, settings),
        base_graph=next(iter(judged.graphs.values())),
        images=None if paths is None else Manifest(paths, unknown, root=str(album)),
    )
    who = counted(labels.n_identities, "person", "people")
    title = f"{who} on {counted(n_photos, 'photo')}, {counted(people.n_images, 'face')}"
    write_page(record, artifacts, album / REPORT, title)
