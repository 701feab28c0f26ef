"""Groups of images with their labels, as in the paper's figure: discarded images in red boxes, failures, doubts."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from cdp.report.artifacts import SIDE, Artifacts
from cdp.report.markup import Html, element, join
from cdp.report.survey import Survey
from cdp.report.words import counted, legend, paragraph, percent, section
from cdp.types import Fate
from cdp.types.arrays import LongArray

MOST_MEMBERS = 10
MOST_MISSED = 4
_NO_PICTURE = "(no picture)"
_TITLE = "Groups of images and their labels"


def groups_section(artifacts: Artifacts, survey: Survey | None) -> Html:
    """Rows of thumbnails: groups of all sizes, groups that lost images, typical failures, the least certain."""
    if survey is None or not len(survey.sizes):
        return section("groups", _TITLE, paragraph("There are no groups to show."))
    known = survey.identities is not None
    chosen = _choose(survey)
    shown = [
        _gallery(
            "From the largest group to the smallest",
            "Evenly spaced in the list of groups by size, so they show the ordinary case.",
            artifacts,
            survey,
            chosen["ordinary"],
        ),
        _gallery(
            "Typical failure: several identities joined",
            "The groups with most wrong members, worst first.",
            artifacts,
            survey,
            chosen["joined"],
        ),
        _split(artifacts, survey),
        _gallery(
            "Groups that lost most images" if known else "Groups with most discarded images nearby",
            "Their identity has most discarded images: here the method was careful, or the images are poor."
            if known
            else "Of all groups, these are the nearest ones to most discarded images; they may be other people.",
            artifacts,
            survey,
            chosen["lossy"],
        ),
        _gallery(
            "The least certain groups",
            "Lowest mean confidence: their members are tied to one another by few of the pairs they could have. "
            "Look here first when checking labels by hand.",
            artifacts,
            survey,
            chosen["uncertain"],
        ),
    ]
    unread = _unread(artifacts, join(shown))
    return section(
        "groups",
        _TITLE,
        paragraph(_sentence(survey), class_="lead"),
        legend(_legend(known)),
        *shown,
        paragraph(unread, class_="note") if unread else None,
    )


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
        f"Every row is one pseudo-identity, none is shown twice. Of {counted(n_groups, 'group')}, {percent(pure / n_groups)} hold one "
        f"identity only; {counted(int(survey.wrong.sum()), 'image')} in the others do not belong there. "
        f"{counted(split, 'identity is', 'identities are')} spread over several groups, and "
        f"{counted(missed, 'discarded image')} would have belonged to a group."
    )


def _legend(known: bool) -> list[tuple[str, str]]:
    if not known:
        return [("box", "member of the group"), ("box missed", "discarded, though near this group")]
    return [
        ("box", "member of the group"),
        ("box stranger", "member, but of another identity than most of the group"),
        ("box missed", "discarded, though of the group's identity"),
    ]


def _gallery(
    title: str, reading: str, artifacts: Artifacts, survey: Survey, groups: Sequence[int]
) -> Html | None:
    if not groups:
        return None
    rows = [
        _row(f"label {group}", _about(survey, group), artifacts, survey, [group], survey.missed(group))
        for group in groups
    ]
    return element("div", element("h3", title), paragraph(reading, class_="note"), *rows, class_="gallery")


def _split(artifacts: Artifacts, survey: Survey) -> Html | None:
    split = survey.split_identities()
    if not split:
        return None
    title = "Typical failure: one identity in several groups"
    names = None if artifacts.manifest is None else artifacts.manifest.names
    rows = []
    for who, groups in split[:4]:
        name = f"identity {names[who] if names and names[who] else who}"
        labels = ", ".join(str(group) for group in groups[:4].tolist())
        more = f" and {len(groups) - 4} more" if len(groups) > 4 else ""
        # Discarded images of this identity are filed under its largest group.
        missed = survey.missed(int(groups[0]))
        about = f"in {len(groups)} groups: labels {labels}{more}"
        rows.append(_row(name, about, artifacts, survey, groups[:4].tolist(), missed))
    reading = "Every row is one true identity; a gap separates its groups."
    return element("div", element("h3", title), paragraph(reading, class_="note"), *rows, class_="gallery")


def _row(
    name: str, about: str, artifacts: Artifacts, survey: Survey, groups: Sequence[int], missed: LongArray
) -> Html:
    most = max(3, MOST_MEMBERS // len(groups))
    runs = []
    for group in groups:
        members = _sample(survey, group, most)
        boxes = [_box(artifacts, survey, row, "stranger" if survey.wrong[row] else "") for row in members]
        more = int(survey.sizes[group]) - len(members)
        runs.append(element("span", *boxes, _more(more), class_="run"))
    if len(missed):
        boxes = [_box(artifacts, survey, row, "missed") for row in missed[:MOST_MISSED].tolist()]
        runs.append(element("span", *boxes, _more(len(missed) - len(boxes)), class_="run"))
    heading = element("div", element("b", name), element("span", about), class_="who")
    return element("div", heading, element("div", *runs, class_="thumbs"), class_="group")


def _sample(survey: Survey, group: int, most: int) -> list[int]:
    """At most so many members; wrong ones are shown before right ones are, up to half of the room."""
    members = survey.members(group)
    wrong = members[survey.wrong[members]][: max(1, most // 2)]
    right = members[~survey.wrong[members]][: most - len(wrong)]
    return [*right.tolist(), *wrong.tolist()]


def _box(artifacts: Artifacts, survey: Survey, row: int, kind: str) -> Html:
    manifest, labels = artifacts.manifest, artifacts.labels
    place = f"image {row}" if manifest is None else manifest.locations[row].rpartition("/")[2]
    words = [place]
    if survey.identities is not None and survey.identities[row] >= 0:
        who = int(survey.identities[row])
        named = "" if manifest is None or manifest.names is None else manifest.names[who]
        words.append(f"identity {named or who}")
    if survey.labels[row] >= 0:
        words.append(f"label {survey.labels[row]}")
    elif labels is not None:
        words.append(f"discarded: {Fate(int(labels.fate[row])).sentence}")
    said = ", ".join(words)
    source = artifacts.thumbnail(row)
    if source is None:
        return element("span", "?", class_=f"box {kind}".strip(), title=f"{said} {_NO_PICTURE}")
    return element(
        "img", src=source, alt=said, title=said, width=SIDE, height=SIDE, class_=f"box {kind}".strip()
    )


def _more(number: int) -> Html | None:
    return element("span", f"+ {number:,}", class_="more") if number > 0 else None


def _about(survey: Survey, group: int) -> str:
    words = [counted(int(survey.sizes[group]), "image"), f"confidence {survey.confidence[group]:.2f}"]
    if survey.identities is not None:
        words.append(f"{int(survey.n_wrong[group])} wrong")
    missed = int(survey.n_missed[group])
    if missed:
        words.append(f"{missed} discarded" + (" nearby" if survey.identities is None else ""))
    return ", ".join(words)


def _choose(survey: Survey) -> dict[str, list[int]]:
    """Which groups each gallery shows; none is shown twice."""
    by_size = np.argsort(-survey.sizes, kind="stable")
    spaced = np.unique(np.linspace(0, len(by_size) - 1, min(6, len(by_size))).round().astype(np.int64))
    chosen = {"ordinary": [int(group) for group in by_size[spaced]]}
    seen = set(chosen["ordinary"])
    for name, score, most in (
        ("joined", survey.n_wrong, 5),
        ("lossy", survey.n_missed, 4),
        ("uncertain", 1 - survey.confidence, 4),
    ):
        order = np.argsort(-score, kind="stable")[: most + len(seen)].tolist()
        chosen[name] = [group for group in order if score[group] > 0 and group not in seen][:most]
        seen |= set(chosen[name])
    return chosen


def _unread(artifacts: Artifacts, shown: str) -> str:
    if artifacts.manifest is None:
        return "The list of images (unlabeled.csv) is not in the run folder, so no pictures can be shown."
    return "A question mark stands for an image that could not be read." if _NO_PICTURE in shown else ""
