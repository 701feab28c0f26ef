"""The stages of a recipe, in the paper's order, and what each is made from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from cdp.config.checks import folder_name, member_names
from cdp.config.sections import RunRecipe
from cdp.run import evaluation, labeling, parts, training
from cdp.run.labeling import Round
from cdp.run.stages import Stage

_TRAINED_ON = ("labeled", "unlabeled")
_TESTED_ON = ("probes", "distractors")


@dataclass(frozen=True)
class Model:
    """A network of the run: `networks/small_vgg`, `joint/small_resnet`, `fold1/small_vgg`."""

    room: str
    network: str

    @property
    def name(self) -> str:
        """Of its folder."""
        return folder_name(self.network)

    @property
    def artifact(self) -> str:
        """Of its weights, and where they lie."""
        return f"{self.room}/{self.name}"


def make_stages(recipe: RunRecipe, folder: Path) -> list[Stage]:
    """Every stage of a run into a folder; nothing is read or written here."""
    made = _Stages(recipe, folder)
    stages = [*made.drawing(), made.split()]
    turns = labeling.rounds_of(recipe)
    models = made.models("networks")
    if recipe.data.embeddings:
        stages += [made.take_rows(model) for model in models]
    else:
        stages += [made.train(model) for model in models]
        stages += [made.embed(model, _TRAINED_ON) for model in models]
    folds = [made.models(f"fold{fold}") for fold in range(1, recipe.consensus.folds + 1)]
    for fold, fold_models in enumerate(folds, start=1):
        stages += [made.train_without(model, fold) for model in fold_models]
        stages += [made.embed(model, (f"lesson{fold}",)) for model in fold_models]
    for turn in turns:
        heard = made.models(turn.room)
        if turn.number > 1:
            before = turns[turn.number - 2]
            stages += [made.join(model, f"train {model.artifact}", before) for model in heard]
            stages += [made.embed(model, _TRAINED_ON) for model in heard]
        stages += made.label_round(heard, folds, turn)
    if recipe.data.embeddings:
        return stages
    base = recipe.base.network
    tested = {"labeled": models[0], "cdp": Model("joint", base)}
    stages.append(made.join(tested["cdp"], "train with pseudo-labels", turns[-1]))
    if recipe.evaluation.bound and recipe.data.truth:
        tested["all"] = Model("bound", base)
        stages.append(made.bound(tested["all"]))
    members = models if recipe.evaluation.members else models[:1]
    for model in dict.fromkeys([*members, *tested.values()]):
        stages.append(made.embed(model, _TESTED_ON))
    stages += [made.recognition(tested), made.member_figures(members)]
    return stages


class _Stages:
    """Makes stages from a recipe; each method is one kind of stage."""

    def __init__(self, recipe: RunRecipe, folder: Path) -> None:
        self.recipe = recipe
        self.folder = folder
        self.base = Model("networks", recipe.base.network)
        # Contents alone do not tell who is the base and who comes first on the committee; the mediator's inputs do.
        self._heard = {"networks": labeling.model_names(recipe)}
        weighs = recipe.consensus.tune and recipe.consensus.recall_weight != 1
        self._weighed = ["recall_weight"] if weighs else []

    def drawing(self) -> list[Stage]:
        if not self.recipe.data.is_drawn:
            return []
        return [
            Stage(
                "draw faces",
                "draw",
                {"drawn": asdict(self.recipe.drawn), "seed": self.recipe.seed},
                (),
                {"drawn faces": "drawn/faces.zip", "drawn test faces": "drawn/test_faces.zip"},
                lambda progress: training.draw(self.recipe, self.folder, progress),
            )
        ]

    def split(self) -> Stage:
        recipe = self.recipe
        tested = () if recipe.data.embeddings else _TESTED_ON
        makes = {name: f"parts/{name}.csv" for name in (*_TRAINED_ON, *tested)}
        makes["counts"] = "parts/counts.json"
        for fold in range(1, recipe.consensus.folds + 1):
            makes[f"lesson{fold}"] = f"parts/lesson{fold}.csv"
            makes[f"without fold{fold}"] = f"parts/without_fold{fold}.csv"
        settings = {
            "split": asdict(recipe.split),
            "rotations": recipe.data.rotations,
            "truth": recipe.data.truth,
            "folds": recipe.consensus.folds,
            "seed": recipe.seed,
        }
        return Stage(
            "split",
            "split",
            settings,
            parts.source_names(recipe),
            makes,
            lambda progress: training.split(recipe, self.folder),
            # Its tables say where images lie; those of drawn faces lie in this folder.
            is_shared=False,
            unmoved={
                **dict.fromkeys(("labeled", *tested), ("split.use_parts", "folds")),
                "unlabeled": ("folds",),
                "counts": ("folds",),
            },
        )

    def models(self, room: str) -> list[Model]:
        """Base and committee, as trained in one room."""
        return [Model(room, name) for name in member_names(self.recipe)]

    def train(self, model: Model, part: str = "labeled") -> Stage:
        return Stage(
            f"train {model.name}" if model.room == "networks" else f"train {model.artifact}",
            "train",
            {"network": model.network, "train": asdict(self.recipe.train), "seed": self.recipe.seed},
            (part,),
            {model.artifact: model.artifact},
            lambda progress: training.train(
                self.recipe, self.folder, model.room, model.network, part, progress
            ),
        )

    def train_without(self, model: Model, fold: int) -> Stage:
        return self.train(model, f"without fold{fold}")

    def embed(self, model: Model, shown: Sequence[str]) -> Stage:
        which = model.name if model.room == "networks" else model.artifact
        what = f"test {which}" if tuple(shown) == _TESTED_ON else f"embed {which}"
        return Stage(
            what,
            "test" if tuple(shown) == _TESTED_ON else "embed",
            {},
            (model.artifact, *shown),
            {f"{model.artifact} of {part}": _embeddings(model, part) for part in shown},
            lambda progress: training.embed(self.recipe, self.folder, model.artifact, shown, progress),
        )

    def take_rows(self, model: Model) -> Stage:
        return Stage(
            f"embeddings {model.name}",
            "embed",
            {},
            (f"embeddings {model.name}", *_TRAINED_ON),
            {f"{model.artifact} of {part}": _embeddings(model, part) for part in _TRAINED_ON},
            lambda progress: training.take_rows(self.recipe, self.folder, model.name, _TRAINED_ON),
        )

    def label_round(
        self, models: Sequence[Model], folds: Sequence[Sequence[Model]], turn: Round
    ) -> list[Stage]:
        """From embeddings to labels and their figures, once."""
        chosen = self.recipe.consensus
        stages = [self.graphs(model, turn) for model in models]
        if chosen.mediator == "mlp":
            stages.append(self.mediator(models, folds, turn))
        if chosen.mediator == "hierarchical":
            stages.append(self.clusters())
        else:
            stages += [self.consensus(models, turn), self.labels(turn)]
        return [*stages, self.label_figures(models, turn)]

    def graphs(self, model: Model, turn: Round) -> Stage:
        chosen = self.recipe.consensus
        settings: dict[str, Any] = {"k": chosen.k, "method": chosen.method, "seed": self.recipe.seed}
        return Stage(
            f"{turn.before}graphs {model.name}",
            "graphs",
            settings,
            tuple(f"{model.artifact} of {part}" for part in _TRAINED_ON),
            {
                f"{turn.before}graph {model.name} of {part}": f"{turn.place}graphs/{model.name}/{part}"
                for part in _TRAINED_ON
            },
            lambda progress: labeling.find_graphs(
                self.recipe, self.folder, model.name, _TRAINED_ON, progress, turn
            ),
        )

    def mediator(self, models: Sequence[Model], folds: Sequence[Sequence[Model]], turn: Round) -> Stage:
        chosen = self.recipe.consensus
        settings = {"inputs": list(chosen.inputs), "k": chosen.k, "seed": self.recipe.seed, **self._heard}
        needs = [
            *(f"{model.artifact} of labeled" for model in models),
            *(f"{turn.before}graph {model.name} of labeled" for model in models),
        ]
        if folds:
            settings |= {"folds": chosen.folds}
            needs = [
                f"{model.artifact} of lesson{fold}"
                for fold, members in enumerate(folds, start=1)
                for model in members
            ]
        taught = ["labeled"]
        if chosen.lessons == "validation":
            settings |= {"lessons": chosen.lessons}
            taught, needs = ["unlabeled", "counts"], [f"{model.artifact} of unlabeled" for model in models]
        return Stage(
            f"{turn.before}mediator",
            "mediator",
            settings,
            (*taught, *needs),
            {f"{turn.before}mediator": f"{turn.place}mediator"},
            lambda progress: labeling.teach(self.recipe, self.folder, progress, turn),
        )

    def consensus(self, models: Sequence[Model], turn: Round) -> Stage:
        chosen = self.recipe.consensus
        names = ["mediator", "k", "tune", "grouping"]
        names += ["quorum", "vote_threshold"] if chosen.mediator == "vote" else []
        if chosen.grouping == "average":
            names.append("join_above")
        elif chosen.mediator == "mlp":
            names.append("threshold")
        names += ["pair_recall"] if chosen.pair_recall >= 0 else []
        # While a threshold is chosen, groups are made.
        names += ["max_size", "step"] if chosen.tune else []
        names += self._weighed
        needs = [
            "unlabeled",
            "counts",
            *(f"{model.artifact} of unlabeled" for model in models),
            *(f"{turn.before}graph {model.name} of unlabeled" for model in models),
        ]
        if chosen.mediator == "mlp":
            needs.append(f"{turn.before}mediator")
        return Stage(
            f"{turn.before}consensus",
            "consensus",
            {name: getattr(chosen, name) for name in names} | self._heard,
            tuple(needs),
            {
                f"{turn.before}consensus": f"{turn.place}consensus",
                f"{turn.before}tuning": f"{turn.place}tuning.json",
            },
            lambda progress: labeling.agree(self.recipe, self.folder, progress, turn),
        )

    def clusters(self) -> Stage:
        names = [
            "mediator",
            "k",
            "tune",
            *([] if self.recipe.consensus.tune else ["merge_above"]),
            *self._weighed,
        ]
        return Stage(
            "labels",
            "labels",
            # The budget decides whether all pairs are looked at, or those of the graph.
            {name: getattr(self.recipe.consensus, name) for name in names}
            | {"memory_budget": self.recipe.engine.memory_budget},
            (
                "unlabeled",
                "counts",
                f"{self.base.artifact} of unlabeled",
                f"graph {self.base.name} of unlabeled",
            ),
            {"labels": "labels", "tuning": "tuning.json"},
            lambda progress: labeling.cluster(self.recipe, self.folder),
        )

    def labels(self, turn: Round) -> Stage:
        chosen, joint = self.recipe.consensus, self.recipe.joint
        settings = {name: getattr(chosen, name) for name in ("max_size", "step", "grouping", "k")}
        if chosen.grouping == "average":
            settings["join_above"] = chosen.join_above
        truth = []
        if chosen.mend != "nothing":
            settings["mend"] = chosen.mend
            truth = ["unlabeled"]
        settings |= {"soft_depth": joint.soft_depth}
        if joint.soft_depth:
            settings |= {"soft_decay": joint.soft_decay}
            settings |= {"soft_pairs": "likely" if chosen.grouping == "average" else "accepted"}
        return Stage(
            f"{turn.before}labels",
            "labels",
            settings,
            (f"{turn.before}consensus", f"{turn.before}tuning", *truth),
            {f"{turn.before}labels": f"{turn.place}labels"},
            lambda progress: labeling.label(self.recipe, self.folder, turn),
        )

    def join(self, model: Model, name: str, turn: Round) -> Stage:
        """A network on the labels of a round."""
        return Stage(
            name,
            "joint",
            {"network": model.network, "joint": asdict(self.recipe.joint), "seed": self.recipe.seed},
            ("labeled", "unlabeled", f"{turn.before}labels"),
            {model.artifact: model.artifact},
            lambda progress: training.join(
                self.recipe, self.folder, model.room, model.network, f"{turn.place}labels", progress
            ),
        )

    def bound(self, model: Model) -> Stage:
        settings = {
            name: value
            for name, value in asdict(self.recipe.joint).items()
            if name not in ("labeled_share", "soft_depth", "soft_decay")
        }
        return Stage(
            "train with all labels",
            "bound",
            {"network": model.network, "joint": settings, "seed": self.recipe.seed},
            ("labeled", "unlabeled"),
            {model.artifact: model.artifact},
            lambda progress: training.train_bound(self.recipe, self.folder, progress),
        )

    def label_figures(self, models: Sequence[Model], turn: Round) -> Stage:
        chosen = self.recipe.consensus
        needs = ["unlabeled", "counts", f"{turn.before}tuning", f"{turn.before}labels"]
        if chosen.mediator != "hierarchical":
            needs.append(f"{turn.before}consensus")
        if chosen.mediator == "mlp":
            needs.append(f"{turn.before}mediator")
        for model in models:
            needs += [f"{model.artifact} of unlabeled", f"{turn.before}graph {model.name} of unlabeled"]
        return Stage(
            f"{turn.before}measure labels",
            "evaluate",
            {
                "seed": self.recipe.seed,
                "mediator": chosen.mediator,
                "grouping": chosen.grouping,
                "tune": chosen.tune,
                "bar": labeling.given_bar(self.recipe),
                "accepted": "joined" if chosen.grouping == "average" else "above the bar",
                **self._heard,
            },
            tuple(needs),
            {f"{turn.before}label figures": f"{turn.place}label_figures.json"},
            lambda progress: evaluation.measure_labeling(self.recipe, self.folder, turn),
        )

    def recognition(self, tested: dict[str, Model]) -> Stage:
        needs = ["labeled", "unlabeled", "labels", *_TESTED_ON]
        for model in tested.values():
            needs += [f"{model.artifact} of {part}" for part in _TESTED_ON]
        return Stage(
            "measure recognition",
            "evaluate",
            self._measures(),
            tuple(needs),
            {"recognition": "recognition.json"},
            lambda progress: evaluation.measure_recognition(
                self.recipe,
                self.folder,
                {key: model.artifact for key, model in tested.items()},
                progress,
            ),
        )

    def member_figures(self, members: Sequence[Model]) -> Stage:
        needs = [*_TESTED_ON]
        for model in members:
            needs += [model.artifact, *(f"{model.artifact} of {part}" for part in _TESTED_ON)]
        return Stage(
            "measure members",
            "evaluate",
            self._measures() | {"ensemble": self.recipe.evaluation.ensemble} | self._heard,
            tuple(needs),
            {"member figures": "member_figures.json"},
            lambda progress: evaluation.measure_members(
                self.recipe, self.folder, [model.artifact for model in members], progress
            ),
        )

    def _measures(self) -> dict[str, Any]:
        chosen = self.recipe.evaluation
        return {
            "fpr": list(chosen.fpr),
            "replicates": chosen.replicates,
            "pairs": chosen.pairs,
            "seed": self.recipe.seed,
        }


def _embeddings(model: Model, part: str) -> str:
    return f"embeddings/{model.artifact}/{part}"
