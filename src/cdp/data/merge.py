"""Several manifests one after another."""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from cdp.types.arrays import ByteArray, LongArray
from cdp.types.manifest import Manifest


def merge_manifests(manifests: Sequence[Manifest]) -> Manifest:
    """All images one after another: for training on all true labels, the bound that CDP is compared with.

    Identities are matched by name where every manifest has names, else by number.
    """
    by_name = all(manifest.names is not None for manifest in manifests)
    names: dict[str, int] = {}
    numbers: list[LongArray] = []
    for manifest in manifests:
        if not by_name:
            numbers.append(manifest.identities)
            continue
        assert manifest.names is not None
        number_of = np.array(
            [names.setdefault(name or f"#{at}", len(names)) for at, name in enumerate(manifest.names)]
        )
        numbers.append(np.where(manifest.identities >= 0, number_of[manifest.identities], -1))
    turns: ByteArray | None = None
    if any(manifest.turns is not None for manifest in manifests):
        turns = np.concatenate(
            [np.zeros(len(each), np.uint8) if each.turns is None else each.turns for each in manifests]
        )
    return Manifest(
        locations=tuple(
            os.path.abspath(os.path.join(each.root, path)) for each in manifests for path in each.locations
        ),
        identities=np.concatenate(numbers),
        names=tuple(names) if by_name else None,
        root="/",
        turns=turns,
    )
