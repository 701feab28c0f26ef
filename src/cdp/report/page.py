"""The page as a whole: frame, navigation and sections in the order people ask."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cdp.report.artifacts import Artifacts
from cdp.report.committee import committee_section
from cdp.report.graph_view import graph_section
from cdp.report.groups import groups_section
from cdp.report.headline import headline_section
from cdp.report.label_section import labels_section
from cdp.report.markup import Html, element
from cdp.report.mediator_section import mediator_section
from cdp.report.runtime import recipe_section, runtime_section
from cdp.report.style import style_sheet
from cdp.report.survey import survey_groups
from cdp.report.words import count, paragraph

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


def build_page(run: Mapping[str, Any], artifacts: Artifacts) -> str:
    """The report as one HTML page that needs nothing else: no network, no scripts, pictures inside.

    Args:
        run: what run.json says; parts that are missing or null become a sentence instead of a figure.
        artifacts: labels, accepted pairs, images and weights of the run, as far as they are there.

    Returns:
        the page; the same input gives the same text.
    """
    survey = None
    if artifacts.labels is not None:
        truth = None if artifacts.manifest is None else artifacts.manifest.identities
        survey = survey_groups(artifacts.labels, truth, artifacts.consensus, artifacts.base_graph)
    body = (
        _header(run),
        element(
            "nav",
            element("div", *(element("a", title, href=f"#{name}") for name, title in _NAVIGATION.items())),
            aria_label="Sections",
        ),
        element(
            "main",
            headline_section(run),
            labels_section(run),
            groups_section(artifacts, survey),
            graph_section(artifacts, survey),
            mediator_section(run, artifacts),
            committee_section(run),
            runtime_section(run),
            recipe_section(run),
        ),
        element("footer", f"Made by cdp {run.get('cdp') or ''} from run.json and the artifacts beside it."),
    )
    return html_document(f"{_name(run)}: report of cdp run", *body)


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


def _header(run: Mapping[str, Any]) -> Html:
    parts = run.get("parts") or {}
    counts = [
        f"{name} {count(part.get('images'))} images"
        + (f" of {count(part['identities'])} identities" if part.get("identities") is not None else "")
        for name, part in parts.items()
        if part and part.get("images")
    ]
    return element(
        "header",
        element("h1", f"Consensus-driven propagation: {_name(run)}"),
        paragraph("; ".join(counts) + ".", class_="note") if counts else None,
    )


def _name(run: Mapping[str, Any]) -> str:
    """What the run is called: the name of its recipe, as the command gave it."""
    words = str(run.get("command") or "").split()
    recipes = [word for word in words if word.endswith(".toml")]
    return recipes[0].replace("\\", "/").rpartition("/")[2].removesuffix(".toml") if recipes else "a run"
