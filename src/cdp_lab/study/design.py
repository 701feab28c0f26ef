"""What a study is: variants of a recipe, what is read from each run, and how it is shown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from cdp.config.sections import RunRecipe
from cdp.errors import InputError
from cdp.run.plan import make_stages
from cdp.run.runner import Ran
from cdp.run.sources import ResolvedRecipe
from cdp.run.stages import Stage

Kind = Literal["share", "count", "seconds", "bytes", "number"]
Figures = Mapping[str, float | None]


@dataclass(frozen=True)
class Column:
    """A figure of every row.

    Attributes:
        kind: how it is written.
        better: which end is better; empty = neither.
    """

    key: str
    title: str
    kind: Kind = "share"
    better: Literal["high", "low", ""] = "high"


@dataclass(frozen=True)
class Measure:
    """One row of one run: the words that name it, and its figures."""

    cells: tuple[str, ...]
    figures: Figures


@dataclass(frozen=True)
class Finished:
    """A run that is done: its folder, its recipe and its stages."""

    folder: Path
    recipe: RunRecipe
    ran: Sequence[Ran]


@dataclass(frozen=True)
class Variant:
    """One of the things a study compares.

    Attributes:
        slug: of its folder, and of `--variants`.
        overrides: `section.key` -> value, on the study's recipe.
        wanted: the artifacts that its figures are read from; nothing else is made.
        read: its rows, from a finished run.
        stages: of a run; those of `cdp run` unless the study has its own.
        extra: further plain values for pictures, from the first seed's run.
    """

    slug: str
    overrides: Mapping[str, Any]
    wanted: tuple[str, ...]
    read: Callable[[Finished], list[Measure]]
    stages: Callable[[ResolvedRecipe], list[Stage]] = make_stages
    extra: Callable[[Finished], dict[str, Any]] | None = None


@dataclass(frozen=True)
class Options:
    """Settings of a study in addition to the recipe.

    Attributes:
        sizes: numbers of images, for `runtime`.
        methods: names, for `baselines`; None = all that need no extra.
        pair_recall: share of the true candidate pairs that every committee accepts, for `committee_size`; the
            paper's.
    """

    sizes: tuple[int, ...] = (10_000, 20_000, 40_000, 80_000)
    methods: tuple[str, ...] | None = None
    pair_recall: float = 0.313

    def __post_init__(self) -> None:
        if not 0 <= self.pair_recall <= 1:
            raise InputError(
                f"pair_recall = {self.pair_recall}: a share from 0 to 1.",
                code="pair-recall-out-of-range",
                key="pair_recall",
                value=self.pair_recall,
            )


@dataclass(frozen=True)
class Paper:
    """The paper's numbers, as printed there; the first `words` columns are words."""

    source: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    words: int = 1


@dataclass(frozen=True)
class Plot:
    """A picture of one column.

    Attributes:
        kind: `bars`, one per row; or `lines` over the first cell, one per value of the others.
        axis: what the first cell is.
    """

    column: str
    kind: Literal["bars", "lines"] = "bars"
    axis: str = ""


@dataclass(frozen=True)
class Study:
    """A table or figure of the paper.

    Attributes:
        columns: figures, which may depend on the recipe.
        main: the column that rows are compared by.
        n_shared_cells: number of leading cells that rows must share to be compared with one another.
        bounds: the rows below and above the row of these cells, between which `gap` is the share it has
            reached of the main column; None = the row is itself a bound.
        paper: its numbers, if it has any.
        fits: columns whose growth with the number of images (the last cell) is fitted.
    """

    name: str
    title: str
    heads: tuple[str, ...]
    columns: Callable[[RunRecipe], list[Column]]
    main: str
    variants: Callable[[RunRecipe, Options], list[Variant]]
    n_shared_cells: int = 0
    bounds: Callable[[tuple[str, ...]], tuple[tuple[str, ...], tuple[str, ...]] | None] | None = None
    paper: Paper | None = None
    plots: tuple[Plot, ...] = ()
    fits: tuple[str, ...] = ()
    reading: str = ""
