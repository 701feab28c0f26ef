"""Views from files: folders of .npy or raw .bin, .npz and Parquet; memory-mapped where possible."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from cdp.blocks import spans
from cdp.data.manifest_tables import number_identities
from cdp.errors import InputError, StoreError
from cdp.runtime.runtime import Runtime
from cdp.storage.array_files import (
    file_size,
    naming,
    open_npy,
    open_parquet,
    read_npz,
    read_text,
    reading,
    refuse_nested,
)
from cdp.types import Embeddings, Views
from cdp.types.arrays import AnyArray, DoubleArray, LongArray
from cdp.types.embeddings import inverse_lengths, measured

# Smaller tables are measured faster than tasks start.
_MEASURED_IN_TASKS = 2**24
_ROWS_PER_BLOCK = 65_536


class _ViewsSettings(msgspec.Struct):
    """What of a card is needed to read views: the committee in its order."""

    committee: list[str] | None = None


@dataclass
class _Parts:
    """What a layout holds, before it is checked and becomes Views."""

    base: AnyArray
    committee: dict[str, AnyArray] = field(default_factory=dict)
    identities: AnyArray | None = None
    paths: list[str] | None = None


def read_views(
    path: str | Path, *, dim: int | None = None, base: str | None = None, runtime: Runtime | None = None
) -> Views:
    """Return the views kept in a folder or file; docs/formats.md shows the layouts.

    Args:
        path: a folder (`base.npy` + `committee/`, or `features/*.bin`), or one .npz, .parquet, .npy or .bin.
        dim: length of a row of the base model; needed for raw .bin files without a list of the images.
        base: which model is the base, where none is called `base`.
        runtime: how rows are checked and measured.
    """
    path = Path(path)
    if dim is not None and dim < 1:
        raise InputError(
            f"{path}: dim={dim} is not a row length; give the number of values per image.",
            code="views-dim-wrong",
            file=path,
            value=dim,
        )
    with reading(path):
        parts = _read_parts(path, dim, base)
        identities = None if parts.identities is None else _number_names(parts.identities)
        with naming(path, file=path):
            first, *others = _measure([parts.base, *parts.committee.values()], runtime)
            members = dict(zip(parts.committee, others, strict=True))
            views = Views(first, members, identities, parts.paths)
    if dim is not None and views.base.dimensions != dim:
        raise InputError(
            f"{path}: the base has {views.base.dimensions} dimensions; leave dim={dim} out.",
            code="views-dim-differs",
            file=path,
            expected=views.base.dimensions,
            value=dim,
        )
    return views


def _measure(sources: Sequence[AnyArray], runtime: Runtime | None) -> list[Embeddings | AnyArray]:
    """Check and measure the rows of large tables in tasks; `Embeddings` refuses wrong ones."""
    found: list[Embeddings | AnyArray] = list(sources)
    floats = (np.float16, np.float32, np.float64)
    large = [
        number
        for number, source in enumerate(sources)
        if source.ndim == 2 and source.nbytes >= _MEASURED_IN_TASKS and source.dtype in floats
    ]
    if runtime is None or not large:
        return found
    cut = [(number, *span) for number in large for span in spans(len(sources[number]), _ROWS_PER_BLOCK)]
    scales: dict[int, list[DoubleArray]] = {number: [] for number in large}
    try:
        for (number, *_), scale in zip(cut, runtime.map(_measure_block, sources, cut), strict=True):
            scales[number].append(scale)
    except InputError:
        return found
    for number in large:
        found[number] = measured(sources[number], np.concatenate(scales[number]))
    return found


def _measure_block(sources: Sequence[AnyArray], block: tuple[int, int, int]) -> DoubleArray:
    number, start, stop = block
    return inverse_lengths(sources[number][start:stop])


def read_view_identities(
    path: str | Path, *, dim: int | None = None, base: str | None = None
) -> LongArray | None:
    """Return the identities of stored views, as `read_views` has them; no embedding is read or checked."""
    path = Path(path)
    with reading(path):
        parts = _read_parts(path, dim, base)
        if parts.identities is None:
            return None
        with naming(path, file=path):
            no_embeddings = np.ones((len(parts.base), 1), np.float32)
            return Views(no_embeddings, None, _number_names(parts.identities)).identities


def looks_like_views(path: str | Path) -> bool:
    """Return whether a path holds embeddings rather than images or a table of images."""
    file = Path(path)
    if file.is_dir():
        return (
            any((file / f"base{suffix}").is_file() for suffix in (".npy", ".bin"))
            or (file / "features").is_dir()
        )
    if file.suffix == ".parquet" and file.is_file():
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            return any(hasattr(column.type, "value_field") for column in pq.read_schema(file))
        except (pa.ArrowException, OSError):
            return False
    return file.suffix in (".npy", ".npz", ".bin")


def _read_parts(path: Path, dim: int | None, base: str | None) -> _Parts:
    if not path.exists():
        raise InputError(
            f"{path}: no such file or folder; check the spelling of the path.", code="path-missing", file=path
        )
    if path.is_dir():
        return _read_folder(path, dim, base)
    if path.suffix == ".npz":
        return _read_npz_views(path, base)
    if path.suffix == ".parquet":
        return _read_parquet(path, base)
    if path.suffix == ".npy":
        return _Parts(open_npy(path))
    if path.suffix == ".bin":
        folder = path.parent.parent if path.parent.name == "features" else path.parent
        return _read_models(path, {}, folder, dim)
    raise InputError(
        f"{path}: not a known kind of file; give a folder, .npz, .parquet, .npy or .bin.",
        code="views-kind-unknown",
        file=path,
    )


def _open_bin(file: Path, n_rows: int | None, counted_in: Path | None, dim: int | None) -> AnyArray:
    """Raw little-endian float32, memory-mapped; the shape follows from the row count or the row length."""
    size = file_size(file)
    if dim is not None:
        if size % (4 * dim):
            raise InputError(
                f"{file}: {size:,} bytes are not a whole number of rows of {dim} float32 values; "
                "the file is cut short or dim= is wrong.",
                code="bin-size-not-whole-rows",
                file=file,
                found=size,
                dim=dim,
            )
        if n_rows is not None and size != 4 * dim * n_rows:
            raise InputError(
                f"{file}: {size // (4 * dim):,} rows of {dim} values, but {counted_in} has {n_rows:,}; "
                "give files of the same images, or correct dim=.",
                code="bin-rows-differ",
                file=file,
                expected=n_rows,
                found=size // (4 * dim),
                dim=dim,
            )
        n_rows = size // (4 * dim)
    if n_rows is None:
        raise InputError(
            f"{file}: raw numbers of unknown row length; pass dim=, or add a meta.txt with one line per "
            "image.",
            code="bin-dim-unknown",
            file=file,
        )
    if size % (4 * n_rows):
        raise InputError(
            f"{file}: {size:,} bytes are not {n_rows:,} float32 rows (the number in {counted_in}); it "
            "is truncated or of other images; copy it again.",
            code="bin-size-not-divisible",
            file=file,
            found=size,
            rows=n_rows,
        )
    return np.memmap(file, "<f4", "r", shape=(n_rows, size // 4 // n_rows))


def _read_folder(folder: Path, dim: int | None, base: str | None) -> _Parts:
    files = _model_files(folder)
    if "base" in files:
        if base not in (None, "base"):
            raise InputError(
                f"{folder}: has a {files['base'].name} already; leave base={base!r} out.",
                code="views-base-given-twice",
                folder=folder,
                model=base,
            )
        members = _in_card_order(folder, _model_files(folder / "committee"))
        return _read_models(files["base"], members, folder, dim)
    models = _model_files(folder / "features")
    if models:
        base_name = _choose_base(folder / "features", models, base)
        # learn-to-cluster keeps parts of other images side by side, each with identities of its own.
        members = {
            name: file
            for name, file in models.items()
            if name != base_name and not (folder / "labels" / f"{name}.meta").exists()
        }
        return _read_models(models[base_name], members, folder, dim)
    found = ", ".join(sorted(file.name for file in folder.iterdir())[:10]) or "nothing"
    raise InputError(
        f"{folder}: no base.npy; a folder of views holds base.npy, committee/NAME.npy and, if known, "
        f"identities.npy (found: {found}).",
        code="views-base-missing",
        folder=folder,
    )


def _model_files(folder: Path) -> dict[str, Path]:
    """Name -> file of every .npy and .bin, sorted by name, hidden files left out."""
    files: dict[str, Path] = {}
    if not folder.is_dir():
        return files
    for file in sorted(folder.iterdir(), key=lambda file: (file.stem, file.suffix)):
        if file.suffix not in (".npy", ".bin") or file.name.startswith(".") or file.name == "identities.npy":
            continue
        if file.stem in files:
            raise InputError(
                f"{folder}: holds both {files[file.stem].name} and {file.name}; remove one.",
                code="views-model-twice",
                folder=folder,
                files=(files[file.stem].name, file.name),
            )
        files[file.stem] = file
    return files


def _in_card_order(folder: Path, members: Mapping[str, Path]) -> dict[str, Path]:
    """Order the members as on the card, then unknown ones; sorted by name without a card."""
    from cdp.storage.artifacts import read_card, read_settings

    card_file = folder / "card.json"
    if not os.path.lexists(card_file):
        return dict(members)
    try:
        order = read_settings(folder, read_card(folder, "Views"), _ViewsSettings).committee or list(members)
    except StoreError:
        raise InputError(
            f"{card_file}: damaged; delete it to read the folder without it.",
            code="views-card-damaged",
            file=card_file,
        ) from None
    for name in order:
        if name not in members:
            raise InputError(
                f"{card_file}: names member {name!r}, but committee/{name}.npy is missing.",
                code="views-member-missing",
                file=card_file,
                model=name,
            )
    return {name: members[name] for name in [*order, *(name for name in members if name not in order)]}


def _choose_base(source: Path, names: Collection[str], base: str | None) -> str:
    wanted = base if base is not None else "base"
    if wanted in names:
        return wanted
    if base is None and len(names) == 1:
        return next(iter(names))
    listed = ", ".join(sorted(names)) or "none"
    if base is not None:
        raise InputError(
            f"{source}: no model called {base!r}; the models are {listed}.",
            code="views-model-unknown",
            file=source,
            model=base,
        )
    raise InputError(
        f"{source}: which model is the base? Pass base= with one of {listed}.",
        code="views-base-unclear",
        file=source,
    )


def _read_models(base: Path, members: Mapping[str, Path], folder: Path, dim: int | None) -> _Parts:
    """Models from .npy or .bin files, and what the folder says about the images."""
    counts: dict[Path, int] = {}
    identities = paths = None
    if (file := _identity_file(folder, base.stem)) is not None:
        identities = read_identities(file)
        counts[file] = len(identities)
    for file in [folder / name for name in ("paths.txt", "list.txt") if (folder / name).is_file()][:1]:
        paths = _lines(file)
        counts[file] = len(paths)
    counted_in, n_rows = next(iter(counts.items()), (None, None))
    base_array = open_npy(base) if base.suffix == ".npy" else _open_bin(base, n_rows, counted_in, dim)
    if base_array.ndim != 2:
        return _Parts(base_array)  # Views says what is wrong with it
    n_images = len(base_array)
    for file, count in counts.items():
        if count != n_images:
            raise InputError(
                f"{file}: has {count:,} entries, but {base.name} has {n_images:,} images.",
                code="views-rows-differ",
                file=file,
                expected=n_images,
                found=count,
            )
    committee = {
        member: open_npy(file) if file.suffix == ".npy" else _open_bin(file, n_images, base, None)
        for member, file in members.items()
    }
    return _Parts(base_array, committee, identities, paths)


def _lines(file: Path) -> list[str]:
    # Not read_lines(): the path of the last image may be unknown, and so its line empty.
    lines = [line.removesuffix("\r") for line in read_text(file).removesuffix("\n").split("\n")]
    if lines == [""]:
        raise InputError(
            f"{file}: empty, one line per image is needed; remove or write it again.",
            code="lines-empty",
            file=file,
        )
    return lines


def read_identities(file: Path) -> AnyArray:
    """Read one identity per image from .npy or text, numbers or names; -1 where unknown."""
    with reading(file):
        return _number_names(_stored_identities(file))


def read_label_numbers(file: Path) -> AnyArray:
    """Read one label per image from .npy or text; whole numbers, -1 = discarded."""
    with reading(file):
        stored = _stored_identities(file)
        if stored.dtype.kind == "U":
            numbers, names = number_identities(stored.tolist())
            stored = numbers if names is None else stored
        if stored.dtype.kind not in "iu":
            raise InputError(
                f"{file}: labels are whole numbers, -1 = discarded.", code="labels-not-whole", file=file
            )
    return stored


def read_identity_names(path: str | Path) -> AnyArray | None:
    """Return the identity names of views or of an identities file; None if they are numbers.

    Views number the names of each file by themselves, so number 3 of one file and number 3 of another may be
    two people. Names that are the same in both files are one person.
    """
    file: Path | None = Path(path)
    stored = None
    with reading(Path(path)):
        if Path(path).is_dir():
            file = _identity_file(Path(path), "base")
        if file is not None and file.suffix == ".npz":
            stored = read_npz(file).get("identities")
        elif file is not None and file.suffix == ".parquet":
            with open_parquet(file) as table:
                stored = _parquet_images(file, table)[0]
        elif file is not None and file.suffix != ".bin":
            stored = _stored_identities(file)
    if stored is None or stored.dtype.kind not in "US":
        return None
    texts = stored.astype(str).ravel()
    return None if number_identities(texts.tolist())[1] is None else texts


def name_identities(path: str | Path, identities: AnyArray | None) -> dict[int, str]:
    """Return number -> name of the identities of views at a path; empty if they are numbers."""
    texts = None if identities is None else read_identity_names(path)
    if identities is None or texts is None:
        return {}
    named = zip(identities.ravel().tolist(), texts.tolist(), strict=False)
    return {number: name for number, name in named if number >= 0 and name.strip() and name.isprintable()}


def _identity_file(folder: Path, base: str) -> Path | None:
    names = ("identities.npy", "identities.txt", f"labels/{base}.meta", "meta.txt")
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _stored_identities(file: Path) -> AnyArray:
    """Identities as a file holds them: numbers, or names as text."""
    if file.suffix == ".npy":
        identities = open_npy(file, "np.save(file, array.astype('int64'))")
        if identities.ndim == 0:
            raise InputError(
                f"{file}: holds a single value; one identity per image is needed.",
                code="identities-single-value",
                file=file,
            )
        return identities
    lines = [line.strip() for line in _lines(file)]
    while lines[1:] and not lines[-1]:
        lines.pop()
    if "" in lines:
        raise InputError(
            f"{file}: line {lines.index('') + 1} is blank; write -1 for an unknown identity.",
            code="identities-line-blank",
            file=file,
            line=lines.index("") + 1,
        )
    return np.array(lines)


def _number_names(identities: AnyArray) -> AnyArray:
    """Convert names to numbers, with -1 still unknown; numbers stay as they are."""
    if identities.dtype.kind not in "US":
        return identities
    return number_identities(identities.astype(str).ravel().tolist())[0].reshape(identities.shape)


def _read_npz_views(file: Path, base: str | None) -> _Parts:
    arrays = read_npz(file)
    identities, paths = arrays.pop("identities", None), arrays.pop("paths", None)
    models: dict[str, AnyArray] = {}
    for key, array in arrays.items():
        name = key.removeprefix("committee/").removeprefix("committee_")
        if key != "base" and name == key and (array.ndim != 2 or array.dtype.kind != "f"):
            continue
        if name in models:
            raise InputError(
                f"{file}: two arrays are called {name!r}; rename one.",
                code="file-name-repeated",
                file=file,
                name=name,
                what="arrays",
            )
        models[name] = array
    if not models:
        raise InputError(
            f"{file}: no embeddings (found: {', '.join(arrays) or 'nothing'}); name one `base`.",
            code="npz-embeddings-missing",
            file=file,
            found=tuple(arrays),
        )
    first = models.pop(_choose_base(file, models, base))
    return _Parts(first, models, identities, None if paths is None else paths.astype(str).ravel().tolist())


def _read_parquet(file: Path, base: str | None) -> _Parts:
    import pyarrow.types as kinds

    with open_parquet(file) as table:
        names = list(table.schema_arrow.names)
        if table.metadata.num_rows == 0:
            raise InputError(
                f"{file}: empty, it holds no rows; embed the images again.", code="parquet-empty", file=file
            )
        models = [
            column.name
            for column in table.schema_arrow
            if hasattr(column.type, "value_field") and kinds.is_floating(column.type.value_field.type)
        ]
        if not models or ("base" in names and "base" not in models):
            what = "column 'base' does not hold" if "base" in names else "no column holds"
            raise InputError(
                f"{file}: {what} lists of floats; the columns are {', '.join(names)}.",
                code="parquet-embeddings-missing",
                file=file,
                columns=tuple(names),
            )
        base_name = _choose_base(file, models, base)
        members = {name: _parquet_matrix(file, table, name) for name in models if name != base_name}
        return _Parts(_parquet_matrix(file, table, base_name), members, *_parquet_images(file, table))


def _parquet_images(file: Path, table: Any) -> tuple[AnyArray | None, list[str] | None]:
    """Identities as stored and paths, where there are such columns."""
    identities = _parquet_column(file, table, ("identity", "identities"))
    paths = _parquet_column(file, table, ("path", "paths"))
    return (
        None if identities is None else _parquet_identities(identities),
        None if paths is None else paths.cast("string").fill_null("").to_pylist(),
    )


def _parquet_column(file: Path, table: Any, names: tuple[str, str]) -> Any:
    """Return the column of either name; None if there is none."""
    found = [name for name in names if name in table.schema_arrow.names]
    if len(found) > 1:
        raise InputError(
            f"{file}: has both a column {names[0]!r} and a column {names[1]!r}; remove one.",
            code="parquet-columns-clash",
            file=file,
            columns=tuple(names),
        )
    if not found:
        return None
    refuse_nested(file, table.schema_arrow.field(found[0]))
    return table.read(columns=found).column(0)


def _parquet_identities(column: Any) -> AnyArray:
    import pyarrow as pa
    import pyarrow.types as kinds

    if kinds.is_floating(column.type):
        return np.asarray(column.fill_null(-1).to_numpy())
    if kinds.is_integer(column.type):
        try:
            return np.asarray(column.cast("int64").fill_null(-1).to_numpy())
        except pa.ArrowInvalid:
            pass  # Too large for a number here; a name may have any length.
    return np.array(column.cast("string").fill_null("-1").to_pylist())


def _parquet_matrix(file: Path, table: Any, name: str) -> AnyArray:
    """Read one list column into an array, batch by batch, so that it is in memory once."""
    matrix: AnyArray | None = None
    start = 0
    for batch in table.iter_batches(batch_size=8192, columns=[name]):
        column = batch.column(0)
        lengths = column.value_lengths().fill_null(0).to_numpy()
        values = column.flatten()
        if matrix is None:
            width = int(np.bincount(lengths).argmax())
            matrix = np.empty((table.metadata.num_rows, width), values.type.to_pandas_dtype())
        odd = np.flatnonzero(lengths != width)
        if odd.size:
            raise InputError(
                f"{file}: row {start + odd[0]} (counted from 0) of column {name!r} has "
                f"{lengths[odd[0]]} values, other rows have {width}; remove or embed this image again.",
                code="parquet-row-length-differs",
                file=file,
                row=start + odd[0],
                column=name,
                expected=width,
                found=lengths[odd[0]],
            )
        # A missing value inside a list becomes NaN here, which Embeddings reports with its row.
        stop = start + len(column)
        matrix[start:stop] = values.to_numpy(zero_copy_only=False).reshape(len(column), width)
        start = stop
    assert matrix is not None, "a table with rows has a first batch"
    return matrix
