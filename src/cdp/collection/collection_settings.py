"""How a collection grows: settings that labeling once does not need."""

from __future__ import annotations

from dataclasses import dataclass

from cdp.settings import check_settings, setting


@dataclass(frozen=True)
class GrowthSettings:
    """How many identities keep their IDs, and when trees are trained again."""

    id_stability: float = setting(
        0.99,
        "Minimum share of identities that keep their number in every step; 0 = merge and split freely.",
        meaning="a share",
        low=0,
        high=1,
    )
    retrain_after: float = setting(
        1.5,
        "Growth factor of the collection after which trees are retrained and the threshold is chosen again.",
        meaning="a factor",
        low=1,
        high=1000,
    )

    def __post_init__(self) -> None:
        check_settings(self, "")
