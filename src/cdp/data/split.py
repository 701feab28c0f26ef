"""Split by identity: labeled, unlabeled and test parts without common identities.

Rotations count as identities of their own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import numpy.typing as npt

from cdp.data.manifest_tables import TABLE_SUFFIXES
from cdp.errors import InputError, StoreError, name_rows
from cdp.storage.files import writing_folder
from cdp.types.arrays import LongArray
from cdp.types.manifest import Manifest

_TESTS = ("validation", "probes", "distractors")


class _SplitSettings(msgspec.Struct):
    """Fields of a split's card needed to read its parts: counts by name, and the table suffix."""

    parts: dict[str, dict[str, int]]
    suffix: Literal[".csv", ".parquet"]


@dataclass(frozen=True, eq=False)
class Split:
    """The parts of one manifest; identities keep the numbers of the whole, and none is in two parts.

    Attributes:
        labeled: the part whose identities may be used.
        unlabeled: the parts that are to be labeled.
        validation: for choosing settings, or None.
        probes: identities with two images or more each, for identification, or None.
        distractors: identities that are not among the probes, or None.
        settings: how the split was made.
        made_from: hash of the manifest that was split.
    """

    labeled: Manifest
    unlabeled: tuple[Manifest, ...]
    validation: Manifest | None = None
    probes: Manifest | None = None
    distractors: Manifest | None = None
    settings: Mapping[str, Any] = field(default_factory=dict, repr=False)
    made_from: Mapping[str, str] = field(default_factory=dict, repr=False)

    def parts(self) -> Iterator[tuple[str, Manifest]]:
        """Return (name, manifest) of every part."""
        yield "labeled", self.labeled
        width = len(str(len(self.unlabeled)))
        for number, part in enumerate(self.unlabeled, start=1):
            yield f"unlabeled{number:0{width}d}", part
        for name in _TESTS:
            part = getattr(self, name)
            if part is not None:
                yield name, part

    def save(self, path: str | Path, *, force: bool = False, suffix: str = ".csv") -> None:
        """Write one table per part and a card, all or nothing."""
        with writing_folder(path, force=force, kind="Split") as folder:
            self.fill(folder, suffix)

    def fill(self, folder: Path, suffix: str = ".csv") -> None:
        """Write the tables and the card into a folder that is being written."""
        from cdp.storage.artifacts import write_card

        if suffix not in TABLE_SUFFIXES:
            raise InputError(
                f"{suffix}: parts are written as {' or '.join(TABLE_SUFFIXES)}.",
                code="split-suffix-unknown",
                suffix=suffix,
            )
        for name, part in self.parts():
            part.save(folder / f"{name}{suffix}")
        counts = {
            name: {"images": part.n_images, "identities": part.n_identities} for name, part in self.parts()
        }
        settings = {**self.settings, "parts": counts, "suffix": suffix}
        write_card(folder, "Split", repr(self), settings, self.made_from)

    @classmethod
    def load(cls, path: str | Path) -> Split:
        """Return the parts from a folder that `save` wrote."""
        from cdp.storage.artifacts import read_card, read_settings

        folder = Path(path)
        card = read_card(folder, "Split")
        tables = read_settings(folder, card, _SplitSettings)
        if "labeled" not in tables.parts:
            raise StoreError(
                f"{folder / 'card.json'} is damaged (no labeled part); make this folder again.",
                code="split-card-damaged",
                file=folder / "card.json",
            )
        parts = {name: Manifest.load(folder / f"{name}{tables.suffix}") for name in tables.parts}
        settings = {name: value for name, value in card.settings.items() if name not in ("parts", "suffix")}
        return cls._of(parts, settings, card.made_from)

    @classmethod
    def _of(
        cls, parts: Mapping[str, Manifest], settings: Mapping[str, Any], made_from: Mapping[str, str]
    ) -> Split:
        unlabeled = tuple(part for name, part in parts.items() if name.startswith("unlabeled"))
        tests = {name: parts.get(name) for name in _TESTS}
        return cls(parts["labeled"], unlabeled, **tests, settings=settings, made_from=made_from)

    def __repr__(self) -> str:
        tests = "".join(f", {name}" for name in _TESTS if getattr(self, name) is not None)
        n_unlabeled = sum(part.n_images for part in self.unlabeled)
        return (
            f"Split: {self.labeled.n_images:,} labeled images of {self.labeled.n_identities:,} identities, "
            f"{n_unlabeled:,} unlabeled in {len(self.unlabeled)} parts{tests}"
        )


def split_by_identity(
    manifest: Manifest,
    *,
    labeled: float = 1 / 11,
    unlabeled_parts: int = 10,
    validation: float = 0.0,
    probes: float = 0.0,
    distractors: float = 0.0,
    seed: int = 0,
    family: npt.ArrayLike | None = None,
) -> Split:
    """Split a manifest by identity into parts balanced by images.

    Validation, probes and distractors are taken out first, as shares of all images. `labeled` is the labeled
    share of what remains, and the rest makes equal unlabeled parts: so 1/11 and 10 give eleven equal parts
    whatever was taken out before. Rows keep their order inside a part.

    Families are assigned from the largest to the smallest, those of one size in random order, each to the
    part that is then least full for its share; so parts also resemble each other in the sizes of identities.

    Args:
        manifest: images that all have an identity.
        labeled: share of the labeled part.
        unlabeled_parts: number of equal unlabeled parts.
        validation: share of a part for choosing settings.
        probes: share of the identities to be searched; only those with two images or more come here.
        distractors: share of the identities that they are searched among.
        seed: which of the equally good splits.
        family: one value per row; rows of one value stay together. Otherwise identities that share a
            picture, such as its rotations, stay together.

    Examples:
        >>> import numpy as np
        >>> from cdp import Manifest, split_by_identity
        >>> images = Manifest(tuple(f"{row}.jpg" for row in range(60)), np.arange(60) // 3)
        >>> split = split_by_identity(images, labeled=1 / 4, unlabeled_parts=3)
        >>> split.labeled.n_images, [part.n_images for part in split.unlabeled]
        (15, [15, 15, 15])
    """
    shares = _shares(labeled, unlabeled_parts, validation, probes, distractors)
    _check_identities(manifest)
    family_of = families(manifest) if family is None else _family_numbers(manifest, family)
    part_of = _assign(manifest, family_of, shares, seed)[family_of]
    parts = {}
    for number, name in enumerate(shares):
        kept = part_of == number
        if not kept.any():
            n_families = int(family_of.max()) + 1
            raise InputError(
                f"{name} would be empty: {n_families:,} identities (or families) cannot fill "
                f"{len(shares)} parts; use fewer parts or larger shares.",
                code="split-part-empty",
                part=name,
            )
        parts[name] = manifest.take(kept)
    settings = {"labeled": labeled, "unlabeled_parts": unlabeled_parts, "validation": validation}
    settings |= {"probes": probes, "distractors": distractors, "seed": seed}
    return Split._of(parts, settings, {"manifest": manifest.digest})


def _check_identities(manifest: Manifest) -> None:
    rows = np.flatnonzero(manifest.identities < 0)
    if rows.size:
        raise InputError(
            f"{name_rows(rows)} (counted from 0) have no identity, so they could end in several parts; "
            "leave these images out of the split.",
            code="split-identities-missing",
            row=rows[0],
            count=len(rows),
        )
    if manifest.n_identities == 1:
        raise InputError(
            "There is one identity only; a split needs at least one for every part.",
            code="split-one-identity",
        )


def _shares(
    labeled: float, unlabeled_parts: int, validation: float, probes: float, distractors: float
) -> dict[str, float]:
    """Part -> share of all images, only those that are wanted."""
    given = {"labeled": labeled, "validation": validation, "probes": probes, "distractors": distractors}
    for name, share in given.items():
        if not 0 <= share <= 1:
            raise InputError(
                f"{name}={share:g}: a share is a number from 0 to 1, e.g. 1/11.",
                code="split-share-out-of-range",
                key=name,
                value=share,
            )
    if labeled == 0:
        raise InputError(
            "labeled=0: nothing would be labeled; give a share such as 1/11.",
            code="split-labeled-zero",
            key="labeled",
        )
    if unlabeled_parts < 0:
        raise InputError(
            f"unlabeled_parts={unlabeled_parts}: use 0, 1, 2, … parts.",
            code="split-parts-negative",
            key="unlabeled_parts",
            value=unlabeled_parts,
        )
    if (labeled == 1) != (unlabeled_parts == 0):
        raise InputError(
            f"labeled={labeled:g} with unlabeled_parts={unlabeled_parts}: labeled = 1 and unlabeled_parts "
            "= 0 go together.",
            code="split-labeled-and-parts-differ",
            labeled=labeled,
            unlabeled_parts=unlabeled_parts,
        )
    remains = 1 - validation - probes - distractors
    if remains <= 0:
        raise InputError(
            f"validation, probes and distractors take {1 - remains:g} of all images; leave something for the "
            "rest.",
            code="split-shares-too-large",
            found=1 - remains,
        )
    each = (1 - labeled) * remains / max(1, unlabeled_parts)
    shares = {"labeled": labeled * remains}
    shares |= {f"unlabeled{number}": each for number in range(1, unlabeled_parts + 1)}
    return shares | {name: given[name] for name in _TESTS if given[name] > 0}


def _family_numbers(manifest: Manifest, family: npt.ArrayLike) -> LongArray:
    given = np.asarray(family)
    if given.shape != (manifest.n_images,):
        raise InputError(
            f"family has shape {given.shape} for {manifest.n_images:,} images; one per row is needed.",
            code="split-family-shape-wrong",
            expected=manifest.n_images,
            found=given.shape,
        )
    numbers = np.unique(given, return_inverse=True)[1].astype(np.int64)
    pairs = np.unique(np.stack([manifest.classes, numbers], axis=1), axis=0)
    torn = pairs[1:][np.diff(pairs[:, 0]) == 0]
    if len(torn):
        row = int(np.flatnonzero(manifest.classes == torn[0, 0])[0])
        raise InputError(
            f"Identity {manifest.identities[row]} is in two families, so it could end in two parts; "
            "give all its images one family.",
            code="split-identity-two-families",
            row=row,
            identity=manifest.identities[row],
        )
    return numbers


def _assign(manifest: Manifest, family_of: LongArray, shares: dict[str, float], seed: int) -> LongArray:
    """Part number of every family."""
    sizes = np.bincount(family_of)
    # An identity with one image has no second one to be found.
    single = np.bincount(family_of, manifest.sizes[manifest.classes] < 2, len(sizes)) > 0
    shuffled = np.random.default_rng(seed).permutation(len(sizes))
    order = shuffled[np.lexsort((-sizes[shuffled], single[shuffled]))]
    targets = {name: share * manifest.n_images for name, share in shares.items()}
    others = [name for name in shares if name != "probes"]
    # The other parts reserve space for what cannot be probes, else the probes would stay behind their share.
    reserved = float(sizes[single].sum()) / sum(targets[name] for name in others)
    filled = {name: 0.0 if name == "probes" else reserved * targets[name] for name in shares}
    numbers = {name: number for number, name in enumerate(shares)}
    part_of = np.empty(len(sizes), np.int64)
    seen_single = False
    for one in order.tolist():
        if single[one] and not seen_single:
            seen_single = True
            for name in others:
                filled[name] -= reserved * targets[name]
        size = int(sizes[one])
        part = min(others if seen_single else shares, key=lambda name: (filled[name] + size) / targets[name])
        filled[part] += size
        part_of[one] = numbers[part]
    return part_of


def rotated(manifest: Manifest) -> Manifest:
    """Return every image turned by 0, 90, 180 and 270 degrees, each turn as an identity of its own.

    Row r + t n is row r turned t times counterclockwise; identity i becomes 4 i + t. The four stay one family
    (see `families`), so that a split keeps them in one part.
    """
    if manifest.turns is not None:
        raise InputError(
            "These images are turned already; rotate the manifest they were made from.",
            code="manifest-turned-already",
        )
    turns = np.repeat(np.arange(4), manifest.n_images)
    identities = np.tile(manifest.identities, 4)
    names = None
    if manifest.names is not None:
        names = tuple(f"{name} turned {90 * turn}" for name in manifest.names for turn in range(4))
    return Manifest(
        locations=manifest.locations * 4,
        identities=np.where(identities < 0, -1, 4 * identities + turns),
        names=names,
        root=manifest.root,
        turns=turns.astype(np.uint8),
    )


def families(manifest: Manifest) -> LongArray:
    """Return a family number per row, int64 (n,), for identities that share a picture.

    Two identities are of one family if some picture belongs to both, as with rotations; families grow along
    such ties. Without shared pictures every identity is its own family. Images without identity get -1.
    """
    classes = manifest.classes
    if len(set(manifest.locations)) == manifest.n_images:
        return classes
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    numbers: dict[str, int] = {}
    pictures = np.array([numbers.setdefault(path, len(numbers)) for path in manifest.locations], np.int64)
    known = classes >= 0
    n_nodes = manifest.n_identities + len(numbers)
    ties = (classes[known], manifest.n_identities + pictures[known])
    graph = coo_array((np.ones(len(ties[0]), np.int8), ties), shape=(n_nodes, n_nodes))
    family_of = connected_components(graph, directed=False)[1].astype(np.int64)
    return np.where(known, family_of[np.maximum(classes, 0)], -1)
