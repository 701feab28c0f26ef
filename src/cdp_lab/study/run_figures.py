"""What is read from a run's folder, as rows."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from cdp.config.sections import RunRecipe
from cdp.storage.artifacts import read_json
from cdp.types.run_record import Headline, PartRecord, RecognitionFigures, Results
from cdp_lab.study.design import Column, Figures, Finished, Measure

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


def label_columns(_recipe: RunRecipe) -> list[Column]:
    """Pairs and labels, as in the paper's ablation, and what it leaves out."""
    return list(LABEL_COLUMNS)


def recognition_columns(recipe: RunRecipe) -> list[Column]:
    """Rank-1 and TPR on identities that no network was trained on."""
    return [
        Column("rank1", "rank-1"),
        *(Column(tpr_key(fpr), f"TPR at FPR {fpr:g}") for fpr in recipe.evaluation.fpr),
        Column("images", "images", "count", ""),
    ]


def tpr_key(fpr: float) -> str:
    """`tpr_0.001`."""
    return f"tpr_{fpr:g}"


def label_results(folder: Path) -> Results:
    """Return all figures of the labels of a run."""
    results: Results = read_json(folder / "labels" / "metrics.json", Results)
    return results


def label_figures(folder: Path) -> Figures:
    """Pairs and labels against the truth; nothing is known without it."""
    true = label_results(folder).labels.true
    if true is None:
        return {}
    pairs, pairwise = true.pairs, true.discards_kept.pairwise
    return {
        "accepted": None if pairs is None else pairs.accepted,
        "pair_recall": None if pairs is None else pairs.recall,
        "pair_precision": None if pairs is None else pairs.precision,
        "precision": pairwise.precision,
        "recall": pairwise.recall,
        "f": pairwise.f,
        "bcubed_f": true.discards_kept.bcubed.f,
        "coverage": true.coverage,
        "groups": true.identities_found,
    }


def one_row_of_labels(*cells: str) -> Callable[[Finished], list[Measure]]:
    """Return a reader whose one row is about the labels."""

    def read(run: Finished) -> list[Measure]:
        return [Measure(cells, label_figures(run.folder))]

    return read


def recognized(figures: RecognitionFigures) -> Figures:
    """One network's rank-1 and rates."""
    return {"rank1": figures.rank1.value} | {tpr_key(rate.fpr): rate.value for rate in figures.tpr}


def headline(folder: Path) -> dict[str, Figures]:
    """Figures of `labeled`, `cdp` and `all`, as far as they were trained."""
    models = read_json(folder / "recognition.json", Headline).models
    return {model.key: {**recognized(model), "images": model.images} for model in models}


def measured_ratio(folder: Path) -> float:
    """Unlabeled images per labeled one."""
    counts = read_json(folder / "parts" / "counts.json", dict[str, PartRecord])
    return float(counts["unlabeled"].images / counts["labeled"].images)
