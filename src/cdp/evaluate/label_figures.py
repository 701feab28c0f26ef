"""Metrics of pairs before propagation, and of labels: pairwise, BCubed, NMI.

Each is computed twice: discarded images as groups of one, and left out.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cdp.blocks import PAIRS_PER_BLOCK, spans
from cdp.errors import InputError
from cdp.types import ConsensusGraph, Labels, Pairs
from cdp.types.arrays import AnyArray, BoolArray, IntArray, LongArray
from cdp.types.run_record import GroupScores, PairScores, Score, TrueFigures


def measure_labels(labels: Labels | npt.ArrayLike, identities: npt.ArrayLike) -> TrueFigures:
    """Measure labels against true identities; images of unknown identity (negative) do not count.

    Examples:
        >>> from cdp import measure_labels
        >>> figures = measure_labels([0, 0, 1, 1, -1], identities=[5, 5, 5, 8, 8])
        >>> figures.discards_kept.pairwise.precision, figures.coverage
        (0.5, 0.8)
    """
    given = labels if isinstance(labels, Labels) else Labels.from_array(labels)
    truth = whole_numbers(identities, "measure_labels")
    if truth.shape != (given.n_images,):
        raise InputError(
            f"measure_labels: {truth.size:,} identities for {given.n_images:,} labels.",
            code="measured-identities-differ",
            expected=given.n_images,
            found=truth.size,
        )
    known = truth >= 0
    if not known.any():
        raise InputError(
            "measure_labels: no identity is known, so there is nothing to compare with.",
            code="measured-identities-unknown",
        )
    found, true = given.labels[known].astype(np.int64), truth[known]
    kept = found >= 0
    alone = found.max(initial=-1) + 1 + np.arange(len(found))
    sizes, sizes_found = (np.unique(some, return_counts=True)[1] for some in (true, found[kept]))
    return TrueFigures(
        images=len(true),
        coverage=float(kept.mean()),
        identities_found=len(sizes_found),
        identities_true=len(sizes),
        identities_true_shared=int((sizes > 1).sum()),
        sizes=np.sort(sizes)[::-1].tolist(),
        sizes_found=np.sort(sizes_found)[::-1].tolist(),
        discards_kept=_measure_groups(np.where(kept, found, alone), true),
        discards_removed=_measure_groups(found[kept], true[kept]),
    )


def measure_among_others(labels: Labels, identities: npt.ArrayLike) -> Score:
    """Pairwise figures of images whose identities are known, labeled together with many others.

    Counting pairs among the known images only would see a tenth of the mistakes if a tenth of the images is
    known. So every image that shares a group with a known one counts, and the others are taken to be other
    people: all images of a known identity must be known.
    """
    truth = whole_numbers(identities, "measure_among_others")
    known = truth >= 0
    if truth.shape != (labels.n_images,) or not known.any():
        raise InputError(
            "measure_among_others: one identity per label is needed, and some must be known.",
            code="measured-others-unknown",
        )
    sizes = np.bincount(labels.labels[labels.labels >= 0], minlength=1)
    grouped = known & (labels.labels >= 0)
    pairs = np.stack([labels.labels[grouped].astype(np.int64), truth[grouped]], axis=1)
    overlap = np.unique(pairs, axis=0, return_counts=True)[1]
    together = _ordered_pairs(overlap)
    return pair_score(
        together,
        float((sizes[labels.labels[grouped]] - 1).sum()),
        _ordered_pairs(np.unique(truth[known], return_counts=True)[1]),
    )


def measure_pairs(graph: ConsensusGraph, candidates: Pairs, identities: npt.ArrayLike) -> PairScores:
    """Return number, precision, and recall among the candidates, of the accepted pairs.

    Pairs with an unknown identity do not count; precision is None if nothing was accepted, recall if no
    candidate is true.
    """
    known = whole_numbers(identities, "measure_pairs")
    if known.shape != (graph.n_images,) or candidates.n_images != graph.n_images:
        raise InputError(
            f"measure_pairs: the graph has {graph.n_images:,} images, the candidates "
            f"{candidates.n_images:,}, and there are {known.size:,} identities.",
            code="measured-pairs-differ",
            graph=graph.n_images,
            candidates=candidates.n_images,
            identities=known.size,
        )
    return score_pairs(count_pairs(graph.ids, known), count_pairs(candidates.ids, known))


def score_pairs(accepted: tuple[int, int], candidates: tuple[int, int]) -> PairScores:
    """Compute the figures of pairs from counts of each kind: pairs of known identities, genuine pairs."""
    (n_accepted, n_true_accepted), (n_candidates, n_true) = accepted, candidates
    return PairScores(
        candidates=n_candidates,
        true_candidates=n_true,
        accepted=n_accepted,
        precision=n_true_accepted / n_accepted if n_accepted else None,
        recall=n_true_accepted / n_true if n_true else None,
    )


def count_pairs(ids: IntArray, identities: LongArray) -> tuple[int, int]:
    """Count the pairs of known identities, and those of one identity."""
    n_known, n_same = 0, 0
    for start, stop in spans(len(ids), PAIRS_PER_BLOCK):
        first, second = identities[ids[start:stop, 0]], identities[ids[start:stop, 1]]
        known: BoolArray = (first >= 0) & (second >= 0)
        n_known += int(known.sum())
        n_same += int(((first == second) & known).sum())
    return n_known, n_same


def _measure_groups(found: LongArray, true: LongArray) -> GroupScores:
    from sklearn.metrics import normalized_mutual_info_score

    n_images = len(found)
    if n_images == 0:
        return GroupScores(images=0, groups=0, identities=0)
    _, group = np.unique(found, return_inverse=True)
    _, person = np.unique(true, return_inverse=True)
    group_sizes, person_sizes = np.bincount(group), np.bincount(person)
    # The contingency table, only its filled cells: it has at most n of them, never groups x identities.
    cells, overlap = np.unique(group * np.int64(len(person_sizes)) + person, return_counts=True)
    cell_group, cell_person = np.divmod(cells, len(person_sizes))
    squares = overlap.astype(np.float64) ** 2
    together = float(squares.sum()) - n_images
    bcubed_precision = float((squares / group_sizes[cell_group]).sum()) / n_images
    bcubed_recall = float((squares / person_sizes[cell_person]).sum()) / n_images
    return GroupScores(
        images=n_images,
        groups=len(group_sizes),
        identities=len(person_sizes),
        pairwise=pair_score(together, _ordered_pairs(group_sizes), _ordered_pairs(person_sizes)),
        bcubed=_mean_score(bcubed_precision, bcubed_recall),
        nmi=float(normalized_mutual_info_score(person, group, average_method="arithmetic")),
    )


def whole_numbers(identities: npt.ArrayLike, caller: str) -> LongArray:
    """Identities as int64; numbers with a fraction or NaN are refused, not cut."""
    numbers = np.asarray(identities)
    if numbers.size and numbers.dtype.kind not in "iu":
        raise InputError(
            f"{caller}: identities are {numbers.dtype}; give whole numbers, -1 where unknown.",
            code="identities-not-whole",
            found=str(numbers.dtype),
        )
    return numbers.astype(np.int64)


def _ordered_pairs(sizes: AnyArray) -> float:
    return float((sizes.astype(np.float64) * (sizes - 1)).sum())


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def pair_score(found: float, in_groups: float, to_find: float) -> Score:
    """Precision, recall and F from numbers of pairs: the one definition of both tuning and measuring.

    F is 2 · found / (in_groups + to_find): 0 where nothing was found, and None only where there is nothing to
    find.
    """
    f = 2 * found / (in_groups + to_find) if to_find > 0 else None
    return Score(precision=_ratio(found, in_groups), recall=_ratio(found, to_find), f=f)


def _mean_score(precision: float, recall: float) -> Score:
    """Return the same from means over images, as BCubed has them; both are above 0."""
    return Score(precision=precision, recall=recall, f=2 * precision * recall / (precision + recall))
