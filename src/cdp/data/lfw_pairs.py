"""Lists of pairs to verify: rows in a CSV file, LFW's pairs.txt, CALFW's and CPLFW's two lines per pair."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cdp.data.image_names import ImageNames
from cdp.errors import InputError
from cdp.storage.array_files import naming, read_csv_rows, read_lines, reading
from cdp.types.arrays import AnyArray, BoolArray, LongArray, read_only

N_FOLDS = 10


@dataclass(frozen=True, eq=False)
class PairList:
    """Pairs of rows of the embeddings, whether both show one identity, and the fold of every pair.

    Attributes:
        ends: int64 (m, 2), row numbers.
        same: bool (m,).
        folds: int64 (m,), 0..folds-1.
        lines: int64 (m,), the line of every pair in the file, counted from 1.
        people: int64 (m, 2), who the two ends show, where the file names them.
    """

    ends: LongArray
    same: BoolArray
    folds: LongArray
    source: str
    lines: LongArray
    people: LongArray | None = None

    def __post_init__(self) -> None:
        for name in ("ends", "same", "folds", "lines"):
            object.__setattr__(self, name, read_only(getattr(self, name)))
        check_pairs(self.ends, self.same, self.source, self.lines)

    def __len__(self) -> int:
        return len(self.same)

    def identities(self, n_images: int) -> LongArray | None:
        """Return the identity of every row, -1 for rows in no pair; None if the file does not say."""
        if self.people is None:
            return None
        known = np.full(n_images, -1, np.int64)
        known[self.ends] = self.people
        return known


def check_pairs(ends: AnyArray, same: BoolArray, source: str, lines: LongArray) -> None:
    """Refuse an image paired with itself, a pair given twice, and lists with one kind of pair only."""
    itself = np.flatnonzero(ends[:, 0] == ends[:, 1])
    if itself.size:
        raise InputError(
            f"{source}: line {lines[itself[0]]} pairs an image with itself; remove it.",
            code="pair-of-itself",
            file=source,
            line=lines[itself[0]],
        )
    ordered = np.sort(ends, axis=1)
    order = np.lexsort((lines, ordered[:, 1], ordered[:, 0]))
    again = np.flatnonzero((ordered[order][1:] == ordered[order][:-1]).all(axis=1))
    if again.size:
        first, second = lines[order[again[0]]], lines[order[again[0] + 1]]
        raise InputError(
            f"{source}: lines {first} and {second} are the same pair ({again.size:,} such); remove one of "
            "them.",
            code="pair-repeated",
            file=source,
            lines=(first, second),
        )
    if same.all() or not same.any():
        kind = "different" if same.all() else "same"
        raise InputError(
            f"{source}: no pair of {kind} identities, so there is nothing to compare; add some.",
            code="pairs-one-sided",
            file=source,
        )


def contiguous_folds(n_pairs: int, n_folds: int = N_FOLDS) -> LongArray:
    """Fold of every pair when the file is cut into equal parts in its own order."""
    if n_pairs < n_folds:
        raise InputError(
            f"{n_pairs} pairs cannot be cut into {n_folds} folds; lower the number of folds.",
            code="folds-exceed-pairs",
            pairs=n_pairs,
            folds=n_folds,
        )
    sizes = [len(part) for part in np.array_split(np.arange(n_pairs), n_folds)]
    return np.repeat(np.arange(n_folds), sizes)


def read_pairs(
    file: str | Path, n_images: int, names: ImageNames | None = None, n_folds: int = N_FOLDS
) -> PairList:
    """Return the pairs of any of the three kinds of file; `.csv` holds rows, the others name images."""
    file = Path(file)
    with reading(file):
        if file.suffix.lower() == ".csv":
            return read_row_pairs(file, n_images, n_folds)
        first = read_lines(file)[0].split()
        if names is None:
            raise InputError(
                f"{file} names images, so the embeddings need names too: give --list FILE with one path per "
                "row, or views that have a paths.txt.",
                code="pairs-need-names",
                file=file,
            )
        if first and all(field.isdecimal() for field in first):
            return read_lfw_pairs(file, names)
        return read_two_line_pairs(file, names, n_folds)


def read_row_pairs(file: str | Path, n_images: int, n_folds: int = N_FOLDS) -> PairList:
    """Read pairs of row numbers: a header `first_row,second_row,same`, folds of equal size in order."""
    file = Path(file)
    rows = read_csv_rows(file)
    if [name.strip() for name in rows[0]][:3] != ["first_row", "second_row", "same"]:
        header = ",".join(rows[0])
        raise InputError(
            f"{file}: the first line is {header!r}; it must be first_row,second_row,same.",
            code="pairs-header-wrong",
            file=file,
            found=header,
        )
    numbers = np.empty((len(rows) - 1, 3), np.int64)
    for line, row in enumerate(rows[1:], start=2):
        where = f"{file}: line {line}"
        try:
            first, second, same = (int(field) for field in row[:3])
        except ValueError:
            raise InputError(
                f"{where} is {','.join(row)!r}; three whole numbers are needed.",
                code="pair-numbers-wrong",
                file=file,
                line=line,
            ) from None
        for image in (first, second):
            if not 0 <= image < n_images:
                raise InputError(
                    f"{where} names image {image}, but the embeddings have rows 0 to {n_images - 1}.",
                    code="pair-row-unknown",
                    file=file,
                    line=line,
                    image=image,
                    n_images=n_images,
                )
        if same not in (0, 1):
            raise InputError(
                f"{where} says same={same}; write 1 for same and 0 for different.",
                code="pair-flag-wrong",
                file=file,
                line=line,
                value=same,
            )
        numbers[line - 2] = first, second, same
    with naming(file, file=file):
        folds = contiguous_folds(len(numbers), n_folds)
    return PairList(numbers[:, :2], numbers[:, 2] == 1, folds, str(file), np.arange(2, len(rows) + 1))


def read_lfw_pairs(file: str | Path, names: ImageNames) -> PairList:
    """LFW's pairs.txt: `folds<TAB>pairs`, then per fold that many same pairs and as many different ones."""
    lines = read_lines(Path(file))
    head = [int(field) for field in lines[0].split() if field.isdecimal()]
    if len(head) != 2 or min(head) < 1:
        raise InputError(
            f"{file}: line 1 is {lines[0]!r}; it must say folds<TAB>pairs per fold.",
            code="lfw-header-wrong",
            file=file,
            found=lines[0],
        )
    n_folds, per_fold = head
    if len(lines) - 1 != n_folds * 2 * per_fold:
        raise InputError(
            f"{file}: {len(lines) - 1:,} pairs, but line 1 promises {n_folds} folds of 2 x {per_fold}; "
            "the file is cut short or line 1 is wrong.",
            code="lfw-pairs-differ",
            file=file,
            found=len(lines) - 1,
        )
    ends, same, people = [], [], []
    for number, line in enumerate(lines[1:], start=2):
        fields = line.split("\t") if "\t" in line else line.split()
        where = f"{file}: line {number}"
        if len(fields) not in (3, 4):
            raise InputError(
                f"{where} has {len(fields)} fields; 3 (same) or 4 (different) are needed.",
                code="lfw-fields-wrong",
                file=file,
                line=number,
                found=len(fields),
            )
        # NAME 1 2, or NAME 1 OTHER 2.
        two_names = fields[0], fields[-2] if len(fields) == 4 else fields[0]
        images = (
            _lfw_image(*image, file, number) for image in zip(two_names, (fields[1], fields[-1]), strict=True)
        )
        ends.append([names.row(image, where) for image in images])
        people.append(two_names)
        same.append(len(fields) == 3)
    folds = np.repeat(np.arange(n_folds), 2 * per_fold)
    numbers = np.unique(people, return_inverse=True)[1].reshape(-1, 2)
    return PairList(np.array(ends), np.array(same), folds, str(file), np.arange(2, len(lines) + 1), numbers)


def _lfw_image(name: str, number: str, file: str | Path, line: int) -> str:
    if not number.strip().isdecimal():
        raise InputError(
            f"{file}: line {line}: {number!r} is not the number of an image.",
            code="lfw-number-wrong",
            file=file,
            line=line,
            value=number,
        )
    return f"{name}/{name}_{int(number):04d}.jpg"


def read_two_line_pairs(file: str | Path, names: ImageNames, n_folds: int = N_FOLDS) -> PairList:
    """CALFW's and CPLFW's lists: two lines `image label` per pair, label 0 = different.

    CALFW's label of a same pair is its fold, 1 to 10; its different pairs carry none. Both files list all
    same pairs before the different ones, so the folds are cut from each kind separately: every fold has both.
    """
    lines = read_lines(Path(file))
    if len(lines) % 2:
        raise InputError(
            f"{file}: {len(lines):,} lines; two per pair are needed, so one is missing.",
            code="two-line-pairs-odd",
            file=file,
            found=len(lines),
        )
    ends, labels = [], []
    for number in range(0, len(lines), 2):
        first, second = (line.split() for line in lines[number : number + 2])
        where = f"{file}: line {number + 1}"
        if any(len(fields) != 2 or not fields[1].isdecimal() for fields in (first, second)):
            raise InputError(
                f"{where} or the next is not `image label`.",
                code="two-line-pairs-wrong",
                file=file,
                line=number + 1,
            )
        if first[1] != second[1]:
            raise InputError(
                f"{where} says {first[1]} and the next {second[1]}; one pair has one label.",
                code="two-line-labels-differ",
                file=file,
                line=number + 1,
                found=(first[1], second[1]),
            )
        ends.append((names.row(first[0], where), names.row(second[0], f"{file}: line {number + 2}")))
        labels.append(int(first[1]))
    label = np.array(labels)
    same = label > 0
    folds = np.empty(len(label), np.int64)
    for kind in (same, ~same):
        if kind.any():
            with naming(file, file=file):
                folds[kind] = contiguous_folds(int(kind.sum()), n_folds)
    if label.max() > n_folds:
        raise InputError(
            f"{file}: a pair is in fold {label.max()} of {n_folds}.",
            code="pair-fold-unknown",
            file=file,
            fold=label.max(),
            folds=n_folds,
        )
    if label.max() > 1:
        folds[same] = label[same] - 1
    return PairList(np.array(ends), same, folds, str(file), np.arange(1, len(lines), 2))
