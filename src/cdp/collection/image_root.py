"""Root of a collection's relative image paths, independent of the working directory."""

from __future__ import annotations

import os
from pathlib import Path

from cdp.collection.collection import Collection

_N_TRIED = 8


def find_image_root(collection: Collection) -> str:
    """Return the first folder under which some of the relative paths exist.

    The collection's own folder and the one around it come first, then those of its embeddings and the two
    around them, and the working folder last; it is the answer where no image is found.
    """
    paths = collection.paths
    if paths is None or not len(paths):
        return "."
    step = max(1, len(paths) // _N_TRIED)
    tried = [paths[row].partition("!")[0] for row in range(0, len(paths), step)]
    home = Path(os.path.realpath(collection.folder))
    roots = [home, home.parent]
    for batch in collection.batches:
        roots += [batch.source, *list(batch.source.parents)[:2]]
    found = next((root for root in roots if any(os.path.exists(root / path) for path in tried)), None)
    return "." if found is None else str(found)
