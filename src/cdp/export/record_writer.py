"""InsightFace record files out: `train.rec`, `train.idx` and `property`, written without mxnet."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import BinaryIO, TextIO

import numpy as np

from cdp.data.images import image_size, open_images
from cdp.data.record_files import (
    EXACT_IN_FLOAT32,
    FIRST,
    FRAME,
    HEADER,
    LAST,
    LENGTH_BITS,
    MAGIC,
    MAGIC_BYTES,
    MIDDLE,
    WHOLE,
)
from cdp.errors import InputError
from cdp.export.grouped_images import GroupedImages
from cdp.export.label_lists import write_boxes, write_class_table
from cdp.runtime.progress import Progress, no_progress


def write_record_files(
    folder: Path, grouped: GroupedImages, home: Path, progress: Progress = no_progress
) -> int:
    """Fill a folder as face2rec2 does, and return how many images are in it.

    A header under key 0, the images person by person from key 1, then one record per person with its first
    key and the one after its last. `property` is written where all images have one size, because it names
    one. Records have no place for photos and boxes; `boxes.csv` has them, in the order of the keys.

    Raises:
        InputError: only embeddings are known, an image cannot be read, or there are too many people for
            float32 labels.
    """
    images = grouped.located("A record file")
    classes = grouped.classes
    rows = np.flatnonzero(classes >= 0)
    rows = rows[np.argsort(classes[rows], kind="stable")]
    n_images, n_people = len(rows), len(grouped.people)
    if n_people >= EXACT_IN_FLOAT32:
        raise InputError(
            f"{n_people:,} people: labels of 2^24 and more are not exact in a record file; export csv.",
            code="records-too-many-people",
            found=n_people,
        )
    ends = np.cumsum(np.bincount(classes[rows], minlength=n_people)) + 1
    reader = open_images(images)
    sizes: set[tuple[int, int] | None] = set()
    with (folder / "train.rec").open("wb") as stream, (folder / "train.idx").open("w") as index:
        out = _Records(stream, index)
        out.add(0, (float(n_images + 1), float(n_images + 1 + n_people)), b"")
        for key, row in enumerate(rows.tolist(), start=1):
            image = reader.read(row)
            sizes.add(image_size(image))
            out.add(key, float(classes[row]), image)
            if key % 100 == 0:
                progress("images", key, n_images)
        for person, end in enumerate(ends.tolist()):
            start = int(ends[person - 1]) if person else 1
            out.add(n_images + 1 + person, (float(start), float(end)), b"")
    progress("images", n_images, n_images)
    if len(sizes) == 1 and (size := sizes.pop()) is not None:
        (folder / "property").write_text(f"{n_people},{size[0]},{size[1]}")
    write_class_table(folder, grouped)
    write_boxes(folder, grouped, rows.tolist(), home)
    return n_images


class _Records:
    """Appends records, and their offsets to the index."""

    def __init__(self, stream: BinaryIO, index: TextIO) -> None:
        self._stream, self._index, self._offset = stream, index, 0

    def add(self, key: int, label: float | tuple[float, ...], image: bytes) -> None:
        """Add one record: a label and an image, or several labels."""
        several = label if isinstance(label, tuple) else ()
        header = HEADER.pack(len(several), 0.0 if several else label, key, 0)
        framed = frame_record(header + struct.pack(f"<{len(several)}f", *several) + image)
        self._index.write(f"{key}\t{self._offset}\n")
        self._stream.write(framed)
        self._offset += len(framed)


def frame_record(payload: bytes) -> bytes:
    """Return a payload as dmlc writes it: cut where the magic number is at a multiple of four bytes."""
    cuts, at = [], payload.find(MAGIC_BYTES)
    while at >= 0:
        if at % 4 == 0:
            cuts.append(at)
        # After a cut the search goes on behind the magic number, which is not written.
        at = payload.find(MAGIC_BYTES, at + (4 if at % 4 == 0 else 1))
    starts, ends = [0, *(cut + 4 for cut in cuts)], [*cuts, len(payload)]
    framed = []
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        if end - start >= 2**LENGTH_BITS:
            raise InputError(
                f"an image of {end - start:,} bytes does not fit into a record; make it smaller.",
                code="record-image-too-large",
                found=end - start,
            )
        kind = WHOLE if not cuts else FIRST if number == 0 else LAST if number == len(cuts) else MIDDLE
        framed += [FRAME.pack(MAGIC, kind << LENGTH_BITS | end - start), payload[start:end]]
        framed.append(b"\0" * ((start - end) % 4))
    return b"".join(framed)
