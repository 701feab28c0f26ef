"""Studies of pairs and labels; nothing is trained a second time for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from cdp.config.sections import RunRecipe
from cdp.errors import InputError
from cdp.run.plan import make_stages
from cdp.run.sources import ResolvedRecipe
from cdp.run.stages import Stage
from cdp.scoring.mediator import Mediator
from cdp.types import ALL_INPUTS
from cdp.types.arrays import FloatArray
from cdp.types.run_record import MediatorFigures
from cdp.web.report.report_inputs import first_layer
from cdp_lab.labelers import at_pair_recall, clustering
from cdp_lab.study.design import Column, Finished, Measure, Options, Plot, Study, Variant
from cdp_lab.study.paper_numbers import COMMITTEE_SIZE, HETEROGENEITY, MEDIATOR_INPUTS, MEDIATOR_WEIGHTS, K
from cdp_lab.study.run_figures import label_columns, label_results, one_row_of_labels

SCORED_BY_F = {"consensus.beta": 1.0}
"""Thresholds chosen by what labels are compared by."""
_WANTED = ("labels",)
_VOTE = {"consensus.mediator": "vote", "train.folds": 0}
_MEDIATOR = {"consensus.mediator": "mlp"}


def has_validation(recipe: RunRecipe) -> bool:
    """Return whether there is a part to choose a threshold on."""
    return bool(recipe.data.validation) or recipe.split.validation > 0


def clustered(recipe: RunRecipe) -> tuple[dict[str, Any], Callable[[ResolvedRecipe], list[Stage]]]:
    """Return overrides and stages of hierarchical clustering, tuned where possible, as in the paper."""
    overrides = {
        "train.folds": 0,
        "joint.rounds": 1,
        "consensus.threshold": "auto",
        "consensus.soft_depth": 0,
    }
    return overrides, partial(make_stages, labeler=clustering(memory_budget=recipe.engine.memory_budget))


def _labels(
    slug: str,
    overrides: dict[str, Any],
    *cells: str,
    stages: Callable[[ResolvedRecipe], list[Stage]] = make_stages,
) -> Variant:
    return Variant(slug, {**SCORED_BY_F, **overrides}, _WANTED, one_row_of_labels(*cells), stages)


def _k(_recipe: RunRecipe, _options: Options) -> list[Variant]:
    return [_labels(f"k{k}", {"consensus.k": k}, str(k)) for k in (10, 20, 30, 40)]


def _sizes(recipe: RunRecipe, options: Options) -> list[Variant]:
    members = recipe.committee.networks
    by_vote = {
        **_VOTE,
        "consensus.threshold": -1.0,
        "consensus.grouping": "components",
        "consensus.min_votes": "all",
    }
    sizes = sorted({*range(0, len(members) + 1, 2), len(members)})
    overrides, stages = clustered(recipe)
    fixed = partial(make_stages, labeler=at_pair_recall(options.pair_recall))
    return [
        _labels("clustering", overrides, "clustering", stages=stages),
        *(
            _labels(
                f"members{size}",
                {**by_vote, "committee.networks": list(members[:size])},
                str(size),
                stages=fixed,
            )
            for size in sizes
        ),
    ]


def _inputs(_recipe: RunRecipe, _options: Options) -> list[Variant]:
    return [
        _labels(f"inputs{many}", {**_MEDIATOR, "consensus.inputs": list(names)}, " + ".join(names))
        for many in range(1, len(ALL_INPUTS) + 1)
        for names in [ALL_INPUTS[:many]]
    ]


def _heterogeneity(recipe: RunRecipe, _options: Options) -> list[Variant]:
    members = recipe.committee.networks
    if len(members) < 2:
        raise InputError(
            f"heterogeneity: committee.networks has {len(members)} "
            f"member{'' if len(members) == 1 else 's'}; give two or more.",
            code="study-members-too-few",
            study="heterogeneity",
            found=len(members),
        )
    # The paper takes an architecture of middling size; committees are listed from weak to strong there.
    alike = members[len(members) // 2].partition(":")[0]
    committees = {
        "one architecture": [f"{alike}:{seed}" for seed in range(1, len(members) + 1)],
        "different architectures": list(members),
    }
    return [
        _labels(f"{committee.split()[0]}-{way}", {**scorer, "committee.networks": networks}, committee, way)
        for committee, networks in committees.items()
        for way, scorer in (("vote", _VOTE), ("mediator", _MEDIATOR))
    ]


def _weights(_recipe: RunRecipe, _options: Options) -> list[Variant]:
    return [Variant("mediator", _MEDIATOR, _WANTED, _blocks, extra=_first_layer)]


def _blocks(run: Finished) -> list[Measure]:
    figures, weights = _mediator(run), _layer(run)
    drops = {one.block: one.drop for one in figures.importance}
    blocks = {block: columns for block, columns in figures.blocks.items() if columns}
    # The paper shows means and spreads one by one; importance is of the whole block.
    for part in ("mean", "spread"):
        members = [at for at, name in enumerate(figures.columns) if name.startswith(f"{part}(")]
        blocks |= {f"distribution: {part}": members} if members else {}
    return [
        Measure(
            (block.replace("_", " "),),
            {
                "inputs": len(columns),
                "importance": drops.get(block),
                "weight": None if weights is None else float(np.abs(weights[columns]).mean()),
            },
        )
        for block, columns in blocks.items()
    ]


def _first_layer(run: Finished) -> dict[str, Any]:
    figures, weights = _mediator(run), _layer(run)
    return {
        "columns": figures.columns,
        "blocks": figures.blocks,
        "weights": None if weights is None else np.round(weights.astype(float), 4).tolist(),
    }


def _mediator(run: Finished) -> MediatorFigures:
    figures = label_results(run.folder).mediator
    assert figures is not None
    return figures


def _layer(run: Finished) -> FloatArray | None:
    return first_layer(Mediator.load(run.folder / "labels" / "mediator"))


def _weight_columns(_recipe: RunRecipe) -> list[Column]:
    return [
        Column("inputs", "inputs", "count", ""),
        Column("importance", "importance", "number", ""),
        Column("weight", "mean |weight|", "number", ""),
    ]


STUDIES = (
    Study(
        "k",
        "The influence of k",
        ("k",),
        label_columns,
        "f",
        _k,
        paper=K,
        plots=(Plot("f", "lines", "k"),),
        reading="The threshold is the recipe's, or tuned for each k where the recipe tunes it.",
    ),
    Study(
        "committee_size",
        "The vote of more and more members, at one pair recall",
        ("members",),
        label_columns,
        "f",
        _sizes,
        paper=COMMITTEE_SIZE,
        plots=(Plot("f"), Plot("pair_precision")),
        reading="A pair needs the vote of every member; the similarity it needs in the base is set so "
        "that all "
        "committees accept the same share of the true candidate pairs (--pair-recall; the "
        "paper's 0.313 unless given). "
        "Where even no such threshold leaves fewer, recall is lower.",
    ),
    Study(
        "mediator_inputs",
        "A mediator with more and more inputs",
        ("inputs",),
        label_columns,
        "f",
        _inputs,
        paper=MEDIATOR_INPUTS,
        plots=(Plot("f"),),
        reading="Common neighbors are not in the paper's table; the authors' code has them.",
    ),
    Study(
        "heterogeneity",
        "A committee of one architecture, or of many",
        ("committee", "by"),
        label_columns,
        "f",
        _heterogeneity,
        paper=HETEROGENEITY,
        plots=(Plot("f"),),
        reading="The committee of one architecture repeats the member in the middle of the recipe's "
        "list, with "
        "other seeds; both committees have as many members.",
    ),
    Study(
        "mediator_weights",
        "What the mediator's inputs are worth",
        ("kind of input",),
        _weight_columns,
        "importance",
        _weights,
        paper=MEDIATOR_WEIGHTS,
        plots=(Plot("importance"), Plot("weight")),
        reading="Importance is how far average precision falls when all inputs of one kind are shuffled "
        "among the "
        "pairs. Kinds that say the same can each look unimportant.",
    ),
)
