"""Rows of a study: figures per seed, mean and spread, significant differences, and text."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, linear_regression, stdev
from typing import Any

from cdp.config.sections import RunRecipe
from cdp_lab.study.design import Column, Measure, Study

GAP = "gap"
"""The column that `Study.bounds` fills."""

Cells = tuple[str, ...]
SeedTable = dict[Cells, dict[str, list[float | None]]]
"""Row -> column -> a value per seed."""


def results_of(
    study: Study,
    recipe: RunRecipe,
    measured: Sequence[tuple[str, int, Sequence[Measure]]],
    extra: Mapping[str, Any],
) -> dict[str, Any]:
    """Return the part of results.json that tables and plots are made from: plain values.

    Args:
        recipe: what the variants started from.
        measured: variant, seed and rows of every finished run.
        extra: what pictures need in addition to the rows.
    """
    columns = study.columns(recipe)
    seeds = sorted({seed for _, seed, _ in measured})
    # Rows of the same cells belong together; a row that several variants have (labeled only) is the same.
    found: dict[Cells, dict[int, Mapping[str, float | None]]] = {}
    for _, seed, rows in measured:
        for row in rows:
            found.setdefault(row.cells, {}).setdefault(seed, row.figures)
    table: SeedTable = {
        cells: {
            column.key: [
                None if (value := found[cells].get(seed, {}).get(column.key)) is None else float(value)
                for seed in seeds
            ]
            for column in columns
        }
        for cells in _ordered(study, list(found))
    }
    _add_gaps(study, table)
    compared = _compare(study, columns, table)
    return {
        "title": study.title,
        "reading": study.reading,
        "heads": list(study.heads),
        "main": study.main,
        "columns": [vars(column) for column in columns],
        "rows": [
            {
                "cells": list(cells),
                "figures": {key: _summary(values) for key, values in figures.items()},
                "verdict": compared[cells],
            }
            for cells, figures in table.items()
        ],
        "fits": _fits(study, table),
        "plots": [vars(plot) for plot in study.plots],
        "paper": None if study.paper is None else vars(study.paper),
        "extra": dict(extra),
    }


def _ordered(study: Study, rows: list[Cells]) -> list[Cells]:
    """Return groups by number, and in each the row below first and the one above last."""
    if study.n_shared_cells:
        rows = sorted(rows, key=lambda cells: _number(cells[0]))
    if study.bounds is None:
        return rows
    around = [bounds for cells in rows if (bounds := study.bounds(cells)) is not None]
    low, high = ({bounds[end] for bounds in around} for end in (0, 1))
    groups = list(dict.fromkeys(cells[: study.n_shared_cells] for cells in rows))
    return sorted(
        rows,
        key=lambda cells: (groups.index(cells[: study.n_shared_cells]), (cells in high) - (cells in low)),
    )


def _add_gaps(study: Study, table: SeedTable) -> None:
    """How far each row has come from the row below it to the one above, seed by seed."""
    for cells, figures in table.items():
        bounds = None if study.bounds is None else study.bounds(cells)
        if bounds is None or any(bound not in table for bound in bounds):
            continue
        low, high = (table[bound][study.main] for bound in bounds)
        figures[GAP] = [
            (reached - below) / (above - below)
            if reached is not None and below is not None and above is not None and above > below
            else None
            for reached, below, above in zip(figures[study.main], low, high, strict=True)
        ]


def _summary(values: Values) -> dict[str, Any]:
    mean, sd = summarize(values)
    return {"values": list(values), "mean": mean, "sd": sd}


def _number(cell: str) -> float:
    """So that a ratio of 10 comes after 2; words keep their order."""
    try:
        return float(cell)
    except ValueError:
        return 0.0


def _compare(study: Study, columns: Sequence[Column], table: SeedTable) -> dict[Cells, str]:
    """Return a verdict per row, within its group; bounds are not compared."""
    better = next((column.better for column in columns if column.key == study.main), "")
    compared = dict.fromkeys(table, UNKNOWN)
    groups: dict[Cells, list[Cells]] = {}
    for cells in table:
        if better and (study.bounds is None or study.bounds(cells) is not None):
            groups.setdefault(cells[: study.n_shared_cells], []).append(cells)
    for rows in groups.values():
        found = verdicts([table[cells][study.main] for cells in rows], better)
        compared |= dict(zip(rows, found, strict=True))
    return compared


def _fits(study: Study, table: SeedTable) -> list[dict[str, Any]]:
    """Return how each column grows with the number in the last cell, seed by seed."""
    fits = []
    for group in dict.fromkeys(cells[:-1] for cells in table):
        rows = [cells for cells in table if cells[:-1] == group]
        for key in study.fits:
            sizes = [float(cells[-1].replace(",", "")) for cells in rows]
            slopes = []
            for values in zip(*(table[cells][key] for cells in rows), strict=True):
                known = [(n, value) for n, value in zip(sizes, values, strict=True) if value is not None]
                slopes.append(exponent([n for n, _ in known], [value for _, value in known]))
            fits.append({"cells": list(group), "column": key, **_summary(slopes)})
    return fits


def written(summary: Mapping[str, Any], kind: str) -> str:
    """`0.912 ± 0.004`, `1,234 ± 56`, `2.3 ± 0.1 s`; a dash where nothing is known."""
    mean, sd = summary["mean"], summary["sd"]
    if mean is None:
        return "–"
    if kind == "bytes":
        mean, sd = mean / 1e6, None if sd is None else sd / 1e6
    digits = {"share": 3, "number": 3, "seconds": 2}.get(kind, 0)
    unit = {"seconds": " s", "bytes": " MB"}.get(kind, "")
    spread = "" if sd is None or (kind == "count" and not sd) else f" ± {sd:,.{digits}f}"
    return f"{mean:,.{digits}f}{spread}{unit}"


def table_of(results: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows as words; columns that nothing is known about are left out."""
    rows = results["rows"]
    titles = {column["key"]: column["title"] for column in results["columns"]}
    kinds = {
        column["key"]: column["kind"]
        for column in results["columns"]
        if any(row["figures"][column["key"]]["mean"] is not None for row in rows)
    }
    has_verdicts = any(row["verdict"] for row in rows)
    header = [*results["heads"], *(titles[key] for key in kinds)]
    header += [f"by {titles[results['main']]}"] if has_verdicts else []
    return header, [
        [
            *row["cells"],
            *(written(row["figures"][key], kind) for key, kind in kinds.items()),
            *([row["verdict"]] if has_verdicts else []),
        ]
        for row in rows
    ]


Values = Sequence[float | None]

BEST, SAME, WORSE, UNKNOWN = "best", "no significant difference", "behind", ""


def summarize(values: Values) -> tuple[float | None, float | None]:
    """Mean and sample standard deviation of what is known; no deviation of a single value."""
    known = [value for value in values if value is not None]
    return (fmean(known) if known else None), (stdev(known) if len(known) > 1 else None)


def is_significant(one: Values, other: Values) -> bool:
    """Test whether means differ by more than sqrt(sd1² + sd2²), the deviation of the difference.

    A rule of thumb, not a test: with few seeds a difference that passes is a hint, and one that does not is
    not called any.
    """
    (mean, sd), (other_mean, other_sd) = summarize(one), summarize(other)
    if mean is None or other_mean is None or sd is None or other_sd is None:
        return False
    return abs(mean - other_mean) > math.hypot(sd, other_sd)


def verdicts(rows: Sequence[Values], better: str = "high") -> list[str]:
    """Mark each row: best, not significantly different, or behind; nothing without a spread."""
    sign = -1 if better == "low" else 1
    means = {
        number: sign * mean for number, row in enumerate(rows) if (mean := summarize(row)[0]) is not None
    }
    best = max(means, key=lambda number: means[number], default=-1)
    if len(means) < 2 or summarize(rows[best])[1] is None:
        return [UNKNOWN] * len(rows)

    def verdict(number: int) -> str:
        if number == best:
            return BEST
        if summarize(rows[number])[1] is None:
            return UNKNOWN
        return WORSE if is_significant(rows[best], rows[number]) else SAME

    return [verdict(number) for number in range(len(rows))]


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float | None:
    """Return the slope of log(value) over log(size), by least squares: 1 = grows in proportion."""
    points = [(math.log(n), math.log(v)) for n, v in zip(sizes, values, strict=True) if n > 0 and v > 0]
    if len({x for x, _ in points}) < 2:
        return None
    return linear_regression([x for x, _ in points], [y for _, y in points]).slope
