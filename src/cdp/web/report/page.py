"""The page as a whole: frame, navigation and sections in the order people ask."""

from __future__ import annotations

from itertools import pairwise

from cdp.types.run_record import RunRecord
from cdp.web.report.artifacts import Artifacts
from cdp.web.report.committee import committee_section
from cdp.web.report.graph_view import graph_section
from cdp.web.report.groups import groups_section
from cdp.web.report.headline import headline_section
from cdp.web.report.label_section import labels_section
from cdp.web.report.markup import Html, element
from cdp.web.report.mediator_section import mediator_section
from cdp.web.report.runtime import recipe_section, runtime_section
from cdp.web.report.style import style_sheet
from cdp.web.report.survey import survey_groups
from cdp.web.report.words import count, paragraph

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_NAVIGATION = {
    "headline": "Did it help?",
    "labels": "Labels",
    "groups": "Groups",
    "graph": "Graph",
    "mediator": "Mediator",
    "committee": "Committee",
    "runtime": "Time",
    "recipe": "Recipe",
}


def build_page(record: RunRecord, artifacts: Artifacts, title: str = "") -> str:
    """The report as one HTML page that needs nothing else: no network, no scripts, pictures inside.

    Args:
        record: what run.json says, or as much of it as labeling alone can tell; parts that are missing become a
            sentence instead of a figure.
        artifacts: labels, accepted pairs, images and weights, as far as they are there.
        title: its headline, where that is not the name of a run.

    Returns:
        the page; the same input gives the same text.
    """
    survey = None
    if artifacts.labels is not None:
        survey = survey_groups(artifacts.labels, artifacts.truth, artifacts.consensus, artifacts.base_graph)
    results = record.results
    sections = [
        # Only a run says why nothing was recognized.
        headline_section(record) if results.headline or not title else Html(""),
        labels_section(results),
        groups_section(artifacts, survey),
        graph_section(artifacts, survey),
        mediator_section(results, artifacts.weights),
        committee_section(results.committee),
        runtime_section(record),
        recipe_section(record),
    ]
    links = [
        element("a", title, href=f"#{name}")
        for (name, title), shown in zip(_NAVIGATION.items(), sections, strict=True)
        if shown.startswith("<section")
    ]
    return html_document(
        f"{title or _name(record)}: report of cdp",
        _header(record, title or f"Consensus-driven propagation: {_name(record)}"),
        element("nav", element("div", *links), aria_label="Sections"),
        element("main", *sections),
        element(
            "footer",
            f"Made by cdp {record.cdp} from the run's record and its artifacts. Groups are corrected in the browser with cdp review COLLECTION.",
        ),
    )


def html_document(title: str, *body: str | None) -> str:
    """A whole HTML document in the looks of the report, which needs nothing but itself."""
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        # Holds the promise that the page needs nothing else, whatever is written in it.
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Html(style_sheet())),
    )
    return f"<!doctype html>\n{element('html', head, element('body', *body), lang='en')}\n"


def _header(record: RunRecord, title: str) -> Html:
    counts = [
        f"{name} {count(part.images)} images"
        + (f" of {count(part.identities)} identities" if part.identities is not None else "")
        for name, part in record.parts.items()
    ]
    return element(
        "header",
        element("h1", title),
        paragraph("; ".join(counts) + ".", class_="note") if counts else None,
        element("ul", *(element("li", note) for note in record.notes), class_="notes")
        if record.notes
        else None,
    )


def _name(record: RunRecord) -> str:
    """What the run is called: its recipe or else its folder, as the command gave it."""
    words = record.command.replace("\\", "/").split()
    files = [word for word in words if word.endswith(".toml")]
    files += [folder for option, folder in pairwise(words) if option == "--out"]
    return files[0].rstrip("/").rpartition("/")[2].removesuffix(".toml") if files else "a run"
