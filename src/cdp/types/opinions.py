"""Opinions: what the committee has to say about each candidate pair (paper, section 3.1.ii)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from cdp.errors import InputError
from cdp.input_blocks import ALL_INPUTS, PAPER_INPUTS
from cdp.types.arrays import BoolArray, FloatArray, read_only


@dataclass(frozen=True, eq=False)
class Opinions:
    """The pair features of m pairs from a base model (C_0) and N committee members (C_1..C_N).

    Attributes:
        relationship: bool (m, N): is the pair an edge in C_i's graph?
        affinity: float32 (m, N+1): cosine similarity in C_0..C_N.
        mean: float32 (m, 2(N+1)): mean similarity to the neighbors, of the first image in C_0..C_N, then of
            the second.
        spread: float32 (m, 2(N+1)): standard deviation of the same.
        common_neighbors: float32 (m, N+1): number of neighbors the two images share, or None.
        committee: names of C_1..C_N.
    """

    relationship: BoolArray
    affinity: FloatArray
    mean: FloatArray
    spread: FloatArray
    common_neighbors: FloatArray | None
    committee: tuple[str, ...]

    def __post_init__(self) -> None:
        n_pairs, n_models = self.affinity.shape
        shapes = {
            "relationship": (n_pairs, n_models - 1),
            "affinity": (n_pairs, n_models),
            "mean": (n_pairs, 2 * n_models),
            "spread": (n_pairs, 2 * n_models),
            "common_neighbors": (n_pairs, n_models),
        }
        for name, shape in shapes.items():
            block = getattr(self, name)
            if block is None and name == "common_neighbors":
                continue
            if block.shape != shape:
                raise InputError(
                    f"Opinions: {name} has shape {block.shape}, expected {shape}.",
                    code="opinions-shape-wrong",
                    block=name,
                    expected=shape,
                    found=block.shape,
                )
            object.__setattr__(self, name, read_only(block))
        if len(self.committee) != n_models - 1:
            raise InputError(
                f"Opinions: {len(self.committee)} names for {n_models - 1} committee members.",
                code="opinions-names-differ",
                expected=n_models - 1,
                found=len(self.committee),
            )

    def __len__(self) -> int:
        return int(self.affinity.shape[0])

    def matrix(self, inputs: Sequence[str] = PAPER_INPUTS) -> FloatArray:
        """Return the mediator's input, float32 (m, 6N+5) for the paper's blocks, in the paper's order."""
        blocks: dict[str, list[FloatArray | BoolArray | None]] = {
            "relationship": [self.relationship],
            "affinity": [self.affinity],
            "distribution": [self.mean, self.spread],
            "common_neighbors": [self.common_neighbors],
        }
        wanted = [block for name in check_inputs(inputs) for block in blocks[name]]
        if any(block is None for block in wanted):
            raise InputError(
                "Opinions: common neighbors were not collected; ask for them in `inputs`.",
                code="opinions-common-missing",
            )
        return np.concatenate([block for block in wanted if block is not None], axis=1, dtype=np.float32)


def check_inputs(inputs: Iterable[str]) -> tuple[str, ...]:
    """Return the input blocks in the paper's order, or an error that names the odd one."""
    given = (inputs,) if isinstance(inputs, str) else tuple(inputs)
    for name in given:
        if name not in ALL_INPUTS:
            raise InputError(
                f"inputs: {name!r} is not an input block; choose from {', '.join(ALL_INPUTS)}.",
                code="inputs-unknown",
                key="inputs",
                value=name,
            )
    if not given:
        raise InputError(
            f"inputs: choose at least one of {', '.join(ALL_INPUTS)}.", code="inputs-empty", key="inputs"
        )
    return tuple(name for name in ALL_INPUTS if name in given)


def column_names(committee: Sequence[str], inputs: Sequence[str] = PAPER_INPUTS) -> list[str]:
    """Return a name for every column of `Opinions.matrix`, e.g. `affinity(base)` or `mean(second, sface)`."""
    models = ["base", *committee]
    names = {
        "relationship": [f"relationship({model})" for model in committee],
        "affinity": [f"affinity({model})" for model in models],
        "distribution": [
            f"{statistic}({end}, {model})"
            for statistic in ("mean", "spread")
            for end in ("first", "second")
            for model in models
        ],
        "common_neighbors": [f"common_neighbors({model})" for model in models],
    }
    return [column for block in check_inputs(inputs) for column in names[block]]


def block_columns(committee: Sequence[str], inputs: Sequence[str] = PAPER_INPUTS) -> dict[str, list[int]]:
    """Return which columns of `Opinions.matrix` each input block takes, in their order."""
    columns: dict[str, list[int]] = {}
    start = 0
    for block in check_inputs(inputs):
        stop = start + len(column_names(committee, [block]))
        columns[block] = list(range(start, stop))
        start = stop
    return columns
