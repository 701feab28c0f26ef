"""Writer of WebDataset shards: `key.jpg`, `key.cls` and, for faces on photos, `key.json`."""

from __future__ import annotations

import io
import json
import math
import tarfile
from pathlib import Path

import numpy as np

from cdp.blocks import spans
from cdp.data.images import open_images
from cdp.export.grouped_images import GroupedImages
from cdp.export.image_kinds import image_suffix
from cdp.export.label_lists import face_numbers, write_class_table
from cdp.runtime.progress import Progress, no_progress


def write_shards(
    folder: Path,
    grouped: GroupedImages,
    home: Path,
    images_per_shard: int = 10_000,
    progress: Progress = no_progress,
) -> int:
    """Fill a folder with `shard-000000.tar`, …, and return how many images are in them.

    Images come in the order of their rows; the key is the row, the class 0, 1, 2, … as training wants it. The
    same groups give the same bytes. Faces that were found on photos have a `key.json` with photo, box and
    score.

    Raises:
        InputError: only embeddings are known, or an image cannot be read.
    """
    reader = open_images(grouped.located("A WebDataset"))
    rows, classes = np.flatnonzero(grouped.identity >= 0).tolist(), grouped.classes
    for number, (start, stop) in enumerate(spans(len(rows), images_per_shard)):
        with tarfile.open(folder / f"shard-{number:06d}.tar", "w", format=tarfile.USTAR_FORMAT) as archive:
            for at in range(start, stop):
                row = rows[at]
                image = reader.read(row)
                suffix = image_suffix(reader.manifest.locations[row], image)
                _add(archive, f"{row:09d}{suffix}", image)
                _add(archive, f"{row:09d}.cls", str(classes[row]).encode())
                if grouped.face(row) is not None:
                    _add(archive, f"{row:09d}.json", _about(grouped, row, home))
                if at % 100 == 0:
                    progress("images", at, len(rows))
    progress("images", len(rows), len(rows))
    write_class_table(folder, grouped)
    return len(rows)


def _about(grouped: GroupedImages, row: int, home: Path) -> bytes:
    """Describe who is on a face, on which photo and where, as JSON."""
    found = {name: values[0] for name, values in face_numbers(grouped, [row], home).items()}
    known = {name: None if isinstance(one, float) and math.isnan(one) else one for name, one in found.items()}
    identity = int(grouped.identity[row])
    about = {"row": row, "identity": identity, "name": grouped.name(identity), **known}
    return json.dumps(about, ensure_ascii=False).encode()


def _add(archive: tarfile.TarFile, name: str, data: bytes) -> None:
    entry = tarfile.TarInfo(name)  # its time and owner are 0
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))
