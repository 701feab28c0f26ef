"""Photos with face regions in their XMP, in the forms that photo programs write them."""

import numpy as np
from PIL import Image

HEAD = (
    '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    '<rdf:Description rdf:about="" xmlns:mwg-rs="http://www.metadataworkinggroup.com/schemas/regions/" '
    'xmlns:stArea="http://ns.adobe.com/xmp/sType/Area#" '
    'xmlns:stDim="http://ns.adobe.com/xap/1.0/sType/Dimensions#" '
    'xmlns:MP="http://ns.microsoft.com/photo/1.2/" '
    'xmlns:MPRI="http://ns.microsoft.com/photo/1.2/t/RegionInfo#" '
    'xmlns:MPReg="http://ns.microsoft.com/photo/1.2/t/Region#" '
    'xmlns:dc="http://purl.org/dc/elements/1.1/">'
)
TAIL = "</rdf:Description></rdf:RDF></x:xmpmeta>"


def packet(*regions, kind="Face", inside=""):
    """Regions (name, x, y, w, h) of the Metadata Working Group, as elements."""
    return f"{HEAD}{inside}{mwg(*regions, kind=kind)}{TAIL}".encode()


def mwg(*regions, kind="Face"):
    listed = "".join(
        '<rdf:li rdf:parseType="Resource"><mwg-rs:Area rdf:parseType="Resource">'
        f"<stArea:x>{x}</stArea:x><stArea:y>{y}</stArea:y><stArea:w>{w}</stArea:w><stArea:h>{h}</stArea:h>"
        f"<stArea:unit>normalized</stArea:unit></mwg-rs:Area><mwg-rs:Name>{name}</mwg-rs:Name>"
        f"<mwg-rs:Type>{kind}</mwg-rs:Type></rdf:li>"
        for name, x, y, w, h in regions
    )
    return (
        '<mwg-rs:Regions rdf:parseType="Resource"><mwg-rs:RegionList><rdf:Bag>'
        f"{listed}</rdf:Bag></mwg-rs:RegionList></mwg-rs:Regions>"
    )


def attribute_packet(*regions):
    """The same with attributes and a description in every item, as Lightroom writes them."""
    listed = "".join(
        f'<rdf:li><rdf:Description mwg-rs:Rotation="0.0" mwg-rs:Name="{name}" mwg-rs:Type="Face">'
        f'<mwg-rs:Area stArea:x="{x}" stArea:y="{y}" stArea:w="{w}" stArea:h="{h}"/></rdf:Description></rdf:li>'
        for name, x, y, w, h in regions
    )
    return (
        f"{HEAD}<mwg-rs:Regions><rdf:Description><mwg-rs:RegionList><rdf:Bag>{listed}</rdf:Bag>"
        f"</mwg-rs:RegionList></rdf:Description></mwg-rs:Regions>{TAIL}"
    ).encode()


def microsoft_packet(*regions):
    """Regions (name, left, top, width, height) of Microsoft."""
    listed = "".join(
        f'<rdf:li><rdf:Description MPReg:Rectangle="{x}, {y}, {w}, {h}" MPReg:PersonDisplayName="{name}"/></rdf:li>'
        for name, x, y, w, h in regions
    )
    return (
        f"{HEAD}<MP:RegionInfo><rdf:Description><MPRI:Regions><rdf:Bag>{listed}</rdf:Bag></MPRI:Regions>"
        f"</rdf:Description></MP:RegionInfo>{TAIL}"
    ).encode()


def photo(file, *, size=(200, 100), orientation=None, xmp=None, **how):
    """A photo with an EXIF orientation and an XMP packet."""
    image = Image.fromarray(np.full((size[1], size[0], 3), 90, np.uint8))
    if orientation is not None:
        how["exif"] = Image.Exif()
        how["exif"][0x0112] = orientation
    if xmp is not None:
        how["xmp"] = xmp
    image.save(file, **how)
    return file
