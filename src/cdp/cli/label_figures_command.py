"""`cdp eval labels`: figures of labels against true identities."""

from __future__ import annotations

import re
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Option

from cdp.cli.app import JsonOption, evaluation, plain_errors
from cdp.cli.help_pages import Command, help_page
from cdp.errors import InputError

if TYPE_CHECKING:
    from cdp.types import Labels
    from cdp.types.arrays import LongArray


@evaluation.command("labels", cls=Command)
@help_page("cdp eval labels faces --identities truth.npy")
@plain_errors()
def eval_labels(
    labels: Annotated[
        Path,
        Argument(metavar="LABELS", help="A collection, saved labels, or a .npy or text file of numbers."),
    ],
    identities: Annotated[
        Path, Option(help="True identities: .npy, a text file with one per line, or views that have them.")
    ],
    json: JsonOption = False,
) -> None:
    """Pairwise and BCubed figures, NMI, coverage and sizes of labels."""
    import msgspec

    from cdp.cli.terminal import print_true_figures
    from cdp.evaluate.label_figures import measure_labels

    figures = measure_labels(_read_labels(labels), read_true_identities(identities))
    if json:
        print(dumps(msgspec.to_builtins(figures), indent=2, allow_nan=False))
    else:
        print_true_figures(figures)


def _read_labels(path: Path) -> Labels:
    from cdp.data.views import read_label_numbers
    from cdp.types import Labels

    if not path.is_dir():
        return Labels.from_array(read_label_numbers(path))
    from cdp.storage.files import artifact_kind

    if artifact_kind(path) == "Labels":
        return Labels.load(path)
    from cdp.collection.collection import open_collection

    return open_collection(path).labels


def read_true_identities(path: Path) -> LongArray:
    """Read true identities from a file of them, or from views that have them; negative = unknown."""
    import numpy as np

    from cdp.data.views import read_identities, read_identity_names, read_views

    if path.is_dir() or path.suffix in (".npz", ".parquet"):
        views = read_views(path)
        if views.identities is None:
            raise InputError(
                f"{path}: these views have no identities.", code="views-without-identities", file=path
            )
        return views.identities
    identities = read_identities(path)
    names = read_identity_names(path)
    # As names, -1.0 would be a person and no longer mean unknown.
    are_floats = names is not None and all(re.fullmatch(r"-?\d+\.\d*(e[-+]\d+)?|nan", name) for name in names)
    if are_floats or identities.dtype.kind not in "iu":
        kind = "numbers with a fraction" if are_floats else identities.dtype
        raise InputError(
            f"{path}: holds {kind}; identities are whole numbers or names, -1 where unknown.",
            code="identities-not-whole",
            file=path,
            found=str(kind),
        )
    return identities.astype(np.int64)
