"""Labels where no identity is known: pairs by their standard similarity, and a bar that needs no labels.

Far more pairs are of two identities than of one, so how similar these are can be read off all pairs, and how many of them to expect
above a bar (`cdp.scoring.null_distribution`). Whatever else lies above it is of one identity: so precision and recall of every bar
are known well enough to take the one with the best F. Among fewer images pairs of one identity and of two are estimated together
(`cdp.scoring.mixture`); among a few dozen the bar is the one on which two halves of the models agree best
(`cdp.labeling.split_half`).

How sure that is, the halves say in all cases: their agreement is how stable the groups are. It is more than how right they are.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np

from cdp.errors import InputError
from cdp.evaluate.label_figures import measure_agreement
from cdp.labeling.result import Judged
from cdp.labeling.split_half import StandardPairs, agree_on_bar, compare_halves, compare_pairs, group_alone
from cdp.labeling.workspace import Graphs, Workspace
from cdp.scoring.mixture import estimate_bars_of_few
from cdp.scoring.null_distribution import EstimatedBars, SimilarityCounts, count_similarities, estimate_bars
from cdp.scoring.settings import ConsensusSettings
from cdp.scoring.zscore import softness
from cdp.types import Views
from cdp.types.run_record import BarPoint, UnsupervisedBar

FEW, MANY = 50, 2000
"""Below so many images two halves agree on the bar; from the other number on, the null distribution is read off all pairs."""

_RAISE = 0.43
"""By so much of the softness of doubt the bar is raised above the best F of pairs, of a mixture: in groups a wrong pair brings others with it."""

_LOWEST, _HIGHEST = 0.01, 100.0
_STABLE, _CHANCE = 0.9, 0.2
"""Agreement of two halves from which on groups are stable, and below which there seems to be nothing to agree on."""


def judge_by_similarity(
    views: Views,
    settings: ConsensusSettings,
    given: Graphs | None,
    *,
    seed: int,
    work: Workspace,
    notes: list[str],
) -> Judged:
    """Judged pairs, and how the bar was chosen if it was not given; then `notes` gets a sentence."""
    whole, found = compare_pairs(views, settings, given, seed=seed, work=work), None
    if not settings.similar_above:
        found = choose_bar(views, whole, settings, seed=seed, work=work)
        settings = with_chosen_bar(settings, found)
        notes.append(describe_bar(found))
    nobody = np.full(views.n_images, -1, np.int64)
    return Judged(whole.at(settings), whole.graphs, whole.together, settings.k, nobody, unsupervised=found)


def choose_bar(
    views: Views,
    whole: StandardPairs,
    settings: ConsensusSettings,
    *,
    seed: int = 0,
    work: Workspace | None = None,
) -> UnsupervisedBar:
    """The bar with the best F to be expected, and how far two halves of the models agree.

    Of very few images, and where no two distributions are found, it is the one on which the halves agree best.
    """
    work = work or Workspace()
    with work.step("bar"):
        counts = count_similarities(views, whole.background, seed, work.progress)
    estimated, chosen = _estimate(counts)
    if views.n_images < FEW or (views.n_images < MANY and not estimated.f.any()):
        agreed = agree_on_bar(views, whole, settings, seed=seed, work=work)
        return msgspec.structs.replace(agreed, share_above=counts.share_above(agreed.chosen))
    agreement = _agreement_of_halves(views, settings, seed, work)
    if agreement is not None and agreement < _CHANCE:
        # Something always sticks out; where nobody is there twice, it is something else in every half.
        return UnsupervisedBar(
            chosen=_as_setting(counts.edges[-1]),
            share_above=0.0,
            precision=0.0,
            recall=0.0,
            agreement=agreement,
        )
    at = max(0, int(np.searchsorted(estimated.bars, chosen, "right")) - 1)
    rows = zip(estimated.bars.tolist(), estimated.precision.tolist(), estimated.recall.tolist(), strict=True)
    curve = [
        BarPoint(threshold=round(bar, 3), precision=round(precision, 4), recall=round(recall, 4))
        for bar, precision, recall in rows
        if precision > 0
    ]
    return UnsupervisedBar(
        chosen=chosen,
        share_above=counts.share_above(chosen),
        precision=float(estimated.precision[at]),
        recall=float(estimated.recall[at]),
        agreement=agreement,
        curve=curve,
    )


def _estimate(counts: SimilarityCounts) -> tuple[EstimatedBars, float]:
    """What to expect of all bars, and the best."""
    if counts.n_images >= MANY:
        estimated = estimate_bars(counts)
        bar = estimated.bars[estimated.best]
    else:
        estimated = estimate_bars_of_few(counts)
        top, best = counts.edges[-1], estimated.f.argmax() if estimated.f.any() else -1
        bar = min(estimated.bars[best] + _RAISE * softness(top), top)
    return estimated, _as_setting(bar)


def _as_setting(bar: float) -> float:
    """Within what similar_above may be; 0 would mean that it is still to be chosen."""
    return round(float(np.clip(bar, _LOWEST, _HIGHEST)), 2)


def _agreement_of_halves(
    views: Views, settings: ConsensusSettings, seed: int, work: Workspace
) -> float | None:
    """Pairwise F between the groups of two halves, each with a bar of its own; None where a model cannot be cut in two."""
    try:
        halves = compare_halves(views, settings, seed=seed, work=work)
    except InputError:
        return None
    with work.step("agreement"):
        counted = [count_similarities(half.views, half.background, seed, work.progress) for half in halves]
        bars = [_estimate(counts)[1] for counts in counted]
        first, second = (
            group_alone(half, own, work)
            for half, own in zip(halves, (replace(settings, similar_above=bar) for bar in bars), strict=True)
        )
        return measure_agreement(first, second)


def with_chosen_bar(settings: ConsensusSettings, found: UnsupervisedBar | None) -> ConsensusSettings:
    """The settings with the bar that was chosen, if one was."""
    return settings if found is None else replace(settings, similar_above=found.chosen)


def describe_bar(found: UnsupervisedBar) -> str:
    """The note: what was chosen, in words, and how sure that is."""
    text = "Nobody is known, so how similar two images of one identity must be was chosen without labels"
    if found.precision is not None and not found.curve:
        return (
            f"{text}: only copies are joined, because no pair is more similar than pairs of two identities are. Are there several "
            "images of anybody, and does the model get its images as it wants them?"
        )
    text += f": {describe_share(found)} (similar_above = {found.chosen:g})."
    if found.precision is not None:
        text += (
            f" About {1 - found.precision:.0%} of these pairs are expected to be wrong, and {1 - (found.recall or 0):.0%} of the right "
            "ones to be missed."
        )
    if found.agreement is None:
        return text
    care = "" if found.agreement >= _STABLE else " Look at the groups with care."
    return (
        f"{text} Two halves of the models, each by itself, make the same groups to a pairwise F of {found.agreement:.3f}: that is how "
        f"stable the groups are, and more than how right they are.{care}"
    )


def describe_share(found: UnsupervisedBar) -> str:
    """Where the bar stands among all pairs, as words."""
    if not found.share_above:
        return "more than any two images that were compared"
    return f"as only 1 of {round(1 / found.share_above):,} pairs of images is"
