"""k-NN graphs from files: cdp's own folders, and the .npz and .npy files of other projects."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from cdp.errors import InputError
from cdp.storage.array_files import open_npy, read_npz, reading
from cdp.types import Embeddings, KnnGraph
from cdp.types.arrays import AnyArray, BoolArray, FloatArray, IntArray

_SAMPLE_ROWS = 1000
# Files were made in float16 or with approximate products; two numbers this close are meant to be the same.
_CLOSE = 0.02
# Share of the entries that must agree before a conclusion is drawn from them.
_MOST = 0.95
_CONVERT = "np.savez(file, idx=..., dist=...), short rows filled up with -1"


def read_knn(path: str | Path, embeddings: Embeddings | None = None) -> KnnGraph:
    """Return the k-NN graph kept in a folder or file; docs/formats.md shows the layouts.

    Other projects store 1 - cosine or the cosine under the same name, with the image itself among its
    neighbors. With embeddings the ids alone are taken and the similarities measured; without, the numbers in
    the file must show which of the two they are.

    Args:
        path: a folder written by cdp, an .npz with `idx` and `dist` or with `data`, or an .npy of ids.
        embeddings: what the graph was made from; needed for .npy, else optional.
    """
    path = Path(path)
    with reading(path):
        if not path.exists():
            raise InputError(
                f"{path}: no such file or folder; check the spelling of the path.",
                code="path-missing",
                file=path,
            )
        if path.is_dir():
            return _read_artifact(path, embeddings)
        ids, numbers = _read_file(path)
    if embeddings is not None:
        _check_rows(path, len(ids), embeddings)
        return _measure(path, _check_ids(path, ids), numbers, embeddings)
    neighbors = _check_ids(path, ids)
    if numbers is None:
        raise InputError(
            f"{path}: holds ids without similarities; pass the embeddings it was made from.",
            code="knn-similarities-missing",
            file=path,
        )
    return _arrange(neighbors, _as_similarity(path, neighbors, numbers))


def _read_artifact(folder: Path, embeddings: Embeddings | None) -> KnnGraph:
    if not (folder / "card.json").exists():
        raise InputError(
            f"{folder}: no card.json, so this is not a folder written by cdp; give the k-NN file itself.",
            code="card-missing",
            folder=folder,
        )
    from cdp.storage.artifacts import load

    graph = load(folder, KnnGraph)
    if embeddings is None:
        return graph
    _check_rows(folder, graph.n_images, embeddings)
    measured = _measure(folder, graph.neighbors, graph.similarity, embeddings)
    return replace(measured, method=graph.method, recall=graph.recall)


def _read_file(file: Path) -> tuple[AnyArray, AnyArray | None]:
    """Ids as stored and, where the file has them, the numbers with them."""
    if file.suffix == ".npy":
        ids, numbers = open_npy(file, _CONVERT), None
    elif file.suffix == ".npz":
        arrays = read_npz(file, _CONVERT)
        if {"idx", "dist"} <= arrays.keys():
            ids, numbers = arrays["idx"], arrays["dist"]
        elif "data" in arrays:
            data = arrays["data"]
            if data.ndim != 3 or data.shape[1] != 2:
                raise InputError(
                    f"{file}: `data` must have shape (images, 2, k), not {data.shape}; write it again.",
                    code="knn-data-shape-wrong",
                    file=file,
                    found=data.shape,
                )
            ids, numbers = data[:, 0], data[:, 1]
        else:
            raise InputError(
                f"{file}: expected `idx` and `dist`, or `data`; found {', '.join(arrays)}.",
                code="knn-arrays-unknown",
                file=file,
                found=tuple(arrays),
            )
    else:
        raise InputError(
            f"{file}: not a known kind of k-NN file; give a folder written by cdp, .npz or .npy.",
            code="knn-kind-unknown",
            file=file,
        )
    if ids.ndim != 2 or ids.size == 0:
        raise InputError(
            f"{file}: expected a table of images x neighbors, got shape {ids.shape}.",
            code="knn-not-a-table",
            file=file,
            found=ids.shape,
        )
    if numbers is not None and numbers.shape != ids.shape:
        raise InputError(
            f"{file}: `idx` has shape {ids.shape}, but `dist` {numbers.shape}; write it again.",
            code="knn-shapes-differ",
            file=file,
            idx=ids.shape,
            dist=numbers.shape,
        )
    if numbers is not None and numbers.dtype.kind != "f":
        raise InputError(
            f"{file}: `dist` must be floats, got {numbers.dtype}; write it again.",
            code="knn-distances-not-floats",
            file=file,
            found=str(numbers.dtype),
        )
    return ids, numbers


def _check_rows(file: Path, n_rows: int, embeddings: Embeddings) -> None:
    if n_rows != embeddings.n_images:
        raise InputError(
            f"{file}: has {n_rows:,} rows, the embeddings {embeddings.n_images:,}; it does not belong to "
            "them.",
            code="knn-rows-differ",
            file=file,
            expected=embeddings.n_images,
            found=n_rows,
        )


def _check_ids(file: Path, ids: AnyArray) -> IntArray:
    """Ids as int32, each in -1..n-1: the loops that follow trust them."""
    n_images = len(ids)
    if ids.dtype.kind == "f":
        exact_up_to = 2 ** (np.finfo(ids.dtype).nmant + 1)
        if n_images > exact_up_to:
            raise InputError(
                f"{file}: ids are kept as {ids.dtype}, which is exact only up to {exact_up_to:,}; "
                "write them again as whole numbers.",
                code="knn-ids-inexact",
                file=file,
                found=str(ids.dtype),
            )
        wrong = ids != np.floor(ids)
    elif ids.dtype.kind in "iu":
        wrong = np.zeros(ids.shape, bool)
    else:
        raise InputError(
            f"{file}: ids must be whole numbers, got {ids.dtype}; write it again.",
            code="knn-ids-not-whole",
            file=file,
            found=str(ids.dtype),
        )
    wrong |= ~((ids >= -1) & (ids < n_images))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise InputError(
            f"{file}: row {row} (counted from 0) names image {ids[row, column]}, but ids must be in "
            f"0..{n_images - 1}, or be -1 where there is no neighbor.",
            code="knn-id-out-of-range",
            file=file,
            row=row,
            value=ids[row, column],
        )
    return ids.astype(np.int32)


def _measure(file: Path, neighbors: IntArray, numbers: AnyArray | None, embeddings: Embeddings) -> KnnGraph:
    """Build the graph of these ids with measured similarities, and check the numbers in the file."""
    from cdp.knn.exact import graph_from_neighbors
    from cdp.knn.pair_similarity import similarities
    from cdp.runtime.runtime import Runtime

    if numbers is not None:
        rows = np.unique(np.linspace(0, len(neighbors) - 1, _SAMPLE_ROWS).astype(np.int64))
        sample, column = np.nonzero((neighbors[rows] >= 0) & (neighbors[rows] != rows[:, None]))
        ends = np.stack([rows[sample], neighbors[rows[sample], column]], axis=1)
        stored = numbers[rows[sample], column].astype(np.float64)
        measured = similarities(embeddings, ends)
        fits = [np.abs(stored - expected) <= _CLOSE for expected in (1 - measured, measured)]
        if len(stored) and max(fit.mean() for fit in fits) < _MOST:
            raise InputError(
                f"{file}: does not belong to these embeddings; its numbers are neither 1 - cosine nor cosine "
                "of the rows it names.",
                code="knn-of-other-embeddings",
                file=file,
            )
    return graph_from_neighbors(embeddings, neighbors, runtime=Runtime())


def _as_similarity(file: Path, neighbors: IntArray, numbers: AnyArray) -> FloatArray:
    """Convert stored numbers to cosine similarity, whichever of the two they were."""
    present = neighbors >= 0
    wrong = present & ~np.isfinite(numbers)
    if wrong.any():
        row = int(np.argwhere(wrong)[0][0])
        raise InputError(
            f"{file}: row {row} (counted from 0) holds NaN or infinity; write it again.",
            code="knn-not-finite",
            file=file,
            row=row,
        )
    meaning = _meanings(neighbors, numbers, present)
    if len(meaning) != 1:
        why = "nothing shows" if not meaning else "signs disagree"
        raise InputError(
            f"{file}: {why} whether its numbers are 1 - cosine or cosine; pass the embeddings it was made "
            "from.",
            code="knn-measure-unclear",
            file=file,
        )
    similarity = numbers if meaning == {"cosine"} else 1 - numbers
    return np.clip(similarity, -1, 1).astype(np.float32)


def _meanings(neighbors: IntArray, numbers: AnyArray, present: BoolArray) -> set[str]:
    """Infer the kind of numbers from their range, an image's own entry, and the order of a row."""
    values = numbers[present]
    own = numbers[neighbors == np.arange(len(neighbors))[:, None]]
    steps = np.diff(numbers.astype(np.float64), axis=1)[present[:, 1:] & present[:, :-1]]
    rises, falls = int(np.sum(steps > 0)), int(np.sum(steps < 0))
    most = max(1, _MOST * (rises + falls))
    one_minus = (
        values.max(initial=0) > 1 + _CLOSE,
        own.size and np.mean(np.abs(own) <= _CLOSE) >= _MOST,
        rises >= most,
    )
    plain = (
        values.min(initial=0) < -_CLOSE,
        own.size and np.mean(np.abs(own - 1) <= _CLOSE) >= _MOST,
        falls >= most,
    )
    return {name for name, signs in (("1 - cosine", one_minus), ("cosine", plain)) if any(signs)}


def _arrange(neighbors: IntArray, similarity: FloatArray) -> KnnGraph:
    """Best first with ties by id; the image itself and second mentions dropped, pads at the end."""
    from cdp.knn.topk import drop_repeats, sort_rows

    ids, values = neighbors.copy(), similarity.copy()
    values[ids < 0] = -np.inf
    sort_rows(values, ids)  # so that of two mentions the better one comes first
    drop_repeats(ids)
    values[ids < 0] = -np.inf
    sort_rows(values, ids)
    width = max(1, int((ids >= 0).sum(axis=1).max()))
    return KnnGraph(ids[:, :width], values[:, :width])
