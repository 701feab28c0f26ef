"""The last stages: what networks recognize on people they never saw, as typed figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
from msgspec.structs import asdict

from cdp.config.sections import MeasureSettings
from cdp.data.ijb import load_templates
from cdp.evaluate.bootstrap import interval
from cdp.evaluate.identification import measure_identification
from cdp.evaluate.templates import score_templates
from cdp.evaluate.verification import ScoredPairs, measure_verification, score_pairs
from cdp.run.label_stage import embeddings
from cdp.run.sources import PROBE_PARTS, TEMPLATES
from cdp.run.stages import Context, version
from cdp.run.training import part
from cdp.storage.artifacts import read_facts
from cdp.storage.files import write_json
from cdp.types import Embeddings, Labels, Views
from cdp.types.arrays import BoolArray, DoubleArray, LongArray
from cdp.types.run_record import (
    Committee,
    Ensemble,
    Figure,
    Headline,
    Member,
    ModelFigures,
    RateFigure,
    RecognitionFigures,
)

_TITLES = {"labeled": "labeled only", "cdp": "with pseudo-labels", "all": "all labels"}


@dataclass(frozen=True)
class RecognitionSettings:
    """What the headline depends on.

    Attributes:
        tested: (`labeled`, `cdp` or `all`, network's folder) of every network.
        base: name of that network.
        parts: what it is tested on: probes and distractors, templates, or both.
        seed: of pairs, draws and resamplings.
    """

    measure: MeasureSettings
    tested: tuple[tuple[str, str], ...]
    base: str
    parts: tuple[str, ...]
    seed: int


@dataclass(frozen=True)
class MemberSettings:
    """Settings of single-model figures; `ensemble` is the number of best models measured together."""

    measure: MeasureSettings
    ensemble: int
    models: tuple[str, ...]
    parts: tuple[str, ...]
    seed: int


@dataclass(frozen=True, eq=False)
class Resampled:
    """A figure, and the same figure under every resampling of the test identities, float64 (r,)."""

    value: float | None
    replicates: DoubleArray

    def figure(self) -> Figure:
        """With its interval."""
        if self.value is None or not len(self.replicates):
            return Figure(value=self.value)
        band = interval(self.replicates)
        return Figure(value=self.value) if band is None else Figure(value=self.value, **band._asdict())


@dataclass(frozen=True, eq=False)
class Recognition:
    """One network's figures on the test set; TPR of pairs of probes and of templates by FPR."""

    rank1: Resampled | None = None
    tpr: Mapping[float, Resampled] = field(default_factory=dict)
    templates: Mapping[float, Resampled] = field(default_factory=dict)

    def figures(self) -> RecognitionFigures:
        """Return the same with intervals."""
        return RecognitionFigures(
            rank1=Figure() if self.rank1 is None else self.rank1.figure(),
            tpr=_rates(self.tpr),
            templates=_rates(self.templates),
        )


def _rates(found: Mapping[float, Resampled]) -> list[RateFigure]:
    return [RateFigure(fpr=fpr, **asdict(one.figure())) for fpr, one in found.items()]


@version(1)
def measure_recognition(settings: RecognitionSettings, context: Context) -> None:
    """Write `recognition.json`: the headline."""
    folder = context.folder
    found = {}
    for done, (key, artifact) in enumerate(settings.tested):
        seen = {name: embeddings(folder, artifact, name) for name in settings.parts}
        found[key] = recognize(settings.measure, settings.seed, context, seen)
        context.progress("networks tested", done + 1, len(settings.tested))
    n_labeled, n_unlabeled = len(part(folder, "labeled")), len(part(folder, "unlabeled"))
    n_pseudo = int((Labels.load(folder / "labels").labels >= 0).sum())
    images = {"labeled": n_labeled, "cdp": n_labeled + n_pseudo, "all": n_labeled + n_unlabeled}
    tested = {name: len(part(folder, name)) for name in settings.parts}
    headline = Headline(
        network=settings.base,
        probes=tested.get("probes"),
        distractors=tested.get("distractors"),
        template_images=tested.get(TEMPLATES),
        models=[
            ModelFigures(key=key, title=_TITLES[key], images=images[key], **asdict(one.figures()))
            for key, one in found.items()
        ],
        gap_closed=gap_closed(found) if "all" in found else None,
    )
    write_json(folder / "recognition.json", msgspec.to_builtins(headline))


@version(1)
def measure_members(settings: MemberSettings, context: Context) -> None:
    """Write `member_figures.json`: every network by itself, and an ensemble of the best if asked for."""
    folder = context.folder
    seen = {
        artifact: {name: embeddings(folder, artifact, name) for name in settings.parts}
        for artifact in settings.models
    }
    # A network that was not trained here has no folder.
    parameters = [
        read_facts(folder / artifact).parameters if (folder / artifact).is_dir() else None
        for artifact in settings.models
    ]
    _write_members(settings, context, seen, parameters)


@version(1)
def measure_views(settings: MemberSettings, context: Context) -> None:
    """Write `member_figures.json`: every given model by itself."""
    views = {name: tuple(Views.load(context.folder / "views" / name)) for name in settings.parts}
    seen = {model: {name: one[at] for name, one in views.items()} for at, model in enumerate(settings.models)}
    _write_members(settings, context, seen, [None] * len(seen))


def _write_members(
    settings: MemberSettings,
    context: Context,
    seen: Mapping[str, Mapping[str, Embeddings]],
    parameters: Sequence[int | None],
) -> None:
    members = []
    for done, (artifact, parts) in enumerate(seen.items()):
        figures = recognize(settings.measure, settings.seed, context, parts).figures()
        members.append(Member(name=Path(artifact).name, parameters=parameters[done], **asdict(figures)))
        context.progress("networks tested", done + 1, len(seen))
    n_best = min(settings.ensemble, len(members))
    ensemble = None
    if n_best >= 2:
        best = sorted(range(len(members)), key=lambda at: -(members[at].rank1.value or 0))[:n_best]
        models = [list(seen.values())[at] for at in best]
        joined = {name: _joined([one[name] for one in models]) for name in settings.parts}
        figures = recognize(settings.measure, settings.seed, context, joined).figures()
        ensemble = Ensemble(names=[members[at].name for at in best], **asdict(figures))
    committee = Committee(members=members, ensemble=ensemble)
    write_json(context.folder / "member_figures.json", msgspec.to_builtins(committee))


def _joined(models: Sequence[Embeddings]) -> Embeddings:
    from cdp.nets.ensemble import ensemble

    views = Views(models[0], {f"member{at}": one for at, one in enumerate(models[1:])})
    return ensemble(views, views.names).base


def recognize(
    measure: MeasureSettings, seed: int, context: Context, seen: Mapping[str, Embeddings]
) -> Recognition:
    """Identification and verification of one network, by its embeddings of the parts it is tested on."""
    rank1, tpr, templates = None, {}, {}
    if "probes" in seen:
        people, others = (part(context.folder, name).identities for name in PROBE_PARTS)
        found = measure_identification(
            seen["probes"],
            people,
            seen["distractors"],
            distractor_identities=others,
            replicates=measure.replicates,
            seed=seed,
            threads=context.engine.threads,
        )
        # The first figures are rank-1, by growing numbers of distractors.
        rank1 = Resampled(found.rate(), _column(found.replicates, len(found.sizes) - 1))
        if len(np.unique(people)) > 1:
            tpr = _verify(measure, seed, context, [_pairs(seen["probes"], people, measure.pairs, seed)])
    if TEMPLATES in seen:
        threads = context.engine.threads
        splits = load_templates(context.folder / "parts" / "protocol.npz")
        scored = [score_templates(split, seen[TEMPLATES], threads=threads) for split in splits]
        templates = _verify(measure, seed, context, scored)
    return Recognition(rank1, tpr, templates)


def _verify(
    measure: MeasureSettings, seed: int, context: Context, scored: Sequence[ScoredPairs]
) -> dict[float, Resampled]:
    found = measure_verification(
        scored,
        fprs=measure.fpr,
        replicates=measure.replicates,
        seed=seed,
        threads=context.engine.threads,
    )
    # Accuracy and equal error rate come before them.
    return {
        one.fpr: Resampled(one.tpr, _column(found.replicates, 2 + at)) for at, one in enumerate(found.tpr)
    }


def _column(replicates: DoubleArray, number: int) -> DoubleArray:
    """Return one figure of every resampling; empty if nothing was resampled."""
    return replicates[:, number] if len(replicates) else np.empty(0)


def _pairs(probes: Embeddings, identities: LongArray, most: int, seed: int) -> ScoredPairs:
    """Draw verification pairs among the probes: up to `most` / 2 genuine ones, impostors at random."""
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
    # As one number each, they are sorted in a tenth of the time that rows take.
    drawn = np.unique(drawn.min(axis=1) * len(identities) + drawn.max(axis=1))
    drawn = np.stack(np.divmod(drawn, len(identities)), axis=1)
    different = drawn[identities[drawn[:, 0]] != identities[drawn[:, 1]]]
    different = generator.permutation(different)[: most - len(same)]
    ends = np.concatenate([same, different])
    is_same: BoolArray = np.arange(len(ends)) < len(same)
    return score_pairs(probes, ends, is_same, identities=identities)


def gap_closed(found: Mapping[str, Recognition]) -> RecognitionFigures:
    """Compute (with pseudo-labels - labeled only) / (all labels - labeled only), resampled together."""
    three = [found[key] for key in ("labeled", "cdp", "all")]
    return Recognition(
        _share([one.rank1 for one in three]),
        {fpr: _share([one.tpr[fpr] for one in three]) for fpr in three[0].tpr},
        {fpr: _share([one.templates[fpr] for one in three]) for fpr in three[0].templates},
    ).figures()


def _share(three: Sequence[Resampled | None]) -> Resampled:
    low, mid, high = (None if one is None else one.value for one in three)
    if low is None or mid is None or high is None or high == low:
        return Resampled(None, np.empty(0))
    again = [one.replicates for one in three if one is not None]
    with np.errstate(divide="ignore", invalid="ignore"):
        return Resampled((mid - low) / (high - low), (again[1] - again[0]) / (again[2] - again[0]))
