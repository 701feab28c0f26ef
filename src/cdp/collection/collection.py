"""A collection: images, their identities with numbers that last, what judged their pairs, and what people said about them.

    collection = create_collection("faces", "views/unlabeled", labeled=["views/labeled"])
    append_corrections("faces", [same(3, 7), named("Anna", 3)], source="review")
    collection, changes = regroup(collection)              # "Apply": seconds, nothing is judged again
    collection, changes = extend(collection, "views/new")  # extension.py

It is a folder (collection_folder.py). Opening one reads a card and maps three arrays; pairs, paths and names are read when they are asked for.
A `Collection` is a frozen picture of the folder as it was when it was opened; whatever changes it returns a new one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from cdp.collection.collection_folder import (
    KIND,
    Batch,
    Chain,
    Parts,
    changing,
    numbered,
    open_batch,
    read_parts,
    switch_to,
    write_batch,
)
from cdp.collection.corrections import (
    Correction,
    active_corrections,
    append_corrections,
    read_corrections,
    read_journal,
    to_constraints,
)
from cdp.collection.judged_files import read_known, read_scored, write_judged
from cdp.collection.known_people import look_up_people
from cdp.collection.numbering import Changes, Event, carry_numbers, describe_changes
from cdp.consensus.constraints import Constraints, check_constraints
from cdp.consensus.grouping import group
from cdp.consensus.settings import ConsensusSettings, plain
from cdp.data.views import read_views
from cdp.errors import InputError
from cdp.files import write_bytes, writing_folder
from cdp.labeling.expectation import calibrate
from cdp.labeling.pipeline import label
from cdp.labeling.workspace import Workspace
from cdp.store import read_array, read_card, read_settings, write_card
from cdp.types import ConsensusGraph, Fate, Labels, Views
from cdp.types.arrays import AnyArray, ByteArray, FloatArray, IntArray, LongArray
from cdp.types.labels import number_by_first_appearance

GROUPS_KIND = "CollectionGroups"
ViewsSource = Views | str | Path


class Name(msgspec.Struct, frozen=True):
    """What an identity is called, how sure that is, and who says so: `correction` or `known`."""

    name: str
    probability: float = 1.0
    source: str = "correction"


class _GroupsFacts(msgspec.Struct):
    """What the card of groups says: how many entries of the journal they were made under."""

    entries: int = 0


@dataclass(frozen=True, eq=False)
class Collection:
    """A collection as it was when it was opened.

    Attributes:
        folder: where it lies.
        parts: what of the folder counts.
        identity: int32 (n,), the lasting number of every image's identity; -1 = in no group.
        confidence: float32 (n,), as in `Labels`.
        fate: uint8 (n,), as in `Labels`.
    """

    folder: Path
    parts: Parts
    identity: IntArray
    confidence: FloatArray
    fate: ByteArray

    @property
    def n_images(self) -> int:
        """Number of images; known ones that were only learned from are not among them."""
        return len(self.identity)

    @property
    def n_identities(self) -> int:
        """Number of identities that have images now."""
        return len(np.unique(self.identity[self.identity >= 0]))

    @cached_property
    def settings(self) -> ConsensusSettings:
        """How pairs are judged and grouped, with the bar that is used."""
        return as_settings(self.parts.consensus)

    @cached_property
    def batches(self) -> tuple[Batch, ...]:
        """Where the embeddings lie, batch by batch, in the order of the images."""
        return tuple(open_batch(self.folder, number) for number in self.parts.batches)

    @cached_property
    def paths(self) -> Sequence[str] | None:
        """Where the images lie, read when asked for; None if any batch does not say."""
        parts = [batch.paths for batch in self.batches]
        return None if None in parts else Chain([one for one in parts if one is not None])

    @cached_property
    def named(self) -> Mapping[int, Name]:
        """Identity -> name, with a probability where it was found among known people."""
        file = numbered(self.folder, "groups", self.parts.groups) / "names.json"
        return msgspec.json.decode(file.read_bytes(), type=dict[int, Name])

    @property
    def names(self) -> Mapping[int, str]:
        """Identity -> name."""
        return {identity: one.name for identity, one in self.named.items()}

    @cached_property
    def scored(self) -> ConsensusGraph:
        """The pairs of images that count when groups are made, with their probabilities, as judged; not corrected."""
        whole = self.scored_with_known
        kept = (whole.ids < self.n_images).all(axis=1)
        return ConsensusGraph(whole.ids[kept], whole.doubt[kept], self.n_images)

    @property
    def scored_with_known(self) -> ConsensusGraph:
        """The same with the known images, which follow the others."""
        return read_scored(numbered(self.folder, "judged", self.parts.judged), self.settings)

    @property
    def known(self) -> LongArray:
        """Known identities of all images, int64 (n + known ones,); -1 = unknown."""
        return read_known(numbered(self.folder, "judged", self.parts.judged))

    @property
    def corrections(self) -> list[Correction]:
        """What counts in the journal now; it may have grown since the groups were made."""
        return read_corrections(self.folder)

    @property
    def constraints(self) -> Constraints:
        """The corrections as what groups must keep."""
        return to_constraints(self.corrections, self.n_images)

    @property
    def events(self) -> list[Event]:
        """All that happened, in order."""
        files = sorted((self.folder / "events").glob("*.jsonl"))
        return [
            msgspec.json.decode(line, type=Event)
            for file in files
            if int(file.stem) <= self.parts.groups
            for line in file.read_bytes().splitlines()
        ]

    @cached_property
    def n_applied(self) -> int:
        """How many entries of the journal the groups were made under; those after them wait for `regroup`."""
        groups = numbered(self.folder, "groups", self.parts.groups)
        return read_settings(groups, read_card(groups, GROUPS_KIND), _GroupsFacts).entries

    def describe(self, row: int) -> str:
        """What messages call an image."""
        return f"image {row}" if self.paths is None else self.paths[row]

    def __repr__(self) -> str:
        alone = int((self.identity < 0).sum())
        return f"Collection: {self.n_images:,} images, {self.n_identities:,} identities, {alone:,} images in no group"


def create_collection(
    folder: str | Path,
    views: ViewsSource,
    *,
    labeled: Sequence[ViewsSource] = (),
    settings: ConsensusSettings | None = None,
    names: Mapping[int, str] | None = None,
    corrections: Iterable[Correction] = (),
    images: Path | None = None,
    seed: int = 0,
    force: bool = False,
    workspace: Workspace | None = None,
) -> Collection:
    """Label images and keep everything that labeling more of them will need.

    Args:
        folder: to write; whole or not at all.
        views: the images; a path is referred to, views in memory are written into the collection.
        labeled: views with identities to learn from.
        settings: of section 3.1; unless given, those of the preset `best`.
        names: identity number in `labeled` -> name. Where known and unknown images may show the same people (disjoint =
            false), groups that show a known person get these names.
        corrections: what is known of the images already.
        images: the folder that the images' relative paths start from, if it is to move with the collection.
        seed: of everything random.
        force: replace a collection that is there.
        workspace: engine, cache and progress.
    """
    settings = settings or ConsensusSettings.of()
    inputs = [one for one in (views, *labeled) if not isinstance(one, Views)]
    with writing_folder(folder, force=force, kind=KIND, inputs=inputs) as partial:
        unlabeled, *parts = [one if isinstance(one, Views) else read_views(one) for one in (views, *labeled)]
        labeling = label(unlabeled, settings, labeled=parts, keep_judged=True, seed=seed, workspace=workspace)
        assert labeling.judged is not None
        write_batch(partial, 1, unlabeled, None if isinstance(views, Views) else Path(views), images)
        known: tuple[int, ...] = ()
        if labeling.judged.others is not None:
            # Where they are all that was given, they lie there; else some were held out, and lie nowhere.
            whole = len(labeled) == 1 and labeling.judged.others.n_images == parts[0].n_images
            source = labeled[0] if whole and not isinstance(labeled[0], Views) else None
            write_batch(partial, 2, labeling.judged.others, None if source is None else Path(source))
            known = (2,)
        write_judged(numbered(partial, "judged", 1), labeling.judged, labeling.mediator)
        append_corrections(partial, corrections)
        start = Parts(
            batches=(1,),
            known=known,
            judged=1,
            groups=0,
            next_identity=0,
            consensus=plain(labeling.settings),
            seed=seed,
            n_trained=labeling.judged.together.n_images,
            known_names={str(number): name for number, name in (names or {}).items()},
            notes=labeling.notes,
            bar_is_chosen=labeling.unsupervised is not None,
        )
        nothing = np.full(unlabeled.n_images, -1, np.int32)
        write_groups(partial, start, nothing, {}, "created")
    return open_collection(folder)


def open_collection(folder: str | Path) -> Collection:
    """The collection in a folder, at once, however large it is.

    Raises:
        InputError: this is no collection.
        StoreError: it is damaged.
    """
    place = Path(folder)
    parts = read_parts(place)
    groups = numbered(place, "groups", parts.groups)
    card = read_card(groups, GROUPS_KIND)
    identity, confidence, fate = (
        read_array(groups, name, card) for name in ("identity", "confidence", "fate")
    )
    return Collection(place, parts, identity, confidence, fate)


def regroup(
    collection: Collection, *, settings: ConsensusSettings | None = None
) -> tuple[Collection, Changes]:
    """Make groups anew from the probabilities that are there, under the corrections that count now.

    Args:
        collection: whose folder gets new groups.
        settings: other settings of how groups are made (bars, grouping, max_size); those of how pairs are judged must
            be the same, or nothing that was kept would fit.

    Raises:
        InputError: the corrections contradict each other, or the settings need pairs to be judged anew.
    """
    with changing(collection.folder):
        # Another process may have changed the folder since.
        now = open_collection(collection.folder)
        parts = now.parts
        if settings is not None:
            _check_regroupable(now.settings, settings)
            parts = msgspec.structs.replace(parts, consensus=plain(settings))
        changes = write_groups(now.folder, parts, now.identity, now.named, "regrouped", now.describe)
    return open_collection(collection.folder), changes


_GROUPING = ("threshold", "vote_threshold", "grouping", "join_above", "max_size", "step")


def _check_regroupable(old: ConsensusSettings, new: ConsensusSettings) -> None:
    others = [
        name for name, value in plain(new).items() if name not in _GROUPING and value != plain(old)[name]
    ]
    if others:
        raise InputError(
            f"{', '.join(others)}: with another value all pairs must be judged anew; make a new collection, and give it "
            "this one's corrections."
        )


def as_settings(consensus: Mapping[str, Any]) -> ConsensusSettings:
    """Settings from the plain values of a card."""
    given: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in consensus.items()
    }
    return ConsensusSettings(**given)


def write_groups(
    folder: Path,
    parts: Parts,
    before: IntArray,
    named: Mapping[int, Name],
    kind: str,
    describe: Any = None,
) -> Changes:
    """Make groups, give them numbers, write them and what changed, and make them count.

    Args:
        folder: of the collection.
        parts: its parts but for the groups, which are written here.
        before: int32 (n,), identities so far; -1 for new images.
        named: names so far.
        kind: of the event of the whole step.
        describe: what messages call an image.
    """
    settings = as_settings(parts.consensus)
    judged = numbered(folder, "judged", parts.judged)
    scored, known = read_scored(judged, settings), read_known(judged)
    journal = read_journal(folder)
    constraints = to_constraints(active_corrections(journal), len(before))
    check_constraints(constraints, settings.max_size, describe or (lambda row: f"image {row}"))
    labels = _group_images(scored, known, settings, constraints)
    called = {int(labels.labels[row]): name for row, name in constraints.named.items()}
    number_of = {one.name: identity for identity, one in named.items() if one.source == "correction"}
    preferred = {label: number_of[name] for label, name in called.items() if name in number_of}
    identity, next_identity = carry_numbers(before, labels.labels, parts.next_identity, preferred)
    images = ConsensusGraph(*_first(scored, len(before)), len(before))
    changes = describe_changes(before, identity, images, settings.k, settings.bar, constraints)
    names = {} if settings.disjoint else _known_names(scored, labels, known, identity, parts)
    names |= {int(identity[row]): Name(name) for row, name in constraints.named.items()}
    number = parts.newest + 1
    now = datetime.now(UTC).isoformat(timespec="seconds")
    events = [Event(kind=kind, images=int((identity != before).sum()), why=_summary(changes))]  # type: ignore[arg-type]
    events += changes.events
    events += [
        Event(kind="named", identity=one, name=name.name, why=name.source)
        for one, name in sorted(names.items())
        if named.get(one) != name
    ]
    events = [msgspec.structs.replace(event, step=number, when=now) for event in events]
    _write_group_files(numbered(folder, "groups", number), identity, labels, names, len(journal))
    (folder / "events").mkdir(exist_ok=True)
    log = b"".join(msgspec.json.encode(event) + b"\n" for event in events)
    write_bytes(folder / "events" / f"{number:04d}.jsonl", log)
    parts = msgspec.structs.replace(parts, groups=number, next_identity=next_identity)
    switch_to(
        folder, parts, f"{len(identity):,} images, {len(np.unique(identity[identity >= 0])):,} identities"
    )
    return replace(changes, events=tuple(events))


def _known_names(
    scored: ConsensusGraph, labels: Labels, known: LongArray, identity: IntArray, parts: Parts
) -> dict[int, Name]:
    """Names of the known people that groups show."""
    found = look_up_people(scored, labels.labels, known, as_settings(parts.consensus).k, seed=parts.seed)
    kept = labels.labels >= 0
    number_of = dict(zip(labels.labels[kept].tolist(), identity[kept].tolist(), strict=True))
    return {
        number_of[label]: Name(
            parts.known_names.get(str(person), str(person)),
            round(float(found.probability[label]), 4),
            "known",
        )
        for label, person in enumerate(found.person.tolist())
        if person >= 0
    }


def _write_group_files(
    place: Path, identity: IntArray, labels: Labels, names: Mapping[int, Name], entries: int
) -> None:
    arrays: dict[str, AnyArray] = {"identity": identity, "confidence": labels.confidence, "fate": labels.fate}
    with writing_folder(place, force=True) as partial:
        for name, array in arrays.items():
            np.save(partial / f"{name}.npy", array)
        (partial / "names.json").write_bytes(msgspec.json.encode(names))
        write_card(partial, GROUPS_KIND, repr(labels), {"entries": entries}, {}, arrays)


def _group_images(
    scored: ConsensusGraph, known: LongArray, settings: ConsensusSettings, constraints: Constraints
) -> Labels:
    """Labels of the images, which were grouped with the known ones among them."""
    labels = group(scored, settings, constraints.among(len(known)))
    if (known >= 0).any() and settings.grouping == "average":
        labels = calibrate(scored, labels, known, settings.k, disjoint=settings.disjoint)
    n_images = constraints.n_images
    number, fate = np.array(labels.labels[:n_images]), np.array(labels.fate[:n_images])
    confidence = np.array(labels.confidence[:n_images])
    alone = (number >= 0) & (np.bincount(number[number >= 0], minlength=1)[np.maximum(number, 0)] < 2)
    alone[list(constraints.named)] = False
    number[alone], fate[alone], confidence[alone] = -1, Fate.ISOLATED, 0
    return Labels(number_by_first_appearance(number), fate, confidence)


def _first(scored: ConsensusGraph, n_images: int) -> tuple[IntArray, Any]:
    kept = (scored.ids < n_images).all(axis=1)
    return scored.ids[kept], scored.doubt[kept]


def _summary(changes: Changes) -> str:
    counts = {
        kind: sum(event.kind == kind for event in changes.events) for kind in ("merged", "split", "moved")
    }
    parts = [f"{count} {kind}" for kind, count in counts.items() if count]
    return ", ".join([f"{changes.joined} images joined, {changes.founded} identities new", *parts])
