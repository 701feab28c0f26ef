"""Charts as inline SVG: bars, curves, heat maps, graphs. Colors are classes of style.css.

Pictures are 360 units wide, the width of a phone: letters keep their size there, and several fit side by side
on a desk.
"""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterable, Mapping, Sequence

import numpy as np

from cdp.types.arrays import FloatArray
from cdp.web.page_views import Bar, Chart, Html, Series
from cdp.web.words import UNKNOWN, counted

WIDTH = 360
LEVELS = 10
_CELL, _PITCH = 12, 14
Attribute = str | float | bool | None
Printed = Callable[[float | None], str]


def element(name: str, /, *children: str | None, **attributes: Attribute) -> Html:
    """`<name ...>children</name>`; plain text is escaped, None is left out.

    Attributes are written as in Python: `class_` is class, `stroke_width` is stroke-width; None and False are
    left out.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    return Html(f"<{name}{written}>{join(children)}</{name}>")


def join(children: Iterable[str | None]) -> Html:
    """Several pieces one after the other, each escaped unless it is markup."""
    return Html(
        "".join(
            child if isinstance(child, Html) else html.escape(child)
            for child in children
            if child is not None
        )
    )


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.removesuffix("_").replace("_", "-")
    if value is True:
        return f" {name}"
    return f' {name}="{html.escape(value if isinstance(value, str) else shortest(value))}"'


def shortest(number: float) -> str:
    """Return a coordinate with two decimals at most: `12`, `3.5`, `0.25`; a tenth of a pixel is not seen."""
    text = f"{number:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def picture(width: float, height: float, title: str, *shapes: str | None, natural: bool = False) -> Html:
    """Return an SVG with a title for those who cannot see it.

    Args:
        title: what the picture says, in one sentence.
        natural: keep one unit = one pixel (in a box that scrolls) instead of shrinking with the page.
    """
    size = {"width": width, "height": height} if natural else {}
    kind = "natural" if natural else None
    box = f"0 0 {width:g} {height:g}"
    return element("svg", element("title", title), *shapes, viewBox=box, role="img", class_=kind, **size)


def text(x: float, y: float, words: str, kind: str | None = None, anchor: str | None = None) -> Html:
    """Words at a point."""
    return element("text", words, x=x, y=y, class_=kind, text_anchor=anchor)


def rectangle(x: float, y: float, width: float, height: float, kind: str, hint: str | None = None) -> Html:
    """Return a filled rectangle; `hint` is shown when it is pointed at."""
    words = element("title", hint) if hint else None
    return element("rect", words, x=x, y=y, width=max(width, 0), height=height, class_=kind)


def line(x1: float, y1: float, x2: float, y2: float, kind: str, hint: str | None = None) -> Html:
    """Return a straight line; `hint` is shown when it is pointed at."""
    words = element("title", hint) if hint else None
    return element("line", words, x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)


def bar_chart(title: str, bars: Sequence[Bar], printed: Printed, top: float = 0) -> Html:
    """Bars from zero with whiskers; name and number stand above each bar, so that both fit a phone.

    Args:
        bars: from top to bottom.
        printed: how a value is written.
        top: where the axis ends; the largest value if 0.
    """
    ends = [end for bar in bars for end in (bar.value, bar.low, bar.high) if end is not None]
    top = top or max([0.0, *ends]) or 1.0
    bottom = min([0.0, *ends])

    def across(value: float) -> float:
        return WIDTH * (min(max(value, bottom), top) - bottom) / (top - bottom)

    shapes: list[Html] = []
    for row, bar in enumerate(bars):
        y = 38 * row
        number = element("tspan", printed(bar.value), class_="strong")
        remark = element("tspan", f"  {bar.note}", class_="muted") if bar.note else None
        shapes.append(text(0, y + 13, bar.name))
        shapes.append(element("text", number, remark, x=WIDTH, y=y + 13, text_anchor="end"))
        shapes.append(rectangle(0, y + 19, WIDTH, 10, "track"))
        if bar.value is None:
            continue
        start, end = sorted((across(0), across(bar.value)))
        hint = f"{bar.name}: {printed(bar.value)}"
        shapes.append(rectangle(start, y + 19, end - start, 10, bar.kind, hint))
        if bar.low is not None and bar.high is not None:
            low, high = across(bar.low), across(bar.high)
            shapes += [
                line(low, y + 24, high, y + 24, "whisker"),
                line(low, y + 20, low, y + 28, "whisker"),
                line(high, y + 20, high, y + 28, "whisker"),
            ]
    return picture(WIDTH, 38 * len(bars), title, *shapes)


def bar_figure(title: str, caption: str, bars: Sequence[Bar], printed: Printed, top: float = 0) -> Chart:
    """Return a bar chart with title and caption; screen readers get name and number of every bar."""
    spoken = [f"{bar.name} {printed(bar.value)}" + (f" ({bar.note})" if bar.note else "") for bar in bars]
    return Chart(bar_chart(f"{title}: {'; '.join(spoken)}", bars, printed, top), caption, title)


def paired_bars(title: str, names: Sequence[str], series: Sequence[Series]) -> Html:
    """Draw counts in bins, one thin bar per series and bin."""
    most = max((value or 0 for one in series for value in one.values), default=0) or 1
    left, right, thick = 64, 52, 11
    step = thick * len(series) + 9
    shapes: list[Html] = []
    for row, name in enumerate(names):
        y = step * row
        shapes.append(text(left - 8, y + step / 2, name, None, "end"))
        for at, one in enumerate(series):
            value = one.values[row] or 0
            length = (WIDTH - left - right) * value / most
            hint = f"{one.name}, size {name}: {value:,}"
            shapes.append(rectangle(left, y + thick * at, length, thick - 1, one.kind, hint))
            shapes.append(text(left + length + 4, y + thick * at + 9, f"{value:,}", "small"))
    return picture(WIDTH, step * len(names), title, *shapes)


def stacked_bar(title: str, parts: Sequence[Bar]) -> Html:
    """Parts of a whole in one bar."""
    total = sum(part.value or 0 for part in parts) or 1
    shapes: list[Html] = []
    at = 0.0
    for part in parts:
        length = WIDTH * (part.value or 0) / total
        shapes.append(rectangle(at, 0, length, 22, part.kind, f"{part.name}: {part.value:,}"))
        at += length
    return picture(WIDTH, 22, title, *shapes)


def curve_chart(
    title: str, xs: Sequence[float], series: Sequence[Series], mark: float | None, axis: str
) -> Html:
    """Shares against a setting, with a line where the setting was chosen."""
    left, right, top, bottom = 34, 8, 14, 200
    low, high = min(xs), max(xs)
    span = (high - low) or 1.0

    def across(x: float) -> float:
        return left + (WIDTH - left - right) * (x - low) / span

    def down(y: float) -> float:
        return bottom - (bottom - top) * y

    shapes = []
    for tick in (0, 0.25, 0.5, 0.75, 1):
        shapes.append(line(left, down(tick), WIDTH - right, down(tick), "rule"))
        shapes.append(text(left - 5, down(tick) + 4, f"{100 * tick:.0f}", "small", "end"))
    for x in _round_steps(low, high):
        anchor = "end" if across(x) > WIDTH - 20 else "middle"
        shapes.append(text(across(x), bottom + 15, f"{x:g}", "small", anchor))
    shapes.append(text(left, bottom + 32, axis, "small"))
    if mark is not None:
        shapes.append(line(across(mark), top - 2, across(mark), bottom, "mark"))
        anchor = "end" if across(mark) > WIDTH - 70 else "middle"
        shapes.append(text(across(mark), 9, f"chosen {mark:g}", "small", anchor))
    for one in series:
        known = [(x, value) for x, value in zip(xs, one.values, strict=True) if value is not None]
        path = " ".join(f"{across(x):.1f},{down(value):.1f}" for x, value in known)
        name = element("title", one.name)
        shapes.append(element("polyline", name, points=path, class_=f"curve {one.kind}", fill="none"))
    return picture(WIDTH, bottom + 38, title, *shapes)


def matrix_chart(title: str, names: Sequence[str], matrix: Sequence[Sequence[float | None]]) -> Html:
    """Draw a square table of shares as colors with numbers; column numbers are row numbers."""
    left = 150
    cell = min(46.0, (WIDTH - left) / max(len(names), 1))
    shapes = []
    for row, name in enumerate(names):
        y = 20 + cell * row
        shapes.append(text(left - 8, y + cell / 2 + 4, f"{_short(name)}  {row + 1}", None, "end"))
        shapes.append(text(left + cell * (row + 0.5), 13, str(row + 1), None, "middle"))
        for column, value in enumerate(matrix[row]):
            x = left + cell * column
            words = UNKNOWN if value is None else f"{100 * value:.0f}"
            level = 0 if value is None else level_of(value, 1.0)
            hint = f"{words} % of the edges of {name} are edges of {names[column]} too"
            shapes.append(rectangle(x, y, cell - 1, cell - 1, f"heat p{level}", hint))
            kind = "onheat" if level >= 6 else None
            shapes.append(text(x + cell / 2, y + cell / 2 + 4, words, kind, "middle"))
    return picture(WIDTH, 20 + cell * len(names), title, *shapes)


def _round_steps(low: float, high: float) -> list[float]:
    """Choose at most seven round numbers from `low` to `high`."""
    steps = [base * 10.0**power for power in range(-6, 7) for base in (1, 2, 5)]
    step = next((step for step in steps if (high - low) / step <= 6), steps[-1])
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(step * at, 9) for at in range(first, last + 1)]


def level_of(value: float, most: float) -> int:
    """Return how strong a color is, 0..10."""
    return min(LEVELS, max(0, round(LEVELS * abs(value) / most))) if most > 0 else 0


def _short(name: str, most: int = 15) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"


def heat_map(weights: FloatArray, columns: Sequence[str], blocks: Mapping[str, Sequence[int]]) -> Html:
    """Return a layer's weights as colors: a row per input, by kind, and a column per hidden unit."""
    hidden = weights.shape[1]
    strength = np.abs(weights).mean(axis=1)
    # Units in the order of their strength: position in a layer means nothing, and so the picture has a shape.
    order = np.argsort(-np.abs(weights).sum(axis=0), kind="stable")
    most = float(np.abs(weights).max(initial=0.0))
    left, bars = 190, 120
    right = left + _CELL * hidden + 10
    widest = float(strength.max(initial=0.0)) or 1.0
    units = counted(hidden, "hidden unit")
    shapes = [text(right, 11, "mean |weight|", "small"), text(left, 11, units, "small")]
    y = 18.0
    for block, members in blocks.items():
        y += 20
        shapes.append(text(0, y - 4, block.replace("_", " "), "strong"))
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
    title = f"First-layer weights: {counted(len(columns), 'input')} by {units}, largest {most:.2f}"
    return picture(right + bars, y + 4, title, *shapes, natural=True)


def color_scale(most: float) -> Html:
    """Return what the colors of a heat map mean."""
    steps = [f"{'n' if level < 0 else 'p'}{abs(level)}" for level in range(-LEVELS, LEVELS + 1, 2)]
    shapes = [rectangle(60 + 20 * at, 2, 20, 12, f"heat {step}") for at, step in enumerate(steps)]
    end = 60 + 20 * len(steps)
    shapes += [
        text(54, 12, f"−{most:.2f}", "small", "end"),
        text(end + 6, 12, f"+{most:.2f}", "small"),
        text(60 + 10 * len(steps), 27, "0", "small", "middle"),
    ]
    return picture(360, 30, f"Color scale from minus {most:.2f} to plus {most:.2f}", *shapes)


def dot(x: float, y: float, radius: float, kind: str, hint: str) -> Html:
    """Return a node of a graph; `hint` is shown when it is pointed at."""
    return element("circle", element("title", hint), cx=x, cy=y, r=radius, class_=kind)
