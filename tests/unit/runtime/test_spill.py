"""Arrays in memory while there is room, else in files that are gone when nobody needs them."""

import gc

import numpy as np
from tests.refusals import refuses

from cdp.errors import StoreError
from cdp.runtime.packing import pack
from cdp.runtime.spill import SpillFiles


def is_in_file(array):
    return isinstance(array.base, np.memmap)


def test_what_has_no_room_lies_in_a_file(tmp_path):
    spill = SpillFiles(10**6, tmp_path)
    first = spill.full((100, 2000), 3, np.float32)
    second = spill.copy(first)
    assert not is_in_file(first)
    assert is_in_file(second)
    np.testing.assert_array_equal(first, second)
    second[5] = 1
    assert second[5].sum() == 2000
    assert not is_in_file(spill.empty(100, np.int8)), "not worth a file"
    del first
    assert not is_in_file(spill.empty(200_000, np.float32)), "there is room again"
    assert not is_in_file(SpillFiles().empty(10**6, np.int8)), "no bound"


def test_files_go_with_their_arrays_and_the_folder_with_the_scratch(tmp_path):
    spill = SpillFiles(0, tmp_path)
    one, other = (spill.full(10**5, number, np.int64) for number in range(2))
    assert len(list(tmp_path.glob(".cdp-spill.partial-*/*"))) == 2
    del one
    gc.collect()
    assert len(list(tmp_path.glob(".cdp-spill.partial-*/*"))) == 1
    del spill
    gc.collect()
    assert list(tmp_path.iterdir()) == []
    assert other.sum() == 10**5, "what is mapped can be read as long as it is needed"


def test_what_a_killed_process_left_is_removed(tmp_path):
    import platform

    left = tmp_path / f".cdp-spill.partial-{platform.node()}-{2**22 + 1}-00000000"
    left.mkdir()
    (left / "0").write_bytes(b"x")
    SpillFiles(0, tmp_path).empty(10**5, np.int64)
    assert not left.exists()


def test_a_finished_file_is_sent_by_name_where_others_read_it(tmp_path):
    array = np.arange(10**5)
    for is_shared in (True, False):
        spill = SpillFiles(0, tmp_path, is_shared=is_shared)
        made = spill.done(spill.copy(array))
        np.testing.assert_array_equal(made, array)
        assert (pack(made).n_bytes < 1000) == is_shared
    assert spill.done(array) is array


def test_a_folder_that_cannot_be_written_is_one_sentence(tmp_path):
    (tmp_path / "file").write_text("")
    with refuses("output-unwritable", StoreError, file=tmp_path / "file/folder"):
        SpillFiles(0, tmp_path / "file" / "folder").empty(10**5, np.int64)
