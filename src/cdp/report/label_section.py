"""How good the pseudo-labels are: pairs, groups, sizes, fates, and how the threshold was chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cdp.report.markup import Html, element, join
from cdp.report.svg import Bar, bar_chart, curve_chart, paired_bars, stacked_bar
from cdp.report.words import (
    count,
    counted,
    figure,
    legend,
    paragraph,
    percent,
    section,
    side_by_side,
    table,
    tile,
)

_FATE_KINDS = ("m-cdp", "wrong", "odd", "m-labeled")


_BARS = {
    "threshold": "threshold on the probability of a pair",
    "vote_threshold": "threshold on the base's similarity",
    "join_above": "mean probability above which groups are joined",
}
"""What the number is that decides how much is joined, by its key in the recipe."""


def labels_section(run: Mapping[str, Any]) -> Html:
    """Everything known about the labels; only what needs no truth if there is none."""
    results = run.get("results") or {}
    found = results.get("labels")
    if not found:
        return section("labels", "How good are the pseudo-labels?", paragraph("This run made no labels."))
    true = found.get("true")
    return section(
        "labels",
        "How good are the pseudo-labels?",
        paragraph(_sentence(found, true), class_="lead"),
        _mended(run),
        _tiles(found, true),
        side_by_side(
            *([] if true is None else [_pairs(found, true), *_scores(true)]),
            _sizes(found, true),
            _fates(found.get("fates") or {}),
            _tuning(results.get("tuning")),
        ),
        None if true is None else _table(true),
        _rounds([*(results.get("earlier_rounds") or []), found]),
        _tuning_table(results.get("tuning")),
    )


def _mended(run: Mapping[str, Any]) -> Html | None:
    mended = ((run.get("recipe") or {}).get("consensus") or {}).get("mend", "nothing")
    if mended == "nothing":
        return None
    what = {"splits": "splits", "mixtures": "mixtures", "all": "splits and mixtures"}[mended]
    return paragraph(
        f"This run put the labels right by the truth ({what}), to find out what mistakes cost. The figures of groups are of "
        "the mended labels: nobody could have made them without the truth."
    )


def _sentence(found: Mapping[str, Any], true: Mapping[str, Any] | None) -> str:
    groups = counted(found.get("identities_found") or 0, "pseudo-identity", "pseudo-identities")
    start = f"{percent(found.get('coverage'))} of the unlabeled images got a label, in {groups}; the others were discarded."
    if true is None:
        return f"{start} Their true identities are not known, so nobody can say how many of the labels are right."
    score = (true.get("discards_removed") or {}).get("pairwise") or {}
    if score.get("precision") is None:
        return f"{start} No two labeled images share a group and a known identity, so precision is undefined."
    return (
        f"{start} Of all pairs of images with the same label, {percent(score['precision'])} truly show one "
        f"identity; of all labeled pairs of one identity, {percent(score.get('recall'))} got the same label."
    )


def _tiles(found: Mapping[str, Any], true: Mapping[str, Any] | None) -> Html:
    tiles = [
        tile(percent(found.get("coverage")), "coverage: images with a label"),
        tile(
            count((true or found).get("identities_found")),
            "pseudo-identities found",
            ""
            if true is None
            else f"{count(true.get('identities_true'))} true ones, {count(true.get('identities_true_shared'))} "
            "of them with two images or more",
        ),
    ]
    if found.get("threshold") is not None:
        tiles.append(
            tile(f"{found['threshold']:g}", _BARS.get(str(found.get("setting")), _BARS["threshold"]))
        )
    return element("div", *tiles, class_="tiles")


def _pairs(found: Mapping[str, Any], true: Mapping[str, Any]) -> Html | None:
    pairs = true.get("pairs")
    if not pairs:
        return None
    bars = [Bar("precision", pairs.get("precision")), Bar("recall", pairs.get("recall"), kind="m-all")]
    words = f"precision {percent(pairs.get('precision'))}, recall {percent(pairs.get('recall'))}"
    of_all = f"{count(pairs.get('accepted'))} of {count(pairs.get('candidates'))} candidate pairs"
    what = f"Before propagation: {of_all} were accepted."
    if found.get("setting") == "join_above":
        what = f"{of_all} ended in one group; they count as accepted."
    return figure(
        bar_chart(f"Accepted pairs: {words}", bars, percent, 1.0),
        f"{what} Precision is the share of them that truly show one identity; recall is the share of the true "
        "candidates that were accepted.",
        "Accepted pairs",
    )


def _scores(true: Mapping[str, Any]) -> list[Html]:
    charts = []
    for key, name, reading in (
        (
            "discards_kept",
            "discards kept",
            "Every discarded image counts as a group of its own, so discarding costs recall.",
        ),
        ("discards_removed", "discards removed", "Only labeled images count: what a network would train on."),
    ):
        groups = true.get(key) or {}
        bars = [
            Bar(f"{kind} {measure}", (groups.get(code) or {}).get(short), kind=color)
            for code, kind in (("pairwise", "pairwise"), ("bcubed", "BCubed"))
            for short, measure, color in (
                ("precision", "precision", "m-cdp"),
                ("recall", "recall", "m-all"),
                ("f", "F", "m-labeled"),
            )
        ]
        words = ", ".join(f"{bar.name} {percent(bar.value)}" for bar in bars)
        caption = f"{reading} Pairwise counts pairs of images; BCubed averages over images, so small groups count too."
        charts.append(figure(bar_chart(f"{name}: {words}", bars, percent, 1.0), caption, f"Groups, {name}"))
    return charts


def _table(true: Mapping[str, Any]) -> Html:
    rows = [["accepted pairs", *_three(_with_f(true.get("pairs")))]]
    for key, name in (("discards_kept", "discards kept"), ("discards_removed", "discards removed")):
        groups = true.get(key) or {}
        rows.append([f"pairwise, {name}", *_three(groups.get("pairwise"))])
        rows.append([f"BCubed, {name}", *_three(groups.get("bcubed"))])
    return table(["measure", "precision", "recall", "F"], rows, "Labels against true identities")


def _rounds(rounds: Sequence[Mapping[str, Any]]) -> Html | None:
    """How the labels became better, or not, from round to round; nothing if there was one."""
    if len(rounds) < 2:
        return None
    rows = []
    for number, held in enumerate(rounds, start=1):
        score = ((held.get("true") or {}).get("discards_kept") or {}).get("pairwise")
        groups = count(held.get("identities_found"))
        rows.append([str(number), percent(held.get("coverage")), groups, *_three(score)])
    header = ["round", "images labeled", "pseudo-identities", "precision", "recall", "F"]
    return table(header, rows, "Labels, round by round (pairwise, discards kept)")


def _with_f(pairs: Mapping[str, Any] | None) -> dict[str, Any]:
    held = dict(pairs or {})
    precision, recall = held.get("precision"), held.get("recall")
    if precision and recall:
        held["f"] = 2 * precision * recall / (precision + recall)
    return held


def _three(score: Mapping[str, Any] | None) -> list[str]:
    return [percent((score or {}).get(name)) for name in ("precision", "recall", "f")]


def _sizes(found: Mapping[str, Any], true: Mapping[str, Any] | None) -> Html | None:
    sizes = list((true or {}).get("sizes_found") or found.get("sizes") or [])
    true_sizes = list((true or {}).get("sizes") or [])
    if not sizes and not true_sizes:
        return None
    bins = _doubling_bins(max([*sizes, *true_sizes]))
    names = [str(low) if low == high else f"{low}–{high}" for low, high in bins]
    series = [("groups found", "m-cdp", _in_bins(sizes, bins))]
    if true_sizes:
        series.append(("true identities", "m-all", _in_bins(true_sizes, bins)))
    words = "; ".join(
        f"{name} images: " + ", ".join(f"{values[at]} {what}" for what, _, values in series)
        for at, name in enumerate(names)
    )
    return figure(
        join(
            [
                paired_bars(f"Group sizes. {words}", names, series),
                legend([(kind, name) for name, kind, _ in series]),
            ]
        ),
        "How many groups have how many images (numbers on the left). "
        + (
            "Where the two bars differ, identities were split, joined, or lost images."
            if true_sizes
            else "A few very large groups would be a warning: several people may have been joined."
        ),
        "Group sizes",
    )


def _doubling_bins(largest: int) -> list[tuple[int, int]]:
    bins, low, high = [], 1, 1
    while low <= largest:
        bins.append((low, high))
        low, high = high + 1, 2 * high
    return bins


def _in_bins(sizes: Sequence[int], bins: Sequence[tuple[int, int]]) -> list[int]:
    return [sum(low <= size <= high for size in sizes) for low, high in bins]


def _fates(fates: Mapping[str, int]) -> Html | None:
    if not fates:
        return None
    parts = [
        (name.replace("_", " "), _FATE_KINDS[min(at, len(_FATE_KINDS) - 1)], value)
        for at, (name, value) in enumerate(fates.items())
        if value is not None
    ]
    total = sum(value for _, _, value in parts) or 1
    words = ", ".join(f"{name} {value:,}" for name, _, value in parts)
    named = [(kind, f"{name}: {value:,} ({percent(value / total)})") for name, kind, value in parts]
    return figure(
        join([stacked_bar(f"What became of the images: {words}", parts), legend(named)]),
        "What became of every unlabeled image. One without an accepted pair resembles nobody enough; one isolated "
        "by a split hung on a group that was too large.",
        "Fates",
    )


def _tuning(tuning: Mapping[str, Any] | None) -> Html | None:
    if not tuning or not tuning.get("curve"):
        return None
    curve = sorted(tuning["curve"], key=lambda point: point["threshold"])
    kinds = {"f": "m-cdp", "precision": "odd", "recall": "m-all", "coverage": "m-labeled"}
    names = {"f": "F"}
    series = [(names.get(key, key), kind, [point.get(key) for point in curve]) for key, kind in kinds.items()]
    picture = curve_chart(
        "Threshold against F, precision, recall and coverage",
        [point["threshold"] for point in curve],
        series,
        tuning.get("chosen"),
        "threshold; shares in %",
    )
    return figure(
        join([picture, legend([(kind, name) for name, kind, _ in series])]),
        "Measured on the validation part. A higher threshold accepts fewer pairs: "
        f"precision rises, recall and coverage fall; {_chosen_by(tuning.get('recall_weight', 1.0))}",
        "How the threshold was chosen",
    )


def _chosen_by(recall_weight: float) -> str:
    if recall_weight == 1:
        return "the best F was taken."
    return f"the best mean was taken, recall {recall_weight:g} times as important as precision."


def _tuning_table(tuning: Mapping[str, Any] | None) -> Html | None:
    if not tuning or not tuning.get("curve"):
        return None
    rows = [
        [
            f"{point['threshold']:g}" + (" (chosen)" if point["threshold"] == tuning.get("chosen") else ""),
            *(percent(point.get(key)) for key in ("f", "precision", "recall", "coverage")),
        ]
        for point in sorted(tuning["curve"], key=lambda point: point["threshold"])
    ]
    inner = table(["threshold", "F", "precision", "recall", "coverage"], rows, "Thresholds tried")
    return element("details", element("summary", "Thresholds tried, in numbers"), inner)
