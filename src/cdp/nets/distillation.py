"""Distillation: beside its labels, a network is given what a committee of others saw in the same images."""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from cdp.types import Views
from cdp.types.arrays import FloatArray, LongArray


class Distillation(nn.Module):
    """How far the embeddings, seen through one linear layer, are from the teachers': the sum over images of 1 - cosine.

    The layer lets a network of few dimensions follow several concatenated ones without being any of them; it is thrown
    away after training.
    """

    def __init__(self, dimensions: int, teacher_dimensions: int, seed: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(teacher_dimensions, dimensions))
        nn.init.xavier_uniform_(self.weight, generator=torch.Generator().manual_seed(seed))

    def forward(self, embeddings: Tensor, teachers: Tensor) -> Tensor:
        """Summed over the images of a batch."""
        if not len(embeddings):
            return functional.linear(embeddings, self.weight).sum()  # 0, yet the weight gets a gradient
        cosines = functional.cosine_similarity(functional.linear(embeddings, self.weight), teachers, dim=1)
        return (1 - cosines).sum()


def teacher_rows(teachers: Views, rows: LongArray) -> Tensor:
    """Unit vectors of all models for some images, concatenated, float32 (b, sum of dimensions); their cosines are mean cosines."""
    whole: FloatArray = np.concatenate([model.take(rows) for model in teachers], axis=1)
    return torch.from_numpy(whole / np.float32(math.sqrt(len(teachers.names))))


def teacher_dimensions(teachers: Views) -> int:
    """Length of their concatenated vectors."""
    return sum(model.dimensions for model in teachers)
