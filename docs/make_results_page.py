"""Keep results of studies in docs/results, and make their page.

    python docs/make_results_page.py [NAME=STUDY_FOLDER ...]

takes results.json of the folders that `cdp study --out` wrote; then draws the plots and writes docs/results/README.md from all
results that are kept there and from the remarks.md beside them.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from cdp.lab.study.study_page import (
    alone,
    comparison_page,
    plots_of,
    read_chapters,
    read_remarks,
    read_results,
)

RESULTS = Path(__file__).parent / "results"
ORDER = (
    "ratio10",
    "ratio10_unseen",
    "mistakes",
    "recall_weight",
    "ratio10_soft",
    "ratio10_soft_recall",
    "ratio10_recipe",
    "ratio",
    "committee_size",
    "committee_size_lfw",
    "mediator_inputs",
    "mediator_inputs_unseen",
    "mediator_inputs_seen",
    "mediator_inputs_folds",
    "mediator_inputs_components",
    "mediator_inputs_lfw",
    "mediator_inputs_lfw_unseen",
    "base",
    "k",
    "k_lfw",
    "heterogeneity",
    "loss",
    "soft_labels",
    "rounds",
    "mediator_weights",
    "mediator_weights_lfw",
    "committee",
    "runtime",
    "baselines",
    "baselines_lfw",
)
"""Folders in docs/results, in the order of the page; the paper's order, what goes beyond it beside it, LFW after Omniglot."""


def take(name: str, folder: Path) -> None:
    """Keep the results of one study; its runs stay where they are."""
    if name not in ORDER:
        raise SystemExit(f"{name}: not in ORDER of this script.")
    read_results(folder)
    (RESULTS / name).mkdir(parents=True, exist_ok=True)
    shutil.copy(folder / "results.json", RESULTS / name / "results.json")


def make_files() -> dict[Path, str]:
    """Every plot and the page, from what is kept."""
    folders = [RESULTS / name for name in ORDER]
    made = {
        folder / f"{name}.svg": alone(picture)
        for folder in folders
        for name, (_, picture) in plots_of(read_results(folder)).items()
    }
    page = RESULTS / "README.md"
    made[page] = comparison_page(read_chapters(folders, page), foreword=read_remarks(RESULTS))
    return made


if __name__ == "__main__":
    for word in sys.argv[1:]:
        kept, _, place = word.partition("=")
        take(kept, Path(place))
    for file, text in make_files().items():
        file.write_text(text, encoding="utf-8")
