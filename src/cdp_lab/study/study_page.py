"""A study's results as a page: Markdown, HTML and plots, all made from results.json alone."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from cdp.config.writing import markdown_table
from cdp.errors import InputError
from cdp.storage.files import write_text
from cdp.web.page_views import Html
from cdp.web.study_parts import (
    figure,
    heat_map,
    html_document,
    paragraph,
    section,
    side_by_side,
    style_sheet,
    table,
)
from cdp.web.svg import element, join
from cdp.web.words import counted, seconds
from cdp_lab.study.plots import draw_plot
from cdp_lab.study.result_tables import SAME, table_of, written

REMARKS = "remarks.md"
"""Remarks on a study's figures, in Markdown, next to its results.json; never written by cdp."""

RULE = (
    "Figures are mean ± standard deviation over seeds. Rows are compared by one column: *best* is the best "
    f"mean; *{SAME}* means that a row's mean differs from it by no more than √(sd₁² + sd₂²); all other rows "
    "are *behind*. With so few seeds this is a rule of thumb, not a test."
)
OTHER_IMAGES = (
    "The paper measured millions of faces that are no longer public; these are the same studies on other "
    "images. Numbers compare within a table, not across: what can be the same is which way they go."
)
_RENAMED = (
    ("cdp study ", "cdp-lab study "),
    ("--consensus.lessons", "--consensus.train_on"),
    ("--consensus.folds", "--train.folds"),
    ("--consensus.rounds", "--joint.rounds"),
    ("--joint.soft_", "--consensus.soft_"),
)
"""Commands and keys of recipes: as kept results may name them, and as they are called today."""


@dataclass(frozen=True)
class Chapter:
    """A study with one recipe, on a page.

    Attributes:
        remarks: what somebody has to say about it, in Markdown; a first line `# Title` is its title on the
            page.
        folder: where its results.json and plots are, as the page links to them; empty = no links.
    """

    results: Mapping[str, Any]
    remarks: str = ""
    folder: str = ""

    def titled(self) -> tuple[str, str]:
        """Return the title that the remarks give, or none, and the rest of the remarks."""
        first, _, rest = self.remarks.partition("\n")
        return (first[2:].strip(), rest.strip()) if first.startswith("# ") else ("", self.remarks)


def write_pages(folder: Path, results: Mapping[str, Any]) -> None:
    """Write `README.md`, `study.html` and one SVG per plot; `remarks.md` is included."""
    for name, (_, picture) in plots_of(results).items():
        write_text(folder / f"{name}.svg", standalone_svg(picture))
    markdown = study_markdown([Chapter(results, read_remarks(folder), ".")], RULE)
    link = "[study.html](study.html) is this page with its plots inside."
    write_text(folder / "README.md", f"{markdown}\n\n{link}\n")
    write_text(folder / "study.html", html_page(results))


def read_results(folder: Path) -> dict[str, Any]:
    """Return what a study wrote."""
    try:
        results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        results = None
    if not isinstance(results, dict) or results.get("kind") != "Study":
        raise InputError(
            f"{folder}: no results.json of a study there; give what `cdp-lab study --out` wrote.",
            code="study-results-missing",
            folder=folder,
        )
    return results


def read_remarks(folder: Path) -> str:
    """Return the text of `remarks.md`; empty if there is none."""
    file = folder / REMARKS
    return file.read_text(encoding="utf-8").strip() if file.is_file() else ""


def read_chapters(folders: Sequence[Path], page: Path) -> list[Chapter]:
    """Studies for a page at `page`, with links that hold from there."""
    links = [Path(os.path.relpath(folder, page.parent)).as_posix() for folder in folders]
    return [
        Chapter(read_results(folder), read_remarks(folder), link)
        for folder, link in zip(folders, links, strict=True)
    ]


def plots_of(results: Mapping[str, Any]) -> dict[str, tuple[str, Html]]:
    """Name -> title and picture."""
    titles = {column["key"]: column["title"] for column in results["columns"]}
    return {
        f"plot-{plot['column']}": (titles[plot["column"]], picture)
        for plot in results["plots"]
        if (picture := draw_plot(results, plot)) is not None
    }


def study_markdown(chapters: Sequence[Chapter], intro: str = "", level: int = 1) -> str:
    """Render a study: the paper's table, then each recipe's with remarks, plots and command.

    Args:
        chapters: of the same study; title, reading and the paper's table are the first one's.
        intro: Markdown below the title.
    """
    results = chapters[0].results
    paper = results["paper"]
    blocks = [f"{'#' * level} {results['title']}", intro, results["reading"]]
    if paper:
        blocks.append(f"The paper's ({paper['source']}):")
        blocks += [markdown_table(paper["header"], paper["rows"], paper["words"]), paper["note"]]
    for chapter in chapters:
        results, folder = chapter.results, PurePosixPath(chapter.folder)
        title, remarks = chapter.titled()
        header, rows = table_of(results)
        named = title or (len(chapters) > 1 and folder.name) or "What was measured"
        blocks.append(f"{'#' * (level + 1)} {named}")
        blocks += [markdown_table(header, rows, len(results["heads"])), _fit_sentence(results), remarks]
        facts = _facts(results)
        if chapter.folder:
            plots = plots_of(results).items()
            blocks += [f"![{name}]({folder / plot}.svg)" for plot, (name, _) in plots]
            facts += f" All figures and settings, per seed: [results.json]({folder / 'results.json'})."
        blocks += [facts, f"```console\n{command_today(results)}\n```" if results["command"] else ""]
    return "\n\n".join(block for block in blocks if block)


def comparison_page(chapters: Sequence[Chapter], foreword: str = "") -> str:
    """Several studies on one Markdown page, chapters of the same study below one table of the paper."""
    studies: dict[str, list[Chapter]] = {}
    for chapter in chapters:
        studies.setdefault(chapter.results["study"], []).append(chapter)
    blocks = ["# Results and the paper's", *([foreword] if foreword else []), OTHER_IMAGES, RULE]
    blocks += [study_markdown(same, level=2) for same in studies.values()]
    return "\n\n".join(blocks) + "\n"


def _facts(results: Mapping[str, Any]) -> str:
    done, runs = results["runs_done"], results["runs"]
    partly = f" {done} of {runs} runs are done; the figures are of these." if done < runs else ""
    return (
        f"{counted(len(results['seeds']), 'seed')}, {counted(results['cores'], 'core')}, "
        f"{seconds(results['seconds'])} of computing, what variants share counted once.{partly}"
    )


def _fit_sentence(results: Mapping[str, Any]) -> str:
    titles = {column["key"]: column["title"] for column in results["columns"]}
    fits = [
        f"{' '.join([*fit['cells'], titles[fit['column']]])}: {written(fit, 'number')}"
        for fit in results["fits"]
        if fit["mean"] is not None
    ]
    words = "Fitted exponents of growth (1 = in proportion to the images, 2 = to the pairs)"
    return f"{words}: {'; '.join(fits)}." if fits else ""


def html_page(results: Mapping[str, Any]) -> str:
    """Return the same as one HTML page that needs nothing else, in the looks of a run's report."""
    header, rows = table_of(results)
    paper, fit = results["paper"], _fit_sentence(results)
    versions = [["cdp", results["cdp"]], *map(list, results["versions"].items())]
    sections = [
        section(
            "table",
            "What was measured",
            paragraph(results["reading"]) if results["reading"] else None,
            table(header, rows, words=len(results["heads"])),
            paragraph(fit) if fit else None,
            paragraph(RULE.replace("*", ""), class_="note"),
        ),
        section(
            "paper",
            "The paper's numbers",
            table(paper["header"], paper["rows"], paper["source"], words=paper["words"]),
            paragraph(paper["note"]) if paper["note"] else None,
        )
        if paper
        else None,
        _pictures(results),
        section(
            "again",
            "How to get the same again",
            element("pre", command_today(results), tabindex="0") if results["command"] else None,
            table(["what", "value"], versions, "Versions", words=2),
        ),
    ]
    top = element("header", element("h1", results["title"]), paragraph(_facts(results), class_="note"))
    end = element("footer", f"Made by cdp {results['cdp']} from results.json.")
    return html_document(f"{results['title']}: a study of cdp", top, element("main", *sections), end)


def _pictures(results: Mapping[str, Any]) -> Html | None:
    plots: list[Html] = [
        figure(picture, "Mean over seeds; the thin line is one standard deviation.", title)
        for title, picture in plots_of(results).values()
    ]
    layers = [
        heat_map(np.array(layer["weights"], np.float32), layer["columns"], layer["blocks"])
        for layer in results["extra"].values()
        if layer.get("weights")
    ]
    if not plots and not layers:
        return None
    return section("plots", "In pictures", side_by_side(*plots), join(layers))


def command_today(results: Mapping[str, Any]) -> str:
    """Return the command that made a study, with renamed keys by their present names."""
    command = str(results["command"])
    for before, now in _RENAMED:
        command = command.replace(before, now)
    return command


def standalone_svg(picture: str) -> str:
    """Return an SVG of the page as a file of its own, with the style it needs."""
    style = element("style", Html(f"{style_sheet()}svg{{max-width:none;background:#fff}}"))
    opened = picture.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    before, bracket, rest = opened.partition(">")
    return f"{before}{bracket}{style}{rest}\n"
