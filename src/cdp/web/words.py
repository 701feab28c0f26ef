"""Number formats of the pages and of the command line."""

from __future__ import annotations

UNKNOWN = "—"


def percent(value: float | None, digits: int = 1) -> str:
    """`93.7 %`."""
    return UNKNOWN if value is None else f"{decimals(100 * value, digits)} %"


def chance(value: float) -> str:
    """`97 %`; certainty is not claimed where there is none."""
    return "over 99 %" if value > 0.995 else "under 1 %" if value < 0.005 else f"{100 * value:.0f} %"


def decimals(value: float | None, digits: int = 2) -> str:
    """`0.97`, `−0.125`."""
    return UNKNOWN if value is None else f"{value:.{digits}f}".replace("-", "−")


def interval(low: float | None, high: float | None, digits: int = 1) -> str:
    """`88.0–98.0 %`; empty if an end is unknown."""
    return "" if low is None or high is None else f"{decimals(100 * low, digits)}–{percent(high, digits)}"


def with_interval(value: float | None, low: float | None, high: float | None, digits: int = 1) -> str:
    """`93.0 % (88.0–98.0 %)`."""
    around = interval(low, high, digits)
    return percent(value, digits) + (f" ({around})" if around and value is not None else "")


def share_with_interval(value: float | None, low: float | None, high: float | None) -> str:
    """Return the same as a number: `0.930 (0.880–0.980)`."""
    if value is None or low is None or high is None:
        return decimals(value, 3)
    return f"{decimals(value, 3)} ({decimals(low, 3)}–{decimals(high, 3)})"


def count(value: float | None) -> str:
    """`12,345`."""
    return UNKNOWN if value is None else f"{int(value):,}"


def counted(value: int, singular: str, plural: str | None = None) -> str:
    """`1 group`, `12 groups`."""
    return f"{value:,} {singular if value == 1 else plural or singular + 's'}"


def seconds(value: float | None) -> str:
    """`0.4 s`, `34 s`, `8 min 32 s`, `2 h 05 min`."""
    if value is None:
        return UNKNOWN
    if value < 10:
        return f"{value:.1f} s"
    whole = round(value)
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def size_in_memory(value: float | None) -> str:
    """`812 MB`, `1.9 GB`, in powers of ten as --memory-budget is."""
    if value is None:
        return UNKNOWN
    return f"{value / 1e9:.1f} GB" if value >= 1e9 else f"{value / 1e6:.0f} MB"
