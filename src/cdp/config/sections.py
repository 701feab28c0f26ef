"""The sections of a recipe: every key with its default, a sentence of help and what it may be."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, ClassVar

from cdp.errors import InputError
from cdp.nets.recipe import JointLoss, TrainingSettings
from cdp.runtime.settings import RuntimeSettings
from cdp.scoring.settings import ConsensusSettings
from cdp.settings import check_settings, plain, setting, setting_like, share


@dataclass(frozen=True)
class _Section:
    """A part of a recipe; the constructor checks and normalizes every value."""

    section: ClassVar[str]

    def __post_init__(self) -> None:
        check_settings(self, self.section)


@dataclass(frozen=True)
class DataSection(_Section):
    """Where images or embeddings come from: all together, or in parts that are split already."""

    section: ClassVar[str] = "data"
    images: str = setting(
        "",
        "Images with identities, split by identity: a folder per identity, a table, .zip, .tar or .rec.",
    )
    embeddings: str = setting(
        "",
        "Embeddings with identities, split by identity: views, or identities.npy and a NETWORK.npy each.",
    )
    labeled: str = setting(
        "", "The labeled part, with identities: images, or views for a run without training."
    )
    unlabeled: tuple[str, ...] = setting((), "With labeled: the unlabeled parts; they need no identities.")
    validation: str = setting("", "With labeled: a part with identities on which the threshold is chosen.")
    test: str = setting(
        "", "A part with identities for evaluation; empty = probes and distractors come from the split."
    )
    probes: str = setting(
        "", "Instead of test: probe images, two or more of each identity, as FaceScrub's are in MegaFace."
    )
    distractors: str = setting(
        "", "With probes: images of other people that they are searched among; they need no identities."
    )
    templates: str = setting(
        "",
        "Folder of protocol files of IJB-A (split1 …), IJB-B or IJB-C, to measure TPR between templates.",
    )
    template_images: str = setting(
        "", "With templates: the face images that its files name, FILE or FILE#SIGHTING_ID."
    )
    root: str = setting("", "Root of relative paths in tables; empty = the table's folder.")
    skip: str = setting("", "List of images to leave out, as written by `cdp data check --list`.")
    truth: bool = setting(True, "Use given identities of unlabeled images as the truth, for figures only.")
    rotations: bool = setting(
        False, "Add every image turned by 90, 180 and 270 degrees, as identities of their own."
    )

    @property
    def is_split_here(self) -> bool:
        """Whether [split] parts it."""
        return bool(self.images or self.embeddings)


@dataclass(frozen=True)
class SplitSection(_Section):
    """How data.images or data.embeddings is parted; no identity is in two parts."""

    section: ClassVar[str] = "split"
    labeled: float = share(
        -1.0,
        "Labeled share of what the test parts leave; -1 = an eleventh, with at least 30 identities.",
        above=0,
        also=-1,
    )
    unlabeled_parts: int = setting(
        0,
        "Number of equal unlabeled parts; 0 = parts about as large as the labeled one.",
        meaning="a number of parts",
        low=0,
    )
    use_parts: int = setting(
        0, "Number of unlabeled parts to use; 0 = all.", meaning="a number of parts", low=0
    )
    validation: float = share(
        -1.0,
        "Share of all images to choose the threshold on; -1 = an eleventh (at least 22 identities) if tuned.",
        below=1,
        also=-1,
    )
    probes: float = share(
        -1.0,
        "Share of all images: probes for evaluation; -1 = a tenth without data.test or data.probes.",
        below=1,
        also=-1,
    )
    distractors: float = share(
        -1.0,
        "Share of all images: distractors, people who are not probes; -1 = as for probes.",
        below=1,
        also=-1,
    )
    test_probes: float = share(
        0.5, "Share of the identities of data.test that are probes; the others are distractors.", above=0
    )


@dataclass(frozen=True)
class BaseSection(_Section):
    """The base model, whose neighbors are the candidate pairs and which is trained again in stage 3."""

    section: ClassVar[str] = "base"
    network: str = setting(
        "small_resnet",
        "The base network: NAME or NAME:SEED (cdp train --list-networks), or onnx:FILE, used as it is.",
    )
    weights: str = setting(
        "",
        "Initial weights of the base: .safetensors, a trained network's folder, or timm; empty = none.",
    )


@dataclass(frozen=True)
class CommitteeSection(_Section):
    """The committee, whose opinions about candidate pairs the mediator is given."""

    section: ClassVar[str] = "committee"
    networks: tuple[str, ...] = setting(
        ("small_vgg", "small_inception", "small_densenet", "small_nasnet"),
        "Committee networks: NAME, NAME:1, NAME:2 … for several of one kind, or onnx:FILE; may be empty.",
    )


@dataclass(frozen=True)
class _Training(_Section, TrainingSettings):
    """The fields of `cdp.nets.recipe.Recipe` without its seed."""

    size: int = setting(
        0,
        "Input size in pixels; 0 = 32, or 64 if most images have 48 pixels or more on the shorter side.",
        meaning="pixels a side",
        low=8,
        also=0,
    )

    def __post_init__(self) -> None:
        check_settings(self, self.section)
        TrainingSettings.__post_init__(self)


@dataclass(frozen=True)
class TrainSection(_Training):
    """Stage 1: how the base and the committee are trained on the labeled part."""

    section: ClassVar[str] = "train"
    folds: int = setting(
        0,
        "Folds of labeled identities, to train the mediator on identities its networks did not see; 0 = "
        "none.",
        meaning="a number of folds",
        low=2,
        also=0,
    )


@dataclass(frozen=True)
class JointSection(JointLoss, _Training):
    """Stage 3: how the base is trained again on true and pseudo-labels, and the bound on all true labels."""

    section: ClassVar[str] = "joint"
    epochs: float = setting_like(TrainingSettings, "epochs", 8)
    least_precision: float = share(
        0.4,
        "Minimum expected precision of labels to train on; below it the run ends with the labels.",
    )
    rounds: int = setting(
        1,
        "Rounds of labeling; after each but the last, base and committee are trained on its labels.",
        meaning="a number of rounds",
        low=1,
        high=9,
    )


@dataclass(frozen=True)
class ConsensusSection(ConsensusSettings):
    """Candidate pairs, the mediator and the grouping: the settings of `cdp label` and of `CDP`."""

    section: ClassVar[str] = "consensus"


@dataclass(frozen=True)
class MeasureSettings:
    """How recognition is measured."""

    fpr: tuple[float, ...] = setting(
        (0.01, 0.001), "False positive rates of verification.", meaning="a rate", above=0, below=1
    )
    replicates: int = setting(
        1000,
        "Bootstrap replicates of the intervals; 0 = none.",
        meaning="a number of replicates",
        low=20,
        also=0,
    )
    pairs: int = setting(200_000, "Most verification pairs.", meaning="a number of pairs", low=1)


@dataclass(frozen=True)
class EvaluationSection(_Section, MeasureSettings):
    """What is measured at the end."""

    section: ClassVar[str] = "evaluation"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.fpr:
            raise InputError(
                "evaluation.fpr is empty: give at least one rate, e.g. [0.01].",
                code="evaluation-fpr-empty",
                key="evaluation.fpr",
            )

    bound: bool = setting(True, "Train on all true labels too, where they are known: the upper bound.")
    members: bool = setting(True, "Figures of each committee member too.")
    ensemble: int = setting(
        0,
        "Number of networks of the ensemble, those with the best rank-1; 0 = none.",
        meaning="a number of networks",
        low=2,
        also=0,
    )


@dataclass(frozen=True)
class EngineSection(RuntimeSettings):
    """Resource limits of a run.

    With other threads or another device, trained networks round differently.
    """

    section: ClassVar[str] = "engine"
    checkpoint_every: int = setting(
        200, "Training steps between checkpoints; 0 = every epoch.", meaning="a number of steps", low=0
    )


@dataclass(frozen=True)
class RunRecipe:
    """Every setting of `cdp run`; the same recipe and images give the same result."""

    seed: int = setting(
        0,
        "Random seed.",
        meaning="a whole number",
        low=0,
        high=2**32 - 1,
    )
    data: DataSection = DataSection()
    split: SplitSection = SplitSection()
    base: BaseSection = BaseSection()
    committee: CommitteeSection = CommitteeSection()
    train: TrainSection = TrainSection()
    joint: JointSection = JointSection()
    consensus: ConsensusSection = ConsensusSection()
    evaluation: EvaluationSection = EvaluationSection()
    engine: EngineSection = EngineSection()

    def __post_init__(self) -> None:
        check_settings(self)

    def as_dict(self) -> dict[str, Any]:
        """Nested plain values; lists for tuples, so that JSON gives back what it got."""
        return {"seed": self.seed} | {name: plain(getattr(self, name)) for name in SECTIONS}


SECTIONS: dict[str, type[Any]] = {
    field.name: type(field.default) for field in fields(RunRecipe) if field.name != "seed"
}
"""The sections by name, in the order of a recipe."""
