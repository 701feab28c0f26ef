"""Corrections as training pairs: what follows from them, and names as a table."""

import numpy as np
from tests.refusals import refuses

from cdp.collection.correction_tables import read_name_table
from cdp.collection.corrections import named
from cdp.scoring.trees import FOLDS, label_pairs
from cdp.types import Pairs
from cdp.types.constraints import Constraints, said_of_pairs

ALL = np.array([(one, other) for one in range(7) for other in range(one + 1, 7)], np.int32)


def test_what_follows_from_corrections_is_said_of_pairs():
    constraints = Constraints(7, np.array([[0, 1], [1, 2]]), np.array([[2, 3]]), {4: "Anna", 5: "Bob"})
    said = {
        tuple(pair): int(value)
        for pair, value in zip(ALL.tolist(), said_of_pairs(ALL, constraints), strict=True)
    }
    same = {(0, 1), (0, 2), (1, 2)}
    different = {(0, 3), (1, 3), (2, 3), (4, 5)}
    assert {pair for pair, value in said.items() if value > 0} == same
    assert {pair for pair, value in said.items() if value < 0} == different


def test_confirmed_pairs_are_training_pairs_unless_they_weigh_nothing():
    pairs, unknown = Pairs(ALL, 7), np.full(7, -1)
    constraints = Constraints(7, np.array([[0, 1]]), np.array([[1, 2]]))
    known = label_pairs(pairs, unknown, seed=0, constraints=constraints, weight=5.0)
    (rows,) = known.training_rows(pairs, FOLDS)
    assert ALL[rows].tolist() == [[0, 1], [0, 2], [1, 2]]
    assert known.same(ALL[rows], rows).tolist() == [True, False, False]
    np.testing.assert_array_equal(known.confirmed, rows)
    nothing = label_pairs(pairs, unknown, seed=0, constraints=constraints, weight=0.0)
    assert [len(rows) for rows in nothing.training_rows(pairs, FOLDS)] == [0]


def test_names_come_by_identity_path_or_row(tmp_path):
    table = tmp_path / "names.csv"
    table.write_text("identity,name\n17,Anna\n")
    assert read_name_table(table, 3) == ({17: "Anna"}, [])
    table.write_text("path,name\nb.jpg,Bob\n")
    assert read_name_table(table, 3, ["a.jpg", "b.jpg", "c.jpg"]) == ({}, [named("Bob", 1)])
    table.write_text("row,name\n2,Carl\n")
    assert read_name_table(table, 3) == ({}, [named("Carl", 2)])
    table.write_text("identity,name\nx,Anna\n")
    with refuses("names-identity-not-a-number", value="x"):
        read_name_table(table, 3)
    table.write_text("name\nAnna\n")
    with refuses("names-columns-wrong"):
        read_name_table(table, 3)
