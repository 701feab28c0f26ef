"""InsightFace and MXNet record files (`train.rec` with `train.idx`), read without mxnet."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np

from cdp.data.archives import RandomFile
from cdp.errors import InputError
from cdp.storage.array_files import read_bytes, reading
from cdp.types.arrays import AnyArray, BoolArray, DoubleArray, LongArray

MAGIC = 0xCED7230A
MAGIC_BYTES = struct.pack("<I", MAGIC)
LENGTH_BITS = 29
FRAME = struct.Struct("<II")  # magic; cflag in the top 3 bits, length in the low 29
HEADER = struct.Struct("<IfQQ")  # flag, label, id, id2
WHOLE, FIRST, MIDDLE, LAST = range(4)
EXACT_IN_FLOAT32 = 2**24


class RecordFile:
    """The images of a record file by key; entries are keys written as text."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._file = RandomFile(path)
        self.keys, self.offsets = read_index(self.path.with_suffix(".idx"))

    def read(self, entry: str) -> bytes:
        """Return the encoded image with key `entry`."""
        key = int(entry) if entry.isdecimal() and len(entry) < 19 else -1
        at = int(np.searchsorted(self.keys, key))
        if at == len(self.keys) or self.keys[at] != key:
            raise InputError(
                f"{self.path}!{entry}: the index has no such key; check the number.",
                code="record-key-missing",
                file=self.path,
                key=entry,
            )
        image = self.unpack(key, self.payload(key, int(self.offsets[at])))[1]
        if not image:
            raise InputError(
                f"{self.path}!{entry}: the record holds no image; leave it out.",
                code="record-without-image",
                file=self.path,
                key=entry,
            )
        return image

    def payload(self, key: int, offset: int) -> bytes:
        """Return one record at `offset`; its parts are joined by the magic at which they were cut."""
        parts: list[bytes] = []
        while True:
            magic, word = FRAME.unpack(self._file.read(offset, FRAME.size))
            kind, length = word >> LENGTH_BITS, word & (2**LENGTH_BITS - 1)
            expected = (MIDDLE, LAST) if parts else (WHOLE, FIRST)
            if magic != MAGIC or kind not in expected:
                raise InputError(
                    f"{self.path}!{key}: no record at byte {offset:,}; the file is damaged or "
                    f"{self.path.with_suffix('.idx').name} belongs to another one; copy both again.",
                    code="record-not-at-offset",
                    file=self.path,
                    key=key,
                    offset=offset,
                )
            parts.append(self._file.read(offset + FRAME.size, length))
            if kind in (WHOLE, LAST):
                return MAGIC_BYTES.join(parts)
            offset += FRAME.size + length + -length % 4

    def unpack(self, key: int, payload: bytes) -> tuple[float, bytes]:
        """Split a payload into (label, encoded image); of several labels the first counts."""
        if len(payload) < HEADER.size:
            raise InputError(
                f"{self.path}!{key}: a record of {len(payload)} bytes is too short to be an image.",
                code="record-too-short",
                file=self.path,
                key=key,
                found=len(payload),
            )
        n_labels, label, _, _ = HEADER.unpack_from(payload)
        start = HEADER.size + 4 * n_labels
        if start > len(payload):
            raise InputError(
                f"{self.path}!{key}: {n_labels:,} labels do not fit into the record; damaged.",
                code="record-labels-too-many",
                file=self.path,
                key=key,
                found=n_labels,
            )
        if n_labels:
            (label,) = struct.unpack_from("<f", payload, HEADER.size)
        return label, payload[start:]

    def images(self) -> tuple[LongArray, LongArray]:
        """Return (keys, identities) of all images, in the order of the keys, without reading the images.

        InsightFace files open with a header under key 0 and end with one record per identity; both kinds
        carry labels and no image, and no image does. The header's own counters are float32 and wrong beyond
        2^24, so they only serve to notice an index that was cut short. Files of im2rec have no header: every
        key is an image.
        """
        lengths, labels, n_labels = self._scan()
        without_image = (n_labels > 0) & (lengths == HEADER.size + 4 * n_labels)
        has_header = bool(self.keys[0] == 0 and without_image[0])
        kept = ~without_image if has_header else np.ones(len(self.keys), np.bool_)
        if has_header:
            self._refuse_cut_index(lengths, int(kept.sum()))
        if not kept.any():
            raise InputError(f"{self.path}: holds no images.", code="records-empty", file=self.path)
        return self.keys[kept], self._whole_labels(self.keys[kept], labels[kept])

    def _scan(self) -> tuple[LongArray, DoubleArray, LongArray]:
        """Payload length, label and label count of every record: a few words each, gathered at once."""
        # Compared this way round, because an offset near 2^63 would overflow.
        wrong = (self.offsets % 4 != 0) | (self.offsets < 0) | (self.offsets > self._file.size - 32)
        self._refuse(
            wrong, "the index points to a place where no record can be", code="record-offset-impossible"
        )
        words = np.memmap(self.path, "<u4", "r", shape=(self._file.size // 4,))
        first = self.offsets // 4
        self._refuse(
            words[first] != MAGIC, "there is no record where the index says", code="record-not-at-offset"
        )
        lengths = (words[first + 1] & (2**LENGTH_BITS - 1)).astype(np.int64)
        kinds = words[first + 1] >> LENGTH_BITS
        self._refuse(
            self.offsets + FRAME.size + lengths > self._file.size,
            "the file ends inside this record",
            code="record-cut-short",
        )
        n_labels = words[first + 2].astype(np.int64)
        labels = words[first + 3].view("<f4").astype(np.float64)
        several = np.flatnonzero((n_labels > 0) & (kinds == WHOLE) & (lengths >= HEADER.size + 4))
        labels[several] = words[first[several] + 8].view("<f4")
        for at in np.flatnonzero(kinds != WHOLE).tolist():
            key = int(self.keys[at])
            payload = self.payload(key, int(self.offsets[at]))
            labels[at] = self.unpack(key, payload)[0]
            lengths[at], n_labels[at] = len(payload), HEADER.unpack_from(payload)[0]
        self._refuse(lengths < HEADER.size, "the record is too short to be an image", code="record-too-short")
        return lengths, labels, n_labels

    def _refuse(self, wrong: BoolArray, why: str, *, code: str) -> None:
        records = np.flatnonzero(wrong)
        if records.size:
            others = f" (and {records.size - 1:,} more)" if records.size > 1 else ""
            raise InputError(
                f"{self.path}: key {self.keys[records[0]]}{others}: {why}; the file is truncated or "
                f"{self.path.with_suffix('.idx').name} belongs to another one; copy both again.",
                code=code,
                file=self.path,
                key=self.keys[records[0]],
                count=records.size,
            )

    def _refuse_cut_index(self, lengths: LongArray, n_images: int) -> None:
        payload = self.payload(0, int(self.offsets[0]))
        if len(payload) < HEADER.size + 8:
            return
        (announced,) = struct.unpack_from("<f", payload, HEADER.size)
        last = int(np.argmax(self.offsets))
        ends = int(self.offsets[last]) + FRAME.size + int(lengths[last])
        is_cut = ends + -ends % 4 < self._file.size
        if announced < EXACT_IN_FLOAT32 and n_images < announced - 1 and is_cut:
            raise InputError(
                f"{self.path.with_suffix('.idx')} is truncated: it lists {n_images:,} of "
                f"{int(announced) - 1:,} images; copy it again.",
                code="record-index-cut-short",
                file=self.path.with_suffix(".idx"),
                expected=int(announced) - 1,
                found=n_images,
            )

    def _whole_labels(self, keys: LongArray, labels: DoubleArray) -> LongArray:
        finite = np.isfinite(labels)
        odd = np.flatnonzero(~finite | (np.floor(np.where(finite, labels, 0.5)) != labels) | (labels < -1))
        if odd.size:
            raise InputError(
                f"{self.path}: key {keys[odd[0]]} has the label {labels[odd[0]]:g}, which is not an "
                "identity number.",
                code="record-label-not-whole",
                file=self.path,
                key=keys[odd[0]],
                value=labels[odd[0]],
            )
        if float(labels.max()) >= EXACT_IN_FLOAT32:
            raise InputError(
                f"{self.path}: labels of 2^24 and more are float32 here and no longer exact; number the "
                "identities from 0, or list them in a CSV.",
                code="record-labels-inexact",
                file=self.path,
            )
        return labels.astype(np.int64)


def read_index(file: Path) -> tuple[LongArray, LongArray]:
    """Read (keys, byte offsets) from an .idx file, sorted by key."""
    if not file.is_file():
        raise InputError(
            f"{file}: missing; a record file is read with the .idx file next to it, copy both.",
            code="record-index-missing",
            file=file,
        )
    with reading(file):
        lines = read_bytes(file).split(b"\n")
    while lines and not lines[-1].strip():
        lines.pop()
    if not lines:
        raise InputError(f"{file}: empty; copy it again.", code="record-index-empty", file=file)
    fields: list[bytes] = b"\n".join(lines).split()
    try:
        table: AnyArray = np.array(fields).astype(np.int64).reshape(len(lines), 2)
    except (ValueError, OverflowError):
        is_entry = (
            len(fields) == 2 and all(map(bytes.isdigit, fields)) for fields in map(bytes.split, lines)
        )
        wrong = next((number for number, good in enumerate(is_entry, start=1) if not good), len(lines))
        raise InputError(
            f"{file}: line {wrong} is not `key<TAB>offset`; copy it again.",
            code="record-index-line-wrong",
            file=file,
            line=wrong,
        ) from None
    table = table[np.argsort(table[:, 0], kind="stable")]
    twice = np.flatnonzero(np.diff(table[:, 0]) == 0)
    if twice.size:
        raise InputError(
            f"{file}: key {table[twice[0], 0]} is listed twice; make the index again.",
            code="record-key-repeated",
            file=file,
            key=table[twice[0], 0],
        )
    return np.ascontiguousarray(table[:, 0]), np.ascontiguousarray(table[:, 1])
