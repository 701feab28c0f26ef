"""`cdp faces`: a set of drawn faces in one .zip file, and a sheet to look at."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from cdp.data.manifests import read_manifest
from cdp.lab.drawn_faces import FaceSettings, write_faces
from cdp.lab.drawn_faces.sheet import write_sheet
from cdp.progress import progress_bars


def write_set(
    out: Path, settings: FaceSettings, *, sheet: Path | None, threads: int, force: bool, quiet: bool
) -> None:
    """Run `cdp faces`; the sheet comes first, because it is quick and its name may be wrong."""
    if sheet is not None:
        write_sheet(sheet, settings, force=force)
    with progress_bars(not quiet) as progress:
        truth = write_faces(out, settings, threads=threads, progress=progress, force=force)
    if quiet:
        return
    manifest = read_manifest(out)
    Console().print(
        f"{manifest.n_images:,} pictures of {manifest.n_identities:,} people in {out}; "
        f"who is really on them: {truth}",
        highlight=False,
        soft_wrap=True,
    )
