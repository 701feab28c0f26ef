"""Studies of pairs and labels; nothing is trained a second time for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from cdp.config.sections import RunRecipe
from cdp.consensus.mediator import Mediator
from cdp.consensus.mlp import PaperMLP
from cdp.errors import InputError
from cdp.lab.study.design import Column, Finished, Measure, Options, Plot, Study, Variant
from cdp.lab.study.paper_numbers import COMMITTEE_SIZE, HETEROGENEITY, MEDIATOR_INPUTS, MEDIATOR_WEIGHTS, K
from cdp.lab.study.run_figures import label_columns, one_row_of_labels, read_json
from cdp.types import ALL_INPUTS

PAPER_RECALL = 0.313
JUDGED_BY_F = {"consensus.recall_weight": 1.0, "consensus.mend": "nothing"}
"""Labels as found, at thresholds chosen by what they are compared by."""
_WANTED = ("label figures",)
_VOTE = {"consensus.mediator": "vote", "consensus.folds": 0}
_MEDIATOR = {"consensus.mediator": "mlp"}


def has_validation(recipe: RunRecipe) -> bool:
    """Whether a threshold can be chosen."""
    return bool(recipe.data.validation) or recipe.split.validation > 0


def clustering(recipe: RunRecipe) -> dict[str, Any]:
    """Hierarchical clustering, its threshold tuned where that is possible, as in the paper."""
    return {
        "consensus.mediator": "hierarchical",
        "consensus.folds": 0,
        "consensus.rounds": 1,
        "consensus.tune": has_validation(recipe),
        "consensus.pair_recall": -1.0,
        "consensus.mend": "nothing",
        "joint.soft_depth": 0,
    }


def _labels(slug: str, overrides: dict[str, Any], *cells: str) -> Variant:
    return Variant(slug, {**JUDGED_BY_F, **overrides}, _WANTED, one_row_of_labels(*cells))


def _k(recipe: RunRecipe, options: Options) -> list[Variant]:
    del recipe, options
    return [_labels(f"k{k}", {"consensus.k": k}, str(k)) for k in (10, 20, 30, 40)]


def _sizes(recipe: RunRecipe, options: Options) -> list[Variant]:
    del options
    members = recipe.committee.networks
    recall = recipe.consensus.pair_recall if recipe.consensus.pair_recall >= 0 else PAPER_RECALL
    at_recall = {
        **_VOTE,
        "consensus.tune": False,
        "consensus.grouping": "components",
        "consensus.quorum": -1,
        "consensus.pair_recall": recall,
    }
    sizes = sorted({*range(0, len(members) + 1, 2), len(members)})
    return [
        _labels("clustering", clustering(recipe), "clustering"),
        *(
            _labels(f"members{size}", {**at_recall, "committee.networks": list(members[:size])}, str(size))
            for size in sizes
        ),
    ]


def _inputs(recipe: RunRecipe, options: Options) -> list[Variant]:
    del recipe, options
    heard = [ALL_INPUTS[: at + 1] for at in range(len(ALL_INPUTS))]
    return [
        _labels(f"inputs{len(one)}", {**_MEDIATOR, "consensus.inputs": list(one)}, " + ".join(one))
        for one in heard
    ]


def _heterogeneity(recipe: RunRecipe, options: Options) -> list[Variant]:
    del options
    members = recipe.committee.networks
    if len(members) < 2:
        raise InputError(
            f"heterogeneity: committee.networks has {len(members)} member{'' if len(members) == 1 else 's'}; two "
            "or more are needed to be alike or unlike."
        )
    # The paper takes an architecture of middling size; committees are listed from weak to strong there.
    alike = members[len(members) // 2].partition(":")[0]
    committees = {
        "one architecture": [f"{alike}:{seed}" for seed in range(1, len(members) + 1)],
        "different architectures": list(members),
    }
    return [
        _labels(f"{committee.split()[0]}-{way}", {**judge, "committee.networks": networks}, committee, way)
        for committee, networks in committees.items()
        for way, judge in (("vote", _VOTE), ("mediator", _MEDIATOR))
    ]


def _weights(recipe: RunRecipe, options: Options) -> list[Variant]:
    del recipe, options
    return [Variant("mediator", _MEDIATOR, ("label figures", "mediator"), _blocks, extra=_first_layer)]


def _blocks(run: Finished) -> list[Measure]:
    learned = read_json(run.folder, "label_figures.json")["mediator"]
    weights = _layer(run)
    drops = {one["block"]: one["drop"] for one in learned["importance"]}
    blocks = {block: columns for block, columns in learned["blocks"].items() if columns}
    # The paper tells means and spreads apart; importance is of the whole block.
    for part in ("mean", "spread"):
        members = [at for at, name in enumerate(learned["columns"]) if name.startswith(f"{part}(")]
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
    learned = read_json(run.folder, "label_figures.json")["mediator"]
    weights = _layer(run)
    return {
        "columns": learned["columns"],
        "blocks": learned["blocks"],
        "weights": None if weights is None else np.round(weights.astype(float), 4).tolist(),
    }


def _layer(run: Finished) -> Any:
    classifier = Mediator.load(run.folder / "mediator").classifier
    return classifier.weights_[0][0] if isinstance(classifier, PaperMLP) else None


def _weight_columns(recipe: RunRecipe) -> list[Column]:
    del recipe
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
        reading="A pair needs the vote of every member; the similarity it needs in the base is set so that all "
        "committees accept the same share of the true candidate pairs (consensus.pair_recall, the paper's "
        f"{PAPER_RECALL} unless the recipe has another). Where even no such threshold leaves fewer, recall is lower.",
    ),
    Study(
        "mediator_inputs",
        "A mediator that hears more and more",
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
        "A committee of one architecture beside one of many",
        ("committee", "by"),
        label_columns,
        "f",
        _heterogeneity,
        paper=HETEROGENEITY,
        plots=(Plot("f"),),
        reading="The committee of one architecture repeats the member in the middle of the recipe's list, with "
        "other seeds; both committees have as many members.",
    ),
    Study(
        "mediator_weights",
        "What the mediator listens to",
        ("kind of input",),
        _weight_columns,
        "importance",
        _weights,
        paper=MEDIATOR_WEIGHTS,
        plots=(Plot("importance"), Plot("weight")),
        reading="Importance is how far average precision falls when all inputs of one kind are shuffled among the "
        "pairs. Kinds that say the same can each look unimportant.",
    ),
)
