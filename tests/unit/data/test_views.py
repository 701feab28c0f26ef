from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.refusals import refuses

from cdp.data.views import read_identities, read_identity_names, read_view_identities, read_views
from cdp.runtime.runtime import Runtime
from cdp.storage.artifacts import write_card
from cdp.types import Embeddings, Views

N = 6


def vectors(dimensions: int, seed: int = 0, n: int = N) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((n, dimensions)).astype(np.float32)


def write(folder: Path, files: dict[str, object]) -> Path:
    for name, content in files.items():
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            file.write_text(content, encoding="utf-8")
        elif file.suffix == ".bin":
            file.write_bytes(np.asarray(content, "<f4").tobytes())
        else:
            np.save(file, content)
    return folder


def hashes(folder: Path) -> dict[str, str]:
    return {
        str(file): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(folder.rglob("*"))
        if file.is_file()
    }


def lies_on_disk(embeddings: Embeddings) -> bool:
    array = embeddings.source
    while isinstance(array, np.ndarray) and not isinstance(array, np.memmap):
        array = array.base
    return isinstance(array, np.memmap)


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    return write(
        tmp_path / "views",
        {
            "base.npy": vectors(4),
            "committee/zeta.npy": vectors(3, 1),
            "committee/alpha.npy": vectors(5, 2),
            "identities.npy": np.array([0, 0, 1, 1, -1, 2]),
            "paths.txt": "".join(f"image {row}.jpg\n" for row in range(N)),
        },
    )


class TestPlainFolder:
    def test_everything_is_read(self, plain: Path) -> None:
        views = read_views(plain)
        np.testing.assert_array_equal(views.base.source, vectors(4))
        assert list(views.committee) == ["alpha", "zeta"]
        np.testing.assert_array_equal(views.committee["alpha"].source, vectors(5, 2))
        np.testing.assert_array_equal(views.committee["zeta"].source, vectors(3, 1))
        assert views.identities is not None
        assert views.identities.tolist() == [0, 0, 1, 1, -1, 2]
        assert views.paths == tuple(f"image {row}.jpg" for row in range(N))

    def test_arrays_stay_on_disk_and_files_unchanged(self, plain: Path) -> None:
        before = hashes(plain)
        views = read_views(str(plain))
        for model in views:
            assert lies_on_disk(model)
            assert not model.source.flags.writeable
        assert hashes(plain) == before

    def test_base_alone_is_enough(self, tmp_path: Path) -> None:
        views = read_views(write(tmp_path, {"base.npy": vectors(4)}))
        assert views.names == ("base",)
        assert views.identities is None
        assert views.paths is None

    @pytest.mark.parametrize("dtype", ["<f2", "<f4", "<f8"])
    @pytest.mark.parametrize("order", ["C", "F"])
    def test_number_formats(self, tmp_path: Path, dtype: str, order: str) -> None:
        given = np.asarray(vectors(4), dtype=dtype, order=order)
        views = read_views(write(tmp_path, {"base.npy": given}))
        np.testing.assert_array_equal(views.base.source, given)

    @pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
    def test_all_npy_versions(self, tmp_path: Path, version: tuple[int, int]) -> None:
        with (tmp_path / "base.npy").open("wb") as stream:
            np.lib.format.write_array(stream, vectors(4), version=version)
        np.testing.assert_array_equal(read_views(tmp_path).base.source, vectors(4))

    @pytest.mark.parametrize(
        ("text", "expected"),
        [
            ("3\n3\n5\n5\n-1\n7\n", [3, 3, 5, 5, -1, 7]),
            ("3\r\n3\r\n5\r\n5\r\n-1\r\n7\r\n\r\n", [3, 3, 5, 5, -1, 7]),
            ("Ann\nAnn\nBob\nBob\n-1\nCy", [1, 1, 2, 2, -1, 3]),
            ("1_23\n12_3\n1_23\n12_3\n1_23\n12_3\n", [1, 0, 1, 0, 1, 0]),
        ],
    )
    @pytest.mark.parametrize("name", ["identities.txt", "meta.txt"])
    def test_identities_as_text(self, tmp_path: Path, name: str, text: str, expected: list[int]) -> None:
        views = read_views(write(tmp_path, {"base.npy": vectors(4), name: text}))
        assert views.identities is not None
        codes = np.unique(views.identities, return_inverse=True)[1]
        np.testing.assert_array_equal(codes, np.unique(expected, return_inverse=True)[1])
        np.testing.assert_array_equal(views.identities == -1, np.array(expected) == -1)

    def test_identities_as_column_or_names(self, tmp_path: Path) -> None:
        write(tmp_path, {"base.npy": vectors(4), "identities.npy": np.arange(N)[:, None]})
        assert read_views(tmp_path).identities.tolist() == list(range(N))
        write(tmp_path, {"identities.npy": np.array(list("aabbcc"))})
        assert read_views(tmp_path).identities.tolist() == [0, 0, 1, 1, 2, 2]

    def test_bin_members_take_their_rows_from_the_base(self, plain: Path) -> None:
        write(plain, {"committee/raw.bin": vectors(7, 3)})
        views = read_views(plain)
        assert list(views.committee) == ["alpha", "raw", "zeta"]
        np.testing.assert_array_equal(views.committee["raw"].source, vectors(7, 3))
        assert lies_on_disk(views.committee["raw"])

    def test_bin_base_takes_its_rows_from_meta(self, tmp_path: Path) -> None:
        write(tmp_path, {"base.bin": vectors(4), "committee/c.bin": vectors(3), "meta.txt": "0\n" * N})
        views = read_views(tmp_path)
        np.testing.assert_array_equal(views.base.source, vectors(4))
        np.testing.assert_array_equal(views.committee["c"].source, vectors(3))

    def test_hidden_files_are_no_members(self, plain: Path) -> None:
        (plain / "committee" / "._alpha.npy").write_bytes(b"left by a file manager")
        assert list(read_views(plain).committee) == ["alpha", "zeta"]


class TestStoreFolder:
    def test_card_gives_the_order(self, plain: Path) -> None:
        write_card(plain, "Views", "", {"committee": ["zeta", "alpha"]}, {})
        assert list(read_views(plain).committee) == ["zeta", "alpha"]

    @pytest.mark.parametrize("settings", [{}, {"committee": ["zeta"]}])
    def test_members_the_card_does_not_know_follow(self, plain: Path, settings: dict[str, object]) -> None:
        write_card(plain, "Views", "", settings, {})
        expected = ["zeta", "alpha"] if settings else ["alpha", "zeta"]
        assert list(read_views(plain).committee) == expected

    def test_save_then_read_is_identity(self, tmp_path: Path) -> None:
        views = Views(
            vectors(4),
            {"z": vectors(3, 1), "a": vectors(5, 2)},
            [5, 5, -1, 2, 2, 2],
            ["a", "b\rb", "ü", "", "e", ""],
        )
        views.save(tmp_path / "saved")
        again = read_views(tmp_path / "saved")
        assert again.names == views.names
        for ours, theirs in zip(views, again, strict=True):
            np.testing.assert_array_equal(ours.source, theirs.source)
        np.testing.assert_array_equal(again.identities, views.identities)
        assert again.paths == views.paths

    def test_card_errors(self, plain: Path) -> None:
        card = plain / "card.json"
        write_card(plain, "Views", "", {"committee": ["gone"]}, {})
        with refuses("views-member-missing", file=plain / "card.json", model="gone"):
            read_views(plain)
        card.write_text("{")
        with refuses("views-card-damaged", file=plain / "card.json"):
            read_views(plain)
        card.write_text("[1]")
        with refuses("views-card-damaged", file=plain / "card.json"):
            read_views(plain)
        write_card(plain, "Views", "", {"committee": "zeta"}, {})
        with refuses("views-card-damaged", file=plain / "card.json"):
            read_views(plain)
        write_card(plain, "Labels", "", {}, {})
        with refuses("artifact-kind-differs", folder=plain, expected="Views", found="Labels"):
            read_views(plain)
        card.unlink()
        card.symlink_to(card)
        with refuses("views-card-damaged", file=plain / "card.json"):
            read_views(plain)


class TestFeaturesFolder:
    def test_authors_layout(self, tmp_path: Path) -> None:
        write(
            tmp_path,
            {
                "features/base.bin": vectors(4),
                "features/resnet.bin": vectors(8, 1),
                "meta.txt": "4\n4\n2\n2\n0\n0\n",
                "list.txt": "".join(f"faces/{row}.jpg\n" for row in range(N)),
            },
        )
        views = read_views(tmp_path)
        assert views.names == ("base", "resnet")
        np.testing.assert_array_equal(views.base.source, vectors(4))
        np.testing.assert_array_equal(views.committee["resnet"].source, vectors(8, 1))
        assert lies_on_disk(views.base)
        assert views.identities.tolist() == [4, 4, 2, 2, 0, 0]
        assert views.paths[5] == "faces/5.jpg"

    def test_base_is_chosen_by_name(self, tmp_path: Path) -> None:
        write(
            tmp_path, {"features/b.bin": vectors(4), "features/a.bin": vectors(8, 1), "list.txt": "x\n" * N}
        )
        views = read_views(tmp_path, base="b")
        assert views.names == ("base", "a")
        assert views.base.dimensions == 4
        with refuses("views-base-unclear", file=tmp_path / "features"):
            read_views(tmp_path)
        with refuses("views-model-unknown", file=tmp_path / "features", model="c"):
            read_views(tmp_path, base="c")

    def test_learn_to_cluster_parts_are_not_a_committee(self, tmp_path: Path) -> None:
        write(
            tmp_path,
            {
                "features/part0.bin": vectors(4),
                "features/part1.bin": vectors(4, n=9),
                "labels/part0.meta": "1\n" * N,
                "labels/part1.meta": "2\n" * 9,
            },
        )
        views = read_views(tmp_path, base="part1")
        assert views.names == ("base",)
        assert views.n_images == 9
        assert views.identities.tolist() == [2] * 9

    def test_dim_instead_of_a_list(self, tmp_path: Path) -> None:
        write(tmp_path, {"features/only.bin": vectors(4)})
        assert read_views(tmp_path, dim=4).base.source.shape == (N, 4)
        with refuses("bin-dim-unknown", file=tmp_path / "features/only.bin"):
            read_views(tmp_path)

    @pytest.mark.parametrize("beside", [{}, {"meta.txt": "1\n" * N}, {"list.txt": "x\n" * N}])
    @pytest.mark.parametrize("place", ["x.bin", "features/x.bin"])
    def test_single_file(self, tmp_path: Path, place: str, beside: dict[str, object]) -> None:
        write(tmp_path, {place: vectors(4), **beside})
        views = read_views(tmp_path / place, dim=None if beside else 4)
        np.testing.assert_array_equal(views.base.source, vectors(4))
        assert (views.identities is not None) == ("meta.txt" in beside)
        assert (views.paths is not None) == ("list.txt" in beside)

    def test_sizes_that_do_not_fit(self, tmp_path: Path) -> None:
        file = tmp_path / "x.bin"
        file.write_bytes(vectors(4).tobytes()[:-2])
        with refuses("bin-size-not-whole-rows", file=file, found=94, dim=4):
            read_views(file, dim=4)
        write(tmp_path, {"meta.txt": "1\n" * N})
        with refuses("bin-size-not-divisible", file=file, found=94, rows=6):
            read_views(file)
        write(tmp_path, {"x.bin": vectors(4)})
        with refuses("bin-rows-differ", file=file, expected=6, found=12, dim=2):
            read_views(file, dim=2)
        with refuses("views-dim-wrong", file=file, value=0):
            read_views(file, dim=0)
        file.write_bytes(b"")
        with refuses("file-empty", file=file):
            read_views(file)


class TestNpz:
    @pytest.mark.parametrize(
        "names", [("committee/c", "committee/a"), ("committee_c", "committee_a"), ("c", "a")]
    )
    def test_round_trip(self, tmp_path: Path, names: tuple[str, str]) -> None:
        file = tmp_path / "views.npz"
        arrays = {names[0]: vectors(3, 1), "base": vectors(4), names[1]: vectors(5, 2)}
        np.savez(
            file,
            identities=np.array(["x", "x", "y", "y", "-1", "z"]),
            paths=np.array(list("abcdef")),
            **arrays,
        )
        views = read_views(file)
        assert views.names == ("base", "c", "a")
        np.testing.assert_array_equal(views.base.source, vectors(4))
        np.testing.assert_array_equal(views.committee["a"].source, vectors(5, 2))
        assert views.identities.tolist() == [0, 0, 1, 1, -1, 2]
        assert views.paths == tuple("abcdef")

    def test_other_arrays_are_left_alone(self, tmp_path: Path) -> None:
        np.savez_compressed(
            tmp_path / "v.npz", base=vectors(4), scores=np.ones(N), counts=np.ones((N, 2), int)
        )
        assert read_views(tmp_path / "v.npz").names == ("base",)

    def test_which_is_the_base(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "v.npz", a=vectors(4), b=vectors(3))
        with refuses("views-base-unclear", file=tmp_path / "v.npz"):
            read_views(tmp_path / "v.npz")
        assert read_views(tmp_path / "v.npz", base="b").names == ("base", "a")

    def test_errors(self, tmp_path: Path) -> None:
        file = tmp_path / "v.npz"
        np.savez(file, base=vectors(40, n=100))
        whole = file.read_bytes()
        file.write_bytes(whole[: len(whole) // 2])
        with refuses("npz-damaged", file=file):
            read_views(file)
        damaged = bytearray(whole)
        damaged[len(whole) // 2] ^= 255
        file.write_bytes(damaged)
        with refuses("npz-entry-damaged", file=file, entry="base"):
            read_views(file)
        file.write_bytes(b"no zip at all")
        with refuses("npz-damaged", file=file):
            read_views(file)
        file.write_bytes(b"")
        with refuses("file-empty", file=file):
            read_views(file)
        np.savez(file)
        with refuses("npz-empty", file=file):
            read_views(file)
        with file.open("wb") as stream:
            np.save(stream, vectors(4))
        with refuses("npz-is-npy", file=file):
            read_views(file)
        np.savez(file, scores=np.ones(N))
        with refuses("npz-embeddings-missing", file=file, found=("scores",)):
            read_views(file)
        np.savez(file, base=vectors(4), **{"committee/a": vectors(4), "committee_a": vectors(4)})
        with refuses("file-name-repeated", file=file, name="a", what="arrays"):
            read_views(file)

    def test_objects_are_refused(self, tmp_path: Path) -> None:
        np.savez(tmp_path / "v.npz", base=np.array([[1.0], None], object))
        with refuses("array-pickled", file=tmp_path / "v.npz", entry="base"):
            read_views(tmp_path / "v.npz")


class TestParquet:
    def test_round_trip(self, tmp_path: Path) -> None:
        file = tmp_path / "v.parquet"
        n = 20_000
        base, other = vectors(3, n=n), vectors(2, 1, n).astype(np.float64)
        table = {
            "path": [f"{row}.jpg" for row in range(n)],
            "wide": list(other),
            "identity": pa.array([None, *range(1, n)], pa.int32()),
            "base": pa.FixedSizeListArray.from_arrays(base.ravel(), 3),
        }
        pq.write_table(pa.table(table), file, row_group_size=7_000)
        views = read_views(file)
        assert views.names == ("base", "wide")
        assert views.base.source.dtype == np.float32
        np.testing.assert_array_equal(views.base.source, base)
        np.testing.assert_array_equal(views.committee["wide"].source, other)
        assert views.identities.tolist() == [-1, *range(1, n)]
        assert views.paths[-1] == f"{n - 1}.jpg"

    def test_names_as_identities(self, tmp_path: Path) -> None:
        names = pa.array(["Ann", "Bob", None]).dictionary_encode()
        pq.write_table(pa.table({"base": list(vectors(2, n=3)), "identities": names}), tmp_path / "v.parquet")
        identities = read_views(tmp_path / "v.parquet").identities
        assert identities[2] == -1
        assert len(set(identities.tolist())) == 3

    @pytest.mark.parametrize("odd", [None, [], [1.0, 2.0], [1.0, 2.0, 3.0, 4.0]])
    @pytest.mark.parametrize("row", [0, 4])
    def test_ragged_rows_are_named(self, tmp_path: Path, odd: list[float] | None, row: int) -> None:
        rows: list[list[float] | None] = [[1.0, 2.0, 3.0]] * N
        rows[row] = odd
        pq.write_table(pa.table({"base": pa.array(rows, pa.list_(pa.float32()))}), tmp_path / "v.parquet")
        with refuses(
            "parquet-row-length-differs",
            file=tmp_path / "v.parquet",
            row=row,
            column="base",
            expected=3,
            found=len(odd or []),
        ):
            read_views(tmp_path / "v.parquet")

    def test_missing_value_is_named(self, tmp_path: Path) -> None:
        pq.write_table(pa.table({"base": [[1.0, 2.0], [1.0, None]]}), tmp_path / "v.parquet")
        with refuses("embeddings-not-finite", file=tmp_path / "v.parquet", model="base", row=1, count=1):
            read_views(tmp_path / "v.parquet")

    def test_errors(self, tmp_path: Path) -> None:
        file = tmp_path / "v.parquet"
        pq.write_table(pa.table({"base": list(vectors(50, n=200))}), file)
        whole = file.read_bytes()
        for damaged in (whole[: len(whole) // 2], b"PAR1 this is not PAR1"):
            file.write_bytes(damaged)
            with refuses("parquet-damaged", file=file):
                read_views(file)
        file.write_bytes(whole[:100] + whole[200:])
        with refuses("parquet-contents-damaged", file=file):
            read_views(file)
        file.write_bytes(b"")
        with refuses("file-empty", file=file):
            read_views(file)
        pq.write_table(pa.table({"a": [1], "b": ["x"]}), file)
        with refuses("parquet-embeddings-missing", file=file, columns=("a", "b")):
            read_views(file)
        pq.write_table(pa.table({"base": [[1, 2]], "c": [[1.0, 2.0]]}), file)
        with refuses("parquet-embeddings-missing", file=file, columns=("base", "c")):
            read_views(file)
        pq.write_table(pa.table({"a": [[1.0]], "b": [[2.0]]}), file)
        with refuses("views-base-unclear", file=file):
            read_views(file)
        pq.write_table(pa.table({"base": pa.array([], pa.list_(pa.float32()))}), file)
        with refuses("parquet-empty", file=file):
            read_views(file)


class TestErrors:
    def test_single_npy_is_a_base(self, tmp_path: Path) -> None:
        write(tmp_path, {"x.npy": vectors(4), "identities.npy": np.arange(N)})
        views = read_views(tmp_path / "x.npy")
        assert views.names == ("base",)
        assert views.identities is None
        assert lies_on_disk(views.base)

    def test_missing_and_unknown(self, tmp_path: Path) -> None:
        with refuses("path-missing", file=tmp_path / "nothing"):
            read_views(tmp_path / "nothing")
        (tmp_path / "x.pkl").write_bytes(b"x")
        with refuses("views-kind-unknown", file=tmp_path / "x.pkl"):
            read_views(tmp_path / "x.pkl")

    def test_folder_without_base(self, tmp_path: Path) -> None:
        write(tmp_path, {"one.npy": vectors(4), "two.npy": vectors(4)})
        with refuses("views-base-missing", folder=tmp_path):
            read_views(tmp_path)
        (tmp_path / "empty").mkdir()
        with refuses("views-base-missing", folder=tmp_path / "empty"):
            read_views(tmp_path / "empty")

    def test_base_twice(self, plain: Path) -> None:
        write(plain, {"base.bin": vectors(4)})
        with refuses("views-model-twice", folder=plain, files=("base.bin", "base.npy")):
            read_views(plain)
        (plain / "base.bin").unlink()
        with refuses("views-base-given-twice", folder=plain, model="alpha"):
            read_views(plain, base="alpha")
        with refuses("views-dim-differs", file=plain, expected=4, value=5):
            read_views(plain, dim=5)
        assert read_views(plain, dim=4, base="base").base.dimensions == 4

    @pytest.mark.parametrize("name", ["base.npy", "committee/zeta.npy", "identities.npy"])
    def test_npy_damage(self, plain: Path, name: str) -> None:
        whole = (plain / name).read_bytes()
        (plain / name).write_bytes(whole[:-4])
        with refuses("npy-cut-short", file=plain / name, expected=len(whole) - 128, found=len(whole) - 132):
            read_views(plain)
        for damaged in (whole[:40], b"PK\x03\x04" + whole, b"\x80\x04N.", whole[:10] + b"{(" + whole[12:]):
            (plain / name).write_bytes(damaged)
            with refuses("npy-header-damaged", file=plain / name):
                read_views(plain)
        (plain / name).write_bytes(b"")
        with refuses("file-empty", file=plain / name):
            read_views(plain)
        np.save(plain / name, np.empty((0, 4), np.float32))
        with refuses("npy-empty", file=plain / name, shape=(0, 4)):
            read_views(plain)

    def test_objects_are_never_unpickled(self, plain: Path, tmp_path: Path) -> None:
        class Trap:
            def __reduce__(self) -> tuple[object, ...]:
                return (Path.touch, (tmp_path / "sprung",))

        np.save(plain / "base.npy", np.array([Trap()], object), allow_pickle=True)
        with refuses("array-pickled", file=plain / "base.npy"):
            read_views(plain)
        write(plain, {"base.npy": vectors(4)})
        np.save(plain / "identities.npy", np.array(["a", 1], object), allow_pickle=True)
        with refuses("array-pickled", file=plain / "identities.npy"):
            read_views(plain)
        assert not (tmp_path / "sprung").exists()

    def test_counts(self, plain: Path) -> None:
        write(plain, {"paths.txt": "a\nb\n"})
        with refuses("views-rows-differ", file=plain / "paths.txt", expected=6, found=2):
            read_views(plain)
        write(plain, {"identities.npy": np.arange(5)})
        with refuses("views-rows-differ", file=plain / "identities.npy", expected=6, found=5):
            read_views(plain)
        (plain / "identities.npy").unlink()
        (plain / "paths.txt").unlink()
        write(plain, {"committee/zeta.npy": vectors(3, n=5)})
        with refuses("views-rows-differ", file=plain, model="zeta", expected=6, found=5):
            read_views(plain)

    def test_texts(self, plain: Path) -> None:
        (plain / "identities.npy").unlink()
        write(plain, {"identities.txt": "1\n2\n\n4\n5\n6\n"})
        with refuses("identities-line-blank", file=plain / "identities.txt", line=3):
            read_views(plain)
        write(plain, {"identities.txt": "1\n" * 5 + f"{2**64}\n"})
        assert read_views(plain).identities.tolist() == [0] * 5 + [1], "too long a number is a name"
        write(plain, {"identities.txt": ""})
        with refuses("lines-empty", file=plain / "identities.txt"):
            read_views(plain)
        (plain / "identities.txt").write_bytes(b"\xff\xfe1\n")
        with refuses("text-not-utf8", file=plain / "identities.txt"):
            read_views(plain)
        (plain / "identities.txt").unlink()
        np.save(plain / "identities.npy", np.int64(3))
        with refuses("identities-single-value", file=plain / "identities.npy"):
            read_views(plain)

    def test_bad_rows_name_place_and_row(self, plain: Path) -> None:
        bad = vectors(3, 1)
        bad[2, 1] = np.nan
        write(plain, {"committee/zeta.npy": bad})
        with refuses("embeddings-not-finite", file=plain, model="zeta", row=2, count=1):
            read_views(plain)
        write(plain, {"base.npy": vectors(4)[0]})
        with refuses("embeddings-not-a-table", file=plain, model="base", found=(4,)):
            read_views(plain)
        write(plain, {"base.npy": np.float32(1)})
        with refuses("embeddings-not-a-table", file=plain, model="base", found=()):
            read_views(plain)
        write(plain, {"base.npy": np.ones((N, 4), int)})
        with refuses("embeddings-not-floats", file=plain, model="base", found="int64"):
            read_views(plain)

    def test_what_the_system_says(self, plain: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        answers = {
            "file-not-permitted": PermissionError(13, "Permission denied", "base.npy"),
            "file-unreadable": OSError(5, "Input/output error", "base.npy"),
        }
        for code, answer in answers.items():

            def fail(self: Path, *_: object, answer: OSError = answer) -> None:
                raise answer

            with monkeypatch.context() as patch:
                patch.setattr(Path, "open", fail)
                with refuses(code, file="base.npy"):
                    read_views(plain)
        with monkeypatch.context() as patch:
            patch.setattr(np, "load", lambda *_, **__: (_ for _ in ()).throw(MemoryError))
            np.savez(plain / "v.npz", base=vectors(4))
            with refuses("file-exceeds-memory", file=plain / "v.npz"):
                read_views(plain / "v.npz")

    def test_identities_alone(self, plain: Path) -> None:
        assert read_identities(plain / "identities.npy").tolist() == [0, 0, 1, 1, -1, 2]
        with refuses("file-unreadable", file=plain / "gone.txt"):
            read_identities(plain / "gone.txt")

    def test_numbers_written_as_text_are_the_same_numbers_in_every_layout(self, tmp_path: Path) -> None:
        base, texts = np.eye(3, dtype=np.float32), ["10", "9", "-1"]
        np.savez(tmp_path / "views.npz", base=base, identities=np.array(texts))
        table = {"base": list(base), "identity": texts}
        pq.write_table(pa.table(table), tmp_path / "views.parquet")
        write(tmp_path / "views", {"base.npy": base, "identities.npy": np.array(texts)})
        for name in ("views.npz", "views.parquet", "views"):
            assert read_views(tmp_path / name).identities.tolist() == [10, 9, -1]
            assert read_identity_names(tmp_path / name) is None

    def test_names_can_be_compared_between_files(self, tmp_path: Path) -> None:
        base = np.eye(2, dtype=np.float32)
        np.savez(tmp_path / "one.npz", base=base, identities=np.array(["eve", "bob"]))
        write(tmp_path / "two", {"base.npy": base, "meta.txt": "bob\nann\n"})
        assert read_identity_names(tmp_path / "one.npz").tolist() == ["eve", "bob"]
        assert read_identity_names(tmp_path / "two").tolist() == ["bob", "ann"]
        assert read_identity_names(tmp_path / "two" / "meta.txt").tolist() == ["bob", "ann"]

    def test_views_load_reads_the_same(self, plain: Path) -> None:
        assert repr(Views.load(plain)) == repr(read_views(plain))
        with refuses("path-missing", file=plain / "gone"):
            Views.load(plain / "gone")


@pytest.mark.parametrize("identities", [None, [4, -1, 4], ["Anna", "Bob", "Anna"]])
def test_identities_are_read_without_embeddings(tmp_path, identities):
    source = np.array([[1.0, 0.0], [np.nan, 1.0], [1.0, 1.0]], np.float32)
    np.save(tmp_path / "base.npy", source)
    if identities is not None:
        np.save(tmp_path / "identities.npy", identities)
    found = read_view_identities(tmp_path)
    np.save(tmp_path / "base.npy", np.nan_to_num(source))
    expected = read_views(tmp_path).identities
    assert (found is None) == (expected is None)
    np.testing.assert_array_equal(found, expected)


def test_large_tables_are_measured_in_tasks(tmp_path, monkeypatch):
    monkeypatch.setattr("cdp.data.views._MEASURED_IN_TASKS", 0)
    monkeypatch.setattr("cdp.data.views._ROWS_PER_BLOCK", 7)
    rows = np.random.default_rng(0).normal(size=(40, 5))
    np.savez(tmp_path / "views.npz", base=rows, sface=rows.astype(np.float16))
    whole, in_tasks = (read_views(tmp_path / "views.npz", runtime=runtime) for runtime in (None, Runtime()))
    for one, other in zip(whole, in_tasks, strict=True):
        np.testing.assert_array_equal(one.scale, other.scale)
        np.testing.assert_array_equal(one.vectors, other.vectors)
    rows[33] = 0
    np.savez(tmp_path / "views.npz", base=rows)
    with refuses("embeddings-zero-length", row=33):
        read_views(tmp_path / "views.npz", runtime=Runtime())
