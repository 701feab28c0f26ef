"""The stages of a recipe, in the paper's order, and what each is made from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from cdp.config.checks import folder_name, member_names
from cdp.config.sections import RunRecipe
from cdp.consensus.settings import ConsensusSettings, slice_of
from cdp.nets.recipe import TrainingSettings
from cdp.run import evaluation, training
from cdp.run.labeling import LabelSettings, Round, label_images
from cdp.run.parts import SplitSettings
from cdp.run.sources import TEMPLATES, Settled, source_names
from cdp.run.stages import Stage

_TRAINED_ON = ("labeled", "unlabeled")

Labeler = Callable[[LabelSettings, tuple[str, ...]], list[Stage]]
"""The stages that make the labels of one round, from its settings and the artifacts it is made from."""


@dataclass(frozen=True)
class Model:
    """A network of the run: `networks/small_vgg`, `joint/small_resnet`, `fold1/small_vgg`."""

    folder: str
    network: str

    @property
    def name(self) -> str:
        """Of its folder."""
        return folder_name(self.network)

    @property
    def artifact(self) -> str:
        """Of its weights, and where they lie."""
        return f"{self.folder}/{self.name}"

    def seen(self, parts: Sequence[str]) -> tuple[str, ...]:
        """The artifacts of its embeddings of some parts."""
        return tuple(f"{self.artifact} of {part}" for part in parts)


def rounds_of(recipe: RunRecipe) -> list[Round]:
    """All rounds of a recipe, in order."""
    last = recipe.joint.rounds
    return [Round(number, number == last) for number in range(1, last + 1)]


def label_stage(settings: LabelSettings, needs: tuple[str, ...]) -> list[Stage]:
    """The stage that labels, as `cdp run` does it."""
    turn = settings.round
    return [
        Stage(
            f"{turn.prefix}label",
            "label",
            label_images,
            settings,
            needs,
            {f"{turn.prefix}labels": f"{turn.folder}labels"},
        )
    ]


def make_stages(settled: Settled, labeler: Labeler = label_stage) -> list[Stage]:
    """Every stage of a run; nothing is read or written here.

    Args:
        settled: the recipe, with nothing left open.
        labeler: makes the stages between embeddings and labels; studies have others.
    """
    made = _Stages(settled, labeler)
    if settled.facts.kind == "embeddings":
        return made.of_embeddings()
    return made.of_images()


class _Stages:
    """Makes stages from a recipe; each method is one kind of stage."""

    def __init__(self, settled: Settled, labeler: Labeler) -> None:
        self.settled = settled
        self.recipe = settled.recipe
        self.tests = settled.test_parts
        self.labeler = labeler

    def of_embeddings(self) -> list[Stage]:
        stages = [self.split(), self.views((*_TRAINED_ON, *self.tests))]
        needs = ("counts", *_TRAINED_ON, *(f"views of {part}" for part in _TRAINED_ON))
        stages += self.labeler(self.label_settings(Round(), self.settled.facts.models), needs)
        if self.tests:
            stages.append(self.view_figures())
        return stages

    def of_images(self) -> list[Stage]:
        recipe = self.recipe
        models = self.models("networks")
        stages = [self.split(), *(self.train(model, "labeled") for model in models)]
        stages += [self.embed(model, _TRAINED_ON) for model in models]
        folds = [self.models(f"fold{fold}") for fold in range(1, recipe.train.folds + 1)]
        for fold, members in enumerate(folds, start=1):
            stages += [self.train(model, f"without_fold{fold}") for model in members]
            stages += [self.embed(model, (f"fold{fold}",)) for model in members]
        turns = rounds_of(recipe)
        for turn in turns:
            heard = self.models(turn.networks)
            if turn.number > 1:
                before = turns[turn.number - 2]
                stages += [self.join(model, f"train {model.artifact}", before) for model in heard]
                stages += [self.embed(model, _TRAINED_ON) for model in heard]
            stages += self.labeler(
                self.label_settings(turn, training.network_names(member_names(recipe))),
                self.label_needs(heard, folds),
            )
        tested = {"labeled": models[0], "cdp": Model("joint", recipe.base.network)}
        stages.append(self.join(tested["cdp"], "train with pseudo-labels", turns[-1]))
        if not self.tests:
            return stages
        if recipe.evaluation.bound:
            tested["all"] = Model("bound", recipe.base.network)
            stages.append(self.bound(tested["all"]))
        members = models if recipe.evaluation.members else models[:1]
        for model in dict.fromkeys([*members, *tested.values()]):
            stages.append(self.embed(model, self.tests))
        return [*stages, self.recognition(tested), self.member_figures(members)]

    def models(self, folder: str) -> list[Model]:
        """Base and committee, as trained into one folder."""
        return [Model(folder, name) for name in member_names(self.recipe)]

    def split(self) -> Stage:
        recipe = self.recipe
        makes = {name: f"parts/{name}.csv" for name in (*_TRAINED_ON, *self.tests)}
        if TEMPLATES in self.tests:
            makes["protocol"] = "parts/protocol.npz"
        makes["counts"] = "parts/counts.json"
        for fold in range(1, recipe.train.folds + 1):
            makes |= {name: f"parts/{name}.csv" for name in (f"fold{fold}", f"without_fold{fold}")}
        settings = SplitSettings(
            recipe.split, recipe.data.rotations, recipe.data.truth, recipe.train.folds, recipe.seed
        )
        return Stage(
            "split",
            "split",
            training.split_sources(recipe),
            settings,
            source_names(recipe),
            makes,
            # Its tables say where images lie; those of drawn faces lie in this folder.
            is_shared=False,
            unmoved={
                **dict.fromkeys(("labeled", *self.tests, "protocol"), ("split.use_parts", "folds")),
                "unlabeled": ("folds",),
                "counts": ("folds",),
            },
        )

    def views(self, parts: tuple[str, ...]) -> Stage:
        return Stage(
            "views",
            "embed",
            training.collect_views(self.recipe),
            training.PartNames(parts),
            (*source_names(self.recipe), *parts),
            {f"views of {part}": f"views/{part}" for part in parts},
        )

    def train(self, model: Model, part: str) -> Stage:
        return Stage(
            f"train {model.name}" if model.folder == "networks" else f"train {model.artifact}",
            "train",
            training.train_network,
            training.NetworkSettings(
                model.network,
                part,
                model.folder,
                slice_of(self.recipe.train, TrainingSettings),
                self.recipe.seed,
            ),
            (part,),
            {model.artifact: model.artifact},
        )

    def embed(self, model: Model, parts: tuple[str, ...]) -> Stage:
        which = model.name if model.folder == "networks" else model.artifact
        kind = "test" if parts == self.tests else "embed"
        return Stage(
            f"{kind} {which}",
            kind,
            training.embed_parts,
            training.EmbedSettings(model.artifact, parts),
            (model.artifact, *parts),
            {f"{model.artifact} of {part}": f"embeddings/{model.artifact}/{part}" for part in parts},
        )

    def label_settings(self, turn: Round, models: tuple[str, ...]) -> LabelSettings:
        consensus = replace(slice_of(self.recipe.consensus, ConsensusSettings), preset="best")
        from_views = self.settled.facts.kind == "embeddings"
        return LabelSettings(consensus, models, turn, self.recipe.train.folds, from_views, self.recipe.seed)

    def label_needs(self, models: Sequence[Model], folds: Sequence[Sequence[Model]]) -> tuple[str, ...]:
        needs = ["counts", "unlabeled", *(name for model in models for name in model.seen(["unlabeled"]))]
        if folds:
            for fold, members in enumerate(folds, start=1):
                needs += [f"fold{fold}", *(name for model in members for name in model.seen([f"fold{fold}"]))]
        else:
            needs += ["labeled", *(name for model in models for name in model.seen(["labeled"]))]
        return tuple(needs)

    def join(self, model: Model, name: str, turn: Round) -> Stage:
        """A network on the labels of a round."""
        joint = self.recipe.joint
        settings = training.JointSettings(
            model.network,
            model.folder,
            f"{turn.folder}labels",
            slice_of(joint, TrainingSettings),
            joint.labeled_share,
            self.recipe.consensus.soft_depth > 0,
            self.recipe.seed,
        )
        needs = (*_TRAINED_ON, f"{turn.prefix}labels")
        return Stage(name, "joint", training.train_on_both, settings, needs, {model.artifact: model.artifact})

    def bound(self, model: Model) -> Stage:
        return Stage(
            "train with all labels",
            "bound",
            training.train_bound,
            training.NetworkSettings(
                model.network,
                "labeled, unlabeled",
                model.folder,
                slice_of(self.recipe.joint, TrainingSettings),
                self.recipe.seed,
            ),
            _TRAINED_ON,
            {model.artifact: model.artifact},
        )

    def recognition(self, tested: Mapping[str, Model]) -> Stage:
        needs = [*_TRAINED_ON, "labels", *self.tables()]
        needs += [name for model in tested.values() for name in model.seen(self.tests)]
        pairs = tuple((key, model.artifact) for key, model in tested.items())
        return Stage(
            "measure recognition",
            "evaluate",
            evaluation.measure_recognition,
            evaluation.RecognitionSettings(
                self.recipe.evaluation,
                pairs,
                folder_name(self.recipe.base.network),
                self.tests,
                self.recipe.seed,
            ),
            tuple(needs),
            {"recognition": "recognition.json"},
        )

    def tables(self) -> tuple[str, ...]:
        """What the split says about the parts that networks are tested on."""
        return (*self.tests, "protocol") if TEMPLATES in self.tests else self.tests

    def member_figures(self, members: Sequence[Model]) -> Stage:
        needs = [*self.tables()]
        for model in members:
            needs += [model.artifact, *model.seen(self.tests)]
        artifacts = tuple(model.artifact for model in members)
        return Stage(
            "measure members",
            "evaluate",
            evaluation.measure_members,
            evaluation.MemberSettings(self.recipe.evaluation, artifacts, self.tests, self.recipe.seed),
            tuple(needs),
            {"member figures": "member_figures.json"},
        )

    def view_figures(self) -> Stage:
        return Stage(
            "measure members",
            "evaluate",
            evaluation.measure_views,
            evaluation.MemberSettings(
                self.recipe.evaluation, self.settled.facts.models, self.tests, self.recipe.seed
            ),
            (*self.tests, *(f"views of {part}" for part in self.tests)),
            {"member figures": "member_figures.json"},
        )
