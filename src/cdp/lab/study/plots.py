"""Plots of a study as SVG, in the looks of the report."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from cdp.lab.study.result_tables import written
from cdp.report.markup import Html, element
from cdp.report.svg import WIDTH, Bar, bar_chart, line, picture, text

_LONGEST = 40
_KINDS = ("m-cdp", "odd", "wrong", "m-all", "m-labeled")


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
        summary = row["figures"][column["key"]]
        sd = summary["sd"]
        low, high = (None, None) if sd is None else (summary["mean"] - sd, summary["mean"] + sd)
        bars.append(Bar(_short(", ".join(row["cells"])), summary["mean"], low, high))
    kind = str(column["kind"])
    words = "; ".join(f"{bar.name} {written({'mean': bar.value, 'sd': None}, kind)}" for bar in bars)
    return bar_chart(
        f"{column['title']}: {words}", bars, lambda value: written({"mean": value, "sd": None}, kind)
    )


def _short(name: str) -> str:
    """A name that leaves room for the figure beside it; of a long sum its last part tells it from the others."""
    if len(name) <= _LONGEST:
        return name
    return f"… + {name.rpartition(' + ')[2]}" if " + " in name else f"{name[: _LONGEST - 1]}…"


def _is_number(cell: str) -> bool:
    return cell.replace(",", "").replace(".", "", 1).isdigit()


def _lines(column: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], axis: str) -> Html:
    """Means over a number, a line per remaining cells, a whisker of one standard deviation at each point."""
    series: dict[str, list[tuple[float, float, float]]] = {}
    for row in rows:
        summary = row["figures"][column["key"]]
        name = ", ".join(row["cells"][1:]) or column["title"]
        at = float(row["cells"][0].replace(",", ""))
        series.setdefault(name, []).append((at, summary["mean"], summary["sd"] or 0.0))
    points = [point for held in series.values() for point in held]
    low, high = min(at for at, _, _ in points), max(at for at, _, _ in points)
    step = _step(max(y + sd for _, y, sd in points) - min(y - sd for _, y, sd in points))
    floor = step * math.floor(min(y - sd for _, y, sd in points) / step)
    top = step * math.ceil(max(y + sd for _, y, sd in points) / step + 1e-9)
    left, right, above, below = 44, 10, 8, 196

    def across(x: float) -> float:
        return left + (WIDTH - left - right) * (x - low) / ((high - low) or 1)

    def down(y: float) -> float:
        return below - (below - above) * (y - floor) / ((top - floor) or 1)

    shapes: list[Html] = []
    for tick in range(round((top - floor) / step) + 1):
        y = floor + step * tick
        shapes.append(line(left, down(y), WIDTH - right, down(y), "rule"))
        shapes.append(text(left - 5, down(y) + 4, f"{y:.3g}", "small", "end"))
    shapes += [
        text(across(x), below + 15, f"{x:g}", "small", "middle") for x in sorted({x for x, _, _ in points})
    ]
    shapes.append(text(left, below + 32, axis, "small"))
    kinds = {name: _KINDS[at % len(_KINDS)] for at, name in enumerate(series)}
    # A line that is one point at the left end is where all the others begin: nothing added yet.
    start = [held[0] for held in series.values() if len(held) == 1 and held[0][0] == low]
    for name, held in series.items():
        known = sorted(held)
        begin = start[:1] if low < known[0][0] else []
        path = " ".join(f"{across(x):.1f},{down(y):.1f}" for x, y, _ in begin + known)
        curve = f"curve {kinds[name]}"
        shapes.append(element("polyline", element("title", name), points=path, class_=curve, fill="none"))
        for x, y, sd in known:
            shapes.append(line(across(x), down(y - sd), across(x), down(y + sd), curve))
            shapes.append(
                element(
                    "circle",
                    element("title", f"{name} at {x:g}: {y:.4g}"),
                    cx=across(x),
                    cy=down(y),
                    r=3,
                    class_=curve,
                    fill="none",
                )
            )
    said = "; ".join(
        f"{name}: " + ", ".join(f"{y:.3g} at {x:g}" for x, y, _ in sorted(held))
        for name, held in series.items()
    )
    for at, name in enumerate(series):
        y = below + 52 + 18 * at
        shapes.append(line(left, y - 4, left + 22, y - 4, f"curve {kinds[name]}"))
        shapes.append(text(left + 30, y, name, "small"))
    height = below + 60 + 18 * (len(series) - 1)
    return picture(WIDTH, height, f"{column['title']}. {said}", *shapes)


def _step(span: float) -> float:
    """A round distance of rules, four to eight of them."""
    rough = (span or 0.1) / 5
    power = 10.0 ** math.floor(math.log10(rough))
    return next(power * base for base in (1, 2, 5, 10) if power * base >= rough - 1e-12)
