"""The paper's nine trunks at full size, and any other trunk of timm."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from cdp.errors import InputError
from cdp.nets.torchvision_guard import import_timm
from cdp.nets.trunks import HeadKind, MakeTrunk, TrunkEntry, register_trunk

_CLASSIFIERS = (
    "fc", "head", "classifier", "last_linear", "classif", "pre_logits", "head_drop", "global_pool",
)  # fmt: skip


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
        """Return the last map, (b, c, h, w)."""
        features: Tensor = self.model.forward_features(images)
        if features.ndim == 3:  # tokens (b, n, c) of a transformer
            return features.transpose(1, 2).unsqueeze(-1)
        if features.shape[1] != self.n_features and features.shape[-1] == self.n_features:  # (b, h, w, c)
            return features.permute(0, 3, 1, 2)
        return features


class TinyNasnetA(nn.Module):
    """The paper's base: NASNet-A-Large kept to its stem, cells 0-1, one reduction and cells 6-7."""

    _KEPT = (
        "conv0", "cell_stem_0", "cell_stem_1", "cell_0", "cell_1", "reduction_cell_0", "cell_6", "cell_7",
        "act",
    )  # fmt: skip

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
        features: Tensor = parts.act(cell_7)
        return features


@register_trunk("nasnet_a_tiny", head="conv_stride2", group="paper", least_size=64)
def nasnet_a_tiny(channels: int) -> nn.Module:
    """Tiny NASNet-A, the paper's base model."""
    return TinyNasnetA(channels)


def _timm_maker(name: str, **settings: Any) -> MakeTrunk:
    def make(channels: int) -> nn.Module:
        return TimmTrunk(name, channels, **settings)

    return make


def _register(name: str, about: str, head: HeadKind = "conv", least_size: int = 32, **settings: Any) -> None:
    register = register_trunk(name, head=head, group="paper", least_size=least_size, about=about)
    register(_timm_maker(name, **settings))


_register("vgg16", "VGG16 without batch normalization.", "fc2048")
_register("resnet18", "ResNet18.")
_register("resnet34", "ResNet34.")
_register("inception_v3", "Inception V3.", least_size=75, aux_logits=False)
_register("resnet50", "ResNet50.")
_register("resnet101", "ResNet101.")
_register("inception_resnet_v2", "Inception-ResNet V2.", least_size=75)
_register("densenet121", "DenseNet121.", "fc")


def timm_entry(name: str) -> TrunkEntry | None:
    """Return an entry for any model that timm knows by that name, else None."""
    if not import_timm().is_model(name):
        return None
    return TrunkEntry(name, _timm_maker(name), "conv", 1, "timm", f"timm's {name}")


def make_trunk(entry: TrunkEntry, channels: int, size: int) -> nn.Module:
    """Return the trunk for images of that size; transformers of timm are made for one size."""
    if size < entry.least_size:
        raise InputError(
            f"network {entry.name!r} needs images of at least {entry.least_size} pixels, but --size is "
            f"{size}; increase it, or choose a small network (cdp train --list-networks).",
            code="network-images-too-small",
            network=entry.name,
            expected=entry.least_size,
            found=size,
        )
    if entry.group == "timm":
        try:
            return TimmTrunk(entry.name, channels, img_size=size)
        except TypeError:
            pass  # a convolutional trunk: it takes any size and knows no such setting
    return entry.make(channels)
