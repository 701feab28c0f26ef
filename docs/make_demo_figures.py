"""The demo's figures for docs/results/demo.md: a table, and the numbers it was made from.

cdp demo --full --out demo && python docs/make_demo_figures.py demo
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec

from cdp.config.reading import recipe_from
from cdp.config.sections import DataSection
from cdp.config.writing import write_recipe
from cdp.storage.artifacts import read_run_record
from cdp.types.run_record import RunRecord

DOCS = Path(__file__).resolve().parent
PAGE = DOCS / "results" / "demo.md"
KEPT = DOCS / "results" / "demo.json"
MARKS = ("<!-- demo figures -->\n", "<!-- end of demo figures -->\n")


def kept_figures(record: RunRecord) -> dict[str, Any]:
    """What of a run's record the table needs, and what says how it was made; somebody's folders are left out."""
    run = msgspec.to_builtins(record)
    labels = run["results"]["labels"]
    true = {key: labels["true"][key] for key in ("pairs", "discards_kept", "discards_removed")}
    recipe = replace(recipe_from(record.recipe), data=DataSection())
    return {
        "command": "cdp demo",
        **{key: run[key] for key in ("cdp", "versions", "cores", "device", "seed", "started", "parts")},
        "recipe_text": write_recipe(recipe, commented=False),
        "seconds": round(run["seconds"], 1),
        "headline": run["results"]["headline"],
        "labels": {
            key: labels[key] for key in ("threshold_kind", "threshold", "coverage", "identities_found")
        }
        | {"true": true},
        "members": run["results"]["committee"]["members"],
        "stages": [
            {key: stage[key] for key in ("name", "seconds", "peak_memory")} for stage in run["stages"]
        ],
    }


def table(figures: dict[str, Any]) -> str:
    """The headline as Markdown."""
    headline = figures["headline"]
    strictest = min(
        range(len(headline["models"][0]["tpr"])), key=lambda at: headline["models"][0]["tpr"][at]["fpr"]
    )
    fpr = headline["models"][0]["tpr"][strictest]["fpr"]
    lines = [
        f"| {headline['network']} trained on | images | rank-1 | TPR at FPR {fpr:g} |",
        "|---|---|---|---|",
    ]
    for model in headline["models"]:
        cells = (
            model["title"],
            f"{model['images']:,}",
            with_interval(model["rank1"]),
            with_interval(model["tpr"][strictest]),
        )
        lines.append(f"| {' | '.join(cells)} |")
    gap = headline["gap_closed"]
    cells = ("**share of the gap closed**", "", percent(gap["rank1"]), percent(gap["tpr"][strictest]))
    lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def with_interval(figure: dict[str, float]) -> str:
    return f"{figure['value']:.3f} ({figure['low']:.3f}–{figure['high']:.3f})"


def percent(figure: dict[str, float]) -> str:
    return f"**{100 * figure['value']:.0f} %** ({100 * figure['low']:.0f}–{100 * figure['high']:.0f})"


def between_marks(text: str, inside: str) -> str:
    """The page with the table put between its marks."""
    start, end = MARKS
    return re.sub(
        f"{re.escape(start)}.*?{re.escape(end)}", lambda _: f"{start}{inside}{end}", text, flags=re.DOTALL
    )


def main() -> None:
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "demo")
    figures = kept_figures(read_run_record(folder / "run" / "run.json"))
    KEPT.write_text(json.dumps(figures, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    PAGE.write_text(between_marks(PAGE.read_text(encoding="utf-8"), table(figures)), encoding="utf-8")


if __name__ == "__main__":
    main()
