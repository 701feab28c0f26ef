"""What is sent to other processes: large arrays once, files by their names, and never what is still being written."""

import socket

import numpy as np
import pytest
from tests.refusals import refuses

from cdp.runtime.packing import pack, unpack
from cdp.types import Embeddings, Views


@pytest.fixture
def file(tmp_path):
    np.save(tmp_path / "vectors.npy", np.random.default_rng(0).normal(size=(500, 40)).astype("float32"))
    return tmp_path / "vectors.npy"


def test_an_array_comes_back_as_it_was():
    large, small = np.arange(30_000).reshape(3, 10_000), np.arange(12).reshape(3, 4)
    value = {"large": large, "small": small, "column": small[:, 1], "text": "x"}
    packed = pack(value)
    assert [buffer.nbytes for buffer in packed.buffers] == [large.nbytes]
    for copy in (False, True):
        again = unpack(packed, copy=copy)
        for name in ("large", "small", "column"):
            np.testing.assert_array_equal(again[name], value[name])
        assert again["text"] == "x"
        assert again["large"].flags.writeable is copy


@pytest.mark.parametrize("rows", [slice(None), slice(100, 300), slice(499, 500)])
def test_a_mapped_file_is_sent_by_name(file, rows):
    mapped = np.load(file, mmap_mode="r")[rows]
    packed = pack({"embeddings": Embeddings(mapped)})
    assert packed.n_bytes < 1500 + 8 * len(mapped)
    again = unpack(packed)["embeddings"]
    np.testing.assert_array_equal(again.source, mapped)
    np.testing.assert_array_equal(again.scale, Embeddings(mapped).scale)
    assert isinstance(again.source.base, np.memmap)
    assert not again.source.flags.writeable


def test_what_is_no_plain_piece_of_a_file_is_sent_itself(file):
    mapped = np.load(file, mmap_mode="r")
    for array in (mapped[:, 3], mapped[::2], mapped[[5, 2]], mapped[:0], mapped * 2):
        np.testing.assert_array_equal(unpack(pack(array)), array)


def test_a_file_that_is_written_to_is_sent_as_it_is_now(file):
    mapped = np.load(file, mmap_mode="r+")
    packed = pack(mapped[:10])
    before = mapped[:10].copy()
    again = unpack(packed, copy=True)
    mapped[:10] = 0
    np.testing.assert_array_equal(again, before)


def test_a_node_that_does_not_see_the_file_says_so(file):
    packed = pack(np.load(file, mmap_mode="r"))
    seen = f"{file}: the node {socket.gethostname()} does not see this file"
    way_out = "; keep embeddings, --cache and --out on storage that all nodes see under the same path."
    np.save(file, np.zeros((500, 40), "float32"))
    with refuses("packed-file-changed") as caught:
        unpack(packed)
    assert str(caught.value) == f"{seen}, but another file of that name{way_out}"
    file.unlink()
    with refuses("packed-file-unseen"):
        unpack(packed)


def test_views_come_back(small_views):
    again = unpack(pack(small_views))
    assert isinstance(again, Views)
    assert again.names == small_views.names
    assert again.paths == small_views.paths
