"""Loops that keep the few best images of every row in a list, best first."""

from __future__ import annotations

import numpy as np

from cdp.knn.simd import lock, lowest_bit, make_room, prefetch, unlock
from cdp.runtime.kernels import kernel
from cdp.types.arrays import ByteArray, FloatArray, IntArray, LongArray

# So many entries are looked at together, eight at a time by the processor: nearly always none of them is good enough. What is
# found must be cast to 32 bits again and again: the compiler makes 64 of them otherwise, and half as many fit.
_CHUNK = 64
_BINS = 2048
# Lists are asked for so many hits before they are needed.
_ASKED_BEFORE = 8
_SAMPLED = 16


@kernel
def insert(best: FloatArray, ids: IntArray, value: float, image: int) -> None:
    """Put an image into one sorted list, which must have a worse last one; the last one drops out."""
    slot = len(best) - 1
    while slot > 0 and best[slot - 1] < value:
        best[slot] = best[slot - 1]
        ids[slot] = ids[slot - 1]
        slot -= 1
    best[slot] = value
    ids[slot] = image


@kernel
def insert_rows(tile: FloatArray, queries: IntArray, offset: int, best: FloatArray, ids: IntArray) -> None:
    """Put a tile's entries into the lists of its rows; its columns are the images from `offset` on."""
    last = best.shape[1] - 1
    width = tile.shape[1]
    for row in range(tile.shape[0]):
        line = tile[row]
        for start in range(0, width, _CHUNK):
            if start + _CHUNK <= width:
                bar = best[row, last]
                hits = np.int32(0)
                values = line[start : start + _CHUNK]
                for column in range(_CHUNK):
                    hits = np.int32(hits | np.int32(values[column] > bar))
                if hits == 0:
                    continue
            for column in range(start, min(start + _CHUNK, width)):
                image = offset + column
                if line[column] > best[row, last] and image != queries[row]:
                    insert(best[row], ids[row], line[column], image)


@kernel
def merge_lists(values: FloatArray, images: IntArray, best: FloatArray, ids: IntArray) -> None:
    """Put the images of every row's other list, best first and -1 after them, into its list."""
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
    """Put a tile's entries into the lists of its rows (images from `first` on) and of its columns (from `second` on).

    Where the two are the same images, only entries above the diagonal are used: below, every pair comes again.
    """
    last = best.shape[1] - 1
    width = tile.shape[1]
    bars = best[second : second + width, last].copy()
    for row in range(tile.shape[0]):
        image = first + row
        left = row + 1 if first == second else 0
        line = tile[row]
        for start in range(left, width, _CHUNK):
            stop = min(start + _CHUNK, width)
            if stop - start == _CHUNK:
                hits = _find_above(line[start:stop], best[image, last], bars[start:stop])
            else:
                hits = (np.int64(1) << (stop - start)) - 1
            while hits != 0:
                column = start + lowest_bit(hits)
                hits &= hits - 1
                value = line[column]
                if value > best[image, last]:
                    insert(best[image], ids[image], value, second + column)
                if value > bars[column]:
                    insert(best[second + column], ids[second + column], value, image)
                    bars[column] = best[second + column, last]


@kernel
def _find_above(values: FloatArray, bar: float, bars: FloatArray) -> int:
    """Which of a chunk's values are above the row's bar or the column's own, as bits.

    The first loop has no branch, so the compiler checks eight values at a time; nearly always none is above.
    """
    is_any = np.int32(0)
    for column in range(_CHUNK):
        is_any = np.int32(is_any | np.int32((values[column] > bar) | (values[column] > bars[column])))
    hits = np.int64(0)
    if is_any != 0:
        for column in range(_CHUNK):
            hits |= np.int64((values[column] > bar) | (values[column] > bars[column])) << np.int64(column)
    return int(hits)


@kernel
def sort_rows(similarity: FloatArray, ids: IntArray) -> None:
    """Insertion sort of every row: most similar first, ties by id, missing ones (-1) last."""
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
    """Replace the image itself and every second mention by -1."""
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
    """Put an image that is not there into one list; ties by id, so that the order of calls does not matter.

    Returns:
        its place, or -1 if all that are there are better.
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
def insert_hits(
    rows: IntArray,
    images: IntArray,
    values: FloatArray,
    best: FloatArray,
    ids: IntArray,
    bars: FloatArray,
    locks: ByteArray,
) -> None:
    """Put images into the lists of rows, one per entry, unless they are there; `bars` are the last ones of all lists.

    Several threads may do so at once: each list is one thread's at a time, and in the end the best are there in any order of events.
    """
    last = best.shape[1] - 1
    for hit in range(len(rows)):
        if hit + _ASKED_BEFORE < len(rows):
            soon = np.int64(rows[hit + _ASKED_BEFORE])
            prefetch(best, soon)
            prefetch(ids, soon)
        row = np.int64(rows[hit])
        if values[hit] < bars[row]:
            continue
        lock(locks, row)
        # Without branches: whether it is there, and how many are better, ties by id.
        value, image = values[hit], images[hit]
        is_there, n_better = np.int32(0), np.int32(0)
        for place in range(last + 1):
            other, there = best[row, place], ids[row, place]
            is_there = np.int32(is_there | np.int32(there == image))
            n_better = np.int32(n_better + np.int32((other > value) | ((other == value) & (there < image))))
        if is_there == 0 and n_better <= last:
            make_room(best, row, np.int64(n_better))
            make_room(ids, row, np.int64(n_better))
            best[row, n_better], ids[row, n_better] = value, image
            bars[row] = best[row, last]
        unlock(locks, row)


def best_of_rows(tile: FloatArray, images: IntArray, keep: int) -> tuple[FloatArray, IntArray]:
    """Lists of the best entries of every row of a square tile, all images with themselves; ascending ids, so ties by id."""
    best = np.full((len(images), keep), -np.inf, np.float32)
    ids = np.full((len(images), keep), -1, np.int32)
    keys = np.empty(tile.shape, np.int64)
    _fill_keys(tile.view(np.int32), keys)
    # Sorting whole rows takes a fifth of the time of keeping lists of the best: the library sorts without branches.
    keys.sort(axis=1)
    _take_first(keys, tile, images, best, ids)
    return best, ids


@kernel
def _fill_keys(tile: IntArray, keys: LongArray) -> None:
    """Numbers in the order of the entries of every row, largest first, ties by column, itself last; a key's lower half is its column.

    The tile's floats are given by their bits: as integers they are in order but for negative ones, whose order is the reverse.
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
def find_hits_of_tile(
    tile: FloatArray,
    rows: IntArray,
    row_bars: FloatArray,
    columns: IntArray,
    column_bars: FloatArray,
    found: IntArray,
) -> int:
    """Write down pairs of a tile that are good enough for the list of one of the two, and return how many they are.

    `found`, (3, ...), gets the image whose list it is, the other, and the bits of their similarity.
    """
    values = found[2].view(np.float32)
    n_hits = 0
    for row in range(len(rows)):
        for column in range(len(columns)):
            value = tile[row, column]
            if value >= row_bars[row]:
                found[0, n_hits], found[1, n_hits], values[n_hits] = rows[row], columns[column], value
                n_hits += 1
            if value >= column_bars[column]:
                found[0, n_hits], found[1, n_hits], values[n_hits] = columns[column], rows[row], value
                n_hits += 1
    return n_hits


@kernel
def best_columns(tile: FloatArray, best: IntArray) -> None:
    """The columns of a row's largest entries, largest first; of equal ones the first."""
    count = best.shape[1]
    values = np.empty(count, tile.dtype)
    for row in range(tile.shape[0]):
        values[:] = -np.inf
        line = tile[row]
        for column in range(tile.shape[1]):
            if line[column] > values[count - 1]:
                insert(values, best[row], line[column], column)


@kernel
def roughly_best_columns(tile: FloatArray, best: IntArray) -> None:
    """The columns of a row's largest entries, the largest first and the others in order but for what lies within 0.001.

    Entries lie in -1..1. Where some of equal ones are too many, the first are kept; -1 where a row is shorter. Time does not
    depend on how many are kept.
    """
    n_columns = tile.shape[1]
    count = min(best.shape[1], n_columns)
    bins = np.empty(n_columns, np.int32)
    kept = np.empty(n_columns, np.int32)
    ends = np.empty(_BINS + 1, np.int32)
    for row in range(tile.shape[0]):
        line = tile[row]
        # Every sixteenth column tells how good the others must be, but for some slack.
        last = _BINS - 1
        if n_columns >= 32 * _SAMPLED and 4 * count <= n_columns:
            last = _last_bin(line[::_SAMPLED], count // _SAMPLED + count // (4 * _SAMPLED) + 8, ends)
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
    """The bin that the entry with so many larger ones is in."""
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
    """Write down the columns with entries in the bins up to the last, and their bins; returns how many they are."""
    # A little below the last bin, because of rounding; without a branch.
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
