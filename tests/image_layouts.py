"""Writers of every image layout, byte for byte, for the tests of manifests; nothing here uses the readers."""

import io
import struct
import tarfile
import zipfile
from pathlib import Path

import numpy as np
from PIL import Image

MAGIC = 0xCED7230A
MAGIC_BYTES = struct.pack("<I", MAGIC)


def picture(shade: int, *, width: int = 6, height: int = 4, mode: str = "RGB", kind: str = "PNG") -> bytes:
    """An encoded image; the first pixel is brighter than the others, so turns can be told apart."""
    pixels = np.full((height, width, 3), shade, np.uint8)
    pixels[0, 0] = 255
    stream = io.BytesIO()
    Image.fromarray(pixels).convert(mode).save(stream, kind)
    return stream.getvalue()


def write_folders(folder: Path, people: dict[str, list[str]]) -> Path:
    """One folder per identity; image number i of the whole set has shade i (up to 250)."""
    shade = 0
    for person, names in people.items():
        (folder / person).mkdir(parents=True, exist_ok=True)
        for name in names:
            (folder / person / name).write_bytes(picture(shade % 250))
            shade += 1
    return folder


def write_zip(file: Path, entries: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in entries.items():
            archive.writestr(name, data)
    return file


def write_tar(file: Path, entries: dict[str, bytes], form: int = tarfile.USTAR_FORMAT) -> Path:
    with tarfile.open(file, "w", format=form) as archive:
        for name, data in entries.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return file


def pack(label: float | tuple[float, ...], image: bytes, key: int = 0) -> bytes:
    """The payload of a record: `<IfQQ`, further labels, image."""
    if isinstance(label, tuple):
        return struct.pack("<IfQQ", len(label), 0.0, key, 0) + struct.pack(f"<{len(label)}f", *label) + image
    return struct.pack("<IfQQ", 0, label, key, 0) + image


def frame(payload: bytes) -> bytes:
    """A payload as dmlc writes it: cut wherever the magic stands at a multiple of four bytes."""
    cuts = [place for place in range(0, len(payload) - 3, 4) if payload[place : place + 4] == MAGIC_BYTES]
    starts = [0, *(place + 4 for place in cuts)]
    ends = [*cuts, len(payload)]
    framed = b""
    for number, (start, end) in enumerate(zip(starts, ends, strict=True)):
        kind = 0 if not cuts else 1 if number == 0 else 3 if number == len(cuts) else 2
        part = payload[start:end]
        framed += struct.pack("<II", MAGIC, kind << 29 | len(part)) + part + b"\0" * (-len(part) % 4)
    return framed


def write_records(file: Path, payloads: dict[int, bytes]) -> Path:
    """`file`.rec and .idx, in the order given."""
    lines, data = [], b""
    for key, payload in payloads.items():
        lines.append(f"{key}\t{len(data)}\n")
        data += frame(payload)
    file.write_bytes(data)
    file.with_suffix(".idx").write_text("".join(lines))
    return file


def insightface(images: dict[int, list[bytes]]) -> dict[int, bytes]:
    """Payloads as face2rec2 writes them: header, images identity by identity, one record per identity."""
    n_images = sum(map(len, images.values()))
    payloads = {0: pack((float(n_images + 1), float(n_images + 1 + len(images))), b"")}
    ranges, key = [], 1
    for identity, pictures in images.items():
        ranges.append((float(key), float(key + len(pictures))))
        for image in pictures:
            payloads[key] = pack(float(identity), image, key)
            key += 1
    for start_end in ranges:
        payloads[key] = pack(start_end, b"", key)
        key += 1
    return payloads
