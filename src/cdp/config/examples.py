"""Recipes that come with the product."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cdp.config.reading import read_recipe
from cdp.config.sections import RunRecipe

_QUICK = (
    ("drawn.identities", "440"),
    ("drawn.difficulty", "0.15"),
    ("drawn.test_identities", "150"),
    ("train.epochs", "12"),
    ("joint.epochs", "5"),
    ("evaluation.replicates", "200"),
)
"""What `cdp demo --quick` changes."""


def demo_file() -> Path:
    """The recipe of `cdp demo`."""
    return Path(__file__).with_name("demo.toml")


def demo_recipe(*, quick: bool = False, overrides: Sequence[str] = ()) -> RunRecipe:
    """The demo's recipe, changed as the command line says."""
    less = [word for key, value in _QUICK for word in (f"--{key}", value)] if quick else []
    return read_recipe(demo_file(), [*less, *overrides])
