"""Studies of what networks recognize after training on pseudo-labels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, cast

from cdp.config.checks import folder_name
from cdp.config.sections import RunRecipe
from cdp.errors import InputError
from cdp.run.plan import make_stages
from cdp.run.sources import ResolvedRecipe
from cdp.run.stages import Stage
from cdp.storage.artifacts import read_json
from cdp.types.run_record import Committee
from cdp_lab.labelers import Mistakes, oracle
from cdp_lab.study.design import Column, Figures, Finished, Measure, Options, Plot, Study, Variant
from cdp_lab.study.label_studies import clustered, has_validation
from cdp_lab.study.paper_numbers import BASE, COMMITTEE, LOSS, RATIO, SOFT_LABELS
from cdp_lab.study.result_tables import GAP, Cells
from cdp_lab.study.run_figures import (
    headline,
    label_figures,
    measured_ratio,
    recognition_columns,
    recognized,
)

_WANTED = ("recognition", "labels")
_RATIOS = (2, 4, 6, 8, 10)
_TRAINED = {"labeled": "labeled only", "cdp": "pseudo-labels", "all": "all labels"}
_SOFT = ((3, 0.2), (3, 0.5), (5, 0.2), (5, 0.5), (5, 0.8), (10, 0.2))
_CORRECTED: dict[str, str] = {
    "nothing": "labels as found",
    "splits": "without splits",
    "mixtures": "without mixtures",
    "all": "without either",
}
_PLAIN = {"evaluation.members": False}


def parts_at(recipe: RunRecipe, ratio: int) -> int:
    """`split.use_parts` for a number of unlabeled parts, the validation part among them, as in the paper."""
    return ratio - has_validation(recipe)


def _ratios(recipe: RunRecipe) -> list[int]:
    if not recipe.data.images:
        raise InputError(
            "A study over ratios cuts the images itself: give data.images instead of data.labeled and "
            "data.unlabeled.",
            code="study-needs-unsplit-images",
        )
    most = recipe.split.unlabeled_parts + has_validation(recipe)
    return sorted({ratio for ratio in (*_RATIOS, most) if parts_at(recipe, ratio) >= 1 and ratio <= most})


def _at_two(recipe: RunRecipe) -> dict[str, Any]:
    """Ratio 2, or all there is; parts that are split already stay as they are."""
    return _at(recipe, _ratios(recipe)[0]) if recipe.data.images else {}


def _at(recipe: RunRecipe, ratio: int) -> dict[str, Any]:
    """Return a number of unlabeled parts, trained for as many steps as all of them."""
    most = _ratios(recipe)[-1]
    return {
        "split.use_parts": parts_at(recipe, ratio),
        "joint.epochs": recipe.joint.epochs * ((1 + most) / (1 + ratio)),
    }


def _read(**cells: tuple[str, ...]) -> Callable[[Finished], list[Measure]]:
    """Make a reader of the headline: model -> the cells of its row, with its pseudo-labels."""

    def read(run: Finished) -> list[Measure]:
        found, labels, ratio = headline(run.folder), label_figures(run.folder), measured_ratio(run.folder)
        more: dict[str, Figures] = {
            "labeled": {"ratio": 0.0},
            "cdp": {"ratio": ratio, **{f"label_{key}": value for key, value in labels.items()}},
            "all": {"ratio": ratio},
        }
        return [Measure(words, {**found[key], **more[key]}) for key, words in cells.items() if key in found]

    return read


def _ratio(recipe: RunRecipe, _options: Options) -> list[Variant]:
    ways: dict[str, tuple[dict[str, Any], Callable[[ResolvedRecipe], list[Stage]]]] = {
        "clustering": clustered(recipe),
        "vote": ({"consensus.mediator": "vote", "train.folds": 0}, make_stages),
        "mediator": ({"consensus.mediator": "mlp"}, make_stages),
    }
    variants = []
    for ratio in _ratios(recipe):
        for way, (scorer, stages) in ways.items():
            is_full = way == "mediator"
            overrides = {**_PLAIN, **scorer, **_at(recipe, ratio), "evaluation.bound": is_full}
            cells = {"cdp": (str(ratio), way)}
            if is_full:
                cells |= {"labeled": ("0", _TRAINED["labeled"]), "all": (str(ratio), _TRAINED["all"])}
            variants.append(Variant(f"ratio{ratio}-{way}", overrides, _WANTED, _read(**cells), stages))
    return variants


def _bounds(cells: Cells, below: Cells | None = None) -> tuple[Cells, Cells] | None:
    """Return the rows of the group trained on true labels only: the labeled part, and all."""
    *group, labels = cells
    if labels in (_TRAINED["labeled"], _TRAINED["all"]):
        return None
    return (*(group if below is None else below), _TRAINED["labeled"]), (*group, _TRAINED["all"])


def _columns(recipe: RunRecipe) -> list[Column]:
    """Recognition, the share of the gap closed, and the labels behind it."""
    return [
        *recognition_columns(recipe),
        Column(GAP, "gap closed (rank-1)"),
        Column("label_f", "labels, pairwise F"),
    ]


def _detailed_columns(recipe: RunRecipe) -> list[Column]:
    """Return the same, and what kinds of mistakes the labels have."""
    return [
        *_columns(recipe),
        Column("label_precision", "precision"),
        Column("label_recall", "recall"),
        Column("label_groups", "groups", "count", ""),
    ]


def _ratio_columns(recipe: RunRecipe) -> list[Column]:
    return [*_columns(recipe), Column("ratio", "unlabeled : labeled", "number", "")]


def _base(recipe: RunRecipe, _options: Options) -> list[Variant]:
    networks = [recipe.base.network, *recipe.committee.networks]
    return [
        Variant(
            folder_name(base),
            {
                **_PLAIN,
                "base.network": base,
                "committee.networks": [name for name in networks if name != base],
                "evaluation.bound": True,
            },
            _WANTED,
            _read(**{key: (base, words) for key, words in _TRAINED.items()}),
        )
        for base in networks[:4]
    ]


def _loss(recipe: RunRecipe, _options: Options) -> list[Variant]:
    return [
        Variant(
            loss,
            {**_PLAIN, **_at_two(recipe), "train.loss": loss, "joint.loss": loss, "evaluation.bound": False},
            _WANTED,
            _read(labeled=(loss, _TRAINED["labeled"]), cdp=(loss, _TRAINED["cdp"])),
        )
        for loss in ("softmax", "arcface")
    ]


def _one_by_one(rows: Mapping[str, tuple[str, Mapping[str, Any]]], full: str) -> list[Variant]:
    """Return a variant for every row (slug -> its words, its overrides); the full one also has the bounds."""
    variants = []
    for slug, (words, overrides) in rows.items():
        cells: dict[str, tuple[str, ...]] = {"cdp": (words,)}
        if slug == full:
            cells |= {"labeled": (_TRAINED["labeled"],), "all": (_TRAINED["all"],)}
        overridden = {**_PLAIN, **overrides, "evaluation.bound": slug == full}
        variants.append(Variant(slug, overridden, _WANTED, _read(**cells)))
    return variants


def _rounds(_recipe: RunRecipe, _options: Options) -> list[Variant]:
    rows = {
        f"rounds{rounds}": (str(rounds), {"joint.rounds": rounds, "train.folds": 0}) for rounds in (1, 2, 3)
    }
    return _one_by_one(rows, "rounds1")


def _recall_weight(_recipe: RunRecipe, _options: Options) -> list[Variant]:
    common = {"consensus.threshold": "auto"}
    rows = {
        f"weight{weight:g}": (f"{weight:g}", {**common, "consensus.beta": weight})
        for weight in (0.5, 1.0, 2.0, 4.0)
    }
    return _one_by_one(rows, "weight1")


def _mistakes(recipe: RunRecipe, _options: Options) -> list[Variant]:
    if not recipe.data.truth:
        raise InputError(
            "mistakes: labels are corrected by the truth, and data.truth is false; set data.truth = true.",
            code="study-needs-truth",
            study="mistakes",
        )
    common = {"joint.rounds": 1, "consensus.soft_depth": 0}
    rows = {f"correct-{kind}": (words, common) for kind, words in _CORRECTED.items()}
    found, *corrected = _one_by_one(rows, "correct-nothing")
    kinds = [cast(Mistakes, kind) for kind in list(_CORRECTED)[1:]]
    return [
        found,
        *(
            replace(variant, stages=partial(make_stages, labeler=oracle(kind)))
            for variant, kind in zip(corrected, kinds, strict=True)
        ),
    ]


def _soft(recipe: RunRecipe, _options: Options) -> list[Variant]:
    common = _at_two(recipe)
    rows: dict[str, tuple[str, Mapping[str, Any]]] = {
        "hard": ("hard (depth 0)", {**common, "consensus.soft_depth": 0})
    }
    for depth, decay in _SOFT:
        soft = {**common, "consensus.soft_depth": depth, "consensus.soft_decay": decay}
        rows[f"depth{depth}-decay{decay:g}"] = (f"depth {depth}, decay {decay:g}", soft)
    return _one_by_one(rows, "hard")


def _committee(_recipe: RunRecipe, _options: Options) -> list[Variant]:
    overrides = {"evaluation.members": True, "evaluation.ensemble": 4}
    return [Variant("committee", overrides, ("member figures",), _members)]


def _members(run: Finished) -> list[Measure]:
    committee: Committee = read_json(run.folder / "member_figures.json", Committee)
    rows = [
        Measure((f"{one.name}{'' if at else ' (base)'}",), {**recognized(one), "parameters": one.parameters})
        for at, one in enumerate(committee.members)
    ]
    if committee.ensemble is not None:
        rows.append(
            Measure((f"ensemble of {len(committee.ensemble.names)}",), recognized(committee.ensemble))
        )
    return rows


def _member_columns(recipe: RunRecipe) -> list[Column]:
    columns = [column for column in recognition_columns(recipe) if column.key != "images"]
    return [*columns, Column("parameters", "parameters", "count", "")]


STUDIES = (
    Study(
        "ratio",
        "Recognition with more and more unlabeled data",
        ("ratio", "labels"),
        _ratio_columns,
        "rank1",
        _ratio,
        n_shared_cells=1,
        bounds=partial(_bounds, below=("0",)),
        paper=RATIO,
        plots=(Plot("rank1", "lines", "unlabeled parts per labeled part"),),
        reading="The ratio counts the validation part, if there is one, as one of the unlabeled parts. "
        "Every network is "
        "trained for as many steps: with fewer images for more epochs.",
    ),
    Study(
        "base",
        "Different base networks",
        ("base", "labels"),
        _columns,
        "rank1",
        _base,
        n_shared_cells=1,
        bounds=_bounds,
        paper=BASE,
        plots=(Plot("rank1"),),
        reading="All other networks are the committee.",
    ),
    Study(
        "loss",
        "Softmax and ArcFace",
        ("loss", "labels"),
        _columns,
        "rank1",
        _loss,
        n_shared_cells=1,
        paper=LOSS,
        plots=(Plot("rank1"),),
        reading="Both trainings use the loss, the committee too.",
    ),
    Study(
        "soft_labels",
        "Hard and soft labels",
        ("labels",),
        _columns,
        "rank1",
        _soft,
        bounds=_bounds,
        paper=SOFT_LABELS,
        plots=(Plot("rank1"),),
    ),
    Study(
        "rounds",
        "Labels made again by networks that learned from them",
        ("rounds",),
        _detailed_columns,
        "rank1",
        _rounds,
        bounds=_bounds,
        plots=(Plot("rank1"), Plot("label_f")),
        reading="Not in the paper. One round is the paper's way; in each further one base and committee "
        "are trained on "
        "the labels of the previous round, and label again.",
    ),
    Study(
        "recall_weight",
        "Thresholds chosen for recall or for precision",
        ("recall weight",),
        _detailed_columns,
        "rank1",
        _recall_weight,
        bounds=_bounds,
        plots=(Plot("rank1"), Plot("label_f")),
        reading="Not in the paper. The threshold is the best on the validation images by F-beta: recall "
        "is that many times as "
        "important as precision; 1 is pairwise F.",
    ),
    Study(
        "mistakes",
        "What the labels' mistakes cost",
        ("labels",),
        _detailed_columns,
        "rank1",
        _mistakes,
        bounds=_bounds,
        plots=(Plot("rank1"),),
        reading="Not in the paper. Labels are corrected by the true identities before the network is "
        "trained on them. Without "
        "splits: groups that are mostly one identity become one, with the other images in them. "
        "Without mixtures: every "
        "group is divided by identity. Without either: true identities for all images that had a "
        "label, in a classifier of "
        "their own.",
    ),
    Study(
        "committee",
        "Every network by itself, and an ensemble",
        ("network",),
        _member_columns,
        "rank1",
        _committee,
        paper=COMMITTEE,
        plots=(Plot("rank1"),),
        reading="The ensemble is of the best by their own rank-1, as in the paper; that choice saw the "
        "test. Where "
        "fewer networks are there it is of all.",
    ),
)
