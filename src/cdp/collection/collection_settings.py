"""How a collection grows: settings that labeling once does not need."""

from __future__ import annotations

from dataclasses import dataclass

from cdp.settings import check_settings, setting


@dataclass(frozen=True)
class GrowthSettings:
    """When identities that have numbers may be merged, and when trees are trained anew."""

    merge_above: float = setting(
        0.9,
        "Two identities that have numbers already are merged where the mean probability between them is greater, and stay two "
        "otherwise, to be asked about; with join_above or less they are merged as freely as new groups.",
        meaning="a probability",
        above=0,
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
