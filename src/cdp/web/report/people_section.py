"""Report section of an album: people, groups to check, and expected quality."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from cdp.types.run_record import RunRecord
from cdp.web.report.committee import committee_section
from cdp.web.report.graph_view import graph_section
from cdp.web.report.groups import Galleries, picture_note
from cdp.web.report.label_section import labels_section
from cdp.web.report.mediator_section import mediator_section
from cdp.web.report.report_inputs import Artifacts, thumbnails
from cdp.web.report.report_views import Gallery, GalleryRow, Run, Section
from cdp.web.report.survey import Survey
from cdp.web.report.timings_section import recipe_section, runtime_section
from cdp.web.words import counted, decimals, percent

MOST_PEOPLE = 400
"""People on the page, so that it stays below ten megabytes."""

_MOST_FACES = 3200
_FEWEST_IN_A_ROW, _MOST_IN_A_ROW = 8, 12
_MOST_DOUBTFUL = 6
_SIDE = 64


def album_sections(record: RunRecord, artifacts: Artifacts, survey: Survey | None) -> list[Section]:
    """List the sections of an album's report, without empty ones."""
    results = record.results
    found: list[Section] = []
    if survey is None or not len(survey.sizes):
        found.append(Section("people", "People", "People", text="No person is on two photos or more."))
    else:
        show = Galleries(artifacts, survey, thumbnails(artifacts.images, _SIDE), _SIDE)
        found += [_people(show), *_doubts(show)]
    found.append(_how_sure(record))
    if artifacts.truth is not None and (artifacts.truth >= 0).any():
        found.append(graph_section(artifacts, survey))
    if results.mediator is not None:
        found.append(mediator_section(results, artifacts.weights))
    if results.committee is not None and len(results.committee.members) > 1:
        found.append(committee_section(results.committee))
    if record.command:
        # A run, which is to be repeated.
        found += [runtime_section(record), recipe_section(record)]
    return found


def in_no_group(artifacts: Artifacts) -> str:
    """Return how many faces are in no group, in a sentence."""
    alone = 0 if artifacts.labels is None else int(np.count_nonzero(artifacts.labels.labels < 0))
    if not alone:
        return ""
    return f"{counted(alone, 'face is', 'faces are')} in no group: seen once, too dissimilar, or rejected."


def _people(show: Galleries) -> Section:
    """Everybody, the largest group first."""
    survey = show.survey
    order = np.lexsort((_numbers(show), -survey.sizes))
    shown = order[:MOST_PEOPLE].tolist()
    most = int(np.clip(_MOST_FACES // len(shown), _FEWEST_IN_A_ROW, _MOST_IN_A_ROW))
    gallery = Gallery("", "", [_person(show, group, most) for group in shown])
    left = len(order) - len(shown)
    after = ""
    if left:
        people = counted(left, "person", "people")
        after = f"And {people} more, of smaller groups: labels.csv lists them, and cdp review shows them."
    return Section(
        "people",
        "People",
        "People",
        text=(
            "Most faces first. Numbers are the column identity of labels.csv. Point at a face for the name "
            "of its photo, click to open it."
        ),
        note=picture_note(show, [gallery]),
        galleries=[gallery],
        after=after,
    )


def _numbers(show: Galleries) -> np.ndarray:
    return np.array([show.artifacts.number(group) for group in range(len(show.survey.sizes))])


def _person(show: Galleries, group: int, most: int) -> GalleryRow:
    """Return some faces of a person, the surest first and evenly spaced from there."""
    artifacts, survey = show.artifacts, show.survey
    members = survey.members(group)
    if artifacts.labels is not None:
        members = members[np.argsort(-artifacts.labels.confidence[members], kind="stable")]
    photos = {artifacts.path(row) for row in members.tolist()}
    on = f" on {counted(len(photos), 'photo')}" if len(photos) < len(members) else ""
    spaced = np.linspace(0, len(members) - 1, min(most, len(members))).astype(np.int64)
    boxes = [show.box(row, "other" if survey.wrong[row] else "") for row in members[spaced].tolist()]
    about = f"{counted(len(members), 'face')}{on}, confidence {decimals(survey.confidence[group])}"
    return GalleryRow(artifacts.group(group), about, [Run(boxes, len(members) - len(boxes))])


def _doubts(show: Galleries) -> list[Section]:
    """Return groups that may be two people, and pairs of groups that may be one."""
    survey = show.survey
    wrong_pairs = (1 - survey.confidence) * survey.sizes * (survey.sizes - 1) / 2
    order = np.argsort(-wrong_pairs, kind="stable")[:_MOST_DOUBTFUL].tolist()
    doubtful = [_person(show, group, _MOST_IN_A_ROW) for group in order if wrong_pairs[group] > 0.5]
    galleries = [
        Gallery("One person or two?", "The groups most likely to hold two people.", doubtful),
        replace(
            show.split_groups(),
            title="Two people or one?",
            reading="The pairs of groups most likely to be one person; split_groups.csv lists all.",
        ),
    ]
    galleries = [one for one in galleries if one.rows]
    if not galleries:
        return []
    text = "cdp review asks about these first."
    return [Section("check", "To check", "What to check first", text=text, galleries=galleries)]


def _how_sure(record: RunRecord) -> Section:
    """Return what is known of the groups as a whole."""
    results = record.results
    section = replace(labels_section(results), link="Quality", title="Expected quality of the groups")
    if results.labels.true is not None:
        return section
    lead = (
        f"{percent(results.labels.coverage)} of the faces are in one of "
        f"{counted(results.labels.identities_found, 'group')}. True identities are unknown, so the groups "
        "cannot be checked."
    )
    return replace(section, lead=lead, tiles=())
