"""The committee: how good each member is by itself, and how often two of them see the same edges."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cdp.report.markup import Html
from cdp.report.svg import Bar, bar_chart, matrix_chart
from cdp.report.words import (
    count,
    counted,
    figure,
    interval,
    paragraph,
    percent,
    rate_name,
    section,
    side_by_side,
    table,
    with_interval,
)

_TITLE = "The committee"


def committee_section(run: Mapping[str, Any]) -> Html:
    """Own figures of every member, and the agreement of their graphs."""
    committee = (run.get("results") or {}).get("committee") or {}
    members = list(committee.get("members") or [])
    agreement = committee.get("agreement") or {}
    agreement = agreement if agreement.get("matrix") else None
    if not members and not agreement:
        return section(
            "committee", _TITLE, paragraph("This run kept no figures of single committee members.")
        )
    return section(
        "committee",
        _TITLE,
        paragraph(_sentence(members, agreement), class_="lead"),
        side_by_side(
            _bars(
                "Rank-1 alone",
                "rank1",
                members,
                "How well each network recognizes people by itself, with 95 % intervals.",
            ),
            _bars(
                "Edge precision",
                "edge_precision",
                members,
                "Of the edges in the network's neighbor graph of the unlabeled images, the share that joins one identity.",
            ),
            _agreement(agreement),
        ),
        _table(members) if members else None,
    )


def _sentence(members: Sequence[Mapping[str, Any]], agreement: Mapping[str, Any] | None) -> str:
    others = sum(member.get("role") != "base" for member in members)
    start = ""
    if members:
        start = (
            f"A base network and {counted(others, 'committee member')}, trained alike on the labeled part."
        )
    if not agreement or len(agreement["names"]) < 2:
        return start or "Networks that look at the same images."
    matrix = agreement["matrix"]
    pairs = [
        matrix[row][column]
        for row in range(len(matrix))
        for column in range(len(matrix))
        if row != column and matrix[row][column] is not None
    ]
    if not pairs:
        return start
    mean = sum(pairs) / len(pairs)
    return (
        f"{start} On average {percent(mean)} of one network's edges are edges of another's: the less they agree by "
        "habit, the more it means when they do."
    ).strip()


def _bars(title: str, key: str, members: Sequence[Mapping[str, Any]], reading: str) -> Html | None:
    bars = []
    for member in members:
        figures = member.get(key)
        if not isinstance(figures, Mapping):
            figures = {"value": figures}
        kind = "m-cdp" if member.get("role") == "base" else "m-labeled"
        name = f"{member['name']} (base)" if member.get("role") == "base" else member["name"]
        bars.append(
            Bar(name, figures.get("value"), figures.get("low"), figures.get("high"), kind, interval(figures))
        )
    if not any(bar.value is not None for bar in bars):
        return None
    words = "; ".join(f"{bar.name} {percent(bar.value)}" for bar in bars)
    return figure(bar_chart(f"{title}: {words}", bars, percent, 1.0), reading, title)


def _agreement(agreement: Mapping[str, Any] | None) -> Html | None:
    if not agreement or len(agreement["names"]) < 2:
        return None
    return figure(
        matrix_chart("Shared edges in %", agreement["names"], agreement["matrix"]),
        "Of the edges of the row's graph, how many % are edges of the column's graph too. Columns carry the numbers "
        "of the rows.",
        "How often they agree",
    )


def _table(members: Sequence[Mapping[str, Any]]) -> Html:
    rates = next(([rate["fpr"] for rate in member["tpr"]] for member in members if member.get("tpr")), [])
    rows = []
    for member in members:
        by_rate = {rate["fpr"]: rate for rate in member.get("tpr") or []}
        rows.append(
            [
                member["name"],
                str(member.get("role") or ""),
                count(member.get("parameters")),
                with_interval(member.get("rank1")),
                *(with_interval(by_rate.get(fpr)) for fpr in rates),
                percent(member.get("edge_precision")),
            ]
        )
    header = ["network", "role", "parameters", "rank-1", *map(rate_name, rates), "edge precision"]
    return table(header, rows, "Every network by itself", words=2)
