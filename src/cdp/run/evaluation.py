"""The last stages: what networks recognize on people they never saw, as typed figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from cdp.config.sections import MeasureSettings
from cdp.evaluate.bootstrap import interval
from cdp.evaluate.identification import Identification, measure_identification
from cdp.evaluate.verification import ScoredPairs, Verification, measure_verification, score_pairs
from cdp.files import write_json
from cdp.run.labeling import embeddings
from cdp.run.stages import Context, version
from cdp.run.training import part
from cdp.store import read_card
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
    """What the headline depends on: `tested` are (`labeled`, `cdp` or `all`, network's folder)."""

    measure: MeasureSettings
    tested: tuple[tuple[str, str], ...]
    base: str
    seed: int


@dataclass(frozen=True)
class MemberSettings:
    """What the figures of single models depend on; `ensemble` is how many of the best are measured together."""

    measure: MeasureSettings
    ensemble: int
    models: tuple[str, ...]
    seed: int


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

    def figures(self) -> RecognitionFigures:
        """Rank-1 and TPR with their intervals."""
        rates = [
            RateFigure(
                fpr=one.fpr,
                **msgspec.structs.asdict(_with_interval(one.tpr, self.verification.replicates[:, 2 + at])),
            )
            for at, one in enumerate(self.verification.tpr)
        ]
        return RecognitionFigures(rank1=_with_interval(self.identification.rate(), self.rank_1), tpr=rates)


@version(1)
def measure_recognition(settings: RecognitionSettings, context: Context) -> None:
    """Write `recognition.json`: the headline."""
    folder = context.folder
    found = {}
    for done, (key, artifact) in enumerate(settings.tested):
        seen = [embeddings(folder, artifact, name) for name in ("probes", "distractors")]
        found[key] = recognize(settings.measure, settings.seed, context, *seen)
        context.progress("networks tested", done + 1, len(settings.tested))
    n_labeled, n_unlabeled = len(part(folder, "labeled")), len(part(folder, "unlabeled"))
    n_pseudo = int((Labels.load(folder / "labels").labels >= 0).sum())
    images = {"labeled": n_labeled, "cdp": n_labeled + n_pseudo, "all": n_labeled + n_unlabeled}
    headline = Headline(
        network=settings.base,
        probes=len(part(folder, "probes")),
        distractors=len(part(folder, "distractors")),
        models=[
            ModelFigures(key=key, title=_TITLES[key], images=images[key], **_fields(one.figures()))
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
        artifact: [embeddings(folder, artifact, name) for name in ("probes", "distractors")]
        for artifact in settings.models
    }
    parameters = [read_card(folder / artifact).settings.get("parameters") for artifact in settings.models]
    _write_members(settings, context, seen, parameters)


@version(1)
def measure_views(settings: MemberSettings, context: Context) -> None:
    """Write `member_figures.json`: every given model by itself."""
    probes, distractors = (Views.load(context.folder / "views" / name) for name in ("probes", "distractors"))
    pairs = zip(settings.models, probes, distractors, strict=True)
    seen = {name: [one, other] for name, one, other in pairs}
    _write_members(settings, context, seen, [None] * len(seen))


def _write_members(
    settings: MemberSettings,
    context: Context,
    seen: Mapping[str, list[Embeddings]],
    parameters: Sequence[int | None],
) -> None:
    members = []
    for done, (artifact, parts) in enumerate(seen.items()):
        figures = recognize(settings.measure, settings.seed, context, *parts).figures()
        members.append(Member(name=Path(artifact).name, parameters=parameters[done], **_fields(figures)))
        context.progress("networks tested", done + 1, len(seen))
    n_best = min(settings.ensemble, len(members))
    ensemble = None
    if n_best >= 2:
        order = sorted(range(len(members)), key=lambda at: -(members[at].rank1.value or 0))[:n_best]
        best = [list(seen.values())[at] for at in order]
        joined = [_joined([parts[side] for parts in best]) for side in (0, 1)]
        figures = recognize(settings.measure, settings.seed, context, *joined).figures()
        ensemble = Ensemble(names=[members[at].name for at in order], **_fields(figures))
    committee = Committee(members=members, ensemble=ensemble)
    write_json(context.folder / "member_figures.json", msgspec.to_builtins(committee))


def _fields(figures: RecognitionFigures) -> dict[str, Any]:
    return {"rank1": figures.rank1, "tpr": figures.tpr}


def _joined(models: Sequence[Embeddings]) -> Embeddings:
    from cdp.nets.ensemble import ensemble

    views = Views(models[0], {f"member{at}": one for at, one in enumerate(models[1:])})
    return ensemble(views, views.names).base


def recognize(
    measure: MeasureSettings, seed: int, context: Context, probes: Embeddings, distractors: Embeddings
) -> Recognition:
    """Identification and verification of one network on the test set."""
    people, others = (part(context.folder, name).identities for name in ("probes", "distractors"))
    identification = measure_identification(
        probes,
        people,
        distractors,
        distractor_identities=others,
        replicates=measure.replicates,
        seed=seed,
        threads=context.engine.threads,
    )
    verification = measure_verification(
        _pairs(probes, people, measure.pairs, seed),
        fprs=measure.fpr,
        replicates=measure.replicates,
        seed=seed,
        threads=context.engine.threads,
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


def _with_interval(value: float | None, replicates: DoubleArray) -> Figure:
    band = interval(replicates) if len(replicates) and value is not None else None
    return Figure(
        value=value, low=None if band is None else band.low, high=None if band is None else band.high
    )


def gap_closed(found: Mapping[str, Recognition]) -> RecognitionFigures:
    """(with pseudo-labels - labeled only) / (all labels - labeled only), resampled together."""
    three = [found[key] for key in ("labeled", "cdp", "all")]
    rates = []
    for at, figure in enumerate(three[0].verification.tpr):
        values = [one.verification.tpr[at].tpr for one in three]
        share = _share(values, [one.verification.replicates[:, 2 + at] for one in three])
        rates.append(RateFigure(fpr=figure.fpr, value=share.value, low=share.low, high=share.high))
    ranks: list[float | None] = [one.identification.rate() for one in three]
    return RecognitionFigures(rank1=_share(ranks, [one.rank_1 for one in three]), tpr=rates)


def _share(values: Sequence[float | None], again: Sequence[DoubleArray]) -> Figure:
    low, mid, high = values
    if low is None or mid is None or high is None or high == low:
        return Figure()
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = (again[1] - again[0]) / (again[2] - again[0])
    return _with_interval((mid - low) / (high - low), shares)
