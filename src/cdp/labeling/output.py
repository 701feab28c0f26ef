"""A labeling as a folder: the same for `cdp label` and for the labels of `cdp run`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from cdp.consensus.group_ties import tie_groups
from cdp.consensus.settings import plain
from cdp.files import write_json
from cdp.labeling.judged import Labeling
from cdp.store import fill
from cdp.types import Fate, Labels
from cdp.types.run_record import Results

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r")


def write_labeling(
    folder: Path,
    labeling: Labeling,
    results: Results,
    *,
    paths: tuple[str, ...] | None = None,
    about: Mapping[str, Any] | None = None,
    made_from: Mapping[str, str] | None = None,
    quote_formulas: bool = False,
) -> None:
    """Fill a folder that is being written.

    It holds the labels as arrays and as `labels.csv` and `labels.parquet`, soft labels if there are any, the accepted
    pairs, the mediator, the base's graph, what to look at first, and `metrics.json` with all figures.

    Args:
        folder: to fill.
        labeling: what `label` gave.
        results: its figures.
        paths: where the images lie, if known.
        about: more settings for the card.
        made_from: hashes of the inputs, for the card.
        quote_formulas: see `write_tables`.
    """
    graphs = {
        name: {
            "method": graph.method,
            "recall": graph.recall,
            "same_identity_recall": labeling.same_identity_recall.get(name),
        }
        for name, graph in labeling.graphs.items()
    }
    settings = {**plain(labeling.settings), **(about or {})}
    card = {**settings, "graphs": graphs, "seconds": labeling.seconds, "notes": list(labeling.notes)}
    fill(folder, labeling.labels, settings=card, made_from=made_from)
    fill(folder / "consensus", labeling.accepted, settings=settings, made_from=made_from)
    fill(folder / "base_graph", next(iter(labeling.graphs.values())), settings={"k": labeling.settings.k})
    if labeling.mediator is not None:
        fill(folder / "mediator", labeling.mediator, made_from=made_from)
    if labeling.soft_labels is not None:
        from scipy import sparse

        sparse.save_npz(folder / "soft_labels.npz", labeling.soft_labels)
    write_tables(folder, labeling.labels, paths, quote_formulas=quote_formulas)
    write_doubts(folder, labeling)
    write_json(folder / "metrics.json", msgspec.to_builtins(results))


def write_tables(
    folder: Path, labels: Labels, paths: tuple[str, ...] | None, *, quote_formulas: bool = False
) -> None:
    """labels.csv, labels.parquet and meta.txt: the same labels for people and other programs.

    Args:
        folder: to fill.
        labels: one per image.
        paths: where the images lie, if known.
        quote_formulas: put an apostrophe before paths in labels.csv that a spreadsheet would take for a formula. They
            then no longer name the files, so this is not done unless asked for.
    """
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    fates = pa.array([kind.name.lower() for kind in Fate]).take(pa.array(labels.fate))
    columns: dict[str, Any] = {"row": np.arange(labels.n_images)}
    if paths is not None:
        columns["path"] = list(paths)
    columns |= {"label": labels.labels, "fate": fates, "confidence": labels.confidence}
    table = pa.table(columns)
    pyarrow.parquet.write_table(table, folder / "labels.parquet")
    if quote_formulas and paths is not None:
        harmless = [f"'{path}" if path.startswith(_FORMULA_STARTS) else path for path in paths]
        table = table.set_column(1, "path", pa.array(harmless, pa.string()))
    pyarrow.csv.write_csv(table, folder / "labels.csv")
    np.savetxt(folder / "meta.txt", labels.labels, fmt="%d")


def write_doubts(folder: Path, labeling: Labeling) -> None:
    """mixed_groups.csv and split_groups.csv: groups that are likely two identities, and pairs of groups that are likely one."""
    import pyarrow as pa
    import pyarrow.csv

    mixed = rank_mixed_groups(labeling.labels)
    split = tie_groups(labeling.scored, labeling.labels, labeling.settings.k)
    sizes = np.bincount(labeling.labels.labels[labeling.labels.labels >= 0], minlength=1)
    pyarrow.csv.write_csv(pa.table(mixed), folder / "mixed_groups.csv")
    columns = {
        "label": split.ids[:, 0],
        "other_label": split.ids[:, 1],
        "images": sizes[split.ids[:, 0]],
        "other_images": sizes[split.ids[:, 1]],
        "probability": split.probability.round(6),
    }
    pyarrow.csv.write_csv(pa.table(columns), folder / "split_groups.csv")


def rank_mixed_groups(labels: Labels) -> dict[str, Any]:
    """Every group with its mean confidence and its least certain image, most doubtful pairs first."""
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
        "label": order,
        "images": sizes[order],
        "confidence": confidence[order].round(4),
        "doubtful_pairs": wrong[order].round(1),
        "least_certain_row": rows[first][order],
    }
