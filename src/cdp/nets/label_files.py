"""Pseudo-labels for the rows of a manifest, from what `cdp label` or another tool wrote."""

from __future__ import annotations

import zipfile
from pathlib import Path

from scipy import sparse

from cdp.data.array_files import reading
from cdp.data.views import read_label_numbers
from cdp.errors import InputError
from cdp.nets.joint import PseudoPart
from cdp.types import Labels
from cdp.types.manifest import Manifest


def read_pseudo_part(manifest: Manifest, path: Path, *, soft: bool = False) -> PseudoPart:
    """Labels from a labels folder, a .npy or a text file, checked against the manifest's rows.

    Args:
        manifest: the images that were labeled.
        path: the labels.
        soft: use `soft_labels.npz` of the folder (`cdp label --soft-depth`).
    """
    with reading(path):
        if path.is_dir():
            labels = Labels.load(path)
            _compare_paths(manifest, path)
        else:
            if not path.exists():
                raise InputError(
                    f"{path}: there are no labels; give a folder written by cdp label, a .npy or a text file."
                )
            labels = Labels.from_array(read_label_numbers(path))
        try:
            return PseudoPart(manifest, labels, _read_soft(path) if soft else None)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None


def _read_soft(path: Path) -> sparse.csr_array:
    file = path / "soft_labels.npz" if path.is_dir() else path.with_suffix(".npz")
    try:
        return sparse.csr_array(sparse.load_npz(file))
    except FileNotFoundError:
        raise InputError(
            f"{file}: there are no soft labels; make them with cdp label --soft-depth 3."
        ) from None
    except (ValueError, OSError, KeyError, zipfile.BadZipFile):
        raise InputError(
            f"{file}: damaged or not a sparse matrix; run cdp label --soft-depth again."
        ) from None


def _compare_paths(manifest: Manifest, folder: Path) -> None:
    """Where the labels know which images they are about, they must be this manifest's, in this order."""
    table = folder / "labels.parquet"
    if not table.exists():
        return
    import pyarrow.parquet as parquet

    if "path" not in parquet.read_schema(table).names:
        return
    paths = parquet.read_table(table, columns=["path"]).column("path").to_pylist()
    for row, (labeled, here) in enumerate(zip(paths, manifest.locations, strict=False)):
        # The same images may lie behind another prefix; a folder and a name are enough to recognize them.
        if labeled != here and Path(labeled).parts[-2:] != Path(here).parts[-2:]:
            raise InputError(
                f"{folder}: its row {row} is about {labeled}, the manifest's is {here}; give the manifest that was "
                "embedded and labeled."
            )
