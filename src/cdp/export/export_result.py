"""ExportResult: what an export wrote."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ExportResult:
    """What an export wrote.

    Attributes:
        n_images: images, photos or faces that were written, as the format has them.
        n_people: people that were written.
        notes: sentences about what was left out.
    """

    n_images: int
    n_people: int
    notes: tuple[str, ...] = ()
