"""The table of bars chosen without labels in docs/quality.md, from what `python -m benchmarks unsupervised` measured.

python -m benchmarks unsupervised --out docs/results/unsupervised.json && python docs/make_bar_table.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
PAGE, MEASURED = DOCS / "quality.md", DOCS / "results" / "unsupervised.json"
MARKS = ("<!-- unsupervised figures -->\n", "<!-- end of unsupervised figures -->\n")
NAMES = {"lfw": "LFW", "omniglot": "Omniglot", "demo": "drawn faces", "crowd": "made-up"}
CLOSE = 0.03


def make_table(measured: dict[str, Any]) -> str:
    """Rows as they were measured; what is further off than three points is bold."""
    lines = [
        "| | images | agreement of the halves | F at the chosen bar | F at the best bar | off by |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in measured.items():
        if not isinstance(found, dict):
            continue
        first, *others = name.split(", ")
        head, *rest = first.split(" ")
        shown = ", ".join([" ".join([NAMES.get(head, head), *rest]), *others])
        off = f"{found['off']:.3f}"
        agreement = "" if found["agreement"] is None else f"{found['agreement']:.3f}"
        lines.append(
            f"| {shown} | {found['images']:,} | {agreement} | {found['f']:.3f} | {found['best_f']:.3f} | "
            f"{f'**{off}**' if found['off'] > CLOSE else off} |"
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Put the table between its marks."""
    measured = json.loads(MEASURED.read_text(encoding="utf-8"))["unsupervised"]
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(MARKS[0])
    _, _, after = rest.partition(MARKS[1])
    PAGE.write_text(f"{before}{MARKS[0]}\n{make_table(measured)}\n{MARKS[1]}{after}", encoding="utf-8")


if __name__ == "__main__":
    main()
