"""Keep results of studies in docs/results, and make their pages.

    python docs/make_results_page.py [NAME=STUDY_FOLDER ...]

takes results.json of the folders that `cdp-lab study --out` wrote. Then it draws the plots and writes docs/results/README.md
(remarks.md and the table in summary.toml) and docs/results/STUDY.md for every study (its row of that table, then results.json
and remarks.md of its folders). `{folder: cells: column}` in remarks.md and summary.toml becomes that figure of results.json.
"""

from __future__ import annotations

import re
import shutil
import sys
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cdp.config.writing import markdown_table
from cdp_lab.study.result_tables import written
from cdp_lab.study.study_page import (
    RULE,
    plots_of,
    read_chapters,
    read_remarks,
    read_results,
    standalone_svg,
    study_markdown,
)

RESULTS = Path(__file__).parent / "results"
STUDIES: dict[str, dict[str, Any]] = tomllib.loads((RESULTS / "summary.toml").read_text(encoding="utf-8"))
FOLDERS = [folder for study in STUDIES.values() for folder in study["folders"]]
KEYS, HEADER = ("question", "paper", "ours"), ("study", "question", "the paper", "ours")
FIGURE = re.compile(r"\{(\w+): ([^:{}]+): (\w+)\}")


def take(name: str, folder: Path) -> None:
    """Keep the results of one study; its runs stay where they are."""
    if name not in FOLDERS:
        raise SystemExit(f"{name}: name it among the folders of a study in {RESULTS / 'summary.toml'} first.")
    read_results(folder)
    (RESULTS / name).mkdir(parents=True, exist_ok=True)
    shutil.copy(folder / "results.json", RESULTS / name / "results.json")


def quote_figures(text: str, kept: Mapping[str, Mapping[str, Any]]) -> str:
    """The text with `{folder: cells: column}` replaced by that figure, as tables write it."""

    def figure(match: re.Match[str]) -> str:
        name, cells, key = match.groups()
        for row in kept[name]["rows"]:
            if ", ".join(row["cells"]) == cells:
                kinds = {column["key"]: column["kind"] for column in kept[name]["columns"]}
                return written(row["figures"][key], kinds[key])
        for fit in kept[name]["fits"]:
            if (", ".join(fit["cells"]), fit["column"]) == (cells, key):
                return written(fit, "number")
        raise SystemExit(f"{match[0]}: {name}/results.json has no such row.")

    return FIGURE.sub(figure, text)


def make_files() -> dict[Path, str]:
    """Every plot and page, from what is kept."""
    kept = {name: read_results(RESULTS / name) for name in FOLDERS}
    made: dict[Path, str] = {}
    table = []
    for name, study in STUDIES.items():
        answers = [[quote_figures(row[key], kept) for key in KEYS] for row in study["rows"]]
        folder, plot = study["folders"][0], next(iter(plots_of(kept[study["folders"][0]])))
        table += [[f"[{name}]({name}.md), [plot]({folder}/{plot}.svg)", *answer] for answer in answers]
        intro = ["[All results](README.md)", markdown_table(HEADER[1:], answers, 3), RULE]
        chapters = read_chapters([RESULTS / folder for folder in study["folders"]], RESULTS / "x.md")
        made[RESULTS / f"{name}.md"] = study_markdown(chapters, "\n\n".join(intro)) + "\n"
    front = read_remarks(RESULTS).replace("{table}", markdown_table(HEADER, table, 4))
    made[RESULTS / "README.md"] = quote_figures(front, kept) + "\n"
    for name, results in kept.items():
        for plot, (_, picture) in plots_of(results).items():
            made[RESULTS / name / f"{plot}.svg"] = standalone_svg(picture)
    return made


if __name__ == "__main__":
    for word in sys.argv[1:]:
        name, _, folder = word.partition("=")
        take(name, Path(folder))
    for file, text in make_files().items():
        file.write_text(text, encoding="utf-8")
