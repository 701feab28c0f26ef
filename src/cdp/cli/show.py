"""`cdp show`: what a folder is, and what it was made from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.tree import Tree

from cdp.store import read_card


def show_folder(folder: Path, *, as_json: bool) -> None:
    """Print the card, as a tree or as JSON."""
    card = read_card(folder)
    if as_json:
        print(json.dumps(card.as_dict(), indent=2, ensure_ascii=False))
        return
    console = Console()
    tree = Tree(f"[bold]{folder}[/bold]: {card.kind} (written by cdp {card.cdp})", highlight=True)
    if card.summary:
        tree.add(card.summary)
    arrays = tree.add("files")
    for name, about in card.arrays.items():
        shape = " x ".join(f"{side:,}" for side in about.shape)
        arrays.add(f"{name}.npy  {about.dtype}  {shape}  sha256 {about.sha256[:12]}")
    if card.settings:
        _add(tree.add("settings"), card.settings)
    if card.made_from:
        sources = tree.add("made from")
        for name, digest in card.made_from.items():
            sources.add(f"{name}  sha256 {digest[:12]}")
    for inner in sorted(file.parent for file in folder.glob("*/card.json")):
        tree.add(f"also here: cdp show {inner}")
    console.print(tree, soft_wrap=True)


def _add(branch: Tree, values: dict[str, Any]) -> None:
    for name, value in values.items():
        if isinstance(value, dict):
            _add(branch.add(name), value)
        elif value is not None and value != []:
            text = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            branch.add(f"{name} = {text if len(text) <= 80 else text[:77] + '...'}")
