"""A command that is killed, or finds the disk full, right before its n-th change of a file or folder.

The moment is counted and not timed, so that it is the same one on every machine.
"""

import errno
import mmap
import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

_GROWING = ("os.rename", "os.mkdir", "os.link", "os.symlink", "open")
_REMOVING = ("os.remove", "os.rmdir")
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


def kill(_: str) -> None:
    """Die as by `kill -9`."""
    os.kill(os.getpid(), signal.SIGKILL)


def fill_disk(path: str) -> None:
    """Fail as a full disk does."""
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


@dataclass(frozen=True)
class Fault:
    """What happens at the n-th change below a folder; 0 = never, the changes are only counted.

    A full disk lets files be removed, so removals count only for kills.
    """

    what: Callable[[str], None]
    at: int
    home: Path
    _count: mmap.mmap = field(default_factory=lambda: mmap.mmap(-1, 8), repr=False)

    @property
    def n_changes(self) -> int:
        """How many changes there were, in whichever process."""
        return int.from_bytes(self._count[:], "little")

    def arm(self) -> None:
        """Watch this process from now on, to its end."""
        sys.addaudithook(self._watch)
        object.__setattr__(self, "_process", os.getpid())

    def _watch(self, event: str, values: tuple[Any, ...]) -> None:
        events = _GROWING if self.what is fill_disk else _GROWING + _REMOVING
        if event not in events or getattr(self, "_process", 0) != os.getpid():
            return
        if not isinstance(values[0], str | bytes | os.PathLike) or (event == "open" and not _writes(values)):
            return
        path = os.path.abspath(os.fsdecode(values[0]))
        if not path.startswith(f"{self.home.resolve()}{os.sep}"):
            return
        self._count[:] = (self.n_changes + 1).to_bytes(8, "little")
        if self.n_changes == self.at:
            self.what(path)


def _writes(values: tuple[Any, ...]) -> bool:
    return len(values) > 2 and isinstance(values[2], int) and bool(values[2] & _WRITING)
