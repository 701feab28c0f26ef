"""The table of other k-NN libraries in docs/results/search.md, from what `python -m benchmarks peers` measured.

python -m benchmarks peers --out docs/results/peers.json && python docs/make_peers_table.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
PAGE, MEASURED = DOCS / "results" / "search.md", DOCS / "results" / "peers.json"
START, END = "<!-- peers -->\n", "<!-- end of peers -->\n"
SETS = {
    "structured": "made up, structured",
    "omniglot": "Omniglot drawings, a small ResNet",
    "lfw": "LFW, MobileFaceNet",
}


def make_table(measured: dict[str, Any]) -> str:
    """A row for every search."""
    lines = [
        "| embeddings | library | index and parameters | recall | CPU seconds | peak memory, MB |",
        "|---|---|---|---:|---:|---:|",
    ]
    for key, name in SETS.items():
        if key not in measured:
            continue
        found = measured[key]
        shown = f"{found['images']:,} × {found['dimensions']}, {name}"
        for row in found["rows"]:
            library = "**cdp**" if row["library"] == "cdp" else f"{row['library']} {row['version']}"
            lines.append(
                f"| {shown} | {library} | `{row['setting']}` | {row['recall']:.3f} | {row['cpu_seconds']:.1f} | "
                f"{row['peak_mb']:,} |"
            )
            shown = ""
    return "\n".join(lines) + "\n"


def between_marks(page: str, table: str) -> str:
    """The page with this table between its marks."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n{table}\n{END}{after}"


def main() -> None:
    """Put the table between its marks."""
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))["peers"]
    page = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(between_marks(page, make_table(measured)), encoding="utf-8")


if __name__ == "__main__":
    main()
