"""What the mediator learned: its first layer's weights, and how much it needs each kind of input."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from cdp.types.arrays import FloatArray
from cdp.types.run_record import Importance, MediatorFigures, Results
from cdp.web.report.markup import Html, join
from cdp.web.report.svg import LEVELS, Bar, bar_figure, level_of, line, picture, rectangle, text
from cdp.web.report.words import UNKNOWN, figure, folded, paragraph, scrolling, section, side_by_side, table

_TITLE = "What the mediator learned"
_CELL, _PITCH = 12, 14


def mediator_section(results: Results, weights: FloatArray | None) -> Html:
    """Heat map of the weights and permutation importance; a sentence if nothing was fitted."""
    mediator = results.mediator
    if mediator is None:
        how = "There is no mediator with weights to show."
        if results.labels.setting == "vote_threshold":
            how = f"Pairs were accepted by vote: a pair counts if enough members see it as neighbors. {how}"
        elif results.calibration:
            how = (
                "Pairs were judged by boosted trees, which learned from the known images among the others while these were labeled. "
                "Whether their probabilities can be believed is shown with the labels; weights they have none."
            )
        return section("mediator", _TITLE, paragraph(how))
    columns, blocks = mediator.columns, mediator.blocks
    is_covered = sorted(column for block in blocks.values() for column in block) == list(range(len(columns)))
    if weights is not None and (len(columns) != len(weights) or not is_covered):
        weights = None
    return section(
        "mediator",
        _TITLE,
        paragraph(_sentence(mediator), class_="lead"),
        side_by_side(_importance(mediator.importance)),
        paragraph("The weights of this mediator are not at hand.", class_="note")
        if weights is None
        else join([heat_map(weights, columns, blocks), _mean_table(weights, columns, blocks)]),
    )


def _sentence(mediator: MediatorFigures) -> str:
    start = f"A small network weighs {len(mediator.columns)} opinions about every pair."
    drop, block = max(((one.drop or 0.0, one.block) for one in mediator.importance), default=(None, ""))
    if drop is None:
        return start
    if drop <= 0:
        return f"{start} It can do without any single kind of them: what one says, the others say too."
    return (
        f"{start} It relies most on {_name(block)}: with these inputs shuffled among the pairs, its average precision "
        f"falls by {drop:.3f}."
    )


def _name(block: str) -> str:
    return block.replace("_", " ")


def _importance(importance: Sequence[Importance]) -> Html | None:
    bars = [
        Bar(_name(one.block), one.drop)
        if one.drop is None or one.sd is None
        else Bar(_name(one.block), one.drop, one.drop - one.sd, one.drop + one.sd, note=f"± {one.sd:.3f}")
        for one in importance
    ]
    if not bars:
        return None
    return bar_figure(
        "Importance of each kind of input",
        "All inputs of one kind are shuffled among the pairs. The bar is how far average precision falls; the thin "
        "line is one standard deviation over repeats. Kinds that say the same can each look unimportant.",
        bars,
        _three_decimals,
    )


def _three_decimals(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.3f}".replace("-", "−")


def heat_map(weights: FloatArray, columns: Sequence[str], blocks: Mapping[str, Sequence[int]]) -> Html:
    """The first layer as colors: a row per input, by kind, a column per hidden unit."""
    hidden = weights.shape[1]
    strength = np.abs(weights).mean(axis=1)
    # Units in the order of their strength: position in a layer means nothing, and so the picture has a shape.
    order = np.argsort(-np.abs(weights).sum(axis=0), kind="stable")
    most = float(np.abs(weights).max(initial=0.0))
    left, bars = 190, 120
    right = left + _CELL * hidden + 10
    widest = float(strength.max(initial=0.0)) or 1.0
    shapes = [text(right, 11, "mean |weight|", "small"), text(left, 11, f"{hidden} hidden units", "small")]
    y = 18.0
    for block, members in blocks.items():
        y += 20
        shapes.append(text(0, y - 4, _name(block), "strong"))
        shapes.append(line(0, y + 1, right + bars, y + 1, "rule"))
        y += 3
        for column in members:
            shapes.append(text(left - 6, y + _PITCH - 4, columns[column], "small", "end"))
            for at, unit in enumerate(order.tolist()):
                value = float(weights[column, unit])
                level = level_of(value, most)
                if level:
                    kind = f"heat {'p' if value > 0 else 'n'}{level}"
                    shapes.append(rectangle(left + _CELL * at, y, _CELL - 1, _CELL + 1, kind))
            length = (bars - 40) * float(strength[column]) / widest
            shapes.append(rectangle(right, y + 1, length, _CELL - 2, "m-cdp"))
            shapes.append(text(right + length + 4, y + _PITCH - 4, f"{strength[column]:.2f}", "small"))
            y += _PITCH
    title = f"First-layer weights: {len(columns)} inputs by {hidden} hidden units, largest {most:.2f}"
    drawn = picture(right + bars, y + 4, title, *shapes, natural=True)
    return figure(
        join([scrolling(drawn, "first-layer weights"), _scale(most)]),
        "Every row is an input, every column a hidden unit, strongest on the left. Blue raises the unit, orange "
        "lowers it, blank does nothing. Inputs are standardized, so weights compare; the bars on the right are the "
        "mean size of an input's weights.",
        "First-layer weights",
        wide=True,
    )


def _scale(most: float) -> Html:
    steps = [f"{'n' if level < 0 else 'p'}{abs(level)}" for level in range(-LEVELS, LEVELS + 1, 2)]
    shapes: list[Html] = [rectangle(60 + 20 * at, 2, 20, 12, f"heat {step}") for at, step in enumerate(steps)]
    end = 60 + 20 * len(steps)
    shapes += [
        text(54, 12, f"−{most:.2f}", "small", "end"),
        text(end + 6, 12, f"+{most:.2f}", "small"),
        text(60 + 10 * len(steps), 27, "0", "small", "middle"),
    ]
    return picture(360, 30, f"Color scale from minus {most:.2f} to plus {most:.2f}", *shapes)


def _mean_table(weights: FloatArray, columns: Sequence[str], blocks: Mapping[str, Sequence[int]]) -> Html:
    strength = np.abs(weights).mean(axis=1)
    largest = np.abs(weights).max(axis=1, initial=0.0)
    rows = [
        [columns[column], _name(block), f"{strength[column]:.3f}", f"{largest[column]:.3f}"]
        for block, members in blocks.items()
        for column in members
    ]
    inner = table(["input", "kind", "mean |weight|", "largest |weight|"], rows, "Weights per input", words=2)
    return folded("Weights per input, in numbers", inner)
