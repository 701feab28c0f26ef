"""Groups of images with their labels, as in the paper's figure: thumbnails, or paths without pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cdp.types import Status
from cdp.types.arrays import LongArray
from cdp.web.page_views import Swatch
from cdp.web.report.report_inputs import SIDE, Artifacts, Thumbnail, thumbnails
from cdp.web.report.report_views import Box, Gallery, GalleryRow, Run, Section
from cdp.web.report.survey import Survey
from cdp.web.words import counted, decimals, percent

MOST_MEMBERS = 10
MOST_MISSED = 4
_NO_ROWS = np.empty(0, np.int64)
_NAMES = ("groups", "Groups", "Groups and their labels")


def groups_section(artifacts: Artifacts, survey: Survey | None) -> Section:
    """Galleries of ordinary groups, typical failures, lossy and uncertain groups, and likely splits."""
    if survey is None or not len(survey.sizes):
        return Section(*_NAMES, text="No groups.")
    show = Galleries(artifacts, survey, thumbnails(artifacts.images))
    galleries = [gallery for gallery in show.all() if gallery.rows]
    return Section(
        *_NAMES,
        lead=_sentence(survey),
        legend=_legend(survey.identities is not None),
        note=picture_note(show, galleries),
        galleries=galleries,
    )


def picture_note(show: Galleries, galleries: Sequence[Gallery]) -> str:
    """Why there are no pictures, or not all of them."""
    if show.thumbnail is None and show.artifacts.images is None:
        return "Image paths are unknown; images are listed by row with their confidence."
    if show.thumbnail is None:
        return "The images could not be read; they are listed by path with their confidence."
    shown = (box for one in galleries for row in one.rows for run in row.runs for box in run.boxes)
    return "" if all(box.source for box in shown) else "A question mark is an image that could not be read."


def _sentence(survey: Survey) -> str:
    n_groups = len(survey.sizes)
    if survey.identities is None:
        return f"{counted(n_groups, 'group')}; true identities are unknown. Each row is one pseudo-identity."
    pure = int(np.count_nonzero(survey.n_wrong == 0))
    split = len(survey.split_identities())
    missed = int(survey.n_missed.sum())
    return (
        f"Each row is one pseudo-identity. Of {counted(n_groups, 'group')}, {percent(pure / n_groups)} "
        f"contain one identity only; {counted(int(survey.wrong.sum()), 'image')} in the others do not belong "
        f"there. {counted(split, 'identity is', 'identities are')} spread over several groups, and "
        f"{counted(missed, 'discarded image')} would have belonged to a group."
    )


def _legend(known: bool) -> list[Swatch]:
    member = Swatch("box", "member of the group")
    if not known:
        return [member, Swatch("box missed", "discarded image near this group")]
    return [
        member,
        Swatch("box other", "member of another identity than the majority"),
        Swatch("box missed", "discarded member of the group's identity"),
    ]


def _select(survey: Survey) -> dict[str, list[int]]:
    """Return which groups each gallery shows; none is shown twice."""
    by_size = np.argsort(-survey.sizes, kind="stable")
    spaced = np.unique(np.linspace(0, len(by_size) - 1, min(6, len(by_size))).round().astype(np.int64))
    selection = {"ordinary": [int(group) for group in by_size[spaced]]}
    seen = set(selection["ordinary"])
    for name, score, most in (
        ("joined", survey.n_wrong, 5),
        ("lossy", survey.n_missed, 4),
        ("uncertain", (1 - survey.confidence) * survey.sizes * (survey.sizes - 1) / 2, 4),
    ):
        order = np.argsort(-score, kind="stable")[: most + len(seen)].tolist()
        selection[name] = [group for group in order if score[group] > 0 and group not in seen][:most]
        seen |= set(selection[name])
    return selection


@dataclass(frozen=True)
class Galleries:
    """Rows of images; listed by path if `thumbnail` is None."""

    artifacts: Artifacts
    survey: Survey
    thumbnail: Thumbnail | None
    side: int = SIDE

    @property
    def thing(self) -> str:
        """What a row is: a face of a photo, or an image."""
        return "image" if self.artifacts.photos is None else "face"

    def all(self) -> list[Gallery]:
        """Return all galleries, of which some may be empty."""
        known, selection = self.survey.identities is not None, _select(self.survey)
        return [
            self._groups(
                "Groups by size",
                "Evenly spaced from the largest to the smallest.",
                selection["ordinary"],
            ),
            self._groups(
                "Mixed groups",
                "Groups with most wrong members, worst first.",
                selection["joined"],
            ),
            self._split_identities(),
            self._groups(
                "Groups that lost most images" if known else "Groups with most discarded images nearby",
                "Identities with most discarded images."
                if known
                else "Groups nearest to most discarded images, which may be other people.",
                selection["lossy"],
            ),
            self._groups(
                "Least certain groups",
                "Groups most likely to contain two identities, as in mixed_groups.csv. Check these first.",
                selection["uncertain"],
            ),
            self.split_groups(),
        ]

    def _groups(self, title: str, reading: str, groups: Sequence[int]) -> Gallery:
        """Show one group per row."""
        rows = [
            self.row(self.artifacts.group(group), self._about(group), [group], self.survey.missed(group))
            for group in groups
        ]
        return Gallery(title, reading, rows)

    def _split_identities(self) -> Gallery:
        """Show one true identity per row, with its groups."""
        rows = []
        for number, groups in self.survey.split_identities()[:4]:
            labels = ", ".join(self.artifacts.group(group) for group in groups[:4].tolist())
            more = f" and {len(groups) - 4} more" if len(groups) > 4 else ""
            about = f"in {len(groups)} groups: {labels}{more}"
            # Discarded images of this identity are expected in its largest group.
            missed = self.survey.missed(int(groups[0]))
            name = f"identity {self.artifacts.identity(number)}"
            rows.append(self.row(name, about, groups[:4].tolist(), missed))
        reading = "Each row is one true identity; gaps separate its groups."
        return Gallery("Split identities", reading, rows)

    def split_groups(self) -> Gallery:
        """Two groups per row that may be one identity, the most probable first."""
        rows = []
        for one, other, probability in self.artifacts.split_groups:
            sizes = (
                f"{int(self.survey.sizes[one]):,} and {counted(int(self.survey.sizes[other]), self.thing)}"
            )
            about = f"{sizes}, probability {decimals(probability)}"
            both = f"{self.artifacts.group(one)} and {self.artifacts.group(other)}"
            rows.append(self.row(both, about, [one, other]))
        reading = "Pairs of groups that are likely one identity; split_groups.csv lists all."
        return Gallery("Groups most likely to be one identity", reading, rows)

    def row(self, name: str, about: str, groups: Sequence[int], missed: LongArray = _NO_ROWS) -> GalleryRow:
        """Return a row with some members of each group, and discarded images."""
        most = max(3, MOST_MEMBERS // len(groups))
        runs = []
        for group in groups:
            members = _sample(self.survey, group, most)
            boxes = [self.box(row, "other" if self.survey.wrong[row] else "") for row in members]
            runs.append(Run(boxes, int(self.survey.sizes[group]) - len(boxes)))
        if len(missed):
            boxes = [self.box(row, "missed") for row in missed[:MOST_MISSED].tolist()]
            runs.append(Run(boxes, len(missed) - len(boxes)))
        return GalleryRow(name, about, runs)

    def _about(self, group: int) -> str:
        survey = self.survey
        words = [
            counted(int(survey.sizes[group]), self.thing),
            f"confidence {decimals(survey.confidence[group])}",
        ]
        if survey.identities is not None:
            words.append(f"{int(survey.n_wrong[group])} wrong")
        if missed := int(survey.n_missed[group]):
            words.append(f"{missed} discarded" + (" nearby" if survey.identities is None else ""))
        return ", ".join(words)

    def box(self, row: int, kind: str = "") -> Box:
        """Return an image with what is known of it."""
        path, labels = self.artifacts.path(row), self.artifacts.labels
        words = [path]
        if self.survey.identities is not None and self.survey.identities[row] >= 0:
            words.append(f"identity {self.artifacts.identity(int(self.survey.identities[row]))}")
        confidence = ""
        if labels is not None and labels.labels[row] >= 0:
            confidence = decimals(labels.confidence[row])
            words.append(f"{self.artifacts.group(int(labels.labels[row]))}, confidence {confidence}")
        elif labels is not None:
            words.append(f"discarded: {Status(int(labels.status[row])).sentence}")
        hint = ", ".join(words)
        if self.thumbnail is None:
            return Box(hint, kind, path if len(path) <= 32 else f"…{path[-31:]}", confidence)
        link = self.artifacts.photo_link(row)
        return Box(hint, kind, source=self.thumbnail(row) or "", side=self.side, link=link, row=row)


def _sample(survey: Survey, group: int, most: int) -> list[int]:
    """Choose at most `most` members; wrong ones come first, up to half of them."""
    members = survey.members(group)
    wrong = members[survey.wrong[members]][: max(1, most // 2)]
    right = members[~survey.wrong[members]][: most - len(wrong)]
    return [*right.tolist(), *wrong.tolist()]
