"""The tables of bars chosen without labels in docs/quality.md, from what was measured.

python -m benchmarks unsupervised --out docs/results/unsupervised.json
python -m benchmarks albums --out docs/results/albums.json
python -m benchmarks one_person --out docs/results/one_person.json
python docs/make_bar_table.py
"""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

DOCS = Path(__file__).resolve().parent
PAGE, RESULTS = DOCS / "quality.md", DOCS / "results"
NAMES = {"lfw": "LFW", "omniglot": "Omniglot", "demo": "drawn faces", "crowd": "made-up"}
CLOSE = 0.03


def make_table(measured: dict[str, Any]) -> str:
    """Rows as they were measured; what is further off than three points is bold."""
    lines = [
        "| | images | agreement of the halves | F at the chosen bar | F at the best bar | off by |",
        "|---|---|---|---|---|---|",
    ]
    for name, found in measured.items():
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


def make_album_table(measured: dict[str, Any]) -> str:
    """A row per model: points of F lost on average and at worst over the kinds of albums, by size; then images joined wrongly."""
    sizes = sorted({int(name.split(", ")[-2]) for name in measured})
    found: dict[str, dict[int, list[float]]] = {}
    joined: dict[str, dict[int, float]] = {}
    for name, one in measured.items():
        *model, kind, size, _ = name.split(", ")
        shown = ", ".join([NAMES.get(model[0], model[0]), *model[1:]])
        if kind == "nobody twice":
            joined.setdefault(shown, {})[int(size)] = one["joined"]
        else:
            found.setdefault(shown, {}).setdefault(int(size), []).append(one["off"])
    found["all"] = {size: [off for rows in found.values() for off in rows.get(size, [])] for size in sizes}
    head = " | ".join(f"{size:,} images" for size in sizes)
    lines = [f"| mean / worst loss | {head} |", "|---" * (len(sizes) + 1) + "|"]
    for name, rows in found.items():
        cells = [f"{fmean(rows[size]):.3f} / {max(rows[size]):.3f}" if size in rows else "" for size in sizes]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", f"| joined where nobody is there twice | {head} |", "|---" * (len(sizes) + 1) + "|"]
    for name, shares in joined.items():
        cells = [f"{shares[size]:.0%}" if size in shares else "" for size in sizes]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def make_person_table(measured: dict[str, Any]) -> str:
    """Figures over the bar, one column per variant."""
    bars = [
        bar
        for bar in measured["as it is"]
        if bar != "chosen" and all(bar in one for one in measured.values())
    ]
    lines = ["| bar | " + " | ".join(measured) + " |", "|---" * (len(measured) + 1) + "|"]
    for bar in bars:
        cells = []
        for one in measured.values():
            row = one[bar]
            groups = ", ".join(map(str, row["largest_groups"][:2]))
            cells.append(f"{row['f']:.3f}, BCubed {row['bcubed_f']:.3f} ({groups})")
        lines.append(f"| {bar} | {' | '.join(cells)} |")
    chosen = [one[f"{one['chosen']:g}"] | {"bar": one["chosen"]} for one in measured.values()]
    cells = [f"{row['bar']:g}: {row['f']:.3f}, BCubed {row['bcubed_f']:.3f}" for row in chosen]
    lines.append(f"| chosen | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Put the tables between their marks."""
    page = PAGE.read_text(encoding="utf-8")
    for name, make in (
        ("unsupervised", make_table),
        ("albums", make_album_table),
        ("one_person", make_person_table),
    ):
        found = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))[name]
        measured = {key: value for key, value in found.items() if isinstance(value, dict)}
        start, end = f"<!-- {name} figures -->\n", f"<!-- end of {name} figures -->\n"
        before, _, rest = page.partition(start)
        _, _, after = rest.partition(end)
        page = f"{before}{start}\n{make(measured)}\n{end}{after}"
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
