"""What a run logs: JSON lines, and TensorBoard for those who ask."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cdp.files import write_text
from cdp.nets.torchvision_guard import require

LOG = "log.jsonl"


class TrainingLog:
    """One line per interval; lines after the checkpoint that a run goes on from are taken back."""

    def __init__(self, folder: Path, first_step: int, tensorboard: bool = False) -> None:
        self.file = folder / LOG
        kept = [line for line in read_log(folder) if line["step"] <= first_step]
        write_text(self.file, "".join(json.dumps(line) + "\n" for line in kept))
        self._board: Any = None
        if tensorboard:
            require("tensorboard", "tensorboard")
            board = require("torch.utils.tensorboard")
            self._board = board.SummaryWriter(str(folder / "tensorboard"), purge_step=first_step)

    def write(self, line: dict[str, Any]) -> None:
        """Append a line; it is on disk when this returns."""
        with self.file.open("a", encoding="utf-8") as handle:
            handle.write(json.dumps(line) + "\n")
        if self._board is not None:
            for name in ("loss", "rate", "images_per_second"):
                self._board.add_scalar(name, line[name], line["step"])

    def close(self) -> None:
        """Close TensorBoard's file."""
        if self._board is not None:
            self._board.close()


def read_log(folder: str | Path) -> list[dict[str, Any]]:
    """All whole lines of a run's log; one cut off by a kill is left out."""
    file = Path(folder) / LOG
    lines: list[dict[str, Any]] = []
    for text in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            continue
    return lines
