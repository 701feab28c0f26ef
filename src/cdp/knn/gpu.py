"""Inner products and top-k selection of both searches on a GPU; re-ranking stays on the CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from cdp.blocks import spans
from cdp.knn.exact import BLOCK_ROWS, TopK, TopKSearch
from cdp.knn.pca import Vectors
from cdp.runtime.runtime import Runtime
from cdp.types import Embeddings
from cdp.types.arrays import FloatArray, IntArray

# Assumed free memory of devices that do not report it. Embeddings up to a quarter of it stay on the device;
# larger ones are sent block by block.
_FREE_BYTES = 2**33


def make_top_k_search(embeddings: Embeddings, keep: int, device: torch.device) -> TopKSearch:
    """Make a search of the `keep` best images of every query, computed on the device.

    Which of equally similar images are kept is undefined: the caller re-ranks them, ties by id.
    """
    resident = _resident_blocks(embeddings, device, spans(embeddings.n_images, BLOCK_ROWS))

    def search(queries: IntArray) -> TopK:
        vectors = torch.from_numpy(embeddings.take(queries)).to(device)
        itself = torch.from_numpy(queries).to(device, torch.int64)
        best, ids = _empty_lists(len(queries), keep, device)
        blocks = resident or (
            _send(embeddings, span, device) for span in spans(embeddings.n_images, BLOCK_ROWS)
        )
        start = 0
        for block in blocks:
            tile = vectors @ block.T
            columns = torch.arange(start, start + len(block), device=device)
            tile.masked_fill_(columns == itself[:, None], -torch.inf)
            best, ids = _merge_top_k(best, ids, tile, start)
            start += len(block)
        return best.cpu().numpy(), ids.to(torch.int32).cpu().numpy()

    return search


def compare_blocks(
    embeddings: Embeddings,
    lists: TopK,
    blocks: Sequence[tuple[int, int]],
    pairs: Sequence[tuple[int, int]],
    device: torch.device,
    runtime: Runtime,
    step: str,
) -> TopK:
    """Compare pairs of blocks and return the updated lists; each tile updates its rows and its columns."""
    n_images = embeddings.n_images
    resident = _resident_blocks(embeddings, device, blocks)
    best, ids = torch.from_numpy(lists[0]).to(device), torch.from_numpy(lists[1]).to(device, torch.int64)
    for done, (first, second) in enumerate(pairs, 1):
        queries, images = (
            resident[block] if resident else _send(embeddings, blocks[block], device)
            for block in (first, second)
        )
        rows, columns = slice(*blocks[first]), slice(*blocks[second])
        tile = queries @ images.T
        if first == second:
            tile.fill_diagonal_(-torch.inf)
        best[rows], ids[rows] = _merge_top_k(best[rows], ids[rows], tile, columns.start)
        if first != second:
            best[columns], ids[columns] = _merge_top_k(best[columns], ids[columns], tile.T, rows.start)
        runtime.progress(step, done * n_images // len(pairs), n_images)
    return best.cpu().numpy(), ids.to(torch.int32).cpu().numpy()


def make_product(embeddings: Vectors, device: torch.device) -> Callable[[IntArray, IntArray], FloatArray]:
    """Make a function from two sets of ids to the table of their similarities, computed on the device."""
    resident = _resident_blocks(embeddings, device, spans(embeddings.n_images, BLOCK_ROWS))
    everything = None if resident is None else torch.cat(resident)

    def vectors(rows: IntArray) -> Tensor:
        if everything is None:
            return torch.from_numpy(embeddings.take(rows)).to(device)
        return everything[torch.from_numpy(rows).to(device, torch.int64)]

    def product(queries: IntArray, images: IntArray) -> FloatArray:
        tile: FloatArray = (vectors(queries) @ vectors(images).T).cpu().numpy()
        return tile

    return product


def _merge_top_k(best: Tensor, ids: Tensor, tile: Tensor, offset: int) -> tuple[Tensor, Tensor]:
    """Merge a tile into the lists of its rows; its columns are the images from `offset` on."""
    keep = best.shape[1]
    values, nearest = tile.topk(min(keep, tile.shape[1]), dim=1)
    best, order = torch.cat([best, values], dim=1).topk(keep, dim=1)
    return best, torch.cat([ids, nearest + offset], dim=1).gather(1, order)


def _empty_lists(n_rows: int, keep: int, device: torch.device) -> tuple[Tensor, Tensor]:
    best = torch.full((n_rows, keep), -torch.inf, device=device)
    return best, torch.full((n_rows, keep), -1, dtype=torch.int64, device=device)


def _resident_blocks(
    embeddings: Vectors, device: torch.device, blocks: Sequence[tuple[int, int]]
) -> list[Tensor] | None:
    """Send all blocks to the device; None if they would take more than a quarter of its free memory."""
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else _FREE_BYTES
    if 4 * embeddings.n_images * embeddings.dimensions > free // 4:
        return None
    return [_send(embeddings, span, device) for span in blocks]


def _send(embeddings: Vectors, span: tuple[int, int], device: torch.device) -> Tensor:
    return torch.from_numpy(embeddings.block(*span)).to(device)
