"""Manifests from folders, lists, tables and zip archives."""

import os
import zipfile

import numpy as np
import pytest
from tests.refusals import refuses

from cdp.data.images import open_images
from cdp.data.manifests import read_manifest
from cdp.types import Manifest
from image_layouts import picture, write_folders, write_zip


def shades(manifest: Manifest) -> list[int]:
    reader = open_images(manifest)
    return [int(reader.image(row)[-1, -1, 0]) for row in range(len(manifest))]


def test_a_folder_per_identity_sorted_and_nested(tmp_path):
    write_folders(tmp_path, {"b": ["2.png", "1.PNG"], "a/x": ["1.png"], "a/y": ["1.png", "2.png"]})
    (tmp_path / "b" / "notes.txt").write_text("not an image")
    (tmp_path / ".hidden").mkdir()
    manifest = read_manifest(tmp_path)
    assert manifest.locations == ("a/x/1.png", "a/y/1.png", "a/y/2.png", "b/1.PNG", "b/2.png")
    assert manifest.identities.tolist() == [0, 1, 1, 2, 2]
    assert manifest.names == ("a/x", "a/y", "b")
    assert shades(manifest) == [2, 3, 4, 1, 0]


def test_a_flat_folder_has_no_identities(tmp_path):
    write_folders(tmp_path, {".": ["1.png", "2.png"]})
    assert read_manifest(tmp_path).identities.tolist() == [-1, -1]


def test_folders_that_leave_a_doubt_are_refused(tmp_path):
    write_folders(tmp_path, {"a": ["1.png"], "b/c": ["1.png"]})
    (tmp_path / "b" / "beside.png").write_bytes(picture(1))
    with refuses("image-identity-unclear", file=tmp_path, image="b/beside.png"):
        read_manifest(tmp_path)
    (tmp_path / "b" / "beside.png").unlink()
    (tmp_path / "empty").mkdir()
    with refuses("image-folder-empty", folder=tmp_path / "empty"):
        read_manifest(tmp_path)


def test_no_images_at_all(tmp_path):
    with refuses("images-missing", file=tmp_path):
        read_manifest(tmp_path)
    with refuses("path-missing", file=tmp_path / "missing"):
        read_manifest(tmp_path / "missing")
    (tmp_path / "x.doc").write_text("")
    with refuses("images-kind-unknown", file=tmp_path / "x.doc"):
        read_manifest(tmp_path / "x.doc")


def test_a_circle_of_links_is_refused_and_a_link_is_followed(tmp_path):
    write_folders(tmp_path / "store", {"a": ["1.png"]})
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "linked").symlink_to(tmp_path / "store" / "a")
    assert read_manifest(tmp_path / "set").locations == ("linked/1.png",)
    (tmp_path / "store" / "a" / "circle").symlink_to(tmp_path / "store")
    with refuses("image-folder-loops", folder=tmp_path / "store/a/circle"):
        read_manifest(tmp_path / "store")


def test_names_that_are_not_utf8_are_refused(tmp_path):
    write_folders(tmp_path, {"a": ["1.png"]})
    try:
        os.rename(tmp_path / "a", os.fsencode(tmp_path) + b"/\xff")
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    with refuses("image-name-not-utf8", folder=tmp_path, name="\udcff"):
        read_manifest(tmp_path)


def test_the_authors_lists(tmp_path):
    write_folders(tmp_path, {"a": ["1.png"], "b": ["1.png", "2.png"]})
    (tmp_path / "list.txt").write_text("b/2.png\na/1.png\nb/1.png\n")
    (tmp_path / "meta.txt").write_text("5\n-1\n5\n")
    for place in (tmp_path, tmp_path / "list.txt"):
        manifest = read_manifest(place)
        assert manifest.locations == ("b/2.png", "a/1.png", "b/1.png")
        assert manifest.identities.tolist() == [5, -1, 5]
    assert shades(manifest) == [2, 0, 1]
    (tmp_path / "meta.txt").write_text("5\n5\n")
    with refuses("list-meta-differs", file=tmp_path / "meta.txt", expected=3, found=2):
        read_manifest(tmp_path)
    (tmp_path / "meta.txt").unlink()
    assert read_manifest(tmp_path).identities.tolist() == [-1, -1, -1]


def test_lists_with_another_root(tmp_path):
    write_folders(tmp_path / "pictures", {"a": ["1.png"]})
    (tmp_path / "lists").mkdir()
    (tmp_path / "lists" / "list.txt").write_text("a/1.png\n")
    with refuses("list-image-missing", file=tmp_path / "lists/list.txt", image="a/1.png"):
        read_manifest(tmp_path / "lists")
    assert shades(read_manifest(tmp_path / "lists", root=tmp_path / "pictures")) == [0]
    (tmp_path / "lists" / "list.txt").write_text("a/1.png\n\na/2.png\n")
    with refuses("list-line-blank", file=tmp_path / "lists/list.txt", line=2):
        read_manifest(tmp_path / "lists")


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_zip_archives(tmp_path, method):
    entries = {"set/b/1.png": picture(1), "set/a/2.png": picture(2), "set/a/1.png": picture(3)}
    write_zip(
        tmp_path / "faces.zip", {**entries, "__MACOSX/set/._1.png": b"", "set/readme.txt": b"hello"}, method
    )
    manifest = read_manifest(tmp_path / "faces.zip")
    assert manifest.locations == ("faces.zip!set/a/1.png", "faces.zip!set/a/2.png", "faces.zip!set/b/1.png")
    assert manifest.names == ("set/a", "set/b")
    assert manifest.identities.tolist() == [0, 0, 1]
    assert shades(manifest) == [3, 2, 1]


def test_damaged_zip_archives(tmp_path):
    file = write_zip(
        tmp_path / "faces.zip", {"a/1.png": picture(1), "b/1.png": picture(2)}, zipfile.ZIP_STORED
    )
    whole = file.read_bytes()
    file.write_bytes(whole[:-30])
    with refuses("zip-damaged", file=tmp_path / "faces.zip"):
        read_manifest(file)
    place = whole.index(picture(2)) + 20
    file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
    reader = open_images(read_manifest(file))
    reader.read(0)
    with refuses("archive-entry-checksum-differs", row=1, file=tmp_path / "faces.zip", entry="b/1.png"):
        reader.read(1)


def test_a_picture_named_twice_is_refused(tmp_path):
    write_folders(tmp_path, {"a": ["1.png"]})
    (tmp_path / "table.csv").write_text("path,identity\na/1.png,0\na/1.png,1\n")
    with refuses("image-repeated", file=tmp_path / "table.csv", rows=(0, 1)):
        read_manifest(tmp_path / "table.csv")


def test_the_folder_of_a_split_asks_which_part(tmp_path):
    (tmp_path / "card.json").write_text("{}")
    (tmp_path / "labeled.csv").write_text("path\n")
    with refuses("folder-is-split", folder=tmp_path):
        read_manifest(tmp_path)


def test_skip_leaves_out_what_is_listed(tmp_path):
    write_folders(tmp_path / "set", {"a": ["1.png", "2.png"], "b": ["1.png"]})
    (tmp_path / "unreadable.csv").write_text("row,path,reason\n2,set/b/1.png,broken\n9,set/gone.png,x\n")
    manifest = read_manifest(tmp_path / "set", skip=tmp_path / "unreadable.csv")
    assert manifest.locations == ("a/1.png", "a/2.png")
    (tmp_path / "unreadable.csv").write_text("row,path,reason\n")
    assert len(read_manifest(tmp_path / "set", skip=tmp_path / "unreadable.csv")) == 3


def test_omniglot(shared_data):
    archive = shared_data / "omniglot" / "images_background.zip"
    manifest = read_manifest(archive)
    assert (manifest.n_images, manifest.n_identities) == (19_280, 964)
    assert set(manifest.sizes.tolist()) == {20}
    assert manifest.names[0] == "images_background/Alphabet_of_the_Magi/character01"
    pixels = open_images(manifest).image(0, color=False)
    assert pixels.shape == (105, 105, 1)
    assert set(np.unique(pixels)) == {0, 255}
