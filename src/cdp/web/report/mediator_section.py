"""The mediator: the weights of its first layer, and the importance of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

from cdp.types.arrays import FloatArray
from cdp.types.run_record import Importance, MediatorFigures, Results
from cdp.web.page_views import Bar, Chart, Table
from cdp.web.report.report_views import Section
from cdp.web.svg import bar_figure, color_scale, heat_map
from cdp.web.words import counted, decimals

_NAMES = ("mediator", "Mediator", "What the mediator uses")


def mediator_section(results: Results, weights: FloatArray | None) -> Section:
    """Heat map of the weights and permutation importance; a sentence if nothing was fitted."""
    mediator = results.mediator
    if mediator is None:
        how = "No mediator with weights."
        if results.labels.threshold_kind == "similarity":
            how = f"Pairs were accepted by vote of the committee members. {how}"
        elif results.calibration:
            how = (
                "Pairs were scored by gradient-boosted trees, trained on the labeled images. Their "
                "calibration is shown with the labels."
            )
        return Section(*_NAMES, text=how)
    columns, blocks = mediator.columns, mediator.blocks
    is_covered = sorted(column for block in blocks.values() for column in block) == list(range(len(columns)))
    if weights is not None and (len(columns) != len(weights) or not is_covered):
        weights = None
    return Section(
        *_NAMES,
        lead=_sentence(mediator),
        charts=_importance(mediator.importance),
        wide=[] if weights is None else [weights_chart(weights, columns, blocks)],
        tables=[] if weights is None else [_mean_table(weights, columns, blocks)],
        note="The weights of this mediator are not available." if weights is None else "",
    )


def _sentence(mediator: MediatorFigures) -> str:
    start = f"A small network scores {counted(len(mediator.columns), 'opinion')} about every pair."
    drop, block = max(((one.drop or 0.0, one.block) for one in mediator.importance), default=(None, ""))
    if drop is None:
        return start
    if drop <= 0:
        return f"{start} No single kind of input is indispensable."
    return (
        f"{start} It relies most on {_name(block)}: with these inputs shuffled among the pairs, its average "
        "precision "
        f"falls by {decimals(drop, 3)}."
    )


def _name(block: str) -> str:
    return block.replace("_", " ")


def _importance(importance: Sequence[Importance]) -> list[Chart]:
    bars = [
        Bar(_name(one.block), one.drop)
        if one.drop is None or one.sd is None
        else Bar(
            _name(one.block), one.drop, one.drop - one.sd, one.drop + one.sd, note=f"± {decimals(one.sd, 3)}"
        )
        for one in importance
    ]
    if not bars:
        return []
    chart = bar_figure(
        "Importance of inputs",
        "Drop in average precision when inputs of one kind are shuffled, ± one standard deviation. Redundant "
        "kinds each look unimportant.",
        bars,
        partial(decimals, digits=3),
    )
    return [chart]


def weights_chart(weights: FloatArray, columns: Sequence[str], blocks: Mapping[str, Sequence[int]]) -> Chart:
    """Return the first layer as colors: a row per input, by kind, a column per hidden unit."""
    return Chart(
        heat_map(weights, columns, blocks),
        "Rows are standardized inputs, columns hidden units, strongest on the left; blue = positive, orange "
        "= negative. Right: mean absolute weight.",
        "First-layer weights",
        wide=True,
        scale=color_scale(float(np.abs(weights).max(initial=0.0))),
    )


def _mean_table(weights: FloatArray, columns: Sequence[str], blocks: Mapping[str, Sequence[int]]) -> Table:
    strength = np.abs(weights).mean(axis=1)
    largest = np.abs(weights).max(axis=1, initial=0.0)
    rows = [
        [columns[column], _name(block), decimals(strength[column], 3), decimals(largest[column], 3)]
        for block, members in blocks.items()
        for column in members
    ]
    header = ["input", "kind", "mean |weight|", "largest |weight|"]
    return Table(header, rows, "Weights per input", 2, "All weights")
