"""Plots of a study as SVG, in the looks of the report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from cdp.web.page_views import Bar, Html
from cdp.web.svg import WIDTH, bar_chart, element, line, picture, text
from cdp_lab.study.result_tables import written

_LONGEST = 40
_KINDS = ("m-cdp", "odd", "wrong", "m-all", "m-labeled")
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, WIDTH - 10, 8, 196
Point = tuple[float, float, float]
"""x, mean, standard deviation."""


def draw_plot(results: Mapping[str, Any], plot: Mapping[str, Any]) -> Html | None:
    """One column of a study's rows; None if nothing is known of it."""
    column = next(one for one in results["columns"] if one["key"] == plot["column"])
    rows = [row for row in results["rows"] if row["figures"][column["key"]]["mean"] is not None]
    if not rows:
        return None
    if plot["kind"] == "lines" and all(_is_number(row["cells"][0]) for row in rows):
        return _lines(column, rows, plot["axis"])
    bars = []
    for row in rows:
        mean, sd = row["figures"][column["key"]]["mean"], row["figures"][column["key"]]["sd"]
        ends = (None, None) if sd is None else (mean - sd, mean + sd)
        bars.append(Bar(_short(", ".join(row["cells"])), mean, *ends))

    def printed(value: float | None) -> str:
        return written({"mean": value, "sd": None}, column["kind"])

    words = "; ".join(f"{bar.name} {printed(bar.value)}" for bar in bars)
    return bar_chart(f"{column['title']}: {words}", bars, printed)


def _short(name: str) -> str:
    """Return a name that leaves room for the figure next to it; of a long sum only the last part is kept."""
    if len(name) <= _LONGEST:
        return name
    return f"… + {name.rpartition(' + ')[2]}" if " + " in name else f"{name[: _LONGEST - 1]}…"


def _is_number(cell: str) -> bool:
    return cell.replace(",", "").replace(".", "", 1).isdigit()


def _lines(column: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], axis: str) -> Html:
    """Means over a number, a line per remaining cells, a whisker of one standard deviation at each point."""
    series: dict[str, list[Point]] = {}
    for row in rows:
        summary = row["figures"][column["key"]]
        name = ", ".join(row["cells"][1:]) or column["title"]
        x = float(row["cells"][0].replace(",", ""))
        series.setdefault(name, []).append((x, summary["mean"], summary["sd"] or 0.0))
    points = [point for line_points in series.values() for point in line_points]
    low, high = min(x for x, _, _ in points), max(x for x, _, _ in points)
    lowest, highest = min(y - sd for _, y, sd in points), max(y + sd for _, y, sd in points)
    step = _step(highest - lowest)
    floor, top = step * math.floor(lowest / step), step * math.ceil(highest / step + 1e-9)

    def across(x: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (x - low) / ((high - low) or 1)

    def down(y: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * (y - floor) / ((top - floor) or 1)

    shapes: list[Html] = []
    for tick in range(round((top - floor) / step) + 1):
        y = floor + step * tick
        shapes.append(line(_LEFT, down(y), _RIGHT, down(y), "rule"))
        shapes.append(text(_LEFT - 5, down(y) + 4, f"{y:.3g}", "small", "end"))
    numbers = sorted({x for x, _, _ in points})
    shapes += [text(across(x), _BOTTOM + 15, f"{x:g}", "small", "middle") for x in numbers]
    shapes.append(text(_LEFT, _BOTTOM + 32, axis, "small"))
    # A line that is one point at the left end is where all the others begin: nothing added yet.
    start = [only[0] for only in series.values() if len(only) == 1 and only[0][0] == low][:1]
    legend: list[Html] = []
    for number, (name, unsorted) in enumerate(series.items()):
        known, curve = sorted(unsorted), f"curve {_KINDS[number % len(_KINDS)]}"
        begin = start if low < known[0][0] else []
        path = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y, _ in begin + known)
        shapes.append(element("polyline", element("title", name), points=path, class_=curve, fill="none"))
        for x, y, sd in known:
            hint = element("title", f"{name} at {x:g}: {y:.4g}")
            shapes.append(line(across(x), down(y - sd), across(x), down(y + sd), curve))
            shapes.append(element("circle", hint, cx=across(x), cy=down(y), r=3, class_=curve, fill="none"))
        y = _BOTTOM + 52 + 18 * number
        legend += [line(_LEFT, y - 4, _LEFT + 22, y - 4, curve), text(_LEFT + 30, y, name, "small")]
    words = "; ".join(
        f"{name}: " + ", ".join(f"{y:.3g} at {x:g}" for x, y, _ in sorted(known))
        for name, known in series.items()
    )
    height = _BOTTOM + 60 + 18 * (len(series) - 1)
    return picture(WIDTH, height, f"{column['title']}. {words}", *shapes, *legend)


def _step(span: float) -> float:
    """Return a round distance of rules, four to eight of them."""
    rough = (span or 0.1) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * base for base in (1, 2, 5, 10) if power * base >= rough - 1e-12)
