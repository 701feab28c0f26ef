"""Memory budgets: how many rows fit."""

from __future__ import annotations

import re

from cdp.errors import InputError

_UNITS = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 2**10,
    "MIB": 2**20,
    "GIB": 2**30,
}


def parse_bytes(budget: int | float | str) -> int:
    """Bytes in `"2GB"`, `"500 MiB"` or a plain number."""
    if isinstance(budget, str):
        match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", budget)
        unit = match and _UNITS.get(match[2].upper())
        if not match or not unit:
            raise InputError(f"memory_budget: {budget!r} is not a size; write for example '2GB' or '500MB'.")
        amount = float(match[1]) * unit
    else:
        amount = float(budget)
    if not amount >= 1:
        raise InputError(f"memory_budget: {budget!r} is not a size; write for example '2GB' or '500MB'.")
    return int(amount)


def rows_within(budget: int | float | str, bytes_per_row: int, at_least: int = 1024) -> int:
    """How many rows of a block fit the budget; never so few that the overhead per block would rule."""
    return max(at_least, parse_bytes(budget) // max(1, bytes_per_row))
