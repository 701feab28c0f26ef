"""The tables of labels without labels in docs/results/unlabeled_albums.md and README.md, from the figures that are kept.

python -m benchmarks unlabeled_albums --out docs/results/unlabeled_albums.json
python -m benchmarks lfw_unlabeled --out docs/results/lfw_unlabeled.json
python -m benchmarks album_questions --out docs/results/album_questions.json
python docs/make_unlabeled_tables.py
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
RESULTS = DOCS / "results"
PAGE, README = RESULTS / "unlabeled_albums.md", DOCS.parent / "README.md"
METHODS = {
    "cdp": "**cdp**, no setting",
    "hierarchical_average": "average linkage",
    "dbscan": "DBSCAN",
    "hdbscan": "HDBSCAN",
    "infomap": "Infomap",
    "fc_es": "FC-ES",
}

STRONG = ("sface", "mobilefacenet", "lfw committee", "mobilefacenet_foamliu", "faceplugin_fr_feature")
CLOSE, BEHIND = (0.01, 0.03, 0.05), 0.005

Figures = dict[str, Any]


def make_losses(measured: Figures) -> str:
    """How far `CDP()` is behind the best threshold, by model."""
    cells = measured["cells"]
    strong = {f"{name}: {title}": cell for name in STRONG for title, cell in cells.get(name, {}).items()}
    rows = [_losses(name, one) for name, one in ({"**strong models**": strong} | cells).items() if one]
    return _table(
        [
            "embeddings",
            "albums",
            *(f"loss at most {close:g}" for close in CLOSE),
            "mean loss",
            "greatest loss",
            "albums more than 0.005 behind DBSCAN",
        ],
        rows,
    )


def _losses(name: str, cells: Figures) -> list[Any]:
    loss = {
        title: round(cell["best"]["bcubed_f"] - cell["cdp"]["bcubed_f"], 4) for title, cell in cells.items()
    }
    behind = [cell["dbscan"]["bcubed_f"] - cell["cdp"]["bcubed_f"] > BEHIND for cell in cells.values()]
    worst = max(loss, key=loss.__getitem__)
    shares = [_percent(sum(one <= close for one in loss.values()) / len(loss)) for close in CLOSE]
    mean = sum(loss.values()) / len(loss)
    return [name, len(cells), *shares, f"{mean:.3f}", f"{loss[worst]:.3f} ({worst})", sum(behind)]


def make_means(measured: Figures) -> str:
    """Mean and lowest BCubed F of the methods, by model."""
    rows = []
    for name, cells in measured["cells"].items():
        row = [name]
        for method in ("cdp", "best", "dbscan"):
            scores = [cell[method]["bcubed_f"] for cell in cells.values()]
            row.append(f"{sum(scores) / len(scores):.3f} ({min(scores):.3f})")
        rows.append(row)
    return _table(["embeddings", "cdp", "best threshold by the truth", "DBSCAN at 0.5"], rows)


def make_committees(measured: Figures) -> str:
    """Committees next to their best member."""
    rows = [
        [
            name,
            found["albums"],
            found["behind_best_member"],
            f"{-found['behind_best_member_mean']:+.3f}",
            f"{-found['behind_best_member_most']:+.3f}",
        ]
        for name, found in measured["summaries"].items()
        if found["behind_best_member"] is not None
    ]
    return _table(
        [
            "committee",
            "albums",
            "more than 0.005 behind its best member",
            "mean difference",
            "greatest loss against it",
        ],
        rows,
    )


def make_expectations(measured: Figures) -> str:
    """Expected precision and confidence next to the truth, and singletons in groups."""
    rows = []
    for name, found in measured["summaries"].items():
        alone = found["only_singletons_in_groups"]
        rows.append(
            [
                name,
                f"{found['expected_precision_known']} of {found['albums']}",
                _percent(found["expected_precision_within_0.03"]),
                _percent(found["confidence_within_0.05"]),
                "–" if found["confidence_off_mean"] is None else f"{found['confidence_off_mean']:.3f}",
                "–" if alone is None else f"{100 * alone:.1f} %",
            ]
        )
    return _table(
        [
            "embeddings",
            "albums with an expected precision",
            "expected precision within 0.03",
            "mean confidence within 0.05",
            "mean deviation of the mean confidence",
            "only singletons: most images in groups",
        ],
        rows,
    )


def make_questions(figures: Figures) -> str:
    """What the first twenty answers put right, by model."""
    columns = ("announced", "asked", "wrong pairs", "pairs put right", "pairs put right per answer")
    rows = [
        [name, len(found["albums"]), *(found["summary"][column] for column in columns)]
        for name, found in figures.items()
        if isinstance(found, dict)
    ]
    return _table(["embeddings", "albums", "questions worth asking", *columns[1:]], rows)


def make_lfw(figures: Figures) -> str:
    """Pairwise and BCubed F of every method on all of LFW, by model."""
    models = [name for name, found in figures.items() if isinstance(found, dict)]
    rows = [
        [
            title,
            *(
                f"{figures[model][method]['pairwise_f']:.3f} / {figures[model][method]['bcubed_f']:.3f}"
                for model in models
            ),
        ]
        for method, title in METHODS.items()
        if all(method in figures[model] for model in models)
    ]
    return _table(["pairwise / BCubed F", *models], rows)


def between_marks(page: str, name: str, table: str) -> str:
    """The page with a table between its marks."""
    start, end = f"<!-- TABLE: {name} -->\n", f"<!-- END: {name} -->\n"
    before, _, rest = page.partition(start)
    _, _, after = rest.partition(end)
    return f"{before}{start}\n{table}\n{end}{after}"


def tables() -> dict[Path, dict[str, str]]:
    """Tables by page and mark."""
    albums, lfw, questions = (
        json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))[name]
        for name in ("unlabeled_albums", "lfw_unlabeled", "album_questions")
    )
    whole = make_lfw(lfw)
    return {
        PAGE: {
            "losses": make_losses(albums),
            "means": make_means(albums),
            "committees": make_committees(albums),
            "expectations": make_expectations(albums),
            "questions": make_questions(questions),
            "unlabeled LFW": whole,
        },
        README: {"unlabeled LFW": whole},
    }


def main() -> None:
    """Put the tables between their marks."""
    for file, made in tables().items():
        page = file.read_text(encoding="utf-8")
        for name, table in made.items():
            page = between_marks(page, name, table)
        file.write_text(page, encoding="utf-8")


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{100 * share:.0f} %"


def _table(head: list[str], rows: list[list[Any]]) -> str:
    lines = [f"| {' | '.join(head)} |", "|---" * len(head) + "|"]
    lines += [f"| {' | '.join(map(str, row))} |" for row in rows]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
