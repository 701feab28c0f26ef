import numpy as np
import pytest

import recognition_reference as slow
from cdp.data.image_names import ImageNames, read_image_names
from cdp.data.lfw_pairs import contiguous_folds, read_pairs
from cdp.errors import InputError

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
    with pytest.raises(InputError, match="3 pairs cannot be cut into 10 folds"):
        contiguous_folds(3)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1,2,1\n", "must be first_row,second_row,same"),
        ("first_row,second_row,same\n1,2,1\n1,x,0\n", "line 3 is '1,x,0'"),
        (
            "first_row,second_row,same\n1,2,1\n1,9,0\n",
            "line 3 names image 9, but the embeddings have rows 0 to 8",
        ),
        ("first_row,second_row,same\n1,-1,1\n", "line 2 names image -1"),
        ("first_row,second_row,same\n1,2,7\n", "line 2 says same=7"),
        ("first_row,second_row,same\n1,1,1\n2,3,0\n", "line 2 pairs an image with itself"),
        ("first_row,second_row,same\n1,2,1\n3,4,0\n2,1,1\n", "lines 2 and 4 are the same pair"),
        ("first_row,second_row,same\n1,2,1\n3,4,1\n", "no pair of different identities"),
        ("first_row,second_row,same\n1,2,0\n3,4,0\n", "no pair of same identities"),
        ("", "empty"),
    ],
)
def test_bad_csv(tmp_path, text, message):
    with pytest.raises(InputError, match=r"pairs.csv") as caught:
        read_pairs(write(tmp_path, text, "pairs.csv"), 9, n_folds=2 if text.count("\n") > 2 else 1)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\t1\nAnn_Lee0\t1\t9\nAnn_Lee0\t1\tAnn_Lee1\t1\n", "line 2 names Ann_Lee0/Ann_Lee0_0009.jpg"),
        (
            "1\t1\nAnn_Lee0\t1\t2\nAnn_Lee0\t1\tBob\t1\n",
            "line 3 names Bob/Bob_0001.jpg, which is not among the 6",
        ),
        ("2\t1\nAnn_Lee0\t1\t2\nAnn_Lee0\t1\tAnn_Lee1\t1\n", "2 pairs, but line 1 promises 2 folds of 2 x 1"),
        ("1\t1\nAnn_Lee0\t1\t2\nAnn_Lee0\t1\n", "line 3 has 2 fields"),
        ("1\t1\nAnn_Lee0\t1\tb\nAnn_Lee0\t1\tAnn_Lee1\t1\n", "'b' is not the number of an image"),
        ("Ann_Lee0_0001.jpg 1\n", "two per pair"),
        ("Ann_Lee0_0001.jpg 1\nAnn_Lee0_0002.jpg 0\n", "says 1 and the next 0"),
        ("Ann_Lee0_0001.jpg 1\nNobody.jpg 1\n", "line 2 names Nobody.jpg"),
        ("Ann_Lee0_0001.jpg\nAnn_Lee0_0002.jpg 1\n", "is not `image label`"),
    ],
)
def test_bad_text(tmp_path, text, message):
    with pytest.raises(InputError, match=r"pairs.txt") as caught:
        read_pairs(write(tmp_path, text), 6, NAMES)
    assert message in str(caught.value)


def test_names_are_needed_and_found_by_their_ending(tmp_path):
    slow.write_lfw(tmp_path)
    with pytest.raises(InputError, match="names images, so the embeddings need names too: give --list"):
        read_pairs(tmp_path / "pairs.txt", 120)
    names = ImageNames(("x/a/1.jpg", "x/b/1.jpg", "y\\c\\2.jpg"), "list")
    assert names.row("b/1.jpg", "pairs") == 1
    assert names.row("2.jpg", "pairs") == 2
    assert names.row("c/2.png", "pairs") == 2
    with pytest.raises(InputError, match="several images of list end so"):
        names.row("1.jpg", "pairs")
    sightings = ImageNames(("a.png#10", "b.png"), "list")
    assert sightings.row("a.jpg#10", "pairs") == 0
    with pytest.raises(InputError, match=r"a.jpg#11, which is not among"):
        sightings.row("a.jpg#11", "pairs")
    with pytest.raises(InputError, match="a stands there twice"):
        ImageNames(("a", "a"), "list")
