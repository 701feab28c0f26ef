"""Embeddings of one model, and Views: the same images seen by a base model and its committee."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from cdp.errors import InputError, OutputExistsError, name_rows, rows_not_utf8
from cdp.types.arrays import AnyArray, Artifact, BoolArray, DoubleArray, FloatArray, LongArray, read_only

_BLOCK_BYTES = 4 * 2**20
# So few stay in the processor's cache while they are measured.
_MEASURED_BYTES = 2**20
_SMALLEST_NORM = 1e-30


@dataclass(frozen=True, eq=False)
class Embeddings:
    """Unit vectors of n images from one model, one row per image.

    The array given is kept as it is (float16, 32 or 64, in memory or memory-mapped); rows are scaled to unit
    length when they are read, block by block. So a file larger than memory can be used, and neither the
    caller's array nor the file is touched.

    Attributes:
        source: the array as given, (n, d), read-only here.
        scale: 1 / length of every row, float64 (n,).
        scale_range: the least and the greatest of them.

    Examples:
        >>> from cdp import Embeddings
        >>> faces = Embeddings([[3.0, 4.0], [0.0, 2.0]])
        >>> faces.n_images, faces.dimensions, faces.vectors.round(2).tolist()
        (2, 2, [[0.6000000238418579, 0.800000011920929], [0.0, 1.0]])
    """

    source: AnyArray
    scale: DoubleArray = field(init=False, repr=False)
    scale_range: tuple[float, float] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        source = _as_float_matrix(self.source)
        self._fill_in(source, inverse_lengths(source))

    def _fill_in(self, source: AnyArray, scale: DoubleArray) -> None:
        object.__setattr__(self, "source", read_only(source))
        object.__setattr__(self, "scale", read_only(scale))
        object.__setattr__(self, "scale_range", (float(scale.min()), float(scale.max())))

    @property
    def n_images(self) -> int:
        """Number of rows."""
        return int(self.source.shape[0])

    @property
    def dimensions(self) -> int:
        """Length of a row."""
        return int(self.source.shape[1])

    def block(self, start: int, stop: int) -> FloatArray:
        """Rows start..stop-1 at unit length, float32, a fresh array."""
        return self._unit(self.source[start:stop], self.scale[start:stop])

    def take(self, rows: npt.NDArray[np.integer[Any]], out: FloatArray | None = None) -> FloatArray:
        """Return rows at unit length, float32 (len(rows), d), in a fresh array or the one given."""
        if out is None or self.source.dtype != np.float32:
            return self._unit(self.source[rows], self.scale[rows])
        # Rows are there, so nothing is clipped; but without it, NumPy would not write to `out` directly.
        np.take(self.source, rows, axis=0, out=out, mode="clip")
        return np.multiply(out, self.scale[rows, None].astype(np.float32), out=out)

    @property
    def sources(self) -> tuple[AnyArray, ...]:
        """The arrays that hold the rows, one after the other."""
        return (self.source,)

    @property
    def vectors(self) -> FloatArray:
        """All rows at unit length, float32 (n, d), a fresh array: for small sets and for other libraries."""
        return self.block(0, self.n_images)

    def _unit(self, rows: AnyArray, scale: DoubleArray) -> FloatArray:
        # float64 input is scaled before it is rounded; the others are exact in float32 already.
        working = np.float64 if rows.dtype == np.float64 else np.float32
        unit = np.multiply(rows, scale[:, None].astype(working), dtype=working)
        rounded: FloatArray = unit.astype(np.float32, copy=False)
        return rounded

    def __len__(self) -> int:
        return self.n_images

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> AnyArray:
        return self.vectors.astype(dtype or np.float32, copy=False)

    def __repr__(self) -> str:
        return f"Embeddings: {self.n_images:,} images x {self.dimensions} ({self.source.dtype})"


class StackedEmbeddings(Embeddings):
    """The embeddings of two sets of images one after the other, read where they are stored."""

    first: Embeddings
    rest: Embeddings

    @classmethod
    def of(cls, first: Embeddings, rest: Embeddings) -> StackedEmbeddings:
        """Stack two embeddings of the same type and dimensions."""
        stacked = object.__new__(cls)
        scale = np.concatenate([first.scale, rest.scale])
        least, most = zip(first.scale_range, rest.scale_range, strict=True)
        span = (min(least), max(most))
        vars(stacked).update(first=first, rest=rest, scale=read_only(scale), scale_range=span)
        return stacked

    @property
    def sources(self) -> tuple[AnyArray, ...]:
        """The arrays of both."""
        return self.first.source, self.rest.source

    @property
    def source(self) -> AnyArray:
        """Return a copy of both arrays as one."""
        return np.concatenate(self.sources)

    @property
    def n_images(self) -> int:
        """Number of rows of both."""
        return len(self.scale)

    @property
    def dimensions(self) -> int:
        """Length of a row."""
        return self.first.dimensions

    def block(self, start: int, stop: int) -> FloatArray:
        """Rows start..stop-1 at unit length, float32, a fresh array."""
        n_first = len(self.first)
        if stop <= n_first:
            return self.first.block(start, stop)
        if start >= n_first:
            return self.rest.block(start - n_first, stop - n_first)
        return np.concatenate([self.first.block(start, n_first), self.rest.block(0, stop - n_first)])

    def take(self, rows: npt.NDArray[np.integer[Any]], out: FloatArray | None = None) -> FloatArray:
        """Return rows at unit length, float32 (len(rows), d), in a fresh array or the one given."""
        n_first = len(self.first)
        is_first = rows < n_first
        if is_first.all():
            return self.first.take(rows, out)
        if not is_first.any():
            return self.rest.take(rows - n_first, out)
        taken = np.empty((len(rows), self.dimensions), np.float32) if out is None else out
        taken[is_first] = self.first.take(rows[is_first])
        taken[~is_first] = self.rest.take(rows[~is_first] - n_first)
        return taken

    def __repr__(self) -> str:
        kind = self.first.source.dtype
        return f"Embeddings: {self.n_images:,} images x {self.dimensions} ({kind}, two arrays)"


def _are_alike(one: Embeddings, other: Embeddings) -> bool:
    """Test whether embeddings can be stacked: one array each, of the same type, shape and layout."""
    if len(one.sources) > 1 or len(other.sources) > 1:
        return False
    mine, theirs = one.source, other.source
    is_packed = mine.flags.c_contiguous and theirs.flags.c_contiguous
    return bool(is_packed and mine.dtype == theirs.dtype and mine.shape[1] == theirs.shape[1])


def _as_float_matrix(array: Any) -> AnyArray:
    matrix = array if isinstance(array, np.ndarray) else np.asarray(array)
    if matrix.dtype == object:
        raise InputError(
            "Embeddings: the array holds Python objects, not numbers; save it again as one float array.",
            code="embeddings-are-objects",
        )
    if matrix.ndim != 2:
        raise InputError(
            f"Embeddings: expected a table of images x dimensions, got an array of shape {matrix.shape}.",
            code="embeddings-not-a-table",
            found=matrix.shape,
        )
    if matrix.dtype.newbyteorder("=") not in (np.float16, np.float32, np.float64):
        raise InputError(
            f"Embeddings: expected float16, float32 or float64, got {matrix.dtype}; convert with "
            ".astype('float32').",
            code="embeddings-not-floats",
            found=str(matrix.dtype),
        )
    if matrix.shape[0] == 0:
        raise InputError("Embeddings: the part is empty (0 images).", code="embeddings-empty")
    if matrix.shape[1] == 0:
        raise InputError(
            "Embeddings: the rows are empty (0 dimensions).", code="embeddings-without-dimensions"
        )
    return matrix if matrix.dtype.isnative else matrix.astype(matrix.dtype.newbyteorder("="))


def measured(source: AnyArray, scale: DoubleArray) -> Embeddings:
    """Make embeddings of rows that were checked and measured before."""
    embeddings = object.__new__(Embeddings)
    embeddings._fill_in(source, scale)
    return embeddings


def inverse_lengths(source: AnyArray) -> DoubleArray:
    """Compute 1 / length of every row, float64 (n,); refuse rows without a direction."""
    n_images, dimensions = source.shape
    rows_per_block = max(1, _MEASURED_BYTES // (8 * dimensions))
    lengths = np.empty(n_images)
    not_finite: list[int] = []
    for start in range(0, n_images, rows_per_block):
        with np.errstate(invalid="ignore"):  # about a NaN, which is reported below
            rows = source[start : start + rows_per_block].astype(np.float64)
        if source.dtype == np.float64:
            measured, bad = _scaled_lengths(rows)
        else:
            measured = np.sqrt(np.square(rows, out=rows).sum(axis=1))
            bad = ~np.isfinite(measured)
        lengths[start : start + rows_per_block] = measured
        not_finite.extend((start + np.flatnonzero(bad)).tolist())
    if not_finite:
        raise InputError(
            f"Embeddings: NaN or infinity in {name_rows(not_finite)} (counted from 0); "
            "remove these images or embed them again.",
            code="embeddings-not-finite",
            row=not_finite[0],
            count=len(not_finite),
        )
    zero = np.flatnonzero(lengths < _SMALLEST_NORM)
    if zero.size:
        raise InputError(
            f"Embeddings: length zero, so no direction to compare, in {name_rows(zero)} (counted from 0); "
            "remove these images or embed them again.",
            code="embeddings-zero-length",
            row=zero[0],
            count=len(zero),
        )
    inverse: DoubleArray = 1.0 / lengths
    return inverse


def _scaled_lengths(rows: DoubleArray) -> tuple[DoubleArray, BoolArray]:
    """Lengths of rows whose squares may leave float64's range, and which are not finite.

    Rows are divided by a power of two near their largest entry first, which rounds nothing: the length is
    that of the row as it is.
    """
    largest = np.abs(rows).max(axis=1)
    bad: BoolArray = ~np.isfinite(largest)
    rows[bad] = 0
    divisor = np.ldexp(1.0, np.frexp(np.where(bad, 1.0, largest))[1] - 1)
    return divisor * np.sqrt(np.square(rows / divisor[:, None]).sum(axis=1)), bad


@dataclass(frozen=True, eq=False)
class Views(Artifact):
    """Embeddings of the same images by a base model and a committee of N other models, in the same order.

    Iterating gives the base model's embeddings first, then the committee's, in order.

    Attributes:
        base: embeddings by the base model B.
        committee: name -> embeddings by C_1..C_N; may be empty; dimensions are free per model.
        identities: int64 (n,) where known, else None; negative for an image whose identity is unknown.
        paths: where the images are stored, if known; only carried along to the output.

    Examples:
        >>> import numpy as np
        >>> from cdp import Views
        >>> views = Views(np.eye(4), {"sface": np.eye(4)[:, :3] + 0.1}, ["Anna", "Anna", "Bob", None])
        >>> views
        Views: 4 images, 2 identities, base and committee of 1 (sface)
    """

    base: Embeddings
    committee: Mapping[str, Embeddings] = field(default_factory=dict)
    identities: LongArray | None = None
    paths: tuple[str, ...] | None = None

    def __init__(
        self,
        base: Embeddings | npt.ArrayLike,
        committee: Mapping[str, Embeddings | npt.ArrayLike] | None = None,
        identities: npt.ArrayLike | None = None,
        paths: tuple[str, ...] | list[str] | None = None,
    ) -> None:
        base_model = _embed("base", base)
        members: dict[str, Embeddings] = {}
        for name, member in (committee or {}).items():
            if not isinstance(name, str) or not name or name == "base" or rows_not_utf8([name]):
                raise InputError(
                    f"Views: {name!r} cannot name a committee member; use another text than 'base'.",
                    code="views-member-name-wrong",
                    model=name,
                )
            members[name] = _embed(name, member)
            if len(members[name]) != len(base_model):
                raise InputError(
                    f"Views: committee member {name!r} has {len(members[name]):,} rows, the base has "
                    f"{len(base_model):,}; embed the same images in the same order.",
                    code="views-rows-differ",
                    model=name,
                    expected=len(base_model),
                    found=len(members[name]),
                )
        object.__setattr__(self, "base", base_model)
        object.__setattr__(self, "committee", MappingProxyType(members))
        object.__setattr__(self, "identities", _as_identities(identities, len(base_model)))
        if paths is not None and len(paths) != len(base_model):
            raise InputError(
                f"Views: {len(paths):,} paths for {len(base_model):,} images.",
                code="views-paths-differ",
                expected=len(base_model),
                found=len(paths),
            )
        if odd := rows_not_utf8(paths or ()):
            raise InputError(
                f"Views: the paths of {name_rows(odd)} (counted from 0) are not UTF-8; rename these images.",
                code="views-paths-not-utf8",
                row=odd[0],
                count=len(odd),
            )
        object.__setattr__(self, "paths", None if paths is None else tuple(paths))

    @property
    def n_images(self) -> int:
        """Number of images, the same in every view."""
        return self.base.n_images

    @property
    def names(self) -> tuple[str, ...]:
        """`base`, then the committee members' names."""
        return ("base", *self.committee)

    def __iter__(self) -> Iterator[Embeddings]:
        yield self.base
        yield from self.committee.values()

    def __len__(self) -> int:
        """Return the number of models, N + 1: what iterating yields."""
        return 1 + len(self.committee)

    def take(self, rows: npt.ArrayLike | slice) -> Views:
        """Return the same views of some of the images; `rows` are row numbers, a mask or a slice."""
        index = np.arange(self.n_images)[rows if isinstance(rows, slice) else np.asarray(rows)]
        return Views(
            base=self.base.source[index],
            committee={name: member.source[index] for name, member in self.committee.items()},
            identities=None if self.identities is None else self.identities[index],
            paths=None if self.paths is None else [self.paths[row] for row in index],
        )

    def stack(self, other: Views) -> Views | None:
        """Return the images of both, whose embeddings stay where they are; None where that is not possible.

        As `concatenate` gives, without copying: only lengths and identities are.
        """
        if self.names != other.names:
            return None
        joined: dict[str, Embeddings] = {}
        for name, one, more in zip(self.names, self, other, strict=True):
            if not _are_alike(one, more):
                return None
            joined[name] = StackedEmbeddings.of(one, more)
        return Views(joined.pop("base"), joined, *_about([self, other]))

    @classmethod
    def concatenate(cls, parts: Sequence[Views], folder: Path | None = None) -> Views:
        """Return the images of several parts one after the other, in one set of views.

        Identities are compared by number across the parts; an image of a part without identities gets -1.
        Paths are kept where every part has them. Mixed precisions become the widest of them.

        Args:
            parts: views by the same models; the first one says in which order they come.
            folder: where to write `base.npy` and `committee/NAME.npy` block by block, for parts larger than
                memory; the result is memory-mapped. Without it the arrays are concatenated in memory.

        Raises:
            OutputExistsError: the folder holds such a file already.
        """
        if not parts:
            raise InputError(
                "Views.concatenate: there are no parts; give at least one.", code="views-parts-missing"
            )
        if len(parts) == 1 and folder is None:
            return parts[0]
        models = [dict(zip(part.names, part, strict=True)) for part in parts]
        for number, other in enumerate(models[1:], start=1):
            if _dimensions(other) != _dimensions(models[0]):
                raise InputError(
                    f"Views.concatenate: part {number} (counted from 0) has {_describe(other)}, part 0 "
                    f"has {_describe(models[0])}; embed all parts with the same models.",
                    code="views-parts-models-differ",
                    part=number,
                )
        joined: dict[str, Embeddings] = {}
        for name in parts[0].names:
            sources = [source for part in models for source in part[name].sources]
            if folder is None:
                source = np.concatenate(sources)
            else:
                file = folder / (f"{name}.npy" if name == "base" else f"committee/{name}.npy")
                source = _write_concatenated(file, sources)
            joined[name] = measured(source, np.concatenate([part[name].scale for part in models]))
        return cls(joined.pop("base"), joined, *_about(parts))

    @classmethod
    def load(cls, path: str | Path) -> Views:
        """Read views from a folder, `.npz` or Parquet file; see docs/formats.md for the layouts."""
        from cdp.data.views import read_views

        return read_views(path)

    def __reduce__(self) -> tuple[Any, ...]:
        return Views, (self.base, dict(self.committee), self.identities, self.paths)

    def __repr__(self) -> str:
        members = f" ({', '.join(self.committee)})" if self.committee else ""
        known = "without identities"
        if self.identities is not None:
            known = f"{len(np.unique(self.identities[self.identities >= 0])):,} identities"
        return (
            f"Views: {self.n_images:,} images, {known}, base and committee of {len(self.committee)}{members}"
        )


def _embed(name: str, given: Any) -> Embeddings:
    if isinstance(given, Embeddings):
        return given
    try:
        return Embeddings(given)
    except InputError as error:
        raise InputError(
            str(error).replace("Embeddings:", f"Embeddings of {name!r}:", 1), **error.details(model=name)
        ) from None


def _about(parts: Sequence[Views]) -> tuple[LongArray | None, list[str] | None]:
    """Return identities and paths of the images of several parts."""
    known = [np.full(part.n_images, -1) if part.identities is None else part.identities for part in parts]
    identities = None if all(part.identities is None for part in parts) else np.concatenate(known)
    paths = [path for part in parts for path in part.paths or ()]
    return identities, paths if all(part.paths is not None for part in parts) else None


def _dimensions(models: Mapping[str, Embeddings]) -> dict[str, int]:
    return {name: model.dimensions for name, model in models.items()}


def _describe(models: Mapping[str, Embeddings]) -> str:
    return ", ".join(f"{name} ({dimensions})" for name, dimensions in _dimensions(models).items())


def _write_concatenated(file: Path, sources: Sequence[AnyArray]) -> AnyArray:
    """Return the rows of several arrays in one new .npy file, memory-mapped.

    Written as a stream, not through a memory map: a full disk is then an OSError instead of a crash.
    """
    dtype = np.result_type(*sources)
    shape = (sum(map(len, sources)), sources[0].shape[1])
    file.parent.mkdir(parents=True, exist_ok=True)
    try:
        handle = file.open("xb")
    except FileExistsError:
        raise OutputExistsError(
            f"{file} already exists; give Views.concatenate a new folder.",
            code="views-file-exists",
            file=file,
        ) from None
    with handle:
        header = {"descr": np.lib.format.dtype_to_descr(dtype), "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(handle, header)
        rows = max(1, _BLOCK_BYTES // (shape[1] * dtype.itemsize))
        for source in sources:
            for start in range(0, len(source), rows):
                handle.write(np.ascontiguousarray(source[start : start + rows], dtype).data)
    mapped: AnyArray = np.load(file, mmap_mode="r", allow_pickle=False)
    return mapped


def _as_identities(given: npt.ArrayLike | None, n_images: int) -> LongArray | None:
    if given is None:
        return None
    array = np.asarray(given)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.shape != (n_images,):
        raise InputError(
            f"Views: identities have shape {array.shape} for {n_images:,} images; one identity per row is "
            "needed.",
            code="identities-shape-wrong",
            expected=n_images,
            found=array.shape,
        )
    if array.dtype == object or array.dtype.kind in "US":
        unknown = np.array([name is None for name in array])
        _, array = np.unique(array.astype(str), return_inverse=True)
        array = np.where(unknown, -1, array)
    elif array.dtype.kind == "f":
        values = array.astype(np.float64)
        odd = np.flatnonzero(~((values == np.floor(values)) & (np.abs(values) < 2.0**63)))
        if odd.size:
            raise InputError(
                f"Views: identities must be whole numbers or names; {name_rows(odd)} (counted from 0) "
                f"hold {array[odd[0]]}; write -1 for unknown.",
                code="identities-not-numbers-or-names",
                row=odd[0],
                count=len(odd),
                value=array[odd[0]],
            )
        array = array.astype(np.int64)
    elif array.dtype.kind not in "iu":
        raise InputError(
            f"Views: identities must be whole numbers or names, got {array.dtype}.",
            code="identities-type-wrong",
            found=str(array.dtype),
        )
    if array.dtype.kind == "u" and array.size and int(array.max()) > np.iinfo(np.int64).max:
        raise InputError("Views: identities must fit 64-bit signed numbers.", code="identities-too-large")
    return read_only(array, np.int64)
