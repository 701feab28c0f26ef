"""`Collection`: images, identities with stable numbers, scored pairs and corrections.

    faces = Collection.create("faces", "views/unlabeled", labeled=["views/labeled"])
    faces.correct(same(3, 7), named("Anna", 3))
    faces, changes = faces.regroup()                 # seconds; no pair is scored again
    faces, changes = faces.add("views/new")

It is a folder (collection_folder.py), made by creation.py. Opening one reads a card and maps three arrays;
pairs, paths and names are read when they are needed. A `Collection` is a frozen picture of the folder as it
was when it was opened; methods that change the folder return a new one.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np

from cdp.collection.collection_folder import Batch, Chain, State, numbered, open_batch, read_state
from cdp.collection.corrections import (
    JOURNAL,
    Correction,
    append_corrections,
    applicable,
    read_corrections,
    to_constraints,
)
from cdp.collection.numbering import Changes, Event
from cdp.collection.scored_files import read_identities, read_scored
from cdp.errors import CdpError, InputError, StoreError
from cdp.scoring.settings import ConsensusSettings
from cdp.storage.artifacts import CARD, read_array, read_card, read_json, read_json_lines, read_settings
from cdp.storage.files import sweep, write_bytes
from cdp.storage.hashes import hash_values
from cdp.types import ConsensusGraph, Labels, Views
from cdp.types.arrays import ByteArray, FloatArray, IntArray, LongArray
from cdp.types.constraints import Constraints, check_constraints
from cdp.types.labels import number_by_first_appearance
from cdp.types.run_record import Expectation

GROUPS_KIND = "CollectionGroups"
NAMES = "names.json"
ViewsSource = Views | str | Path


class Name(msgspec.Struct, frozen=True):
    """What an identity is called, how sure that is, and who says so: `correction` or `labeled`."""

    name: str
    probability: float = 1.0
    source: str = "correction"


class GroupsFacts(msgspec.Struct):
    """Card of the groups: the number of corrections applied, and the expected quality."""

    entries: int = 0
    expected: Expectation | None = None


@dataclass(frozen=True, eq=False)
class Collection:
    """Images with identities of lasting numbers, their scored pairs and corrections, as stored in one folder.

    Attributes:
        folder: where it is stored.
        state: which parts of the folder are current.
        identity: int32 (n,), the lasting number of every image's identity; -1 = in no group.
        confidence: float32 (n,), as in `Labels`.
        status: uint8 (n,), as in `Labels`.

    Examples:
        >>> import tempfile
        >>> import numpy as np
        >>> from cdp import Collection, Views
        >>> from cdp.collection.corrections import different, named
        >>> rng = np.random.default_rng(0)
        >>> X = np.repeat(rng.normal(size=(40, 64)), 6, axis=0) + 0.5 * rng.normal(size=(240, 64))
        >>> folder = tempfile.TemporaryDirectory()
        >>> faces = Collection.create(folder.name + "/faces", Views(X[:200]))
        >>> faces.correct(different(0, 1), named("Anna", 0))
        [0, 1]
        >>> faces, changes = faces.regroup()
        >>> faces, changes = faces.add(Views(X[200:]))
        >>> faces.n_images, bool(faces.identity[0] == faces.identity[1]), faces.names[int(faces.identity[0])]
        (240, False, 'Anna')
        >>> folder.cleanup()
    """

    folder: Path
    state: State
    identity: IntArray
    confidence: FloatArray
    status: ByteArray

    @classmethod
    def create(cls, folder: str | Path, views: ViewsSource, **options: Any) -> Collection:
        """Label images and write a collection.

        Args:
            folder: to write; whole or not at all.
            views: the images; a path is referred to, views in memory are written into the collection.
            options: `labeled`, `settings`, `names`, `corrections`, `seed`, `force` and `runtime`, as
                `cdp.collection.creation.create_collection` has them.
        """
        from cdp.collection.creation import create_collection

        return create_collection(folder, views, **options)

    @classmethod
    def open(cls, folder: str | Path) -> Collection:
        """Open the collection in a folder, at once, however large it is."""
        return open_collection(folder)

    def add(self, views: ViewsSource, **options: Any) -> tuple[Collection, Changes]:
        """Add images to existing or new identities; return the collection and the changes.

        Args:
            views: the new images, by the same models; a path is referred to, views in memory are written into
                the collection.
            options: `growth`, `corrections`, `images`, `k` and `runtime`, as
                `cdp.collection.extension.extend` has them.
        """
        from cdp.collection.extension import extend

        return extend(self, views, **options)

    def refuse_contradictions(
        self, corrections: Iterable[Correction], before: Iterable[Correction] | None = None
    ) -> None:
        """Refuse corrections that cannot all be kept together with those that count already.

        Args:
            corrections: new ones.
            before: those that count; unless given, the journal is read.

        Raises:
            InputError: the message names the chain.
        """
        if before is None:
            before = applicable(read_corrections(self.folder), self.n_images)
        constraints = to_constraints([*before, *corrections], self.n_images)
        check_constraints(constraints, self.settings.most_images, self.describe)

    def correct(self, *corrections: Correction, source: str = "") -> list[int]:
        """Append corrections to the journal; they count from the next `regroup`, `retrain` or `add` on.

        Returns:
            Their numbers in the journal.
        """
        return append_corrections(self.folder, corrections, source)

    def regroup(self, **options: Any) -> tuple[Collection, Changes]:
        """Recompute the groups with all corrections applied; pair probabilities are reused.

        Args:
            options: `settings` and `growth`, as `cdp.collection.regrouping.regroup` has them.
        """
        from cdp.collection.regrouping import regroup

        return regroup(self, **options)

    def retrain(self, **options: Any) -> tuple[Collection, Changes]:
        """Train trees again with all corrections, score all pairs and recompute the groups.

        Args:
            options: `runtime`.
        """
        from cdp.collection.retraining import retrain

        return retrain(self, **options)

    @property
    def n_images(self) -> int:
        """Number of images; labeled ones that were only learned from are not among them."""
        return len(self.identity)

    @property
    def n_identities(self) -> int:
        """Number of identities that have images now."""
        return len(np.unique(self.identity[self.identity >= 0]))

    @cached_property
    def settings(self) -> ConsensusSettings:
        """How pairs are scored and grouped; `state.threshold` is the threshold that is used."""
        return self.state.consensus_settings

    @cached_property
    def batches(self) -> tuple[Batch, ...]:
        """Where the embeddings are stored, batch by batch, in the order of the images."""
        opened = tuple(open_batch(self.folder, number) for number in self.state.batches)
        found = sum(one.facts.n_images for one in opened)
        if found != self.n_images:
            raise StoreError(
                f"{self.folder / CARD}: its batches have {found:,} images, its groups "
                f"{self.n_images:,}; put back the card that belongs to this folder.",
                code="collection-parts-differ",
                file=self.folder / CARD,
                expected=self.n_images,
                found=found,
            )
        return opened

    @cached_property
    def row_keys(self) -> tuple[str, ...]:
        """Hashes of which image each row is, up to the end of every batch.

        Added images append a key. Where images are removed or embedded again, keys of before are gone.
        """
        keys = [""]
        for batch in self.batches:
            keys.append(hash_values(keys[-1], batch.facts.n_images, batch.facts.models)[:16])
        return tuple(keys[1:])

    @cached_property
    def paths(self) -> Sequence[str] | None:
        """Where the images are, read when asked for; None if any batch does not say."""
        parts = [batch.paths for batch in self.batches]
        return None if None in parts else Chain([one for one in parts if one is not None])

    @cached_property
    def named(self) -> Mapping[int, Name]:
        """Identity -> name, with a probability where it was found among the labeled identities."""
        from cdp.collection.regrouping import restore_names

        file = numbered(self.folder, "groups", self.state.groups) / NAMES
        try:
            names: dict[int, Name] = read_json(file, dict[Annotated[int, msgspec.Meta(ge=0)], Name])
            if max(names, default=-1) >= self.state.next_identity:
                raise StoreError(
                    f"{file} names an identity that is not there.", code="names-identity-unknown", file=file
                )
        except CdpError as error:
            names = restore_names(self)
            with suppress(CdpError):  # a folder that cannot be written can be read all the same
                write_bytes(file, msgspec.json.encode(names))
            warnings.warn(f"{error} The names were restored from the corrections.", stacklevel=2)
        return names

    @property
    def names(self) -> Mapping[int, str]:
        """Identity -> name."""
        return {identity: one.name for identity, one in self.named.items()}

    @property
    def scored_place(self) -> Path:
        """Where the pairs that count now are stored."""
        return numbered(self.folder, "scored", self.state.scored)

    @cached_property
    def scored(self) -> ConsensusGraph:
        """Return the scored pairs that are grouped, with their probabilities before corrections."""
        return self.scored_with_labeled.first_images(self.n_images)

    @property
    def scored_with_labeled(self) -> ConsensusGraph:
        """The same with the labeled images, which follow the others."""
        return read_scored(self.scored_place, self.settings, self.state.threshold)

    @property
    def labeled(self) -> LongArray:
        """Labeled identities of all images, int64 (n + labeled ones,); -1 = unlabeled."""
        return read_identities(self.scored_place)

    @property
    def corrections(self) -> list[Correction]:
        """What counts in the journal now; it may have grown since the groups were made."""
        return applicable(read_corrections(self.folder), self.n_images)

    @property
    def constraints(self) -> Constraints:
        """The corrections as what groups must keep."""
        return to_constraints(self.corrections, self.n_images)

    @property
    def events(self) -> list[Event]:
        """All that happened, in order; damaged lines of this log are left out, and a warning says so."""
        found: list[Event] = []
        for file in sorted((self.folder / "events").glob("*.jsonl")):
            if not file.stem.isdecimal() or int(file.stem) > self.state.groups:
                continue  # a copy that a program made, or what a killed command left
            lines = read_json_lines(file, Event)
            if lines.damaged:
                warnings.warn(
                    f"{file}: {len(lines.damaged)} of {lines.n_lines} lines are damaged and are left out.",
                    stacklevel=2,
                )
            found += lines.values.values()
        return found

    @property
    def labels(self) -> Labels:
        """The groups as labels, numbered 0, 1, 2, … by first appearance."""
        return Labels(number_by_first_appearance(self.identity), self.status, self.confidence)

    @cached_property
    def n_applied(self) -> int:
        """How many entries of the journal the groups were made under; those after them wait for `regroup`."""
        return read_groups_facts(self).entries

    def describe(self, row: int) -> str:
        """Return what messages call an image."""
        return f"image {row}" if self.paths is None else self.paths[row]

    def __repr__(self) -> str:
        alone = int((self.identity < 0).sum())
        return (
            f"Collection: {self.n_images:,} images, {self.n_identities:,} identities, {alone:,} images in no "
            "group"
        )


def read_groups_facts(collection: Collection) -> GroupsFacts:
    """Return what the card of the groups that count now says."""
    groups = numbered(collection.folder, "groups", collection.state.groups)
    return read_settings(groups, read_card(groups, GROUPS_KIND), GroupsFacts)


def open_collection(folder: str | Path) -> Collection:
    """Return the collection in a folder, at once, however large it is.

    Raises:
        InputError: this is no collection.
        StoreError: it is damaged.
    """
    place = Path(folder)
    # A command that was killed while it replaced the folder may have left the old one, with images that were
    # to be forgotten, or only the old one.
    target = place.absolute()
    sweep(target.parent, target.name)
    for folder in (place, place / "faces"):
        sweep(folder)
    with _saying_what_is_kept(place):
        state = read_state(place)
        groups = numbered(place, "groups", state.groups)
        card = read_card(groups, GROUPS_KIND)
        identity, confidence, status = (
            read_array(groups, name, card) for name in ("identity", "confidence", "status")
        )
    if not len(identity) == len(confidence) == len(status) or identity.max(initial=-1) >= state.next_identity:
        raise StoreError(
            f"{place / CARD}: does not fit the groups in {groups}; put back the card that belongs to this "
            "folder.",
            code="collection-parts-differ",
            file=place / CARD,
        )
    return Collection(place, state, identity, confidence, status)


@contextmanager
def _saying_what_is_kept(folder: Path) -> Iterator[None]:
    """Add to an error about the state or the groups of a collection how names and corrections are saved."""
    try:
        yield
    except (StoreError, InputError) as error:
        journal = folder / JOURNAL
        if not journal.is_file() or not journal.stat().st_size:
            raise
        kept = (
            f"Names and corrections are in {journal}: if there is no copy of the folder, label the same "
            "images into a new one, put that file there, and run cdp regroup."
        )
        raise type(error)(f"{error} {kept}", **error.details()) from None
