"""What the run took and what exactly was run: time, memory, device, versions, recipe."""

from __future__ import annotations

from collections.abc import Sequence

from cdp.types.run_record import RunRecord, StageRecord
from cdp.web.page_views import Bar, Table
from cdp.web.report.report_views import Section
from cdp.web.svg import bar_figure
from cdp.web.words import counted, seconds, size_in_memory


def runtime_section(record: RunRecord) -> Section:
    """Show seconds and peak memory per kind of stage; inner steps count separately."""
    stages, names = record.stages, ("runtime", "Time", "Time and memory")
    if not stages:
        return Section(*names, text="No stages recorded.")
    time = [Bar(name, value) for name, value in _seconds_by_kind(stages).items()]
    peaks: dict[str, int] = {}
    for stage in stages:
        if stage.peak_memory:
            kind = stage.group or stage.name
            peaks[kind] = max(stage.peak_memory, peaks.get(kind, 0))
    memory = [Bar(name, peak, kind="m-labeled") for name, peak in peaks.items()]
    reading = "Seconds of all stages of one kind, including stages kept from earlier runs."
    charts = [bar_figure("Time", reading, time, seconds)]
    if memory:
        reading = "Peak memory of the process during stages of this kind."
        charts.append(bar_figure("Peak memory", reading, memory, size_in_memory))
    return Section(*names, lead=_sentence(record, time), charts=charts, tables=[_stage_table(stages)])


def _seconds_by_kind(stages: Sequence[StageRecord]) -> dict[str, float]:
    """Kind of stage or inner step -> seconds; time of a stage outside its steps counts for its kind."""
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


def _stage_table(stages: Sequence[StageRecord]) -> Table:
    rows = []
    for stage in stages:
        origin = "kept" if stage.fresh else "computed"
        rows.append(
            [stage.name, stage.group, seconds(stage.seconds), size_in_memory(stage.peak_memory), origin]
        )
        rows += [[f"– {name}", stage.group, seconds(value), "", ""] for name, value in stage.steps.items()]
    fold = f"All {counted(len(stages), 'stage')}, in numbers"
    return Table(["stage", "group", "time", "peak memory", "in this run"], rows, "Every stage", 2, fold)


def recipe_section(record: RunRecord) -> Section:
    """Return what to type to get the same again."""
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
    tables = [Table(["what", "value"], rows, "The run", words=2)]
    settings = [[name, str(value)] for name, value in record.differences.items()]
    if settings:
        tables.append(
            Table(["setting", "value"], settings, "Settings that differ from the defaults", words=2)
        )
    return Section(
        "recipe",
        "Recipe",
        "Repeat this run",
        text="Command, seed and versions; the recipe has every setting.",
        tables=tables,
        recipe=record.recipe_text,
    )
