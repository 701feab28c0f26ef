"""Face regions: every form, every orientation, and packets that mean harm."""

import math

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from PIL import Image, ImageOps, PngImagePlugin
from tests.xmp_photos import HEAD, TAIL, attribute_packet, microsoft_packet, mwg, packet, photo

from cdp.data.images import decode
from cdp.faces.face_regions import (
    Region,
    find_regions,
    match_regions,
    name_faces,
    overlap,
    read_regions,
    turn_back,
    turn_upright,
)
from cdp.faces.face_tables import FaceRow

ANNA = ("Anna", 0.25, 0.4, 0.1, 0.2)
ANNA_BOX = (40.0, 30.0, 60.0, 50.0)


def boxes(found):
    return {one.name: tuple(round(side, 3) for side in one.box) for one in found}


@pytest.mark.parametrize(
    "xmp",
    [packet(ANNA), attribute_packet(ANNA), microsoft_packet(("Anna", 0.2, 0.3, 0.1, 0.2))],
    ids=["elements", "attributes", "microsoft"],
)
def test_regions_are_read_from_the_photo_and_from_files_next_to_it(tmp_path, xmp):
    inside = photo(tmp_path / "inside.jpg", xmp=xmp)
    assert boxes(read_regions(inside)) == {"Anna": ANNA_BOX}
    for sidecar in ("plain.jpg.xmp", "plain.xmp"):
        plain = photo(tmp_path / "plain.jpg")
        assert read_regions(plain) == []
        (tmp_path / sidecar).write_bytes(b"<?xpacket begin='' id='W5M0'?>" + xmp + b"<?xpacket end='w'?>")
        assert boxes(read_regions(plain)) == {"Anna": ANNA_BOX}
        (tmp_path / sidecar).unlink()


def test_regions_are_read_from_png_and_webp(tmp_path):
    info = PngImagePlugin.PngInfo()
    info.add_itxt("XML:com.adobe.xmp", packet(ANNA).decode())
    assert boxes(read_regions(photo(tmp_path / "a.png", pnginfo=info))) == {"Anna": ANNA_BOX}
    assert boxes(read_regions(photo(tmp_path / "a.webp", xmp=packet(ANNA)))) == {"Anna": ANNA_BOX}


@pytest.mark.parametrize("orientation", [None, 6])
def test_regions_are_read_from_heic(tmp_path, orientation):
    """HEIC is turned by its own note, which this file does not have; that of EXIF does not count there."""
    heif = pytest.importorskip("pillow_heif", reason="HEIC needs the extra heic")
    heif.register_heif_opener(thumbnails=False)
    file = photo(tmp_path / "a.heic", orientation=orientation, xmp=packet(ANNA))
    assert boxes(read_regions(file)) == {"Anna": ANNA_BOX}
    assert decode(file.read_bytes()).shape[:2] == (100, 200)


def test_a_file_next_to_the_photo_wins_over_the_photo(tmp_path):
    file = photo(tmp_path / "a.jpg", xmp=packet(ANNA))
    (tmp_path / "a.jpg.xmp").write_bytes(packet(("Berta", *ANNA[1:])))
    assert boxes(read_regions(file)) == {"Berta": ANNA_BOX}
    (tmp_path / "a.jpg.xmp").write_bytes(packet())
    assert boxes(read_regions(file)) == {"Anna": ANNA_BOX}, "a sidecar without regions says nothing"


def test_both_forms_of_one_face_are_one_region(tmp_path):
    both = packet(ANNA).decode().replace(TAIL, "") + microsoft_packet(
        ("Anna", 0.2, 0.3, 0.1, 0.2), ("Berta", 0.7, 0.3, 0.1, 0.2)
    ).decode().replace(HEAD, "")
    found = read_regions(photo(tmp_path / "a.jpg", xmp=both.encode()))
    assert boxes(found) == {"Anna": ANNA_BOX, "Berta": (140.0, 30.0, 160.0, 50.0)}
    assert len(found) == 2


def test_regions_that_are_no_faces_or_have_no_name_are_ignored(tmp_path):
    for xmp in (
        packet(ANNA, kind="Pet"),
        packet(ANNA, kind="Focus"),
        packet(("", *ANNA[1:])),
        packet((" ", *ANNA[1:])),
    ):
        found = find_regions(photo(tmp_path / "a.jpg", xmp=xmp))
        assert found.regions == ()
        assert found.notes == ()


@pytest.mark.parametrize("orientation", range(1, 9))
def test_boxes_are_those_of_the_upright_photo(tmp_path, orientation):
    """The region is drawn into the stored pixels; where it is after Pillow turned them is where it must be found."""
    stored = np.zeros((100, 200, 3), np.uint8)
    stored[30:50, 40:60] = 255
    exif = Image.Exif()
    exif[0x0112] = orientation
    file = tmp_path / "a.png"
    info = PngImagePlugin.PngInfo()
    info.add_itxt("XML:com.adobe.xmp", packet(ANNA).decode())
    Image.fromarray(stored).save(file, exif=exif, pnginfo=info)
    with Image.open(file) as opened:
        upright = np.array(ImageOps.exif_transpose(opened))[:, :, 0]
    rows, columns = np.nonzero(upright)
    expected = (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)
    (found,) = read_regions(file)
    assert found.box == pytest.approx(expected)


@given(st.integers(1, 8), st.tuples(*[st.floats(0, 1)] * 4))
def test_turning_back_undoes_turning(orientation, sides):
    box = (min(sides[0], sides[2]), min(sides[1], sides[3]), max(sides[0], sides[2]), max(sides[1], sides[3]))
    assert turn_back(turn_upright(box, orientation), orientation) == pytest.approx(box)


LAUGHS = (
    '<!DOCTYPE lolz [<!ENTITY a "lol">'
    + "".join(f'<!ENTITY {chr(98 + n)} "{f"&{chr(97 + n)};" * 10}">' for n in range(9))
    + "]>"
)
XXE = '<!DOCTYPE x [<!ENTITY a SYSTEM "file:///etc/passwd">]>'
HOSTILE = {
    "billion laughs": LAUGHS.encode() + packet(("&j;", *ANNA[1:])),
    "external entity": XXE.encode() + packet(("&a;", *ANNA[1:])),
    "document type": b"<!DOCTYPE x SYSTEM 'http://localhost/x.dtd'>" + packet(ANNA),
    "cut": packet(ANNA)[:-20],
    "no xml": b"\x00\xff\xfe" * 100,
    "empty": b" ",
    "huge": packet(ANNA, inside=f"<dc:title>{'x' * 2**24}</dc:title>"),
    "many elements": packet(ANNA, inside="<dc:a/>" * 300_000),
    "deep": packet(ANNA, inside="<dc:a>" * 5000 + "</dc:a>" * 5000),
    "unknown encoding": b"<?xml version='1.0' encoding='nonsense'?>" + packet(ANNA),
}


@pytest.mark.parametrize("xmp", HOSTILE.values(), ids=list(HOSTILE))
def test_hostile_packets_are_ignored_with_a_note(tmp_path, xmp):
    file = photo(tmp_path / "a.jpg")
    (tmp_path / "a.jpg.xmp").write_bytes(xmp)
    found = find_regions(file)
    assert found.regions == ()
    assert len(found.notes) == 1
    assert str(tmp_path / "a.jpg.xmp") in found.notes[0]


@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.sampled_from([packet(ANNA), attribute_packet(ANNA), microsoft_packet(ANNA)]),
    st.lists(
        st.tuples(
            st.integers(0, 2000),
            st.integers(0, 60),
            st.sampled_from(
                [
                    b"",
                    b"<rdf:li/>",
                    b"nan",
                    b"-1e309",
                    b"&#0;",
                    b"<mwg-rs:Area/>",
                    b"\xff",
                    b"<rdf:Bag>",
                    b"</rdf:Bag>",
                ]
            ),
        ),
        max_size=3,
    ),
)
def test_damaged_packets_never_raise(tmp_path, xmp, damages):
    file = photo(tmp_path / "a.jpg")
    for at, length, put in damages:
        xmp = xmp[:at] + put + xmp[at + length :]
    (tmp_path / "a.jpg.xmp").write_bytes(xmp)
    for one in find_regions(file).regions:
        assert one.name.isprintable()
        assert 0 <= one.box[0] < one.box[2] <= 200
        assert 0 <= one.box[1] < one.box[3] <= 100


@pytest.mark.parametrize(
    "area",
    [("nan", 0.4, 0.1, 0.2), (0.25, "inf", 0.1, 0.2), (0.25, 0.4, -0.1, 0.2), (0.25, 0.4, 0, 0.2), (9, 9, 0.1, 0.2),
     (0.25, 0.4, 1e300, 1e300), ("x", 0.4, 0.1, 0.2), ("", "", "", "")],
)  # fmt: skip
def test_boxes_that_are_none_are_ignored_with_a_note(tmp_path, area):
    found = find_regions(photo(tmp_path / "a.jpg", xmp=packet(ANNA, ("Berta", *area))))
    assert boxes(found.regions) == {"Anna": ANNA_BOX}
    assert len(found.notes) == 1


def test_boxes_are_cut_at_the_edge_and_names_are_made_printable(tmp_path):
    (found,) = read_regions(
        photo(tmp_path / "a.jpg", xmp=packet(("An&#10;na\u202e  K.", 0.0, 0.5, 0.2, 0.4)))
    )
    assert found.name == "An na K."
    assert found.box == pytest.approx((0, 30, 20, 70))


def test_what_is_no_photo_has_no_regions(tmp_path):
    (tmp_path / "a.jpg").write_bytes(b"nothing")
    (tmp_path / "a.jpg.xmp").write_bytes(packet(ANNA))
    assert read_regions(tmp_path / "a.jpg") == []
    assert read_regions(tmp_path / "gone.jpg") == []


def test_regions_go_to_the_faces_that_they_overlap_each_to_one():
    regions = [
        Region("Anna", (0, 0, 10, 10)),
        Region("Berta", (5, 0, 15, 10)),
        Region("Clara", (50, 50, 90, 90)),
    ]
    faces = [(6, 0, 16, 10), (1, 0, 11, 10), (60, 60, 80, 80), (200, 0, 210, 10)]
    assert match_regions(regions, faces) == ["Berta", "Anna", "Clara", ""]
    assert match_regions([], faces) == [""] * 4
    assert match_regions(regions, []) == []


def test_nobody_is_on_a_photo_twice():
    regions = [Region("Anna", (0, 0, 10, 10)), Region("Anna", (50, 50, 60, 60))]
    assert match_regions(regions, [(50, 50, 61, 61), (0, 0, 10, 10)]) == ["", "Anna"]


def test_a_face_that_is_a_whole_photo_takes_the_only_region():
    whole = (math.nan,) * 4
    assert match_regions([Region("Anna", (0, 0, 10, 10))], [whole]) == ["Anna"]
    assert match_regions([Region("Anna", (0, 0, 10, 10)), Region("Berta", (20, 0, 30, 10))], [whole]) == [""]


def test_overlap():
    assert overlap((0, 0, 2, 2), (1, 0, 3, 2)) == pytest.approx(1 / 3)
    assert overlap((0, 0, 2, 2), (2, 0, 3, 2)) == 0
    assert overlap((math.nan,) * 4, (2, 0, 3, 2)) == 0


def test_faces_of_a_table_are_named_by_their_photos(tmp_path):
    first = str(photo(tmp_path / "a.jpg", xmp=packet(ANNA)))
    second = str(photo(tmp_path / "b.jpg"))
    (tmp_path / "b.xmp").write_bytes(f"{HEAD}{mwg(('Berta', 0.5, 0.5, 0.4, 0.4))}{TAIL}".encode())
    points = (math.nan,) * 10
    rows = [
        FaceRow(first, (150, 30, 170, 50), points),
        FaceRow(first, (41, 31, 62, 50), points),
        FaceRow(second, (60, 30, 140, 70), points),
        FaceRow(str(tmp_path / "gone.jpg"), (60, 30, 140, 70), points),
    ]
    named = name_faces(rows)
    assert named.names == {1: "Anna", 2: "Berta"}
    assert named.notes == ()
