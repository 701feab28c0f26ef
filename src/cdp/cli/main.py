"""`cdp`: everything that can be typed."""

from __future__ import annotations

from collections.abc import Callable

from cdp.cli import label_commands, recognition_commands
from cdp.cli.app import app

COMMANDS = (label_commands, recognition_commands)
"""Importing a module of commands adds them to the app; naming them here keeps the imports in use."""

run: Callable[[], None] = app
