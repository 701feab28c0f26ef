"""What an input is: photos, aligned face crops or embeddings; it says so, and `--input` overrides it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cdp.errors import InputError

KINDS = ("photos", "faces", "embeddings")
InputKindOption = Annotated[
    str,
    typer.Option(
        "--input",
        metavar="KIND",
        help="Kind of INPUT: photos, faces (aligned crops) or embeddings; auto = detect.",
        rich_help_panel="Input",
    ),
]
_CROP = 112
_SAMPLE = 32


def find_kind(source: str, given: str, *, quiet: bool = False) -> str:
    """`photos`, `faces` or `embeddings`; what was found out is said, unless `quiet`.

    Raises:
        InputError: there is nothing at `source`, or `given` is no kind.
    """
    if given in KINDS:
        return given
    if given != "auto":
        raise InputError(
            f"--input {given}: choose one of auto, {', '.join(KINDS)}.",
            code="input-kind-unknown",
            option="--input",
            value=given,
        )
    if not Path(source).exists() and not any(sign in source for sign in "*{["):
        raise InputError(
            f"{source}: no such file or folder; give photos, face crops or embeddings.",
            code="path-missing",
            file=source,
        )
    kind, why = _look(source)
    if not quiet:
        others = " or ".join(one for one in KINDS if one != kind)
        typer.echo(f"{source}: {why}; otherwise give --input {others}.", err=True)
    return kind


def _look(source: str) -> tuple[str, str]:
    from cdp.data.views import looks_like_views

    path = Path(source)
    if path.suffix.lower() in (".npy", ".npz", ".bin", ".h5") or (path.exists() and looks_like_views(source)):
        return "embeddings", "embeddings"
    from cdp.data.image_folders import is_image
    from cdp.data.images import read_header

    files = [one for one in path.rglob("*") if is_image(one.name)] if path.is_dir() else []
    if path.is_dir() and not files:
        return "embeddings", "taken as embeddings (a folder without images)"
    step = max(1, len(files) // _SAMPLE)
    headers = [read_header(str(file)) for file in sorted(files)[::step][:_SAMPLE]]
    if {(one.width, one.height) for one in headers if one is not None} == {(_CROP, _CROP)}:
        return "faces", f"taken as aligned face crops (images of {_CROP} x {_CROP} pixels)"
    return "photos", "taken as photos"
