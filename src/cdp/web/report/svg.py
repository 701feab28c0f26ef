"""Drawing: bars, curves and heat maps as inline SVG. Colors are classes, so that the page's theme decides.

Pictures are 360 units wide, the width of a phone: letters keep their size there, and several stand side by side on
a desk.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from cdp.web.report.markup import Html, element
from cdp.web.report.words import UNKNOWN, figure

WIDTH = 360
LEVELS = 10
Series = tuple[str, str, Sequence[float | None]]


def picture(width: float, height: float, title: str, *shapes: str | None, natural: bool = False) -> Html:
    """An SVG with a title for those who cannot see it.

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
    """A filled rectangle; `hint` is shown when it is pointed at."""
    words = element("title", hint) if hint else None
    return element("rect", words, x=x, y=y, width=max(width, 0), height=height, class_=kind)


def line(x1: float, y1: float, x2: float, y2: float, kind: str, hint: str | None = None) -> Html:
    """A straight line; `hint` is shown when it is pointed at."""
    words = element("title", hint) if hint else None
    return element("line", words, x1=x1, y1=y1, x2=x2, y2=y2, class_=kind)


@dataclass(frozen=True)
class Bar:
    """One bar: its name, its length, where it ends at least and at most, its color class, a remark beside it."""

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None
    kind: str = "cdp"
    note: str = ""


def bar_chart(
    title: str, bars: Sequence[Bar], printed: Callable[[float | None], str], top: float = 0
) -> Html:
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


def bar_figure(
    title: str, caption: str, bars: Sequence[Bar], printed: Callable[[float | None], str], top: float = 0
) -> Html:
    """A bar chart with its title and how to read it; its title for screen readers has name and number of every bar."""
    spoken = [f"{bar.name} {printed(bar.value)}" + (f" ({bar.note})" if bar.note else "") for bar in bars]
    return figure(bar_chart(f"{title}: {'; '.join(spoken)}", bars, printed, top), caption, title)


def paired_bars(title: str, names: Sequence[str], series: Sequence[tuple[str, str, Sequence[int]]]) -> Html:
    """Counts in bins, one thin bar per series and bin; a series is (name, color class, counts)."""
    most = max((value for _, _, values in series for value in values), default=0) or 1
    left, right, thick = 64, 52, 11
    step = thick * len(series) + 9
    shapes: list[Html] = []
    for row, name in enumerate(names):
        y = step * row
        shapes.append(text(left - 8, y + step / 2, name, None, "end"))
        for at, (what, kind, values) in enumerate(series):
            length = (WIDTH - left - right) * values[row] / most
            hint = f"{name} images: {values[row]:,} {what}"
            shapes.append(rectangle(left, y + thick * at, length, thick - 1, kind, hint))
            shapes.append(text(left + length + 4, y + thick * at + 9, f"{values[row]:,}", "small"))
    return picture(WIDTH, step * len(names), title, *shapes)


def stacked_bar(title: str, parts: Sequence[tuple[str, str, int]]) -> Html:
    """Parts of a whole in one bar; a part is (name, color class, count)."""
    total = sum(value for _, _, value in parts) or 1
    shapes: list[Html] = []
    at = 0.0
    for name, kind, value in parts:
        length = WIDTH * value / total
        shapes.append(rectangle(at, 0, length, 22, kind, f"{name}: {value:,}"))
        at += length
    return picture(WIDTH, 22, title, *shapes)


def curve_chart(
    title: str, xs: Sequence[float], series: Sequence[Series], mark: float | None, axis: str
) -> Html:
    """Shares against a setting, with a line where the setting was chosen; a series is (name, class, values)."""
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
    for name, kind, values in series:
        known = [(x, value) for x, value in zip(xs, values, strict=True) if value is not None]
        path = " ".join(f"{across(x):.1f},{down(value):.1f}" for x, value in known)
        shapes.append(
            element("polyline", element("title", name), points=path, class_=f"curve {kind}", fill="none")
        )
    return picture(WIDTH, bottom + 38, title, *shapes)


def matrix_chart(title: str, names: Sequence[str], matrix: Sequence[Sequence[float | None]]) -> Html:
    """A square table of shares as colors with the numbers in them; columns carry the numbers of the rows."""
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
    """At most seven round numbers from `low` to `high`."""
    steps = [base * 10.0**power for power in range(-6, 7) for base in (1, 2, 5)]
    step = next((step for step in steps if (high - low) / step <= 6), steps[-1])
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(step * at, 9) for at in range(first, last + 1)]


def level_of(value: float, most: float) -> int:
    """How strong a color is, 0..10."""
    return min(LEVELS, max(0, round(LEVELS * abs(value) / most))) if most > 0 else 0


def _short(name: str, most: int = 15) -> str:
    return name if len(name) <= most else name[: most - 1] + "…"
