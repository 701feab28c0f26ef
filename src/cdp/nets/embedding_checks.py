"""Embeddings that look wrong: all alike, or no closer for two images of one person than for any two."""

from __future__ import annotations

import numpy as np

from cdp.types.arrays import FloatArray, LongArray

_MOST_ROWS = 2000
_FEWEST_PAIRS = 20
_ALIKE = 0.999
_LEAST_SHARE = 0.6


def odd_embeddings(rows: FloatArray, identities: LongArray) -> list[str]:
    """Describe suspicious embeddings of a model, one sentence each, from a fixed sample.

    A model that is given its images otherwise than it was trained on (colors swapped, another scale, faces
    that are not aligned) still answers with numbers. Two things give it away: it says nearly the same about
    every image, or two images of one person are no closer than images of two.

    Args:
        rows: unit vectors, float32 (n, dimensions), maybe memory-mapped.
        identities: int64 (n,), -1 = unknown.
    """
    picked = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), _MOST_ROWS)).astype(np.int64))
    sample = np.asarray(rows[picked], np.float64)
    notes = []
    if len(sample) > 1:
        # Mean similarity of all pairs of different rows, without the pairs: |sum|^2 = n + the sum over pairs.
        n_rows = len(sample)
        mean = (float(np.square(sample.sum(axis=0)).sum()) - n_rows) / (n_rows * (n_rows - 1))
        if mean > _ALIKE:
            notes.append(
                f"the embeddings are nearly the same for every image (mean similarity {mean:.4f}); does the "
                "model get its images as it wants them (size, color, mean, std)?"
            )
    share, n_pairs = same_person_share(rows, identities)
    if n_pairs >= _FEWEST_PAIRS and share < _LEAST_SHARE:
        notes.append(
            f"two images of one person are closer than two of different people in only {share:.0%} of "
            f"{n_pairs:,} cases, and 50% is chance; does the model get its images as it wants them (aligned "
            "faces, color, mean, std)?"
        )
    return notes


def same_person_share(rows: FloatArray, identities: LongArray) -> tuple[float, int]:
    """Compute the area under the ROC of genuine pairs against impostors, and the number of pairs."""
    known = np.flatnonzero(identities >= 0)
    order = known[np.argsort(identities[known], kind="stable")]
    first, second = order[:-1], order[1:]
    same = identities[first] == identities[second]
    first, second = first[same], second[same]
    if len(first) > _MOST_ROWS:
        picked = np.linspace(0, len(first) - 1, _MOST_ROWS).astype(np.int64)
        first, second = first[picked], second[picked]
    # Every second image is paired with one half the list away, which is another person's.
    other = np.roll(second, len(second) // 2)
    differs = identities[first] != identities[other]
    if len(first) < 2 or not differs.any():
        return 1.0, 0
    seen, partner, impostor = (np.asarray(rows[one], np.float64) for one in (first, second, other[differs]))
    close = np.einsum("ij,ij->i", seen, partner)
    far = np.einsum("ij,ij->i", seen[differs], impostor)
    below = np.searchsorted(np.sort(far), close, side="left")
    not_above = np.searchsorted(np.sort(far), close, side="right")
    return float((below + not_above).mean() / 2 / len(far)), len(close)
