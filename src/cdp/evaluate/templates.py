"""Templates: one vector for a person's images and video frames."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from cdp.blocks import spans
from cdp.data.ijb import TemplateProtocol
from cdp.errors import InputError
from cdp.evaluate.verification import ScoredPairs, score_pairs
from cdp.types import Embeddings
from cdp.types.arrays import DoubleArray, FloatArray, LongArray

_TEMPLATES = 2048


def pool_templates(
    embeddings: Embeddings,
    images: npt.ArrayLike,
    templates: npt.ArrayLike,
    media: npt.ArrayLike,
    weights: npt.ArrayLike | None = None,
) -> Embeddings:
    """One vector per template: the mean within each media, then the mean over media, at unit length.

    A video of a hundred frames thus counts no more than a photograph. Images enter at unit length.

    Args:
        images: row of every member of a template, (n,).
        templates: its template, 0..T-1, (n,).
        media: the photograph or video it was taken from, (n,); numbers may repeat in other templates.
        weights: a positive weight per member, such as the detector's score [1].

    Returns:
        Embeddings of T rows.
    """
    from scipy.sparse import csr_array

    rows, template, medium = (np.asarray(part, np.int64) for part in (images, templates, media))
    if not rows.shape == template.shape == medium.shape or not rows.size:
        raise InputError(
            "Templates: images, templates and media must be equally long, one entry per image.",
            code="templates-lengths-differ",
        )
    n_templates = int(template.max()) + 1
    empty = np.flatnonzero(np.bincount(template, minlength=n_templates) == 0)
    if empty.size:
        raise InputError(
            f"Templates: template {empty[0]} has no media.", code="template-empty", template=empty[0]
        )
    share = _shares(template, medium) * (1.0 if weights is None else np.asarray(weights, np.float64))
    order = np.argsort(template, kind="stable")
    starts = np.searchsorted(template[order], np.arange(n_templates + 1))
    pooled: FloatArray = np.empty((n_templates, embeddings.dimensions), np.float32)
    for first, last in spans(n_templates, _TEMPLATES):
        members = order[starts[first] : starts[last]]
        mean = csr_array(
            (share[members], np.arange(len(members)), starts[first : last + 1] - starts[first]),
            shape=(last - first, len(members)),
        )
        pooled[first:last] = mean @ embeddings.take(rows[members]).astype(np.float64)
    try:
        return Embeddings(pooled)
    except InputError as error:
        raise InputError(f"Templates (rows are templates): {error}", **error.details()) from None


def score_templates(
    protocol: TemplateProtocol,
    embeddings: Embeddings,
    weights: npt.ArrayLike | None = None,
    *,
    threads: int = 0,
) -> ScoredPairs:
    """Return the similarity of the templates in every pair of a protocol; weights as in `pool_templates`."""
    pooled = pool_templates(embeddings, protocol.images, protocol.templates, protocol.media, weights)
    return score_pairs(pooled, protocol.ends, protocol.same, identities=protocol.subjects, threads=threads)


def _shares(template: LongArray, medium: LongArray) -> DoubleArray:
    """1 / (images of the medium in the template) / (media of the template), for every image."""
    keys = np.stack([template, medium], axis=1)
    found, group, sizes = np.unique(keys, axis=0, return_inverse=True, return_counts=True)
    n_media = np.bincount(found[:, 0])
    shares: DoubleArray = 1.0 / sizes[group.ravel()] / n_media[template]
    return shares
