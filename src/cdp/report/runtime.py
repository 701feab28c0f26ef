"""What the run took and what exactly was run: time, memory, versions, recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cdp.report.markup import Html, element
from cdp.report.svg import Bar, bar_chart
from cdp.report.words import (
    counted,
    figure,
    paragraph,
    seconds,
    section,
    side_by_side,
    size_in_memory,
    table,
)


def runtime_section(run: Mapping[str, Any]) -> Html:
    """Seconds and peak memory per stage."""
    stages = list(run.get("stages") or [])
    if not stages:
        return section("runtime", "Time and memory", paragraph("This run recorded no stages."))
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for stage in stages:
        groups.setdefault(stage.get("group") or stage["name"], []).append(stage)
    time = [
        Bar(name, sum(stage.get("seconds") or 0 for stage in held), note=_stages(held))
        for name, held in groups.items()
    ]
    peaks = [
        Bar(
            name,
            max((stage["peak_memory"] for stage in held if stage.get("peak_memory")), default=None),
            kind="m-labeled",
        )
        for name, held in groups.items()
    ]
    rows = [
        [
            stage["name"],
            stage.get("group") or "",
            seconds(stage.get("seconds")),
            size_in_memory(stage.get("peak_memory")),
            "kept from before" if stage.get("fresh") else "computed",
        ]
        for stage in stages
    ]
    inner = table(["stage", "group", "time", "peak memory", "in this run"], rows, "Every stage", words=2)
    return section(
        "runtime",
        "Time and memory",
        paragraph(_sentence(run, time), class_="lead"),
        side_by_side(
            figure(
                bar_chart(
                    "Time: " + "; ".join(f"{bar.name} {seconds(bar.value)}" for bar in time), time, seconds
                ),
                "Seconds of all stages of one kind together, whether computed now or kept from an earlier call.",
                "Time",
            ),
            figure(
                bar_chart(
                    "Memory: " + "; ".join(f"{bar.name} {size_in_memory(bar.value)}" for bar in peaks),
                    peaks,
                    size_in_memory,
                ),
                "The most memory the process held while a stage of this kind was running.",
                "Peak memory",
            )
            if any(bar.value is not None for bar in peaks)
            else None,
        ),
        element("details", element("summary", f"All {counted(len(stages), 'stage')}, in numbers"), inner),
    )


def _stages(held: Sequence[Mapping[str, Any]]) -> str:
    return f"in {len(held)} stages" if len(held) > 1 else ""


def _sentence(run: Mapping[str, Any], time: Sequence[Bar]) -> str:
    longest = max(time, key=lambda bar: bar.value or 0)
    total = run.get("seconds")
    cores = run.get("cores")
    on = f" on {counted(cores, 'core')}" if cores else ""
    whole = f"The run took {seconds(total)}{on}. " if total is not None else ""
    return f"{whole}The longest part was {longest.name} ({seconds(longest.value)})."


def recipe_section(run: Mapping[str, Any]) -> Html:
    """What to type to get the same again."""
    facts = [("command", run.get("command")), ("seed", run.get("seed")), ("cores", run.get("cores"))]
    facts += [("started", run.get("started")), ("cdp", run.get("cdp"))]
    facts += list((run.get("versions") or {}).items())
    rows = [[name, str(value)] for name, value in facts if value is not None]
    recipe = run.get("recipe_text")
    return section(
        "recipe",
        "How to get the same again",
        paragraph(
            "The command, the seed and the versions that made these figures; the recipe has every setting."
        ),
        table(["what", "value"], rows, "The run", words=2),
        element("details", element("summary", "The recipe"), element("pre", recipe, tabindex="0"))
        if recipe
        else None,
    )
