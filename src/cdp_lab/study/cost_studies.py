"""Studies of what labeling costs: growth with the number of images, and comparison with other methods."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from cdp.config.sections import RunRecipe
from cdp.errors import InputError
from cdp.labeling.fitting import LabeledImages, fit
from cdp.labeling.pipeline import label
from cdp.run.label_stage import LabelSettings, make_labeling
from cdp.run.peak_memory import PeakMemory
from cdp.run.plan import label_stage, make_stages
from cdp.run.sources import ResolvedRecipe
from cdp.run.stages import Context, Stage, version
from cdp.runtime.runtime import Runtime
from cdp.scoring.settings import ConsensusSettings
from cdp.settings import slice_of
from cdp.storage.artifacts import read_json
from cdp.storage.files import write_json
from cdp.types import Views
from cdp_lab.baselines.measure import measure_baselines, measure_cdp
from cdp_lab.baselines.methods import BASELINES, make_baselines, tune
from cdp_lab.study.design import Column, Finished, Measure, Options, Plot, Study, Variant
from cdp_lab.study.label_studies import SCORED_BY_F, has_validation
from cdp_lab.study.paper_numbers import RUNTIME
from cdp_lab.synthetic import synthetic_views

_TRAINING_IMAGES = 5_000
_PER_IDENTITY = 12.0
_STEPS = ("graphs", "consensus", "groups")
_METHODS = ("exact", "approximate")


@dataclass(frozen=True)
class ScalingSettings:
    """Synthetic embeddings: number of images and members, and how they are labeled."""

    images: int
    members: int
    consensus: ConsensusSettings
    seed: int


@dataclass(frozen=True, eq=False)
class MeasuredRuntime(Runtime):
    """A runtime that also measures the peak memory of each step."""

    memory: dict[str, int] = field(default_factory=dict)

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Time and measure a step."""
        with super().step(name), PeakMemory() as memory:
            yield
        self.memory[name] = max(self.memory.get(name, 0), memory.peak)


def _runtime(_recipe: RunRecipe, options: Options) -> list[Variant]:
    return [
        Variant(
            f"{method}-{size}",
            {"consensus.method": method, "consensus.mediator": "mlp", "consensus.threshold": 0.3},
            ("step costs",),
            partial(_step_costs, method, size),
            stages=partial(_scaling_stages, size),
        )
        for method in _METHODS
        for size in options.sizes
    ]


def _step_costs(method: str, size: int, run: Finished) -> list[Measure]:
    costs = read_json(run.folder / "step_costs.json", dict[str, dict[str, float]])
    figures = {f"{step}_{what}": costs[step][what] for step in _STEPS for what in ("seconds", "memory")}
    figures["seconds"] = sum(costs[step]["seconds"] for step in _STEPS)
    return [Measure((method, f"{size:,}"), figures)]


def _scaling_stages(size: int, resolved: ResolvedRecipe) -> list[Stage]:
    recipe = resolved.recipe
    consensus = slice_of(recipe.consensus, ConsensusSettings)
    settings = ScalingSettings(size, len(recipe.committee.networks), consensus, recipe.seed)
    return [
        Stage("label made-up images", "label", label_made_up, settings, (), {"step costs": "step_costs.json"})
    ]


@version(1)
def label_made_up(settings: ScalingSettings, context: Context) -> None:
    """Write `step_costs.json`: seconds and memory of every step of labeling made-up embeddings."""
    consensus, seed = settings.consensus, settings.seed
    plain = Runtime(context.engine, progress=context.progress)
    training = _made_up(min(settings.images, _TRAINING_IMAGES), settings.members, seed + 10_000)
    fitted = fit(LabeledImages((training,)), consensus, seed=seed, runtime=plain)
    runtime = MeasuredRuntime(context.engine, progress=context.progress)
    label(
        _made_up(settings.images, settings.members, seed),
        consensus,
        fitted=fitted,
        seed=seed,
        runtime=runtime,
    )
    costs = {step: {"seconds": runtime.timings[step], "memory": runtime.memory[step]} for step in _STEPS}
    write_json(context.folder / "step_costs.json", costs)


def _made_up(n_images: int, members: int, seed: int) -> Views:
    # Some people more than needed, cut to the number of images.
    n_identities = max(8, round(2.2 * n_images / _PER_IDENTITY))
    made = synthetic_views(n_identities, _PER_IDENTITY, labeled=0.05, members=members, seed=seed).unlabeled
    return made.take(np.arange(min(n_images, made.n_images)))


def _runtime_columns(_recipe: RunRecipe) -> list[Column]:
    titles = {"graphs": "k-NN graphs", "consensus": "opinions and mediator", "groups": "propagation"}
    return [
        *(Column(f"{step}_seconds", titles[step], "seconds", "low") for step in _STEPS),
        Column("seconds", "all steps", "seconds", "low"),
        *(Column(f"{step}_memory", f"{titles[step]}, memory", "bytes", "") for step in _STEPS),
    ]


@dataclass(frozen=True)
class BaselineSettings:
    """Which methods are compared with CDP, and what they are tuned over."""

    label: LabelSettings
    methods: tuple[str, ...]
    grids: str
    memory_budget: str


def _baselines(recipe: RunRecipe, options: Options) -> list[Variant]:
    if not has_validation(recipe):
        raise InputError(
            "baselines: every method is tuned on the validation part; give split.validation a share, e.g. "
            "0.1, or data.validation.",
            code="study-validation-missing",
            study="baselines",
        )
    names = tuple(method.name for method in make_baselines(options.methods))
    return [
        Variant(
            "baselines",
            {**SCORED_BY_F, "consensus.threshold": "auto", "joint.rounds": 1},
            ("baselines",),
            _methods,
            stages=partial(_with_baselines, names),
        )
    ]


def _with_baselines(names: tuple[str, ...], resolved: ResolvedRecipe) -> list[Stage]:
    def labeler(settings: LabelSettings, needs: tuple[str, ...]) -> list[Stage]:
        tried = {name: [dict(BASELINES[name].grid), BASELINES[name].patience] for name in names}
        own = BaselineSettings(settings, names, str(tried), resolved.recipe.engine.memory_budget)
        makes = {"baselines": "baselines.json"}
        compare = Stage("baselines", "evaluate", compare_methods, own, (*needs, "labels"), makes)
        return [*label_stage(settings, needs), compare]

    return make_stages(resolved, labeler)


@version(1)
def compare_methods(settings: BaselineSettings, context: Context) -> None:
    """Write `baselines.json`: every method and CDP on the unlabeled images, each in a fresh process.

    Every method is tuned as CDP is: on the validation images, among all unlabeled ones, which alone
    are then measured.
    """
    labeling, views = make_labeling(settings.label, context)
    assert views.identities is not None
    known = np.where(labeling.validation, views.identities, -1)
    others = np.where(labeling.validation, -1, views.identities)
    graph = next(iter(labeling.graphs.values()))
    common = {"memory_budget": settings.memory_budget, "seed": settings.label.seed}
    tuned = []
    for done, method in enumerate(make_baselines(settings.methods)):
        context.progress("tuning methods", done, len(settings.methods))
        own = {key: value for key, value in common.items() if key in method.settings}
        tuned.append(tune(method.having(**own), views.base, graph, known, among_others=True))
    figures = measure_baselines(tuned, views.base, graph, others, progress=context.progress)
    figures.append(measure_cdp("cdp", labeling, views, others))
    write_json(context.folder / "baselines.json", [one.as_dict() for one in figures])


def _methods(run: Finished) -> list[Measure]:
    rows = []
    for row in read_json(run.folder / "baselines.json", list[dict[str, Any]]):
        keys = ("precision", "recall", "f", "bcubed_f", "nmi", "coverage", "seconds")
        figures = {key: row[key] for key in keys} | {"memory": row["peak_bytes"]}
        rows.append(Measure((row["name"],), figures))
    return rows


def _baseline_columns(_recipe: RunRecipe) -> list[Column]:
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
        reading="Made-up embeddings of 128 dimensions, by as many networks as the recipe has; its k, "
        "inputs and "
        "grouping. Memory is the most the process held, libraries included. NN-descent works in "
        "a process of its own "
        "for every network: its memory is not counted, its start is, and with few images that is "
        "all one sees.",
    ),
    Study(
        "baselines",
        "CDP and other methods on the same embeddings",
        ("method",),
        _baseline_columns,
        "f",
        _baselines,
        plots=(Plot("f"), Plot("bcubed_f")),
        reading="Every method is tuned on the validation images among all unlabeled ones, "
        "CDP's threshold "
        "too; figures are of the other images. The methods see the base network alone, CDP sees "
        "the committee as "
        "well. Time and memory are of the labeling, graphs given, in a fresh process. "
        f"{_extras()} run if named.",
    ),
)
