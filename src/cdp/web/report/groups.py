"""Groups of images with their labels, as in the paper's figure: thumbnails, or paths where there are no pictures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from cdp.types import Fate
from cdp.types.arrays import LongArray
from cdp.web.report.artifacts import SIDE, Artifacts, Thumbnail, thumbnails
from cdp.web.report.markup import Html, element, join
from cdp.web.report.survey import Survey
from cdp.web.report.words import counted, legend, paragraph, percent, section

MOST_MEMBERS = 10
MOST_MISSED = 4
_NO_PICTURE = "(no picture)"
_NO_ROWS = np.empty(0, np.int64)
_TITLE = "Groups of images and their labels"


def groups_section(artifacts: Artifacts, survey: Survey | None) -> Html:
    """Rows of images: groups of all sizes, typical failures, groups that lost images, the least certain, and pairs that may be one."""
    if survey is None or not len(survey.sizes):
        return section("groups", _TITLE, paragraph("There are no groups to show."))
    known = survey.identities is not None
    show = _Gallery(artifacts, survey, thumbnails(artifacts.images))
    selection = _select(survey)
    galleries = [
        show.groups(
            "From the largest group to the smallest",
            "Evenly spaced in the list of groups by size, so they show the ordinary case.",
            selection["ordinary"],
        ),
        show.groups(
            "Typical failure: several identities joined",
            "The groups with most wrong members, worst first.",
            selection["joined"],
        ),
        show.split_identities(),
        show.groups(
            "Groups that lost most images" if known else "Groups with most discarded images nearby",
            "Their identity has most discarded images: here the method was careful, or the images are poor."
            if known
            else "Of all groups, these are the nearest ones to most discarded images; they may be other people.",
            selection["lossy"],
        ),
        show.groups(
            "The least certain groups",
            "Most doubtful pairs, by size and mean confidence, as in mixed_groups.csv: the groups most likely to hold two identities. "
            "Look here first when checking labels by hand.",
            selection["uncertain"],
        ),
        show.split_groups(),
    ]
    return section(
        "groups",
        _TITLE,
        paragraph(_sentence(survey), class_="lead"),
        legend(_legend(known)),
        _remark(show, join(galleries)),
        *galleries,
    )


def _remark(show: _Gallery, shown: str) -> Html | None:
    """Why there are no pictures, or not all of them."""
    if show.thumbnail is None and show.artifacts.images is None:
        words = "Where the images lie is not known, so they are listed by row with their confidence."
    elif show.thumbnail is None:
        words = "The images could not be read, so they are listed by path with their confidence."
    elif _NO_PICTURE in shown:
        words = "A question mark stands for an image that could not be read."
    else:
        return None
    return paragraph(words, class_="note")


def _sentence(survey: Survey) -> str:
    n_groups = len(survey.sizes)
    if survey.identities is None:
        return (
            f"{counted(n_groups, 'group')}; the true identities are not known, so look for yourself: every row is "
            "one pseudo-identity."
        )
    pure = int(np.count_nonzero(survey.n_wrong == 0))
    split = len(survey.split_identities())
    missed = int(survey.n_missed.sum())
    return (
        f"Every row is one pseudo-identity, none is shown twice. Of {counted(n_groups, 'group')}, "
        f"{percent(pure / n_groups)} hold one identity only; {counted(int(survey.wrong.sum()), 'image')} in the others do "
        f"not belong there. {counted(split, 'identity is', 'identities are')} spread over several groups, and "
        f"{counted(missed, 'discarded image')} would have belonged to a group."
    )


def _legend(known: bool) -> list[tuple[str, str]]:
    if not known:
        return [("box", "member of the group"), ("box missed", "discarded, though near this group")]
    return [
        ("box", "member of the group"),
        ("box other", "member, but of another identity than most of the group"),
        ("box missed", "discarded, though of the group's identity"),
    ]


def _select(survey: Survey) -> dict[str, list[int]]:
    """Which groups each gallery shows; none is shown twice."""
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
class _Gallery:
    """Draws rows of images; as paths if `thumbnail` is None."""

    artifacts: Artifacts
    survey: Survey
    thumbnail: Thumbnail | None

    def groups(self, title: str, reading: str, groups: Sequence[int]) -> Html | None:
        """One group per row."""
        rows = [
            self._row(f"label {group}", self._about(group), [group], self.survey.missed(group))
            for group in groups
        ]
        return _titled(title, reading, rows)

    def split_identities(self) -> Html | None:
        """One true identity per row, with its groups."""
        rows = []
        for number, groups in self.survey.split_identities()[:4]:
            labels = ", ".join(str(group) for group in groups[:4].tolist())
            more = f" and {len(groups) - 4} more" if len(groups) > 4 else ""
            about = f"in {len(groups)} groups: labels {labels}{more}"
            # Discarded images of this identity are expected in its largest group.
            missed = self.survey.missed(int(groups[0]))
            name = f"identity {self.artifacts.identity(number)}"
            rows.append(self._row(name, about, groups[:4].tolist(), missed))
        reading = "Every row is one true identity; a gap separates its groups."
        return _titled("Typical failure: one identity in several groups", reading, rows)

    def split_groups(self) -> Html | None:
        """Two groups per row that may be one identity, the most probable first."""
        rows = []
        for one, other, probability in self.artifacts.split_groups:
            about = f"{int(self.survey.sizes[one])} and {int(self.survey.sizes[other])} images, probability {probability:.2f}"
            rows.append(self._row(f"labels {one} and {other}", about, [one, other], _NO_ROWS))
        reading = "Pairs of groups with the greatest mean probability, just short of being joined; split_groups.csv lists them all."
        return _titled("Groups most likely to be one identity", reading, rows)

    def _row(self, name: str, about: str, groups: Sequence[int], missed: LongArray) -> Html:
        most = max(3, MOST_MEMBERS // len(groups))
        runs = []
        for group in groups:
            members = _sample(self.survey, group, most)
            boxes = [self._box(row, "other" if self.survey.wrong[row] else "") for row in members]
            runs.append(_run(boxes, int(self.survey.sizes[group])))
        if len(missed):
            boxes = [self._box(row, "missed") for row in missed[:MOST_MISSED].tolist()]
            runs.append(_run(boxes, len(missed)))
        heading = element("div", element("b", name), element("span", about), class_="who")
        return element("div", heading, element("div", *runs, class_="thumbs"), class_="group")

    def _about(self, group: int) -> str:
        survey = self.survey
        words = [counted(int(survey.sizes[group]), "image"), f"confidence {survey.confidence[group]:.2f}"]
        if survey.identities is not None:
            words.append(f"{int(survey.n_wrong[group])} wrong")
        if missed := int(survey.n_missed[group]):
            words.append(f"{missed} discarded" + (" nearby" if survey.identities is None else ""))
        return ", ".join(words)

    def _box(self, row: int, kind: str) -> Html:
        path, labels = self.artifacts.path(row), self.artifacts.labels
        words = [path]
        if self.survey.identities is not None and self.survey.identities[row] >= 0:
            words.append(f"identity {self.artifacts.identity(int(self.survey.identities[row]))}")
        confidence = ""
        if labels is not None and labels.labels[row] >= 0:
            confidence = f"{labels.confidence[row]:.2f}"
            words.append(f"label {labels.labels[row]}, confidence {confidence}")
        elif labels is not None:
            words.append(f"discarded: {Fate(int(labels.fate[row])).sentence}")
        hint = ", ".join(words)
        if self.thumbnail is None:
            name = path if len(path) <= 32 else f"…{path[-31:]}"
            share = element("small", confidence) if confidence else None
            return element("span", name, share, class_=f"path {kind}".strip(), title=hint)
        source, kind = self.thumbnail(row), f"box {kind}".strip()
        if source is None:
            return element("span", "?", class_=kind, title=f"{hint} {_NO_PICTURE}")
        return element("img", src=source, alt=hint, title=hint, width=SIDE, height=SIDE, class_=kind)


def _titled(title: str, reading: str, rows: Sequence[Html]) -> Html | None:
    if not rows:
        return None
    return element("div", element("h3", title), paragraph(reading, class_="note"), *rows, class_="gallery")


def _run(boxes: Sequence[Html], n_images: int) -> Html:
    """Images side by side, and how many more there are."""
    more = n_images - len(boxes)
    rest = element("span", f"+ {more:,}", class_="more") if more > 0 else None
    return element("span", *boxes, rest, class_="run")


def _sample(survey: Survey, group: int, most: int) -> list[int]:
    """At most so many members; wrong ones are shown before right ones are, up to half of them."""
    members = survey.members(group)
    wrong = members[survey.wrong[members]][: max(1, most // 2)]
    right = members[~survey.wrong[members]][: most - len(wrong)]
    return [*right.tolist(), *wrong.tolist()]
