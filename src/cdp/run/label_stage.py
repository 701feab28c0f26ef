"""The stage that labels: views from the run's folder, the one pipeline, and its output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from cdp.collection.scored_files import Measured, write_scored
from cdp.labeling.figures import measure_labeling
from cdp.labeling.labeling import Labeling
from cdp.labeling.output import write_labeling
from cdp.labeling.pipeline import label
from cdp.run.stages import Context, version
from cdp.run.training import part
from cdp.runtime.runtime import Runtime
from cdp.runtime.step_cache import StepCache
from cdp.scoring.settings import ConsensusSettings
from cdp.storage.artifacts import fill, hash_views, read_facts, read_json
from cdp.storage.files import writing_folder
from cdp.types import Embeddings, Views
from cdp.types.arrays import BoolArray, LongArray
from cdp.types.run_record import Results
from cdp.web.words import share_with_interval


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
    def networks(self) -> str:
        """Return the folder of committee networks: of the labeled part, or of the previous round."""
        return "networks" if self.number == 1 else f"round{self.number}"

    @property
    def folder(self) -> str:
        """Where its files are in the run's folder."""
        return "" if self.is_last else f"rounds/{self.number}/"

    @property
    def prefix(self) -> str:
        """What names of its stages and artifacts begin with."""
        return "" if self.is_last else f"round{self.number} "


@dataclass(frozen=True)
class LabelSettings:
    """What labels depend on in addition to embeddings and labeled identities.

    Attributes:
        consensus: the settings of section 3.1, without the preset's name.
        models: base first; who is the base and in which order members come is part of the mediator's inputs.
        round: whose networks give opinions.
        folds: sets of networks that did not see a fold of the labeled identities, which the mediator is
            trained on.
        from_views: whether embeddings were given instead of images.
        seed: of everything random.
        output: name of the folder that is written.
    """

    consensus: ConsensusSettings
    models: tuple[str, ...]
    round: Round
    folds: int
    from_views: bool
    seed: int
    output: str = "labels"


@version(1)
def label_images(settings: LabelSettings, context: Context) -> None:
    """Write the label folder: labels, tables, mediator, figures and scored pairs."""
    labeling, unlabeled = make_labeling(settings, context)
    results = measure_labeling(labeling, unlabeled, names=list(settings.models), seed=settings.seed)
    with writing_folder(context.folder / settings.round.folder / settings.output, force=True) as output:
        made_from = {f"unlabeled/{name}": digest for name, digest in hash_views(unlabeled).items()}
        write_labeling(output, labeling, results, paths=unlabeled.paths, made_from=made_from)
        kept = labeling.kept
        if kept is not None and settings.round.is_last:
            # Without seconds: the same labels have the same bytes.
            write_scored(
                output / "scored",
                kept,
                labeling.mediator,
                Measured(results=results),
                share=labeling.share,
                with_graphs=False,
            )
            if labeling.joined is not None:
                fill(output / "labeled", labeling.joined)


def tell_expectation(settings: LabelSettings) -> Callable[[Path], list[str]]:
    """Report expected quality and anomalies of the labels before networks are trained on them."""

    def tell(folder: Path) -> list[str]:
        labels = folder / settings.round.folder / settings.output
        results: Results = read_json(labels / "metrics.json", Results)
        return [*expectation_sentences(results), *read_facts(labels).notes]

    return tell


def refuse_labels(labels: str, least: float) -> Callable[[Path], str]:
    """Explain why networks should not train on these labels (expected precision too low), or None.

    Args:
        labels: their folder in the run's folder.
        least: precision that is asked for; 0 = none.
    """

    def refuse(folder: Path) -> str:
        expected = read_json(folder / labels / "metrics.json", Results).expected
        precision = None if expected is None else expected.precision.value
        if precision is None or precision >= least:
            return ""
        return (
            f"No network was trained on these labels: their expected precision is {precision:.2f}, less than "
            f"{least:g} (--least-precision), so most pairs in a group would be of different identities. Give "
            "more labeled identities (more folders, or --split.labeled), weights to start from "
            "(--base.weights) or trained models (--network onnx:FILE; for photos of people, cdp label "
            "downloads public ones), or train all the same with --least-precision 0."
        )

    return refuse


def expectation_sentences(results: Results) -> list[str]:
    """Return expected quality of the labels in one sentence; nothing without labeled identities."""
    expected = results.expected
    if expected is None:
        return []
    figures = {"precision": expected.precision, "recall": expected.recall, "coverage": expected.coverage}
    words = [
        f"{name} {share_with_interval(figure.value, figure.low, figure.high)}"
        for name, figure in figures.items()
        if figure.value is not None
    ]
    return [f"Expected of these labels, by {expected.identities:,} labeled identities: {', '.join(words)}."]


def make_labeling(settings: LabelSettings, context: Context) -> tuple[Labeling, Views]:
    """Return the labeling of the unlabeled part, and its views with all identities that are known."""
    folder, networks = context.folder, settings.round.networks
    unlabeled = read_part(settings, folder, "unlabeled", networks)
    folds = [f"fold{fold}" for fold in range(1, settings.folds + 1)]
    labeled = [read_part(settings, folder, fold, fold) for fold in folds]
    labeled = labeled or [read_part(settings, folder, "labeled", networks)]
    validation = validation_rows(folder, unlabeled.n_images)
    assert unlabeled.identities is not None
    validation_identities = (
        unlabeled.identities[:0] if validation is None else unlabeled.identities[validation]
    )
    consensus, notes = _suit_small_parts(settings.consensus, labeled, validation_identities)
    labeling = label(
        unlabeled,
        consensus,
        labeled=labeled,
        validation=validation,
        keep_scored=settings.round.is_last,
        seed=settings.seed,
        runtime=stage_runtime(context),
    )
    return replace(labeling, notes=(*notes, *labeling.notes)), unlabeled


def _suit_small_parts(
    settings: ConsensusSettings, labeled: Sequence[Views], validation: LongArray
) -> tuple[ConsensusSettings, list[str]]:
    """Adapt settings to small parts, so that few images do not fail a run after hours of training.

    Args:
        settings: as the recipe has them.
        labeled: the labeled part, or its folds.
        validation: identities of the validation images.
    """
    notes = []
    n_labeled = min(views.n_images for views in labeled)
    n_validation, n_identities = len(validation), len(np.unique(validation[validation >= 0]))
    is_small = n_identities < 2 or n_validation <= settings.k < n_labeled
    if settings.train_on == "validation" and is_small:
        settings = replace(settings, train_on="labeled")
        notes.append(
            f"The mediator was trained on the labeled part: the validation part has {n_validation} images of "
            f"{n_identities} {'identity' if n_identities == 1 else 'identities'} only, and k is {settings.k}."
        )
    return settings, notes


def stage_runtime(context: Context) -> Runtime:
    """Return the runtime of a stage, with a cache of steps."""
    return Runtime(context.engine, StepCache(context.cache), context.progress)


def read_part(settings: LabelSettings, folder: Path, name: str, networks: str = "networks") -> Views:
    """Return one part as base and committee see it."""
    table = part(folder, name)
    if settings.from_views:
        views = Views.load(folder / "views" / name)
        return Views(views.base, views.committee, table.identities, views.paths)
    base, *committee = [embeddings(folder, f"{networks}/{model}", name) for model in settings.models]
    members = dict(zip(settings.models[1:], committee, strict=True))
    return Views(base, members, table.identities, table.locations)


def stored_views(settings: LabelSettings, folder: Path) -> Path | dict[str, Path]:
    """Return where the embeddings of the unlabeled part are stored: all of them, or by model."""
    if settings.from_views:
        return folder / "views" / "unlabeled"
    networks = folder / "embeddings" / settings.round.networks
    return {model: networks / model / "unlabeled" for model in settings.models}


def embeddings(folder: Path, artifact: str, name: str) -> Embeddings:
    """Return one part as one network sees it."""
    return Views.load(folder / "embeddings" / artifact / name).base


def validation_rows(folder: Path, n_images: int) -> BoolArray | None:
    """Return which unlabeled images are the validation part, which comes last; None if there is none."""
    if not (folder / "parts" / "validation.csv").is_file():
        return None
    return np.arange(n_images) >= n_images - len(part(folder, "validation"))
