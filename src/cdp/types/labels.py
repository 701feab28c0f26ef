"""Labels: a pseudo-identity for every image that deserves one, and what happened to the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from cdp.errors import InputError
from cdp.types.arrays import AnyArray, Artifact, ByteArray, FloatArray, IntArray, LongArray, read_only


class Status(IntEnum):
    """Why an image has a label or none.

    Examples:
        >>> from cdp import Status
        >>> Status.NO_ACCEPTED_PAIR.sentence
        'no accepted pair'
    """

    LABELED = 0
    NO_ACCEPTED_PAIR = 1
    ISOLATED = 2
    UNSPLITTABLE = 3
    REJECTED = 4

    @property
    def sentence(self) -> str:
        """The status in plain words."""
        return _SENTENCES[self]


_SENTENCES = {
    Status.LABELED: "labeled",
    Status.NO_ACCEPTED_PAIR: "no accepted pair",
    Status.ISOLATED: "isolated: likely pairs, but in no group",
    Status.UNSPLITTABLE: "in a group that was too large and could not be split",
    Status.REJECTED: "rejected by a correction",
}


@dataclass(frozen=True, eq=False)
class Labels(Artifact):
    """Pseudo-identities of n images.

    Behaves like the plain array of labels where one is expected: `len`, indexing, iterating and
    `numpy.asarray` all speak of `labels`.

    Attributes:
        labels: int32 (n,), 0..C-1 numbered by first appearance; -1 = discarded.
        status: uint8 (n,), a `Status` per image.
        confidence: float32 (n,), how firmly the image is tied to its group, 0 to 1; 0 if discarded. With
            labeled images among the others the share of the rest of its group that is expected to be of its
            identity; else the summed probability of its accepted pairs there, as a share of what the
            best-tied member could have.

    Examples:
        >>> from cdp import Labels
        >>> labels = Labels.from_array([7, 7, -1, 3, 3, 3])
        >>> labels.labels.tolist(), labels.sizes.tolist(), round(labels.coverage, 2)
        ([0, 0, -1, 1, 1, 1], [2, 3], 0.83)
    """

    labels: IntArray
    status: ByteArray
    confidence: FloatArray

    def __post_init__(self) -> None:
        labels, status = np.asarray(self.labels), np.asarray(self.status)
        confidence = np.asarray(self.confidence)
        if labels.ndim != 1 or labels.dtype.kind not in "iu":
            raise InputError(
                f"Labels: expected one whole number per image, got {labels.dtype} {labels.shape}.",
                code="labels-not-a-row",
                found=(str(labels.dtype), labels.shape),
            )
        if status.shape != labels.shape or confidence.shape != labels.shape:
            raise InputError(
                "Labels: labels, status and confidence must have one entry per image each.",
                code="labels-lengths-differ",
            )
        if np.any(labels < -1):
            raise InputError(
                "Labels: a label is below -1; discarded images carry -1.", code="labels-below-minus-one"
            )
        seen_before = np.maximum.accumulate(np.concatenate([[-1], labels]))[:-1]
        if np.any(labels > seen_before + 1):
            raise InputError(
                "Labels: labels must be 0, 1, 2, … by first appearance; use Labels.from_array to number "
                "them.",
                code="labels-not-in-order",
            )
        if not np.isin(status, list(Status)).all():
            raise InputError(
                f"Labels: an unknown status; it is one of {', '.join(str(int(f)) for f in Status)}.",
                code="labels-status-unknown",
            )
        if np.any((labels >= 0) != (status == Status.LABELED)):
            raise InputError(
                "Labels: exactly the images with status 0 (labeled) must carry a label.",
                code="labels-status-contradicts",
            )
        if not np.all((confidence >= 0) & (confidence <= 1)):
            raise InputError("Labels: a confidence is outside [0, 1].", code="labels-confidence-out-of-range")
        if np.any(confidence[labels < 0] > 0):
            raise InputError(
                "Labels: a discarded image has a confidence; it must be 0.",
                code="labels-discarded-with-confidence",
            )
        object.__setattr__(self, "labels", read_only(labels, np.int32))
        object.__setattr__(self, "status", read_only(status, np.uint8))
        object.__setattr__(self, "confidence", read_only(confidence, np.float32))

    @classmethod
    def from_array(cls, labels: npt.ArrayLike) -> Labels:
        """Labels from any cluster numbers (negative = discarded), e.g. those of another clustering."""
        numbers = number_by_first_appearance(np.asarray(labels))
        kept = numbers >= 0
        status = np.where(kept, Status.LABELED, Status.NO_ACCEPTED_PAIR).astype(np.uint8)
        return cls(numbers, status, kept.astype(np.float32))

    @property
    def n_images(self) -> int:
        """Number of images, discarded ones included."""
        return int(self.labels.shape[0])

    @property
    def n_identities(self) -> int:
        """Number of pseudo-identities."""
        return int(self.labels.max(initial=-1)) + 1

    @property
    def sizes(self) -> LongArray:
        """Number of images of each pseudo-identity."""
        return np.bincount(self.labels[self.labels >= 0], minlength=self.n_identities)

    @property
    def coverage(self) -> float:
        """Share of the images that carry a label."""
        return float(np.mean(self.labels >= 0)) if self.n_images else 0.0

    def __len__(self) -> int:
        return self.n_images

    def __iter__(self) -> Iterator[np.int32]:
        return iter(self.labels)

    def __getitem__(self, rows: Any) -> Any:
        return self.labels[rows]

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> AnyArray:
        if copy:
            return np.array(self.labels, dtype=dtype)
        return np.asarray(self.labels, dtype=dtype)

    def __repr__(self) -> str:
        return (
            f"Labels: {self.n_images:,} images -> {self.n_identities:,} identities, "
            f"{100 * (1 - self.coverage):.1f} % discarded"
        )


def number_by_first_appearance(labels: AnyArray) -> IntArray:
    """Return the same groups numbered 0, 1, 2, … in the order they first occur; negatives become -1."""
    numbers = np.full(labels.shape, -1, np.int32)
    kept = labels >= 0
    if kept.any():
        _, first, group = np.unique(labels[kept], return_index=True, return_inverse=True)
        rank = np.empty(len(first), np.int32)
        rank[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
        numbers[kept] = rank[group]
    return numbers


def first_rows(labels: Labels, n_images: int, keep: Sequence[int] = ()) -> Labels:
    """Return the labels of the first images; an image left alone in its group is discarded.

    Args:
        labels: of all images.
        n_images: how many images to keep.
        keep: rows of images that stay a group of their own, such as named ones.
    """
    found = np.array(labels.labels[:n_images])
    status, confidence = np.array(labels.status[:n_images]), np.array(labels.confidence[:n_images])
    sizes = np.bincount(found[found >= 0], minlength=labels.n_identities)
    alone = (found >= 0) & (sizes[np.maximum(found, 0)] < 2) if len(sizes) else found >= 0
    alone[list(keep)] = False
    found[alone], status[alone], confidence[alone] = -1, Status.ISOLATED, 0
    return Labels(number_by_first_appearance(found), status, confidence)
