"""The exact search's products and best columns on a GPU; everything after them is the same as on the CPU."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from cdp.graph.exact import GALLERY_ROWS, CandidateSearch
from cdp.parallel import spans
from cdp.types import Embeddings
from cdp.types.arrays import FloatArray, IntArray

# Up to here all embeddings stay on the device; beyond, every block of queries sends them once more.
_RESIDENT_BYTES = 2**32


def make_candidate_search(embeddings: Embeddings, keep: int, device: torch.device) -> CandidateSearch:
    """A search for the `keep` best images of every query, computed on the device.

    Which of equally similar images are kept is left open: the caller measures them again and settles ties by id.
    """

    def tiles() -> Iterable[tuple[int, Tensor]]:
        for start, stop in spans(embeddings.n_images, GALLERY_ROWS):
            yield start, torch.from_numpy(embeddings.block(start, stop)).to(device)

    n_bytes = 4 * embeddings.n_images * embeddings.dimensions
    resident = list(tiles()) if n_bytes <= _RESIDENT_BYTES else None

    def search(queries: IntArray) -> tuple[FloatArray, IntArray]:
        vectors = torch.from_numpy(embeddings.take(queries)).to(device)
        itself = torch.from_numpy(queries).to(device, torch.int64)
        best = torch.full((len(queries), keep), -torch.inf, device=device)
        ids = torch.full((len(queries), keep), -1, dtype=torch.int64, device=device)
        for start, tile in resident or tiles():
            similarity = vectors @ tile.T
            columns = torch.arange(start, start + len(tile), device=device)
            similarity.masked_fill_(columns == itself[:, None], -torch.inf)
            values, nearest = similarity.topk(min(keep, len(tile)), dim=1)
            best, order = torch.cat([best, values], dim=1).topk(keep, dim=1)
            ids = torch.cat([ids, columns[nearest]], dim=1).gather(1, order)
        return best.cpu().numpy(), ids.to(torch.int32).cpu().numpy()

    return search
