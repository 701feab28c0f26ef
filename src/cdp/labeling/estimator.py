"""CDP: the pipeline behind scikit-learn's conventions."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from cdp.errors import InputError, NotFittedError
from cdp.labeling.figures import measure_labeling
from cdp.labeling.fitting import Fitted, fit
from cdp.labeling.joined_views import replace_identities
from cdp.labeling.pipeline import label
from cdp.labeling.result import Labeling
from cdp.labeling.workspace import Graphs, Workspace
from cdp.runtime.progress import Progress, progress_bars
from cdp.runtime.settings import RuntimeSettings
from cdp.runtime.step_cache import StepCache
from cdp.scoring.mediator import Mediator, PairClassifier
from cdp.scoring.settings import ConsensusSettings
from cdp.settings import did_you_mean, settings_of
from cdp.types import Embeddings, Labels, Views
from cdp.types.arrays import BoolArray
from cdp.types.constraints import Constraints

if TYPE_CHECKING:
    from cdp.collection.collection import Collection
    from cdp.collection.corrections import Correction

    Corrections = Constraints | Iterable[Correction]

_SETTINGS = {name: one for name, one in settings_of(ConsensusSettings).items() if name != "preset"}
_ENGINE = settings_of(RuntimeSettings)


class CDP(BaseEstimator):  # type: ignore[misc]
    """Consensus-Driven Propagation: pseudo-identities for images without labels.

        labels = CDP().fit(labeled).predict(unlabeled)

    `CDP().fit_predict(X)` needs no labeled part and no committee: where nobody is known, pairs are judged by their similarity.

    Args:
        preset: where settings that are not given come from: "best" (what wins by measurement) or "paper" (the paper
            to the letter).
        mediator: "mlp", the paper's network; "trees"; "vote"; "similarity"; any classifier with `fit` and `predict_proba`; or a `Mediator`
            that has been trained already.
        seed: of everything random.
        verbose: draw progress bars on standard error.
        settings: of `ConsensusSettings` and `RuntimeSettings`, by the names that the command line and recipes have; None = the
            preset's. docs/settings.md lists them.

    Attributes:
        mediator_: what `fit` trained; None for a vote.
        labeling_: labels of the last `predict` with everything that belongs to them: accepted pairs, tuning, notes.
        labels_: the plain array of labels of the last `fit_predict`.
    """

    def __init__(
        self,
        preset: str = "best",
        *,
        mediator: str | Mediator | PairClassifier | None = None,
        seed: int = 0,
        verbose: bool = False,
        **settings: Any,
    ) -> None:
        self.preset = preset
        self.mediator = mediator
        self.seed = seed
        self.verbose = verbose
        known = [name for name in (*_SETTINGS, *_ENGINE) if name != "mediator"]
        for name in settings:
            if name not in known:
                raise InputError(
                    f"CDP({name}=…): there is no such setting.{did_you_mean(name, known)}",
                    code="setting-unknown",
                    key=name,
                )
        for name in known:
            setattr(self, name, settings.get(name))

    @property
    def settings(self) -> ConsensusSettings:
        """Those of the preset, except for what was given."""
        given = {name: value for name in _SETTINGS if (value := getattr(self, name)) is not None}
        if not isinstance(self.mediator, str):
            given.pop("mediator", None)
        if not isinstance(self.seed, int | np.integer) or self.seed < 0:
            raise InputError(
                f"CDP(seed={self.seed!r}): a whole number, 0 or more.",
                code="seed-wrong",
                key="seed",
                value=self.seed,
            )
        return ConsensusSettings.of(self.preset, **given)

    @property
    def engine_settings(self) -> RuntimeSettings:
        """Device, threads, memory and Ray."""
        return RuntimeSettings(
            **{name: value for name in _ENGINE if (value := getattr(self, name)) is not None}
        )

    def fit(
        self,
        labeled: Views | npt.ArrayLike,
        y: npt.ArrayLike | None = None,
        *,
        graphs: Graphs | None = None,
        progress: Progress | None = None,
    ) -> CDP:
        """Train the mediator on the labeled part; a vote or a trained `Mediator` has nothing to learn.

        Where the bar is tuned, three tenths of the labeled identities are held out to choose it on.

        Args:
            labeled: views of the labeled part, or one model's embeddings as an array.
            y: identities, if `labeled` does not carry them.
            graphs: k-NN graphs of the labeled part, if they are there already; the bar is not tuned then.
            progress: called as the work goes on; bars are drawn if `verbose`.
        """
        self._labeled = _as_views(labeled, y)
        with self._progress(progress) as shown:
            self._fit(self._labeled, graphs, shown)
        return self

    def predict(
        self,
        unlabeled: Views | npt.ArrayLike,
        *,
        graphs: Graphs | None = None,
        corrections: Corrections | None = None,
        progress: Progress | None = None,
    ) -> Labels:
        """Pseudo-identities of the unlabeled part; its identities, if any, are not looked at.

        Args:
            unlabeled: views by the same base and committee, in the same order, or one model's array.
            graphs: k-NN graphs of the unlabeled part, if they are there already: base first, or by name; the bar is
                not tuned then.
            corrections: what people said about the images (`cdp.collection.corrections`); groups keep it, and trees learn from it.
            progress: called as the work goes on; bars are drawn if `verbose`.
        """
        fitted: Fitted | None = getattr(self, "_fitted", None)
        if fitted is None:
            if self._must_learn:
                raise NotFittedError(
                    "CDP has not learned yet: call fit(labeled) first, give a trained mediator, or, where nobody is known, call "
                    "fit_predict.",
                    code="cdp-not-fitted",
                )
            fitted = Fitted(self.mediator if isinstance(self.mediator, Mediator) else None)
        with self._progress(progress) as shown:
            views = _as_views(unlabeled, None)
            return self._label(views, fitted, shown, graphs=graphs, corrections=corrections)

    def fit_predict(
        self,
        X: Views | npt.ArrayLike,
        y: npt.ArrayLike | None = None,
        *,
        corrections: Corrections | None = None,
        progress: Progress | None = None,
    ) -> Labels:
        """Pseudo-identities of all images, learned from those whose identity is known; negative = unknown.

        All images of a known identity should be known: while the bar is tuned, others in its groups count as mistakes.

        Args:
            X: views of all images, or one model's array.
            y: identities, if the views do not carry them.
            corrections: what people said about the images (`cdp.collection.corrections`); groups keep it, and trees learn from it.
            progress: called as the work goes on; bars are drawn if `verbose`.

        Returns `Labels`, which serves wherever a plain array of labels is expected; `labels_` is that array.
        """
        views = _as_views(X, y)
        identities = np.full(views.n_images, -1) if views.identities is None else views.identities
        known = identities >= 0
        is_trees = isinstance(self.mediator, str | None) and self.settings.mediator == "trees"
        if self._must_learn and not known.any() and not is_trees:
            raise InputError(
                "CDP(mediator=…) learns from identities and none is given: give y, -1 where unknown, or leave mediator out.",
                code="mediator-without-identities",
                key="mediator",
            )
        mask = None
        with self._progress(progress) as shown:
            fitted = (
                Fitted(None)
                if is_trees and not known.any()
                else self._fit(views.take(known) if known.any() else None, None, shown)
            )
            if fitted.validation is not None and fitted.validation.identities is not None:
                # Held-out images are among these already, so their rows are given instead of their views.
                mask = np.isin(identities, fitted.validation.identities)
                fitted = replace(fitted, validation=None)
            labels = self._label(views, fitted, shown, validation=mask, corrections=corrections)
        self.labels_ = np.array(labels.labels)
        return labels

    def save(self, folder: str | Path, *, force: bool = False) -> Collection:
        """Write the images that were labeled last as a collection, for `cdp review`, `cdp add`, `cdp export` and the others.

            model = CDP().fit(labeled)
            model.predict(unlabeled)
            model.save("faces")

        Args:
            folder: to write; whole or not at all.
            force: replace a collection that is there.

        Raises:
            NotFittedError: nothing was labeled yet.
        """
        from cdp.collection.collection import open_collection
        from cdp.collection.collection_folder import KIND
        from cdp.collection.creation import Origin, keep_labeling
        from cdp.collection.outputs import write_outputs
        from cdp.storage.files import writing_folder

        labeling: Labeling | None = getattr(self, "labeling_", None)
        if labeling is None:
            raise NotFittedError(
                "CDP has labeled nothing yet: call predict or fit_predict first.", code="nothing-labeled"
            )
        results = measure_labeling(labeling, self._views, seed=self.seed)
        with writing_folder(folder, force=force, kind=KIND) as partial:
            origin = Origin(corrections=self._corrections, seed=self.seed)
            given = {"unlabeled": self._views}
            keep_labeling(
                partial, labeling, self._views, results, origin, given, with_graphs=self._were_graphs_given
            )
            write_outputs(open_collection(partial))
        return open_collection(folder)

    def extend(
        self, folder: str | Path, new: Views | str | Path, *, progress: Progress | None = None
    ) -> Collection:
        """The collection in a folder with new images, which join its identities or found new ones.

            model = CDP().fit(labeled)
            model.extend("faces", first)        # there is none yet: it is made
            grown = model.extend("faces", more)
            grown.identity                      # numbers that last

        Args:
            folder: of the collection; one that is not there is made, with this estimator's settings and what `fit` was given.
            new: views of the new images by the same models; a path is referred to.
            progress: called as the work goes on; bars are drawn if `verbose`.
        """
        from cdp.collection.collection import open_collection
        from cdp.collection.creation import create_collection
        from cdp.collection.extension import extend

        labeled: Views | None = getattr(self, "_labeled", None)
        with self._progress(progress) as shown:
            work = Workspace(self.engine_settings, StepCache(), shown)
            if Path(folder).exists():
                return extend(open_collection(folder), new, workspace=work)[0]
            parts = [] if labeled is None else [labeled]
            return create_collection(
                folder, new, labeled=parts, settings=self.settings, seed=self.seed, workspace=work
            )

    @property
    def _must_learn(self) -> bool:
        return not (isinstance(self.mediator, Mediator) or not self.settings.is_trained)

    def _fit(self, labeled: Views | None, graphs: Graphs | None, progress: Progress) -> Fitted:
        if self.train_on == "validation":
            raise InputError(
                'CDP(train_on="validation"): fit is given one part only, and trains on it; leave train_on out.',
                code="train-on-validation-in-fit",
                key="train_on",
            )
        classifier = self.mediator
        if isinstance(classifier, Mediator):
            self._fitted = Fitted(classifier)
        elif isinstance(classifier, str | None) or hasattr(classifier, "predict_proba"):
            self._fitted = fit(
                [] if labeled is None else [labeled],
                self.settings,
                graphs=graphs,
                classifier=None if isinstance(classifier, str) else classifier,
                seed=self.seed,
                workspace=Workspace(self.engine_settings, StepCache(), progress),
            )
        else:
            raise InputError(
                f'CDP(mediator={classifier!r}): give "mlp", "trees", "vote", "similarity", a trained Mediator, or a classifier with fit and '
                "predict_proba.",
                code="mediator-unknown",
                key="mediator",
                value=repr(classifier),
            )
        self.mediator_ = self._fitted.mediator
        return self._fitted

    def _label(
        self,
        views: Views,
        fitted: Fitted,
        progress: Progress,
        *,
        validation: BoolArray | None = None,
        graphs: Graphs | None = None,
        corrections: Corrections | None = None,
    ) -> Labels:
        self._views, self._were_graphs_given = views, graphs is not None
        self._corrections: tuple[Correction, ...] = ()
        if corrections is not None and not isinstance(corrections, Constraints):
            from cdp.collection.corrections import to_constraints

            self._corrections = tuple(corrections)
            corrections = to_constraints(self._corrections, views.n_images)
        self.labeling_: Labeling = label(
            views,
            self.settings,
            fitted=fitted,
            validation=validation,
            graphs=graphs,
            constraints=corrections,
            keep_judged=True,
            seed=self.seed,
            workspace=Workspace(self.engine_settings, StepCache(), progress),
        )
        return self.labeling_.labels

    def _progress(self, progress: Progress | None) -> AbstractContextManager[Progress]:
        return nullcontext(progress) if progress is not None else progress_bars(self.verbose)


def _signature() -> inspect.Signature:
    """`preset`, then every setting by its name; None stands for the preset's value, and the annotation says the range."""

    def parameter(name: str, default: Any, annotation: Any, facts: str = "") -> inspect.Parameter:
        kind = Annotated[annotation | None, facts] if facts else annotation
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)

    settings = {**_SETTINGS, **_ENGINE}
    parameters = [
        inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
        parameter("preset", "best", str).replace(kind=inspect.Parameter.POSITIONAL_OR_KEYWORD),
        *(
            parameter(name, None, tuple[one.kind, ...] if one.many else one.kind, one.facts)  # type: ignore[name-defined]
            for name, one in settings.items()
        ),
        parameter("seed", 0, int),
        parameter("verbose", False, bool),
    ]
    return inspect.Signature(parameters)


CDP.__init__.__signature__ = _signature()  # type: ignore[attr-defined]


def _as_views(given: Views | npt.ArrayLike, y: npt.ArrayLike | None) -> Views:
    if isinstance(given, Views):
        return given if y is None else replace_identities(given, np.asarray(y))
    return Views(given if isinstance(given, Embeddings) else np.asarray(given), identities=y)
