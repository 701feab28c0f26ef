"""What it was all for: recognition with the labeled part only, with pseudo-labels, and with all true labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cdp.report.markup import Html, element
from cdp.report.svg import Bar, bar_chart
from cdp.report.words import (
    count,
    figure,
    interval,
    paragraph,
    percent,
    points,
    rate_name,
    section,
    side_by_side,
    table,
    tile,
    with_interval,
)

Figure = Mapping[str, Any]


def headline_section(run: Mapping[str, Any]) -> Html:
    """Bars with intervals, the share of the gap closed, and one sentence."""
    headline = (run.get("results") or {}).get("headline")
    if not headline or not headline.get("models"):
        return section(
            "headline",
            "Did it help?",
            paragraph("This run measured no recognition figures: it had no test images with identities."),
        )
    models = {model["key"]: model for model in headline["models"]}
    gap = headline.get("gap_closed")
    rates = [entry["fpr"] for entry in next(iter(models.values())).get("tpr") or []]
    charts = [
        _chart(
            "Rank-1 identification",
            "Share of the probes whose most similar image, among another one of the same person and all distractors, "
            "is that person. Longer is better.",
            [(model, model.get("rank1")) for model in models.values()],
        )
    ] + [
        _chart(
            rate_name(fpr),
            f"Share of the pairs of one person that are recognized when {100 * fpr:g} % of the pairs of two people "
            "are taken for one. Longer is better.",
            [(model, _at(model.get("tpr"), fpr)) for model in models.values()],
        )
        for fpr in rates
    ]
    return section(
        "headline",
        "Did it help?",
        paragraph(verdict(models, gap), class_="lead"),
        _tiles(run, models, gap, rates),
        side_by_side(*charts),
        _table(run, models, gap, rates),
        paragraph(
            f"All models are {headline.get('network') or 'one network'}, tested on the same {count(headline.get('probes'))} "
            f"probe images among {count(headline.get('distractors'))} distractors. The thin lines on the bars span "
            "95 % intervals, from resampling the test identities.",
            class_="note",
        ),
    )


def verdict(models: Mapping[str, Figure], gap: Figure | None) -> str:
    """The result in words, whether it pleases or not."""
    before, after = _value(models.get("labeled")), _value(models.get("cdp"))
    if before is None or after is None:
        return "The run has no figures with and without pseudo-labels to compare."
    if after > before:
        start = f"Pseudo-labels raised rank-1 from {percent(before)} to {percent(after)}"
    elif after < before:
        start = f"Pseudo-labels did not help here: rank-1 fell from {percent(before)} to {percent(after)}"
    else:
        start = f"Pseudo-labels changed nothing: rank-1 stayed at {percent(before)}"
    doubt = ""
    if after != before and _overlap(models["labeled"], models["cdp"]):
        doubt = " The two 95 % intervals overlap, so this test alone does not settle the difference."
    if "all" not in models:
        return f"{start}. The run trained no network on all true labels, so nobody knows how far one could get.{doubt}"
    best = _value(models["all"])
    share = None if gap is None else (gap.get("rank1") or {}).get("value")
    if best is None:
        return f"{start}.{doubt}"
    if share is None or best <= before:
        return (
            f"{start}. All true labels gave {percent(best)}, no clear gain over the labeled part alone, so there "
            f"is no gap to close.{doubt}"
        )
    if share > 1:
        return f"{start}, more than all true labels gave ({percent(best)}).{doubt}"
    if share < 0:
        return f"{start}, while all true labels would have given {percent(best)}.{doubt}"
    return f"{start}; all true labels gave {percent(best)}. That closes {percent(share)} of the gap.{doubt}"


def _tiles(
    run: Mapping[str, Any], models: Mapping[str, Figure], gap: Figure | None, rates: Sequence[float]
) -> Html:
    parts = run.get("parts") or {}
    labeled, unlabeled = parts.get("labeled") or {}, parts.get("unlabeled") or {}
    tiles = []
    if gap is not None:
        measured = [("rank-1", gap.get("rank1"))] + [
            (rate_name(fpr), _at(gap.get("tpr"), fpr)) for fpr in rates
        ]
        tiles += [
            tile(percent(share["value"]), f"of the gap closed, {name}", _between(share))
            for name, share in measured
            if share is not None and share.get("value") is not None
        ]
    else:
        before, after = _value(models.get("labeled")), _value(models.get("cdp"))
        if before is not None and after is not None:
            tiles.append(tile(points(after - before), "rank-1, with against without pseudo-labels"))
    if labeled.get("images") is not None:
        tiles.append(
            tile(
                count(labeled["images"]),
                "images with a true label",
                f"{count(labeled.get('identities'))} identities",
            )
        )
    if unlabeled.get("images") is not None:
        tiles.append(tile(count(unlabeled["images"]), "images without one"))
    return element("div", *tiles, class_="tiles")


def _chart(title: str, reading: str, measured: Sequence[tuple[Figure, Figure | None]]) -> Html:
    bars = [
        Bar(
            model["title"],
            None if value is None else value.get("value"),
            None if value is None else value.get("low"),
            None if value is None else value.get("high"),
            f"m-{model['key']}",
            interval(value),
        )
        for model, value in measured
    ]
    words = "; ".join(f"{model['title']} {with_interval(value)}" for model, value in measured)
    return figure(
        bar_chart(f"{title}: {words}", bars, percent, 1.0),
        reading,
        title,
    )


def _table(
    run: Mapping[str, Any], models: Mapping[str, Figure], gap: Figure | None, rates: Sequence[float]
) -> Html:
    true_labels = ((run.get("parts") or {}).get("labeled") or {}).get("images")
    rows = []
    for key, model in models.items():
        images = model.get("images")
        by_hand = images if key in ("labeled", "all") else true_labels
        made = 0 if key in ("labeled", "all") else _difference(images, true_labels)
        rows.append(
            [
                model["title"],
                count(images),
                count(by_hand),
                count(made),
                with_interval(model.get("rank1")),
                *(with_interval(_at(model.get("tpr"), fpr)) for fpr in rates),
            ]
        )
    if gap is not None:
        rows.append(
            [
                "gap closed",
                "",
                "",
                "",
                with_interval(gap.get("rank1")),
                *(with_interval(_at(gap.get("tpr"), fpr)) for fpr in rates),
            ]
        )
    header = ["trained on", "images", "true labels", "pseudo-labels", "rank-1", *map(rate_name, rates)]
    return table(header, rows, "The same in numbers, with 95 % intervals in brackets")


def _between(share: Figure) -> str:
    around = interval(share)
    return f"95 % interval {around}" if around else ""


def _at(rates: Sequence[Figure] | None, fpr: float) -> Figure | None:
    return next((rate for rate in rates or [] if rate["fpr"] == fpr), None)


def _value(model: Figure | None) -> float | None:
    value = None if model is None else (model.get("rank1") or {}).get("value")
    return None if value is None else float(value)


def _overlap(first: Figure, second: Figure) -> bool:
    one, other = first["rank1"], second["rank1"]
    ends = [one.get("low"), one.get("high"), other.get("low"), other.get("high")]
    if any(end is None for end in ends):
        return False
    return bool(one["low"] <= other["high"] and other["low"] <= one["high"])


def _difference(whole: float | None, part: float | None) -> float | None:
    return None if whole is None or part is None else whole - part
