"""Studies of what labeling costs: growth with the number of images, and other methods beside CDP."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from cdp.config.reading import recipe_from
from cdp.config.sections import RunRecipe
from cdp.consensus.estimator import CDP
from cdp.consensus.mediator import Mediator
from cdp.consensus.vote import Vote
from cdp.errors import InputError
from cdp.files import write_json
from cdp.graph.search import knn_graph, knn_graphs
from cdp.lab.baselines.fresh_process import run_apart
from cdp.lab.baselines.measure import figures_of, measure_baselines
from cdp.lab.baselines.methods import BASELINES, make_baselines, tune
from cdp.lab.study.design import Column, Finished, Measure, Options, Plot, Study, Variant
from cdp.lab.study.label_studies import JUDGED_BY_F, has_validation
from cdp.lab.study.paper_numbers import RUNTIME
from cdp.lab.study.run_figures import read_json
from cdp.lab.synthetic import synthetic_views
from cdp.progress import Progress
from cdp.run.labeling import (
    chosen_bar,
    embeddings,
    estimator,
    graphs_of,
    model_names,
    validation_only,
    views_of,
)
from cdp.run.plan import make_stages
from cdp.run.stages import Stage
from cdp.run.training import part
from cdp.store import load, save
from cdp.types import ConsensusGraph, KnnGraph, Labels, Views
from cdp.types.arrays import LongArray

_LESSON_IMAGES = 5_000
_PER_IDENTITY = 12.0
_STEPS = ("graphs", "consensus", "propagation")
_METHODS = ("exact", "nndescent")


def _runtime(recipe: RunRecipe, options: Options) -> list[Variant]:
    del recipe
    return [
        Variant(
            f"{method}-{size}",
            {"consensus.method": method, "consensus.mediator": "mlp"},
            ("labels",),
            partial(_step_costs, method, size),
            stages=partial(_scaling_stages, size),
        )
        for method in _METHODS
        for size in options.sizes
    ]


def _step_costs(method: str, size: int, run: Finished) -> list[Measure]:
    records = {one.stage.name: one.record for one in run.ran}
    figures: dict[str, float] = {}
    for step in _STEPS:
        figures[f"{step}_seconds"] = records[step].seconds
        figures[f"{step}_memory"] = records[step].peak_memory
    figures["seconds"] = sum(records[step].seconds for step in _STEPS)
    return [Measure((method, f"{size:,}"), figures)]


def _scaling_stages(size: int, recipe: RunRecipe, folder: Path) -> list[Stage]:
    """Made-up embeddings of so many images, and the steps of labeling them, each a stage with its own record."""
    chosen, members = recipe.consensus, len(recipe.committee.networks)
    seed, threads = recipe.seed, recipe.engine.threads

    def views(name: str) -> Views:
        return Views.load(folder / name)

    def graphs(name: str) -> list[KnnGraph]:
        count = range(members + 1)
        return [load(folder / f"{name}_graphs" / str(number), KnnGraph) for number in count]

    def model(mediator: Mediator | None = None) -> CDP:
        return estimator(recipe, mediator)

    def make_up(name: str, n_images: int, seed: int) -> None:
        # Some people more than needed, cut to the number of images.
        n_identities = max(8, round(2.2 * n_images / _PER_IDENTITY))
        made = synthetic_views(
            n_identities, _PER_IDENTITY, labeled=0.05, members=members, seed=seed
        ).unlabeled
        save(made.take(np.arange(min(n_images, made.n_images))), folder / name, force=True)

    def search(name: str, method: str, progress: Progress) -> None:
        found = knn_graphs(list(views(name)), chosen.k, method, seed=seed, threads=threads, progress=progress)
        for number, graph in enumerate(found):
            save(graph, folder / f"{name}_graphs" / str(number), force=True)

    def teach(progress: Progress) -> None:
        learned = model().fit(views("lesson"), graphs=graphs("lesson"), progress=progress)
        save(learned.mediator_, folder / "mediator", force=True)

    def agree(progress: Progress) -> None:
        judge = model(Mediator.load(folder / "mediator"))
        found = judge.consensus(views("images"), graphs("images"), progress=progress)
        save(found, folder / "consensus", force=True)

    def label() -> None:
        save(model().group(load(folder / "consensus", ConsensusGraph)), folder / "labels", force=True)

    n_lesson = min(size, _LESSON_IMAGES)
    made_up: dict[str, Any] = {"members": members, "seed": seed}
    near: dict[str, Any] = {"k": chosen.k, "seed": seed}
    judged = asdict(chosen)
    return [
        Stage(
            "made-up lesson",
            "embed",
            {**made_up, "images": n_lesson},
            (),
            {"lesson": "lesson"},
            lambda progress: make_up("lesson", n_lesson, seed + 10_000),
        ),
        Stage(
            "made-up images",
            "embed",
            {**made_up, "images": size},
            (),
            {"images": "images"},
            lambda progress: make_up("images", size, seed),
        ),
        Stage(
            "graphs of the lesson",
            "graphs",
            near,
            ("lesson",),
            {"lesson graphs": "lesson_graphs"},
            lambda progress: search("lesson", "exact", progress),
        ),
        Stage(
            "mediator",
            "mediator",
            {**near, "inputs": list(chosen.inputs)},
            ("lesson", "lesson graphs"),
            {"mediator": "mediator"},
            teach,
        ),
        Stage(
            "graphs",
            "graphs",
            {**near, "method": chosen.method},
            ("images",),
            {"graphs": "images_graphs"},
            lambda progress: search("images", chosen.method, progress),
        ),
        Stage(
            "consensus",
            "consensus",
            {"consensus": json.loads(json.dumps(judged))},
            ("images", "graphs", "mediator"),
            {"consensus": "consensus"},
            agree,
        ),
        Stage(
            "propagation",
            "labels",
            {"consensus": json.loads(json.dumps(judged))},
            ("consensus",),
            {"labels": "labels"},
            lambda progress: label(),
        ),
    ]


def _runtime_columns(recipe: RunRecipe) -> list[Column]:
    del recipe
    titles = {"graphs": "k-NN graphs", "consensus": "opinions and mediator", "propagation": "propagation"}
    return [
        *(Column(f"{step}_seconds", titles[step], "seconds", "low") for step in _STEPS),
        Column("seconds", "all steps", "seconds", "low"),
        *(Column(f"{step}_memory", f"{titles[step]}, memory", "bytes", "") for step in _STEPS),
    ]


def _baselines(recipe: RunRecipe, options: Options) -> list[Variant]:
    if not has_validation(recipe):
        raise InputError(
            "baselines: every method is tuned on the validation part; give split.validation a share, e.g. 0.1, or "
            "data.validation."
        )
    if recipe.consensus.mediator == "hierarchical":
        raise InputError('baselines: clustering is a row of its own; set consensus.mediator = "mlp".')
    names = tuple(method.name for method in make_baselines(options.methods))
    return [
        Variant(
            "baselines",
            {**JUDGED_BY_F, "consensus.tune": True, "consensus.pair_recall": -1.0, "consensus.rounds": 1},
            ("label figures", "baselines"),
            _methods,
            stages=partial(_with_baselines, names),
        )
    ]


def _with_baselines(names: tuple[str, ...], recipe: RunRecipe, folder: Path) -> list[Stage]:
    name = model_names(recipe)[0]
    stages = make_stages(recipe, folder)
    agreed = next(stage for stage in stages if "consensus" in stage.makes)
    needs = dict.fromkeys([*agreed.needs, "tuning", f"networks/{name} of unlabeled"])
    stages.append(
        Stage(
            "baselines",
            "evaluate",
            {
                "methods": list(names),
                "tried": {name: [dict(BASELINES[name].grid), BASELINES[name].patience] for name in names},
                "seed": recipe.seed,
                "memory_budget": recipe.engine.memory_budget,
                "consensus": dict(agreed.settings),
            },
            tuple(needs),
            {"baselines": "baselines.json"},
            lambda progress: compare_methods(recipe, folder, names, progress),
        )
    )
    return stages


def compare_methods(recipe: RunRecipe, folder: Path, names: tuple[str, ...], progress: Progress) -> None:
    """Write `baselines.json`: every method and CDP on the unlabeled images, each in a fresh process.

    Every method is tuned as CDP is: on the validation images, in the midst of all unlabeled ones, which alone are
    then measured.
    """
    name = model_names(recipe)[0]
    shown = embeddings(folder, f"networks/{name}", "unlabeled")
    graph = load(folder / "graphs" / name / "unlabeled", KnnGraph)
    identities = part(folder, "unlabeled").identities
    told = validation_only(folder, identities)
    others: LongArray = np.where(told >= 0, -1, identities)
    common = {"memory_budget": recipe.engine.memory_budget, "seed": recipe.seed}
    tuned = []
    for done, method in enumerate(make_baselines(names)):
        progress("tuning", done, len(names))
        own = {key: value for key, value in common.items() if key in method.settings}
        tuned.append(tune(method.having(**own), shown, graph, told, among_others=True))
    rows = [one.as_dict() for one in measure_baselines(tuned, shown, graph, others, progress=progress)]
    bar = chosen_bar(recipe, folder)
    with tempfile.TemporaryDirectory(prefix="cdp-study-") as home:
        write_json(Path(home) / "cdp.json", {"run": str(folder), "recipe": recipe.as_dict()})
        run = partial(run_apart, prepare_cdp, Path(home), "cdp")
        rows.append(figures_of("cdp", {"bar": bar}, run, others).as_dict())
    write_json(folder / "baselines.json", rows)


def prepare_cdp(home: Path) -> Callable[[], Labels]:
    """In the other process: everything of a run in memory, then a few made-up images labeled, to compile."""
    told = json.loads((home / "cdp.json").read_text(encoding="utf-8"))
    recipe, folder = recipe_from(told["recipe"]), Path(told["run"])
    chosen, bar = recipe.consensus, chosen_bar(recipe, folder)
    judge: Mediator | Vote
    if chosen.mediator == "vote":
        judge = Vote(
            None if chosen.quorum < 0 else chosen.quorum,
            chosen.vote_threshold if chosen.grouping == "average" else bar,
        )
    else:
        judge = Mediator.load(folder / "mediator")
    model = estimator(recipe, judge)
    if chosen.grouping == "average":
        model.set_params(join_above=bar)
    elif chosen.mediator == "mlp":
        model.set_params(threshold=bar)
    held = views_of(recipe, folder, "unlabeled")
    views = Views(
        np.array(held.base.source),
        {name: np.array(member.source) for name, member in held.committee.items()},
    )
    graphs = [
        KnnGraph(np.array(one.neighbors), np.array(one.similarity))
        for one in graphs_of(recipe, folder, "unlabeled")
    ]
    few = synthetic_views(20, 8, members=len(views.committee)).unlabeled
    made_up = Views(few.base, dict(zip(views.committee, few.committee.values(), strict=True)))
    if made_up.n_images > chosen.k:
        model.predict(made_up, [knn_graph(one, chosen.k) for one in made_up])
    return lambda: model.predict(views, graphs)


def _methods(run: Finished) -> list[Measure]:
    rows = []
    for row in read_json(run.folder, "baselines.json"):
        keys = ("precision", "recall", "f", "bcubed_f", "nmi", "coverage", "seconds")
        figures = {key: row[key] for key in keys} | {"memory": row["peak_bytes"]}
        rows.append(Measure((row["name"],), figures))
    return rows


def _baseline_columns(recipe: RunRecipe) -> list[Column]:
    del recipe
    return [
        Column("precision", "pairwise precision"),
        Column("recall", "pairwise recall"),
        Column("f", "pairwise F"),
        Column("bcubed_f", "BCubed F"),
        Column("nmi", "NMI"),
        Column("coverage", "images labeled"),
        Column("seconds", "time", "seconds", "low"),
        Column("memory", "memory", "bytes", "low"),
    ]


def _extras() -> str:
    return " and ".join(name for name, one in BASELINES.items() if one.extra)


STUDIES = (
    Study(
        "runtime",
        "Time and memory as the number of images grows",
        ("search", "images"),
        _runtime_columns,
        "",
        _runtime,
        paper=RUNTIME,
        plots=(Plot("seconds"),),
        fits=(*(f"{step}_seconds" for step in _STEPS), "seconds"),
        reading="Made-up embeddings of 128 dimensions, by as many networks as the recipe has; its k, inputs and "
        "grouping. Memory is the most the process held, libraries included. NN-descent works in a process of its own "
        "for every network: its memory is not counted, its start is, and with few images that is all one sees.",
    ),
    Study(
        "baselines",
        "Other methods beside CDP on the same embeddings",
        ("method",),
        _baseline_columns,
        "f",
        _baselines,
        plots=(Plot("f"), Plot("bcubed_f")),
        reading="Every method is tuned on the validation images in the midst of all unlabeled ones, CDP's threshold "
        "too; figures are of the other images. The methods see the base network alone, CDP sees the committee as "
        f"well. Time and memory are of the labeling, graphs given, in a fresh process. {_extras()} run if named.",
    ),
)
