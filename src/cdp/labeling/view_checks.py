"""Whether settings, views, labeled parts and a mediator fit one another: a sentence for whatever does not."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cdp.consensus.mediator import Mediator
from cdp.consensus.settings import ConsensusSettings
from cdp.consensus.vote import check_quorum
from cdp.errors import InputError, name_rows
from cdp.graph.search import check_k
from cdp.types import Views


def check_views(settings: ConsensusSettings, views: Views) -> None:
    """Refuse settings that these images or this committee cannot meet."""
    check_k(settings.k, views.n_images)
    check_quorum(settings.quorum, len(views.committee))
    if settings.inputs == ("relationship",) and not views.committee and settings.mediator != "vote":
        raise InputError(
            "inputs = relationship only, which is about the committee, and there is none: add affinity."
        )


def check_mediator(mediator: Mediator, views: Views, settings: ConsensusSettings) -> None:
    """Refuse views and settings other than those the mediator was trained with."""
    if tuple(views.committee) != mediator.committee:
        raise InputError(
            f"The mediator was trained with the committee {_listed(mediator.committee)}, these views have "
            f"{_listed(tuple(views.committee))}; give the same members in the same order."
        )
    if mediator.k != settings.k:
        raise InputError(
            f"The mediator was trained on graphs with k={mediator.k}, here k={settings.k}; use the same k."
        )


def check_same_committee(parts: Sequence[Views]) -> None:
    """Refuse labeled parts that were seen by different committees."""
    first = tuple(parts[0].committee)
    for number, views in enumerate(parts):
        if tuple(views.committee) != first:
            raise InputError(
                f"Labeled part 0 has the committee {_listed(first)}, part {number} has "
                f"{_listed(tuple(views.committee))}; give the same members in the same order."
            )


def require_identities(views: Views, *, two: bool) -> None:
    """Refuse a labeled part with unknown identities, or, where two are needed, with one only."""
    if views.identities is None:
        raise InputError(
            "The mediator is trained on identities and the labeled part has none; give them with "
            'Views(..., identities=...), or use mediator = "vote", which needs none.'
        )
    unknown = np.flatnonzero(views.identities < 0)
    if unknown.size:
        raise InputError(
            f"The labeled part has no identity for {name_rows(unknown)} (counted from 0); leave these images out."
        )
    if two and len(np.unique(views.identities)) < 2:
        raise InputError(
            "The labeled part has one identity only; the mediator needs at least two to compare."
        )


def _listed(names: Sequence[str]) -> str:
    return f"({', '.join(names)})" if names else "(empty)"
