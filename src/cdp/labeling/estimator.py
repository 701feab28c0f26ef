"""CDP: the pipeline behind scikit-learn's conventions."""

from __future__ import annotations

import inspect
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator

from cdp.consensus.mediator import Mediator, PairClassifier
from cdp.consensus.settings import ConsensusSettings
from cdp.engine import Engine
from cdp.errors import InputError, NotFittedError
from cdp.labeling.cache import Cache
from cdp.labeling.pipeline import Fitted, Labeling, fit, label, replace_identities
from cdp.labeling.tuning import hold_out
from cdp.labeling.workspace import Graphs, Workspace
from cdp.progress import Progress, progress_bars
from cdp.settings import did_you_mean, settings_of
from cdp.types import Embeddings, Labels, Views

_SETTINGS = {name: one for name, one in settings_of(ConsensusSettings).items() if name != "preset"}
_ENGINE = settings_of(Engine)


class CDP(BaseEstimator):  # type: ignore[misc]
    """Consensus-Driven Propagation: pseudo-identities for images without labels.

        labels = CDP().fit(labeled).predict(unlabeled)

    `CDP(mediator="vote", vote_threshold=0.6).fit_predict(X)` needs no labeled part and no committee.

    Args:
        preset: where settings that are not given come from: "best" (what wins by measurement) or "paper" (the paper
            to the letter).
        mediator: "mlp", the paper's network; "vote"; any classifier with `fit` and `predict_proba`; or a `Mediator`
            that has been trained already.
        seed: of everything random.
        verbose: draw progress bars on standard error.
        settings: of `ConsensusSettings` and `Engine`, by the names that the command line and recipes have; None = the
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
                raise InputError(f"CDP({name}=…): there is no such setting.{did_you_mean(name, known)}")
        for name in known:
            setattr(self, name, settings.get(name))

    @property
    def settings(self) -> ConsensusSettings:
        """The preset with what was given in its place."""
        given = {name: getattr(self, name) for name in _SETTINGS if getattr(self, name) is not None}
        if not isinstance(self.mediator, str | None):
            del given["mediator"]
        return ConsensusSettings.of(self.preset, **given)

    @property
    def engine(self) -> Engine:
        """Device, threads and memory."""
        return Engine(**{name: value for name in _ENGINE if (value := getattr(self, name)) is not None})

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
            graphs: k-NN graphs of the labeled part, if they are there already and no identities are held out.
            progress: called as the work goes on; bars are drawn if `verbose`.
        """
        views = _as_views(labeled, y)
        with self._progress(progress) as shown:
            self._fitted = self._fit(
                [views] if views.identities is not None or self._must_learn else [], graphs, shown
            )
        self.mediator_ = self._fitted.mediator
        return self

    def predict(
        self,
        unlabeled: Views | npt.ArrayLike,
        *,
        graphs: Graphs | None = None,
        progress: Progress | None = None,
    ) -> Labels:
        """Pseudo-identities of the unlabeled part; its identities, if any, are not looked at.

        Args:
            unlabeled: views by the same base and committee, in the same order, or one model's array.
            graphs: k-NN graphs of the unlabeled part, if they are there already: base first, or by name. The bar is not
                tuned then.
            progress: called as the work goes on.
        """
        fitted = getattr(self, "_fitted", None)
        with self._progress(progress) as shown:
            if fitted is None:
                if self._must_learn:
                    raise NotFittedError(
                        "CDP has not learned yet: call fit(labeled) first, give a trained mediator, or use "
                        'mediator="vote".'
                    )
                fitted = self._fit([], None, shown)
            self.labeling_: Labeling = label(
                _as_views(unlabeled, None),
                self.settings,
                fitted=fitted,
                graphs=graphs,
                seed=self.seed,
                workspace=self._workspace(shown),
            )
        return self.labeling_.labels

    def fit_predict(
        self, X: Views | npt.ArrayLike, y: npt.ArrayLike | None = None, *, progress: Progress | None = None
    ) -> Labels:
        """Pseudo-identities of all images, learned from those whose identity is known; negative = unknown.

        Returns `Labels`, which serves wherever a plain array of labels is expected; `labels_` is that array.
        """
        views = _as_views(X, y)
        identities = views.identities
        has_known = identities is not None and bool((identities >= 0).any())
        if not has_known and self._must_learn:
            raise InputError(
                'CDP learns from identities and none is given: give y, −1 where unknown, or use mediator="vote".'
            )
        settings, mask, parts = self.settings, None, []
        if has_known:
            assert identities is not None
            held_out = hold_out(identities, self.seed) if settings.tune else None
            mask = held_out
            rows = identities >= 0 if held_out is None else (identities >= 0) & ~held_out
            parts = [views.take(rows)]
        with self._progress(progress) as shown:
            self._fitted = self._fit(parts, None, shown, hold_out_validation=False)
            self.mediator_ = self._fitted.mediator
            self.labeling_ = label(
                views,
                settings,
                fitted=self._fitted,
                validation=np.zeros(views.n_images, np.bool_) if mask is None else mask,
                seed=self.seed,
                workspace=self._workspace(shown),
            )
        self.labels_ = np.array(self.labeling_.labels.labels)
        return self.labeling_.labels

    @property
    def _must_learn(self) -> bool:
        return not (isinstance(self.mediator, Mediator) or self.settings.mediator == "vote")

    def _fit(
        self,
        parts: list[Views],
        graphs: Graphs | None,
        progress: Progress,
        *,
        hold_out_validation: bool = True,
    ) -> Fitted:
        if isinstance(self.mediator, Mediator):
            return Fitted(self.mediator)
        classifier = self.mediator
        if not isinstance(classifier, str | None) and not hasattr(classifier, "predict_proba"):
            raise InputError(
                f'CDP(mediator={classifier!r}): give "mlp", "vote", a trained Mediator, or a classifier with fit and '
                "predict_proba."
            )
        return fit(
            parts,
            self.settings,
            graphs=graphs,
            classifier=None if isinstance(classifier, str) else classifier,
            hold_out_validation=hold_out_validation,
            seed=self.seed,
            workspace=self._workspace(progress),
        )

    def _workspace(self, progress: Progress) -> Workspace:
        return Workspace(self.engine, Cache(), progress)

    def _progress(self, progress: Progress | None) -> AbstractContextManager[Progress]:
        return nullcontext(progress) if progress is not None else progress_bars(self.verbose)


def _signature() -> inspect.Signature:
    """`preset`, then every setting by its name; None stands for the preset's value, which the annotation names."""

    def parameter(name: str, default: Any, annotation: Any) -> inspect.Parameter:
        return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)

    parameters = [
        inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD),
        inspect.Parameter("preset", inspect.Parameter.POSITIONAL_OR_KEYWORD, default="best", annotation=str),
        *(parameter(name, None, one.kind | None) for name, one in {**_SETTINGS, **_ENGINE}.items()),
        parameter("seed", 0, int),
        parameter("verbose", False, bool),
    ]
    return inspect.Signature(parameters)


CDP.__init__.__signature__ = _signature()  # type: ignore[attr-defined]


def _as_views(given: Views | npt.ArrayLike, y: npt.ArrayLike | None) -> Views:
    if isinstance(given, Views):
        return given if y is None else replace_identities(given, np.asarray(y))
    return Views(given if isinstance(given, Embeddings) else np.asarray(given), identities=y)
