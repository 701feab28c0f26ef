"""Named face regions of photo programs, from XMP inside a photo or in a sidecar.

Two forms are read: regions of the Metadata Working Group (digiKam, Lightroom, Picasa, Apple, Immich) and
those of Microsoft. Both are fractions of the image as it is stored, before EXIF's orientation turns it; boxes
here are pixels of the upright photo, as a detector sees it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from xml.dom.minidom import Document, Element

from cdp.data.archives import split_location
from cdp.data.images import ImageHeader, Source, read_header
from cdp.errors import InputError
from cdp.faces.face_tables import FaceRow
from cdp.faces.xmp_packets import (
    MOST_BYTES,
    child,
    find_all,
    items,
    parse_packet,
    printable,
    root_of,
    text_of,
)

Box = tuple[float, float, float, float]
"""Left, top, right, bottom."""

_MOST_REGIONS = 1000
_LEAST_OVERLAP = 0.25
_SAME_REGION = 0.5


@dataclass(frozen=True)
class Region:
    """A named face on a photo.

    Attributes:
        name: of the person.
        box: left, top, right, bottom in pixels of the upright photo.
    """

    name: str
    box: Box


@dataclass(frozen=True)
class FoundRegions:
    """What a photo's XMP says.

    Attributes:
        regions: named faces.
        notes: sentences about what was ignored.
    """

    regions: tuple[Region, ...] = ()
    notes: tuple[str, ...] = ()


def read_regions(photo: str | os.PathLike[str]) -> list[Region]:
    """Return the named face regions of a photo; none without a photo or readable XMP."""
    return list(find_regions(photo).regions)


def find_regions(photo: str | os.PathLike[str]) -> FoundRegions:
    """Return the named face regions of a photo and notes on ignored data; never raises on file contents.

    The first of these that has face regions counts: `photo.jpg.xmp`, `photo.xmp`, the photo itself.

    Args:
        photo: path of a photo; one inside an archive has no files next to it.
    """
    path = os.fspath(photo)
    header = photo_header(path)
    if header is None:
        return FoundRegions()
    notes: list[str] = []
    for source, data in _packets(path, header, notes):
        try:
            stored = stored_regions(parse_packet(data))
        except InputError as error:
            notes.append(f"{source}: {error}; its face regions are ignored.")
            continue
        found = [_region(name, box, header) for name, box in stored]
        kept = tuple(one for one in found if one is not None)
        if len(kept) < len(found):
            notes.append(f"{source}: {len(found) - len(kept)} face regions without a usable box are ignored.")
        if kept:
            return FoundRegions(kept, tuple(notes))
    return FoundRegions((), tuple(notes))


def photo_header(photo: str) -> ImageHeader | None:
    """Return the header of a photo, also of one inside an archive; None where it is gone or damaged."""
    if os.path.isfile(photo):
        return read_header(photo)
    archive, _ = split_location(photo)
    if archive is None or not os.path.isfile(archive):
        return None
    try:
        return read_header(Source(os.sep).read(photo))
    except InputError:
        return None


def _packets(path: str, header: ImageHeader, notes: list[str]) -> Iterable[tuple[str, bytes]]:
    for sidecar in (f"{path}.xmp", f"{os.path.splitext(path)[0]}.xmp"):
        if not os.path.isfile(sidecar):
            continue
        try:
            with open(sidecar, "rb") as stream:
                yield sidecar, stream.read(MOST_BYTES + 1)
        except OSError as error:
            notes.append(f"{sidecar}: cannot be read ({error.strerror}); it is ignored.")
    if header.xmp:
        yield path, header.xmp


def stored_regions(packet: Document) -> list[tuple[str, Box]]:
    """Read name and box of every named face of a packet; boxes are unchecked fractions of the image.

    Microsoft's regions count where the Metadata Working Group's have no region in the same place.
    """
    root = root_of(packet)
    found = [
        one
        for regions in find_all(root, "mwg-rs:Regions")
        for listed in find_all(regions, "mwg-rs:RegionList")
        for item in items(listed)
        if (one := _mwg_region(item, regions)) is not None
    ]
    microsoft = [
        one
        for listed in find_all(root, "MPRI:Regions")
        for item in items(listed)
        if (one := _microsoft_region(item)) is not None
    ]
    more = [one for one in microsoft if all(overlap(one[1], other) < _SAME_REGION for _, other in found)]
    return (found + more)[:_MOST_REGIONS]


def _mwg_region(item: Element, regions: Element) -> tuple[str, Box] | None:
    name = printable(text_of(item, "mwg-rs:Name"))
    area = child(item, "mwg-rs:Area")
    if not name or area is None or text_of(item, "mwg-rs:Type").lower() not in ("", "face"):
        return None
    x, y, w, h = (_number(text_of(area, f"stArea:{key}")) for key in "xywh")
    if text_of(area, "stArea:unit").lower().startswith("pixel"):
        size = child(regions, "mwg-rs:AppliedToDimensions")
        wide, high = (math.nan if size is None else _number(text_of(size, f"stDim:{key}")) for key in "wh")
        wide, high = wide or math.nan, high or math.nan
        x, y, w, h = x / wide, y / high, w / wide, h / high
    return name, (x - w / 2, y - h / 2, x + w / 2, y + h / 2)


def _microsoft_region(item: Element) -> tuple[str, Box] | None:
    name = printable(text_of(item, "MPReg:PersonDisplayName"))
    numbers = [_number(one) for one in text_of(item, "MPReg:Rectangle").split(",")]
    if not name or len(numbers) != 4:
        return None
    x, y, w, h = numbers
    return name, (x, y, x + w, y + h)


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return math.nan


def _region(name: str, box: Box, header: ImageHeader) -> Region | None:
    """Convert a region to pixels of the upright photo, clipped; None if it lies outside."""
    left, top, right, bottom = box
    # A comparison with NaN is false, and no box is twice as large as its photo.
    if not (0 < right - left <= 2 and 0 < bottom - top <= 2):
        return None
    left, top, right, bottom = turn_upright(box, header.orientation)
    wide, high = header.upright
    cut = (max(left, 0.0) * wide, max(top, 0.0) * high, min(right, 1.0) * wide, min(bottom, 1.0) * high)
    if cut[2] - cut[0] < 1 or cut[3] - cut[1] < 1:
        return None
    return Region(name, cut)


def turn_upright(box: Box, orientation: int) -> Box:
    """Return a box of the stored image as a box of the upright one; both in fractions of the image."""
    corners = [_turned(x, y, orientation) for x, y in (box[:2], box[2:])]
    return _between(corners)


def turn_back(box: Box, orientation: int) -> Box:
    """Return a box of the upright image as a box of the stored one: the inverse of `turn_upright`."""
    # A quarter to the left undoes one to the right; all other turns undo themselves.
    inverse = {6: 8, 8: 6}.get(orientation, orientation)
    corners = [_turned(x, y, inverse) for x, y in (box[:2], box[2:])]
    return _between(corners)


def _between(corners: Sequence[tuple[float, float]]) -> Box:
    (x, y), (other_x, other_y) = corners
    return min(x, other_x), min(y, other_y), max(x, other_x), max(y, other_y)


def _turned(x: float, y: float, orientation: int) -> tuple[float, float]:
    """Return where a point of the stored image is when EXIF's orientation is applied."""
    return {
        2: (1 - x, y),
        3: (1 - x, 1 - y),
        4: (x, 1 - y),
        5: (y, x),
        6: (1 - y, x),
        7: (1 - y, 1 - x),
        8: (y, 1 - x),
    }.get(orientation, (x, y))


def overlap(one: Sequence[float], other: Sequence[float]) -> float:
    """Intersection over union of two boxes; 0 where a box is no box."""
    wide = min(one[2], other[2]) - max(one[0], other[0])
    high = min(one[3], other[3]) - max(one[1], other[1])
    if not (wide > 0 and high > 0):
        return 0.0
    union = sum((box[2] - box[0]) * (box[3] - box[1]) for box in (one, other)) - wide * high
    return wide * high / union if union > 0 else 0.0


def match_regions(regions: Sequence[Region], boxes: Sequence[Sequence[float]]) -> list[str]:
    """Return the name of the person of every face, empty where no region says it.

    A region belongs to the face that it overlaps most, each to one; where programs draw larger or smaller
    boxes, it is enough that the centers of both are inside the other. Nobody is on a photo twice.

    Args:
        regions: of one photo.
        boxes: of its faces; NaN where the photo is the face, which the only region is then about.
    """
    if len(regions) == len(boxes) == 1 and any(map(math.isnan, boxes[0])):
        return [regions[0].name]
    pairs = [
        (closeness, at, face)
        for at, region in enumerate(regions)
        for face, box in enumerate(boxes)
        if (closeness := _closeness(region.box, box)) > 0
    ]
    names = [""] * len(boxes)
    used: set[int] = set()
    for _, at, face in sorted(pairs, key=lambda it: (-it[0], it[1], it[2])):
        if at not in used and not names[face] and regions[at].name not in names:
            used.add(at)
            names[face] = regions[at].name
    return names


def _closeness(region: Sequence[float], box: Sequence[float]) -> float:
    shared = overlap(region, box)
    if shared >= _LEAST_OVERLAP or (shared > 0 and _is_inside(region, box) and _is_inside(box, region)):
        return shared
    return 0.0


def _is_inside(one: Sequence[float], other: Sequence[float]) -> bool:
    """Return whether the center of a box is inside another one."""
    x, y = (one[0] + one[2]) / 2, (one[1] + one[3]) / 2
    return other[0] <= x <= other[2] and other[1] <= y <= other[3]


@dataclass(frozen=True)
class RegionNames:
    """What the face regions of photos say of faces that were found.

    Attributes:
        names: row of the table -> name.
        notes: sentences about what was ignored.
    """

    names: Mapping[int, str]
    notes: tuple[str, ...] = ()


def name_faces(rows: Sequence[FaceRow]) -> RegionNames:
    """Name the faces of a table by the face regions of their photos, as far as these are there."""
    photos: dict[str, list[int]] = {}
    for row, face in enumerate(rows):
        photos.setdefault(face.photo, []).append(row)
    names: dict[int, str] = {}
    notes: list[str] = []
    for photo, faces in photos.items():
        found = find_regions(photo)
        notes += found.notes
        if found.regions:
            matched = match_regions(found.regions, [rows[row].box for row in faces])
            names |= {row: name for row, name in zip(faces, matched, strict=True) if name}
    return RegionNames(dict(sorted(names.items())), tuple(notes))
