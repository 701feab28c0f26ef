"""`cdp split` and `cdp check`: images into parts, and which of them cannot be read."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from cdp.data.check import Unreadable, check_images, write_unreadable
from cdp.data.manifests import read_manifest, without_unreadable
from cdp.data.rotations import rotated
from cdp.data.split import Split, split_by_identity
from cdp.errors import InputError
from cdp.files import writing_folder
from cdp.progress import progress_bars
from cdp.types import Manifest


@dataclass(frozen=True)
class SplitSettings:
    """Everything that can be said to `cdp split`; the names are those of the options."""

    manifest: str
    out: Path
    labeled: str = "1/11"
    unlabeled_parts: int = 10
    validation: str = "0"
    probes: str = "0"
    distractors: str = "0"
    seed: int = 0
    rotations: bool = False
    root: Path | None = None
    skip: Path | None = None
    skip_unreadable: bool = False
    table: str = "csv"
    threads: int = 0
    force: bool = False
    quiet: bool = False


def split_images(settings: SplitSettings) -> Split:
    """Run `cdp split`; the output folder appears only when every part is in it."""
    if settings.table not in ("csv", "parquet"):
        raise InputError(f"--table {settings.table}: choose csv or parquet.")
    shares = {
        name: parse_share(f"--{name}", getattr(settings, name))
        for name in ("labeled", "validation", "probes", "distractors")
    }
    unreadable: list[Unreadable] = []
    with writing_folder(settings.out, force=settings.force) as folder:
        manifest = read_manifest(settings.manifest, root=settings.root, skip=settings.skip)
        if settings.skip_unreadable:
            with progress_bars(not settings.quiet) as progress:
                unreadable = check_images(manifest, settings.threads, progress)
            write_unreadable(manifest, unreadable, folder / "unreadable.csv")
            manifest = without_unreadable(manifest, [one.row for one in unreadable])
        if settings.rotations:
            manifest = rotated(manifest)
        split = split_by_identity(
            manifest, **shares, unlabeled_parts=settings.unlabeled_parts, seed=settings.seed
        )
        said = {"manifest": settings.manifest, "rotations": settings.rotations, "unreadable": len(unreadable)}
        split = replace(split, settings={**split.settings, **said})
        split.fill(folder, f".{settings.table}")
    if not settings.quiet:
        _print_split(split, len(unreadable), settings.out)
    return split


def parse_share(option: str, text: str) -> float:
    """`1/11`, `0.25` or `25%` as a number."""
    try:
        if text.endswith("%"):
            return float(Fraction(text[:-1].strip()) / 100)
        return float(Fraction(text))
    except (ValueError, ZeroDivisionError):
        raise InputError(f"{option} {text}: not a share; write for example 1/11, 0.25 or 25%.") from None


def _print_split(split: Split, n_unreadable: int, out: Path) -> None:
    table = Table(title=f"Parts in {out}", title_justify="left")
    table.add_column("part")
    for name in ("images", "identities", "with one image"):
        table.add_column(name, justify="right")
    for name, part in split.parts():
        single = int(np.count_nonzero(part.sizes == 1))
        table.add_row(name, f"{part.n_images:,}", f"{part.n_identities:,}", f"{single:,}")
    console = Console()
    console.print(table)
    if n_unreadable:
        console.print(f"{n_unreadable:,} unreadable images were left out; see {out / 'unreadable.csv'}.")


def check_manifest(
    path: str,
    *,
    root: Path | None,
    list_file: Path | None,
    threads: int,
    force: bool,
    as_json: bool,
    quiet: bool,
) -> None:
    """Run `cdp check`.

    Raises:
        InputError: some images cannot be read; they have been printed and, if asked for, written.
    """
    if list_file is not None and list_file.exists() and not force:
        raise InputError(f"{list_file} is there already; choose another name or replace it with --force.")
    manifest = read_manifest(path, root=root)
    with progress_bars(not quiet) as progress:
        unreadable = check_images(manifest, threads, progress)
    if list_file is not None:
        write_unreadable(manifest, unreadable, list_file, force=force)
    if as_json:
        print(json.dumps(_as_dict(manifest, unreadable), indent=2, ensure_ascii=False))
    else:
        for one in unreadable:
            print(f"row {one.row} ({one.location}): {one.reason}")
        if not quiet:
            _print_counts(_as_dict(manifest, unreadable))
    if unreadable:
        way_out = (
            "leave them out with cdp split --skip-unreadable, or list them with --list."
            if list_file is None
            else f"leave them out with cdp split --skip {list_file}."
        )
        raise InputError(f"{len(unreadable):,} of {manifest.n_images:,} images cannot be read; {way_out}")


def _as_dict(manifest: Manifest, unreadable: list[Unreadable]) -> dict[str, object]:
    return {
        "images": manifest.n_images,
        "identities": manifest.n_identities,
        "identities_with_one_image": int(np.count_nonzero(manifest.sizes == 1)),
        "images_without_identity": int(np.count_nonzero(manifest.identities < 0)),
        "unreadable": [one._asdict() for one in unreadable],
    }


def _print_counts(counts: dict[str, object]) -> None:
    table = Table(show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, value in counts.items():
        number = len(value) if isinstance(value, list) else value
        table.add_row(name.replace("_", " "), f"{number:,}")
    Console().print(table)
