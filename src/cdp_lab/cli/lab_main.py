"""`cdp-lab`: what the shell starts."""

from __future__ import annotations

from typing import Any

from cdp.cli.signals import answer_at_once, prepare_process


def run() -> None:
    """Do what was typed."""
    prepare_process()
    answer_at_once()
    from cdp.cli.app import run_app

    run_app(_app())


def _app() -> Any:
    from cdp_lab.cli import baseline_commands, study_commands  # noqa: F401  # importing adds their commands
    from cdp_lab.cli.lab_app import app

    return app


def __getattr__(name: str) -> Any:
    if name == "app":
        return _app()
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
