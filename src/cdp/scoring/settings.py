"""Every setting of section 3.1, defined once: name, default, help and range; and the presets.

`CDP(...)`, the options of `cdp label`, `[consensus]` in a recipe and the keys of stages are derived from these classes.
A class holds what one step depends on, so the settings of a step are its key.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

from cdp.errors import InputError
from cdp.input_blocks import ALL_INPUTS, EVIDENCE, PAPER_INPUTS
from cdp.settings import check_settings, did_you_mean, setting, settings_of

_NEGLIGIBLE = 0.01


@dataclass(frozen=True)
class SearchSettings:
    """The k-NN graphs."""

    k: int = setting(20, "Neighbors of each image in every graph.", meaning="a number of neighbors", low=1)
    method: Literal["auto", "exact", "approximate"] = setting(
        "auto", "How neighbors are searched; auto = exact up to 30,000 images."
    )
    recall: float = setting(
        0.97,
        "Share of the true neighbors that an approximate search shall find, on a sample, of the same identity where identities are "
        "known; it takes the cheapest way there.",
        meaning="a share",
        above=0,
        high=1,
    )
    recall_of: Literal["same_identity", "all"] = setting(
        "same_identity",
        "Which true neighbors recall is a share of: those of the same identity where identities are known, or all in any case.",
    )


@dataclass(frozen=True)
class MediatorSettings:
    """Who judges a pair, from which inputs, and what it is trained on."""

    mediator: Literal["trees", "mlp", "vote", "similarity"] = setting(
        "trees",
        "Who judges a pair: boosted trees, which are trained in the midst of the unlabeled images and see more; the paper's "
        "network (mlp); the vote of the committee, which needs no labels; or the similarity in all models together, which needs none "
        "either and is what trees become where nobody is known.",
    )
    inputs: tuple[str, ...] = setting(
        ALL_INPUTS, "What the mlp is given; common_neighbors is beyond the paper.", choices=ALL_INPUTS
    )
    evidence: tuple[str, ...] = setting(
        EVIDENCE, "What trees are given about a pair, of every model and of all together.", choices=EVIDENCE
    )
    train_on: Literal["auto", "labeled", "validation"] = setting(
        "auto",
        "Pairs that the mediator is trained on: of the labeled part, as in the paper; of the validation part, which no "
        "network was trained on; auto = validation where the networks were trained on the labeled part, else labeled.",
    )
    passes: int = setting(
        2,
        "With trees: how often pairs are judged; from the second time on also by what was said about their neighborhood.",
        meaning="a number of passes",
        low=1,
        high=9,
    )
    disjoint: bool = setting(
        True,
        "Known and unknown images show different people, so that a pair of both is a negative training pair of trees, and a mistake "
        "while tuning; false = some people may be among both.",
    )
    correction_weight: float = setting(
        10.0,
        "With trees: for how many training pairs a pair counts that corrections say is one identity or two; 0 = corrections bind "
        "groups, and nothing is learned from them.",
        meaning="a weight",
        low=0,
        high=1000,
    )
    similar_above: float = setting(
        0.0,
        "With mediator similarity: how far above random pairs a pair must be, in their standard deviations; 0 = chosen without "
        "labels, where the best F is to be expected.",
        meaning="a number of standard deviations",
        low=0,
        high=100,
    )

    @property
    def is_trained(self) -> bool:
        """Whether the mediator learns from known identities."""
        return self.mediator not in ("vote", "similarity")


@dataclass(frozen=True)
class GroupingSettings:
    """Which pairs are accepted, and how they become groups."""

    threshold: float = setting(
        0.96,
        "With grouping components: pairs of a greater probability are accepted.",
        meaning="a probability",
        low=0,
        high=1,
    )
    quorum: int = setting(
        -1, "In a vote: members that must agree; -1 = all.", meaning="a number of members", low=0, also=-1
    )
    vote_threshold: float = setting(
        -1.0,
        "In a vote: the similarity in the base model must be greater; -1 = any.",
        meaning="a cosine similarity",
        low=-1,
        high=1,
    )
    grouping: Literal["components", "average"] = setting(
        "average",
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
    max_size: int = setting(
        600, "Most images that a pseudo-identity may have.", meaning="a number of images", low=2
    )
    step: float = setting(
        0.1,
        "With grouping components: how fast the threshold rises while a group that is too large is split.",
        meaning="a share",
        above=0,
        below=1,
    )

    @property
    def kept_above(self) -> float:
        """The mediator's probability that a pair must exceed to count when groups are made.

        With grouping average a pair has no bar of its own; one that is far less probable than groups must be on average
        is as good as absent. It is the same for all bars that are tried, so that one agglomeration serves them all.
        """
        return min(_NEGLIGIBLE, self.join_above / 2) if self.grouping == "average" else self.threshold


@dataclass(frozen=True)
class TuningSettings:
    """How the bar (threshold, vote_threshold or join_above) is chosen."""

    tune: bool = setting(
        True,
        "Choose the bar (join_above, threshold or vote_threshold) on known identities among the unlabeled images: "
        "those of the validation part, or some held out of the labeled part.",
    )
    precision: float = setting(
        0.0,
        "While tuning: the share of pairs inside groups that should be right; of the bars that keep it on known identities, the "
        "one with the greatest recall is taken. 0 = the best F instead.",
        meaning="a precision",
        low=0,
        below=1,
    )
    recall_weight: float = setting(
        1.0,
        "While tuning: how many times as important recall is as precision. 1 = pairwise F; with 2 groups mix more, "
        "and fewer identities are split.",
        meaning="a weight",
        low=0.1,
        high=10,
    )


@dataclass(frozen=True)
class SoftLabelSettings:
    """Soft labels beside the hard ones."""

    soft_depth: int = setting(
        0,
        "Steps of diffusion that make soft labels; 0 = hard labels only.",
        meaning="a number of steps",
        low=0,
    )
    soft_decay: float = setting(0.2, "Factor per step of diffusion.", meaning="a share", above=0, high=1)


@dataclass(frozen=True)
class ConsensusSettings(
    SoftLabelSettings, TuningSettings, GroupingSettings, MediatorSettings, SearchSettings
):
    """Candidate pairs, the mediator and the grouping; unless said otherwise as in the preset `best`."""

    preset: Literal["best", "paper"] = setting(
        "best",
        "Where settings that are not given come from: best (what wins by measurement) or paper (the paper to the letter).",
    )

    def __post_init__(self) -> None:
        check_settings(self, getattr(self, "section", ""))
        for key, known in (("inputs", ALL_INPUTS), ("evidence", EVIDENCE)):
            if not getattr(self, key):
                raise InputError(
                    f"{key} is empty: choose at least one of {', '.join(known)}.",
                    code="setting-empty",
                    key=key,
                )
            # In one order, each once, however they were named.
            object.__setattr__(self, key, tuple(name for name in known if name in getattr(self, key)))
        if self.mediator == "similarity" and self.grouping != "average":
            raise InputError(
                'mediator = "similarity" goes with grouping = "average"; change one of them.',
                code="grouping-needs-average",
            )

    @classmethod
    def of(cls, preset: str = "best", **given: Any) -> ConsensusSettings:
        """The settings of a preset, except for those given."""
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
    def bar_key(self) -> str:
        """The setting that decides how much is joined, which tuning chooses."""
        if self.grouping == "average":
            return "join_above"
        return "vote_threshold" if self.mediator == "vote" else "threshold"

    @property
    def bar(self) -> float:
        """Its value."""
        return float(getattr(self, self.bar_key))


PRESETS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "best": MappingProxyType({}),
        "paper": MappingProxyType(
            {
                "mediator": "mlp",
                "inputs": PAPER_INPUTS,
                "train_on": "labeled",
                "grouping": "components",
                "tune": False,
            }
        ),
    }
)
"""What each preset sets otherwise than the defaults above, which are those of `best`."""


def with_preset(given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as given, and the preset's where nothing is given."""
    preset = given.get("preset", "best")
    if preset not in PRESETS:
        known = list(PRESETS)
        raise InputError(
            f"preset = {preset!r}: choose one of {', '.join(known)}.{did_you_mean(str(preset), known)}",
            code="preset-unknown",
            key="preset",
            value=preset,
        )
    return {**PRESETS[preset], **given}


def default_of(name: str, preset: str) -> Any:
    """What a setting is under a preset."""
    return PRESETS[preset].get(name, settings_of(ConsensusSettings)[name].default)
