"""A labeling as a folder: the same for `cdp label` and for the labels of `cdp run`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from cdp.consensus.settings import plain
from cdp.files import write_json
from cdp.labeling.pipeline import Labeling
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
    pairs, the mediator, the base's graph, and `metrics.json` with all figures.

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
        name: {"method": graph.method, "recall": graph.recall} for name, graph in labeling.graphs.items()
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

    fates = np.array([kind.name.lower() for kind in Fate])[labels.fate]
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
