"""Output of labels: one table schema, groups to check first, and the label folder of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from cdp.grouping.cohesion import GroupTies, tie_groups
from cdp.labeling.labeling import Labeling
from cdp.settings import plain
from cdp.storage.artifacts import fill
from cdp.storage.files import replacing, write_json
from cdp.types import ConsensusGraph, Labels, Status
from cdp.types.arrays import IntArray, LongArray
from cdp.types.run_record import Results

if TYPE_CHECKING:
    import pyarrow as pa

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")
SOFT_LABELS = "soft_labels.npz"


def write_labeling(
    folder: Path,
    labeling: Labeling,
    results: Results,
    *,
    paths: Sequence[str] | None = None,
    made_from: Mapping[str, str] | None = None,
) -> None:
    """Write the label folder of a run: arrays, tables, soft labels, mediator and `metrics.json`.

    Args:
        folder: to fill.
        labeling: what `label` gave.
        results: its figures.
        paths: where the images are, if known.
        made_from: hashes of the inputs, for the card.
    """
    graphs = {
        name: {
            "method": graph.method,
            "recall": graph.recall,
            "same_identity_recall": labeling.same_identity_recall.get(name),
        }
        for name, graph in labeling.graphs.items()
    }
    card = {
        **plain(labeling.settings),
        "graphs": graphs,
        "seconds": labeling.seconds,
        "notes": list(labeling.notes),
    }
    fill(folder, labeling.labels, settings=card, made_from=made_from)
    if labeling.mediator is not None:
        fill(folder / "mediator", labeling.mediator, made_from=made_from)
    if labeling.soft_labels is not None:
        write_soft_labels(folder, labeling.soft_labels)
    write_tables(folder, label_table(labeling.labels, paths=paths))
    write_doubts(folder, labeling.labels, labeling.scored, labeling.settings.k)
    write_json(folder / "metrics.json", msgspec.to_builtins(results))


def write_soft_labels(folder: Path, soft: Any) -> None:
    """Write soft_labels.npz; column j is the j-th identity by first appearance."""
    from scipy import sparse

    with replacing(folder / SOFT_LABELS) as file:
        sparse.save_npz(file, soft)


def label_table(
    labels: Labels,
    identity: IntArray | None = None,
    *,
    paths: Sequence[str] | None = None,
    photos: Sequence[str] | None = None,
    names: Mapping[int, str] | None = None,
) -> pa.Table:
    """Build the label table: row, path, photo, identity, name, status, confidence; unknown text is empty.

    Args:
        labels: one per image.
        identity: int32 (n,), the identities' own numbers; unless given, those of the labels.
        paths: where the images are.
        photos: the photos that they were cut from.
        names: of identities.
    """
    import pyarrow as pa

    numbers = labels.labels if identity is None else identity
    nothing = pa.array([""]).take(pa.array(np.zeros(len(labels), np.int64)))
    known = sorted((names or {}).items())
    called = pa.array([name for _, name in known] + [""])
    at = np.full(int(max([numbers.max(initial=-1), *(one for one, _ in known)])) + 2, len(known))
    at[[one for one, _ in known]] = np.arange(len(known))
    statuses = pa.array([kind.name.lower() for kind in Status])
    return pa.table(
        {
            "row": np.arange(labels.n_images),
            "path": nothing if paths is None else pa.array(list(paths), pa.string()),
            "photo": nothing if photos is None else pa.array(list(photos), pa.string()),
            "identity": numbers,
            "name": called.take(pa.array(at[numbers])),
            "status": statuses.take(pa.array(labels.status)),
            "confidence": labels.confidence,
        }
    )


def write_tables(folder: Path, table: pa.Table, *, quote_formulas: bool = False) -> None:
    """Write labels.csv and labels.parquet, each whole or not at all.

    Args:
        folder: to write to.
        table: see `label_table`.
        quote_formulas: put an apostrophe before texts in labels.csv that a spreadsheet would take for a
            formula. Paths then no longer name the files, so this is not done unless asked for.
    """
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    with replacing(folder / "labels.parquet") as file:
        # Row numbers and confidences hardly repeat; only texts are stored as entries of a dictionary.
        pyarrow.parquet.write_table(table, file, use_dictionary=["path", "photo", "name", "status"])
    if quote_formulas:
        for at, name in enumerate(table.column_names):
            if name in ("path", "photo", "name"):
                texts = table.column(name).to_pylist()
                harmless = [f"'{text}" if text.startswith(_FORMULA_STARTS) else text for text in texts]
                table = table.set_column(at, name, pa.array(harmless, pa.string()))
    with replacing(folder / "labels.csv") as file:
        pyarrow.csv.write_csv(table, file)


def write_doubts(
    folder: Path, labels: Labels, scored: ConsensusGraph, k: int, numbers: LongArray | None = None
) -> GroupTies:
    """Write mixed_groups.csv and split_groups.csv: likely mixed groups, and likely split identities.

    Returns the pairs of groups, the most probable ones first.

    Args:
        folder: to write to.
        labels: one per image.
        scored: all pairs that count when groups are made.
        k: neighbors per image.
        numbers: the number of every label's identity; unless given, the label.
    """
    import pyarrow as pa
    import pyarrow.csv

    own = np.arange(labels.n_identities) if numbers is None else numbers
    mixed = rank_mixed_groups(labels)
    mixed["identity"] = own[mixed["identity"]]
    split = tie_groups(scored, labels, k)
    sizes = np.bincount(labels.labels[labels.labels >= 0], minlength=1)
    columns = {
        "identity": own[split.ids[:, 0]],
        "other_identity": own[split.ids[:, 1]],
        "images": sizes[split.ids[:, 0]],
        "other_images": sizes[split.ids[:, 1]],
        "probability": split.probability.round(6),
    }
    for name, table in (("mixed_groups", mixed), ("split_groups", columns)):
        with replacing(folder / f"{name}.csv") as file:
            pyarrow.csv.write_csv(pa.table(table), file)
    return split


def rank_mixed_groups(labels: Labels) -> dict[str, Any]:
    """Return every group with its mean confidence and its least certain image, most doubtful pairs first."""
    kept = labels.labels >= 0
    found = labels.labels[kept]
    sizes = np.bincount(found, minlength=labels.n_identities)
    confidence = np.bincount(found, labels.confidence[kept], labels.n_identities) / np.maximum(sizes, 1)
    # Of each group the image with the lowest confidence: sorted by it, the first of every group.
    rows = np.flatnonzero(kept)
    rows = rows[np.lexsort((rows, labels.confidence[rows]))]
    _, first = np.unique(labels.labels[rows], return_index=True)
    wrong = (1 - confidence) * sizes * (sizes - 1) / 2
    order = np.argsort(-wrong, kind="stable")
    return {
        "identity": order,
        "images": sizes[order],
        "confidence": confidence[order].round(4),
        "doubtful_pairs": wrong[order].round(1),
        "least_certain_row": rows[first][order],
    }
