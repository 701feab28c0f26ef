"""What the run took and what exactly was run: time, memory, device, versions, recipe."""

from __future__ import annotations

from collections.abc import Sequence

from cdp.types.run_record import RunRecord, StageRecord
from cdp.web.report.markup import Html, element
from cdp.web.report.svg import Bar, bar_figure
from cdp.web.report.words import (
    counted,
    folded,
    paragraph,
    seconds,
    section,
    side_by_side,
    size_in_memory,
    table,
)


def runtime_section(record: RunRecord) -> Html:
    """Seconds and peak memory per kind of stage; a stage that tells of inner steps counts as those."""
    stages = record.stages
    if not stages:
        return section("runtime", "Time and memory", paragraph("This run recorded no stages."))
    time = [Bar(name, value) for name, value in _seconds_by_kind(stages).items()]
    peaks: dict[str, int] = {}
    for stage in stages:
        if stage.peak_memory:
            kind = stage.group or stage.name
            peaks[kind] = max(stage.peak_memory, peaks.get(kind, 0))
    memory = [Bar(name, peak, kind="m-labeled") for name, peak in peaks.items()]
    return section(
        "runtime",
        "Time and memory",
        paragraph(_sentence(record, time), class_="lead"),
        side_by_side(
            bar_figure(
                "Time",
                "Seconds of all stages of one kind together, whether computed now or kept from an earlier call.",
                time,
                seconds,
            ),
            bar_figure(
                "Peak memory",
                "The most memory the process held while a stage of this kind was running.",
                memory,
                size_in_memory,
            )
            if memory
            else None,
        ),
        folded(f"All {counted(len(stages), 'stage')}, in numbers", _stage_table(stages)),
    )


def _seconds_by_kind(stages: Sequence[StageRecord]) -> dict[str, float]:
    """Kind of stage or inner step -> seconds; what the steps of a stage leave of its time counts as its kind's."""
    total: dict[str, float] = {}
    for stage in stages:
        rest = stage.seconds - sum(stage.steps.values())
        for name, value in stage.steps.items():
            total[name] = total.get(name, 0.0) + value
        if not stage.steps or rest > 0.05:
            kind = stage.group or stage.name
            total[kind] = total.get(kind, 0.0) + rest
    return total


def _sentence(record: RunRecord, time: Sequence[Bar]) -> str:
    longest = max(time, key=lambda bar: bar.value or 0)
    cores = f" on {counted(record.cores, 'core')}" if record.cores else ""
    device = f"; networks and exact search ran on {record.device}" if record.device else ""
    whole = f"The run took {seconds(record.seconds)}{cores}{device}. " if record.seconds is not None else ""
    return f"{whole}The longest part was {longest.name} ({seconds(longest.value)})."


def _stage_table(stages: Sequence[StageRecord]) -> Html:
    rows = []
    for stage in stages:
        origin = "kept from before" if stage.fresh else "computed"
        rows.append(
            [stage.name, stage.group, seconds(stage.seconds), size_in_memory(stage.peak_memory), origin]
        )
        rows += [[f"– {name}", stage.group, seconds(value), "", ""] for name, value in stage.steps.items()]
    return table(["stage", "group", "time", "peak memory", "in this run"], rows, "Every stage", words=2)


def recipe_section(record: RunRecord) -> Html:
    """What to type to get the same again."""
    facts = {
        "command": record.command,
        "seed": record.seed,
        "cores": record.cores,
        "device": record.device,
        "started": record.started,
        "cdp": " ".join(filter(None, [record.cdp, record.commit])),
    }
    rows = [
        [name, str(value)] for name, value in (facts | record.versions).items() if value not in (None, "")
    ]
    settings = [[name, str(value)] for name, value in record.differences.items()]
    return section(
        "recipe",
        "How to get the same again",
        paragraph(
            "The command, the seed and the versions that made these figures; the recipe has every setting."
        ),
        table(["what", "value"], rows, "The run", words=2),
        table(["setting", "value"], settings, "Settings that are not at their defaults", words=2)
        if settings
        else None,
        folded("The recipe", element("pre", record.recipe_text, tabindex="0"))
        if record.recipe_text
        else None,
    )
