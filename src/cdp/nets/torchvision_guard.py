"""Import of torch and timm: names a missing extra, and works around a torchvision without its operators."""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

from cdp.errors import MissingExtraError, install_command

# Libraries live as long as torch's registry needs them; dropping one would undo its definitions.
_definitions: list[Any] = []


def require(module: str, extra: str = "nets") -> Any:
    """Return the module, or an error that names the command that installs it."""
    try:
        return import_module(module)
    except ImportError as error:
        if error.name is None or error.name.split(".")[0] != module.split(".")[0]:
            raise
        raise MissingExtraError(
            f"This needs {module.split('.')[0]}, which is not installed; run {install_command(extra)}.",
            code="module-missing",
            module=module.split(".")[0],
            extra=extra,
        ) from None


def import_timm() -> Any:
    """timm, also where torchvision was built for another torch.

    timm always imports torchvision. With a CPU torch, torchvision's compiled operators may be absent, and its
    import fails on the missing schema of `nms`. We never call such an operator, so declaring the two schemas
    is enough. On a healthy machine the first import works and nothing else happens.
    """
    require("torch")
    try:
        import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        _declare_operators()
    except ImportError:
        pass  # timm's own import says so
    return require("timm")


def _declare_operators() -> None:
    import torch

    for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
        del sys.modules[name]
    library: Any = torch.library.Library("torchvision", "FRAGMENT")  # type: ignore[no-untyped-call]
    library.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    library.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _definitions.append(library)
    import_module("torchvision")
