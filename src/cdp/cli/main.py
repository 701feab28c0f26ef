"""`cdp`: what the shell starts; nothing is imported before signals are answered."""

from __future__ import annotations

from typing import Any

from cdp.cli.signals import answer_at_once, prepare_process


def run() -> None:
    """Do what was typed."""
    prepare_process()
    answer_at_once()
    from cdp.cli.app import run_app
    from cdp.cli.commands import app

    run_app(app)


def __getattr__(name: str) -> Any:
    if name == "app":
        from cdp.cli.commands import app

        return app
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
