"""Files made to do harm, or broken as no accident breaks them: each is refused in one sentence that names it."""

import io
import os
import socket
import struct
import tracemalloc
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from tests.refusals import refuses

from cdp.config.reading import read_recipe
from cdp.data.images import decode, open_images
from cdp.data.knn_files import read_knn
from cdp.data.lfw_pairs import read_pairs
from cdp.data.manifest_tables import read_table
from cdp.data.manifests import read_manifest
from cdp.data.megaface import read_probe_list
from cdp.data.verification_packs import read_verification_pack
from cdp.data.views import read_identities, read_views
from cdp.data.webdataset import shards_of
from cdp.errors import InputError
from cdp.storage.array_files import reading
from cdp.types import Embeddings, Manifest, Views
from image_layouts import picture, write_zip


@pytest.fixture
def memory():
    """Asserts at the end that no more than some megabytes were taken."""
    tracemalloc.start()
    yield
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 30e6


class TestOneSentenceForWhateverHappens:
    @pytest.mark.parametrize(
        "error", [KeyError("a"), RecursionError(), ZeroDivisionError("x\ny"), OverflowError("big")]
    )
    def test_an_exception_that_nobody_foresaw_names_the_file_and_stays_as_the_cause(self, error):
        with refuses("file-damaged", file="faces.xyz") as caught, reading("faces.xyz"):
            raise error
        assert "\n" not in str(caught.value)
        assert caught.value.__cause__ is error

    def test_refusals_and_interruptions_pass_as_they_are(self):
        with refuses("its-own"), reading("faces.xyz"):
            raise InputError("in its own words", code="its-own")
        with pytest.raises(KeyboardInterrupt), reading("faces.xyz"):
            raise KeyboardInterrupt

    def test_what_a_name_holds_is_shown_and_not_obeyed(self):
        assert str(InputError("a\nb\x1b[31m\udcff é 漢")) == "a\\nb\\x1b[31m\\udcff é 漢"


class TestOnlyRegularFiles:
    def test_images(self, tmp_path):
        os.mkfifo(tmp_path / "pipe.jpg")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(os.path.relpath(tmp_path / "socket.jpg"))
        images = open_images(Manifest(("/dev/zero", "pipe.jpg", "socket.jpg"), [0, 0, 0], root=str(tmp_path)))
        for row in range(3):
            with refuses("file-not-regular"):
                images.read(row)

    @pytest.mark.parametrize(
        ("name", "read"),
        [
            ("a.zip", read_manifest),
            ("a.tar", read_manifest),
            ("list.txt", read_manifest),
            ("a.csv", read_manifest),
            ("a.npy", read_views),
            ("a.npz", read_views),
            ("a.parquet", read_views),
            ("a.txt", read_identities),
            ("a.bin", read_verification_pack),
            ("a.json", read_probe_list),
            ("a.toml", read_recipe),
        ],
    )
    def test_a_pipe_is_refused_instead_of_waited_for(self, tmp_path, name, read):
        os.mkfifo(tmp_path / name)
        with refuses("file-not-regular", file=tmp_path / name):
            read(tmp_path / name)


class TestCeilings:
    def test_an_entry_that_unpacks_to_more_than_its_header_says(self, tmp_path, memory):
        file = write_zip(tmp_path / "a.zip", {"x/1.png": b"\0" * 10_000_000})
        raw = bytearray(file.read_bytes())
        for mark, offset in ((b"PK\3\4", 22), (b"PK\1\2", 24)):
            at = raw.index(mark) + offset
            raw[at : at + 4] = struct.pack("<I", 100)
        file.write_bytes(raw)
        with refuses("archive-entry-checksum-differs", row=0, file=tmp_path / "a.zip", entry="x/1.png"):
            open_images(read_manifest(file)).read(0)

    def test_an_entry_that_is_too_long_for_an_image(self, tmp_path, monkeypatch):
        monkeypatch.setenv("CDP_MAX_PIXELS", "100")
        file = write_zip(tmp_path / "a.zip", {"x/1.png": b"\0" * 2_000_000})
        with refuses(
            "image-too-many-bytes",
            row=0,
            file="a.zip!x/1.png",
            source=tmp_path / "a.zip!x/1.png",
            found=2000000,
            max_pixels=100,
        ):
            open_images(read_manifest(file)).read(0)
        (tmp_path / "1.png").write_bytes(b"\0" * 2_000_000)
        images = open_images(Manifest(("1.png",), [0], root=str(tmp_path)))
        with refuses(
            "image-too-many-bytes",
            row=0,
            file="1.png",
            source=tmp_path / "1.png",
            found=2000000,
            max_pixels=100,
        ):
            images.read(0)

    def test_an_offset_far_behind_the_end_of_an_archive(self, tmp_path, memory):
        file = write_zip(tmp_path / "a.zip", {"x/1.png": picture(3)}, zipfile.ZIP_STORED)
        raw = bytearray(file.read_bytes())
        at = raw.index(b"PK\1\2") + 20
        raw[at : at + 8] = struct.pack("<II", 300_000_000, 300_000_000)
        file.write_bytes(raw)
        with refuses("archive-cut-short", row=0, file=tmp_path / "a.zip", offset=37):
            open_images(read_manifest(file)).read(0)

    def test_pixels(self, monkeypatch, recwarn):
        def blank(width: int, height: int) -> bytes:
            """A PNG that has a header and no pixels."""
            chunk = b"IHDR" + struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
            stored = struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
            return b"\x89PNG\r\n\x1a\n" + stored + picture(3)[33:]

        for width, height in ((25_000, 12_000), (60_000, 60_000)):
            with refuses("image-too-many-pixels", width=width, height=height, most=250_000_000):
                decode(blank(width, height))
        before = Image.MAX_IMAGE_PIXELS
        monkeypatch.setenv("CDP_MAX_PIXELS", "24")
        assert decode(picture(3)).shape == (4, 6, 3)
        monkeypatch.setenv("CDP_MAX_PIXELS", "23")
        with refuses("image-too-many-pixels", width=6, height=4, most=23):
            decode(picture(3))
        monkeypatch.setenv("CDP_MAX_PIXELS", "many")
        with refuses("max-pixels-not-a-number", key="CDP_MAX_PIXELS", value="many"):
            decode(picture(3))
        assert before == Image.MAX_IMAGE_PIXELS
        assert not recwarn

    @pytest.mark.parametrize(
        ("pattern", "code"),
        [
            ("x{0..9999}{0..9999}.tar", "shards-too-many"),
            ("x{a,b}{0..999999}{0..999999}{0..999999}.tar", "shards-too-many"),
            ("x{0..99999999}.tar", "shards-too-many"),
            ("x{7..3}.tar", "shard-range-wrong"),
            ("x{0.." + "9" * 5000 + "}.tar", "shard-missing"),
        ],
    )
    def test_patterns(self, pattern, code, memory):
        with refuses(code, pattern=pattern):
            shards_of(pattern)

    def test_what_a_pickle_remembers(self, tmp_path, memory):
        file = tmp_path / "lfw.bin"
        for memo in (b"r" + struct.pack("<I", 60_000_000), b"p60000000\n"):
            file.write_bytes(b"\x80\x02K\x01" + memo + b".")
            with refuses("pack-refused", file=file):
                read_verification_pack(file)

    def test_names_of_a_table(self, tmp_path, memory):
        (tmp_path / "a.csv").write_text("path,identity,identity_name\na,99999999,x\n")
        with refuses("table-identity-too-large", file=tmp_path / "a.csv", identity=99999999):
            read_table(tmp_path / "a.csv")


def with_header(header: str) -> bytes:
    text = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\1\0" + struct.pack("<H", len(text)) + text + b"\0" * 64


SHAPES = {
    "a truth value": "(True, 4)",
    "70 dimensions": f"({'1,' * 70})",
    "below zero": "(-1, 4)",
    "far too large": f"({'9' * 50}, 4)",
    "thousands of digits": f"({'9' * 5000}, 4)",
    "a fraction": "(2.0, 2)",
    "nested": f"{'(' * 300}{')' * 300}",
    "no columns, too many rows": f"({'9' * 30}, 0)",
}


class TestArrays:
    @pytest.mark.parametrize("shape", SHAPES.values(), ids=list(SHAPES))
    def test_shapes_that_are_none(self, tmp_path, shape):
        content = with_header(f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}}}")
        file = tmp_path / "a.npy"
        file.write_bytes(content)
        for read in (read_views, read_identities, lambda file: read_knn(file, Embeddings(np.eye(3)))):
            with refuses("npy-header-damaged", file=file):
                read(file)
        write_zip(tmp_path / "a.npz", {"base.npy": content})
        with refuses("npz-entry-damaged", file=tmp_path / "a.npz", entry="base"):
            read_views(tmp_path / "a.npz")

    def test_a_header_with_keys_of_bytes(self, tmp_path):
        file = tmp_path / "a.npy"
        file.write_bytes(with_header("{b'descr': '<f4', 'fortran_order': False, 'shape': (2, 2)}"))
        with refuses("npy-header-damaged", file=file):
            read_views(file)
        write_zip(tmp_path / "a.npz", {"base.npy": file.read_bytes()})
        with refuses("npz-entry-damaged", file=tmp_path / "a.npz", entry="base"):
            read_views(tmp_path / "a.npz")

    def test_what_is_in_an_archive(self, tmp_path):
        file = tmp_path / "a.npz"
        stream = io.BytesIO()
        np.save(stream, np.eye(3))
        write_zip(file, {"base.npy": stream.getvalue(), "note.txt": b"hello"})
        with refuses("npz-entry-not-an-array", file=file, entry="note.txt"):
            read_views(file)
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr("base.npy", stream.getvalue())
            with pytest.warns(UserWarning, match="Duplicate name"):
                archive.writestr("base.npy", stream.getvalue())
        with refuses("file-name-repeated", file=file, name="base", what="arrays"):
            read_views(file)

    def test_a_bare_array(self, tmp_path):
        file = tmp_path / "a.npz"
        with file.open("wb") as stream:
            np.save(stream, np.eye(3))
        with refuses("npz-is-npy", file=file):
            read_views(file)

    def test_a_zip_version_that_python_does_not_know(self, tmp_path):
        np.savez(tmp_path / "a.npz", base=np.eye(3))
        write_zip(tmp_path / "a.zip", {"x/1.png": picture(3)})
        for name, read in (("a.npz", read_views), ("a.zip", read_manifest)):
            raw = bytearray((tmp_path / name).read_bytes())
            at = raw.index(b"PK\1\2") + 6
            raw[at : at + 2] = struct.pack("<H", 99)
            (tmp_path / name).write_bytes(raw)
            with refuses("archive-packing-unknown", file=tmp_path / name):
                read(tmp_path / name)


class TestParquet:
    @pytest.mark.parametrize(
        ("column", "kind"),
        [
            (pa.array([[1], [2], [3]]), "list<element: int64>"),
            (pa.array([{"a": 1}] * 3), "struct<a: int64>"),
            (pa.array([b"\xff", b"a", b"b"]), "binary"),
        ],
    )
    def test_identities_that_are_neither_numbers_nor_names(self, tmp_path, column, kind):
        file = tmp_path / "a.parquet"
        pq.write_table(pa.table({"base": np.eye(3).tolist(), "identity": column}), file)
        with refuses("column-nested", file=file, column="identity", found=kind):
            read_views(file)
        pq.write_table(pa.table({"path": ["a", "b", "c"], "identity": column}), file)
        with refuses("column-nested", file=file, column="identity", found=kind):
            read_table(file)

    def test_identities_without_a_sign(self, tmp_path):
        file = tmp_path / "a.parquet"
        for numbers, expected in (([7, None, 8], [7, -1, 8]), ([2**63 + 5, None, 2**63 + 5], [0, -1, 0])):
            pq.write_table(
                pa.table({"base": np.eye(3).tolist(), "identity": pa.array(numbers, pa.uint64())}), file
            )
            assert read_views(file).identities.tolist() == expected

    @pytest.mark.parametrize(
        ("names", "name"),
        [
            (["base", "base"], "base"),
            (["base", "other", "other"], "other"),
        ],
    )
    def test_models_of_one_name(self, tmp_path, names, name):
        file = tmp_path / "a.parquet"
        pq.write_table(pa.Table.from_arrays([pa.array(np.eye(3).tolist())] * len(names), names), file)
        with refuses("file-name-repeated", file=file, name=name, what="columns"):
            read_views(file)

    def test_two_columns_of_identities(self, tmp_path):
        file = tmp_path / "a.parquet"
        pq.write_table(
            pa.table({"base": np.eye(3).tolist(), "identity": [1, 2, 3], "identities": [4, 5, 6]}), file
        )
        with refuses("parquet-columns-clash", file=file, columns=("identity", "identities")):
            read_views(file)


class TestText:
    def test_numbers_of_thousands_of_digits(self, tmp_path):
        digits = "9" * 5000
        (tmp_path / "a.txt").write_text(f"{digits}\n1\n")
        assert read_identities(tmp_path / "a.txt").tolist() == [1, 0]
        (tmp_path / "a.csv").write_text(f"path,identity\na,{digits}\n")
        assert read_table(tmp_path / "a.csv").names == (digits,)
        (tmp_path / "a.toml").write_text(f"seed = {digits}\n")
        with refuses("recipe-nested-too-deep", file=tmp_path / "a.toml"):
            read_recipe(tmp_path / "a.toml")
        (tmp_path / "a.json").write_text(f'{{"path": [{digits}], "id": ["a"]}}')
        with refuses("megaface-not-json", file=tmp_path / "a.json"):
            read_probe_list(tmp_path / "a.json")

    def test_nesting(self, tmp_path):
        (tmp_path / "a.toml").write_text(f"seed = {'[' * 5000}{']' * 5000}\n")
        with refuses("recipe-nested-too-deep", file=tmp_path / "a.toml"):
            read_recipe(tmp_path / "a.toml")
        (tmp_path / "a.json").write_text(f'{{"path": {"[" * 100_000}{"]" * 100_000}}}')
        with refuses("megaface-not-json", file=tmp_path / "a.json"):
            read_probe_list(tmp_path / "a.json")

    def test_long_fields(self, tmp_path):
        (tmp_path / "a.csv").write_text(f"path,identity\n{'a' * 140_000},1\n")
        with refuses("table-quote-open", file=tmp_path / "a.csv", line=2):
            read_table(tmp_path / "a.csv")
        (tmp_path / "b.csv").write_text(f"first_row,second_row,same\n{'1' * 140_000},1,1\n")
        with refuses("csv-syntax-wrong", file=tmp_path / "b.csv"):
            read_pairs(tmp_path / "b.csv", 5)

    def test_an_empty_record_file(self, tmp_path):
        (tmp_path / "a.rec").write_bytes(b"")
        (tmp_path / "a.idx").write_text("0\t0\n")
        with refuses("record-offset-impossible", file=tmp_path / "a.rec", key=0, count=1):
            read_manifest(tmp_path / "a.rec")
        (tmp_path / "a.rec").write_bytes(b"\0" * 64)
        (tmp_path / "a.idx").write_text(f"0\t{2**63 - 4}\n")
        with refuses("record-offset-impossible", file=tmp_path / "a.rec", key=0, count=1):
            read_manifest(tmp_path / "a.rec")


class TestPathsThatAreNotUtf8:
    def test_given(self, tmp_path):
        folder = Path(os.fsdecode(os.fsencode(tmp_path) + b"/a\xff"))
        folder.mkdir()
        np.save(folder / "base.npy", np.eye(3))
        (folder / "1.png").write_bytes(picture(3))
        for read in (read_views, read_manifest):
            with refuses("path-not-utf8", file=tmp_path / "a\udcff"):
                read(folder)

    def test_found(self, tmp_path):
        (tmp_path / "committee").mkdir()
        np.save(tmp_path / "base.npy", np.eye(3))
        np.save(os.fsdecode(os.fsencode(tmp_path) + b"/committee/m\xff.npy"), np.eye(3))
        with refuses("views-member-name-wrong", file=tmp_path, model="m\udcff"):
            read_views(tmp_path)
        with refuses("manifest-not-utf8", row=1):
            Manifest(("a", "b\udcff"), [0, 0])
        with refuses("manifest-not-utf8", folder="x\udcff"):
            Manifest(("a",), [0], None, "x\udcff")
        with refuses("views-paths-not-utf8", row=2, count=1):
            Views(np.eye(3), None, None, ["a", "b", "c\udcff"])
