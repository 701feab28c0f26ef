"""Files of a collection that were cut off, damaged or written by others: rebuilt, left out with a note, or named."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.refusals import refuses
from tests.review_collection import make_collection

from cdp.collection.collection import open_collection
from cdp.collection.correction_tables import read_correction_table, read_name_table
from cdp.collection.corrections import (
    JOURNAL,
    append_corrections,
    append_rest,
    named,
    read_journal,
    rejected,
    same,
    undo_corrections,
)
from cdp.collection.outputs import refresh_outputs
from cdp.collection.regrouping import regroup
from cdp.collection.scored_files import read_measured
from cdp.errors import InputError, StoreError
from cdp.storage.array_files import hash_contents
from cdp.web.collection_faces import read_collection_faces

NAMES, EVENTS, TABLE = "groups/0003/names.json", "events/0003.jsonl", "labels.csv"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A collection with a name, regrouped once; no test may change it."""
    folder = tmp_path_factory.mktemp("made") / "faces"
    make_collection(folder)
    append_corrections(folder, [named("Anna", 0, 1), rejected(47)])
    regroup(open_collection(folder))
    return folder


@pytest.fixture
def faces(made, tmp_path):
    """A copy to be damaged."""
    folder = tmp_path / "faces"
    shutil.copytree(made, folder)
    return folder


def change_card(card, change):
    content = json.loads(card.read_text())
    change(content["settings"])
    card.write_text(json.dumps(content))


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"\xff\0", b"[1]", b'{"0": 3}', b'{"99": {"name": "x"}}', None]
)
def test_names_are_found_again_in_the_corrections(faces, made, damage):
    file = faces / NAMES
    file.unlink() if damage is None else file.write_bytes(damage)
    with pytest.warns(UserWarning, match=r"names\.json.* restored"):
        names = open_collection(faces).names
    assert names == open_collection(made).names
    assert set(names.values()) == {"Anna"}
    assert file.read_bytes() == (made / NAMES).read_bytes()


def test_damaged_events_are_left_out_with_a_note(faces):
    file = faces / EVENTS
    whole = open_collection(faces).events
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b'{"kind": 7}\n' + b"".join(lines[1:]) + b'{"kind":"mer')
    (faces / "events" / "0003 (conflicted copy).jsonl").write_bytes(file.read_bytes())
    with pytest.warns(UserWarning, match="left out|skipped") as told:
        found = open_collection(faces).events
    assert found == [one for one in whole if one != whole[-len(lines)]]
    assert {"1 of" in str(one.message) for one in told} == {True, False}


def test_an_unknown_setting_in_a_card_is_named(faces):
    change_card(faces / "card.json", lambda settings: settings["consensus"].update(tresholds=3))
    with refuses("card-setting-unknown", file=faces / "card.json", key="tresholds"):
        open_collection(faces)


@pytest.mark.parametrize(
    ("key", "value"),
    [("batches", []), ("batches", [1, 1]), ("next_identity", 2**70), ("seed", -1), ("groups", -2)],
)
def test_a_state_that_cannot_be_is_refused(faces, key, value):
    change_card(faces / "card.json", lambda settings: settings.update({key: value}))
    with pytest.raises(StoreError) as error:
        open_collection(faces).batches  # noqa: B018
    assert "card.json" in str(error.value)


@pytest.mark.parametrize("path", ["a" * 300, "ab/" * 2000])
@pytest.mark.parametrize("key", ["near", "images_near"])
def test_a_path_that_cannot_be_is_named_with_its_card(faces, key, path):
    card = faces / "embeddings" / "0001" / "card.json"
    change_card(card, lambda settings: settings.update({key: path, key.replace("near", "far"): ""}))
    with refuses("card-path-impossible", StoreError, file=card):
        read_collection_faces(open_collection(faces))
        open_collection(faces).batches[0].read()


def test_an_unknown_setting_in_the_card_of_a_batch_is_named(faces):
    card = faces / "embeddings" / "0001" / "card.json"
    change_card(card, lambda settings: settings.update(how={"dims": 3}))
    with refuses("card-settings-damaged", StoreError, file=card):
        open_collection(faces).batches  # noqa: B018


@pytest.mark.parametrize("name", [TABLE, "labels.parquet", "report.html", "metrics.json", "split_groups.csv"])
def test_what_people_read_is_written_again_when_it_is_damaged(faces, name):
    refresh_outputs(faces)
    before = hash_contents(faces / name)
    (faces / name).write_bytes((faces / name).read_bytes()[:-40] + b"\0" * 30)
    with pytest.warns(UserWarning, match=name):
        refresh_outputs(faces)
    assert hash_contents(faces / name) == before


def test_a_damaged_note_of_what_was_written_is_no_obstacle(faces):
    (faces / ".outputs").write_bytes(b"\xff")
    refresh_outputs(faces)
    assert json.loads((faces / ".outputs").read_text())["groups"] == 3


def test_a_last_line_that_lacks_nothing_but_its_end_counts(tmp_path):
    append_corrections(tmp_path, [same(1, 2), rejected(3)])
    journal = tmp_path / JOURNAL
    journal.write_bytes(journal.read_bytes().rstrip(b"\n"))
    assert [one.id for one in read_journal(tmp_path)] == [0, 1]
    assert append_corrections(tmp_path, [rejected(5)]) == [2]
    assert [one.images for one in read_journal(tmp_path)] == [(1, 2), (3,), (5,)]


def test_lines_may_be_emptied_or_removed_by_hand_and_numbers_stay(tmp_path):
    append_corrections(tmp_path, [same(1, 2), rejected(3), rejected(4)])
    journal = tmp_path / JOURNAL
    lines = journal.read_bytes().splitlines()
    journal.write_bytes(b"\n" + lines[1] + b"\n" + lines[2] + b"\n")
    assert [one.id for one in read_journal(tmp_path)] == [1, 2]
    journal.write_bytes(lines[2] + b"\n")
    assert append_corrections(tmp_path, [rejected(5)]) == [3]
    assert undo_corrections(tmp_path, [2]) == [4]


@pytest.mark.parametrize(
    "value",
    [float("inf"), float("nan"), 3.7, 2**62, pa.scalar(10**14, pa.timestamp("us")).as_py(), b"\xff", True],
)
@pytest.mark.parametrize("column", ["row", "other_row"])
def test_odd_cells_of_a_parquet_table_are_named(tmp_path, column, value):
    rows = {"kind": ["same"], "row": [0], "other_row": [1], column: [value]}
    pq.write_table(pa.table(rows), tmp_path / "facts.parquet")
    with pytest.raises(ValueError, match=r"facts\.parquet"):
        read_correction_table(tmp_path / "facts.parquet", 5)


@pytest.mark.parametrize("value", ["²", "-1", "1" * 5000, float("inf")])
def test_an_odd_identity_in_a_table_of_names_is_named(tmp_path, value):
    pq.write_table(pa.table({"identity": [value], "name": ["Anna"]}), tmp_path / "names.parquet")
    with refuses("names-identity-not-a-number"):
        read_name_table(tmp_path / "names.parquet", 5)


def test_numbers_as_parquet_has_them_are_rows(tmp_path):
    columns = {"kind": ["same"], "row": [0.0], "other_row": [3.0], "name": [None]}
    pq.write_table(pa.table(columns), tmp_path / "facts.parquet")
    assert read_correction_table(tmp_path / "facts.parquet", 5) == [same(0, 3)]


@pytest.mark.filterwarnings("ignore:.*embeddings of this collection are missing")
def test_without_its_embeddings_all_but_adding_works(faces):
    shutil.rmtree(faces / "embeddings" / "0001" / "views")
    (faces / "labels.csv").unlink()
    refresh_outputs(faces)
    assert (faces / "labels.csv").is_file()
    append_corrections(faces, [named("Berta", 30)])
    regrouped, _ = regroup(open_collection(faces))
    assert "Berta" in regrouped.names.values()
    with refuses("collection-embeddings-gone"):
        regrouped.batches[0].read()


def test_what_a_killed_command_has_written_is_not_written_twice(tmp_path):
    table = [same(1, 2), rejected(3), named("Anna", 4)]
    append_corrections(tmp_path, [rejected(9)])
    assert append_rest(tmp_path, table) == [1, 2, 3]
    assert append_rest(tmp_path, table) == []
    journal = tmp_path / JOURNAL
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:2]))
    assert append_rest(tmp_path, table) == [2, 3]
    append_corrections(tmp_path, [named("Berta", 4)])
    assert append_rest(tmp_path, table) == [5, 6, 7], "what was said since does not hide what is said now"
    assert append_rest(tmp_path, []) == []


def test_pairs_that_cannot_be_are_named_with_their_folder(faces):
    file = next((faces / "scored").glob("*/ids.npy"))
    ids = np.load(file)
    ids[3, 1] = ids[3, 0]
    np.save(file, ids)
    with pytest.raises(InputError, match=rf"scored/{file.parent.name}: .*pair 3 joins image \d+ with itself"):
        regroup(open_collection(faces))


@pytest.mark.parametrize(
    ("part", "is_gone"),
    [
        ("card.json", False),
        ("groups/0003/identity.npy", False),
        ("groups/0003/card.json", True),
        ("groups/0003", True),
    ],
)
def test_where_groups_are_damaged_the_names_can_be_saved(faces, made, tmp_path, part, is_gone):
    damaged = faces / part
    if not is_gone:
        damaged.write_bytes(damaged.read_bytes()[:20])
    elif damaged.is_dir():
        shutil.rmtree(damaged)
    else:
        damaged.unlink()
    with pytest.raises((InputError, StoreError), match=r"Names and corrections are in .*corrections\.jsonl"):
        open_collection(faces)
    again = make_collection(tmp_path / "again" / "faces", pictures=False)
    shutil.copy(faces / JOURNAL, again.folder)
    regroup(open_collection(again.folder))
    assert open_collection(again.folder).names == open_collection(made).names


def test_figures_that_are_gone_are_no_stage_of_a_run(faces):
    state = open_collection(faces).state
    (faces / "scored" / f"{state.scored:04d}" / "measured.json").unlink()
    with pytest.raises(StoreError, match="label the images again"):
        read_measured(faces / "scored" / f"{state.scored:04d}")


@pytest.mark.parametrize("mark", [";", "\t"])
def test_a_table_with_other_separators_says_so(tmp_path, mark):
    table = tmp_path / "facts.csv"
    table.write_text(f"kind{mark}row{mark}other_row{mark}name\nsame{mark}2{mark}3{mark}\n")
    with refuses("table-not-by-commas", file=table):
        read_correction_table(table, 10)


def test_a_table_without_a_header_is_not_quoted_in_full(tmp_path):
    table = tmp_path / "embeddings.csv"
    table.write_text(",".join(str(number / 7) for number in range(512)) + "\n")
    with refuses("corrections-columns-wrong", file=table) as error:
        read_correction_table(table, 10)
    assert len(str(error.value)) < 500
