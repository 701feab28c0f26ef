"""The journal of corrections, and corrections as tables."""

import json
import threading

import pytest
from tests.refusals import refuses

from cdp.collection.correction_tables import read_correction_table, write_correction_table
from cdp.collection.corrections import (
    JOURNAL,
    Correction,
    append_corrections,
    different,
    named,
    read_corrections,
    read_journal,
    rejected,
    same,
    split_group,
    to_constraints,
    undo_corrections,
)
from cdp.errors import InputError, StoreError


def test_a_journal_comes_back_as_it_was_written(tmp_path):
    assert read_corrections(tmp_path) == []
    assert append_corrections(tmp_path, [same(3, 7), named("Anna", 3)], source="review") == [0, 1]
    assert append_corrections(tmp_path, [rejected(5)]) == [2]
    found = read_corrections(tmp_path)
    assert [(one.id, one.kind, one.images, one.name, one.source) for one in found] == [
        (0, "same", (3, 7), "", "review"),
        (1, "name", (3,), "Anna", "review"),
        (2, "reject", (5,), "", ""),
    ]
    assert all(one.when.endswith("+00:00") for one in found)


def test_to_undo_is_an_entry_that_can_be_undone(tmp_path):
    append_corrections(tmp_path, [same(3, 7), rejected(5)])
    assert undo_corrections(tmp_path, [0]) == [2]
    assert [one.id for one in read_corrections(tmp_path)] == [1]
    undo_corrections(tmp_path, [2])
    assert [one.id for one in read_corrections(tmp_path)] == [0, 1]
    assert [one.kind for one in read_journal(tmp_path)] == ["same", "reject", "undo", "undo"]
    with refuses("correction-to-undo-unknown", value=9, found=4):
        undo_corrections(tmp_path, [9])


def test_half_a_line_of_a_killed_writer_is_not_read_and_written_over(tmp_path):
    append_corrections(tmp_path, [same(3, 7)])
    with (tmp_path / JOURNAL).open("ab") as file:
        file.write(b'{"kind":"reject","ima')
    with pytest.warns(UserWarning, match=r"corrections\.jsonl: the last line was cut off"):
        assert len(read_corrections(tmp_path)) == 1
    assert append_corrections(tmp_path, [rejected(5)]) == [1]
    assert [one.kind for one in read_corrections(tmp_path)] == ["same", "reject"]
    lines = (tmp_path / JOURNAL).read_text().splitlines()
    assert [json.loads(line)["kind"] for line in lines] == ["same", "reject"]


def test_writers_at_once_lose_nothing(tmp_path):
    def write(number):
        for image in range(20):
            append_corrections(tmp_path, [rejected(20 * number + image)])

    writers = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    found = read_corrections(tmp_path)
    assert [one.id for one in found] == list(range(80))
    assert sorted(one.images[0] for one in found) == list(range(80))


def test_a_damaged_line_is_named(tmp_path):
    (tmp_path / JOURNAL).write_text('{"kind":"reject","images":[1],"id":0}\n{"kind":"nonsense"}\n')
    with refuses("corrections-line-damaged", StoreError, line=2):
        read_journal(tmp_path)


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        ({"kind": "same", "images": (1,)}, "A correction 'same' needs 2 images or more, by row; got [1]."),
        ({"kind": "reject"}, "A correction 'reject' needs 1 images or more, by row; got []."),
        (
            {"kind": "different", "images": (1, 1)},
            "A correction says that an image differs from itself: [1, 1].",
        ),
        ({"kind": "name", "images": (1,), "name": " "}, "A name must be printable text, got ' '."),
        ({"kind": "name", "images": (1,), "name": "a\nb"}, "A name must be printable text, got 'a\\nb'."),
    ],
)
def test_what_is_wrong_with_a_correction_is_said(wrong, sentence):
    with pytest.raises(InputError) as error:
        Correction(**wrong)
    assert str(error.value) == sentence.replace("\n", "\\n")


def test_the_last_name_or_rejection_of_an_image_counts():
    said = [named("Anna", 1, 2), rejected(1), named("Bert", 2), rejected(3), named("Carl", 3)]
    found = to_constraints(said, 5)
    assert dict(found.named) == {2: "Bert", 3: "Carl"}
    assert found.rejected.tolist() == [1]


def test_a_split_keeps_both_parts_and_puts_them_apart():
    found = to_constraints(split_group([1, 2, 3], [4, 5]), 6)
    assert found.must.tolist() == [[1, 2], [2, 3], [4, 5]]
    assert found.cannot.tolist() == [[1, 4]]


@pytest.mark.parametrize("ending", ["csv", "parquet"])
@pytest.mark.parametrize("paths", [None, ["a,b.jpg", "c.jpg", 'd".jpg', "e.jpg"]])
def test_tables_come_back(tmp_path, ending, paths):
    said = [same(0, 1, 2), different(0, 3), named("Anna, B.", 1), rejected(2)]
    file = tmp_path / f"table.{ending}"
    write_correction_table(said, file, paths)
    found = to_constraints(read_correction_table(file, 4, paths), 4)
    wanted = to_constraints(said, 4)
    assert found.must.tolist() == wanted.must.tolist()
    assert found.cannot.tolist() == wanted.cannot.tolist()
    assert found.named == wanted.named
    assert found.rejected.tolist() == wanted.rejected.tolist()


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "kind,image\nsame,1\n",
            "a table of corrections has the column kind, and path or row; the columns are kind, image.",
        ),
        ("kind,row,other_row\nsame,1,\n", "line 2 names too few images."),
        ("kind,row\nreject,1\nreject,9\n", "line 3 names row '9'; rows are 0 to 3."),
        ("kind,row\nlike,1\n", "line 2 has the kind 'like'; it is one of same, different, name, reject."),
        ("kind,row,name\nname,1,\n", "line 2 gives no name."),
        ("kind,path\nreject,z.jpg\n", "line 2 names 'z.jpg', which is not one of the images."),
        (
            "kind,path\nreject,b.jpg\n",
            "line 2 names 'b.jpg', and several images have this path; name them by row.",
        ),
    ],
)
def test_what_is_wrong_with_a_table_is_said(tmp_path, text, sentence):
    file = tmp_path / "table.csv"
    file.write_text(text)
    with pytest.raises(InputError) as error:
        read_correction_table(file, 4, ["a.jpg", "b.jpg", "b.jpg", "c.jpg"])
    assert str(error.value) in (f"{file}: {sentence}", f"{file} {sentence}")
