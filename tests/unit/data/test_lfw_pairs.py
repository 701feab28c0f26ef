import numpy as np
import pytest
from tests.refusals import refuses

import recognition_reference as slow
from cdp.data.image_names import ImageNames, read_image_names
from cdp.data.lfw_pairs import contiguous_folds, read_pairs

NAMES = ImageNames(tuple(slow.lfw_name(who, number) for who in range(3) for number in (1, 2)), "list.txt")


def write(tmp_path, text, name="pairs.txt"):
    file = tmp_path / name
    file.write_text(text)
    return file


def test_lfw_pairs(tmp_path):
    vectors, _, ends, same, folds = slow.write_lfw(tmp_path)
    names = read_image_names(tmp_path / "list.txt")
    pairs = read_pairs(tmp_path / "pairs.txt", len(vectors), names)
    np.testing.assert_array_equal(pairs.ends, ends)
    np.testing.assert_array_equal(pairs.same, same)
    np.testing.assert_array_equal(pairs.folds, folds)
    who = pairs.identities(len(vectors))
    seen = np.unique(ends)
    true = np.array([int(names.names[row].split("/")[1].removeprefix("Ann_Lee")) for row in seen])
    np.testing.assert_array_equal(who[seen][:, None] == who[seen], true[:, None] == true)
    assert (np.delete(who, seen) == -1).all()


@pytest.mark.parametrize("fold_labels", [True, False])
def test_two_lines_per_pair(tmp_path, fold_labels):
    vectors, names, ends, same, _ = slow.write_lfw(tmp_path)
    slow.write_calfw(tmp_path / "pairs_CALFW.txt", ends, same, names, fold_labels)
    pairs = read_pairs(tmp_path / "pairs_CALFW.txt", len(vectors), ImageNames(tuple(names), "list"))
    order = np.concatenate([np.flatnonzero(same), np.flatnonzero(~same)])
    np.testing.assert_array_equal(pairs.ends, ends[order])
    np.testing.assert_array_equal(pairs.same, same[order])
    for fold in range(10):
        inside = pairs.folds == fold
        assert pairs.same[inside].sum() == (~pairs.same[inside]).sum() == 6
    if fold_labels:
        np.testing.assert_array_equal(pairs.folds[:12], [*range(10), 0, 1])


def test_rows_in_a_csv_file(tmp_path):
    rows = "".join(f"{row},{row + 1},{row % 2}\n" for row in range(25))
    pairs = read_pairs(write(tmp_path, "first_row,second_row,same\n" + rows, "pairs.csv"), 26)
    assert pairs.ends[3].tolist() == [3, 4]
    assert pairs.same[:3].tolist() == [False, True, False]
    assert np.bincount(pairs.folds).tolist() == [3] * 5 + [2] * 5
    assert (np.diff(pairs.folds) >= 0).all()


def test_folds_need_pairs():
    with refuses("folds-exceed-pairs", pairs=3, folds=10):
        contiguous_folds(3)


@pytest.mark.parametrize(
    ("text", "code", "fields"),
    [
        ("1,2,1\n", "pairs-header-wrong", {"found": "1,2,1"}),
        ("first_row,second_row,same\n1,2,1\n1,x,0\n", "pair-numbers-wrong", {"line": 3}),
        (
            "first_row,second_row,same\n1,2,1\n1,9,0\n",
            "pair-row-unknown",
            {"line": 3, "image": 9, "n_images": 9},
        ),
        ("first_row,second_row,same\n1,-1,1\n", "pair-row-unknown", {"line": 2, "image": -1, "n_images": 9}),
        ("first_row,second_row,same\n1,2,7\n", "pair-flag-wrong", {"line": 2, "value": 7}),
        ("first_row,second_row,same\n1,1,1\n2,3,0\n", "pair-of-itself", {"line": 2}),
        ("first_row,second_row,same\n1,2,1\n3,4,0\n2,1,1\n", "pair-repeated", {}),
        ("first_row,second_row,same\n1,2,1\n3,4,1\n", "pairs-one-sided", {}),
        ("first_row,second_row,same\n1,2,0\n3,4,0\n", "pairs-one-sided", {}),
        ("", "text-empty", {}),
    ],
)
def test_bad_csv(tmp_path, text, code, fields):
    with refuses(code, **fields):
        read_pairs(write(tmp_path, text, "pairs.csv"), 9, n_folds=2 if text.count("\n") > 2 else 1)


@pytest.mark.parametrize(
    ("text", "code", "fields"),
    [
        (
            "1\t1\nAnn_Lee0\t1\t9\nAnn_Lee0\t1\tAnn_Lee1\t1\n",
            "image-name-unknown",
            {"name": "Ann_Lee0/Ann_Lee0_0009.jpg", "source": "list.txt"},
        ),
        (
            "1\t1\nAnn_Lee0\t1\t2\nAnn_Lee0\t1\tBob\t1\n",
            "image-name-unknown",
            {"name": "Bob/Bob_0001.jpg", "source": "list.txt"},
        ),
        ("2\t1\nAnn_Lee0\t1\t2\nAnn_Lee0\t1\tAnn_Lee1\t1\n", "lfw-pairs-differ", {"found": 2}),
        ("1\t1\nAnn_Lee0\t1\t2\nAnn_Lee0\t1\n", "lfw-fields-wrong", {"line": 3, "found": 2}),
        ("1\t1\nAnn_Lee0\t1\tb\nAnn_Lee0\t1\tAnn_Lee1\t1\n", "lfw-number-wrong", {"line": 2, "value": "b"}),
        ("Ann_Lee0_0001.jpg 1\n", "two-line-pairs-odd", {"found": 1}),
        (
            "Ann_Lee0_0001.jpg 1\nAnn_Lee0_0002.jpg 0\n",
            "two-line-labels-differ",
            {"line": 1, "found": ("1", "0")},
        ),
        (
            "Ann_Lee0_0001.jpg 1\nNobody.jpg 1\n",
            "image-name-unknown",
            {"name": "Nobody.jpg", "source": "list.txt"},
        ),
        ("Ann_Lee0_0001.jpg\nAnn_Lee0_0002.jpg 1\n", "two-line-pairs-wrong", {"line": 1}),
    ],
)
def test_bad_text(tmp_path, text, code, fields):
    with refuses(code, **fields):
        read_pairs(write(tmp_path, text), 6, NAMES)


def test_names_are_needed_and_found_by_their_ending(tmp_path):
    slow.write_lfw(tmp_path)
    with refuses("pairs-need-names", file=tmp_path / "pairs.txt"):
        read_pairs(tmp_path / "pairs.txt", 120)
    names = ImageNames(("x/a/1.jpg", "x/b/1.jpg", "y\\c\\2.jpg"), "list")
    assert names.row("b/1.jpg", "pairs") == 1
    assert names.row("2.jpg", "pairs") == 2
    assert names.row("c/2.png", "pairs") == 2
    with refuses("image-name-ambiguous", name="1.jpg", source="list", asked_by="pairs"):
        names.row("1.jpg", "pairs")
    sightings = ImageNames(("a.png#10", "b.png"), "list")
    assert sightings.row("a.jpg#10", "pairs") == 0
    with refuses("image-name-unknown", name="a.jpg#11", source="list", asked_by="pairs"):
        sightings.row("a.jpg#11", "pairs")
    with refuses("image-name-repeated", file="list", names=("a",)):
        ImageNames(("a", "a"), "list")
