"""Roster of pictures: how many per person, lookalikes, junk and wrong labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from cdp.errors import InputError, name_rows
from cdp.types.arrays import AnyArray, BoolArray, LongArray
from cdp_lab.drawn_faces.random_numbers import keys, uniforms
from cdp_lab.face_settings import FaceSettings

_COUNTS, _FAMILIES, _ACCIDENTS = 0, 1, 2
JUNK = -1


@dataclass(frozen=True)
class Roster:
    """One row per picture, in the order of identities.

    Attributes:
        people: i8 (n,), whose folder the picture is in.
        shots: i8 (n,), its number among the pictures of that folder.
        shown: i8 (n,), who is on it; -1 = junk.
    """

    people: LongArray
    shots: LongArray
    shown: LongArray

    def __len__(self) -> int:
        return len(self.people)

    def take(self, rows: AnyArray) -> Roster:
        """Return some rows, in the given order."""
        return Roster(self.people[rows], self.shots[rows], self.shown[rows])


def make_roster(settings: FaceSettings) -> Roster:
    """Return all pictures of a set.

    What is said of a picture depends on the seed, its person and its number there, so a set with more people
    or more pictures per person holds the smaller one.
    """
    identities = np.arange(settings.identities)
    draw = uniforms(keys(settings.seed, _COUNTS, identities), 1)[:, 0]
    # Between two thirds and four thirds: people in the wild have uneven numbers of pictures.
    counts = np.maximum(2, np.rint(settings.images * (2 + 2 * draw) / 3)).astype(np.int64)
    people = np.repeat(identities, counts)
    shots = np.arange(len(people)) - np.repeat(np.cumsum(counts) - counts, counts)
    accident, who = uniforms(keys(settings.seed, _ACCIDENTS, people, shots), 2).T
    # An earlier person, because those are in a set of any size; the first two are mistaken for each other.
    another = np.where(people > 0, np.minimum((who * people).astype(np.int64), people - 1), 1)
    shown = np.where(accident < settings.junk + settings.mislabeled, another, people)
    shown[accident < settings.junk] = JUNK
    return Roster(people, shots, shown)


def find_families(settings: FaceSettings, people: LongArray) -> tuple[LongArray, BoolArray]:
    """(whose variation a person is, whether they are one); no one is a variation of a variation."""
    parents = people
    varied = None
    while True:
        lot, who = uniforms(keys(settings.seed, _FAMILIES, parents), 2).T
        made_after = (lot < settings.lookalikes) & (parents > 0)
        varied = made_after if varied is None else varied
        if not made_after.any():
            return parents, varied
        # An earlier person, so the loop ends; the first one is no variation.
        parents = np.where(made_after, np.minimum((who * parents).astype(np.int64), parents - 1), parents)


def check_rows(rows: AnyArray | None, n_images: int) -> AnyArray:
    """Return the given rows, or all."""
    if rows is None:
        return np.arange(n_images)
    numbers = np.asarray(rows)
    if numbers.ndim != 1 or not (np.issubdtype(numbers.dtype, np.integer) or numbers.size == 0):
        raise InputError("draw_faces: rows are a list of whole numbers.", code="drawn-rows-not-whole")
    outside = numbers[(numbers < 0) | (numbers >= n_images)]
    if len(outside):
        raise InputError(
            f"draw_faces: there are {n_images:,} pictures, counted from 0; no {name_rows(outside)}.",
            code="drawn-rows-unknown",
            row=outside[0],
            count=len(outside),
            n_images=n_images,
        )
    return numbers.astype(np.int64)
