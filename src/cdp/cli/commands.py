"""All commands, in the order of the help: find identities, train a network, measure and prepare."""

from __future__ import annotations

from cdp.cli import (
    collection_commands,
    data_commands,
    embed_command,
    label_command,
    label_figures_command,
    recognition_commands,
    train_commands,
)
from cdp.cli.app import app as app
from cdp.cli.app import data, evaluation

MODULES = (
    collection_commands,
    data_commands,
    embed_command,
    label_command,
    label_figures_command,
    recognition_commands,
    train_commands,
)
"""Importing a module adds its commands to the app."""

app.add_typer(evaluation, name="eval")
app.add_typer(data, name="data")
