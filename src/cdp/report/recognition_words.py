"""Figures of recognition with their intervals, as words and as bars."""

from __future__ import annotations

from collections.abc import Sequence

from cdp.report.svg import Bar
from cdp.report.words import percent
from cdp.types.run_record import Figure, RecognitionFigures


def interval(figure: Figure) -> str:
    """`88.0 to 98.0 %`; empty if there is none."""
    if figure.low is None or figure.high is None:
        return ""
    return f"{100 * figure.low:.1f} to {100 * figure.high:.1f} %"


def with_interval(figure: Figure) -> str:
    """`93.0 % (88.0 to 98.0 %)`."""
    around = interval(figure)
    return percent(figure.value) + (f" ({around})" if around and figure.value is not None else "")


def bar_of(name: str, figure: Figure, kind: str) -> Bar:
    """A bar with its interval as whiskers and as a remark."""
    return Bar(name, figure.value, figure.low, figure.high, kind, interval(figure))


def measures(of: Sequence[RecognitionFigures]) -> dict[str, list[Figure]]:
    """Name of a measure -> its figure per network: rank-1, and TPR of pairs and templates at every FPR that one has."""
    found: dict[str, list[Figure]] = {}
    if any(one.rank1.value is not None for one in of) or not any(one.templates for one in of):
        found["rank-1"] = [one.rank1 for one in of]
    for key, name in (("tpr", "TPR"), ("templates", "TPR of templates")):
        tables = [{rate.fpr: rate for rate in getattr(one, key)} for one in of]
        for fpr in dict.fromkeys(fpr for rates in tables for fpr in rates):
            found[f"{name} at FPR {100 * fpr:g} %"] = [rates.get(fpr, Figure()) for rates in tables]
    return found
