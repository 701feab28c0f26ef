"""What is read from a run's folder, as rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from cdp.config.sections import RunRecipe
from cdp.lab.study.design import Column, Figures, Finished, Measure

LABEL_COLUMNS = (
    Column("accepted", "accepted pairs", "count", ""),
    Column("pair_recall", "pair recall"),
    Column("pair_precision", "pair precision"),
    Column("recall", "pairwise recall"),
    Column("precision", "pairwise precision"),
    Column("f", "pairwise F"),
    Column("bcubed_f", "BCubed F"),
    Column("coverage", "images labeled"),
)


def label_columns(recipe: RunRecipe) -> list[Column]:
    """Pairs and labels, as in the paper's ablation, and what it leaves out."""
    del recipe
    return list(LABEL_COLUMNS)


def recognition_columns(recipe: RunRecipe) -> list[Column]:
    """Rank-1 and TPR on people never seen."""
    return [
        Column("rank1", "rank-1"),
        *(Column(tpr_key(fpr), f"TPR at FPR {fpr:g}") for fpr in recipe.evaluation.fpr),
        Column("images", "images", "count", ""),
    ]


def tpr_key(fpr: float) -> str:
    """`tpr_0.001`."""
    return f"tpr_{fpr:g}"


def read_json(folder: Path, name: str) -> Any:
    """A file of figures."""
    return json.loads((folder / name).read_text(encoding="utf-8"))


def label_figures(folder: Path) -> Figures:
    """Pairs and labels against the truth."""
    true = read_json(folder, "labels/metrics.json")["labels"]["true"]
    if true is None:
        return dict.fromkeys([*(column.key for column in LABEL_COLUMNS), "groups"])
    pairs = true["pairs"] or {}
    kept = true["discards_kept"]
    return {
        "accepted": pairs.get("accepted"),
        "pair_recall": pairs.get("recall"),
        "pair_precision": pairs.get("precision"),
        "recall": kept["pairwise"]["recall"],
        "precision": kept["pairwise"]["precision"],
        "f": kept["pairwise"]["f"],
        "bcubed_f": kept["bcubed"]["f"],
        "coverage": true["coverage"],
        "groups": true["identities_found"],
    }


def one_row_of_labels(*cells: str) -> Any:
    """A reader whose one row is about the labels."""

    def read(run: Finished) -> list[Measure]:
        return [Measure(cells, label_figures(run.folder))]

    return read


def recognized(told: dict[str, Any]) -> Figures:
    """One network's figures."""
    figures = {"rank1": told["rank1"]["value"], "images": told.get("images")}
    return figures | {tpr_key(one["fpr"]): one["value"] for one in told["tpr"]}


def headline(folder: Path) -> dict[str, Figures]:
    """Figures of `labeled`, `cdp` and `all`, as far as they were trained."""
    return {model["key"]: recognized(model) for model in read_json(folder, "recognition.json")["models"]}


def measured_ratio(folder: Path) -> float:
    """Unlabeled images per labeled one."""
    counts = read_json(folder, "parts/counts.json")
    return float(counts["unlabeled"]["images"] / counts["labeled"]["images"])
