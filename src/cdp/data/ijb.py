"""IJB-A, and IJB-B/C as packed by InsightFace: images per template, and the template pairs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cdp.data.image_names import ImageNames
from cdp.data.lfw_pairs import check_pairs
from cdp.errors import InputError
from cdp.storage.array_files import read_csv_rows, read_lines, read_npz, reading
from cdp.types.arrays import BoolArray, DoubleArray, LongArray, read_only

_IJBA_COLUMNS = ("TEMPLATE_ID", "SUBJECT_ID", "FILE", "MEDIA_ID", "SIGHTING_ID")
_ARRAYS = ("images", "templates", "media", "template_ids", "ends", "same")


@dataclass(frozen=True, eq=False)
class TemplateProtocol:
    """Templates of images, and the pairs of templates to compare.

    Attributes:
        name: `split 3`, or the name of the folder.
        images: int64 (n,), row of the embeddings for every image of a template.
        templates: int64 (n,), the template it belongs to, 0..T-1.
        media: int64 (n,), the image or video it was taken from.
        template_ids: int64 (T,), the templates' numbers in the files.
        subjects: int64 (T,), who every template shows; None where the files do not say.
        ends: int64 (m, 2), the compared templates, 0..T-1.
        same: bool (m,).
    """

    name: str
    images: LongArray
    templates: LongArray
    media: LongArray
    template_ids: LongArray
    subjects: LongArray | None
    ends: LongArray
    same: BoolArray

    def __post_init__(self) -> None:
        for field in _ARRAYS:
            object.__setattr__(self, field, read_only(getattr(self, field)))


def read_templates(folder: str | Path, names: ImageNames) -> list[TemplateProtocol]:
    """Read the protocol of a folder: all splits of IJB-A, or the one of IJB-B or IJB-C."""
    folder = Path(folder)
    with reading(folder):
        is_pack = any(next(home.glob("*_face_tid_mid.txt"), None) for home in (folder, folder / "meta"))
    if is_pack:
        return [read_ijb_pack(folder, len(names.names), names)]
    return [read_ijba_split(folder, number, names) for number in ijba_splits(folder)]


def save_templates(file: str | Path, protocols: Sequence[TemplateProtocol]) -> None:
    """Write protocols into one .npz file, for `load_templates`."""
    arrays: dict[str, Any] = {f"{at}.name": np.array(one.name) for at, one in enumerate(protocols)}
    for at, one in enumerate(protocols):
        for field in (*_ARRAYS, "subjects"):
            if getattr(one, field) is not None:
                arrays[f"{at}.{field}"] = getattr(one, field)
    np.savez(file, **arrays)


def load_templates(file: str | Path) -> list[TemplateProtocol]:
    """Return the protocols that `save_templates` wrote."""
    with reading(file):
        arrays = read_npz(Path(file))
        return [
            TemplateProtocol(
                name=str(arrays[f"{at}.name"]),
                subjects=arrays.get(f"{at}.subjects"),
                **{field: arrays[f"{at}.{field}"] for field in _ARRAYS},
            )
            for at in range(sum(key.endswith(".name") for key in arrays))
        ]


def ijba_splits(folder: str | Path) -> list[int]:
    """Return the numbers of the splits in an IJB-A folder: 1..10, or 1..N where it holds fewer."""
    folder = Path(folder)
    with reading(folder):
        splits = [re.fullmatch(r"split(\d+)", file.name) for file in folder.iterdir() if file.is_dir()]
    found = sorted(int(match[1]) for match in splits if match)
    if not found:
        raise InputError(
            f"{folder}: no split1, split2, ... found; give the folder of the ten splits of IJB-A, or of "
            "*_face_tid_mid.txt of IJB-B or IJB-C.",
            code="ijba-splits-missing",
            folder=folder,
        )
    if found != list(range(1, len(found) + 1)):
        raise InputError(
            f"{folder}: holds splits {', '.join(map(str, found))}; one in between is missing.",
            code="ijba-split-gap",
            folder=folder,
            found=tuple(found),
        )
    return found


def read_ijba_split(folder: str | Path, number: int, names: ImageNames | None = None) -> TemplateProtocol:
    """Read one split of IJB-A's 1:1 protocol.

    Args:
        folder: holds split1..split10, each with verify_metadata_N.csv and verify_comparisons_N.csv.
        names: names of the embedded images: FILE, or FILE#SIGHTING_ID where one file shows several people.
            Without them row i of the embeddings is line i of the metadata.
    """
    with reading(folder):
        split = Path(folder) / f"split{number}"
        metadata = split / f"verify_metadata_{number}.csv"
        comparisons = split / f"verify_comparisons_{number}.csv"
        columns = _read_ijba_metadata(metadata)
        rows = _ijba_rows(columns, names, metadata)
        template_ids, templates = np.unique(_whole(columns["TEMPLATE_ID"], metadata), return_inverse=True)
        subject = _whole(columns["SUBJECT_ID"], metadata)
        subjects = np.zeros(len(template_ids), np.int64)
        subjects[templates] = subject
        mixed = np.flatnonzero(subjects[templates] != subject)
        if mixed.size:
            raise InputError(
                f"{metadata}: template {template_ids[templates[mixed[0]]]} shows two subjects "
                f"(line {mixed[0] + 2}); a template is one person.",
                code="ijba-template-two-subjects",
                file=metadata,
                template=template_ids[templates[mixed[0]]],
                line=mixed[0] + 2,
            )
        _, media = np.unique(columns["MEDIA_ID"], return_inverse=True)
        listed = read_csv_rows(comparisons)
        for line, row in enumerate(listed, start=1):
            if len(row) != 2:
                raise InputError(
                    f"{comparisons}: line {line} does not hold two template numbers.",
                    code="ijba-comparison-wrong",
                    file=comparisons,
                    line=line,
                )
        given = np.stack(
            [_whole([row[side] for row in listed], comparisons, first=1) for side in (0, 1)], axis=1
        )
        lines = np.arange(1, len(listed) + 1)
        ends = _find_templates(given, template_ids, lines, comparisons, metadata)
        same = subjects[ends[:, 0]] == subjects[ends[:, 1]]
        check_pairs(ends, same, str(comparisons), lines)
        return TemplateProtocol(
            f"split {number}", rows, templates.astype(np.int64), media, template_ids, subjects, ends, same
        )


def _read_ijba_metadata(file: Path) -> dict[str, list[str]]:
    table = read_csv_rows(file)
    header = [name.strip().upper() for name in table[0]]
    missing = [name for name in _IJBA_COLUMNS if name not in header]
    if missing:
        raise InputError(
            f"{file}: the header lacks {', '.join(missing)}; it must be IJB-A's metadata.",
            code="ijba-columns-missing",
            file=file,
            columns=tuple(missing),
        )
    if len(table) == 1:
        raise InputError(
            f"{file}: only a header, so no template has media; copy it again.",
            code="ijba-metadata-empty",
            file=file,
        )
    seen: dict[tuple[str, ...], int] = {}
    for line, row in enumerate(table[1:], start=2):
        if len(row) != len(header):
            raise InputError(
                f"{file}: line {line} has {len(row)} fields, the header {len(header)}.",
                code="ijba-fields-differ",
                file=file,
                line=line,
                expected=len(header),
                found=len(row),
            )
        before = seen.setdefault(tuple(row), line)
        if before != line:
            raise InputError(
                f"{file}: lines {before} and {line} are the same; remove one of them.",
                code="ijb-lines-repeated",
                file=file,
                lines=(before, line),
            )
    return {name: [row[header.index(name)].strip() for row in table[1:]] for name in _IJBA_COLUMNS}


def _ijba_rows(columns: dict[str, list[str]], names: ImageNames | None, file: Path) -> LongArray:
    n_rows = len(columns["FILE"])
    if names is None:
        return np.arange(n_rows)
    sightings: dict[str, str] = {}
    by_sighting = any("#" in name for name in names.names)
    rows = np.empty(n_rows, np.int64)
    named = zip(columns["FILE"], columns["SIGHTING_ID"], strict=True)
    for line, (name, sighting) in enumerate(named, start=2):
        if not by_sighting and sightings.setdefault(name, sighting) != sighting:
            raise InputError(
                f"{file}: line {line}: {name} has several sightings ({sightings[name]} and "
                f"{sighting}); name the embedded faces FILE#SIGHTING_ID, e.g. {name}#{sighting}.",
                code="ijba-image-several-people",
                file=file,
                line=line,
                name=name,
            )
        rows[line - 2] = names.row(f"{name}#{sighting}" if by_sighting else name, f"{file}: line {line}")
    return rows


def _whole(values: Sequence[str], file: Path, first: int = 2) -> LongArray:
    for line, value in enumerate(values, start=first):
        if not value.strip().removeprefix("-").isdecimal():
            raise InputError(
                f"{file}: line {line}: {value!r} is not a whole number.",
                code="ijba-number-wrong",
                file=file,
                line=line,
                value=value,
            )
    return np.array([int(value) for value in values], np.int64)


def _find_templates(
    given: LongArray, template_ids: LongArray, lines: LongArray, pairs: Path, metadata: Path
) -> LongArray:
    """Template numbers as positions in the sorted `template_ids`; a template without media is an error."""
    position = np.minimum(np.searchsorted(template_ids, given), len(template_ids) - 1)
    unknown = template_ids[position] != given
    if unknown.any():
        first = int(np.flatnonzero(unknown.any(axis=1))[0])
        template = given[first][unknown[first]][0]
        raise InputError(
            f"{pairs}: line {lines[first]}: template {template} is not in {metadata} "
            f"({len(np.unique(given[unknown])):,} such templates); copy both files again.",
            code="ijb-template-without-media",
            file=pairs,
            line=lines[first],
            template=template,
        )
    return position.astype(np.int64)


def read_ijb_pack(folder: str | Path, n_images: int, names: ImageNames | None = None) -> TemplateProtocol:
    """IJB-B or IJB-C from `*_face_tid_mid.txt` and `*_template_pair_label.txt`.

    Args:
        folder: holds the two files, itself or in `meta/`.
        n_images: rows of the embeddings.
        names: names of the embedded images; without them row i is line i of the first file.
    """
    with reading(folder):
        folder = Path(folder)
        media_file = _only_file(folder, "*_face_tid_mid.txt")
        pair_file = _only_file(folder, "*_template_pair_label.txt")
        listed = _read_columns(media_file, ("name", "template", "media"), n_texts=1)
        images = _pack_rows(listed["name"], n_images, names, media_file)
        template_ids, templates = np.unique(listed["template"], return_inverse=True)
        _, media = np.unique(listed["media"], return_inverse=True)
        order = np.lexsort((media, templates, images))
        table = np.stack([images, templates, media], axis=1)[order]
        again = np.flatnonzero((table[1:] == table[:-1]).all(axis=1))
        if again.size:
            raise InputError(
                f"{media_file}: lines {order[again[0]] + 1} and {order[again[0] + 1] + 1} are the same; "
                "remove one of them.",
                code="ijb-lines-repeated",
                file=media_file,
                lines=(int(order[again[0]] + 1), int(order[again[0] + 1] + 1)),
            )
        compared = _read_columns(pair_file, ("first", "second", "label"), n_texts=0)
        label = compared["label"]
        lines = np.arange(1, len(label) + 1)
        wrong = np.flatnonzero(~np.isin(label, (0, 1)))
        if wrong.size:
            line = wrong[0] + 1
            raise InputError(
                f"{pair_file}: line {line} has the label {label[line - 1]}; 0 or 1 is needed.",
                code="ijb-label-wrong",
                file=pair_file,
                line=line,
                value=label[line - 1],
            )
        given = np.stack([compared["first"], compared["second"]], axis=1)
        ends = _find_templates(given, template_ids, lines, pair_file, media_file)
        check_pairs(ends, label == 1, str(pair_file), lines)
        return TemplateProtocol(
            folder.name, images, templates.astype(np.int64), media, template_ids, None, ends, label == 1
        )


def read_detector_scores(folder: str | Path, protocol: TemplateProtocol) -> DoubleArray:
    """Return every image's detector score from `*_name_5pts_score.txt`, in media-file order."""
    with reading(folder):
        file = _only_file(Path(folder), "*_name_5pts_score.txt")
        lines = read_lines(file)
        if len(lines) != len(protocol.images):
            raise InputError(
                f"{file}: {len(lines):,} images, but the media file has {len(protocol.images):,}.",
                code="ijb-scores-differ",
                file=file,
                expected=len(protocol.images),
                found=len(lines),
            )
        scores = np.empty(len(lines))
        for number, line in enumerate(lines):
            fields = line.split()
            try:
                scores[number] = float(fields[-1])
            except (ValueError, IndexError):
                scores[number] = np.nan
            if len(fields) != 12 or not scores[number] > 0:
                where = f"{file}: line {number + 1}"
                raise InputError(
                    f"{where} must hold a name, 10 coordinates and a positive score.",
                    code="ijb-score-line-wrong",
                    line=number + 1,
                    file=file,
                )
        return scores


def _pack_rows(listed: Any, n_images: int, names: ImageNames | None, file: Path) -> LongArray:
    if names is not None:
        return np.array([names.row(str(name), f"{file}: line {line}") for line, name in enumerate(listed, 1)])
    if len(listed) != n_images:
        raise InputError(
            f"{file}: {len(listed):,} images, but the embeddings have {n_images:,} rows; embed exactly "
            "these, or give --list FILE with the name of every row.",
            code="ijb-images-differ",
            file=file,
            expected=len(listed),
            found=n_images,
        )
    return np.arange(n_images)


def _only_file(folder: Path, pattern: str) -> Path:
    with reading(folder):
        found = sorted(folder.glob(pattern)) or sorted((folder / "meta").glob(pattern))
    if len(found) != 1:
        listed = ", ".join(file.name for file in found) or "none"
        raise InputError(
            f"{folder}: one file {pattern} is needed there (found: {listed}).",
            code="ijb-file-missing",
            folder=folder,
            pattern=pattern,
        )
    return found[0]


def _read_columns(file: Path, columns: Sequence[str], n_texts: int) -> dict[str, Any]:
    """Columns parted by single spaces or tabs, the first `n_texts` as text and the others as numbers."""
    import pyarrow as pa
    import pyarrow.csv

    with reading(file):
        with file.open("rb") as stream:
            first = stream.readline()
        kinds = {name: pa.string() if at < n_texts else pa.int64() for at, name in enumerate(columns)}
        try:
            table = pyarrow.csv.read_csv(
                file,
                pyarrow.csv.ReadOptions(column_names=list(columns)),
                pyarrow.csv.ParseOptions(delimiter="\t" if b"\t" in first else " ", quote_char=False),
                pyarrow.csv.ConvertOptions(column_types=kinds, null_values=[]),
            )
        except pa.ArrowInvalid as error:
            reason = str(error).splitlines()[0]
            raise InputError(
                f"{file}: every line must hold `{' '.join(columns)}` ({reason}).",
                code="ijb-columns-wrong",
                file=file,
                columns=tuple(columns),
            ) from None
    return {name: table.column(name).to_numpy() for name in columns}
