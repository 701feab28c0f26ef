"""The sections of a recipe: every key with its default, a sentence of help and what it may be."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any, ClassVar, Literal

from cdp.errors import InputError
from cdp.memory import parse_bytes
from cdp.nets.recipe import Recipe, TrainingSettings
from cdp.settings import check_settings, setting, setting_like, shown
from cdp.types.opinions import ALL_INPUTS, PAPER_INPUTS

DRAWN = "drawn"
"""The word in `data.images` that stands for drawn faces."""


@dataclass(frozen=True)
class _Section:
    """A part of a recipe; the constructor checks and normalizes every value."""

    section: ClassVar[str]

    def __post_init__(self) -> None:
        check_settings(self, self.section)


@dataclass(frozen=True)
class DataSection(_Section):
    """Where images come from: all in one place, or in parts that are split already."""

    section: ClassVar[str] = "data"
    images: str = setting(
        "",
        "Images with identities, split by identity: a folder per identity, a table, .zip, .tar or .rec file; "
        'or "drawn" for drawn faces.',
    )
    labeled: str = setting("", "Instead of images: the labeled part, with identities.")
    embeddings: str = setting(
        "",
        "Instead of images, for studies of labels only: a folder with NETWORK.npy of the base and of every member, and "
        "identities.npy; row i is the same image in all of them.",
    )
    unlabeled: tuple[str, ...] = setting((), "With labeled: the unlabeled parts; they need no identities.")
    validation: str = setting("", "With labeled: images with identities on which the threshold is chosen.")
    test: str = setting(
        "", "Images with identities for evaluation; empty = probes and distractors come from the split."
    )
    root: str = setting("", "What relative paths inside tables start from; empty = the table's folder.")
    skip: str = setting("", "A list of images to leave out, as `cdp check --list` writes it.")
    truth: bool = setting(
        True, "Whether identities of unlabeled images, where given, are true; they only serve the figures."
    )
    rotations: bool = setting(False, "Every image four times, turned; each turn of an identity is its own.")

    @property
    def is_drawn(self) -> bool:
        """Whether the images are drawn faces."""
        return self.images == DRAWN

    @property
    def is_split_here(self) -> bool:
        """Whether [split] parts it."""
        return bool(self.images or self.embeddings)


@dataclass(frozen=True)
class DrawnSection(_Section):
    """Drawn faces, for data.images = "drawn"."""

    section: ClassVar[str] = "drawn"
    identities: int = setting(770, "Identities to draw.", meaning="a number of identities", low=2)
    images: int = setting(20, "Images of each identity.", meaning="a number of images", low=1)
    size: int = setting(40, "Pixels a side.", meaning="pixels a side", low=8)
    test_identities: int = setting(
        200, "Identities drawn for evaluation only; 0 = none.", meaning="a number of identities", low=0
    )
    test_images: int = setting(
        10, "Images of each identity for evaluation.", meaning="a number of images", low=2
    )
    difficulty: float = setting(
        1.0, "How much pose, light, blur and the like change from image to image.", meaning="a factor", low=0
    )
    lookalikes: float = setting(
        0.2, "Share of identities that resemble another one.", meaning="a share", low=0, high=1
    )
    junk: float = setting(0.01, "Share of images that show nobody.", meaning="a share", low=0, high=1)
    mislabeled: float = setting(
        0.01, "Share of images under a wrong identity.", meaning="a share", low=0, high=1
    )


@dataclass(frozen=True)
class SplitSection(_Section):
    """How data.images or data.embeddings is parted, with nobody on two sides."""

    section: ClassVar[str] = "split"
    labeled: float = setting(
        1 / 11, "Labeled share of what the test parts leave.", meaning="a share", above=0, high=1
    )
    unlabeled_parts: int = setting(
        10, "Equal unlabeled parts made of the rest.", meaning="a number of parts", low=1
    )
    use_parts: int = setting(
        0, "How many of the unlabeled parts are used; 0 = all.", meaning="a number of parts", low=0
    )
    validation: float = setting(
        0.0, "Share of all images for choosing settings.", meaning="a share", low=0, below=1
    )
    probes: float = setting(
        0.0, "Share of all images: people to be found again.", meaning="a share", low=0, below=1
    )
    distractors: float = setting(
        0.0, "Share of all images: people who are not probes.", meaning="a share", low=0, below=1
    )
    test_probes: float = setting(
        0.5,
        "Share of the identities of data.test that are probes; the others are distractors.",
        meaning="a share",
        above=0,
        high=1,
    )


@dataclass(frozen=True)
class BaseSection(_Section):
    """The base model, whose neighbors are the candidate pairs and which is trained again in stage 3."""

    section: ClassVar[str] = "base"
    network: str = setting("small_resnet", "Its network, NAME or NAME:SEED; `cdp networks` lists the names.")


@dataclass(frozen=True)
class CommitteeSection(_Section):
    """The committee that is heard about each candidate pair."""

    section: ClassVar[str] = "committee"
    networks: tuple[str, ...] = setting(
        ("small_vgg", "small_inception", "small_densenet", "small_nasnet"),
        "Networks, NAME, or NAME:1, NAME:2 … for several of one kind; may be empty.",
    )


@dataclass(frozen=True)
class _Training(_Section, TrainingSettings):
    """The fields of `cdp.nets.recipe.Recipe` without its seed."""

    def __post_init__(self) -> None:
        check_settings(self, self.section)
        TrainingSettings.__post_init__(self)

    def recipe(self, seed: int) -> Recipe:
        """The same as `cdp.nets` wants it."""
        return Recipe(
            **{field.name: getattr(self, field.name) for field in fields(TrainingSettings)}, seed=seed
        )


@dataclass(frozen=True)
class TrainSection(_Training):
    """Stage 1: how the base and the committee are trained on the labeled part."""

    section: ClassVar[str] = "train"


@dataclass(frozen=True)
class JointSection(_Training):
    """Stage 3: how the base is trained again on true and pseudo-labels, and the bound on all true labels."""

    section: ClassVar[str] = "joint"
    epochs: float = setting_like(TrainingSettings, "epochs", 8)
    labeled_share: float = setting(
        -1.0,
        "Lambda, the weight of the labeled loss; -1 = the share of the labeled images.",
        meaning="a share",
        low=0,
        high=1,
        also=-1,
    )
    soft_depth: int = setting(
        0, "Steps of diffusion that make soft labels; 0 = hard labels.", meaning="a number of steps", low=0
    )
    soft_decay: float = setting(0.5, "Factor per step of diffusion.", meaning="a share", above=0, high=1)


@dataclass(frozen=True)
class ConsensusSection(_Section):
    """Candidate pairs, the mediator and the propagation of labels."""

    section: ClassVar[str] = "consensus"
    mediator: Literal["mlp", "vote", "hierarchical"] = setting(
        "mlp",
        "Who judges a pair: the paper's network (mlp), its baseline (vote), or nobody: labels by hierarchical "
        "clustering of the base's embeddings.",
    )
    k: int = setting(20, "Neighbors of each image.", meaning="a number of neighbors", low=1)
    threshold: float = setting(
        0.96,
        "Pairs of a greater probability are accepted; a vote has vote_threshold instead.",
        meaning="a probability",
        low=0,
        high=1,
    )
    tune: bool = setting(
        False, "Choose the threshold (or join_above, or merge_above) on the validation part instead."
    )
    recall_weight: float = setting(
        1.0,
        "When the threshold is chosen: how many times as important recall is as precision. 1 = pairwise F; with 2 "
        "groups mix more, and fewer identities are split.",
        meaning="a weight",
        low=0.1,
        high=10,
    )
    pair_recall: float = setting(
        -1.0,
        "Choose the threshold so that this share of the true candidate pairs is accepted, for comparing "
        "committees; it looks at the truth. -1 = off.",
        meaning="a share",
        low=0,
        high=1,
        also=-1,
    )
    max_size: int = setting(
        600, "Most images that a pseudo-identity may have.", meaning="a number of images", low=2
    )
    step: float = setting(
        0.1,
        "How fast the threshold rises while a group that is too large is split.",
        meaning="a share",
        above=0,
        below=1,
    )
    inputs: tuple[str, ...] = setting(
        PAPER_INPUTS, "What the mediator hears; common_neighbors is beyond the paper.", choices=ALL_INPUTS
    )
    quorum: int = setting(
        -1, "Members that must agree in a vote; -1 = all.", meaning="a number of members", low=0, also=-1
    )
    vote_threshold: float = setting(
        0.0,
        "In a vote, the similarity in the base must be greater.",
        meaning="a cosine similarity",
        low=-1,
        high=1,
    )
    method: Literal["auto", "exact", "nndescent"] = setting("auto", "How neighbors are searched.")
    grouping: Literal["components", "average"] = setting(
        "components",
        "How pairs become groups: the paper's connected components, or average, which joins groups by the mean "
        "probability between them, so that one false pair does not join two people.",
    )
    join_above: float = setting(
        0.3,
        "With grouping average: groups are joined while the mean probability between them is greater.",
        meaning="a probability",
        above=0,
        below=1,
    )
    merge_above: float = setting(
        0.5,
        "With mediator hierarchical: groups are merged while their mean similarity is at least this.",
        meaning="a cosine similarity",
        low=-1,
        high=1,
    )
    lessons: Literal["labeled", "validation"] = setting(
        "labeled",
        "What the mediator learns from: the labeled part, as in the paper, which the networks were trained on and know too "
        "well; or the validation part, which they never saw.",
    )
    rounds: int = setting(
        1,
        "How often labels are made: 1 = as in the paper; 2 or more = base and committee are trained again on the labels "
        "of the round before, and label anew.",
        meaning="a number of rounds",
        low=1,
        high=9,
    )
    mend: Literal["nothing", "splits", "mixtures", "all"] = setting(
        "nothing",
        "For finding out what mistakes cost: labels are put right by the truth before networks learn from them. splits: "
        "groups of one identity become one; mixtures: groups are divided by identity; all: both.",
    )
    folds: int = setting(
        0,
        "0 = as in the paper; 2 or more = the mediator learns from networks that did not see its identities.",
        meaning="a number of folds",
        low=2,
        also=0,
    )


@dataclass(frozen=True)
class EvaluationSection(_Section):
    """What is measured at the end."""

    section: ClassVar[str] = "evaluation"
    bound: bool = setting(True, "Train on all true labels too: the upper bound.")
    fpr: tuple[float, ...] = setting(
        (0.01, 0.001), "False positive rates of verification.", meaning="a rate", above=0, below=1
    )
    replicates: int = setting(
        1000, "Bootstrap replicates of the intervals; 0 = none.", meaning="a number of replicates", low=0
    )
    pairs: int = setting(200_000, "Most verification pairs.", meaning="a number of pairs", low=1)
    members: bool = setting(True, "Figures of each committee member too.")
    ensemble: int = setting(
        0,
        "Figures of an ensemble of so many networks, those with the best rank-1; 0 = none.",
        meaning="a number of networks",
        low=2,
        also=0,
    )


@dataclass(frozen=True)
class EngineSection(_Section):
    """What a run may take of the machine."""

    section: ClassVar[str] = "engine"
    threads: int = setting(
        0, "Threads that compute and decode; 0 = all cores.", meaning="a number of threads", low=0
    )
    memory_budget: str = setting("2GB", "What blocks and decoded images may take together.")
    checkpoint_every: int = setting(
        200, "Training steps between checkpoints; 0 = every epoch.", meaning="a number of steps", low=0
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        try:
            parse_bytes(self.memory_budget)
        except InputError as error:
            raise InputError(f"{self.section}.{error}") from None


@dataclass(frozen=True)
class RunRecipe:
    """Everything that `cdp run` can be told; the same recipe and images give the same result."""

    seed: int = setting(
        0, "Of the split, initialization, order and augmentation.", meaning="a whole number", low=0
    )
    data: DataSection = DataSection()
    drawn: DrawnSection = DrawnSection()
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
        return {
            name: {key: list(one) if isinstance(one, tuple) else one for key, one in value.items()}
            if isinstance(value, dict)
            else value
            for name, value in asdict(self).items()
        }


SECTIONS: dict[str, type[Any]] = {
    field.name: type(field.default) for field in fields(RunRecipe) if field.name != "seed"
}
"""The sections by name, in the order of a recipe."""
