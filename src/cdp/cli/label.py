"""`cdp label`: read views, learn, accept pairs, propagate, write everything in one go."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cdp.cli.graphs import GraphSearch, find_graphs, read_given_graphs
from cdp.cli.tables import print_label_report
from cdp.consensus.estimator import CDP
from cdp.consensus.mediator import Mediator
from cdp.consensus.pairs import candidate_pairs
from cdp.consensus.soft_labels import diffuse, likely_pairs
from cdp.consensus.vote import Vote
from cdp.data.views import read_views
from cdp.errors import InputError
from cdp.evaluate.label_figures import LabelFigures, measure_labels
from cdp.evaluate.pair_figures import PairFigures, measure_pairs
from cdp.files import write_json, writing_folder
from cdp.graph.search import check_k
from cdp.progress import Progress, progress_bars
from cdp.store import fill, hash_views
from cdp.types import ConsensusGraph, Fate, KnnGraph, Labels, Views


@dataclass(frozen=True)
class LabelSettings:
    """Everything that can be said to `cdp label`; the names are those of the options and of `CDP`."""

    unlabeled: Path
    out: Path
    learn_from: Path | None = None
    mediator: Path | None = None
    vote: bool = False
    quorum: int | None = None
    similarity: float | None = None
    k: int = 20
    threshold: float = 0.96
    max_size: int = 600
    step: float = 0.1
    inputs: tuple[str, ...] = ("relationship", "affinity", "distribution")
    grouping: str = "components"
    join_above: float = 0.3
    method: str = "auto"
    knn: tuple[str, ...] = ()
    keep_graphs: Path | None = None
    depth: int = 0
    decay: float = 0.2
    base: str | None = None
    dim: int | None = None
    memory_budget: str = "1GB"
    seed: int = 0
    threads: int = 0
    force: bool = False
    quiet: bool = False


@dataclass(frozen=True)
class LabelRun:
    """What a run made, before it is written."""

    labels: Labels
    graph: ConsensusGraph
    graphs: list[KnnGraph]
    mediator: Mediator | Vote
    pair_figures: PairFigures | None
    label_figures: LabelFigures | None
    seconds: dict[str, float]


def label_images(settings: LabelSettings) -> LabelRun:
    """Run `cdp label`; the output folder appears only when everything is in it."""
    model = _make_model(settings)
    # Opened first: that the output cannot be written must not be found out after an hour of work.
    with writing_folder(settings.out, force=settings.force) as folder:
        unlabeled = read_views(settings.unlabeled, dim=settings.dim, base=settings.base)
        labeled = None
        if settings.learn_from is not None:
            labeled = read_views(settings.learn_from, dim=settings.dim, base=settings.base)
            check_same_models(labeled, unlabeled, settings)
        with progress_bars(not settings.quiet) as progress:
            run = run_label(model, labeled, unlabeled, settings, progress)
            _write(folder, run, labeled, unlabeled, settings)
    if not settings.quiet:
        print_label_report(run, settings.out)
    return run


def _make_model(settings: LabelSettings) -> CDP:
    ways = [settings.learn_from is not None, settings.mediator is not None, settings.vote]
    if sum(ways) != 1:
        raise InputError("Choose one of --learn-from LABELED, --mediator FOLDER and --vote.")
    if not settings.vote and (settings.quorum is not None or settings.similarity is not None):
        raise InputError("--quorum and --similarity go with --vote.")
    mediator: Vote | Mediator | None = None
    if settings.vote:
        mediator = Vote(quorum=settings.quorum, threshold=settings.similarity)
    elif settings.mediator is not None:
        mediator = Mediator.load(settings.mediator)
    return CDP(
        k=settings.k,
        threshold=settings.threshold,
        max_size=settings.max_size,
        step=settings.step,
        mediator=mediator,
        inputs=settings.inputs,
        grouping=settings.grouping,
        join_above=settings.join_above,
        method=settings.method,
        memory_budget=settings.memory_budget,
        seed=settings.seed,
        threads=settings.threads,
    )


def check_same_models(labeled: Views, unlabeled: Views, settings: LabelSettings) -> None:
    """Both parts must be seen by the same models."""
    if tuple(labeled.committee) != tuple(unlabeled.committee):
        raise InputError(
            f"{settings.learn_from} has the committee ({', '.join(labeled.committee)}), {settings.unlabeled} has "
            f"({', '.join(unlabeled.committee)}); both parts need the same models."
        )
    for name, one, other in zip(labeled.names, labeled, unlabeled, strict=True):
        if one.dimensions != other.dimensions:
            raise InputError(
                f"{name!r} has {one.dimensions} dimensions in {settings.learn_from} and {other.dimensions} in "
                f"{settings.unlabeled}; were they embedded by the same network?"
            )


def run_label(
    model: CDP, labeled: Views | None, unlabeled: Views, settings: LabelSettings, progress: Progress
) -> LabelRun:
    """Everything between reading and writing."""
    seconds: dict[str, float] = {}
    clock = time.perf_counter()

    def lap(step: str) -> None:
        nonlocal clock
        now = time.perf_counter()
        seconds[step] = round(now - clock, 3)
        clock = now

    check_k(settings.k, unlabeled.n_images)
    search = GraphSearch(settings.k, settings.method, settings.seed, settings.threads, settings.keep_graphs)
    given = read_given_graphs(settings.knn, unlabeled, settings.k)
    if labeled is not None:
        check_k(settings.k, labeled.n_images)
        labeled_graphs = find_graphs(labeled, search, progress=progress, part="labeled ")
        lap("labeled graphs")
        model.fit(labeled, graphs=labeled_graphs, progress=progress)
    else:
        model.fit(unlabeled)
    lap("learn")
    graphs = find_graphs(unlabeled, search, given, progress=progress)
    lap("graphs")
    graph = model.consensus(unlabeled, graphs, progress=progress)
    lap("pairs")
    labels = model.group(graph)
    lap("propagation")
    pair_figures = label_figures = None
    # The identities of the unlabeled part are looked at here, after everything is decided, and nowhere else.
    if unlabeled.identities is not None and np.any(unlabeled.identities >= 0):
        pair_figures = measure_pairs(graph, candidate_pairs(graphs[0]), unlabeled.identities)
        label_figures = measure_labels(labels, unlabeled.identities)
        lap("figures")
    return LabelRun(labels, graph, graphs, model.mediator_, pair_figures, label_figures, seconds)


def _write(
    folder: Path, run: LabelRun, labeled: Views | None, unlabeled: Views, settings: LabelSettings
) -> None:
    said = {
        name: str(value) if isinstance(value, Path) else value
        for name, value in asdict(settings).items()
        if name not in ("out", "force", "quiet", "threads", "keep_graphs")
    }
    made_from = {f"unlabeled/{name}": digest for name, digest in hash_views(unlabeled).items()}
    if labeled is not None:
        made_from |= {f"labeled/{name}": digest for name, digest in hash_views(labeled).items()}
    graphs = {
        name: {"method": graph.method, "recall": graph.recall}
        for name, graph in zip(unlabeled.names, run.graphs, strict=True)
    }
    about = {**said, "graphs": graphs, "seconds": run.seconds}
    fill(folder, run.labels, settings=about, made_from=made_from)
    fill(folder / "consensus", run.graph, settings=said, made_from=made_from)
    if isinstance(run.mediator, Mediator):
        fill(folder / "mediator", run.mediator, made_from=made_from)
    if settings.depth > 0:
        from scipy import sparse

        walked = likely_pairs(run.graph) if settings.grouping == "average" else run.graph
        soft = diffuse(walked, run.labels, settings.depth, settings.decay)
        sparse.save_npz(folder / "soft_labels.npz", soft)
    write_tables(folder, run.labels, unlabeled.paths)
    write_json(folder / "metrics.json", metrics(run))


def metrics(run: LabelRun) -> dict[str, Any]:
    """All figures of a run as plain values; those that need true identities are null without them."""
    counts = np.bincount(run.labels.fate, minlength=len(Fate))
    return {
        "images": run.labels.n_images,
        "identities": run.labels.n_identities,
        "coverage": run.labels.coverage,
        "accepted_pairs": len(run.graph),
        "fates": {kind.name.lower(): int(counts[kind]) for kind in Fate},
        "pairs": None if run.pair_figures is None else asdict(run.pair_figures),
        "labels": None if run.label_figures is None else run.label_figures.as_dict(),
    }


def write_tables(folder: Path, labels: Labels, paths: tuple[str, ...] | None) -> None:
    """labels.csv, labels.parquet and meta.txt: the same labels for people and other programs."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    fates = np.array([kind.name.lower() for kind in Fate])[labels.fate]
    columns: dict[str, Any] = {"row": np.arange(labels.n_images)}
    if paths is not None:
        columns["path"] = list(paths)
    columns |= {"label": labels.labels, "fate": fates, "confidence": labels.confidence}
    table = pa.table(columns)
    pyarrow.csv.write_csv(table, folder / "labels.csv")
    pyarrow.parquet.write_table(table, folder / "labels.parquet")
    np.savetxt(folder / "meta.txt", labels.labels, fmt="%d")
