"""Augmentation of whole batches as tensors: crop, mirror, move, turn, zoom.

The random numbers are drawn for the whole batch from a seed that names the step, so that two processes that
share a batch change each image as one process would.
"""

from __future__ import annotations

import math

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from cdp.nets.recipe import Recipe
from cdp.types.arrays import DoubleArray

N_NUMBERS = 5
_GREY, _HALF_RANGE = 127.5, 127.5


def draw_numbers(seed: int, n_images: int) -> DoubleArray:
    """Uniform numbers in [0, 1), one row per image: mirror, sideways, down, angle, zoom."""
    return np.random.default_rng(seed).random((n_images, N_NUMBERS))


def augment(images: Tensor, numbers: DoubleArray, recipe: Recipe) -> Tensor:
    """Augment uint8 images (b, c, s, s) for training, to float32 (b, c, size, size) in [-1, 1]."""
    if recipe.rotate or recipe.zoom:
        return _warp(to_float(images), numbers, recipe)
    return to_float(_crop(images, numbers, recipe))


def center_crop(images: Tensor, size: int) -> Tensor:
    """Return the middle of every image, as the network is to see it after training; float32 in [-1, 1]."""
    first = (images.shape[-1] - size) // 2
    return to_float(images[..., first : first + size, first : first + size])


def to_float(images: Tensor) -> Tensor:
    """0..255 to [-1, 1]."""
    return images.to(torch.float32).sub_(_GREY).div_(_HALF_RANGE)


def _crop(images: Tensor, numbers: DoubleArray, recipe: Recipe) -> Tensor:
    """Whole-pixel crops by one gather; pixels beyond the edge repeat the edge."""
    stored, size = images.shape[-1], recipe.size
    slack = stored - size
    reach = round(recipe.shift * size)
    if not (slack or reach or recipe.flip):
        return images
    # Uniform over the slack of the crop plus `reach` pixels on either side.
    first = np.floor(numbers[:, 1:3] * (slack + 2 * reach + 1)).astype(np.int64) - reach
    line = np.arange(size)
    across = np.clip(first[:, :1] + line, 0, stored - 1)
    down = np.clip(first[:, 1:] + line, 0, stored - 1)
    if recipe.flip:
        across = np.where(numbers[:, :1] < 0.5, across[:, ::-1], across)
    pixels = torch.from_numpy(down[:, :, None] * stored + across[:, None, :]).to(images.device)
    flat = pixels.reshape(len(images), 1, -1)
    gathered = images.flatten(2).gather(2, flat.expand(-1, images.shape[1], -1))
    return gathered.reshape(len(images), images.shape[1], size, size)


def _warp(images: Tensor, numbers: DoubleArray, recipe: Recipe) -> Tensor:
    """Crop, mirror, move, turn and zoom in one bilinear sampling; pixels beyond the edge repeat the edge."""
    stored, size = images.shape[-1], recipe.size
    signed = 2 * numbers - 1
    ratio = size / stored
    grow = ratio * np.exp(signed[:, 4] * math.log1p(recipe.zoom))
    angle = signed[:, 3] * math.radians(recipe.rotate)
    mirror = np.where(recipe.flip & (numbers[:, 0] < 0.5), -1.0, 1.0)
    reach = (1 - ratio) + 2 * recipe.shift * ratio
    theta = np.zeros((len(images), 2, 3), np.float32)
    theta[:, 0, 0] = mirror * grow * np.cos(angle)
    theta[:, 0, 1] = -grow * np.sin(angle)
    theta[:, 1, 0] = mirror * grow * np.sin(angle)
    theta[:, 1, 1] = grow * np.cos(angle)
    theta[:, 0, 2] = signed[:, 1] * reach
    theta[:, 1, 2] = signed[:, 2] * reach
    grid = functional.affine_grid(
        torch.from_numpy(theta).to(images.device),
        [len(images), images.shape[1], size, size],
        align_corners=False,
    )
    return functional.grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)
