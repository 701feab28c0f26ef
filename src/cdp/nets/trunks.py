"""Which trunks can be named: the paper's nine, their small relatives, the user's own and any of timm's."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

from cdp.errors import CdpError, InputError
from cdp.settings import did_you_mean
from cdp.storage.array_files import regular_size

if TYPE_CHECKING:
    from torch import nn

HeadKind: TypeAlias = Literal["conv", "conv_stride2", "fc", "fc2048"]
MakeTrunk: TypeAlias = "Callable[[int], nn.Module]"


@dataclass(frozen=True)
class TrunkEntry:
    """How a trunk is made and what stands on it.

    Attributes:
        make: channels (1 or 3) -> a module from images (b, channels, s, s) to a map (b, c, h, w).
        head: the embedding head: `conv` is the paper's (1x1 convolution, then a fully connected layer).
        least_size: fewest pixels a side it can take.
        group: `paper`, `small`, `yours` or `timm`.
        about: one line for the list.
    """

    name: str
    make: MakeTrunk
    head: HeadKind = "conv"
    least_size: int = 32
    group: str = "yours"
    about: str = ""


_ENTRIES: dict[str, TrunkEntry] = {}
_BUILT_IN = ("cdp.nets.backbones", "cdp.nets.small")


def register_trunk(
    name: str, *, head: HeadKind = "conv", least_size: int = 32, group: str = "yours", about: str = ""
) -> Callable[[MakeTrunk], MakeTrunk]:
    """Return a decorator that gives a trunk a name.

    @register_trunk("mine")
    def mine(channels: int) -> nn.Module: ...
    """
    if not name or not all(letter.isalnum() or letter in "._-" for letter in name):
        raise InputError(
            f"register_trunk({name!r}): the name becomes a file name; use letters, digits, '_', '-' and '.'.",
            code="trunk-name-wrong",
            name=name,
        )

    def register(make: MakeTrunk) -> MakeTrunk:
        known = _ENTRIES.get(name)
        if known is not None and known.make.__qualname__ != make.__qualname__:
            raise InputError(
                f"register_trunk({name!r}): this name is taken; choose another.",
                code="trunk-name-taken",
                name=name,
            )
        first_line = (make.__doc__ or "").strip().split("\n")[0]
        _ENTRIES[name] = TrunkEntry(name, make, head, least_size, group, about or first_line)
        return make

    return register


def find_trunk(name: str) -> TrunkEntry:
    """Return the trunk of that name; timm's names are known too."""
    entries = _entries()
    if name in entries:
        return entries[name]
    from cdp.nets.backbones import timm_entry

    entry = timm_entry(name)
    if entry is None:
        hint = (
            did_you_mean(name, entries)
            or " cdp train --list-networks lists the names; one of your own needs --trunks FILE."
        )
        raise InputError(
            f"network {name!r} is not known here and not in timm.{hint}", code="network-unknown", network=name
        )
    return entry


def network_names() -> list[str]:
    """Return every registered name, the paper's first."""
    return list(_entries())


def load_trunks(file: str | Path) -> None:
    """Run a Python file that registers trunks of the user's own."""
    try:
        regular_size(file)
        runpy.run_path(str(file))
    except OSError as error:
        raise InputError(
            f"{file}: cannot be read ({error.strerror}); check --trunks.",
            code="trunks-file-unreadable",
            file=file,
        ) from None
    except CdpError:
        raise
    except Exception as error:
        raise InputError(
            f"{file}: failed with {type(error).__name__}: {error}.", code="trunks-file-fails", file=file
        ) from error


def _entries() -> dict[str, TrunkEntry]:
    for module in _BUILT_IN:
        import_module(module)
    ranks = {"paper": 0, "small": 1, "yours": 2}
    ordered = sorted(_ENTRIES.values(), key=lambda entry: ranks.get(entry.group, 3))
    return {entry.name: entry for entry in ordered}
