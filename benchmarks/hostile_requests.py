"""The review server under requests that no page of ours sends: what is answered wrongly, and whether an answer is lost."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

SEED = 3


def measure(*, quick: bool) -> dict[str, Any]:
    sys.path.insert(0, str(Path(__file__).parents[1]))
    from tests.hostile_requests import attack
    from tests.review_album import make_album
    from tests.review_collection import make_collection

    from cdp.collection.corrections import read_journal

    n_requests = 500 if quick else 10_000
    figures: dict[str, Any] = {}
    for name, make in (("collection", lambda home: make_collection(home / "faces")), ("album", make_album)):
        with tempfile.TemporaryDirectory(prefix="requests-") as folder:
            made = make(Path(folder))
            wrong = list(attack(made.folder, n_requests, SEED))
            written = len(read_journal(made.folder))
        figures[name] = {"requests": n_requests, "wrong": len(wrong), "entries": written}
        print(
            f"{name}: {n_requests:,} requests, {len(wrong):,} answered wrongly, {written:,} entries written",
            flush=True,
        )
        for one in wrong[:10]:
            print(f"    {one[:300]}")
    return figures
