"""Where the benchmarks find real data; docs/data.md says where it is to be had."""

from __future__ import annotations

import os
from pathlib import Path


def data_folder(name: str) -> Path | None:
    """The folder of a data set, or None: in $CDP_DATA, else in `data/` here, else in `../shared/data` beside the project."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    given = os.environ.get("CDP_DATA")
    folders = [Path(given).expanduser()] if given else [Path("data"), beside]
    return next((folder / name for folder in folders if (folder / name).is_dir()), None)
