"""All commands, in the order of the help."""

from __future__ import annotations

from cdp.cli import (
    artifact_commands,
    baseline_commands,
    collection_commands,
    embed_commands,
    export_commands,
    image_commands,
    label_commands,
    network_commands,
    photo_commands,
    recognition_commands,
    review_commands,
    run_commands,
    study_commands,
)
from cdp.cli.app import app as app

TOPICS = (
    run_commands,
    label_commands,
    collection_commands,
    photo_commands,
    artifact_commands,
    review_commands,
    export_commands,
    image_commands,
    network_commands,
    embed_commands,
    recognition_commands,
    baseline_commands,
    study_commands,
)
"""Importing a module adds its commands to the app; the help lists them in this order."""


def _topic(command: object) -> int:
    module = getattr(getattr(command, "callback", None), "__module__", "")
    return next((at for at, topic in enumerate(TOPICS) if topic.__name__ == module), len(TOPICS))


app.registered_commands.sort(key=_topic)
