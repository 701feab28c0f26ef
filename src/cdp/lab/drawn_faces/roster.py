"""Who is on which picture: how many pictures everybody has, who looks like whom, what is junk or filed wrongly."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from cdp.errors import InputError, name_rows
from cdp.lab.drawn_faces.random_numbers import keys, uniforms
from cdp.types.arrays import AnyArray, BoolArray, LongArray

_COUNTS, _FAMILIES, _ACCIDENTS = 0, 1, 2
JUNK = -1


@dataclass(frozen=True)
class FaceSettings:
    """Everything that decides what is drawn.

    Attributes:
        identities: how many people.
        images: pictures per person; numbers vary mildly around it, and everybody has two at least.
        size: width and height in pixels.
        seed: other seeds draw other people.
        junk: share of pictures that show nobody one could name.
        mislabeled: share of pictures that show somebody else than the label says.
        lookalikes: share of people who are small variations of somebody before them.
        difficulty: scales everything that differs between two pictures of a person; 0 = nothing differs.
    """

    identities: int = 770
    images: int = 20
    size: int = 40
    seed: int = 0
    junk: float = 0.01
    mislabeled: float = 0.01
    lookalikes: float = 0.2
    difficulty: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what cannot be drawn."""
        for name, least, most in (
            ("identities", 2, 999_999),
            ("images", 2, 9_999),
            ("size", 16, 512),
            ("seed", 0, 2**63 - 1),
        ):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
                raise InputError(f"FaceSettings({name}={value!r}): give a whole number.")
            if not least <= value <= most:
                raise InputError(f"FaceSettings({name}={value}): choose a number from {least:,} to {most:,}.")
        for name in ("junk", "mislabeled", "lookalikes"):
            share = getattr(self, name)
            if not 0 <= share <= 1:
                hint = f" Did you mean {share / 100:g}?" if 1 < share <= 100 else ""
                raise InputError(f"FaceSettings({name}={share}): a share lies in [0, 1].{hint}")
        if self.junk + self.mislabeled > 1:
            raise InputError(
                f"FaceSettings(junk={self.junk}, mislabeled={self.mislabeled}): together at most 1."
            )
        if not (math.isfinite(self.difficulty) and 0 <= self.difficulty <= 5):
            raise InputError(f"FaceSettings(difficulty={self.difficulty}): choose a number from 0 to 5.")


@dataclass(frozen=True)
class Roster:
    """One row per picture, in the order of identities.

    Attributes:
        people: i8 (n,), whose folder the picture lies in.
        shots: i8 (n,), its number among the pictures of that folder.
        shown: i8 (n,), who is on it; -1 = junk.
    """

    people: LongArray
    shots: LongArray
    shown: LongArray

    def __len__(self) -> int:
        return len(self.people)

    def take(self, rows: AnyArray) -> Roster:
        """Some rows, in the given order."""
        return Roster(self.people[rows], self.shots[rows], self.shown[rows])


def make_roster(settings: FaceSettings) -> Roster:
    """All pictures of a set.

    What is said of a picture depends on the seed, its person and its number there, so a set with more people or
    more pictures per person holds the smaller one.
    """
    everybody = np.arange(settings.identities)
    draw = uniforms(keys(settings.seed, _COUNTS, everybody), 1)[:, 0]
    # Between two thirds and four thirds: people in the wild have uneven numbers of pictures.
    counts = np.maximum(2, np.rint(settings.images * (2 + 2 * draw) / 3)).astype(np.int64)
    people = np.repeat(everybody, counts)
    shots = np.arange(len(people)) - np.repeat(np.cumsum(counts) - counts, counts)
    accident, who = uniforms(keys(settings.seed, _ACCIDENTS, people, shots), 2).T
    # Somebody before them, because those are there in a set of any size; the first two are mistaken for each other.
    stranger = np.where(people > 0, np.minimum((who * people).astype(np.int64), people - 1), 1)
    shown = np.where(accident < settings.junk + settings.mislabeled, stranger, people)
    shown[accident < settings.junk] = JUNK
    return Roster(people, shots, shown)


def find_families(settings: FaceSettings, people: LongArray) -> tuple[LongArray, BoolArray]:
    """(after whom a person is made, whether anybody); nobody is made after somebody who is a variation already."""
    parents = people
    varied = None
    while True:
        lot, who = uniforms(keys(settings.seed, _FAMILIES, parents), 2).T
        made_after = (lot < settings.lookalikes) & (parents > 0)
        varied = made_after if varied is None else varied
        if not made_after.any():
            return parents, varied
        # Somebody before them, so the way up ends; the first person is nobody's variation.
        parents = np.where(made_after, np.minimum((who * parents).astype(np.int64), parents - 1), parents)


def choose_rows(rows: AnyArray | None, n_images: int) -> AnyArray:
    """The rows somebody asked for, or all."""
    if rows is None:
        return np.arange(n_images)
    chosen = np.asarray(rows)
    if chosen.ndim != 1 or not (np.issubdtype(chosen.dtype, np.integer) or chosen.size == 0):
        raise InputError("draw_faces: rows are a list of whole numbers.")
    chosen = chosen.astype(np.int64)
    outside = chosen[(chosen < 0) | (chosen >= n_images)]
    if len(outside):
        raise InputError(
            f"draw_faces: there are {n_images:,} pictures, counted from 0; no {name_rows(outside)}."
        )
    return chosen
