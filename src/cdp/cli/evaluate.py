"""`cdp eval labels`: labels from any tool against true identities."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from cdp.cli.tables import print_label_figures
from cdp.data.views import read_identities, read_views
from cdp.errors import InputError
from cdp.evaluate.label_figures import measure_labels
from cdp.types import Labels
from cdp.types.arrays import LongArray


def evaluate_labels(labels: Path, identities: Path, *, as_json: bool) -> None:
    """Read both, measure, print."""
    figures = measure_labels(_read_labels(labels), read_truth(identities))
    if as_json:
        print(json.dumps(figures.as_dict(), indent=2, allow_nan=False))
    else:
        print_label_figures(figures)


def _read_labels(path: Path) -> Labels:
    if path.is_dir():
        return Labels.load(path)
    numbers = read_identities(path)
    if numbers.dtype.kind not in "iu":
        raise InputError(f"{path}: labels are whole numbers, -1 = discarded.")
    return Labels.from_array(numbers)


def read_truth(path: Path) -> LongArray:
    """True identities from a file of them, or from views that carry them."""
    if path.is_dir() or path.suffix in (".npz", ".parquet"):
        views = read_views(path)
        if views.identities is None:
            raise InputError(f"{path}: these views carry no identities.")
        return views.identities
    truth = read_identities(path)
    if truth.dtype.kind not in "iu":
        truth = np.unique(truth, return_inverse=True)[1]
    numbers: LongArray = truth.astype(np.int64)
    return numbers
