"""Every setting of section 3.1, defined once: name, default, help and range; and the presets.

`CDP(...)`, the options of `cdp label`, `[consensus]` in a recipe and the keys of stages are derived from
these classes. A class holds what one step depends on, so the settings of a step are its key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from cdp.errors import InputError
from cdp.input_blocks import ALL_INPUTS, PAPER_INPUTS
from cdp.knn.settings import SearchSettings
from cdp.settings import MOST_IMAGES, check_settings, did_you_mean, setting, settings_of

_MOST_IMAGES = 600
_NEGLIGIBLE = 0.01

ThresholdKind = Literal["mean probability", "probability", "similarity", "z-score"]
"""What a threshold is compared with: the mean probability between two groups, the probability of a pair, its
cosine in the base
model, or its similarity in standard deviations of random pairs."""

DEFAULT_THRESHOLDS: Mapping[ThresholdKind, float] = MappingProxyType(
    {"mean probability": 0.3, "probability": 0.96, "similarity": -1.0}
)
"""Thresholds where none is given and none can be chosen; a z-score can always be."""

_RANGES: Mapping[ThresholdKind, tuple[float, float]] = MappingProxyType(
    {"mean probability": (0, 1), "probability": (0, 1), "similarity": (-1, 1), "z-score": (0, 100)}
)


@dataclass(frozen=True)
class ScoringSettings:
    """How pairs are scored, from which inputs, and what the scorer is trained on."""

    mediator: Literal["auto", "trees", "mlp", "vote", "similarity"] = setting(
        "auto",
        "Pair classifier: trees, similarity (no labels), auto (the better one), mlp (the paper's) or vote.",
    )
    inputs: tuple[str, ...] = setting(
        ALL_INPUTS, "Inputs of the mlp; common_neighbors is not in the paper.", choices=ALL_INPUTS
    )
    train_on: Literal["auto", "labeled", "validation"] = setting(
        "auto",
        "Images to train the mlp on; auto = validation if networks trained on the labeled part, else "
        "labeled.",
    )
    disjoint: bool | None = setting(
        None,
        "Labeled and unlabeled images show different people; auto = decided from the images.",
        none="auto",
    )
    min_votes: int | None = setting(
        None,
        "With vote: committee members that must agree.",
        meaning="a number of members",
        low=0,
        high=MOST_IMAGES,
        none="all",
    )

    @property
    def is_disjoint(self) -> bool:
        """Whether labeled and unlabeled images are taken to show different people."""
        return self.disjoint is not False

    @property
    def is_trained(self) -> bool:
        """Whether the scorer learns from labeled identities."""
        return self.mediator not in ("vote", "similarity")


@dataclass(frozen=True)
class GroupingSettings:
    """How scored pairs become groups."""

    grouping: Literal["components", "average"] = setting(
        "average",
        "Grouping of pairs: components (the paper's connected components) or average (average linkage).",
    )
    max_cluster_size: int | None = setting(
        None,
        "Maximum number of images per identity; auto = 600, or no limit by similarity (no labels).",
        meaning="a number of images",
        low=2,
        high=MOST_IMAGES,
        none="auto",
    )
    step: float = setting(
        0.1,
        "With components: relative increase of the threshold while a group that is too large is split.",
        meaning="a share",
        above=0,
        below=1,
    )


@dataclass(frozen=True)
class ThresholdSettings:
    """How much is joined."""

    threshold: float | None = setting(
        None,
        "Threshold to join images: a probability, a cosine (vote), or a z-score (no labels); auto = chosen.",
        meaning="a threshold",
        low=-1,
        high=100,
        none="auto",
    )
    min_precision: float | None = setting(
        None,
        "Minimum precision of pairs on labeled identities when the threshold is chosen; off = the best F.",
        meaning="a precision",
        above=0,
        below=1,
        none="off",
    )
    beta: float = setting(
        1.0,
        "Weight of recall relative to precision (F-beta) when the threshold is chosen.",
        meaning="a weight",
        low=0.1,
        high=10,
    )


@dataclass(frozen=True)
class SoftLabelSettings:
    """Soft labels, in addition to the hard ones."""

    soft_depth: int = setting(
        0,
        "Diffusion steps for soft labels; 0 = hard labels only.",
        meaning="a number of steps",
        low=0,
        high=1000,
    )
    soft_decay: float = setting(
        0.2, "Weight of each further diffusion step.", meaning="a share", above=0, high=1
    )


@dataclass(frozen=True)
class ConsensusSettings(
    SoftLabelSettings, ThresholdSettings, GroupingSettings, ScoringSettings, SearchSettings
):
    """Settings of candidate pairs, scores and grouping (section 3.1); defaults: the preset `best`.

    Examples:
        >>> from cdp import ConsensusSettings
        >>> ConsensusSettings().grouping, ConsensusSettings.of("paper").grouping
        ('average', 'components')
    """

    preset: Literal["best", "paper"] = setting(
        "best",
        "Default settings: best (what wins by measurement) or paper (the paper to the letter).",
    )

    def __post_init__(self) -> None:
        section = getattr(self, "section", "")
        check_settings(self, section)
        if not self.inputs:
            raise InputError(
                f"inputs is empty: choose at least one of {', '.join(ALL_INPUTS)}.",
                code="setting-empty",
                key="inputs",
            )
        # In one order, each once, however they were named.
        object.__setattr__(self, "inputs", tuple(name for name in ALL_INPUTS if name in self.inputs))
        if self.mediator == "similarity" and self.grouping != "average":
            raise InputError(
                'mediator = "similarity" needs grouping = "average"; change one of them.',
                code="grouping-needs-average",
            )
        if self.threshold is not None:
            key = f"{section}.threshold" if section else "threshold"
            check_threshold(
                self.threshold, self.threshold_kind, key, may_be_z_score=self.mediator in ("auto", "trees")
            )

    @classmethod
    def of(cls, preset: str = "best", **given: Any) -> ConsensusSettings:
        """Return the settings of a preset, except for those given."""
        known = settings_of(cls)
        for name in given:
            if name not in known:
                raise InputError(
                    f"{name}: there is no such setting.{did_you_mean(name, known)}",
                    code="setting-unknown",
                    key=name,
                )
        return cls(**with_preset({"preset": preset, **given}))

    @property
    def most_images(self) -> int:
        """Maximum number of images per identity."""
        if self.max_cluster_size is not None:
            return self.max_cluster_size
        # By similarity, means are over all pairs, so a large group is no sign of a mistake.
        return MOST_IMAGES if self.mediator == "similarity" else _MOST_IMAGES

    @property
    def threshold_kind(self) -> ThresholdKind:
        """What the threshold is compared with."""
        return _threshold_kind(self.mediator, self.grouping)

    @property
    def default_threshold(self) -> float:
        """The threshold where none is given and none can be chosen."""
        return DEFAULT_THRESHOLDS[self.threshold_kind]


def _threshold_kind(mediator: str, grouping: str) -> ThresholdKind:
    if mediator == "similarity":
        return "z-score"
    if grouping == "average":
        return "mean probability"
    return "similarity" if mediator == "vote" else "probability"


def linkage_threshold(settings: ConsensusSettings, threshold: float) -> float:
    """Mean probability between two groups above which average linkage joins them.

    Without labels the threshold is a z-score, where the probability is one half.
    """
    return 0.5 if settings.mediator == "similarity" else threshold


def kept_above(settings: ConsensusSettings, threshold: float) -> float:
    """Probability that a pair must exceed to count when groups are made.

    Average linkage has no threshold for a single pair; one that is far less probable than groups must be on
    average is as good as absent. It is the same for all thresholds that are tried, so that one dendrogram
    serves them all.
    """
    if settings.grouping == "components":
        return threshold
    return min(_NEGLIGIBLE, linkage_threshold(settings, threshold) / 2)


def check_threshold(
    value: float, kind: ThresholdKind, key: str = "threshold", *, may_be_z_score: bool = False
) -> None:
    """Refuse a threshold that is out of range for what it is compared with."""
    low, high = _RANGES[kind]
    is_inside = low <= value <= high if kind in ("probability", "similarity") else low < value < high
    if is_inside or (may_be_z_score and 1 < value <= 50):
        return
    hint = f" Did you mean {value / 100:g}?" if kind.endswith("probability") and 1 < value <= 100 else ""
    raise InputError(
        f"{key} = {value:g}: a {kind} from {low} to {high} is needed.{hint}",
        code="threshold-out-of-range",
        key=key,
        value=value,
    )


PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "best": MappingProxyType({}),
        "paper": MappingProxyType(
            {
                "mediator": "mlp",
                "inputs": PAPER_INPUTS,
                "train_on": "labeled",
                "grouping": "components",
                "max_cluster_size": _MOST_IMAGES,
                "threshold": 0.96,
            }
        ),
    }
)
"""The settings in which a preset differs from the defaults above, which are those of `best`."""


def with_preset(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings as given, and the preset's where nothing is given."""
    preset = given.get("preset", "best")
    if preset not in PRESETS:
        known = list(PRESETS)
        raise InputError(
            f"preset = {preset!r}: choose one of {', '.join(known)}.{did_you_mean(str(preset), known)}",
            code="preset-unknown",
            key="preset",
            value=preset,
        )
    settings = {**PRESETS[preset], **given}
    if preset == "paper" and "threshold" not in given:
        # The paper's threshold is one for probabilities of pairs.
        kind = _threshold_kind(settings["mediator"], settings["grouping"])
        settings["threshold"] = DEFAULT_THRESHOLDS.get(kind)
    return settings


def default_of(name: str, preset: str) -> Any:
    """Return what a setting is under a preset."""
    return PRESETS[preset].get(name, settings_of(ConsensusSettings)[name].default)
