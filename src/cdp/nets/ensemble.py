"""The paper's ensemble baseline: embeddings of several models side by side, of unit length again."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cdp.blocks import spans
from cdp.errors import InputError
from cdp.types import Views
from cdp.types.arrays import FloatArray

_ROWS_PER_BLOCK = 65_536


def ensemble(views: Views, models: Sequence[str]) -> Views:
    """Concatenate the unit vectors of some models, divided by sqrt(their number), to views of one model.

    The similarity of two images is then the mean of the models' similarities.

    Args:
        models: `base` and names of committee members.
    """
    known = dict(zip(views.names, views, strict=True))
    for name in models:
        if name not in known:
            raise InputError(
                f"ensemble: no model {name!r} in these views; they are {', '.join(known)}.",
                code="ensemble-model-unknown",
                model=name,
            )
    if len(models) < 2 or len(set(models)) != len(models):
        raise InputError("ensemble: name two or more different models.", code="ensemble-too-few-models")
    parts = [known[name] for name in models]
    vectors = np.empty((views.n_images, sum(part.dimensions for part in parts)), np.float32)
    for start, stop in spans(views.n_images, _ROWS_PER_BLOCK):
        whole: FloatArray = np.concatenate([part.block(start, stop) for part in parts], axis=1)
        vectors[start:stop] = whole / np.float32(np.sqrt(len(parts)))
    return Views(vectors, {}, views.identities, views.paths)
