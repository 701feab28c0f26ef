"""`cdp example`: made-up embeddings, labeled four ways, as a user would do it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

from cdp.cli.label import LabelSettings, label_images
from cdp.cli.tables import decimals, percent
from cdp.consensus.estimator import CDP
from cdp.consensus.vote import Vote
from cdp.evaluate.label_figures import LabelFigures, measure_labels
from cdp.files import writing_folder
from cdp.graph.search import knn_graphs
from cdp.lab.synthetic import synthetic_views
from cdp.progress import Progress, progress_bars
from cdp.store import fill
from cdp.types import ALL_INPUTS, KnnGraph, Views


def run_example(out: Path, n_identities: int, *, seed: int, force: bool, quiet: bool) -> None:
    """Write two parts of made-up views, label the unlabeled one four ways, keep the best way's output."""
    split = synthetic_views(n_identities, seed=seed)
    console = Console(quiet=quiet)
    with writing_folder(out, force=force) as folder:
        (folder / "views").mkdir()
        fill(folder / "views" / "labeled", split.labeled)
        fill(folder / "views" / "unlabeled", split.unlabeled)
        console.print(f"Labeled part:   {split.labeled}", highlight=False, soft_wrap=True)
        console.print(f"Unlabeled part: {split.unlabeled}", highlight=False, soft_wrap=True)
        with progress_bars(not quiet) as progress:
            rows = _compare(split.labeled, split.unlabeled, seed, progress)
        label_images(
            LabelSettings(
                unlabeled=folder / "views" / "unlabeled",
                learn_from=folder / "views" / "labeled",
                out=folder / "labels",
                inputs=ALL_INPUTS,
                seed=seed,
                quiet=True,
            )
        )
    table = Table(
        title="Pseudo-labels: pairwise figures, BCubed F, share of images labeled", title_justify="left"
    )
    for name in ("", "precision", "recall", "F", "BCubed", "labeled", "found"):
        table.add_column(name, justify="left" if not name else "right")
    for name, figures in rows:
        pairwise, bcubed = figures.discards_kept.pairwise, figures.discards_kept.bcubed
        scores = [decimals(value) for value in (pairwise.precision, pairwise.recall, pairwise.f, bcubed.f)]
        table.add_row(name, *scores, percent(figures.coverage), f"{figures.identities_found:,}")
    console.print(table)
    console.print(
        f"{rows[0][1].identities_true_shared:,} people have two images or more and could be found. "
        "Discarded images count as groups of one.\n"
        f"The last way's labels are in {out / 'labels'}. The same by hand:\n"
        f"  cdp label {out / 'views/unlabeled'} --learn-from {out / 'views/labeled'} "
        f"--inputs {','.join(ALL_INPUTS)} --out mylabels\n"
        f"  cdp show {out / 'labels'}",
        highlight=False,
        soft_wrap=True,
    )


def _compare(
    labeled: Views, unlabeled: Views, seed: int, progress: Progress
) -> list[tuple[str, LabelFigures]]:
    graphs = {
        part: knn_graphs(list(views), 20, names=[f"{part} {name}" for name in views.names], progress=progress)
        for part, views in (("labeled", labeled), ("unlabeled", unlabeled))
    }
    alone = _tune_single_model(labeled, graphs["labeled"][0])
    ways = {
        f"base alone, > {alone:.2f}": CDP(mediator=Vote(quorum=0, threshold=alone)),
        "unanimous vote": CDP(mediator=Vote()),
        "mediator, as in the paper": CDP(seed=seed),
        "  with common neighbors": CDP(inputs=ALL_INPUTS, seed=seed),
    }
    rows = []
    for name, model in ways.items():
        model.fit(labeled, graphs=graphs["labeled"], progress=progress)
        labels = model.predict(unlabeled, graphs["unlabeled"])
        assert unlabeled.identities is not None
        rows.append((name, measure_labels(labels, unlabeled.identities)))
    return rows


def _tune_single_model(labeled: Views, graph: KnnGraph) -> float:
    """The similarity threshold with the best pairwise F on the labeled part."""
    alone = Views(labeled.base, identities=labeled.identities)
    assert alone.identities is not None

    def quality(threshold: float) -> float:
        labels = CDP(mediator=Vote(threshold=threshold)).predict(alone, [graph])
        assert alone.identities is not None
        return measure_labels(labels, alone.identities).discards_kept.pairwise.f or 0.0

    return float(max(np.arange(0.3, 0.96, 0.05), key=quality))
