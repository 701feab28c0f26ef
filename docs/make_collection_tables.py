"""The tables of docs/results/collections.md, from what `python -m benchmarks collections` measured.

python -m benchmarks collections --out docs/results/collections.json && python docs/make_collection_tables.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
PAGE, MEASURED = DOCS / "results" / "collections.md", DOCS / "results" / "collections.json"
SETS = {"lfw": "LFW", "drawn faces": "drawn faces", "omniglot": "Omniglot"}
ORDERS = ("random", "by person", "rare first")
REVIEWED = ("omniglot", "drawn faces")
REVIEWS = {
    "most valuable first": "most valuable first",
    "most valuable first, learning": "… with trees retrained every 250 answers",
    "least confident first": "least confident first",
    "random": "random",
}


def make_batches_table(measured: dict[str, Any]) -> str:
    """A row for every set and order: figures in batches and at once, numbers kept, seconds."""
    lines = [
        "| images, order | F in batches | F at once | behind by | F after the first batch | kept, mean | kept, least | seconds of a batch | at once |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for key, name in SETS.items():
        for order in ORDERS:
            found = measured[f"batches, {key}, {order}"]
            shown = "random again" if (key, order) == ("omniglot", "rare first") else order
            grown, once = found["in_batches"]["f"], found["at_once"]["f"]
            seconds = [step["seconds"] for step in found["steps"][1:]]
            mean = sum(seconds) / len(seconds)
            lines.append(
                f"| {name}, {shown} | {grown:.4f} | {once:.4f} | {once - grown:.4f} | {found['steps'][0]['f']:.3f} | "
                f"{found['mean_kept_numbers']:.4f} | {found['least_kept_numbers']:.4f} | "
                f"{min(seconds):.1f} to {max(seconds):.1f}, mean {mean:.1f} | {found['seconds_at_once']:.1f} |"
            )
    return "\n".join(lines) + "\n"


def make_review_table(measured: dict[str, Any]) -> str:
    """A row for every order of questions: how many until 0.99, and F on the way."""
    head = " | ".join(f"{SETS[key]}: precision 0.99 | F 0.99 | F on the way" for key in REVIEWED)
    lines = [f"| order | {head} |", "|---|" + "---:|---:|---|" * len(REVIEWED)]
    for order, name in REVIEWS.items():
        cells = []
        for key in REVIEWED:
            found = measured[f"review, {key}, {order}"]
            curve = found["curve"]
            on_the_way = ", ".join(
                f"{f:.3f}" + (f" ({asked:,})" if asked else "")
                for asked, _, f in curve[:: max(1, len(curve) // 3)][:3]
            )
            reached = [found[mark] for mark in ("precision 0.99", "f 0.99")]
            counts = ["not reached" if one is None else f"{one:,}" for one in reached]
            cells += [*counts, on_the_way]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Put the tables between their marks."""
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))["collections"]
    page = PAGE.read_text(encoding="utf-8")
    for name, table in (("batches", make_batches_table(measured)), ("reviews", make_review_table(measured))):
        start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
        before, _, rest = page.partition(start)
        _, _, after = rest.partition(end)
        page = f"{before}{start}\n{table}\n{end}{after}"
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
