"""The page as a whole: sections in the order people ask."""

from __future__ import annotations

from itertools import pairwise

from cdp.types.run_record import PartRecord, RunRecord
from cdp.web.rendering import packaged, render
from cdp.web.report.committee import committee_section
from cdp.web.report.graph_view import graph_section
from cdp.web.report.groups import groups_section
from cdp.web.report.headline import headline_section
from cdp.web.report.label_section import labels_section
from cdp.web.report.mediator_section import mediator_section
from cdp.web.report.people_section import album_sections, in_no_group
from cdp.web.report.report_inputs import Artifacts
from cdp.web.report.report_views import ReportPage, Section
from cdp.web.report.survey import Survey, survey_groups
from cdp.web.report.timings_section import recipe_section, runtime_section
from cdp.web.words import counted


def build_page(record: RunRecord, artifacts: Artifacts, title: str = "") -> str:
    """Return the report as one HTML page that needs nothing else: no network, no scripts, pictures inside.

    Args:
        record: the content of run.json, or as much of it as labeling alone knows; missing parts become a
            sentence instead of a figure.
        artifacts: labels, accepted pairs, images and weights, as far as they are there.
        title: its headline, where that is not the name of a run.

    Returns:
        the page; the same input gives the same text.
    """
    page = report_page(record, artifacts, title)
    return render("report.html", page=page, title=page.title, style=packaged("style.css"))


def report_page(record: RunRecord, artifacts: Artifacts, title: str = "") -> ReportPage:
    """Return what the report shows."""
    survey = None
    if artifacts.labels is not None:
        survey = survey_groups(artifacts.labels, artifacts.truth, artifacts.consensus, artifacts.base_graph)
    results, name = record.results, title or _name(record)
    is_album = artifacts.photos is not None
    sections = (
        album_sections(record, artifacts, survey) if is_album else _study_sections(record, artifacts, survey)
    )
    # Only a run says why nothing was recognized.
    if results.headline or not title:
        sections.insert(0, headline_section(record))
    counts = in_no_group(artifacts).removesuffix(".") if is_album else _counts(record)
    return ReportPage(
        title=f"{name}: report of cdp",
        heading=title or f"Consensus-driven propagation: {name}",
        counts=f"{counts}." if counts else "",
        notes=record.notes,
        sections=sections,
        version=record.cdp,
    )


def _study_sections(record: RunRecord, artifacts: Artifacts, survey: Survey | None) -> list[Section]:
    """Everything that is known of a labeling; what is not known becomes a sentence."""
    results = record.results
    return [
        labels_section(results),
        groups_section(artifacts, survey),
        graph_section(artifacts, survey),
        mediator_section(results, artifacts.weights),
        committee_section(results.committee),
        runtime_section(record),
        recipe_section(record),
    ]


def _counts(record: RunRecord) -> str:
    return "; ".join(f"{part} {_size(one)}" for part, one in record.parts.items())


def _size(part: PartRecord) -> str:
    images = counted(part.images, "image")
    return (
        images
        if part.identities is None
        else f"{images} of {counted(part.identities, 'identity', 'identities')}"
    )


def _name(record: RunRecord) -> str:
    """Return what the run is called: its recipe or else its folder, as the command gave it."""
    words = record.command.replace("\\", "/").split()
    files = [word for word in words if word.endswith(".toml")]
    files += [folder for option, folder in pairwise(words) if option == "--out"]
    return files[0].rstrip("/").rpartition("/")[2].removesuffix(".toml") if files else "a run"
