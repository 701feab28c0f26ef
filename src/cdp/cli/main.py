"""`cdp`: everything that can be typed."""

from __future__ import annotations

from collections.abc import Callable

from cdp.cli import (
    artifact_commands,
    baseline_commands,
    face_commands,
    image_commands,
    label_commands,
    network_commands,
    recipe_commands,
    recognition_commands,
    report_commands,
    run_commands,
    study_commands,
)
from cdp.cli.app import app

COMMANDS = (
    run_commands,
    study_commands,
    recipe_commands,
    report_commands,
    face_commands,
    image_commands,
    network_commands,
    label_commands,
    artifact_commands,
    recognition_commands,
    baseline_commands,
)
"""Importing a module of commands adds them to the app, in this order in the help."""

run: Callable[[], None] = app
