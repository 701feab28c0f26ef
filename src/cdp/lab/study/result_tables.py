"""Rows of a study: figures per seed, mean and spread, and what may be called a difference."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cdp.config.sections import RunRecipe
from cdp.lab.study.design import Measure, Study
from cdp.lab.study.spread import UNKNOWN, exponent, summarize, verdicts

DASH = "–"
GAP = "gap"
"""The column that `Study.bounds` fills."""


def results_of(
    study: Study,
    recipe: RunRecipe,
    measured: Sequence[tuple[str, int, Sequence[Measure]]],
    extra: Mapping[str, Any],
) -> dict[str, Any]:
    """The part of results.json that tables and plots are made from: plain values.

    Args:
        study: what was compared.
        recipe: what the variants started from.
        measured: variant, seed and rows of every finished run.
        extra: what pictures need beside the rows.
    """
    columns = study.columns(recipe)
    seeds = sorted({seed for _, seed, _ in measured})
    # Rows of the same cells belong together; a row that several variants have (labeled only) is the same.
    found: dict[tuple[str, ...], dict[int, Mapping[str, float | None]]] = {}
    for _, seed, rows in measured:
        for row in rows:
            found.setdefault(row.cells, {}).setdefault(seed, row.figures)
    order = _ordered(study, list(found))
    values = {
        cells: {
            column.key: [_plain(found[cells].get(seed, {}).get(column.key)) for seed in seeds]
            for column in columns
        }
        for cells in order
    }
    if study.bounds is not None:
        _add_gaps(study, values)
    said = _compare(study, columns, order, values)
    return {
        "title": study.title,
        "reading": study.reading,
        "heads": list(study.heads),
        "main": study.main,
        "columns": [vars(column) for column in columns],
        "rows": [
            {
                "cells": list(cells),
                "figures": {key: _summary(held) for key, held in values[cells].items()},
                "verdict": said[cells],
            }
            for cells in order
        ],
        "fits": _fits(study, order, values),
        "plots": [vars(plot) for plot in study.plots],
        "paper": None if study.paper is None else vars(study.paper),
        "extra": dict(extra),
    }


def _ordered(study: Study, rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """Groups by number, and in each the row below first and the one above last."""
    if study.together:
        rows = sorted(rows, key=lambda cells: _number(cells[0]))
    if study.bounds is None:
        return rows
    around = [bounds for cells in rows if (bounds := study.bounds(cells)) is not None]
    low, high = ({bounds[end] for bounds in around} for end in (0, 1))
    groups = list(dict.fromkeys(cells[: study.together] for cells in rows))
    return sorted(
        rows,
        key=lambda cells: (groups.index(cells[: study.together]), (cells in high) - (cells in low)),
    )


def _add_gaps(study: Study, values: dict[tuple[str, ...], dict[str, list[float | None]]]) -> None:
    """How far each row has come from the row below it to the one above, seed by seed."""
    assert study.bounds is not None
    for cells, held in values.items():
        around = study.bounds(cells)
        if around is None or any(bound not in values for bound in around):
            continue
        low, high = (values[bound][study.main] for bound in around)
        held[GAP] = [
            (reached - below) / (above - below)
            if reached is not None and below is not None and above is not None and above > below
            else None
            for reached, below, above in zip(held[study.main], low, high, strict=True)
        ]


def _plain(value: float | None) -> float | None:
    return None if value is None else float(value)


def _summary(values: Sequence[float | None]) -> dict[str, Any]:
    mean, sd = summarize(values)
    return {"values": list(values), "mean": mean, "sd": sd}


def _number(cell: str) -> float:
    """So that a ratio of 10 comes after 2; words keep their order."""
    try:
        return float(cell)
    except ValueError:
        return 0.0


def _compare(
    study: Study,
    columns: Sequence[Any],
    order: Sequence[tuple[str, ...]],
    values: Mapping[tuple[str, ...], Mapping[str, Sequence[float | None]]],
) -> dict[tuple[str, ...], str]:
    better = next((column.better for column in columns if column.key == study.main), "")
    said = dict.fromkeys(order, UNKNOWN)
    if not better:
        return said
    groups: dict[tuple[str, ...], list[tuple[str, ...]]] = {}
    for cells in order:
        if study.bounds is not None and study.bounds(cells) is None:
            continue
        groups.setdefault(cells[: study.together], []).append(cells)
    for members in groups.values():
        told = verdicts([values[cells][study.main] for cells in members], better)
        said |= dict(zip(members, told, strict=True))
    return said


def _fits(
    study: Study,
    order: Sequence[tuple[str, ...]],
    values: Mapping[tuple[str, ...], Mapping[str, Sequence[float | None]]],
) -> list[dict[str, Any]]:
    """How each column grows with the number in the last cell, seed by seed."""
    fits = []
    for group in dict.fromkeys(cells[:-1] for cells in order):
        members = [cells for cells in order if cells[:-1] == group]
        for key in study.fits:
            slopes = []
            for seed in range(len(values[members[0]][key])):
                points = [(float(cells[-1].replace(",", "")), values[cells][key][seed]) for cells in members]
                known = [(size, value) for size, value in points if value is not None]
                slopes.append(exponent([size for size, _ in known], [value for _, value in known]))
            fits.append({"cells": list(group), "column": key, **_summary(slopes)})
    return fits


def written(summary: Mapping[str, Any], kind: str) -> str:
    """`0.912 ± 0.004`, `1,234 ± 56`, `2.3 ± 0.1 s`; a dash where nothing is known."""
    mean, sd = summary["mean"], summary["sd"]
    if mean is None:
        return DASH
    if kind == "bytes":
        mean, sd = mean / 1e6, None if sd is None else sd / 1e6
    digits = {"share": 3, "number": 3, "seconds": 2}.get(kind, 0)
    unit = {"seconds": " s", "bytes": " MB"}.get(kind, "")
    around = "" if sd is None or (kind == "count" and not sd) else f" ± {sd:,.{digits}f}"
    return f"{mean:,.{digits}f}{around}{unit}"


def table_of(results: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """Header and rows as words; columns that nothing is known about are left out."""
    columns = [
        column
        for column in results["columns"]
        if any(row["figures"][column["key"]]["mean"] is not None for row in results["rows"])
    ]
    judged = any(row["verdict"] for row in results["rows"])
    header = [*results["heads"], *(column["title"] for column in columns)]
    if judged:
        main = next(column["title"] for column in columns if column["key"] == results["main"])
        header.append(f"by {main}")
    rows = []
    for row in results["rows"]:
        cells = [
            *row["cells"],
            *(written(row["figures"][column["key"]], column["kind"]) for column in columns),
        ]
        rows.append([*cells, row["verdict"]] if judged else cells)
    return header, rows


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """The first `words` columns to the left, the others to the right."""
    lines = [
        f"| {' | '.join(header)} |",
        f"|{'|'.join('---' if at < words else '---:' for at in range(len(header)))}|",
    ]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows]
    return "\n".join(lines)
