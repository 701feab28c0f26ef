"""XMP packets: XML that photo programs keep inside photos and in files next to them, parsed without trust.

Packets come from anywhere. One with a document type, entities, too many bytes or too many elements is not
parsed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from xml.dom.minidom import CDATASection, Comment, Document, Element, Node, ProcessingInstruction, Text

from cdp.errors import InputError

RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
NAMESPACES = {
    "x": "adobe:ns:meta/",
    "rdf": RDF,
    "dc": "http://purl.org/dc/elements/1.1/",
    "lr": "http://ns.adobe.com/lightroom/1.0/",
    "digiKam": "http://www.digikam.org/ns/1.0/",
    "mwg-rs": "http://www.metadataworkinggroup.com/schemas/regions/",
    "stArea": "http://ns.adobe.com/xmp/sType/Area#",
    "stDim": "http://ns.adobe.com/xap/1.0/sType/Dimensions#",
    "MP": "http://ns.microsoft.com/photo/1.2/",
    "MPRI": "http://ns.microsoft.com/photo/1.2/t/RegionInfo#",
    "MPReg": "http://ns.microsoft.com/photo/1.2/t/Region#",
    "cdp": "urn:consensus-driven-propagation:faces/1.0/",
}
"""Prefix -> namespace of everything that is read or written here."""

MOST_BYTES, MOST_TAGS = 8 * 2**20, 200_000
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def parse_packet(data: bytes) -> Document:
    """Parse a packet.

    Raises:
        InputError: it is too large, broken, or has a document type or entities.
    """
    from defusedxml import minidom

    if len(data) > MOST_BYTES or data.count(b"<") > MOST_TAGS:
        raise InputError("the XMP is too large", code="xmp-too-large", found=len(data))
    try:
        parsed: Document = minidom.parseString(data.strip(b"\0 \t\r\n"), forbid_dtd=True)
        # Depth is bounded before anything walks the tree.
        _check_depth(parsed)
    except InputError:
        raise
    except Exception as error:  # Parsers raise almost anything on damaged bytes.
        raise InputError(
            f"the XMP cannot be parsed ({type(error).__name__})", code="xmp-unreadable"
        ) from None
    return parsed


def _check_depth(parsed: Document, most: int = 100) -> None:
    level = [root_of(parsed)]
    for _ in range(most):
        level = [child for one in level for child in children(one)]
        if not level:
            return
    raise InputError("the XMP is nested too deeply", code="xmp-too-deep", most=most)


def root_of(packet: Document) -> Element:
    """Return the outermost element of a packet."""
    root = packet.documentElement
    if root is None:
        raise InputError("the XMP is empty", code="xmp-unreadable")
    return root


def children(element: Element) -> list[Element]:
    """Elements inside an element."""
    return [one for one in element.childNodes if isinstance(one, Element)]


def is_called(element: Element, name: str) -> bool:
    """Return whether an element has a name such as `mwg-rs:Area`, whatever prefix its file uses."""
    prefix, _, local = name.partition(":")
    return element.localName == local and element.namespaceURI == NAMESPACES[prefix]


def child(element: Element, name: str) -> Element | None:
    """Return the first element of a name inside a structure, ignoring `rdf:Description` in between."""
    for one in children(element):
        if is_called(one, name):
            return one
    for one in children(element):
        if is_called(one, "rdf:Description") and (found := child(one, name)) is not None:
            return found
    return None


def text_of(element: Element, name: str) -> str:
    """Return the text of a structure's field, an attribute or an element; empty without one."""
    prefix, _, local = name.partition(":")
    found = child(element, name)
    if found is not None:
        return "".join(one.data for one in found.childNodes if isinstance(one, Text)).strip()
    places = [element, *(one for one in children(element) if is_called(one, "rdf:Description"))]
    values = (one.getAttributeNS(NAMESPACES[prefix], local) for one in places)
    return str(next(filter(None, values), "")).strip()


def items(element: Element) -> list[Element]:
    """Return the items of a list, which is a bag, a sequence or a choice."""
    lists = [
        one
        for one in children(element)
        if any(is_called(one, f"rdf:{kind}") for kind in ("Bag", "Seq", "Alt"))
    ]
    return [one for each in lists for one in children(each) if is_called(one, "rdf:li")]


def find_all(element: Element, name: str) -> Iterator[Element]:
    """Yield all elements of a name below an element, in order."""
    for one in children(element):
        if is_called(one, name):
            yield one
        else:
            yield from find_all(one, name)


def printable(text: str, most: int = 200) -> str:
    """Clean a text for use as a name: no unprintable characters, single spaces."""
    kept = "".join(one if one.isprintable() else " " for one in _NOT_XML.sub(" ", text))
    return " ".join(kept.split())[:most].strip()


def render_packet(packet: Document) -> bytes:
    """Serialize a packet as UTF-8, indented where elements contain only elements."""
    return "".join(f"{_rendered(one, 0)}\n" for one in packet.childNodes).encode()


def _rendered(node: Node, depth: int) -> str:
    if isinstance(node, Element):
        return _rendered_element(node, depth)
    if isinstance(node, CDATASection):
        return f"<![CDATA[{node.data}]]>"
    if isinstance(node, Text):
        return _escaped(node.data, {"\r": "&#13;"})
    if isinstance(node, Comment):
        return f"<!--{node.data}-->"
    if isinstance(node, ProcessingInstruction):
        return f"<?{node.target} {node.data}?>"
    return ""


def _rendered_element(element: Element, depth: int) -> str:
    # Line feeds in attributes become spaces when they are read, unless they are escaped.
    special = {'"': "&quot;", "\n": "&#10;", "\r": "&#13;", "\t": "&#9;"}
    # Declarations first, as parsers give them: what is parsed and rendered again stays the same.
    attributes = sorted(element.attributes.items(), key=lambda it: not it[0].startswith("xmlns"))
    names = [f' {name}="{_escaped(value, special)}"' for name, value in attributes]
    start = f"<{element.tagName}{''.join(names)}"
    inside = [one for one in element.childNodes if not (isinstance(one, Text) and not one.data.strip())]
    if not element.childNodes:
        return f"{start}/>"
    if not inside or any(isinstance(one, Text) for one in inside):
        texts = "".join(_rendered(one, depth) for one in element.childNodes)
        return f"{start}>{texts}</{element.tagName}>"
    space = "\n" + " " * (depth + 1)
    body = "".join(f"{space}{_rendered(one, depth + 1)}" for one in inside)
    return f"{start}>{body}{space[:-1]}</{element.tagName}>"


def _escaped(text: str, more: dict[str, str]) -> str:
    for plain, written in {"&": "&amp;", "<": "&lt;", ">": "&gt;", **more}.items():
        text = text.replace(plain, written)
    return text
