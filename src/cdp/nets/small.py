"""Small relatives of the paper's families: minutes on two cores, images of 32 to 64 pixels, grey or color."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from cdp.nets.trunks import register_trunk


def _convolve(inside: int, outside: int, side: int = 3, stride: int = 1, relu: bool = True) -> nn.Sequential:
    """Convolution, batch normalization, and mostly ReLU."""
    layers = [nn.Conv2d(inside, outside, side, stride, side // 2, bias=False), nn.BatchNorm2d(outside)]
    return nn.Sequential(*layers, *([nn.ReLU(inplace=True)] if relu else []))


def _squeeze(inside: int, outside: int, stride: int = 1) -> nn.Sequential:
    """ReLU, 1x1 convolution, batch normalization."""
    convolution = nn.Conv2d(inside, outside, 1, stride, bias=False)
    return nn.Sequential(nn.ReLU(), convolution, nn.BatchNorm2d(outside))


class _Residual(nn.Module):
    """Two 3x3 convolutions around a shortcut."""

    def __init__(self, inside: int, outside: int, stride: int) -> None:
        super().__init__()
        self.first = _convolve(inside, outside, 3, stride)
        self.second = _convolve(outside, outside, relu=False)
        is_same = stride == 1 and inside == outside
        self.shortcut = nn.Identity() if is_same else _convolve(inside, outside, 1, stride, relu=False)

    def forward(self, images: Tensor) -> Tensor:
        return torch.relu(self.second(self.first(images)) + self.shortcut(images))


class _DenseLayer(nn.Module):
    """Adds `growth` channels made from all before."""

    def __init__(self, inside: int, growth: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.BatchNorm2d(inside), nn.ReLU(), nn.Conv2d(inside, growth, 3, 1, 1, bias=False)
        )

    def forward(self, images: Tensor) -> Tensor:
        return torch.cat([images, self.layers(images)], dim=1)


class _Inception(nn.Module):
    """1x1, 3x3, double 3x3 and pooled branches side by side."""

    def __init__(self, inside: int, width: int) -> None:
        super().__init__()
        self.single = _convolve(inside, width, 1)
        self.three = nn.Sequential(_convolve(inside, width // 2, 1), _convolve(width // 2, width))
        double = (_convolve(width // 4, width // 2), _convolve(width // 2, width // 2))
        self.twice = nn.Sequential(_convolve(inside, width // 4, 1), *double)
        self.pooled = nn.Sequential(nn.AvgPool2d(3, 1, 1), _convolve(inside, width // 2, 1))

    def forward(self, images: Tensor) -> Tensor:
        branches = (self.single, self.three, self.twice, self.pooled)
        return torch.cat([branch(images) for branch in branches], dim=1)


class _Separable(nn.Sequential):
    """ReLU, depthwise and pointwise convolution, batch normalization: NASNet's building block."""

    def __init__(self, inside: int, outside: int, side: int, stride: int = 1) -> None:
        super().__init__(
            nn.ReLU(),
            nn.Conv2d(inside, inside, side, stride, side // 2, groups=inside, bias=False),
            nn.Conv2d(inside, outside, 1, bias=False),
            nn.BatchNorm2d(outside),
        )


class _Cell(nn.Module):
    """A cut-down NASNet-A cell: separable 3x3 and 5x5 and pooling, of this cell's input and the one before.

    Three blocks instead of five; the outputs are concatenated as in the original.
    """

    def __init__(self, inside: int, before: int, width: int, stride: int = 1, before_stride: int = 1) -> None:
        super().__init__()
        self.squeeze, self.squeeze_before = _squeeze(inside, width), _squeeze(before, width, before_stride)
        self.three = _Separable(width, width, 3, stride)
        self.five = _Separable(width, width, 5, stride)
        self.three_before = _Separable(width, width, 3, stride)
        self.pool = nn.AvgPool2d(3, stride, 1)

    def forward(self, images: Tensor, before: Tensor) -> Tensor:
        images, before = self.squeeze(images), self.squeeze_before(before)
        first = self.three(images) + self.pool(images)
        second = self.five(images) + self.pool(before)
        third = self.three_before(before) + self.pool(images)
        return torch.cat([first, second, third], dim=1)


class _SmallNasnet(nn.Module):
    """A stem and four cells, two of them reductions."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.stem = _convolve(channels, 24, 3, 2, relu=False)
        self.cell_0 = _Cell(24, 24, 20)
        self.reduction_0 = _Cell(60, 24, 40, stride=2)
        self.cell_1 = _Cell(120, 60, 40, before_stride=2)
        self.reduction_1 = _Cell(120, 120, 80, stride=2)

    def forward(self, images: Tensor) -> Tensor:
        stem = self.stem(images)
        cell_0 = self.cell_0(stem, stem)
        reduction_0 = self.reduction_0(cell_0, stem)
        cell_1 = self.cell_1(reduction_0, cell_0)
        return torch.relu(self.reduction_1(cell_1, reduction_0))


@register_trunk("small_resnet", group="small", least_size=16)
def small_resnet(channels: int) -> nn.Module:
    """Three residual blocks."""
    blocks = _Residual(32, 32, 1), _Residual(32, 64, 2), _Residual(64, 128, 2)
    return nn.Sequential(_convolve(channels, 32, 3, 2), *blocks)


@register_trunk("small_densenet", group="small", least_size=16)
def small_densenet(channels: int) -> nn.Module:
    """Three dense blocks of three layers."""
    layers: list[nn.Module] = [nn.Conv2d(channels, 32, 3, 2, 1, bias=False)]
    width = 32
    for block in range(3):
        if block:
            layers += [nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, width // 2, 1, bias=False)]
            layers += [nn.AvgPool2d(2)]
            width //= 2
        for _ in range(3):
            layers += [_DenseLayer(width, 24)]
            width += 24
    return nn.Sequential(*layers, nn.BatchNorm2d(width), nn.ReLU())


@register_trunk("small_inception", group="small", least_size=16)
def small_inception(channels: int) -> nn.Module:
    """Three inception blocks."""
    return nn.Sequential(
        _convolve(channels, 32, 3, 2),
        _Inception(32, 24),
        nn.MaxPool2d(3, 2, 1),
        _Inception(72, 40),
        nn.MaxPool2d(3, 2, 1),
        _Inception(120, 64),
    )


@register_trunk("small_vgg", group="small", least_size=16)
def small_vgg(channels: int) -> nn.Module:
    """Six plain 3x3 convolutions with batch normalization, so that it trains in a few epochs."""
    return nn.Sequential(
        _convolve(channels, 32, 3, 2),
        _convolve(32, 32),
        nn.MaxPool2d(2),
        _convolve(32, 64),
        _convolve(64, 64),
        nn.MaxPool2d(2),
        _convolve(64, 128),
        _convolve(128, 128),
    )


@register_trunk("small_nasnet", group="small", least_size=16)
def small_nasnet(channels: int) -> nn.Module:
    """Four NASNet-like cells of separable convolutions."""
    return _SmallNasnet(channels)
