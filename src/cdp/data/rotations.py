"""Rotations as identities: four times as many of them from one set, for writing and other turned things."""

from __future__ import annotations

import numpy as np

from cdp.errors import InputError
from cdp.types.arrays import LongArray
from cdp.types.manifest import Manifest


def rotated(manifest: Manifest) -> Manifest:
    """Every image four times, turned by 0, 90, 180 and 270 degrees, each turn of an identity being its own.

    Row r + t n is row r turned t times counterclockwise; identity i becomes 4 i + t. The four stay one family
    (see `families`), so that a split keeps them in one part.
    """
    if manifest.turns is not None:
        raise InputError("These images are turned already; rotate the manifest they were made from.")
    turns = np.repeat(np.arange(4), manifest.n_images)
    identities = np.tile(manifest.identities, 4)
    names = None
    if manifest.names is not None:
        names = tuple(f"{name} turned {90 * turn}" for name in manifest.names for turn in range(4))
    return Manifest(
        locations=manifest.locations * 4,
        identities=np.where(identities < 0, -1, 4 * identities + turns),
        names=names,
        root=manifest.root,
        turns=turns.astype(np.uint8),
    )


def families(manifest: Manifest) -> LongArray:
    """Which identities must not be parted because they share a picture: a family number per row, int64 (n,).

    Two identities are of one family if some picture belongs to both, as with rotations; families grow along
    such ties. Without shared pictures every identity is its own family. Images without identity get -1.
    """
    classes = manifest.classes
    if len(set(manifest.locations)) == manifest.n_images:
        return classes
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    numbers: dict[str, int] = {}
    pictures = np.array([numbers.setdefault(path, len(numbers)) for path in manifest.locations], np.int64)
    known = classes >= 0
    n_nodes = manifest.n_identities + len(numbers)
    ties = (classes[known], manifest.n_identities + pictures[known])
    graph = coo_array((np.ones(len(ties[0]), np.int8), ties), shape=(n_nodes, n_nodes))
    family_of = connected_components(graph, directed=False)[1].astype(np.int64)
    return np.where(known, family_of[np.maximum(classes, 0)], -1)
