"""XMP sidecars: who is where on a photo, in files next to photos that digiKam, Immich and Lightroom read.

A sidecar has the regions twice, as the Metadata Working Group and as Microsoft want them, and the names as
keywords. What others wrote into one stays. What was written here is listed in it, so that the next export
replaces that and nothing else.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from xml.dom.minidom import Document, Element

from cdp.data.archives import split_location
from cdp.data.images import ImageHeader
from cdp.errors import InputError
from cdp.export.export_result import ExportResult
from cdp.export.grouped_images import GroupedImages
from cdp.faces.face_regions import Box, overlap, photo_header, stored_regions, turn_back
from cdp.faces.xmp_packets import (
    NAMESPACES,
    child,
    children,
    find_all,
    is_called,
    items,
    parse_packet,
    printable,
    render_packet,
    root_of,
    text_of,
)
from cdp.runtime.progress import Progress, no_progress
from cdp.storage.files import replacing
from cdp.web.words import counted

_EMPTY = (
    '<?xpacket begin="\ufeff" id="W5M0MpCehiHzreSzNTczkc9d"?>'
    f'<x:xmpmeta xmlns:x="{NAMESPACES["x"]}"><rdf:RDF xmlns:rdf="{NAMESPACES["rdf"]}"/></x:xmpmeta>'
    '<?xpacket end="w"?>'
).encode()
_SAME_FACE = 0.5
_TAGS = {"dc:subject": "Bag", "lr:hierarchicalSubject": "Bag", "digiKam:TagsList": "Seq"}
_OURS, _OUR_TAGS = "cdp:WrittenRegions", "cdp:WrittenTags"


@dataclass(frozen=True)
class NamedBox:
    """A face as a sidecar has it.

    Attributes:
        name: of the person.
        box: left, top, right, bottom as fractions of the stored image.
    """

    name: str
    box: Box

    @property
    def area(self) -> dict[str, str]:
        """Center and size, as the Metadata Working Group wants them."""
        left, top, right, bottom = self.box
        sides = {"x": (left + right) / 2, "y": (top + bottom) / 2, "w": right - left, "h": bottom - top}
        return {key: f"{value:.6f}" for key, value in sides.items()}

    @property
    def center(self) -> str:
        """The same as one text."""
        return ", ".join(self.area.values())

    @property
    def rectangle(self) -> str:
        """Top left corner and size, as Microsoft wants them."""
        left, top, right, bottom = self.box
        return ", ".join(f"{value:.6f}" for value in (left, top, right - left, bottom - top))


def write_sidecars(
    out: Path, grouped: GroupedImages, *, unnamed: bool = False, progress: Progress = no_progress
) -> ExportResult:
    """Write `photo.jpg.xmp` for every photo with named people, in folders as the photos have them.

    Where `out` holds the photos, sidecars are written next to them. Photos are not changed.

    Args:
        out: folder; made if it is not there.
        grouped: who is on which face.
        unnamed: write people without a name too, as `person-000012`.
        progress: called as photos are done.

    Raises:
        InputError: the images were not found on photos.
        StoreError: a sidecar cannot be written.
    """
    photos = _photos(grouped, unnamed)
    files = [one for one in photos if not _is_in_archive(one)]
    homes = _homes(out, files)
    n_faces, gone = 0, 0
    notes: list[str] = []
    names: set[str] = set()
    for done, (photo, home) in enumerate(homes.items()):
        if done % 100 == 0:
            progress("photos", done, len(homes))
        header = photo_header(photo)
        if header is None:
            gone += 1
            continue
        faces = _stored(grouped, photos[photo], header, unnamed)
        try:
            n_faces += _update(home, faces, header, notes)
        except InputError as error:
            notes.append(f"{home}: {error}; it is left as it is.")
            continue
        names |= {face.name for face in faces}
    progress("photos", len(homes), len(homes))
    if gone:
        notes.append(f"{counted(gone, 'photo')} gone or unreadable, without a sidecar.")
    if len(files) < len(photos):
        n_inside = len(photos) - len(files)
        notes.append(f"{counted(n_inside, 'photo')} inside archives, without a sidecar.")
    return ExportResult(n_faces, len(names), tuple(notes))


def _photos(grouped: GroupedImages, unnamed: bool) -> dict[str, list[int]]:
    """Photo -> rows of its faces whose people are written; photos without any are there too."""
    if grouped.faces is None:
        raise InputError(
            "xmp needs faces found on photos, and these images were not; export csv, or label photos.",
            code="export-needs-photos",
        )
    photos: dict[str, list[int]] = {}
    for row, face in enumerate(grouped.faces):
        if face is None:
            continue
        rows = photos.setdefault(face.photo, [])
        identity = int(grouped.identity[row])
        if identity >= 0 and (unnamed or grouped.name(identity)):
            rows.append(row)
    return photos


def _is_in_archive(photo: str) -> bool:
    return split_location(photo)[0] is not None and not os.path.isfile(photo)


def _homes(out: Path, photos: Iterable[str]) -> dict[str, Path]:
    """Map each photo to its sidecar: next to it if `out` holds all photos, else below the common folder."""
    listed = list(photos)
    if not listed:
        return {}
    here = os.path.realpath(out)
    root = os.path.commonpath([os.path.dirname(one) for one in listed])
    if root == here or root.startswith(here.rstrip(os.sep) + os.sep):
        root = here
    return {one: Path(here, f"{os.path.relpath(one, root)}.xmp") for one in listed}


def _stored(
    grouped: GroupedImages, rows: Sequence[int], header: ImageHeader, unnamed: bool
) -> list[NamedBox]:
    """Faces of a photo as boxes of the stored image; every name once."""
    wide, high = header.upright
    found: dict[str, NamedBox] = {}
    for row in rows:
        face = None if grouped.faces is None else grouped.faces[row]
        if face is None:
            continue
        identity = int(grouped.identity[row])
        name = printable(grouped.name(identity)) or (f"person-{identity:06d}" if unnamed else "")
        left, top, right, bottom = (0, 0, wide, high) if any(map(math.isnan, face.box)) else face.box
        upright = (max(left, 0) / wide, max(top, 0) / high, min(right, wide) / wide, min(bottom, high) / high)
        if name and upright[0] < upright[2] and upright[1] < upright[3]:
            found.setdefault(name, NamedBox(name, turn_back(upright, header.orientation)))
    return list(found.values())


def _update(home: Path, faces: Sequence[NamedBox], header: ImageHeader, notes: list[str]) -> int:
    """Write one sidecar, if there is anything to write or to take back; how many of the faces it has."""
    before = home.read_bytes() if home.is_file() else None
    if not faces and (before is None or NAMESPACES["cdp"].encode() not in before):
        return 0
    packet = parse_packet(_EMPTY if before is None else before)
    n_written, other_names = merge_faces(packet, faces, header)
    if other_names:
        notes.append(f"{home}: {counted(other_names, 'face')} with another name there, which is kept.")
    content = render_packet(packet)
    if before is None or content != render_packet(parse_packet(before)):
        home.parent.mkdir(parents=True, exist_ok=True)
        with replacing(home) as file:
            file.write_bytes(content)
    return n_written


def merge_faces(packet: Document, faces: Sequence[NamedBox], header: ImageHeader) -> tuple[int, int]:
    """Put faces into a packet in place of those that were written here before.

    A face that somebody else named already is left to them.

    Returns:
        How many faces the packet has of those given, and how many have another name there.

    Raises:
        InputError: it is no XMP.
    """
    root = root_of(packet)
    rdf = root if is_called(root, "rdf:RDF") else next(find_all(root, "rdf:RDF"), None)
    if rdf is None:
        raise InputError("there is no rdf:RDF in it", code="xmp-unreadable")
    _take_back(rdf)
    foreign = stored_regions(packet)
    ours, kept, n_other = [], [], 0
    for face in faces:
        same = [name for name, box in foreign if overlap(face.box, box) >= _SAME_FACE]
        if not same:
            ours.append(face)
        elif face.name in same:
            kept.append(face)
        else:
            n_other += 1
    if ours:
        _add_regions(rdf, ours, header)
    _add_tags(rdf, [face.name for face in (*ours, *kept)])
    if ours:
        keys = [f"{face.name}|{numbers}" for face in ours for numbers in (face.center, face.rectangle)]
        _append_list(_description(rdf), _OURS, "Bag", keys)
    return len(ours) + len(kept), n_other


def _take_back(rdf: Element) -> None:
    """Remove what was written here before: regions, keywords, and the lists of them."""
    ours = {text_of_item(one) for listed in find_all(rdf, _OURS) for one in items(listed)}
    tags = {text_of_item(one) for listed in find_all(rdf, _OUR_TAGS) for one in items(listed)}
    for name in ("mwg-rs:RegionList", "MPRI:Regions"):
        for listed in find_all(rdf, name):
            for one in items(listed):
                if _key(one) in ours:
                    _remove(one)
    for name in _TAGS:
        for listed in find_all(rdf, name):
            for one in items(listed):
                if f"{name}|{text_of_item(one)}" in tags:
                    _remove(one)
    for name in ("mwg-rs:RegionList", "MPRI:Regions", *_TAGS):
        for listed in list(find_all(rdf, name)):
            if (ours or tags) and not items(listed):
                _remove(listed)
    for name, size in (("mwg-rs:Regions", "mwg-rs:AppliedToDimensions"), ("MP:RegionInfo", "")):
        for one in list(find_all(rdf, name)):
            if ours and all(size and is_called(inner, size) for inner in children(one)):
                _remove(one)
    for name in (_OURS, _OUR_TAGS):
        for one in list(find_all(rdf, name)):
            _remove(one)
    for one in children(rdf):
        if (ours or tags) and is_called(one, "rdf:Description") and not children(one) and _is_bare(one):
            _remove(one)


def _is_bare(element: Element) -> bool:
    """Return whether an element has no attributes but declarations and `rdf:about`."""
    return all(name.startswith("xmlns") or name.endswith(":about") for name in element.attributes.keys())  # noqa: SIM118


def text_of_item(item: Element) -> str:
    """Return the text of an item of a list."""
    return "".join(getattr(one, "data", "") for one in item.childNodes).strip()


def _key(item: Element) -> str:
    """Return what a region is known by in the list of those that were written here."""
    rectangle = text_of(item, "MPReg:Rectangle")
    if rectangle:
        return f"{text_of(item, 'MPReg:PersonDisplayName')}|{rectangle}"
    area = child(item, "mwg-rs:Area")
    if area is None:
        return ""
    try:
        x, y, w, h = (float(text_of(area, f"stArea:{key}")) for key in "xywh")
    except ValueError:
        return ""
    return f"{text_of(item, 'mwg-rs:Name')}|{x:.6f}, {y:.6f}, {w:.6f}, {h:.6f}"


def _remove(element: Element) -> None:
    if element.parentNode is not None:
        element.parentNode.removeChild(element)


def _add_regions(rdf: Element, faces: Sequence[NamedBox], header: ImageHeader) -> None:
    regions = next(find_all(rdf, "mwg-rs:Regions"), None) or _append(
        _description(rdf), "mwg-rs:Regions", is_structure=True
    )
    inside = _structure(regions)
    if child(regions, "mwg-rs:AppliedToDimensions") is None:
        size = _append(inside, "mwg-rs:AppliedToDimensions", is_structure=True)
        for key, value in (("w", str(header.width)), ("h", str(header.height)), ("unit", "pixel")):
            _append(size, f"stDim:{key}", value)
    bag = _list(inside, "mwg-rs:RegionList", "Bag")
    for face in faces:
        item = _append(bag, "rdf:li", is_structure=True)
        area = _append(item, "mwg-rs:Area", is_structure=True)
        for key, value in (*face.area.items(), ("unit", "normalized")):
            _append(area, f"stArea:{key}", value)
        _append(item, "mwg-rs:Name", face.name)
        _append(item, "mwg-rs:Type", "Face")
    microsoft = next(find_all(rdf, "MP:RegionInfo"), None) or _append(
        _description(rdf), "MP:RegionInfo", is_structure=True
    )
    bag = _list(_structure(microsoft), "MPRI:Regions", "Bag")
    for face in faces:
        item = _append(bag, "rdf:li", is_structure=True)
        _append(item, "MPReg:Rectangle", face.rectangle)
        _append(item, "MPReg:PersonDisplayName", face.name)


def _add_tags(rdf: Element, names: Sequence[str]) -> None:
    """Add names as keywords, plain and below People, unless they are there."""
    added = []
    for tag, kind in _TAGS.items():
        for name in names:
            branch = name.replace("/", "_").replace("|", "_")
            text = {"dc:subject": name, "lr:hierarchicalSubject": f"People|{branch}"}.get(
                tag, f"People/{branch}"
            )
            listed = next((one for each in children(rdf) if (one := child(each, tag)) is not None), None)
            if listed is not None and text in map(text_of_item, items(listed)):
                continue
            if listed is None:
                listed = _append(_description(rdf), tag)
            _append(_bag(listed, kind), "rdf:li", text)
            added.append(f"{tag}|{text}")
    if added:
        _append_list(_description(rdf), _OUR_TAGS, "Bag", added)


def _append_list(parent: Element, name: str, kind: str, texts: Iterable[str]) -> None:
    listed = _list(parent, name, kind)
    for text in texts:
        _append(listed, "rdf:li", text)


def _description(rdf: Element) -> Element:
    """Return the description that what is written here goes to: the last one."""
    found = [one for one in children(rdf) if is_called(one, "rdf:Description")]
    if found:
        return found[-1]
    made = _append(rdf, "rdf:Description")
    made.setAttribute(_attribute(made, "rdf:about"), "")
    return made


def _structure(element: Element) -> Element:
    """Return where the fields of a structure are: in it, or in the description inside."""
    inside = next((one for one in children(element) if is_called(one, "rdf:Description")), None)
    if inside is None and not children(element):
        # An empty element is no structure yet.
        element.setAttributeNS(NAMESPACES["rdf"], _attribute(element, "rdf:parseType"), "Resource")
    return element if inside is None else inside


def _list(parent: Element, name: str, kind: str) -> Element:
    """Return the list that a field has, made if there is none."""
    return _bag(child(parent, name) or _append(parent, name), kind)


def _bag(field: Element, kind: str) -> Element:
    """Return the bag, sequence or choice in a field, made if there is none."""
    kinds = [f"rdf:{one}" for one in ("Bag", "Seq", "Alt")]
    found = [one for one in children(field) if any(is_called(one, each) for each in kinds)]
    return found[0] if found else _append(field, f"rdf:{kind}")


def _append(parent: Element, name: str, text: str | None = None, *, is_structure: bool = False) -> Element:
    """Add an element with its declaration, unless its prefix means the same already."""
    document = parent.ownerDocument
    if document is None:
        raise InputError("an element outside of a document", code="xmp-unreadable")
    prefix = name.partition(":")[0]
    made = document.createElementNS(NAMESPACES[prefix], name)
    parent.appendChild(made)
    _declare(made, prefix)
    if is_structure:
        made.setAttributeNS(NAMESPACES["rdf"], _attribute(made, "rdf:parseType"), "Resource")
    if text is not None:
        made.appendChild(document.createTextNode(text))
    return made


def _attribute(element: Element, name: str) -> str:
    _declare(element, name.partition(":")[0])
    return name


def _declare(element: Element, prefix: str) -> None:
    """Declare a missing prefix at the surrounding description, or at the element if it is taken there."""
    declaration, uri = f"xmlns:{prefix}", NAMESPACES[prefix]
    around = [element]
    while isinstance(above := around[-1].parentNode, Element):
        around.append(above)
    bound = [one.getAttribute(declaration) for one in around if one.hasAttribute(declaration)]
    if bound and bound[0] == uri:
        return
    outermost = next((one for one in reversed(around) if is_called(one, "rdf:Description")), element)
    (element if bound else outermost).setAttribute(declaration, uri)
