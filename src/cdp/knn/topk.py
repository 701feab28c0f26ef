"""Kernels of top-k lists: the best images of every row, sorted, best first."""

from __future__ import annotations

import numpy as np

from cdp.knn.simd import count_trailing_zeros, lock, prefetch, shift_right, unlock
from cdp.runtime.kernels import kernel
from cdp.types.arrays import ByteArray, FloatArray, IntArray, LongArray

# Entries are first checked in chunks without branches, which the compiler vectorizes: nearly always none
# reaches the threshold. Flags are cast to 32 bits at every step; Numba widens them to 64 otherwise, and half
# as many fit a register.
_CHUNK = 64
_BINS = 2048
# Lists are prefetched this many candidates ahead.
_PREFETCH_AHEAD = 8
_SAMPLE_STEP = 16


@kernel
def insert(best: FloatArray, ids: IntArray, value: float, image: int) -> None:
    """Insert an image into one sorted list whose last one is worse; the last one drops out."""
    slot = len(best) - 1
    while slot > 0 and best[slot - 1] < value:
        best[slot] = best[slot - 1]
        ids[slot] = ids[slot - 1]
        slot -= 1
    best[slot] = value
    ids[slot] = image


@kernel
def insert_rows(tile: FloatArray, queries: IntArray, offset: int, best: FloatArray, ids: IntArray) -> None:
    """Insert a tile's entries into the lists of its rows; its columns are the images from `offset` on."""
    last = best.shape[1] - 1
    width = tile.shape[1]
    for row in range(tile.shape[0]):
        line = tile[row]
        for start in range(0, width, _CHUNK):
            if start + _CHUNK <= width:
                threshold = best[row, last]
                above = np.int32(0)
                values = line[start : start + _CHUNK]
                for column in range(_CHUNK):
                    above = np.int32(above | np.int32(values[column] > threshold))
                if above == 0:
                    continue
            for column in range(start, min(start + _CHUNK, width)):
                image = offset + column
                if line[column] > best[row, last] and image != queries[row]:
                    insert(best[row], ids[row], line[column], image)


@kernel
def merge_lists(values: FloatArray, images: IntArray, best: FloatArray, ids: IntArray) -> None:
    """Merge every row's other list, best first and -1 after the last, into its list."""
    last = best.shape[1] - 1
    for row in range(len(best)):
        for column in range(values.shape[1]):
            if images[row, column] < 0 or values[row, column] <= best[row, last]:
                break
            insert(best[row], ids[row], values[row, column], images[row, column])


@kernel
def insert_rows_and_columns(
    tile: FloatArray, first: int, second: int, best: FloatArray, ids: IntArray
) -> None:
    """Insert a tile's entries into the lists of its rows (from `first` on) and columns (from `second` on).

    Where the two are the same images, only entries above the diagonal are used: below, every pair comes
    again.
    """
    last = best.shape[1] - 1
    width = tile.shape[1]
    thresholds = best[second : second + width, last].copy()
    for row in range(tile.shape[0]):
        image = first + row
        left = row + 1 if first == second else 0
        line = tile[row]
        for start in range(left, width, _CHUNK):
            stop = min(start + _CHUNK, width)
            if stop - start == _CHUNK:
                above = _find_above(line[start:stop], best[image, last], thresholds[start:stop])
            else:
                above = (np.int64(1) << (stop - start)) - 1
            while above != 0:
                column = start + count_trailing_zeros(above)
                above &= above - 1
                value = line[column]
                if value > best[image, last]:
                    insert(best[image], ids[image], value, second + column)
                if value > thresholds[column]:
                    insert(best[second + column], ids[second + column], value, image)
                    thresholds[column] = best[second + column, last]


@kernel
def _find_above(values: FloatArray, threshold: float, thresholds: FloatArray) -> int:
    """Return a bit mask of the chunk's values above the row's threshold or the column's own.

    The first loop has no branch, so it is vectorized; nearly always no value is above.
    """
    is_any_above = np.int32(0)
    for column in range(_CHUNK):
        is_any_above = np.int32(
            is_any_above | np.int32((values[column] > threshold) | (values[column] > thresholds[column]))
        )
    above = np.int64(0)
    if is_any_above != 0:
        for column in range(_CHUNK):
            above |= np.int64(
                (values[column] > threshold) | (values[column] > thresholds[column])
            ) << np.int64(column)
    return int(above)


@kernel
def sort_rows(similarity: FloatArray, ids: IntArray) -> None:
    """Sort every row by insertion: most similar first, ties by id, missing ones (-1) last."""
    for row in range(similarity.shape[0]):
        for start in range(similarity.shape[1]):
            value = similarity[row, start]
            image = ids[row, start]
            slot = start
            while slot > 0 and (
                similarity[row, slot - 1] < value
                or (similarity[row, slot - 1] == value and ids[row, slot - 1] > image)
            ):
                similarity[row, slot] = similarity[row, slot - 1]
                ids[row, slot] = ids[row, slot - 1]
                slot -= 1
            similarity[row, slot] = value
            ids[row, slot] = image


@kernel
def drop_repeats(ids: IntArray) -> None:
    """Replace the image itself and repeated ids by -1."""
    for row in range(ids.shape[0]):
        for column in range(ids.shape[1]):
            image = ids[row, column]
            if image == row:
                ids[row, column] = -1
                continue
            for earlier in range(column):
                if ids[row, earlier] == image:
                    ids[row, column] = -1
                    break


@kernel
def insert_in_order(best: FloatArray, ids: IntArray, value: float, image: int) -> int:
    """Insert an image that is not in the list; ties by id, so that the order of calls does not matter.

    Returns:
        Its place, or -1 if all in the list are better.
    """
    slot = len(best) - 1
    if best[slot] > value or (best[slot] == value and ids[slot] < image):
        return -1
    while slot > 0 and (best[slot - 1] < value or (best[slot - 1] == value and ids[slot - 1] > image)):
        best[slot] = best[slot - 1]
        ids[slot] = ids[slot - 1]
        slot -= 1
    best[slot] = value
    ids[slot] = image
    return slot


@kernel
def insert_candidates(
    rows: IntArray,
    images: IntArray,
    values: FloatArray,
    best: FloatArray,
    ids: IntArray,
    thresholds: FloatArray,
    locks: ByteArray,
) -> None:
    """Insert candidates into the lists of rows, unless they are there; `thresholds` are of all lists.

    Safe on several threads: each list has a lock, and the result does not depend on the order of insertions.
    """
    last = best.shape[1] - 1
    for position in range(len(rows)):
        if position + _PREFETCH_AHEAD < len(rows):
            soon = np.int64(rows[position + _PREFETCH_AHEAD])
            prefetch(best, soon)
            prefetch(ids, soon)
        row = np.int64(rows[position])
        if values[position] < thresholds[row]:
            continue
        lock(locks, row)
        # Without branches: is it in the list, and how many are better, ties by id?
        value, image = values[position], images[position]
        is_there, n_better = np.int32(0), np.int32(0)
        for place in range(last + 1):
            other, there = best[row, place], ids[row, place]
            is_there = np.int32(is_there | np.int32(there == image))
            n_better = np.int32(n_better + np.int32((other > value) | ((other == value) & (there < image))))
        if is_there == 0 and n_better <= last:
            shift_right(best, row, np.int64(n_better))
            shift_right(ids, row, np.int64(n_better))
            best[row, n_better], ids[row, n_better] = value, image
            thresholds[row] = best[row, last]
        unlock(locks, row)


def top_k_of_rows(tile: FloatArray, images: IntArray, keep: int) -> tuple[FloatArray, IntArray]:
    """Find the top-k of every row of a square tile, all images with themselves; ties by id, as ids ascend."""
    best = np.full((len(images), keep), -np.inf, np.float32)
    ids = np.full((len(images), keep), -1, np.int32)
    keys = np.empty(tile.shape, np.int64)
    _fill_keys(tile.view(np.int32), keys)
    # Sorting whole rows takes a fifth of the time of insertion: NumPy sorts integers without branches.
    keys.sort(axis=1)
    _take_first(keys, tile, images, best, ids)
    return best, ids


@kernel
def _fill_keys(tile: IntArray, keys: LongArray) -> None:
    """Fill in integers that sort like entries: largest first, ties by column, the image itself last.

    A key's lower half is its column. Floats are given by their bits, which sort like integers, negative ones
    in reverse.
    """
    for row in range(tile.shape[0]):
        for column in range(tile.shape[1]):
            bits = np.int64(tile[row, column])
            ordered = bits if bits >= 0 else np.int64(-0x80000000) - bits
            keys[row, column] = (-ordered << 32) | column
        keys[row, row] = np.int64(0x7FFFFFFFFFFFFFFF)


@kernel
def _take_first(keys: LongArray, tile: FloatArray, images: IntArray, best: FloatArray, ids: IntArray) -> None:
    width = min(best.shape[1], len(images) - 1)
    for row in range(len(images)):
        for place in range(width):
            column = keys[row, place] & 0xFFFFFFFF
            best[row, place] = tile[row, column]
            ids[row, place] = images[column]


@kernel
def find_tile_candidates(
    tile: FloatArray,
    rows: IntArray,
    row_thresholds: FloatArray,
    columns: IntArray,
    column_thresholds: FloatArray,
    found: IntArray,
) -> int:
    """Find the pairs of a tile that reach the threshold of either image, and return their number.

    Output `found` (3, ...): the image whose list the candidate may enter, the candidate, and the bits of
    their similarity.
    """
    values = found[2].view(np.float32)
    n_found = 0
    for row in range(len(rows)):
        for column in range(len(columns)):
            value = tile[row, column]
            if value >= row_thresholds[row]:
                found[0, n_found], found[1, n_found], values[n_found] = rows[row], columns[column], value
                n_found += 1
            if value >= column_thresholds[column]:
                found[0, n_found], found[1, n_found], values[n_found] = columns[column], rows[row], value
                n_found += 1
    return n_found


@kernel
def top_columns(tile: FloatArray, best: IntArray) -> None:
    """Find the columns of every row's largest entries, largest first; of equal ones the first."""
    count = best.shape[1]
    values = np.empty(count, tile.dtype)
    for row in range(tile.shape[0]):
        values[:] = -np.inf
        line = tile[row]
        for column in range(tile.shape[1]):
            if line[column] > values[count - 1]:
                insert(values, best[row], line[column], column)


@kernel
def roughly_top_columns(tile: FloatArray, best: IntArray) -> None:
    """Find the columns of every row's largest entries, the largest first, the others sorted to 0.001.

    A counting sort. Entries are in -1..1; of equal ones the first are kept; -1 where a row is shorter. The
    time does not depend on the number of columns kept.
    """
    n_columns = tile.shape[1]
    count = min(best.shape[1], n_columns)
    bins = np.empty(n_columns, np.int32)
    kept = np.empty(n_columns, np.int32)
    ends = np.empty(_BINS + 1, np.int32)
    for row in range(tile.shape[0]):
        line = tile[row]
        # Every sixteenth column estimates the threshold, with some slack.
        last = _BINS - 1
        if n_columns >= 32 * _SAMPLE_STEP and 4 * count <= n_columns:
            last = _last_bin(
                line[::_SAMPLE_STEP], count // _SAMPLE_STEP + count // (4 * _SAMPLE_STEP) + 8, ends
            )
        n_kept = _find_bins(line, last, kept, bins)
        if n_kept < count:
            n_kept = _find_bins(line, _BINS - 1, kept, bins)
        ends[:] = 0
        first = kept[0]
        for place in range(n_kept):
            ends[bins[place] + 1] += 1
            if line[kept[place]] > line[first]:
                first = kept[place]
        for place in range(_BINS):
            ends[place + 1] += ends[place]
        for place in range(n_kept):
            slot = ends[bins[place]]
            if slot < count:
                best[row, slot] = kept[place]
                ends[bins[place]] += 1
                if kept[place] == first:
                    best[row, slot] = best[row, 0]
                    best[row, 0] = first
        best[row, 0] = first


@kernel
def _bin(value: float) -> int:
    place: int = min(max(int((np.float32(1) - value) * np.float32(_BINS / 2)), 0), _BINS - 1)
    return place


@kernel
def _last_bin(sample: FloatArray, count: int, counts: IntArray) -> int:
    """Find the bin of the entry that has `count` larger ones."""
    counts[:] = 0
    for place in range(len(sample)):
        counts[_bin(sample[place])] += 1
    total, last = 0, 0
    while last < _BINS - 1:
        total += counts[last]
        if total >= count:
            break
        last += 1
    return last


@kernel
def _find_bins(line: FloatArray, last: int, kept: IntArray, bins: IntArray) -> int:
    """Find the columns with entries in the bins up to the last, and their bins; return their number."""
    # A little below the last bin, because of rounding; the loop has no branch.
    least = np.float32(1) - np.float32(last + 1) / np.float32(_BINS / 2) - np.float32(1e-5)
    if last == _BINS - 1:
        least = np.float32(-np.inf)
    n_above = 0
    for column in range(len(line)):
        kept[n_above] = column
        n_above += line[column] >= least
    n_kept = 0
    for place in range(n_above):
        column = kept[place]
        in_bin = _bin(line[column])
        kept[n_kept] = column
        bins[n_kept] = in_bin
        n_kept += in_bin <= last
    return n_kept
