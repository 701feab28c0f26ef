"""Choices left to the data: the labeled share and the input size, each explained in a sentence."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from cdp.config.sections import JointSection, RunRecipe, SplitSection, TrainSection
from cdp.run.image_scan import UNREADABLE, ImageScan

_ELEVENTH = 1 / 11
"""The paper's parts."""

LABELED_IDENTITIES, VALIDATION_IDENTITIES = 30, 22
"""Identities that are wanted to train on, and to choose the threshold on: that takes 20, and parts are equal
in images, not in people."""

_MOST_LABELED, _MOST_VALIDATION = 0.3, 0.22
"""Shares of all images that small data are labeled and validated with at most, so that half is left to be
labeled and tested on."""

FEW_IDENTITIES, FEW_IMAGES = 20, 250
"""Networks that are trained from scratch on fewer tell strangers apart poorly: of drawn faces, which are
easier than photos, 6 labeled
identities with 94 images gave labels of expected precision 0.34, and 30 with 475 images 0.86."""

_SMALL_SIZE, _LARGE_SIZE, _LARGE_SIDE = 32, 64, 48


def validation_share(identities: int | None, rest: float = 1.0) -> float:
    """Return the share of images for choosing the threshold; 1/11 if the number of identities is unknown.

    Args:
        rest: share that the test parts leave, of which it takes a third at most.
    """
    wanted = _at_least_eleventh(identities, VALIDATION_IDENTITIES, _MOST_VALIDATION)
    return max(_ELEVENTH, min(wanted, rest / 3))


def choose_parts(split: SplitSection, identities: int | None) -> SplitSection:
    """Choose labeled share and number of unlabeled parts, given the shares of the test parts."""
    rest = 1 - split.validation - split.probes - split.distractors
    labeled = split.labeled
    if labeled < 0:
        of_all = _at_least_eleventh(identities, LABELED_IDENTITIES, _MOST_LABELED)
        labeled = _ELEVENTH if of_all == _ELEVENTH else min(0.6, max(_ELEVENTH, of_all / rest))
    parts = split.unlabeled_parts or max(1, round((1 - labeled) / labeled))
    return replace(split, labeled=labeled, unlabeled_parts=max(parts, split.use_parts or 1))


def _at_least_eleventh(identities: int | None, wanted: int, most: float) -> float:
    return _ELEVENTH if not identities else max(_ELEVENTH, min(most, wanted / identities))


def split_sentences(given: SplitSection, chosen: SplitSection, identities: int | None) -> list[str]:
    """Note that more than an eleventh is labeled, where that was chosen here."""
    if identities is None or given.labeled >= 0 or chosen.labeled <= _ELEVENTH:
        return []
    rest = 1 - chosen.validation - chosen.probes - chosen.distractors
    also = ""
    if given.validation < 0 < chosen.validation:
        also = f" and {100 * chosen.validation:.0f} % choose the threshold (--split.validation)"
    return [
        f"{identities:,} identities do not fill eleven parts: {100 * chosen.labeled * rest:.0f} % of the "
        f"images are labeled (--split.labeled){also}."
    ]


def choose_size(scan: ImageScan | None, least: int = 0) -> int:
    """Choose the input size in pixels: that of drawn faces or twice it, at least the networks' minimum."""
    is_large = scan is not None and scan.median_side >= _LARGE_SIDE
    return max(_LARGE_SIZE if is_large else _SMALL_SIZE, least)


def with_sizes(recipe: RunRecipe, scan: ImageScan | None, least: int) -> RunRecipe:
    """Fill in an open input size of the recipe, within a given scale."""

    def sized(section: TrainSection | JointSection) -> Any:
        size = choose_size(scan, least)
        return section if section.size else replace(section, size=min(size, section.scale or size))

    return replace(recipe, train=sized(recipe.train), joint=sized(recipe.joint))


def size_sentences(given: RunRecipe, chosen: RunRecipe, scan: ImageScan) -> list[str]:
    """Return how large the input is, where that was chosen here."""
    if given.train.size and given.joint.size:
        return []
    size = (chosen.joint if given.train.size else chosen.train).size
    return [
        f"Networks see {size} x {size} pixels: half of the images have {scan.median_side:,} or more on their "
        "shorter side. --size sets another, e.g. "
        f"{'112, in about three times the time' if size == _LARGE_SIZE else '64'}."
    ]


def image_sentences(recipe: RunRecipe, scan: ImageScan, is_trained: bool) -> list[str]:
    """Describe images that are left out, and images that are enlarged for training."""
    sentences = []
    if scan.n_unreadable:
        are = "image cannot be read and is" if scan.n_unreadable == 1 else "images cannot be read and are"
        sentences.append(f"{scan.n_unreadable:,} {are} left out; run/{UNREADABLE} says why.")
    size = max(recipe.train.stored_size, recipe.joint.stored_size)
    if is_trained and (n_small := scan.count_below(size)):
        are = "image is" if n_small == 1 else "images are"
        sentences.append(
            f"{n_small:,} of {scan.n_images:,} {are} smaller than {size} x {size} pixels, and enlarged."
        )
    return sentences


def few_sentences(counts: Mapping[str, Mapping[str, int | None]]) -> list[str]:
    """Warn that networks trained from scratch on few labeled images will be weak."""
    images, identities = counts["labeled"]["images"] or 0, counts["labeled"]["identities"] or 0
    if identities >= FEW_IDENTITIES and images >= FEW_IMAGES:
        return []
    return [
        f"{images:,} labeled images of {identities:,} identities are few to train networks on from scratch, "
        "and labels will be poor: give more labeled identities (more folders, or --split.labeled), weights "
        "to start from (--base.weights), or models that are trained already (--network onnx:FILE; for photos "
        "of people, cdp label downloads public ones)."
    ]
