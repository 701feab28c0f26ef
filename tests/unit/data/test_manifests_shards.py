"""Tar shards in WebDataset form."""

import gzip
import io
import tarfile

import pytest
from tests.refusals import refuses

from cdp.data.images import open_images
from cdp.data.manifests import read_manifest
from image_layouts import picture, write_tar


def shard(folder, number, classes=("4", "9")):
    entries = {}
    for place, identity in enumerate(classes):
        entries[f"{number:03d}{place}.cls"] = identity.encode()
        entries[f"{number:03d}{place}.jpg"] = picture(10 * number + place, kind="JPEG")
        entries[f"{number:03d}{place}.json"] = b"{}"
    return write_tar(folder / f"faces-{number:03d}.tar", entries)


def test_one_shard_a_folder_and_patterns_agree(tmp_path):
    for number in (8, 9, 10):
        shard(tmp_path, number)
    one = read_manifest(tmp_path / "faces-009.tar")
    assert one.locations == ("faces-009.tar!0090.jpg", "faces-009.tar!0091.jpg")
    assert one.identities.tolist() == [4, 9]
    folder = read_manifest(tmp_path)
    assert len(folder) == 6
    for pattern in ("faces-{008..010}.tar", "faces-*.tar", "faces-{008,009,010}.tar", "faces-0{08..10}.tar"):
        assert read_manifest(str(tmp_path / pattern)).locations == folder.locations
    reader = open_images(folder)
    assert reader.read(3) == picture(91, kind="JPEG")
    assert [int(reader.image(row)[-1, -1, 0]) // 10 for row in range(0, 6, 2)] == [8, 9, 10]


def test_patterns_that_name_nothing_or_too_much(tmp_path):
    shard(tmp_path, 0)
    with refuses("shard-missing", pattern=tmp_path / "faces-{000..001}.tar", file=tmp_path / "faces-001.tar"):
        read_manifest(str(tmp_path / "faces-{000..001}.tar"))
    with refuses("shard-range-wrong", pattern=tmp_path / "faces-{5..1}.tar", value="5..1"):
        read_manifest(str(tmp_path / "faces-{5..1}.tar"))
    with refuses("shard-missing", pattern=tmp_path / "nothing-*.tar", file=tmp_path / "nothing-*.tar"):
        read_manifest(str(tmp_path / "nothing-*.tar"))
    (tmp_path / "faces.txt").write_text("")
    with refuses("shard-not-tar", pattern=tmp_path / "faces*", file=tmp_path / "faces.txt"):
        read_manifest(str(tmp_path / "faces*"))


def test_shards_in_several_folders(tmp_path):
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        shard(tmp_path / name, 1)
    manifest = read_manifest(str(tmp_path / "{a,b}" / "faces-001.tar"))
    assert manifest.locations[0] == "a/faces-001.tar!0010.jpg"
    open_images(manifest).image(3)


def test_names_as_classes(tmp_path):
    manifest = read_manifest(shard(tmp_path, 1, ("bob", "anna\n")))
    assert manifest.names == ("anna", "bob")
    assert manifest.identities.tolist() == [1, 0]


def test_tar_files_without_classes_are_read_like_folders(tmp_path):
    write_tar(tmp_path / "set.tar", {"b/1.png": picture(1), "a/1.png": picture(2), "a/2.png": picture(3)})
    manifest = read_manifest(tmp_path / "set.tar")
    assert manifest.names == ("a", "b")
    assert manifest.locations == ("set.tar!a/1.png", "set.tar!a/2.png", "set.tar!b/1.png")


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_long_names_in_every_form_of_tar(tmp_path, form):
    name = "x" * 60 + "/" + "y" * 90 + ".png"
    write_tar(tmp_path / "set.tar", {name: picture(1)}, form)
    assert open_images(read_manifest(tmp_path / "set.tar")).read(0) == picture(1)


@pytest.mark.parametrize(
    ("entries", "code", "fields"),
    [
        ({"0.jpg": b"x", "0.cls": b"1", "1.jpg": b"x"}, "shard-class-missing", {"entry": "set.tar!1.jpg"}),
        (
            {"0.jpg": b"x", "0.png": b"x", "0.cls": b"1"},
            "shard-key-repeated",
            {"key": "0", "entries": ("0.jpg", "0.png")},
        ),
        ({"0.jpg": b"x", "0.cls": b""}, "shard-class-wrong", {"entry": "0.cls"}),
        ({"0.jpg": b"x", "0.cls": b"\xff"}, "shard-class-wrong", {"entry": "0.cls"}),
        ({"0.jpg": b"x", "0.cls": b"-7"}, "manifest-identity-negative", {"row": 0, "count": 1}),
        ({"0.cls": b"1"}, "images-missing", {}),
    ],
)
def test_refuses(tmp_path, entries, code, fields):
    with refuses(code, **fields):
        read_manifest(write_tar(tmp_path / "set.tar", entries))


def test_damaged_tar_files(tmp_path):
    file = shard(tmp_path, 1)
    whole = file.read_bytes()
    jpeg = whole.index(b"\xff\xd8")
    next_header = jpeg + -(-len(picture(10, kind="JPEG")) // 512) * 512
    for damaged, code in (
        (whole[: jpeg + 100], "tar-damaged"),  # inside a file
        (
            whole[:next_header],
            "tar-end-missing",
        ),  # between two files: tarfile alone would take this for the end
        (whole[:next_header] + b"\1" * 512 + whole[next_header + 512 :], "tar-end-missing"),  # a wrong header
        (b"not a tar file" * 100, "tar-damaged"),
        (b"", "tar-damaged"),
    ):
        file.write_bytes(damaged)
        with refuses(code, file=file):
            read_manifest(file)
    file.write_bytes(gzip.compress(whole))
    with refuses("tar-compressed", file=tmp_path / "faces-001.tar"):
        read_manifest(file)


def test_links_in_tar_files_are_refused(tmp_path):
    with tarfile.open(tmp_path / "set.tar", "w") as archive:
        info = tarfile.TarInfo("a/1.png")
        info.size = 3
        archive.addfile(info, io.BytesIO(b"abc"))
        link = tarfile.TarInfo("a/2.png")
        link.type, link.linkname = tarfile.SYMTYPE, "a/1.png"
        archive.addfile(link)
    with refuses("tar-entry-is-link", file=tmp_path / "set.tar", entry="a/2.png"):
        read_manifest(tmp_path / "set.tar")


def test_folders_beside_shards(tmp_path):
    shard(tmp_path, 1)
    (tmp_path / "people").mkdir()
    with refuses("folder-images-and-shards", folder=tmp_path):
        read_manifest(tmp_path)
