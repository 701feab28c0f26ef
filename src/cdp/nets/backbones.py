"""The paper's nine trunks at full size, and any other trunk of timm."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from cdp.errors import InputError
from cdp.nets.torchvision_guard import import_timm
from cdp.nets.trunks import TrunkEntry, register_trunk

_CLASSIFIERS = (
    "fc",
    "head",
    "classifier",
    "last_linear",
    "classif",
    "pre_logits",
    "head_drop",
    "global_pool",
)


class TimmTrunk(nn.Module):
    """A model of timm up to its last feature map; whatever follows the map is left out."""

    def __init__(self, name: str, channels: int, **settings: Any) -> None:
        super().__init__()
        if channels != 3:
            settings["in_chans"] = channels
        model = import_timm().create_model(name, pretrained=False, num_classes=0, **settings)
        for part in _CLASSIFIERS:
            if isinstance(getattr(model, part, None), nn.Module):
                setattr(model, part, nn.Identity())
        self.model = model
        self.n_features = int(model.num_features)

    def forward(self, images: Tensor) -> Tensor:
        """The last map, (b, c, h, w)."""
        answer: Tensor = self.model.forward_features(images)
        if answer.ndim == 3:  # tokens (b, n, c) of a transformer
            return answer.transpose(1, 2).unsqueeze(-1)
        if answer.shape[1] != self.n_features and answer.shape[-1] == self.n_features:  # (b, h, w, c)
            return answer.permute(0, 3, 1, 2)
        return answer


class TinyNasnetA(nn.Module):
    """The paper's base: NASNet-A-Large kept to its stem, cells 0-1, one reduction and cells 6-7."""

    _KEPT = (
        "conv0",
        "cell_stem_0",
        "cell_stem_1",
        "cell_0",
        "cell_1",
        "reduction_cell_0",
        "cell_6",
        "cell_7",
        "act",
    )

    def __init__(self, channels: int) -> None:
        super().__init__()
        settings: dict[str, Any] = {} if channels == 3 else {"in_chans": channels}
        large = import_timm().create_model("nasnetalarge", pretrained=False, num_classes=0, **settings)
        for name in self._KEPT:
            setattr(self, name, getattr(large, name))

    def forward(self, images: Tensor) -> Tensor:
        """2016 channels at 1/16 of the images' sides."""
        parts: Any = self
        first = parts.conv0(images)
        stem_0 = parts.cell_stem_0(first)
        stem_1 = parts.cell_stem_1(first, stem_0)
        cell_0 = parts.cell_0(stem_1, stem_0)
        cell_1 = parts.cell_1(cell_0, stem_1)
        reduced = parts.reduction_cell_0(cell_1, cell_0)
        cell_6 = parts.cell_6(reduced, cell_0)
        cell_7 = parts.cell_7(cell_6, reduced)
        answer: Tensor = parts.act(cell_7)
        return answer


@register_trunk("nasnet_a_tiny", head="conv_stride2", group="paper", least_size=64)
def nasnet_a_tiny(channels: int) -> nn.Module:
    """Tiny NASNet-A, the paper's base model."""
    return TinyNasnetA(channels)


@register_trunk("vgg16", head="fc2048", group="paper", least_size=32)
def vgg16(channels: int) -> nn.Module:
    """VGG16 without batch normalization."""
    return TimmTrunk("vgg16", channels)


@register_trunk("resnet18", group="paper")
def resnet18(channels: int) -> nn.Module:
    """ResNet18."""
    return TimmTrunk("resnet18", channels)


@register_trunk("resnet34", group="paper")
def resnet34(channels: int) -> nn.Module:
    """ResNet34."""
    return TimmTrunk("resnet34", channels)


@register_trunk("inception_v3", group="paper", least_size=75)
def inception_v3(channels: int) -> nn.Module:
    """Inception V3."""
    return TimmTrunk("inception_v3", channels, aux_logits=False)


@register_trunk("resnet50", group="paper")
def resnet50(channels: int) -> nn.Module:
    """ResNet50."""
    return TimmTrunk("resnet50", channels)


@register_trunk("resnet101", group="paper")
def resnet101(channels: int) -> nn.Module:
    """ResNet101."""
    return TimmTrunk("resnet101", channels)


@register_trunk("inception_resnet_v2", group="paper", least_size=75)
def inception_resnet_v2(channels: int) -> nn.Module:
    """Inception-ResNet V2."""
    return TimmTrunk("inception_resnet_v2", channels)


@register_trunk("densenet121", head="fc", group="paper")
def densenet121(channels: int) -> nn.Module:
    """DenseNet121."""
    return TimmTrunk("densenet121", channels)


def timm_entry(name: str) -> TrunkEntry | None:
    """An entry for any model that timm knows by that name, else None."""
    timm = import_timm()
    if not timm.is_model(name):
        return None

    def make(channels: int) -> nn.Module:
        return TimmTrunk(name, channels)

    return TrunkEntry(name, make, "conv", 1, "timm", f"timm's {name}")


def make_trunk(entry: TrunkEntry, channels: int, size: int) -> nn.Module:
    """The trunk for images of that size; transformers of timm are told the size."""
    if size < entry.least_size:
        raise InputError(
            f"network {entry.name!r} needs images of {entry.least_size} pixels a side or more, --size is {size}; "
            "choose a larger --size or a small network (cdp networks)."
        )
    if entry.group == "timm":
        try:
            return TimmTrunk(entry.name, channels, img_size=size)
        except TypeError:
            pass  # a convolutional trunk: it takes any size and knows no such setting
    return entry.make(channels)
