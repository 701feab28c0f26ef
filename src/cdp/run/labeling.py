"""Stages of section 3.1 on a run's folder: graphs, mediator, consensus, labels."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cdp.config.checks import folder_name, member_names
from cdp.config.sections import RunRecipe
from cdp.consensus.agglomeration import agglomerate
from cdp.consensus.estimator import CDP
from cdp.consensus.mediator import Mediator
from cdp.consensus.pairs import candidate_pairs
from cdp.consensus.propagation import propagate
from cdp.consensus.vote import Vote
from cdp.errors import InputError
from cdp.evaluate.label_figures import Score, measure_among_others
from cdp.files import write_json, writing_folder
from cdp.graph.search import knn_graph
from cdp.lab.oracle import mend
from cdp.progress import Progress
from cdp.run.training import part
from cdp.store import fill, load, save
from cdp.types import ConsensusGraph, Embeddings, KnnGraph, Labels, Pairs, Views
from cdp.types.arrays import BoolArray, IntArray, LongArray

_THRESHOLDS = (0.5, 0.6, 0.7, 0.75, 0.8, 0.85, 0.9, 0.92, 0.94, 0.96, 0.98, 0.99, 0.995, 0.999)
_SIMILARITIES = tuple(round(0.05 * step, 2) for step in range(0, 20))
_MEANS = (0.02, 0.04, 0.06, 0.08, 0.1, 0.12, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.7)


@dataclass(frozen=True)
class Round:
    """One time that labels are made.

    Attributes:
        number: from 1.
        is_last: its labels are the run's.
    """

    number: int = 1
    is_last: bool = True

    @property
    def room(self) -> str:
        """Of the networks that are heard: trained on the labeled part, or on the labels of the round before."""
        return "networks" if self.number == 1 else f"round{self.number}"

    @property
    def place(self) -> str:
        """Where its files lie in the run's folder."""
        return "" if self.is_last else f"rounds/{self.number}/"

    @property
    def before(self) -> str:
        """What names of its stages and artifacts begin with."""
        return "" if self.is_last else f"round{self.number} "


ONLY = Round()


def rounds_of(recipe: RunRecipe) -> list[Round]:
    """All rounds of a recipe, in order."""
    last = recipe.consensus.rounds
    return [Round(number, number == last) for number in range(1, last + 1)]


def model_names(recipe: RunRecipe) -> list[str]:
    """The base, then the committee, by folder name."""
    return [folder_name(name) for name in member_names(recipe)]


def embeddings(folder: Path, artifact: str, shown: str) -> Embeddings:
    """One part as one network sees it."""
    return Views.load(folder / "embeddings" / artifact / shown).base


def views_of(recipe: RunRecipe, folder: Path, shown: str, room: str = "networks") -> Views:
    """One part as base and committee see it."""
    base, *committee = [embeddings(folder, f"{room}/{name}", shown) for name in model_names(recipe)]
    members = dict(zip(model_names(recipe)[1:], committee, strict=True))
    return Views(base, members, part(folder, shown).identities)


def graphs_of(recipe: RunRecipe, folder: Path, shown: str, turn: Round = ONLY) -> list[KnnGraph]:
    """The graphs of base and committee on one part."""
    return [load(folder / turn.place / "graphs" / name / shown, KnnGraph) for name in model_names(recipe)]


def find_graphs(
    recipe: RunRecipe, folder: Path, name: str, shown: Sequence[str], progress: Progress, turn: Round = ONLY
) -> None:
    """One network's k-NN graphs."""
    for where in shown:
        place = folder / turn.place / "graphs" / name / where
        graph = knn_graph(
            embeddings(folder, f"{turn.room}/{name}", where),
            recipe.consensus.k,
            recipe.consensus.method,
            seed=recipe.seed,
            threads=recipe.engine.threads,
            progress=progress,
        )
        save(graph, place, force=True, settings={"k": recipe.consensus.k})


def teach(recipe: RunRecipe, folder: Path, progress: Progress, turn: Round = ONLY) -> None:
    """The mediator learns from the labeled part; or from images that the networks did not see, a fold or the validation part."""
    model = estimator(recipe, None)
    if recipe.consensus.folds:
        lessons = [
            views_of(recipe, folder, f"lesson{fold}", f"fold{fold}")
            for fold in range(1, recipe.consensus.folds + 1)
        ]
        model.fit_lessons(lessons, progress=progress)
    elif recipe.consensus.lessons == "validation":
        # The figures of the labels leave these images out, so nothing is measured that was learned.
        views = views_of(recipe, folder, "unlabeled", turn.room)
        model.fit(views.take(np.arange(views.n_images)[-count_validation(folder) :]), progress=progress)
    else:
        graphs = graphs_of(recipe, folder, "labeled", turn)
        model.fit(views_of(recipe, folder, "labeled", turn.room), graphs=graphs, progress=progress)
    save(model.mediator_, folder / turn.place / "mediator", force=True)


def estimator(recipe: RunRecipe, mediator: Mediator | Vote | None) -> CDP:
    """CDP with the recipe's settings."""
    chosen = recipe.consensus
    return CDP(
        chosen.k,
        chosen.threshold,
        chosen.max_size,
        chosen.step,
        mediator=mediator,
        inputs=chosen.inputs,
        grouping=chosen.grouping,
        join_above=chosen.join_above,
        method=chosen.method,
        memory_budget=recipe.engine.memory_budget,
        seed=recipe.seed,
        threads=recipe.engine.threads,
    )


def bar_key(recipe: RunRecipe) -> str:
    """Which key holds the one number that decides how much is joined."""
    if recipe.consensus.mediator == "hierarchical":
        return "merge_above"
    if recipe.consensus.grouping == "average":
        return "join_above"
    return "vote_threshold" if recipe.consensus.mediator == "vote" else "threshold"


def given_bar(recipe: RunRecipe) -> float:
    """That number, as the recipe gives it."""
    return float(getattr(recipe.consensus, bar_key(recipe)))


def agree(recipe: RunRecipe, folder: Path, progress: Progress, turn: Round = ONLY) -> None:
    """Pairs that are accepted; the bar is the recipe's, or the best one on the validation part."""
    chosen = recipe.consensus
    bars = _bars(recipe) if chosen.tune else (given_bar(recipe),)
    if chosen.pair_recall >= 0:
        # Everything is let in, and cut where the recall is reached.
        bars = (-1.0,) if chosen.mediator == "vote" else (0.0,)
    place = folder / turn.place
    model = estimator(recipe, None if chosen.mediator == "vote" else Mediator.load(place / "mediator"))
    if chosen.mediator == "vote":
        threshold = chosen.vote_threshold if chosen.grouping == "average" else min(bars)
        model.set_params(mediator=Vote(None if chosen.quorum < 0 else chosen.quorum, threshold))
    elif chosen.grouping == "components":
        model.set_params(threshold=min(bars))
    if chosen.grouping == "average":
        model.set_params(join_above=min(bars))
    views = views_of(recipe, folder, "unlabeled", turn.room)
    graphs = graphs_of(recipe, folder, "unlabeled", turn)
    graph = model.consensus(views, graphs, progress=progress)
    tuning: dict[str, Any] | None = None
    if chosen.tune:
        assert views.identities is not None
        tuning = tune(graph, validation_only(folder, views.identities), bars, recipe)
        if chosen.grouping == "components":
            graph = stricter(graph, tuning["chosen"])
    if chosen.pair_recall >= 0:
        assert views.identities is not None
        base = candidate_pairs(graphs[0])
        counted = identities_to_count(folder, views.identities)
        bar = bar_at_recall(graph, base, counted, chosen.pair_recall)
        tuning = {"chosen": bar, "curve": []}
        graph = stricter(graph, bar)
    save(graph, place / "consensus", force=True)
    write_json(place / "tuning.json", tuning)


def bar_at_recall(
    graph: ConsensusGraph, candidates: Pairs, identities: LongArray, pair_recall: float
) -> float:
    """The bar above which just this share of the true candidate pairs lies; the lowest one if too few are accepted.

    For comparing committees, as in the paper: "we adjust pair similarity threshold to obtain fixed recall". It
    looks at the truth, so it is a way to measure and not to label.
    """

    def is_true(ids: IntArray) -> BoolArray:
        first, second = identities[ids[:, 0]], identities[ids[:, 1]]
        same: BoolArray = (first == second) & (first >= 0)
        return same

    n_true = int(is_true(candidates.ids).sum())
    if not n_true:
        raise InputError(
            "consensus.pair_recall needs the true identities of unlabeled images, and no candidate pair is known "
            "to be true; set consensus.pair_recall = -1."
        )
    doubt = np.sort(graph.doubt[is_true(graph.ids)].astype(np.float64))
    n_wanted = min(round(pair_recall * n_true), len(doubt))
    if n_wanted == len(doubt):
        return 1 - float(np.nextafter(graph.doubt.max(initial=0.0), np.inf, dtype=np.float32))
    # Between the last pair that is in and the first that is out.
    last = doubt[n_wanted - 1] if n_wanted else 0.0
    return 1 - float(last + doubt[n_wanted]) / 2


def cluster(recipe: RunRecipe, folder: Path) -> None:
    """The paper's clustering baseline: hierarchical clustering of what the base network sees, single images left out."""
    from cdp.lab.baselines.hierarchical import Hierarchical
    from cdp.lab.baselines.methods import BASELINES

    name = model_names(recipe)[0]
    shown = embeddings(folder, f"networks/{name}", "unlabeled")
    graph = load(folder / "graphs" / name / "unlabeled", KnnGraph)
    method = Hierarchical(memory_budget=recipe.engine.memory_budget)
    tuning: dict[str, Any] | None = None
    bar = recipe.consensus.merge_above
    if recipe.consensus.tune:
        told = validation_only(folder, part(folder, "unlabeled").identities)
        bars = [float(value) for value in BASELINES[method.name].grid["similarity"] if value is not None]
        cuts = method.label_each(shown, graph, [{"similarity": bar} for bar in bars])
        points = [_point(bar, labels, told) for bar, labels in zip(bars, cuts, strict=True)]
        tuning = best_of(points, recipe.consensus.recall_weight)
        bar = tuning["chosen"]
    # Pairs that an earlier run in this folder accepted are not what these labels come from.
    shutil.rmtree(folder / "consensus", ignore_errors=True)
    save(method.having(similarity=bar).label(shown, graph), folder / "labels", force=True)
    write_json(folder / "tuning.json", tuning)


def _bars(recipe: RunRecipe) -> tuple[float, ...]:
    if recipe.consensus.grouping == "average":
        return _MEANS
    return _SIMILARITIES if recipe.consensus.mediator == "vote" else _THRESHOLDS


def stricter(graph: ConsensusGraph, threshold: float) -> ConsensusGraph:
    """The pairs with a probability greater than the threshold."""
    kept = graph.doubt.astype(np.float64) < 1 - threshold
    return ConsensusGraph(graph.ids[kept], graph.doubt[kept], graph.n_images)


def group(graph: ConsensusGraph, bar: float, recipe: RunRecipe) -> Labels:
    """Labels at one bar, by the recipe's grouping."""
    chosen = recipe.consensus
    if chosen.grouping == "average":
        return agglomerate(graph, chosen.k, bar, chosen.max_size)
    return propagate(stricter(graph, bar), chosen.max_size, chosen.step)


def tune(
    graph: ConsensusGraph, identities: LongArray, bars: Sequence[float], recipe: RunRecipe
) -> dict[str, Any]:
    """The bar with the best pairwise F (by the recipe's weight of recall) on the validation images, and the whole curve.

    They are labeled in the midst of all unlabeled images, so the bar is right for as many; whoever else ends in their
    groups counts as a mistake.
    """
    points = [_point(bar, group(graph, bar, recipe), identities) for bar in bars]
    return best_of(points, recipe.consensus.recall_weight)


def best_of(curve: list[dict[str, Any]], recall_weight: float) -> dict[str, Any]:
    """The first point with the best F, recall so many times as important as precision, and the whole curve."""

    def merit(point: dict[str, Any]) -> float:
        return Score(point["precision"], point["recall"], point["f"]).weighted(recall_weight)

    best = max(curve, key=merit)
    by = {} if recall_weight == 1 else {"recall_weight": recall_weight}
    return {"chosen": best["threshold"], **by, "curve": curve}


def _point(bar: float, labels: Labels, identities: LongArray) -> dict[str, Any]:
    score = measure_among_others(labels, identities)
    return {
        "threshold": bar,
        "f": score.f or 0.0,
        "precision": score.precision,
        "recall": score.recall,
        "coverage": float((labels.labels[identities >= 0] >= 0).mean()),
    }


def chosen_bar(recipe: RunRecipe, folder: Path) -> float:
    """The bar that decided in a round's folder: tuned, or the recipe's."""
    tuning = json.loads((folder / "tuning.json").read_text(encoding="utf-8"))
    return given_bar(recipe) if tuning is None else float(tuning["chosen"])


def validation_only(folder: Path, identities: LongArray) -> LongArray:
    """The identities of the validation part, -1 elsewhere; it comes last among the unlabeled images."""
    n_validation = count_validation(folder)
    if not n_validation:
        raise InputError(
            "consensus.tune = true needs a validation part; give split.validation or data.validation."
        )
    told = np.full(len(identities), -1, np.int64)
    told[-n_validation:] = identities[-n_validation:]
    if (told < 0).all():
        raise InputError("The validation part has no identities, so the threshold cannot be chosen on it.")
    return told


def identities_to_count(folder: Path, identities: LongArray) -> LongArray:
    """The identities that figures of labels count: not those of the validation part, if there is one.

    What a threshold was chosen on would flatter it; and without them always, runs that choose one and runs that do
    not are measured on the same images.
    """
    counted = np.array(identities)
    counted[len(counted) - count_validation(folder) :] = -1
    return counted


def count_validation(folder: Path) -> int:
    """Rows of the validation part among the unlabeled images."""
    counts = json.loads((folder / "parts" / "counts.json").read_text(encoding="utf-8"))
    return int(counts.get("validation", {}).get("images", 0))


def label(recipe: RunRecipe, folder: Path, turn: Round = ONLY) -> None:
    """Labels by propagation, soft ones beside them if the recipe asks for them."""
    from scipy import sparse

    from cdp.consensus.soft_labels import diffuse, likely_pairs

    home = folder / turn.place
    graph = load(home / "consensus", ConsensusGraph)
    labels = group(graph, chosen_bar(recipe, home), recipe)
    if recipe.consensus.mend != "nothing":
        labels = mend(labels, part(folder, "unlabeled").identities, recipe.consensus.mend)
    with writing_folder(home / "labels", force=True) as place:
        fill(place, labels)
        if recipe.joint.soft_depth:
            walked = likely_pairs(graph) if recipe.consensus.grouping == "average" else graph
            soft = diffuse(walked, labels, recipe.joint.soft_depth, recipe.joint.soft_decay)
            sparse.save_npz(place / "soft_labels.npz", soft)


def read_labels(folder: Path) -> Labels:
    """The run's labels."""
    return Labels.load(folder / "labels")
