"""Whether settings, views, labeled parts and a mediator fit one another: a sentence for whatever does not."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import combinations

import numpy as np

from cdp.errors import InputError, name_rows
from cdp.knn.exact import BLOCK_ROWS
from cdp.knn.search import check_k
from cdp.runtime.memory import parse_bytes
from cdp.runtime.runtime import Runtime
from cdp.scoring.mediator import Mediator
from cdp.scoring.settings import ConsensusSettings
from cdp.scoring.vote import check_min_votes
from cdp.types import Embeddings, Views
from cdp.types.arrays import BoolArray

_SAMPLE_ROWS = 256
# In bytes; see `least_memory`.
_FIXED = 24 * 10**6
_PER_THREAD = 12 * 10**6
_PER_IMAGE = 250
_PER_IMAGE_AND_MODEL = 30


def check_views(
    settings: ConsensusSettings,
    views: Views,
    others: Sequence[Views | BoolArray | None] = (),
    runtime: Runtime | None = None,
) -> None:
    """Refuse settings that the images or the committee cannot meet; warn of too little memory."""
    if runtime is not None:
        check_memory([views, *others], runtime)
    check_k(settings.k, views.n_images)
    check_min_votes(settings.min_votes, len(views.committee))
    if settings.inputs == ("relationship",) and not views.committee and settings.mediator != "vote":
        raise InputError(
            "inputs = relationship only, which is about the committee, and there is none: add affinity.",
            code="inputs-need-committee",
            key="inputs",
        )
    for (name, one), (other, another) in combinations(zip(views.names, views, strict=True), 2):
        if _are_copies(one, another):
            raise InputError(
                f"{name!r} and {other!r} hold the same embeddings, so their agreement says nothing; leave "
                f"{other!r} out, or give the embeddings that are meant.",
                code="models-identical",
                models=(name, other),
            )


def _are_copies(one: Embeddings, another: Embeddings) -> bool:
    """Test on a sample of rows whether two models give the same unit vectors."""
    if one is not another and one.dimensions != another.dimensions:
        return False
    rows = np.unique(np.linspace(0, len(one) - 1, _SAMPLE_ROWS).astype(np.int64))
    return bool(np.allclose(one.take(rows), another.take(rows), rtol=0, atol=1e-6))


def check_mask(mask: BoolArray | None, views: Views) -> BoolArray | None:
    """Refuse a validation mask that is not one bool per unlabeled image; return None if it is empty."""
    if mask is None:
        return None
    if mask.dtype != np.bool_ or mask.shape != (views.n_images,):
        raise InputError(
            f"validation: views, or a mask with true or false for each of the {views.n_images:,} unlabeled "
            f"images, are needed, not an array of {mask.dtype} {mask.shape}.",
            code="validation-mask-wrong",
            n_images=views.n_images,
            found=mask.shape,
        )
    return mask if mask.any() else None


def check_memory(parts: Sequence[Views | BoolArray | None], runtime: Runtime) -> None:
    """Warn if the images do not fit into the memory budget."""
    views, *others = [part for part in parts if isinstance(part, Views)]
    n_images = views.n_images + sum(part.n_images for part in others)
    needed = least_memory(n_images, views, runtime.n_threads)
    budget = runtime.settings.memory_budget
    if parse_bytes(budget) < needed:
        warnings.warn(
            f"memory_budget = {budget} is too little for {n_images:,} images in {len(views)} models: "
            f"about {needed / 1e6:,.0f} MB will be needed.",
            stacklevel=3,
        )


def least_memory(n_images: int, views: Views, threads: int) -> int:
    """Return the smallest memory budget that labeling keeps to, in bytes.

    Measured (`python -m benchmarks memory`): blocks under way, of which there is at least one however small
    the budget is, and numbers per image that are held whatever the budget is.
    """
    widest = max(model.dimensions for model in views)
    fixed = _FIXED + threads * (_PER_THREAD + 8 * BLOCK_ROWS * widest)
    return fixed + (_PER_IMAGE + _PER_IMAGE_AND_MODEL * len(views)) * n_images


def check_mediator(mediator: Mediator | None, views: Views, settings: ConsensusSettings) -> None:
    """Refuse views and settings other than those the mediator was trained with."""
    if mediator is None:
        if settings.mediator == "mlp":
            raise InputError(
                'No mediator was trained; fit again, or use mediator = "vote".', code="mediator-not-trained"
            )
        return
    if not settings.is_trained:
        raise InputError(
            f'A trained mediator is given, and mediator = "{settings.mediator}" uses none; leave one out.',
            code="mediator-not-used",
            key="mediator",
            value=settings.mediator,
        )
    if tuple(views.committee) != mediator.committee:
        raise InputError(
            f"The mediator was trained with the committee {_listed(mediator.committee)}, these views have "
            f"{_listed(tuple(views.committee))}; give the same members in the same order.",
            code="mediator-committee-differs",
            expected=mediator.committee,
            found=tuple(views.committee),
        )
    if mediator.k != settings.k and settings.k != views.n_images - 1:
        raise InputError(
            f"The mediator was trained on graphs with k={mediator.k}, here k={settings.k}; use the same k.",
            code="mediator-k-differs",
            expected=mediator.k,
            found=settings.k,
        )


def check_same_committee(labeled: Views, views: Views) -> None:
    """Refuse labeled images that were embedded by other models."""
    if tuple(labeled.committee) != tuple(views.committee):
        raise InputError(
            f"The labeled images have the committee {_listed(tuple(labeled.committee))}, these views have "
            f"{_listed(tuple(views.committee))}; give the same members in the same order.",
            code="labeled-committee-differs",
            expected=tuple(labeled.committee),
            found=tuple(views.committee),
        )


def check_same_models(parts: Mapping[object, Views], names: Collection[str] | None = None) -> None:
    """Refuse two parts, by path, that were not embedded by the same models, or by the same of these names."""
    models = {
        path: ", ".join(
            f"{name} ({model.dimensions} dimensions)"
            for name, model in zip(views.names, views, strict=True)
            if names is None or name in names
        )
        for path, views in parts.items()
    }
    if len(set(models.values())) > 1:
        found = ", ".join(f"{path} has {listed}" for path, listed in models.items())
        raise InputError(
            f"{found}; both must be embedded by the same networks.", code="parts-models-differ", models=models
        )


def check_labeled(parts: Sequence[Views], settings: ConsensusSettings) -> None:
    """Refuse labeled parts that a mediator cannot be trained on, or a vote not be tuned on."""
    if not parts and settings.is_trained:
        raise InputError(
            "The mediator needs labeled images; give a labeled part or a trained mediator, or use "
            'mediator = "vote".',
            code="labeled-missing",
        )
    for number, views in enumerate(parts):
        # A part that a vote is tuned on joins the others, so it may have fewer images than neighbors.
        check_views(replace(settings, k=min(settings.k, max(1, views.n_images - 1))), views)
        _require_identities(views, two=settings.is_trained)
        if tuple(views.committee) != tuple(parts[0].committee):
            raise InputError(
                f"Labeled part 0 has the committee {_listed(tuple(parts[0].committee))}, part {number} has "
                f"{_listed(tuple(views.committee))}; give the same members in the same order.",
                code="labeled-committees-differ",
                part=number,
                expected=tuple(parts[0].committee),
                found=tuple(views.committee),
            )


def _require_identities(views: Views, *, two: bool) -> None:
    if views.identities is None:
        raise InputError(
            "The labeled part has no identities, which the mediator needs; give them with "
            'Views(..., identities=...), or use mediator = "vote".',
            code="labeled-identities-missing",
        )
    unknown = np.flatnonzero(views.identities < 0)
    if unknown.size:
        raise InputError(
            f"The labeled part has no identity for {name_rows(unknown)} (counted from 0); leave these images "
            "out.",
            code="labeled-identities-incomplete",
            row=unknown[0],
            count=len(unknown),
        )
    if two and len(np.unique(views.identities)) < 2:
        raise InputError(
            "The labeled part has one identity only; the mediator needs at least two to compare.",
            code="labeled-one-identity",
        )


def _listed(names: Sequence[str]) -> str:
    return f"({', '.join(names)})" if names else "(empty)"
