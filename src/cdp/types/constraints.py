"""Constraints on groups: what is known to be one identity, what is known not to be, and whose image it is.

They are no hints: whatever makes groups keeps them (grouping/union_find.py), or refuses with a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeVar

import numpy as np
from scipy import sparse
from scipy.sparse import csgraph

from cdp.errors import InputError, name_rows
from cdp.types import ConsensusGraph
from cdp.types.arrays import AnyArray, BoolArray, IntArray, LongArray, read_only

Describe = Callable[[int], str]
Graph = TypeVar("Graph", bound=ConsensusGraph)
"""How messages call an image: by its row, or by its path."""


@dataclass(frozen=True, eq=False)
class Constraints:
    """What groups must keep.

    Attributes:
        n_images: how many images the rows are drawn from.
        must: int32 (m, 2), pairs of images that are one identity.
        cannot: int32 (m, 2), pairs of images that are two identities.
        named: row -> name; images of two names are two identities, images of one name are one, unless they
            are said to differ.
        rejected: int32 (r,), images that belong to no group.
    """

    n_images: int
    must: AnyArray = field(default_factory=lambda: np.empty((0, 2), np.int32))
    cannot: AnyArray = field(default_factory=lambda: np.empty((0, 2), np.int32))
    named: Mapping[int, str] = field(default_factory=dict)
    rejected: AnyArray = field(default_factory=lambda: np.empty(0, np.int32))

    def __post_init__(self) -> None:
        for name in ("must", "cannot"):
            pairs = np.asarray(getattr(self, name), np.int64).reshape(-1, 2)
            self._check_rows(pairs.ravel())
            if name == "cannot" and (same := np.flatnonzero(pairs[:, 0] == pairs[:, 1])).size:
                raise InputError(
                    f"Constraints: image {pairs[same[0], 0]} cannot differ from itself.",
                    code="constraints-image-differs-from-itself",
                    image=pairs[same[0], 0],
                )
            pairs = np.sort(pairs[pairs[:, 0] != pairs[:, 1]], axis=1)
            object.__setattr__(self, name, read_only(np.unique(pairs, axis=0), np.int32))
        rejected = np.unique(np.asarray(self.rejected, np.int64))
        self._check_rows(rejected)
        object.__setattr__(self, "rejected", read_only(rejected, np.int32))
        named = {int(row): str(name) for row, name in sorted(self.named.items())}
        self._check_rows(np.fromiter(named, np.int64, len(named)))
        object.__setattr__(self, "named", MappingProxyType(named))

    def _check_rows(self, rows: AnyArray) -> None:
        wrong = np.unique(rows[(rows < 0) | (rows >= self.n_images)])
        if wrong.size:
            raise InputError(
                f"Constraints: {name_rows(wrong)} (counted from 0) are none of the {self.n_images:,} images.",
                code="constraints-images-unknown",
                row=wrong[0],
                count=len(wrong),
                n_images=self.n_images,
            )

    def __len__(self) -> int:
        return len(self.must) + len(self.cannot) + len(self.named) + len(self.rejected)

    def among(self, n_images: int) -> Constraints:
        """Extend the constraints to more images."""
        return Constraints(n_images, self.must, self.cannot, self.named, self.rejected)

    @property
    def name_of(self) -> IntArray:
        """The number of every named image's person, int32 (n,); -1 = not named.

        Images of one name are one person, unless some of them are said to be different: two people may have
        the same name. Then an image goes to the first of these people that nothing keeps it from.
        """
        found = np.full(self.n_images, -1, np.int32)
        part = self._certain_parts()
        cannot: dict[int, set[int]] = {}
        for one, other in part[self.cannot].tolist():
            cannot.setdefault(one, set()).add(other)
            cannot.setdefault(other, set()).add(one)
        people: dict[str, list[set[int]]] = {}
        number: dict[tuple[str, int], int] = {}
        for row, name in sorted(self.named.items(), key=lambda item: (item[1], item[0])):
            own, apart = int(part[row]), cannot.get(int(part[row]), set())
            known = people.setdefault(name, [])
            at = next((at for at, parts in enumerate(known) if own in parts or not apart & parts), len(known))
            if at == len(known):
                known.append(set())
            known[at].add(own)
            found[row] = number.setdefault((name, at), len(number))
        return found

    def _certain_parts(self) -> IntArray:
        """For every image a number that it shares with all that it is said to be the same as, names aside."""
        if not len(self.cannot) or not self.named:
            return np.arange(self.n_images, dtype=np.int32)
        shape = (self.n_images, self.n_images)
        graph = sparse.coo_array(
            (np.ones(len(self.must), np.int8), (self.must[:, 0], self.must[:, 1])), shape
        )
        number: IntArray = csgraph.connected_components(graph, directed=False)[1]
        return number

    @property
    def links(self) -> IntArray:
        """Pairs that must be together, those of one name among them: a chain through every name's images."""
        rows = np.fromiter(self.named, np.int32, len(self.named))
        name = self.name_of[rows]
        order = np.argsort(name, kind="stable")
        rows, name = rows[order], name[order]
        is_next = name[1:] == name[:-1]
        return np.concatenate([self.must, np.stack([rows[:-1][is_next], rows[1:][is_next]], axis=1)])

    def __repr__(self) -> str:
        return (
            f"Constraints: {len(self.must):,} pairs together, {len(self.cannot):,} apart, "
            f"{len(self.named):,} images named, {len(self.rejected):,} rejected"
        )


def keep_identities(constraints: Constraints | None, identities: LongArray) -> Constraints:
    """Add that images of one identity are together and of two apart; -1 = nothing is known.

    Args:
        constraints: others to keep.
        identities: int64 (n,).
    """
    before = constraints or Constraints(len(identities))
    rows = np.flatnonzero(identities >= 0)
    rows = rows[np.argsort(identities[rows], kind="stable")]
    is_same = identities[rows[1:]] == identities[rows[:-1]]
    together = np.stack([rows[:-1][is_same], rows[1:][is_same]], axis=1)
    first = rows[np.append(True, ~is_same)] if len(rows) else rows
    apart = np.stack(np.triu_indices(len(first), 1), axis=1)
    return Constraints(
        len(identities),
        np.concatenate([before.must, together]),
        np.concatenate([before.cannot, first[apart]]),
        before.named,
        before.rejected,
    )


def join_certain(constraints: Constraints) -> IntArray:
    """For every image a number that it shares with all that must be with it, int32 (n,)."""
    links = constraints.links
    shape = (constraints.n_images, constraints.n_images)
    graph = sparse.coo_array((np.ones(len(links), np.int8), (links[:, 0], links[:, 1])), shape)
    number: IntArray = csgraph.connected_components(graph, directed=False)[1]
    return number


@dataclass(frozen=True)
class Contradiction:
    """Corrections that cannot all be true.

    Attributes:
        chain: images that are said to be one identity, each linked to the next.
        what: what is said of the first and the last of them.
    """

    chain: tuple[int, ...]
    what: str

    def sentence(self, describe: Describe = lambda row: f"image {row}") -> str:
        """Describe the contradiction, and what to do."""
        chain = " = ".join(map(describe, self.chain))
        said = f", and {chain} are said to be the same" if len(self.chain) > 1 else ""
        first, last = describe(self.chain[0]), describe(self.chain[-1])
        return (
            f"Corrections contradict each other: {self.what.format(first=first, last=last)}{said}; undo one "
            "of them."
        )


def find_contradiction(constraints: Constraints) -> Contradiction | None:
    """Find the first contradictory constraints, with their chain of images; None if consistent."""
    atom = join_certain(constraints)
    rejected = constraints.rejected
    linked = np.isin(rejected, constraints.must)
    if linked.any():
        row = int(rejected[linked][0])
        pair = constraints.must[(constraints.must == row).any(axis=1)][0]
        return Contradiction((row, int(pair.sum()) - row), "{first} is said to be in no group")
    if both := sorted(set(rejected.tolist()) & set(constraints.named)):
        name = _braced(constraints.named[both[0]])
        return Contradiction((both[0],), f"{{first}} is named {name} and said to be in no group")
    broken = np.flatnonzero(atom[constraints.cannot[:, 0]] == atom[constraints.cannot[:, 1]])
    if broken.size:
        one, other = constraints.cannot[broken[0]].tolist()
        return Contradiction(_chain(constraints, one, other), "{first} and {last} are said to be different")
    first_of: dict[int, int] = {}
    for row, name in constraints.named.items():
        other = first_of.setdefault(int(atom[row]), row)
        if constraints.named[other] != name:
            names = _braced(constraints.named[other]), _braced(name)
            what = f"{{first}} is named {names[0]} and {{last}} is named {names[1]}"
            return Contradiction(_chain(constraints, other, row), what)
    return None


def _braced(name: str) -> str:
    return repr(name).replace("{", "{{").replace("}", "}}")


def _chain(constraints: Constraints, one: int, other: int) -> tuple[int, ...]:
    """Find the shortest path from one image to another over pairs that must be together."""
    links = constraints.links
    shape = (constraints.n_images, constraints.n_images)
    graph = sparse.coo_array((np.ones(len(links), np.int8), (links[:, 0], links[:, 1])), shape).tocsr()
    before = csgraph.breadth_first_order(graph, one, directed=False)[1]
    way = [other]
    while way[-1] != one:
        way.append(int(before[way[-1]]))
    return tuple(reversed(way))


def check_constraints(
    constraints: Constraints, max_cluster_size: int, describe: Describe = lambda row: f"image {row}"
) -> None:
    """Refuse constraints that no groups can keep."""
    found = find_contradiction(constraints)
    if found is not None:
        raise InputError(found.sentence(describe), code="corrections-contradict", images=found.chain)
    atom = join_certain(constraints)
    sizes = np.bincount(atom, minlength=1)
    if sizes.max() > max_cluster_size:
        row = int(np.flatnonzero(atom == sizes.argmax())[0])
        raise InputError(
            f"Corrections merge {sizes.max():,} images into one identity (among them {describe(row)}), "
            f"more than max_cluster_size = {max_cluster_size:,}; set it to {sizes.max():,} or more.",
            code="corrections-exceed-max-cluster-size",
            image=row,
            found=sizes.max(),
            max_cluster_size=max_cluster_size,
        )


def said_of_pairs(ids: IntArray, constraints: Constraints) -> IntArray:
    """Look up pairs of images in the constraints, int32 (m,): 1 = one identity, -1 = two, 0 = unknown.

    What follows from them counts too: of a = b and b = c also a = c, of a = b and b != c also a != c.
    """
    return what_is_said(constraints)(ids)


def what_is_said(constraints: Constraints) -> Callable[[IntArray], IntArray]:
    """`said_of_pairs` for many blocks of pairs."""
    atom = join_certain(constraints).astype(np.int64)
    rows = list(constraints.named)
    name = np.full(int(atom.max(initial=-1)) + 1, -1, np.int64)
    name[atom[rows]] = constraints.name_of[rows]
    cannot = np.sort(atom[constraints.cannot], axis=1)

    def say(ids: IntArray) -> IntArray:
        ends = np.sort(atom[ids], axis=1)
        names = name[ends]
        apart = are_among(ends, cannot)
        apart |= (names >= 0).all(axis=1) & (names[:, 0] != names[:, 1])
        return np.where(ends[:, 0] == ends[:, 1], 1, np.where(apart, -1, 0)).astype(np.int32)

    return say


def constrain_parts(constraints: Constraints, part: IntArray) -> Constraints:
    """Lift constraints on images to the parts of a partition; constraints inside one part are dropped.

    Two parts must be together if an image of one must be with an image of the other, and so on for the other
    kinds.

    Args:
        constraints: on n images.
        part: int (n,), the part of every image, 0..C-1.
    """
    n_parts = int(part.max(initial=-1)) + 1
    cannot = part[constraints.cannot]
    return Constraints(
        n_parts,
        part[constraints.links],
        cannot[cannot[:, 0] != cannot[:, 1]],
        {int(part[row]): name for row, name in constraints.named.items()},
        part[constraints.rejected],
    )


def leave_out(graph: Graph, constraints: Constraints) -> Graph:
    """Return the scored pairs except those that cannot be, and those of rejected images."""
    is_rejected = np.zeros(graph.n_images, np.bool_)
    is_rejected[constraints.rejected] = True
    kept = ~(are_among(graph.ids, constraints.cannot) | is_rejected[graph.ids].any(axis=1))
    return replace(graph, ids=graph.ids[kept], doubt=graph.doubt[kept])


def confirm(graph: Graph, constraints: Constraints) -> Graph:
    """Apply corrections to scored pairs: no doubt where they must be, left out where they cannot."""
    graph = leave_out(graph, constraints)
    links = np.sort(constraints.links, axis=1)
    doubt = np.concatenate([graph.doubt, np.zeros(len(links), graph.doubt.dtype)])
    # Of a pair that is there twice the surer one is kept.
    return replace(graph, ids=np.concatenate([graph.ids, links]), doubt=doubt)


def are_among(ids: AnyArray, pairs: AnyArray) -> BoolArray:
    """Whether each pair is one of others; all have the smaller image first."""

    def keys(of: AnyArray) -> AnyArray:
        return of[:, 0].astype(np.int64) << 32 | of[:, 1]

    found: BoolArray = np.isin(keys(ids), keys(pairs))
    return found
