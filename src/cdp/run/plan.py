"""The stages of a recipe, in the paper's order, and what each is made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from cdp.config.checks import folder_name, frozen_file, member_names, network_names, trained_members
from cdp.config.sections import JointSection, MeasureSettings, TrainSection
from cdp.nets.recipe import TrainingSettings
from cdp.run import evaluation, training
from cdp.run.label_stage import LabelSettings, Round, label_images, refuse_labels, tell_expectation
from cdp.run.parts import TEST_SOURCES, SplitSettings
from cdp.run.sources import START, TEMPLATES, ResolvedRecipe, model_source, source_names
from cdp.run.stages import Body, Stage, tell_nothing
from cdp.scoring.settings import ConsensusSettings
from cdp.settings import slice_of

_TRAINED_ON = ("labeled", "unlabeled")

Labeler = Callable[[LabelSettings, tuple[str, ...]], list[Stage]]
"""The stages that make the labels of one round, from its settings and the artifacts it is made from."""


@dataclass(frozen=True)
class Model:
    """A network of the run: `networks/small_vgg`, `joint/small_resnet`, `fold1/small_vgg`."""

    folder: str
    network: str

    @property
    def artifact(self) -> str:
        """Of its weights, and where they are stored."""
        return f"{self.folder}/{folder_name(self.network)}"

    @property
    def title(self) -> str:
        """What stages call it."""
        return self.artifact.removeprefix("networks/")

    @property
    def file(self) -> str | None:
        """Of a network that is used as it is; None for one that is trained here."""
        return frozen_file(self.network)

    def seen(self, parts: Sequence[str]) -> tuple[str, ...]:
        """Return the artifacts of its embeddings of some parts."""
        return tuple(f"{self.artifact} of {part}" for part in parts)


def label_stage(settings: LabelSettings, needs: tuple[str, ...]) -> list[Stage]:
    """Return the stage that labels, as `cdp run` does it."""
    prefix, folder = settings.round.prefix, settings.round.folder
    makes = {f"{prefix}labels": f"{folder}labels"}
    return [
        Stage(
            f"{prefix}label",
            "label",
            label_images,
            settings,
            needs,
            makes,
            idle=idle_consensus(settings.consensus),
            tell=tell_expectation(settings),
        )
    ]


def idle_consensus(settings: ConsensusSettings) -> frozenset[str]:
    """Name the settings of section 3.1 that cannot affect the labels, given the others."""
    idle: set[str] = set()
    if settings.method == "exact":
        idle |= {"recall"}
    if settings.mediator in ("auto", "trees", "similarity"):
        idle |= {"inputs"}
    if settings.mediator != "vote":
        idle |= {"min_votes"}
    if settings.grouping != "components":
        idle |= {"step"}
    if settings.threshold is not None:
        idle |= {"beta", "min_precision"}
    if settings.soft_depth == 0:
        idle |= {"soft_decay"}
    return frozenset(f"consensus.{name}" for name in idle)


def _idle_training(training: TrainingSettings) -> frozenset[str]:
    # Of the weights that training starts from, the contents count: they are an input.
    return frozenset({"start_from", *(f"training.{name}" for name in training.idle)})


def make_stages(resolved: ResolvedRecipe, labeler: Labeler = label_stage) -> list[Stage]:
    """Return every stage of a run; nothing is read or written here.

    Args:
        resolved: the recipe, with nothing left open.
        labeler: makes the stages between embeddings and labels; studies have others.
    """
    made = _Stages(resolved, labeler)
    return made.of_images() if resolved.facts.kind == "images" else made.of_embeddings()


class _Stages:
    """Makes stages from a recipe; each method is one kind of stage."""

    def __init__(self, resolved: ResolvedRecipe, labeler: Labeler) -> None:
        self.resolved = resolved
        self.recipe = resolved.recipe
        self.labeler = labeler
        self.tests = resolved.test_parts
        self.protocol = ("protocol",) if TEMPLATES in self.tests else ()
        self.measure = slice_of(self.recipe.evaluation, MeasureSettings)
        self.validation = ("validation",) if resolved.has_validation else ()

    def of_embeddings(self) -> list[Stage]:
        models = self.resolved.facts.models
        needs = (*_TRAINED_ON, *self.validation, *(f"views of {part}" for part in _TRAINED_ON))
        labels = self.labeler(self.label_settings(Round(), models), needs)
        views = [self.views(models, _TRAINED_ON), *([self.views(models, self.tests)] if self.tests else [])]
        return [self.split(), *views, *labels, *([self.view_figures(models)] if self.tests else [])]

    def of_images(self) -> list[Stage]:
        recipe = self.recipe
        models = self.models("networks")
        stages = [self.split(), *self.train_all(models, "labeled")]
        stages += [self.embed(model, _TRAINED_ON) for model in models]
        folds = [self.models(f"fold{fold}") for fold in range(1, recipe.train.folds + 1)]
        for fold, members in enumerate(folds, start=1):
            stages += self.train_all(members, f"without_fold{fold}")
            stages += [self.embed(model, (f"fold{fold}",)) for model in members]
        last, names = recipe.joint.rounds, tuple(network_names(recipe))
        rounds = [Round(number, number == last) for number in range(1, last + 1)]
        for before, current in zip([None, *rounds], rounds, strict=False):
            members = self.models(current.networks)
            if before is not None:
                trained = [model for model in members if model.file is None]
                stages += [self.join(model, f"train {model.title}", before) for model in trained]
                stages += [self.embed(model, _TRAINED_ON) for model in members]
            stages += self.labeler(self.label_settings(current, names), self.label_needs(members, folds))
        return [*stages, *self.last_stages(models, rounds[-1])]

    def last_stages(self, models: Sequence[Model], labels: Round) -> list[Stage]:
        """List the stages that train and measure the base; a frozen base ends with its labels."""
        recipe, stages, tested = self.recipe, [], {}
        if models[0].file is None:
            tested = {"labeled": models[0], "cdp": Model("joint", recipe.base.network)}
            # Only the network that is kept: a committee whose members followed each other would agree too
            # easily.
            teachers = self.models(labels.networks) if recipe.joint.distill else []
            stages.append(self.join(tested["cdp"], "train with pseudo-labels", labels, teachers))
        if not self.tests:
            return stages
        if self.resolved.has_bound:
            tested["all"] = Model("bound", recipe.base.network)
            stages.append(self.bound(tested["all"]))
        members = models if recipe.evaluation.members else models[:1]
        stages += [self.embed(model, self.tests) for model in dict.fromkeys([*members, *tested.values()])]
        return [*stages, *([self.recognition(tested)] if tested else []), self.member_figures(members)]

    def train_all(self, models: Sequence[Model], part: str) -> list[Stage]:
        """Stages for the networks that are trained here."""
        return [self.train(model, part) for model in models if model.file is None]

    def models(self, folder: str) -> list[Model]:
        """Return base and committee, as trained into one folder."""
        return [Model(folder, name) for name in member_names(self.recipe)]

    def split(self) -> Stage:
        recipe = self.recipe
        folds = range(1, recipe.train.folds + 1)
        names = [
            *_TRAINED_ON,
            *self.validation,
            *self.tests,
            *(f"{kind}{fold}" for fold in folds for kind in ("fold", "without_fold")),
        ]
        settings = SplitSettings(
            recipe.split, recipe.data.rotations, recipe.data.truth, recipe.train.folds, recipe.seed
        )
        return Stage(
            "split",
            "split",
            training.split_sources,
            settings,
            source_names(recipe),
            {name: f"parts/{name}.csv" for name in names}
            | {name: f"parts/{name}.npz" for name in self.protocol}
            | {"counts": "parts/counts.json"},
            # Its tables say where the user's images are stored.
            is_shared=False,
            idle=self.idle_split(),
            tell=training.tell_few if self.is_from_scratch else tell_nothing,
            unmoved={
                **dict.fromkeys(
                    ("labeled", *self.validation, *self.tests, *self.protocol), ("split.use_parts", "folds")
                ),
                **dict.fromkeys(("unlabeled", "counts"), ("folds",)),
            },
        )

    def idle_split(self) -> frozenset[str]:
        """Shares of what is not split here."""
        data = self.recipe.data
        shares = {"labeled", "unlabeled_parts", "use_parts"} if not data.is_split_here else set()
        return frozenset(f"split.{name}" for name in shares | (set() if data.test else {"test_probes"}))

    @property
    def is_from_scratch(self) -> bool:
        """Whether networks are trained that start from nothing but the labeled part."""
        is_trained = self.resolved.facts.kind == "images" and bool(trained_members(self.recipe))
        return is_trained and not self.recipe.base.weights

    def views(self, models: tuple[str, ...], parts: tuple[str, ...]) -> Stage:
        is_test = parts == self.tests
        sources = source_names(self.recipe)
        # Where the test parts are cut from the same source as the others, they have no source of their own.
        if set(sources) & set(TEST_SOURCES):
            sources = tuple(name for name in sources if (name in TEST_SOURCES) == is_test)
        return Stage(
            "test views" if is_test else "views",
            "embed",
            training.collect_views,
            training.ViewSettings(parts, models, sources),
            (*sources, *parts),
            {f"views of {part}": f"views/{part}" for part in parts},
        )

    def train(self, model: Model, part: str) -> Stage:
        settings = self.network_settings(model, part, self.recipe.train)
        makes, needs = {model.artifact: model.artifact}, (part, *self.start(model))
        idle = _idle_training(settings.training)
        return Stage(
            f"train {model.title}", "train", training.train_network, settings, needs, makes, idle=idle
        )

    def start(self, model: Model) -> tuple[str, ...]:
        """Return the weights that a network starts from, as an artifact; only the base does."""
        is_started = bool(self.recipe.base.weights) and model.network == self.recipe.base.network
        return (START,) if is_started else ()

    def bound(self, model: Model) -> Stage:
        settings = self.network_settings(model, "labeled, unlabeled", self.recipe.joint)
        makes = {model.artifact: model.artifact}
        needs = (*_TRAINED_ON, *self.start(model))
        idle = _idle_training(settings.training)
        return Stage(
            "train with all labels", "bound", training.train_bound, settings, needs, makes, idle=idle
        )

    def network_settings(
        self, model: Model, part: str, section: TrainSection | JointSection
    ) -> training.NetworkSettings:
        how = slice_of(section, TrainingSettings)
        common = (model.network, part, model.folder, how, self.recipe.seed)
        if self.start(model):
            return training.StartedNetworkSettings(*common, self.recipe.base.weights)
        return training.NetworkSettings(*common)

    def join(self, model: Model, name: str, labels: Round, teachers: Sequence[Model] = ()) -> Stage:
        """Return a network on the labels of a round, and on what its teachers see."""
        joint = self.recipe.joint
        common = (
            model.network,
            model.folder,
            f"{labels.folder}labels",
            slice_of(joint, TrainingSettings),
            joint.labeled_share,
            joint.one_classifier,
            self.recipe.consensus.soft_depth > 0,
            joint.siblings,
            joint.distill if teachers else 0.0,
            tuple(teacher.artifact for teacher in teachers),
            self.recipe.seed,
        )
        settings = training.JointSettings(*common)
        if self.start(model):
            settings = training.StartedJointSettings(*common, self.recipe.base.weights)
        seen = (name for teacher in teachers for name in teacher.seen(["unlabeled"]))
        needs = (*_TRAINED_ON, f"{labels.prefix}labels", *seen, *self.start(model))
        return Stage(
            name,
            "joint",
            training.train_on_both,
            settings,
            needs,
            {model.artifact: model.artifact},
            idle=_idle_training(settings.training),
            refuse=refuse_labels(settings.labels, joint.least_precision),
        )

    def embed(self, model: Model, parts: tuple[str, ...]) -> Stage:
        kind = "test" if parts == self.tests else "embed"
        return Stage(
            f"{kind} {model.title}",
            kind,
            training.embed_parts if model.file is None else training.embed_frozen(model.file),
            training.EmbedSettings(model.artifact, parts),
            (model.artifact if model.file is None else model_source(model.network), *parts),
            {f"{model.artifact} of {part}": f"embeddings/{model.artifact}/{part}" for part in parts},
        )

    def label_settings(self, current: Round, models: tuple[str, ...]) -> LabelSettings:
        # Equal settings are equal, whichever preset they came from.
        consensus = replace(slice_of(self.recipe.consensus, ConsensusSettings), preset="best")
        from_views = self.resolved.facts.kind == "embeddings"
        return LabelSettings(
            consensus, models, current, self.recipe.train.folds, from_views, self.recipe.seed
        )

    def label_needs(self, models: Sequence[Model], folds: Sequence[Sequence[Model]]) -> tuple[str, ...]:
        needs = ["unlabeled", *self.validation]
        needs += [name for model in models for name in model.seen(["unlabeled"])]
        trained_on = {f"fold{fold}": members for fold, members in enumerate(folds, start=1)}
        for part, members in (trained_on or {"labeled": models}).items():
            needs += [part, *(name for model in members for name in model.seen([part]))]
        return tuple(needs)

    def recognition(self, tested: Mapping[str, Model]) -> Stage:
        pairs = tuple((key, model.artifact) for key, model in tested.items())
        base = folder_name(self.recipe.base.network)
        seen = [name for model in tested.values() for name in model.seen(self.tests)]
        return Stage(
            "measure recognition",
            "evaluate",
            evaluation.measure_recognition,
            evaluation.RecognitionSettings(self.measure, pairs, base, self.tests, self.recipe.seed),
            (*_TRAINED_ON, "labels", *self.tests, *self.protocol, *seen),
            {"recognition": "recognition.json"},
        )

    def member_figures(self, members: Sequence[Model]) -> Stage:
        needs = [model.artifact for model in members if model.file is None]
        needs += [name for model in members for name in model.seen(self.tests)]
        artifacts = tuple(model.artifact for model in members)
        return self.figures_of(evaluation.measure_members, artifacts, needs)

    def view_figures(self, models: tuple[str, ...]) -> Stage:
        return self.figures_of(evaluation.measure_views, models, [f"views of {part}" for part in self.tests])

    def figures_of(self, body: Body, models: tuple[str, ...], needs: Sequence[str]) -> Stage:
        settings = evaluation.MemberSettings(
            self.measure, self.recipe.evaluation.ensemble, models, self.tests, self.recipe.seed
        )
        makes = {"member figures": "member_figures.json"}
        return Stage(
            "measure members", "evaluate", body, settings, (*self.tests, *self.protocol, *needs), makes
        )
