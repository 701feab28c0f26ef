"""How good the pseudo-labels are: pairs, groups, sizes, statuses, and how the threshold was chosen."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from cdp.types.run_record import CalibrationBin, Expectation, LabelFigures, PairScores, Results, Score, Tuning
from cdp.web.page_views import Bar, Chart, Series, Swatch, Table, Tile
from cdp.web.report.headline import bar_of
from cdp.web.report.report_views import Section
from cdp.web.svg import bar_figure, curve_chart, paired_bars, stacked_bar
from cdp.web.words import counted, percent

_STATUS_KINDS = ("m-cdp", "wrong", "odd", "m-labeled")
_THRESHOLDS = {
    "probability": "threshold on the probability of a pair",
    "similarity": "threshold on the base's similarity",
    "mean probability": "threshold on the mean probability between groups",
    "z-score": "threshold on the similarity, in standard deviations of random pairs",
}
"""The threshold in words, by what it is compared with."""


def labels_section(results: Results) -> Section:
    """Everything known about the labels; only what needs no truth if there is none."""
    labels, tuning = results.labels, results.tuning
    charts = [
        *_true_charts(labels),
        *_sizes(labels),
        *_statuses(labels.statuses),
        *_expected(results.expected),
        *_tuning(tuning),
        *_calibration(results.calibration),
    ]
    return Section(
        "labels",
        "Labels",
        "Quality of the pseudo-labels",
        lead=_sentence(labels),
        tiles=_tiles(labels),
        charts=charts,
        tables=[*_rounds([*results.earlier_rounds, labels]), *_tuning_table(tuning)],
    )


def _sentence(labels: LabelFigures) -> str:
    groups = counted(labels.identities_found, "pseudo-identity", "pseudo-identities")
    share = percent(labels.coverage)
    start = f"{share} of the unlabeled images are labeled, in {groups}; the others were discarded."
    if labels.true is None:
        return f"{start} True identities are unknown, so the labels cannot be checked."
    score = labels.true.discards_removed.pairwise
    if score.precision is None:
        return f"{start} No two labeled images share a group and a known identity, so precision is undefined."
    return (
        f"{start} Of all pairs with one label, {percent(score.precision)} truly show one identity; of all "
        f"labeled pairs of one identity, {percent(score.recall)} got the same label."
    )


def _tiles(labels: LabelFigures) -> list[Tile]:
    true, note = labels.true, ""
    if true is not None:
        shared = f"{true.identities_true_shared:,} of them with two images or more"
        note = f"{true.identities_true:,} true ones, {shared}"
        if true.identities_found not in (None, labels.identities_found):
            note = f"{true.identities_found:,} among the images that count (no validation image does): {note}"
    name = "pseudo-identity found" if labels.identities_found == 1 else "pseudo-identities found"
    tiles = [
        Tile(percent(labels.coverage), "coverage: images with a label"),
        Tile(f"{labels.identities_found:,}", name, note),
    ]
    if labels.threshold is not None:
        words = _THRESHOLDS.get(labels.threshold_kind, labels.threshold_kind.replace("_", " "))
        tiles.append(Tile(f"{labels.threshold:g}", words))
    return tiles


def _true_charts(labels: LabelFigures) -> list[Chart]:
    true = labels.true
    if true is None:
        return []
    charts = [] if true.pairs is None else [_pairs(true.pairs, labels.threshold_kind)]
    kept = "Discarded images count as groups of one, which costs recall."
    removed = "Labeled images only: what a network trains on."
    for scores, name, reading in (
        (true.discards_kept, "discards kept", kept),
        (true.discards_removed, "discards removed", removed),
    ):
        bars = [*_three_bars(scores.pairwise, "pairwise "), *_three_bars(scores.bcubed, "BCubed ")]
        how = "Pairwise counts pairs of images; BCubed averages over images, so small groups count too."
        charts.append(bar_figure(f"Groups, {name}", f"{reading} {how}", bars, percent, 1.0))
    return charts


def _three_bars(score: Score | PairScores, before: str = "") -> list[Bar]:
    return [
        Bar(f"{before}precision", score.precision, kind="m-cdp"),
        Bar(f"{before}recall", score.recall, kind="m-all"),
        Bar(f"{before}F", score.f, kind="m-labeled"),
    ]


def _pairs(pairs: PairScores, kind: str) -> Chart:
    of_all = f"{pairs.accepted:,} of {counted(pairs.candidates, 'candidate pair')}"
    what = f"Before propagation: {of_all} were accepted."
    if kind in ("mean probability", "z-score"):
        what = f"{of_all} are in one group, and count as accepted."
    return bar_figure(
        "Accepted pairs",
        f"{what} Precision: share of them that are genuine. Recall: share of genuine candidates accepted.",
        _three_bars(pairs),
        percent,
        1.0,
    )


def _rounds(rounds: Sequence[LabelFigures]) -> list[Table]:
    """Return how the labels became better, or not, from round to round; nothing if there was one."""
    if len(rounds) < 2:
        return []
    rows = []
    for number, labels in enumerate(rounds, start=1):
        score = Score() if labels.true is None else labels.true.discards_kept.pairwise
        shares = (percent(share) for share in (score.precision, score.recall, score.f))
        rows.append([str(number), percent(labels.coverage), f"{labels.identities_found:,}", *shares])
    header = ["round", "images labeled", "pseudo-identities", "precision", "recall", "F"]
    return [Table(header, rows, "Labels, round by round (pairwise, discards kept)")]


def _sizes(labels: LabelFigures) -> list[Chart]:
    sizes, true_sizes = labels.sizes, [] if labels.true is None else labels.true.sizes
    if labels.true is not None and labels.true.sizes_found:
        sizes = labels.true.sizes_found
    if not sizes and not true_sizes:
        return []
    n_bins = (max([*sizes, *true_sizes]) - 1).bit_length() + 1
    names = ["1", "2", *(f"{2 ** (at - 1) + 1}–{2**at}" for at in range(2, n_bins))][:n_bins]
    found, true = _in_bins(sizes, n_bins), _in_bins(true_sizes, n_bins)
    series = [Series("groups found", "m-cdp", found)]
    spoken = [
        f"{name} {'image' if name == '1' else 'images'}: {counted(number, 'group')} found"
        for name, number in zip(names, found, strict=True)
    ]
    reading = "A few very large groups may be several people joined."
    if true_sizes:
        series.append(Series("true identities", "m-all", true))
        spoken = [
            f"{words}, {counted(number, 'true identity', 'true identities')}"
            for words, number in zip(spoken, true, strict=True)
        ]
        reading = "Differences come from split, merged or discarded identities."
    return [
        Chart(
            paired_bars(f"Group sizes. {'; '.join(spoken)}", names, series),
            f"Number of groups by number of images (left). {reading}",
            "Group sizes",
            legend=_legend(series),
        )
    ]


def _legend(series: Sequence[Series]) -> list[Swatch]:
    return [Swatch(one.kind, one.name) for one in series]


def _in_bins(sizes: Sequence[int], n_bins: int) -> list[int]:
    """Return how many sizes are 1, 2, 3 to 4, 5 to 8, and so on."""
    counts = Counter((size - 1).bit_length() for size in sizes)
    return [counts[at] for at in range(n_bins)]


def _statuses(statuses: Mapping[str, int]) -> list[Chart]:
    if not statuses:
        return []
    parts = [
        Bar(name.replace("_", " "), value, kind=_STATUS_KINDS[min(at, len(_STATUS_KINDS) - 1)])
        for at, (name, value) in enumerate(statuses.items())
    ]
    total = sum(statuses.values()) or 1
    words = ", ".join(f"{part.name} {part.value:,}" for part in parts)
    return [
        Chart(
            stacked_bar(f"Status of the images: {words}", parts),
            "Status of every unlabeled image: no accepted pair = too unlike all others; isolated = likely "
            "pairs, but in no group.",
            "Status of the images",
            legend=[
                Swatch(part.kind, f"{part.name}: {part.value:,} ({percent((part.value or 0) / total)})")
                for part in parts
            ],
        )
    ]


def _expected(expected: Expectation | None) -> list[Chart]:
    if expected is None:
        return []
    labeled = counted(expected.identities, "labeled identity", "labeled identities")
    chart = bar_figure(
        "Expected quality",
        f"Estimated from {labeled} grouped among the others, with 95 % intervals: precision and recall of "
        "pairs, and share of images labeled.",
        [
            bar_of("precision", expected.precision, "m-cdp"),
            bar_of("recall", expected.recall, "m-all"),
            bar_of("coverage", expected.coverage, "m-labeled"),
        ],
        percent,
        1.0,
    )
    return [chart]


def _calibration(bins: Sequence[CalibrationBin]) -> list[Chart]:
    """Return the reliability diagram: a calibrated scorer's points are on the diagonal."""
    if len(bins) < 2:
        return []
    series = [
        Series("truly one identity", "m-cdp", [one.same for one in bins]),
        Series("if probabilities were exact", "m-labeled", [one.probability for one in bins]),
    ]
    drawn = curve_chart(
        "Predicted probability against the observed share of genuine pairs",
        [one.probability for one in bins],
        series,
        None,
        "probability of a pair; shares in %",
    )
    pairs = counted(sum(one.pairs for one in bins), "pair")
    return [
        Chart(
            drawn,
            f"{pairs} with a labeled image, not used in training: observed share of genuine pairs by "
            "predicted probability.",
            "Calibration",
            legend=_legend(series),
        )
    ]


def _tuning(tuning: Tuning | None) -> list[Chart]:
    if tuning is None or not tuning.curve:
        return []
    curve = sorted(tuning.curve, key=lambda point: point.threshold)
    series = [
        Series("F", "m-cdp", [point.f for point in curve]),
        Series("precision", "odd", [point.precision for point in curve]),
        Series("recall", "m-all", [point.recall for point in curve]),
        Series("coverage", "m-labeled", [point.coverage for point in curve]),
    ]
    drawn = curve_chart(
        "Threshold against F, precision, recall and coverage",
        [point.threshold for point in curve],
        series,
        tuning.chosen,
        "threshold; shares in %",
    )
    by = "the best F was taken."
    if tuning.beta != 1:
        by = f"the best F-beta was taken, with beta {tuning.beta:g}."
    if tuning.min_precision is not None:
        by = (
            f"of those with precision {tuning.min_precision:g} or more, the one with the best recall was "
            "taken."
        )
    return [
        Chart(
            drawn,
            "Measured on labeled images grouped among the others. A higher threshold raises precision and "
            f"lowers recall and coverage; {by}",
            "Choice of the threshold",
            legend=_legend(series),
        )
    ]


def _tuning_table(tuning: Tuning | None) -> list[Table]:
    if tuning is None or not tuning.curve:
        return []
    rows = [
        [
            f"{point.threshold:g}" + (" (chosen)" if point.threshold == tuning.chosen else ""),
            *(percent(share) for share in (point.f, point.precision, point.recall, point.coverage)),
        ]
        for point in sorted(tuning.curve, key=lambda point: point.threshold)
    ]
    header = ["threshold", "F", "precision", "recall", "coverage"]
    return [Table(header, rows, "Thresholds tried", 1, "All thresholds")]
