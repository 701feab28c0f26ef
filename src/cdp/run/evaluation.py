"""The last stage: everything that the report tells, as plain values."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cdp.config.sections import RunRecipe
from cdp.consensus.mediator import Mediator
from cdp.consensus.pair_features import extract_features, prepare_features
from cdp.consensus.pairs import candidate_pairs
from cdp.evaluate.agreement import agreement
from cdp.evaluate.bootstrap import interval
from cdp.evaluate.identification import Identification, measure_identification
from cdp.evaluate.importance import permutation_importance
from cdp.evaluate.label_figures import measure_labels
from cdp.evaluate.pair_figures import measure_pairs
from cdp.evaluate.verification import ScoredPairs, Verification, measure_verification, score_pairs
from cdp.files import write_json
from cdp.progress import Progress
from cdp.run.labeling import (
    ONLY,
    Round,
    bar_key,
    chosen_bar,
    embeddings,
    graphs_of,
    identities_to_count,
    model_names,
    read_labels,
    views_of,
)
from cdp.run.training import part
from cdp.store import load, read_card
from cdp.types import ConsensusGraph, Embeddings, Fate, KnnGraph, Labels, Views
from cdp.types.arrays import AnyArray, BoolArray, DoubleArray, LongArray
from cdp.types.opinions import block_columns

_TITLES = {"labeled": "labeled only", "cdp": "with pseudo-labels", "all": "all labels"}
_MOST_JUDGED = 20_000


@dataclass(frozen=True, eq=False)
class Recognition:
    """One network's figures on the test set, with their resamplings."""

    identification: Identification
    verification: Verification

    @property
    def rank_1(self) -> DoubleArray:
        """Resampled rank-1 rates at the largest number of distractors."""
        column = len(self.identification.sizes) - 1
        return self.identification.replicates[:, column]

    def as_dict(self) -> dict[str, Any]:
        """Rank-1 and TPR with their intervals."""
        return {
            "rank1": _with_interval(self.identification.rate(), self.rank_1),
            "tpr": [
                {"fpr": figure.fpr, **_with_interval(figure.tpr, self.verification.replicates[:, 2 + at])}
                for at, figure in enumerate(self.verification.tpr)
            ],
        }


def measure_labeling(recipe: RunRecipe, folder: Path, turn: Round = ONLY) -> None:
    """Write `label_figures.json`: the labels, the tuning, the mediator, and how the networks agree."""
    views = views_of(recipe, folder, "unlabeled", turn.room)
    graphs = graphs_of(recipe, folder, "unlabeled", turn)
    place = folder / turn.place
    assert views.identities is not None
    counted = identities_to_count(folder, views.identities)
    figures = {
        "labels": _labels(recipe, place, counted, graphs[0]),
        "tuning": json.loads((place / "tuning.json").read_text(encoding="utf-8")),
        "mediator": _mediator(recipe, place, views, graphs),
        "graphs": {
            "names": model_names(recipe),
            "edge_precision": [_edge_precision(graph, views.identities) for graph in graphs],
            "agreement": agreement(graphs).tolist(),
        },
    }
    write_json(place / "label_figures.json", figures)


def measure_recognition(
    recipe: RunRecipe, folder: Path, tested: Mapping[str, str], progress: Progress
) -> None:
    """Write `recognition.json`: the headline.

    Args:
        recipe: of the run.
        folder: of the run.
        tested: the headline's networks: `labeled`, `cdp`, `all` -> artifact.
        progress: called as the work goes on.
    """
    found = {}
    for done, (key, artifact) in enumerate(tested.items()):
        found[key] = recognize(recipe, folder, artifact)
        progress("networks tested", done + 1, len(tested))
    write_json(folder / "recognition.json", _headline(recipe, folder, found))


def measure_members(recipe: RunRecipe, folder: Path, members: Sequence[str], progress: Progress) -> None:
    """Write `member_figures.json`: every network by itself, and an ensemble of the best if the recipe asks for it."""
    told: list[dict[str, Any]] = []
    for done, artifact in enumerate(members):
        settings = read_card(folder / artifact).settings
        told.append(
            {
                "name": Path(artifact).name,
                "parameters": settings.get("parameters"),
                **recognize(recipe, folder, artifact).as_dict(),
            }
        )
        progress("networks tested", done + 1, len(members))
    figures: dict[str, Any] = {"members": told, "ensemble": None}
    n_best = min(recipe.evaluation.ensemble, len(members))
    if n_best >= 2:
        best = sorted(range(len(members)), key=lambda at: -told[at]["rank1"]["value"])[:n_best]
        figures["ensemble"] = {
            "names": [told[at]["name"] for at in best],
            **_recognize_ensemble(recipe, folder, [members[at] for at in best]).as_dict(),
        }
    write_json(folder / "member_figures.json", figures)


def _recognize_ensemble(recipe: RunRecipe, folder: Path, artifacts: Sequence[str]) -> Recognition:
    from cdp.nets.ensemble import ensemble

    seen = []
    for shown in ("probes", "distractors"):
        base, *others = [embeddings(folder, artifact, shown) for artifact in artifacts]
        views = Views(base, {f"member{at}": one for at, one in enumerate(others)})
        seen.append(ensemble(views, views.names).base)
    return _recognize(recipe, folder, *seen)


def read_results(folder: Path, rounds: int = 1) -> dict[str, Any]:
    """All together, as `run.json` holds them."""
    labeling = json.loads((folder / "label_figures.json").read_text(encoding="utf-8"))
    earlier = [
        json.loads((folder / "rounds" / str(number) / "label_figures.json").read_text(encoding="utf-8"))[
            "labels"
        ]
        for number in range(1, rounds)
    ]
    headline = json.loads((folder / "recognition.json").read_text(encoding="utf-8"))
    own = json.loads((folder / "member_figures.json").read_text(encoding="utf-8"))
    graphs = labeling.pop("graphs")
    precision = dict(zip(graphs["names"], graphs["edge_precision"], strict=True))
    members = [
        {
            **member,
            "role": "base" if member["name"] == graphs["names"][0] else "member",
            "edge_precision": precision[member["name"]],
        }
        for member in own["members"]
    ]
    return {
        "headline": headline,
        **labeling,
        "earlier_rounds": earlier,
        "committee": {
            "members": members,
            "ensemble": own["ensemble"],
            "agreement": {"names": graphs["names"], "matrix": graphs["agreement"]},
        },
    }


def recognize(recipe: RunRecipe, folder: Path, artifact: str) -> Recognition:
    """Identification and verification of one network on the test set."""
    return _recognize(
        recipe, folder, *(embeddings(folder, artifact, name) for name in ("probes", "distractors"))
    )


def _recognize(recipe: RunRecipe, folder: Path, probes: Embeddings, distractors: Embeddings) -> Recognition:
    people, others = (part(folder, name).identities for name in ("probes", "distractors"))
    chosen = recipe.evaluation
    threads = recipe.engine.threads
    identification = measure_identification(
        probes,
        people,
        distractors,
        distractor_identities=others,
        replicates=chosen.replicates,
        seed=recipe.seed,
        threads=threads,
    )
    verification = measure_verification(
        _pairs(probes, people, chosen.pairs, recipe.seed),
        fprs=chosen.fpr,
        replicates=chosen.replicates,
        seed=recipe.seed,
        threads=threads,
    )
    return Recognition(identification, verification)


def _pairs(probes: Embeddings, identities: LongArray, most: int, seed: int) -> ScoredPairs:
    """Verification pairs among the probes: all same pairs up to half of `most`, the others drawn at random."""
    generator = np.random.default_rng([seed, 3])
    order = np.argsort(identities, kind="stable")
    counts = np.unique(identities, return_counts=True)[1]
    same_pairs = [
        np.stack(np.triu_indices(count, 1), axis=1) + start
        for count, start in zip(counts, np.cumsum(counts) - counts, strict=True)
    ]
    same = order[np.concatenate(same_pairs)]
    if len(same) > most // 2:
        same = same[np.sort(generator.choice(len(same), most // 2, replace=False))]
    drawn = generator.integers(0, len(identities), (2 * (most - len(same)), 2))
    drawn = np.unique(np.sort(drawn, axis=1), axis=0)
    different = drawn[identities[drawn[:, 0]] != identities[drawn[:, 1]]]
    different = generator.permutation(different)[: most - len(same)]
    ends = np.concatenate([same, different])
    is_same: BoolArray = np.arange(len(ends)) < len(same)
    return score_pairs(probes, ends, is_same, identities=identities)


def _with_interval(value: float | None, replicates: DoubleArray) -> dict[str, float | None]:
    band = interval(replicates) if len(replicates) and value is not None else None
    return {
        "value": value,
        "low": None if band is None else band.low,
        "high": None if band is None else band.high,
    }


def _headline(recipe: RunRecipe, folder: Path, found: Mapping[str, Recognition]) -> dict[str, Any]:
    labeled, unlabeled = part(folder, "labeled"), part(folder, "unlabeled")
    n_labeled, n_pseudo = len(labeled), int((read_labels(folder).labels >= 0).sum())
    images = {"labeled": n_labeled, "cdp": n_labeled + n_pseudo, "all": n_labeled + len(unlabeled)}
    return {
        "network": model_names(recipe)[0],
        "probes": len(part(folder, "probes")),
        "distractors": len(part(folder, "distractors")),
        "models": [
            {"key": key, "title": _TITLES[key], "images": images[key], **one.as_dict()}
            for key, one in found.items()
        ],
        "gap_closed": gap_closed(found) if "all" in found else None,
    }


def gap_closed(found: Mapping[str, Recognition]) -> dict[str, Any]:
    """(with pseudo-labels - labeled only) / (all labels - labeled only), resampled together."""
    three = [found[key] for key in ("labeled", "cdp", "all")]
    tprs = []
    for at, figure in enumerate(three[0].verification.tpr):
        values = [one.verification.tpr[at].tpr for one in three]
        again = [one.verification.replicates[:, 2 + at] for one in three]
        tprs.append({"fpr": figure.fpr, **_share(values, again)})
    rates: list[float | None] = [one.identification.rate() for one in three]
    return {"rank1": _share(rates, [one.rank_1 for one in three]), "tpr": tprs}


def _share(values: Sequence[float | None], again: Sequence[DoubleArray]) -> dict[str, float | None]:
    low, mid, high = values
    if low is None or mid is None or high is None or high == low:
        return {"value": None, "low": None, "high": None}
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = (again[1] - again[0]) / (again[2] - again[0])
    return _with_interval((mid - low) / (high - low), shares)


def _labels(recipe: RunRecipe, folder: Path, counted: LongArray, base: KnnGraph) -> dict[str, Any]:
    labels = read_labels(folder)
    bar = chosen_bar(recipe, folder)
    kept = labels.labels[labels.labels >= 0]
    told: dict[str, Any] = {
        "setting": bar_key(recipe),
        "threshold": bar,
        "coverage": len(kept) / len(labels),
        "identities_found": labels.n_identities,
        "fates": {kind.name.lower(): int((labels.fate == kind).sum()) for kind in Fate},
        "sizes": _sizes(kept),
        "true": None,
    }
    if not (counted >= 0).any():
        return told
    pairs = None
    if recipe.consensus.mediator != "hierarchical":
        graph = load(folder / "consensus", ConsensusGraph)
        if recipe.consensus.grouping == "average":
            # It also holds pairs that count against joining; those whose images were joined are the accepted ones.
            graph = _joined(graph, labels)
        pairs = asdict(measure_pairs(graph, candidate_pairs(base), counted))
    figures = measure_labels(labels, counted)
    told["true"] = {
        "images": figures.images,
        "coverage": figures.coverage,
        "identities_found": figures.identities_found,
        "identities_true": figures.identities_true,
        "identities_true_shared": figures.identities_true_shared,
        "sizes": _sizes(counted[counted >= 0]),
        "sizes_found": _sizes(labels.labels[(counted >= 0) & (labels.labels >= 0)]),
        "pairs": pairs,
        "discards_kept": asdict(figures.discards_kept),
        "discards_removed": asdict(figures.discards_removed),
    }
    return told


def _joined(graph: ConsensusGraph, labels: Labels) -> ConsensusGraph:
    """The pairs within groups."""
    ends = labels.labels[graph.ids]
    kept = (ends[:, 0] == ends[:, 1]) & (ends[:, 0] >= 0)
    return ConsensusGraph(graph.ids[kept], graph.doubt[kept], graph.n_images)


def _sizes(numbers: AnyArray) -> list[int]:
    """How many carry each number, largest first."""
    sizes: list[int] = np.sort(np.unique(numbers, return_counts=True)[1])[::-1].tolist()
    return sizes


def _mediator(
    recipe: RunRecipe, folder: Path, views: Views, graphs: Sequence[KnnGraph]
) -> dict[str, Any] | None:
    if recipe.consensus.mediator != "mlp":
        return None
    mediator = Mediator.load(folder / "mediator")
    told: dict[str, Any] = {
        "columns": mediator.columns,
        "blocks": block_columns(mediator.committee, mediator.inputs),
        "lessons": dict(mediator.lessons),
        "importance": [],
    }
    assert views.identities is not None
    identities = views.identities
    pairs = candidate_pairs(graphs[0]).ids
    pairs = pairs[(identities[pairs] >= 0).all(axis=1)]
    same = identities[pairs[:, 0]] == identities[pairs[:, 1]]
    if not len(pairs) or same.all() or not same.any():
        return told
    if len(pairs) > _MOST_JUDGED:
        rows = np.random.default_rng([recipe.seed, 4]).choice(len(pairs), _MOST_JUDGED, replace=False)
        pairs, same = pairs[np.sort(rows)], same[np.sort(rows)]
    matrix = extract_features(prepare_features(views, tuple(graphs), mediator.inputs), pairs).matrix(
        mediator.inputs
    )
    told["importance"] = [
        one._asdict() for one in permutation_importance(mediator, matrix, same, seed=recipe.seed)
    ]
    return told


def _edge_precision(graph: KnnGraph, identities: LongArray) -> float | None:
    """Share of neighbors that show the same identity."""
    near = graph.neighbors
    theirs = np.where(near >= 0, identities[np.maximum(near, 0)], -1)
    known = (identities >= 0)[:, None] & (theirs >= 0)
    return float((theirs == identities[:, None])[known].mean()) if known.any() else None
