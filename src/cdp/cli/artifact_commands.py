"""`cdp eval labels` and `cdp show`: figures of labels, and what a folder written by cdp holds."""

from __future__ import annotations

import re
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from typer import Argument, Option

from cdp.cli.app import JsonOption, app, evaluation, plain_errors
from cdp.errors import InputError

if TYPE_CHECKING:
    from rich.tree import Tree

    from cdp.types import Labels
    from cdp.types.arrays import LongArray


@evaluation.command("labels")
@plain_errors()
def eval_labels(
    labels: Annotated[Path, Argument(help="A labels folder, or a text file with one number per line.")],
    identities: Annotated[
        Path, Option(help="True identities: .npy, a text file with one per line, or views that carry them.")
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

    return Labels.load(path) if path.is_dir() else Labels.from_array(read_label_numbers(path))


def read_true_identities(path: Path) -> LongArray:
    """True identities from a file of them, or from views that carry them; negative = unknown."""
    import numpy as np

    from cdp.data.views import read_identities, read_identity_names, read_views

    if path.is_dir() or path.suffix in (".npz", ".parquet"):
        views = read_views(path)
        if views.identities is None:
            raise InputError(f"{path}: these views carry no identities.")
        return views.identities
    identities = read_identities(path)
    names = read_identity_names(path)
    # As names, -1.0 would be a person and no longer mean unknown.
    are_floats = names is not None and all(re.fullmatch(r"-?\d+\.\d*(e[-+]\d+)?|nan", name) for name in names)
    if are_floats or identities.dtype.kind not in "iu":
        kind = "numbers with a fraction" if are_floats else identities.dtype
        raise InputError(f"{path}: holds {kind}; identities are whole numbers or names, -1 where unknown.")
    return identities.astype(np.int64)


@app.command()
@plain_errors()
def show(
    folder: Annotated[Path, Argument(help="A folder written by cdp.")],
    json: Annotated[bool, Option("--json", help="Print the card as it is.")] = False,
) -> None:
    """What is this folder, and what was it made from?"""
    from cdp.store import read_card

    card = read_card(folder)
    if json:
        print(dumps(card.as_dict(), indent=2, ensure_ascii=False))
        return
    from rich.console import Console
    from rich.markup import escape
    from rich.tree import Tree

    # Whatever stands in a card is shown as it is: brackets in it are no markup.
    tree = Tree(
        f"[bold]{escape(str(folder))}[/bold]: {escape(card.kind)} (written by cdp {escape(card.cdp)})",
        highlight=True,
    )
    if card.summary:
        tree.add(escape(card.summary))
    files = tree.add("files")
    for name, array in card.arrays.items():
        shape = " x ".join(f"{side:,}" for side in array.shape)
        files.add(escape(f"{name}.npy  {array.dtype}  {shape}  sha256 {array.sha256[:12]}"))
    if card.settings:
        _add_settings(tree.add("settings"), card.settings)
    if card.made_from:
        sources = tree.add("made from")
        for name, digest in card.made_from.items():
            sources.add(escape(f"{name}  sha256 {digest[:12]}"))
    for inner in sorted(file.parent for file in folder.glob("*/card.json")):
        tree.add(escape(f"also here: cdp show {inner}"))
    Console().print(tree, soft_wrap=True)


def _add_settings(branch: Tree, settings: dict[str, Any]) -> None:
    from rich.markup import escape

    for name, value in settings.items():
        if isinstance(value, dict):
            _add_settings(branch.add(escape(name)), value)
        elif value is not None and value != []:
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            branch.add(escape(f"{name} = {text if len(text) <= 80 else text[:77] + '...'}"))
