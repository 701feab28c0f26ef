"""Did it help: recognition with the labeled part only, with pseudo-labels, and with all true labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cdp.types.run_record import Figure, Headline, ModelFigures, PartRecord, RecognitionFigures, RunRecord
from cdp.web.page_views import Bar, Table, Tile
from cdp.web.report.report_views import Section
from cdp.web.svg import bar_figure
from cdp.web.words import count, counted, interval, percent, with_interval

_RANK_1 = (
    "Share of probes whose nearest image, among their mate and all distractors, is the mate. Longer is "
    "better."
)
_TEMPLATES = (
    "Share of genuine template pairs that are accepted; a template is several images of one person. Longer "
    "is better."
)
_TPR = "Share of genuine pairs that are accepted at this false positive rate. Longer is better."


def headline_section(record: RunRecord) -> Section:
    """Bars with intervals, the share of the gap closed, and a verdict; a note if nothing was measured."""
    headline = record.results.headline
    if headline is None or not headline.models:
        words = "Recognition was not measured: it needs networks trained in this run, and probe images."
        return Section("headline", "", "", note=words)
    models = {model.key: model for model in headline.models}
    charts = []
    for name, figures in measures(headline.models).items():
        bars = [
            bar_of(model.title, one, f"m-{model.key}")
            for model, one in zip(headline.models, figures, strict=True)
        ]
        title, reading = ("Rank-1 identification", _RANK_1) if name == "rank-1" else (name, _TPR)
        charts.append(bar_figure(title, _TEMPLATES if "templates" in name else reading, bars, percent, 1.0))
    return Section(
        "headline",
        "Did it help?",
        "Did it help?",
        lead=verdict(models, headline.gap_closed),
        tiles=_tiles(models, headline.gap_closed),
        charts=charts,
        tables=[_table(headline, record.parts.get("labeled"))],
        note=f"All models are {headline.network}, tested on the same {_tested_on(headline)}. "
        "The thin lines on the bars span 95 % intervals, from resampling the test identities.",
    )


def _tested_on(headline: Headline) -> str:
    parts = []
    if headline.probes is not None or headline.template_images is None:
        parts.append(f"{count(headline.probes)} probe images among {count(headline.distractors)} distractors")
    if headline.template_images is not None:
        parts.append(f"templates made of {counted(headline.template_images, 'image')}")
    return " and ".join(parts)


def verdict(models: Mapping[str, ModelFigures], gap: RecognitionFigures | None) -> str:
    """Return the result in words, whether it pleases or not."""
    name, figures = next(iter(measures(list(models.values())).items()))
    found = dict(zip(models, figures, strict=True))
    before, after, best = (found.get(key, Figure()) for key in ("labeled", "cdp", "all"))
    if before.value is None or after.value is None:
        return "This run has no comparison with and without pseudo-labels."
    was, is_now = percent(before.value), percent(after.value)
    if after.value > before.value:
        start = f"Pseudo-labels raised {name} from {was} to {is_now}"
    elif after.value < before.value:
        start = f"Pseudo-labels did not help: {name} fell from {was} to {is_now}"
    else:
        start = f"Pseudo-labels changed nothing: {name} stayed at {was}"
    doubt = ""
    if after.value != before.value and _overlap(before, after):
        doubt = " The 95 % intervals overlap, so this test does not settle the difference."
    if "all" not in models:
        unknown = "No network was trained on all true labels, so the upper bound is unknown."
        return f"{start}. {unknown}{doubt}"
    if best.value is None:
        return f"{start}.{doubt}"
    share = None if gap is None else measures([gap]).get(name, [Figure()])[0].value
    if share is None or best.value <= before.value:
        return (
            f"{start}. All true labels gave {percent(best.value)}, no clear gain over the labeled part "
            "alone, so there "
            f"is no gap to close.{doubt}"
        )
    if share > 1:
        return f"{start}, more than all true labels gave ({percent(best.value)}).{doubt}"
    if share < 0:
        return f"{start}, while all true labels gave {percent(best.value)}.{doubt}"
    closed = f"That closes {percent(share)} of the gap."
    return f"{start}; all true labels gave {percent(best.value)}. {closed}{doubt}"


def _overlap(one: Figure, other: Figure) -> bool:
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return False
    return one.low <= other.high and other.low <= one.high


def _tiles(models: Mapping[str, ModelFigures], gap: RecognitionFigures | None) -> list[Tile]:
    if gap is not None:
        return [
            Tile(
                percent(share.value),
                f"of the gap closed, {name}",
                f"95 % interval {around}" if around else "",
            )
            for name, (share,) in measures([gap]).items()
            if share.value is not None
            for around in [interval(share.low, share.high)]
        ]
    if "labeled" not in models or "cdp" not in models:
        return []
    before, after = models["labeled"].rank1.value, models["cdp"].rank1.value
    if before is None or after is None:
        return []
    change = f"{100 * (after - before):+.1f} points".replace("-", "−")
    return [Tile(change, "rank-1, with against without pseudo-labels")]


def _table(headline: Headline, labeled: PartRecord | None) -> Table:
    models: Sequence[RecognitionFigures] = headline.models
    named = measures([*models, headline.gap_closed] if headline.gap_closed else models)
    rows = []
    for model in headline.models:
        true = model.images if model.key != "cdp" else None if labeled is None else labeled.images
        made = None if model.images is None or true is None else model.images - true
        rows.append([model.title, count(model.images), count(true), count(made)])
    if headline.gap_closed:
        rows.append(["gap closed", "", "", ""])
    rows = [[*row, *(figure_text(found[at]) for found in named.values())] for at, row in enumerate(rows)]
    header = ["trained on", "images", "true labels", "pseudo-labels", *named]
    return Table(header, rows, "Numbers, with 95 % intervals")


def figure_text(figure: Figure) -> str:
    """Return a figure with its interval."""
    return with_interval(figure.value, figure.low, figure.high)


def bar_of(name: str, figure: Figure, kind: str) -> Bar:
    """Return a bar with its interval as whiskers and as a remark."""
    return Bar(name, figure.value, figure.low, figure.high, kind, interval(figure.low, figure.high))


def measures(of: Sequence[RecognitionFigures]) -> dict[str, list[Figure]]:
    """Name of a measure -> its figure per network: rank-1, and TPR of pairs and templates at every FPR."""
    found: dict[str, list[Figure]] = {}
    if any(one.rank1.value is not None for one in of) or not any(one.templates for one in of):
        found["rank-1"] = [one.rank1 for one in of]
    for key, name in (("tpr", "TPR"), ("templates", "TPR of templates")):
        tables = [{rate.fpr: rate for rate in getattr(one, key)} for one in of]
        for fpr in dict.fromkeys(fpr for rates in tables for fpr in rates):
            found[f"{name} at FPR {100 * fpr:g} %"] = [rates.get(fpr, Figure()) for rates in tables]
    return found
