"""Settings of the k-NN search."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from cdp.settings import MOST_IMAGES, setting


@dataclass(frozen=True)
class SearchSettings:
    """The k-NN graphs."""

    k: int = setting(
        20, "Number of neighbors per image.", meaning="a number of neighbors", low=1, high=MOST_IMAGES
    )
    method: Literal["auto", "exact", "approximate"] = setting(
        "auto", "k-NN search; auto = exact up to 30,000 images."
    )
    recall: float = setting(
        0.97,
        "Recall of the approximate search (of same-identity neighbors if identities are labeled).",
        meaning="a share",
        above=0,
        high=1,
    )
