"""Record files, written byte for byte."""

import struct

import numpy as np
import pytest
from tests.refusals import refuses

from cdp.data.images import open_images
from cdp.data.manifests import read_manifest
from cdp.data.record_files import RecordFile
from image_layouts import MAGIC_BYTES, frame, insightface, pack, picture, write_records

JPEGS = [picture(shade, kind="JPEG", width=9 + shade) for shade in range(5)]


def faces():
    return insightface({0: JPEGS[:2], 1: JPEGS[2:4], 7: JPEGS[4:]})


def test_insightface_files(tmp_path):
    write_records(tmp_path / "train.rec", faces())
    (tmp_path / "property").write_text("3,112,112\n")
    for place in (tmp_path, tmp_path / "train.rec"):
        manifest = read_manifest(place)
        assert manifest.locations == tuple(f"train.rec!{key}" for key in range(1, 6))
        assert manifest.identities.tolist() == [0, 0, 1, 1, 7]
    reader = open_images(manifest)
    assert [reader.read(row) for row in range(5)] == JPEGS


def test_im2rec_files_have_no_header(tmp_path):
    payloads = {key: pack(float(3 - key), JPEGS[key], key) for key in range(4)}
    shuffled = {key: payloads[key] for key in (2, 0, 3, 1)}
    write_records(tmp_path / "set.rec", shuffled)
    manifest = read_manifest(tmp_path / "set.rec")
    assert manifest.locations == ("set.rec!0", "set.rec!1", "set.rec!2", "set.rec!3")
    assert manifest.identities.tolist() == [3, 2, 1, 0]
    assert open_images(manifest).read(2) == JPEGS[2]


def test_images_with_several_labels_count_as_the_first(tmp_path):
    write_records(tmp_path / "set.rec", {key: pack((5.0, 9.0), JPEGS[key]) for key in range(3)})
    manifest = read_manifest(tmp_path / "set.rec")
    assert manifest.identities.tolist() == [5, 5, 5]
    assert open_images(manifest).read(0) == JPEGS[0]


@pytest.mark.parametrize("places", [(0,), (8,), (0, 4), (8, 40)])
def test_payloads_cut_at_the_magic_are_joined_again(tmp_path, places):
    image = bytearray(range(64))
    for place in places:
        image[place : place + 4] = MAGIC_BYTES
    framed = frame(pack(4.0, bytes(image)))
    assert framed.count(MAGIC_BYTES) == 1 + len(places)
    assert struct.unpack_from("<I", framed, 4)[0] >> 29 == 1
    write_records(
        tmp_path / "set.rec", {1: pack(2.0, JPEGS[0]), 2: pack(4.0, bytes(image)), 3: pack(6.0, b"x")}
    )
    manifest = read_manifest(tmp_path / "set.rec")
    assert manifest.identities.tolist() == [2, 4, 6]
    reader = open_images(manifest)
    assert [reader.read(row) for row in range(3)] == [JPEGS[0], bytes(image), b"x"]


def test_the_magic_may_even_stand_in_the_header(tmp_path):
    payload = struct.pack("<IfQQ", 0, 3.0, 0xCED7230A, 0) + JPEGS[1]
    write_records(tmp_path / "set.rec", {5: payload})
    manifest = read_manifest(tmp_path / "set.rec")
    assert manifest.identities.tolist() == [3]
    assert open_images(manifest).read(0) == JPEGS[1]


def test_counters_beyond_float32_do_not_matter(tmp_path):
    # 2^24 + 1 becomes 2^24 in float32, so the last image would be taken for an identity record.
    first = 2**24 - 2
    payloads = {0: pack((float(np.float32(2**24 + 1)), float(np.float32(2**24 + 3))), b"")}
    payloads |= {first + place: pack(float(place // 2), JPEGS[place % 5]) for place in range(3)}
    payloads |= {first + 3: pack((1.0, 3.0), b""), first + 4: pack((3.0, 4.0), b"")}
    write_records(tmp_path / "train.rec", payloads)
    manifest = read_manifest(tmp_path)
    assert manifest.locations == tuple(f"train.rec!{first + place}" for place in range(3))


def test_a_missing_or_damaged_index(tmp_path):
    file = write_records(tmp_path / "train.rec", faces())
    index = tmp_path / "train.idx"
    lines = index.read_text().splitlines(keepends=True)
    index.unlink()
    with refuses("record-index-missing", file=tmp_path / "train.idx"):
        read_manifest(tmp_path)
    for text, code, fields in (
        ("", "record-index-empty", {}),
        ("0\t0\n1 \n2\t8\n", "record-index-line-wrong", {"line": 2}),
        ("0\t0\nx\t8\n", "record-index-line-wrong", {"line": 2}),
        ("0\t0\n1\t4\n1\t8\n", "record-key-repeated", {"key": 1}),
        ("0\t2\n", "record-offset-impossible", {"key": 0, "count": 1}),
        ("0\t8\n", "record-not-at-offset", {"key": 0, "count": 1}),
        (f"0\t{2**40}\n", "record-offset-impossible", {"key": 0, "count": 1}),
        ("".join(lines[:3]), "record-index-cut-short", {"expected": 5, "found": 2}),
    ):
        index.write_text(text)
        with refuses(code, **fields):
            read_manifest(file)


def test_a_truncated_record_file(tmp_path):
    file = write_records(tmp_path / "set.rec", {key: pack(0.0, JPEGS[key]) for key in range(3)})
    whole = file.read_bytes()
    file.write_bytes(whole[:-40])
    with refuses("record-cut-short", file=tmp_path / "set.rec", key=2, count=1):
        read_manifest(file)
    file.write_bytes(whole)
    reader = open_images(read_manifest(file))
    offset = int(RecordFile(file).offsets[1])
    file.write_bytes(whole[:offset] + b"\0\0\0\0" + whole[offset + 4 :])
    with refuses("record-not-at-offset", row=1, file=tmp_path / "set.rec", key=1, offset=688):
        reader.read(1)


@pytest.mark.parametrize(
    ("payload", "code"),
    [
        (pack(0.5, b"x"), "record-label-not-whole"),
        (pack(float("nan"), b"x"), "record-label-not-whole"),
        (pack(-2.0, b"x"), "record-label-not-whole"),
        (pack(float(2**24), b"x"), "record-labels-inexact"),
        (b"short", "record-offset-impossible"),
    ],
)
def test_odd_records(tmp_path, payload, code):
    write_records(tmp_path / "set.rec", {3: pack(1.0, JPEGS[0]), 4: payload})
    with refuses(code, file=tmp_path / "set.rec"):
        read_manifest(tmp_path)


def test_a_record_of_more_labels_than_it_holds(tmp_path):
    payload = struct.pack("<IfQQ", 9, 0, 0, 0) + b"\0" * 8
    write_records(tmp_path / "set.rec", {3: pack(1.0, JPEGS[0]), 4: payload})
    with refuses("record-labels-too-many", row=1, file=tmp_path / "set.rec", key=4, found=9):
        open_images(read_manifest(tmp_path)).read(1)


def test_unknown_keys_and_records_without_image(tmp_path):
    write_records(tmp_path / "set.rec", {3: pack(1.0, b""), 4: pack(1.0, JPEGS[0])})
    records = RecordFile(tmp_path / "set.rec")
    with refuses("record-key-missing", file=tmp_path / "set.rec", key="9"):
        records.read("9")
    with refuses("record-without-image", file=tmp_path / "set.rec", key="3"):
        records.read("3")


def test_two_record_files_in_a_folder(tmp_path):
    for name in ("a.rec", "b.rec"):
        write_records(tmp_path / name, {1: pack(1.0, JPEGS[0])})
    with refuses("folder-several-records", folder=tmp_path, count=2):
        read_manifest(tmp_path)
