"""How a collection grows: settings that labeling once does not need."""

from __future__ import annotations

from dataclasses import dataclass

from cdp.settings import check_settings, setting


@dataclass(frozen=True)
class GrowthSettings:
    """How many identities keep their numbers, and when trees are trained anew."""

    keep_numbers: float = setting(
        0.99,
        "Share of the identities that keep their numbers in every step, at least: of the merges and splits that would take one away, "
        "those come first that put the most pairs of images right, and the others wait, and so do new groups that are small and not sure; "
        "0 = none does.",
        meaning="a share",
        low=0,
        high=1,
    )
    retrain_after: float = setting(
        1.5,
        "Trees are trained anew, also on corrections, and the bar is chosen anew, when there are so many times as many images "
        "as when they were.",
        meaning="a factor",
        low=1,
        high=1000,
    )

    def __post_init__(self) -> None:
        check_settings(self, "")
