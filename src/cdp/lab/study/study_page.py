"""A study's results as a page: Markdown, HTML and plots, all made from results.json alone."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cdp.errors import InputError
from cdp.files import write_text
from cdp.lab.study.plots import draw_plot
from cdp.lab.study.result_tables import markdown_table, table_of, written
from cdp.report.markup import Html, element, join
from cdp.report.mediator_section import heat_map
from cdp.report.style import style_sheet
from cdp.report.words import counted, figure, paragraph, seconds, section, side_by_side, table

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"


REMARKS = "remarks.md"
"""What somebody has to say about a study's figures, in Markdown, beside its results.json; never written by cdp."""


def write_pages(folder: Path, results: Mapping[str, Any]) -> None:
    """Write `README.md`, `study.html` and one SVG per plot; `remarks.md`, if there is one, goes into README.md."""
    pictures = plots_of(results)
    for name, (_, picture) in pictures.items():
        write_text(folder / f"{name}.svg", alone(picture))
    write_text(folder / "README.md", markdown_page(results, list(pictures), read_remarks(folder)))
    write_text(folder / "study.html", html_page(results))


def read_results(folder: Path) -> dict[str, Any]:
    """What a study wrote.

    Raises:
        InputError: this is not the folder of a study.
    """
    try:
        results = json.loads((folder / "results.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        results = None
    if not isinstance(results, dict) or results.get("kind") != "Study":
        raise InputError(f"{folder}: no results.json of a study there; give what `cdp study --out` wrote.")
    return results


def read_remarks(folder: Path) -> str:
    """The text of `remarks.md`; empty if there is none."""
    file = folder / REMARKS
    return file.read_text(encoding="utf-8").strip() if file.is_file() else ""


def plots_of(results: Mapping[str, Any]) -> dict[str, tuple[str, Html]]:
    """Name -> title and picture."""
    titles = {column["key"]: column["title"] for column in results["columns"]}
    return {
        f"plot-{plot['column']}": (titles[plot["column"]], picture)
        for plot in results["plots"]
        if (picture := draw_plot(results, plot)) is not None
    }


def markdown_page(results: Mapping[str, Any], pictures: Sequence[str] = (), remarks: str = "") -> str:
    """The study by itself: our table, the paper's, the plots, and how to get the same again."""
    blocks = [f"# {results['title']}", *_markdown_blocks(results)]
    said = _titled(remarks)[1]
    blocks += [said] if said else []
    blocks += [f"![{name}]({name}.svg)" for name in pictures]
    blocks += ["## How to get the same again", _facts(results)]
    if results["command"]:
        blocks.append(f"```console\n{results['command']}\n```")
    blocks.append(
        "Figures per seed, all settings, versions and the time of every stage are in [results.json](results.json); "
        "[study.html](study.html) is this page with its plots inside."
    )
    return "\n\n".join(blocks) + "\n"


@dataclass(frozen=True)
class Chapter:
    """A study on a page of several.

    Attributes:
        results: its results.json.
        remarks: what somebody has to say about it, in Markdown; a first line `# Title` is its title on the page.
        place: of its folder, as the page links to it; empty = no links.
    """

    results: Mapping[str, Any]
    remarks: str = ""
    place: str = ""


def comparison_page(
    chapters: Sequence[Chapter], title: str = "Results beside the paper's", foreword: str = ""
) -> str:
    """Several studies on one Markdown page, each table above the paper's, with remarks and plots."""
    blocks = [
        f"# {title}",
        *([foreword] if foreword else []),
        "The paper measured millions of faces that are no longer public; these are the same studies on other "
        "images. Numbers compare within a table, not across: what can be the same is which way they go.",
        spread_rule(),
    ]
    for chapter in chapters:
        results, place = chapter.results, chapter.place
        own, remarks = _titled(chapter.remarks)
        blocks += [f"## {own or results['title']}", *_markdown_blocks(results)]
        blocks += [remarks] if remarks else []
        if place:
            blocks += [f"![{title}]({place}/{name}.svg)" for name, (title, _) in plots_of(results).items()]
        blocks.append(
            _facts(results) + (f" All figures: [results.json]({place}/results.json)." if place else "")
        )
        if results["command"]:
            blocks.append(f"```console\n{results['command']}\n```")
    return "\n\n".join(blocks) + "\n"


def _titled(remarks: str) -> tuple[str, str]:
    """The title in the first line, if it is one, and the rest."""
    first, _, rest = remarks.partition("\n")
    return (first[2:].strip(), rest.strip()) if first.startswith("# ") else ("", remarks)


def read_chapters(folders: Sequence[Path], page: Path) -> list[Chapter]:
    """Studies for a page at `page`, with links that hold from there."""
    return [
        Chapter(
            read_results(folder),
            read_remarks(folder),
            Path(os.path.relpath(folder, page.parent)).as_posix(),
        )
        for folder in folders
    ]


def spread_rule() -> str:
    """What ± means and what is called a difference."""
    return (
        "Figures are mean ± standard deviation over seeds. Rows that are compared with one another are judged by "
        "one column: the best mean, those *not told apart* from it (their means differ by no more than "
        "√(sd² + sd²)), and those behind it."
    )


def _markdown_blocks(results: Mapping[str, Any]) -> list[str]:
    header, rows = table_of(results)
    blocks = [results["reading"]] if results["reading"] else []
    blocks.append(markdown_table(header, rows, len(results["heads"])))
    blocks += [_fit_sentence(results)] if results["fits"] else []
    paper = results["paper"]
    if paper:
        blocks.append(f"The paper's ({paper['source']}):")
        blocks.append(markdown_table(paper["header"], paper["rows"], paper["words"]))
        blocks += [paper["note"]] if paper["note"] else []
    return blocks


def _facts(results: Mapping[str, Any]) -> str:
    done = ""
    if results["runs_done"] < results["runs"]:
        done = f" {results['runs_done']} of {results['runs']} runs are done; the figures are of these."
    commit = f", commit {results['commit']}" if results.get("commit") else ""
    return (
        f"{counted(len(results['seeds']), 'seed')}, {counted(results['cores'], 'core')}, "
        f"{seconds(results['seconds'])} of computing, what variants share counted once{commit}.{done}"
    )


def _fit_sentence(results: Mapping[str, Any]) -> str:
    titles = {column["key"]: column["title"] for column in results["columns"]}
    told = [
        f"{' '.join([*fit['cells'], titles[fit['column']]])}: {written(fit, 'number')}"
        for fit in results["fits"]
        if fit["mean"] is not None
    ]
    return (
        f"Fitted exponents of growth (1 = in proportion to the images, 2 = to the pairs): {'; '.join(told)}."
    )


def html_page(results: Mapping[str, Any]) -> str:
    """The same as one HTML page that needs nothing else, in the looks of a run's report."""
    header, rows = table_of(results)
    paper = results["paper"]
    body = element(
        "body",
        element("header", element("h1", results["title"]), paragraph(_facts(results), class_="note")),
        element(
            "main",
            section(
                "table",
                "What was measured",
                paragraph(results["reading"]) if results["reading"] else None,
                table(header, rows, words=len(results["heads"])),
                paragraph(_fit_sentence(results)) if results["fits"] else None,
                paragraph(spread_rule().replace("*", ""), class_="note"),
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
                element("pre", results["command"], tabindex="0") if results["command"] else None,
                table(
                    ["what", "value"],
                    [
                        ["cdp", results["cdp"]],
                        *([name, value] for name, value in results["versions"].items()),
                    ],
                    "Versions",
                    words=2,
                ),
            ),
        ),
        element("footer", f"Made by cdp {results['cdp']} from results.json."),
    )
    head = element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", http_equiv="Content-Security-Policy", content=_POLICY),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{results['title']}: a study of cdp"),
        element("style", Html(style_sheet())),
    )
    return f"<!doctype html>\n{element('html', head, body, lang='en')}\n"


def _pictures(results: Mapping[str, Any]) -> Html | None:
    drawn: list[Html] = [
        figure(picture, "Mean over seeds; the thin line is one standard deviation.", title)
        for title, picture in plots_of(results).values()
    ]
    layers = [
        heat_map(np.array(held["weights"], np.float32), held["columns"], held["blocks"])
        for held in results["extra"].values()
        if held.get("weights")
    ]
    if not drawn and not layers:
        return None
    return section("plots", "In pictures", side_by_side(*drawn), join(layers))


def alone(picture: str) -> str:
    """An SVG of the page as a file of its own, with the style it needs."""
    style = element("style", Html(f"{style_sheet()}svg{{max-width:none;background:#fff}}"))
    opened = picture.replace("<svg", '<svg xmlns="http://www.w3.org/2000/svg"', 1)
    before, bracket, rest = opened.partition(">")
    return f"{before}{bracket}{style}{rest}\n"
