"""Plots: ROC and CMC curves with shaded intervals, and the rate against more distractors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from cdp.errors import InputError, MissingExtraError, install_command
from cdp.evaluate.identification import Identification
from cdp.evaluate.verification import Verification
from cdp.storage.files import check_output, replacing

_KINDS = (".png", ".svg", ".pdf")


def check_picture(file: Path, *, force: bool = False, inputs: Iterable[str | Path | None] = ()) -> None:
    """Find out before the work starts whether a picture can be written there."""
    if file.suffix.lower() not in _KINDS:
        raise InputError(
            f"{file}: a picture ends in {', '.join(_KINDS)}.", code="picture-ending-wrong", file=file
        )
    check_output(file, force=force, inputs=inputs)
    if not file.absolute().parent.is_dir():
        raise InputError(
            f"{file.parent}: no such folder to write the picture into; make it first.",
            code="picture-folder-missing",
            folder=file.parent,
        )
    _figure_class()


def draw_roc(results: Mapping[str, Verification], file: Path) -> None:
    """Draw the ROC of one network or several, FPR on a logarithmic axis, 95 % intervals shaded.

    The curve starts where the FPR allows one false accept; to the left of that it would rest on nothing.
    """
    figure = _figure_class()(figsize=(6.4, 4.8), layout="constrained")
    axes = figure.add_subplot()
    for name, result in results.items():
        fpr, tpr, low, high = result.curve[~np.isnan(result.curve[:, 1])].T
        (line,) = axes.plot(fpr, tpr, label=name)
        axes.fill_between(fpr, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
    axes.set(xscale="log", xlabel="false positive rate", ylabel="true positive rate", ylim=(None, 1.005))
    axes.grid(alpha=0.3)
    axes.legend(loc="lower right")
    _save(figure, file)


def draw_cmc(
    results: Mapping[str, Identification], file: Path, *, replicates: int = 1000, seed: int = 0
) -> None:
    """Draw the CMC at the largest number of distractors, and rank-1 by their number; intervals shaded."""
    figure = _figure_class()(figsize=(10, 4.4), layout="constrained")
    left, right = figure.subplots(1, 2)
    for name, result in results.items():
        ranks, rates = result.cmc()
        last = max(result.sizes[-1], 2)
        shown = np.unique(np.geomspace(1, last, 50).astype(np.int64))
        at = np.searchsorted(ranks, shown, side="right") - 1
        values = np.where(at >= 0, rates[np.maximum(at, 0)], 0.0)
        (line,) = left.plot(shown, values, label=name)
        growth = result.figures[: len(result.sizes)]
        right.plot(result.sizes, [point.rate for point in growth], marker="o", label=name)
        if replicates:
            low, high = result.cmc_band(shown, replicates, seed)
            left.fill_between(shown, low, high, color=line.get_color(), alpha=0.2, linewidth=0)
        bands = [point.interval for point in growth]
        if all(band is not None for band in bands):
            lows, highs = zip(*((band.low, band.high) for band in bands if band is not None), strict=True)
            right.fill_between(result.sizes, lows, highs, color=line.get_color(), alpha=0.2, linewidth=0)
    left.set(xscale="log", xlabel="rank", ylabel="identification rate", ylim=(None, 1.005))
    right.set(xscale="log", xlabel="distractors", ylabel="rank-1 rate", ylim=(None, 1.005))
    for axes in (left, right):
        axes.grid(alpha=0.3)
    left.legend(loc="lower right")
    _save(figure, file)


def _figure_class() -> Any:
    try:
        # Not pyplot: nothing here needs a display or global state.
        from matplotlib.figure import Figure
    except ImportError:
        raise MissingExtraError(
            f"Pictures need matplotlib; install it with {install_command('pictures')}.",
            code="matplotlib-missing",
            extra="pictures",
        ) from None
    return Figure


def _save(figure: Any, file: Path) -> None:
    with replacing(file) as partial:
        figure.savefig(partial, dpi=150)
