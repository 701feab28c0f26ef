"""`CDP`: the pipeline as a scikit-learn estimator."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator, ClusterMixin
from sklearn.exceptions import NotFittedError as SklearnNotFittedError
from sklearn.utils.validation import validate_data

from cdp.errors import InputError, NotFittedError
from cdp.evaluate.label_figures import measure_labels
from cdp.knn.model_graphs import Graphs
from cdp.labeling.figures import measure_labeling
from cdp.labeling.fitting import Fitted, LabeledImages, fit
from cdp.labeling.joined_views import replace_identities
from cdp.labeling.labeling import Labeling
from cdp.labeling.pipeline import label
from cdp.runtime.progress import Progress, progress_bars
from cdp.runtime.runtime import Runtime
from cdp.runtime.settings import RuntimeSettings
from cdp.scoring.mediator import Mediator, PairClassifier
from cdp.scoring.settings import ConsensusSettings
from cdp.settings import settings_of
from cdp.types import Embeddings, Labels, Views
from cdp.types.arrays import FloatArray, IntArray, LongArray
from cdp.types.constraints import Constraints

if TYPE_CHECKING:
    from cdp.collection.collection import Collection
    from cdp.collection.corrections import Correction

    Corrections = Constraints | Iterable[Correction]

_MODELS = "a 2-D array of one model, a list or dict of arrays of several (base first), a DataFrame, or Views"


class CdpNotFittedError(NotFittedError, SklearnNotFittedError):  # type: ignore[misc]
    """`predict` was called before `fit`."""


class CDP(ClusterMixin, BaseEstimator):  # type: ignore[misc]
    """Consensus-Driven Propagation: group images by identity, from their embeddings by one or more models.

    `fit` learns from the images whose identity is given in `y` and labels the others. Without any, the
    threshold is estimated from the embeddings alone.

    Args:
        preset: default settings: "best" (what wins by measurement) or "paper" (the paper to the letter).
            Every setting that is None has the value of the preset.
        k: number of neighbors per image (20).
        method: k-NN search: "auto", "exact" or "approximate".
        recall: recall of the approximate search (0.97).
        mediator: pair classifier: "trees" (gradient boosting), "similarity" (needs no labels), "auto" (trees
            where they are clearly better on the labeled identities, else similarity), "mlp" (the paper's
            mediator), "vote", any classifier with `fit` and `predict_proba`, or a trained `Mediator`.
        inputs: inputs of the mlp.
        train_on: images to train the mlp on: "auto", "labeled" or "validation".
        disjoint: labeled and unlabeled images show different people; "auto" = decided from the images, and
            noted.
        min_votes: with "vote": committee members that must agree; "all" or a number.
        grouping: "average" (average linkage) or "components" (the paper's connected components).
        max_cluster_size: maximum number of images per identity; "auto" = 600, or no limit by similarity.
        step: with "components": relative increase of the threshold while a group that is too large is split
            (0.1).
        threshold: threshold to join images: a probability, a cosine with "vote", a z-score without labels;
            "auto" = chosen on labeled identities, or estimated without labels.
        min_precision: minimum precision of pairs on labeled identities; "off" = the best F.
        beta: weight of recall relative to precision when the threshold is chosen (1).
        soft_depth: diffusion steps for soft labels; 0 = hard labels only.
        soft_decay: weight of each further diffusion step (0.2).
        device: device of k-NN searches: "auto", "cpu", "cuda", "cuda:1" or "mps".
        threads: number of threads; 0 = all cores.
        memory_budget: memory for working data, e.g. "500MB" ("2GB").
        engine: "threads" or "ray".
        ray_address: address of the Ray cluster.
        seed: random seed.
        verbose: draw progress bars on standard error.

    Attributes:
        labels_: int32 (n,), the group of every image; -1 = in no group.
        probabilities_: float32 (n,), confidence that an image belongs to its group.
        n_clusters_: number of groups.
        mediator_: the trained mediator of the paper; None with the other pair classifiers.
        labeling_: the last labeling with everything that belongs to it: accepted pairs, threshold, notes,
            figures to expect.
        n_features_in_: number of dimensions of the base model.
        feature_names_in_: names of the columns, where `X` is a DataFrame with text columns.

    Examples:
        >>> import numpy as np
        >>> from cdp import CDP
        >>> rng = np.random.default_rng(0)
        >>> people = rng.normal(size=(40, 64))
        >>> X = np.repeat(people, 6, axis=0) + 0.5 * rng.normal(size=(240, 64))
        >>> model = CDP().fit(X)
        >>> model.n_clusters_
        40
        >>> y = np.where(np.arange(240) < 120, np.repeat(np.arange(40), 6), -1)
        >>> labels = CDP().fit_predict(X, y)
    """

    def __init__(
        self,
        preset: Literal["best", "paper"] = "best",
        *,
        k: int | None = None,
        method: Literal["auto", "exact", "approximate"] | None = None,
        recall: float | None = None,
        mediator: (
            Literal["auto", "trees", "mlp", "vote", "similarity"] | Mediator | PairClassifier | None
        ) = None,
        inputs: tuple[str, ...] | None = None,
        train_on: Literal["auto", "labeled", "validation"] | None = None,
        disjoint: bool | Literal["auto"] | None = None,
        min_votes: int | Literal["all"] | None = None,
        grouping: Literal["components", "average"] | None = None,
        max_cluster_size: int | Literal["auto"] | None = None,
        step: float | None = None,
        threshold: float | Literal["auto"] | None = None,
        min_precision: float | Literal["off"] | None = None,
        beta: float | None = None,
        soft_depth: int | None = None,
        soft_decay: float | None = None,
        device: str | None = None,
        threads: int | None = None,
        memory_budget: str | None = None,
        engine: Literal["threads", "ray"] | None = None,
        ray_address: str | None = None,
        seed: int = 0,
        verbose: bool = False,
    ) -> None:
        self.preset = preset
        self.k = k
        self.method = method
        self.recall = recall
        self.mediator = mediator
        self.inputs = inputs
        self.train_on = train_on
        self.disjoint = disjoint
        self.min_votes = min_votes
        self.grouping = grouping
        self.max_cluster_size = max_cluster_size
        self.step = step
        self.threshold = threshold
        self.min_precision = min_precision
        self.beta = beta
        self.soft_depth = soft_depth
        self.soft_decay = soft_decay
        self.device = device
        self.threads = threads
        self.memory_budget = memory_budget
        self.engine = engine
        self.ray_address = ray_address
        self.seed = seed
        self.verbose = verbose

    @property
    def settings(self) -> ConsensusSettings:
        """The settings of the preset, except for those given."""
        given = self._given(ConsensusSettings)
        given.pop("preset", None)
        if not isinstance(self.mediator, str):
            given.pop("mediator", None)
        if not isinstance(self.seed, int | np.integer) or isinstance(self.seed, bool) or self.seed < 0:
            raise InputError(
                f"CDP(seed={self.seed!r}): a whole number, 0 or more.",
                code="seed-wrong",
                key="seed",
                value=self.seed,
            )
        settings = ConsensusSettings.of(self.preset, **given)
        if settings.train_on == "validation":
            raise InputError(
                'CDP(train_on="validation"): fit is given one part only, and trains on it; leave '
                "train_on out.",
                code="train-on-validation-in-fit",
                key="train_on",
            )
        return settings

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        graphs: Graphs | None = None,
        corrections: Corrections | None = None,
        progress: Progress | None = None,
    ) -> CDP:
        """Learn from the labeled images, and label the others.

        Gradient boosting (the default) is trained among the images that it scores: here, and again in
        `predict` for other images. The paper's mediator is trained once. Where every image is labeled there
        is nothing to label: `labels_` are the given identities, and `predict` labels other images.

        Args:
            X: embeddings of all images: a 2-D array of one model, a list or dict of arrays of several (base
                first), a DataFrame, or `Views`.
            y: identities, as numbers or text; -1, None or NaN where unknown. `Views` may carry them instead.
            graphs: k-NN graphs of the images, if they exist already: base first, or by model.
            corrections: facts about the images, which groups respect and gradient boosting learns from.
            progress: called as the work goes on; bars are drawn if `verbose`.
        """
        settings = self.settings
        views = self._as_views(X, y, reset=True)
        identities = np.full(views.n_images, -1) if views.identities is None else views.identities
        is_labeled = identities >= 0
        with self._progress(progress) as shown:
            runtime = self._runtime(shown)
            parts = (views.take(is_labeled),) if is_labeled.any() else ()
            labeled = LabeledImages(parts, are_among=not is_labeled.all())
            given = graphs if is_labeled.all() else None
            self._fitted = self._learn(labeled, settings, given, runtime)
            self.mediator_ = self._fitted.mediator
            if is_labeled.all():
                self._views = views
                self._set_labels(Labels.from_array(_numbered(identities)))
            else:
                self._label(views, runtime, labeled_among=True, graphs=graphs, corrections=corrections)
                self._set_labels(self.labeling_.labels)
        return self

    def fit_predict(self, X: Any, y: Any = None, **options: Any) -> IntArray:
        """Label all images, learning from the labeled ones; same arguments as `fit`.

        Returns:
            int32 (n,), the group of every image; -1 = in no group.
        """
        return self.fit(X, y, **options).labels_

    def predict(
        self,
        X: Any,
        *,
        graphs: Graphs | None = None,
        corrections: Corrections | None = None,
        progress: Progress | None = None,
    ) -> IntArray:
        """Label other images by what `fit` learned; identities of `X` are ignored.

        Group numbers are new: they are groups of these images. To add images to groups that exist already,
        use `Collection.add`.

        Args:
            X: embeddings by the same models, in the same order.
            graphs: k-NN graphs of these images, if they exist already; the threshold is not chosen then.
            corrections: facts about these images, which groups respect.
            progress: called as the work goes on; bars are drawn if `verbose`.

        Returns:
            int32 (n,), the group of every image; -1 = in no group.
        """
        if getattr(self, "_fitted", None) is None:
            raise CdpNotFittedError("This CDP is not fitted yet: call fit first.", code="cdp-not-fitted")
        with self._progress(progress) as shown:
            views = self._as_views(X, None, reset=False)
            self._label(views, self._runtime(shown), graphs=graphs, corrections=corrections)
        return np.array(self.labeling_.labels.labels)

    def score(self, X: Any, y: Any) -> float:
        """Return the pairwise F of `predict(X)`, for model selection such as `GridSearchCV` over `k`."""
        identities = _as_identities(y)
        found = measure_labels(Labels.from_array(self.predict(X)), identities)
        return found.discards_kept.pairwise.f or 0.0

    def save(self, folder: str | Path, *, force: bool = False) -> Collection:
        """Write the last labeled images as a collection, for `cdp review`, `cdp add` and `cdp export`.

        Args:
            folder: to write; whole or not at all.
            force: replace a collection that exists.
        """
        from cdp.collection.collection import open_collection
        from cdp.collection.collection_folder import KIND
        from cdp.collection.creation import Origin, keep_labeling
        from cdp.collection.outputs import write_outputs
        from cdp.storage.files import writing_folder

        labeling: Labeling | None = getattr(self, "labeling_", None)
        if labeling is None:
            raise CdpNotFittedError(
                "Nothing was labeled yet: call fit or predict first.", code="nothing-labeled"
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

    def _given(self, owner: type) -> dict[str, Any]:
        return {name: value for name in settings_of(owner) if (value := getattr(self, name)) is not None}

    def _runtime(self, progress: Progress) -> Runtime:
        return Runtime(RuntimeSettings(**self._given(RuntimeSettings)), progress=progress)

    def _learn(
        self, labeled: LabeledImages, settings: ConsensusSettings, graphs: Graphs | None, runtime: Runtime
    ) -> Fitted:
        """Train what can be trained before images are labeled."""
        classifier = self.mediator
        if isinstance(classifier, Mediator):
            return Fitted(replace(settings, mediator="mlp", inputs=classifier.inputs), classifier)
        if classifier is None or isinstance(classifier, str):
            if settings.is_trained and settings.mediator not in ("auto", "trees") and labeled.is_empty:
                raise InputError(
                    f"CDP(mediator={settings.mediator!r}) needs labeled identities: give y (-1 where "
                    "unknown), or leave mediator out.",
                    code="mediator-without-identities",
                    key="mediator",
                )
            return fit(labeled, settings, labeled_graphs=graphs, seed=self.seed, runtime=runtime)
        if hasattr(classifier, "predict_proba"):
            return fit(
                labeled,
                settings,
                classifier=classifier,
                labeled_graphs=graphs,
                seed=self.seed,
                runtime=runtime,
            )
        raise InputError(
            f'CDP(mediator={classifier!r}): give "auto", "trees", "mlp", "vote", "similarity", a trained '
            "Mediator, or a classifier with fit "
            "and predict_proba.",
            code="mediator-unknown",
            key="mediator",
            value=repr(classifier),
        )

    def _label(
        self,
        views: Views,
        runtime: Runtime,
        *,
        labeled_among: bool = False,
        graphs: Graphs | None = None,
        corrections: Corrections | None = None,
    ) -> None:
        self._views, self._were_graphs_given = views, graphs is not None
        self._corrections: tuple[Correction, ...] = ()
        if corrections is not None and not isinstance(corrections, Constraints):
            from cdp.collection.corrections import to_constraints

            self._corrections = tuple(corrections)
            corrections = to_constraints(self._corrections, views.n_images)
        self.labeling_: Labeling = label(
            views,
            self._fitted.settings,
            fitted=self._fitted,
            labeled_among=labeled_among,
            graphs=graphs,
            constraints=corrections,
            keep_scored=True,
            seed=self.seed,
            runtime=runtime,
        )

    def _set_labels(self, labels: Labels) -> None:
        self.labels_: IntArray = np.array(labels.labels)
        self.probabilities_: FloatArray = np.array(labels.confidence)
        self.n_clusters_ = labels.n_identities

    def _as_views(self, X: Any, y: Any, *, reset: bool) -> Views:
        """Turn any input into views; plain arrays and DataFrames are checked as scikit-learn does."""
        if isinstance(X, Views):
            views = X if y is None else replace_identities(X, _as_identities(y))
        else:
            models = _models_of(X)
            if models is None:
                array = validate_data(
                    self,
                    X,
                    reset=reset,
                    dtype=(np.float32, np.float64, np.float16),
                    ensure_all_finite=False,
                    ensure_min_samples=2,
                )
                models = {"base": Embeddings(array)}
            base, *members = models
            identities = None if y is None else _as_identities(y)
            views = Views(models[base], {name: models[name] for name in members}, identities)
        if reset:
            self.n_features_in_ = views.base.dimensions
            self._models = {name: model.dimensions for name, model in zip(views.names, views, strict=True)}
        return views

    def _progress(self, progress: Progress | None) -> AbstractContextManager[Progress]:
        return nullcontext(progress) if progress is not None else progress_bars(self.verbose)


def _models_of(X: Any) -> dict[str, Any] | None:
    """Several models by name, base first; None where `X` is one array."""
    if isinstance(X, Embeddings):
        return {"base": X}
    if isinstance(X, Mapping) and not hasattr(X, "tocsr"):  # a sparse matrix may be a dict too
        models = {str(name): _as_model(one) for name, one in X.items()}
    elif isinstance(X, list | tuple) and len(X) and all(np.ndim(one) == 2 for one in X[:2]):
        names = ["base", *(f"model{number}" for number in range(2, len(X) + 1))]
        models = {name: _as_model(one) for name, one in zip(names, X, strict=True)}
    else:
        return None
    if not models:
        raise InputError(f"X is empty: give {_MODELS}.", code="models-missing")
    return models


def _as_model(one: Any) -> Embeddings | npt.NDArray[Any]:
    return one if isinstance(one, Embeddings) else np.asarray(one)


def _as_identities(y: Any) -> LongArray:
    """Identities as numbers, -1 where unknown: of numbers, or of text, with None or NaN where unknown."""
    # As objects first: NumPy would turn a NaN next to text into the text "nan".
    given = np.asarray(y, object if isinstance(y, list | tuple) else None)
    if given.dtype.kind in "iub":
        return np.maximum(given.astype(np.int64), -1)
    if given.dtype.kind == "f":
        return np.where(np.isnan(given), -1, np.maximum(np.nan_to_num(given, nan=-1), -1)).astype(np.int64)
    values = given.tolist()
    is_unknown = np.array([one is None or one != one or one == -1 for one in values], np.bool_)
    names = [one for one, unknown in zip(values, is_unknown, strict=True) if not unknown]
    if all(isinstance(one, Integral | float) for one in names):
        return _as_identities(
            np.array([-1 if unknown else one for one, unknown in zip(values, is_unknown, strict=True)])
        )
    identities = np.full(len(given), -1, np.int64)
    identities[~is_unknown] = np.unique([str(one) for one in names], return_inverse=True)[1]
    return identities


def _numbered(identities: LongArray) -> IntArray:
    """Numbers 0, 1, 2, … by first appearance."""
    _, first, inverse = np.unique(identities, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int32)
    rank[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    return rank[inverse]
