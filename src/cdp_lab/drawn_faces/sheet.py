"""A sheet of drawn faces: a row per person, lookalikes next to each other, junk and wrong labels marked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from cdp.errors import InputError
from cdp.storage.files import writing_file
from cdp.types.arrays import LongArray
from cdp_lab.drawn_faces.album import draw_faces, person_name
from cdp_lab.drawn_faces.roster import JUNK, Roster, find_families, make_roster
from cdp_lab.face_settings import FaceSettings

_MARGIN, _GAP, _HEADING = 92, 3, 22
_INK, _JUNK_COLOR, _WRONG_COLOR, _FAMILY_COLOR = "#333333", "#c8553d", "#8d3fb0", "#1b7f5c"


@dataclass(frozen=True)
class SheetPlan:
    """People of a sheet in order, whom they resemble, and which pictures of each (roster rows)."""

    people: LongArray
    parents: LongArray
    rows: LongArray


def plan_sheet(settings: FaceSettings, n_people: int = 12, n_pictures: int = 14) -> SheetPlan:
    """Order the sheet: two families of lookalikes, then people with most junk and wrong labels."""
    roster = make_roster(settings)
    n_people = min(n_people, settings.identities)
    parents, varied = find_families(settings, np.arange(settings.identities))
    wrong = np.bincount(roster.people, roster.shown != roster.people, settings.identities)
    families = np.bincount(parents[varied], minlength=settings.identities)
    order: list[int] = []
    for oldest in np.argsort(-families, kind="stable")[:2]:
        children = np.flatnonzero(varied & (parents == oldest))[:2]
        if len(children):
            order += [int(oldest), *children.tolist()]
    order += [int(one) for one in np.argsort(-wrong, kind="stable") if int(one) not in set(order)]
    people = np.array(order[:n_people])
    rows = np.full((n_people, n_pictures), -1, np.int64)
    for line, person in enumerate(people):
        own = np.flatnonzero(roster.people == person)
        odd = own[roster.shown[own] != person][: n_pictures // 2]
        usual = own[roster.shown[own] == person][: n_pictures - len(odd)]
        rows[line, : len(usual) + len(odd)] = [*usual, *odd]
    return SheetPlan(people, parents[people], rows)


def draw_sheet(settings: FaceSettings, n_people: int = 12, n_pictures: int = 14) -> Image.Image:
    """Return the sheet as a picture."""
    plan = plan_sheet(settings, n_people, n_pictures)
    roster = make_roster(settings)
    shown = draw_faces(settings, plan.rows[plan.rows >= 0])
    step = settings.size + _GAP
    height = _HEADING + step * len(plan.people)
    sheet = Image.new("RGB", (_MARGIN + step * plan.rows.shape[1], height), "white")
    pen = ImageDraw.Draw(sheet)
    font = ImageFont.load_default(11)
    heading = (("lookalike", _FAMILY_COLOR), ("junk", _JUNK_COLOR), ("mislabeled", _WRONG_COLOR))
    left = float(_GAP)
    for text, color in heading:
        pen.text((left, 4), text, color, font)
        left += pen.textlength(text, font) + 14
    pictures = iter(shown.pixels)
    for line, (person, parent) in enumerate(zip(plan.people.tolist(), plan.parents.tolist(), strict=True)):
        top = _HEADING + line * step
        pen.text((_GAP, top + settings.size // 2 - 14), person_name(settings, person), _INK, font)
        if parent != person:
            pen.text((_GAP, top + settings.size // 2), f"like {parent:06d}", _FAMILY_COLOR, font)
        for column, row in enumerate(plan.rows[line].tolist()):
            if row >= 0:
                corner = (_MARGIN + column * step, top)
                sheet.paste(Image.fromarray(next(pictures)), corner)
                _mark(pen, corner, settings.size, roster, row)
    return sheet


def write_sheet(
    out: str | Path,
    settings: FaceSettings,
    n_people: int = 12,
    n_pictures: int = 14,
    *,
    force: bool = False,
) -> None:
    """Write a sheet as .png, whole or not at all."""
    file = Path(out)
    if file.suffix.lower() != ".png":
        raise InputError(
            f"{out}: a sheet is written as .png; choose this ending.", code="sheet-ending-wrong", file=out
        )
    with writing_file(file, force=force) as partial:
        draw_sheet(settings, n_people, n_pictures).save(partial, "PNG", optimize=True)


def _mark(pen: ImageDraw.ImageDraw, corner: tuple[int, int], size: int, roster: Roster, row: int) -> None:
    if roster.shown[row] == roster.people[row]:
        return
    color = _JUNK_COLOR if roster.shown[row] == JUNK else _WRONG_COLOR
    left, top = corner
    pen.rectangle((left - 2, top - 2, left + size + 1, top + size + 1), outline=color, width=2)
