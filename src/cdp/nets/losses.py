"""Classifiers with their loss, for any loop: `loss = ArcFace(256, 1000)(embeddings, targets)`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from scipy import sparse
from torch import Tensor, nn
from torch.nn import functional

from cdp.errors import InputError
from cdp.types import Views
from cdp.types.arrays import FloatArray, LongArray

Reduction = Literal["mean", "sum"]


@dataclass(frozen=True)
class SoftTargets:
    """Distributions over classes for b images, the non-zero entries only.

    Attributes:
        rows: int64 (m,), which image of the batch.
        columns: int64 (m,), which class.
        values: float32 (m,), how much; they sum to 1 per image.
    """

    rows: Tensor
    columns: Tensor
    values: Tensor
    n_images: int

    def to(self, device: torch.device) -> SoftTargets:
        """Return the same on another device."""
        rows, columns, values = (part.to(device) for part in (self.rows, self.columns, self.values))
        return SoftTargets(rows, columns, values, self.n_images)


Targets = Tensor | SoftTargets
_LEFT_OUT = -1e4


class _Classifier(nn.Module):
    """One weight vector per class."""

    starts: Tensor | None
    siblings: Tensor | None

    def __init__(self, dimensions: int, n_classes: int, label_smoothing: float) -> None:
        super().__init__()
        check_classes(n_classes)
        self.weight = nn.Parameter(torch.empty(n_classes, dimensions))
        self.label_smoothing = label_smoothing
        nn.init.xavier_uniform_(self.weight)
        for name in ("starts", "siblings"):
            self.register_buffer(name, None, persistent=False)

    def set_siblings(self, siblings: sparse.csr_array) -> None:
        """Set classes that may be one identity, (n_classes, n_classes); siblings do not repel each other.

        They are left out of the softmax of its images. Soft targets say by themselves which classes an image
        may belong to, so they have none.
        """
        for name, values in (("starts", siblings.indptr), ("siblings", siblings.indices)):
            setattr(self, name, torch.from_numpy(values.astype(np.int64)).to(self.weight.device))

    def leave_out_siblings(self, logits: Tensor, targets: Targets) -> Tensor:
        """Return the logits with those of the siblings of each image's class as good as gone."""
        if self.starts is None or self.siblings is None or isinstance(targets, SoftTargets):
            return logits
        first, counts = self.starts[targets], self.starts[targets + 1] - self.starts[targets]
        rows = torch.repeat_interleave(torch.arange(len(targets), device=targets.device), counts)
        before = torch.cumsum(counts, 0) - counts
        columns = self.siblings[torch.arange(len(rows), device=rows.device) - before[rows] + first[rows]]
        return logits.index_put((rows, columns), logits.new_tensor(_LEFT_OUT))

    @property
    def n_classes(self) -> int:
        """Number of identities."""
        return int(self.weight.shape[0])


class Softmax(_Classifier):
    """A linear classifier with softmax cross-entropy, for one-hot or soft targets."""

    def __init__(self, dimensions: int, n_classes: int, *, label_smoothing: float = 0.0) -> None:
        super().__init__(dimensions, n_classes, label_smoothing)
        self.bias = nn.Parameter(torch.zeros(n_classes))

    def forward(self, embeddings: Tensor, targets: Targets, reduction: Reduction = "mean") -> Tensor:
        """Return the loss of a batch; `sum` for those who divide by another count than this batch's."""
        logits = self.leave_out_siblings(functional.linear(embeddings, self.weight, self.bias), targets)
        return _cross_entropy(logits, targets, self.label_smoothing, reduction)


class _MarginSoftmax(_Classifier):
    """Softmax on cosines, the true class handicapped by a margin, all times a scale s."""

    default_margin: float
    limit: float
    unit: str

    def __init__(
        self,
        dimensions: int,
        n_classes: int,
        *,
        margin: float | None = None,
        scale: float = 64.0,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__(dimensions, n_classes, label_smoothing)
        self.margin, self.scale = self.default_margin if margin is None else margin, scale
        name = type(self).__name__
        if not 0 <= self.margin < self.limit:
            raise InputError(
                f"{name}(margin={margin}): the margin is {self.unit}, e.g. {self.default_margin}.",
                code="margin-out-of-range",
                loss=name,
                value=margin,
            )
        if scale <= 0:
            raise InputError(
                f"{name}(scale={scale}): the scale is greater than 0, e.g. 64.",
                code="scale-out-of-range",
                loss=name,
                value=scale,
            )

    def forward(self, embeddings: Tensor, targets: Targets, reduction: Reduction = "mean") -> Tensor:
        """Return the loss of a batch; `sum` for those who divide by another count than this batch's."""
        if isinstance(targets, SoftTargets):
            raise InputError(
                f"{type(self).__name__}: a margin needs one true class per image; use softmax for soft "
                "labels.",
                code="margin-with-soft-labels",
                loss=type(self).__name__,
            )
        cosines = functional.linear(functional.normalize(embeddings), functional.normalize(self.weight))
        true = cosines.gather(1, targets[:, None])
        logits = cosines.scatter(1, targets[:, None], self.handicap(true))
        logits = self.leave_out_siblings(self.scale * logits, targets)
        return _cross_entropy(logits, targets, self.label_smoothing, reduction)

    def handicap(self, cosines: Tensor) -> Tensor:
        """Return the cosine of the true class after the margin."""
        raise NotImplementedError


class ArcFace(_MarginSoftmax):
    """Deng et al.: cos(theta + m) for the true class. The paper's m = 0.5.

    s = 64 as in InsightFace. It must let the softmax come near 1: with C classes s of at least
    log(0.9 C / 0.1) / (1 - cos(m)) suffices, so smaller sets do well with 16 to 32.
    Where theta + m would pass pi, cos(theta) - m sin(m) goes on falling instead.
    """

    default_margin, limit, unit = 0.5, math.pi / 2, "an angle in [0, pi/2)"

    def handicap(self, cosines: Tensor) -> Tensor:
        """cos(theta + m)."""
        # The slope of the sine is infinite at 0 and 180 degrees; a hair's breadth inside keeps it finite.
        inside = cosines.clamp(-1 + 1e-7, 1 - 1e-7)
        sines = (1 - inside.square()).sqrt()
        turned = inside * math.cos(self.margin) - sines * math.sin(self.margin)
        beyond = inside < -math.cos(self.margin)
        return torch.where(beyond, inside - self.margin * math.sin(self.margin), turned)


class CosFace(_MarginSoftmax):
    """Wang et al.: cos(theta) - m for the true class; m = 0.35 and s = 64 as published."""

    default_margin, limit, unit = 0.35, 1.0, "a cosine in [0, 1)"

    def handicap(self, cosines: Tensor) -> Tensor:
        """cos(theta) - m."""
        return cosines - self.margin


LOSSES: Mapping[str, type[Softmax] | type[_MarginSoftmax]] = {
    "softmax": Softmax,
    "arcface": ArcFace,
    "cosface": CosFace,
}
"""By the names that a recipe knows."""


def check_classes(n_classes: int) -> None:
    """Refuse fewer than two classes."""
    if n_classes < 2:
        raise InputError(
            f"There is {n_classes} identity to learn from, and a classifier needs two or more; add "
            "identities to the manifest.",
            code="classes-too-few",
            found=n_classes,
        )


def _cross_entropy(logits: Tensor, targets: Targets, label_smoothing: float, reduction: Reduction) -> Tensor:
    if isinstance(targets, Tensor):
        if len(targets) == 0:
            return logits.sum()  # 0, yet every parameter gets a gradient
        return functional.cross_entropy(logits, targets, label_smoothing=label_smoothing, reduction=reduction)
    logs = functional.log_softmax(logits, dim=1)
    loss = -(targets.values * logs[targets.rows, targets.columns]).sum()
    if label_smoothing:
        loss = (1 - label_smoothing) * loss - label_smoothing * logs.mean(dim=1).sum()
    return loss / max(1, targets.n_images) if reduction == "mean" else loss


class Distillation(nn.Module):
    """Distillation loss through one linear layer: the sum over images of 1 - cosine to the teachers.

    The layer lets a network of few dimensions follow several concatenated ones without being any of them; it
    is thrown away after training.
    """

    def __init__(self, dimensions: int, teacher_dimensions: int, seed: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(teacher_dimensions, dimensions))
        nn.init.xavier_uniform_(self.weight, generator=torch.Generator().manual_seed(seed))

    def forward(self, embeddings: Tensor, teachers: Tensor) -> Tensor:
        """Sum the loss over the images of a batch."""
        if not len(embeddings):
            return functional.linear(embeddings, self.weight).sum()  # 0, yet the weight gets a gradient
        cosines = functional.cosine_similarity(functional.linear(embeddings, self.weight), teachers, dim=1)
        return (1 - cosines).sum()


def teacher_rows(teachers: Views, rows: LongArray) -> Tensor:
    """Concatenate the unit vectors of all models, float32 (b, sum of dimensions).

    Their cosines are mean cosines.
    """
    whole: FloatArray = np.concatenate([model.take(rows) for model in teachers], axis=1)
    return torch.from_numpy(whole / np.float32(math.sqrt(len(teachers.names))))


def teacher_dimensions(teachers: Views) -> int:
    """Length of their concatenated vectors."""
    return sum(model.dimensions for model in teachers)
