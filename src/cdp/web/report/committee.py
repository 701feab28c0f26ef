"""The committee: how good each member is by itself, and how often two of them see the same edges."""

from __future__ import annotations

from collections.abc import Sequence

from cdp.types.run_record import Agreement, Committee, Figure, Member
from cdp.web.page_views import Chart, Table
from cdp.web.report.headline import bar_of, figure_text, measures
from cdp.web.report.report_views import Section
from cdp.web.svg import bar_figure, matrix_chart
from cdp.web.words import UNKNOWN, count, counted, percent

_NAMES = ("committee", "Committee", "The committee")


def committee_section(committee: Committee | None) -> Section:
    """Own figures of every member, and the agreement of their graphs."""
    if committee is None or not (committee.members or committee.agreement):
        return Section(*_NAMES, text="Single models were not measured.")
    members, agreement = committee.members, committee.agreement
    if agreement is not None and len(agreement.names) < 2:
        agreement = None
    charts = [
        *_bars(
            "Rank-1 alone",
            "Recognition by each network alone, with 95 % intervals.",
            members,
            [member.rank1 for member in members],
        ),
        *_bars(
            "Edge precision",
            "Of the edges in the model's neighbor graph of the unlabeled images, the share that joins one "
            "identity.",
            members,
            [Figure(value=member.edge_precision) for member in members],
        ),
    ]
    if agreement is not None:
        charts.append(_agreement(agreement))
    tables = [_table(committee)] if members else []
    return Section(*_NAMES, lead=_sentence(members, agreement), charts=charts, tables=tables)


def _sentence(members: Sequence[Member], agreement: Agreement | None) -> str:
    others = sum(member.role != "base" for member in members)
    start = f"A base model and {counted(others, 'committee member')}." if members else ""
    shares = [] if agreement is None else [
        share
        for at, row in enumerate(agreement.matrix)
        for other, share in enumerate(row)
        if at != other and share is not None
    ]  # fmt: skip
    if not shares:
        return start or "Models of the same images."
    return (
        f"{start} On average {percent(sum(shares) / len(shares))} of one model's edges are edges of "
        "another's; the less they agree in general, the more an agreement means."
    ).strip()


def _bars(title: str, reading: str, members: Sequence[Member], figures: Sequence[Figure]) -> list[Chart]:
    """Return a bar per member; nothing if no figure is known."""
    if all(one.value is None for one in figures):
        return []
    bars = [
        bar_of(f"{member.name} (base)", one, "m-cdp")
        if member.role == "base"
        else bar_of(member.name, one, "m-labeled")
        for member, one in zip(members, figures, strict=True)
    ]
    return [bar_figure(title, reading, bars, percent, 1.0)]


def _agreement(agreement: Agreement) -> Chart:
    return Chart(
        matrix_chart("Shared edges in %", agreement.names, agreement.matrix),
        "Share in % of the row's edges that are also edges of the column's graph. Column numbers are row "
        "numbers.",
        "Agreement",
    )


def _table(committee: Committee) -> Table:
    members = list(committee.members)
    if (best := committee.ensemble) is not None:
        members.append(
            Member(
                name=" + ".join(best.names),
                role="ensemble",
                rank1=best.rank1,
                tpr=best.tpr,
                templates=best.templates,
            )
        )
    columns = {"model": [member.name for member in members], "role": [member.role for member in members]}
    columns["parameters"] = [count(member.parameters) for member in members]
    columns |= {name: [figure_text(one) for one in found] for name, found in measures(members).items()}
    columns["edge precision"] = [percent(member.edge_precision) for member in members]
    columns["neighbors found"] = [percent(member.graph_recall) for member in members]
    columns["of the same identity"] = [percent(member.same_identity_recall) for member in members]
    known = {name: cells for name, cells in columns.items() if set(cells) != {UNKNOWN}}
    return Table(list(known), list(zip(*known.values(), strict=True)), "Single models", words=2)
