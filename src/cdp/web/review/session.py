"""A review under way: the collection as it is now, its journal, and what is asked next."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cdp.collection.collection import Collection, open_collection
from cdp.collection.corrections import (
    JOURNAL,
    Correction,
    active_corrections,
    append_corrections,
    applicable,
    read_journal,
    undo_corrections,
)
from cdp.collection.image_root import find_image_root
from cdp.collection.numbering import Changes
from cdp.collection.outputs import REPORT, refresh_outputs
from cdp.collection.regrouping import regroup
from cdp.errors import InputError
from cdp.storage.artifacts import CARD
from cdp.types.arrays import IntArray
from cdp.web.collection_faces import read_collection_faces, short_photo_names
from cdp.web.review.answers import stamped
from cdp.web.review.group_index import GroupIndex
from cdp.web.review.pair_probabilities import PairProbabilities
from cdp.web.review.photo_pictures import PhotoPictures
from cdp.web.review.review_views import Asked, HistoryEntry, View
from cdp.web.review.same_names import Namesake, find_namesakes
from cdp.web.review.thumbnails import Pictures
from cdp.web.review.what_is_asked import Queue
from cdp.web.review.words_of_events import batches, correction_in_words, event_in_words
from cdp.web.words import counted

SOURCE = "review"
_CARDS = 6
_FEW = 8


@dataclass(frozen=True, eq=False)
class _Loaded:
    """A collection as it was opened, with what is derived from it."""

    collection: Collection
    index: GroupIndex
    probabilities: PairProbabilities
    queue: Queue
    pictures: Pictures
    photos: PhotoPictures | None
    photo_names: Sequence[str] | None


class Session:
    """Answers what pages ask, from several threads; corrections count once they are on disk.

    Nothing that matters is in memory only: another session, earlier or concurrent, sees the same.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        refresh_outputs(self.folder)
        self.report = self.folder / REPORT
        self._lock = threading.RLock()
        self._postponed: dict[str, None] = {}
        self._journal: tuple[tuple[int, int], list[Correction]] = ((-1, -1), [])
        self._changes: tuple[str, Changes | None] = ("Nothing applied yet.", None)
        self._card = _card_now(self.folder)
        self._loaded = self._load(open_collection(self.folder), None)
        self.has_pictures = self.pictures.can_show()

    def _load(self, collection: Collection, before: _Loaded | None) -> _Loaded:
        """Return what is derived from a collection; pictures are those of before while the images are."""
        if before is not None and before.collection.row_keys == collection.row_keys:
            shown = before.pictures, before.photos, before.photo_names
        else:
            root = find_image_root(collection)
            pictures = Pictures(collection.paths, root, kept_in=self.folder / ".thumbnails")
            shown = (pictures, *_open_photos(collection))
        return _Loaded(
            collection,
            GroupIndex(collection.identity, collection.confidence, dict(collection.names)),
            PairProbabilities(collection.scored),
            Queue(collection, "image" if shown[1] is None else "face"),
            *shown,
        )

    @property
    def pictures(self) -> Pictures:
        """Pictures of the images."""
        return self._loaded.pictures

    def photo(self, row: int) -> bytes:
        """Return the photo that an image was cut from, with a box around the face.

        Raises:
            InputError: it has none, or the photo cannot be read.
        """
        photos = self._loaded.photos
        if photos is None:
            raise InputError(f"There is no photo of row {row}.", code="photo-missing", row=row)
        return photos.picture(row)

    def namesakes(self, name: str, rows: Sequence[int]) -> list[Namesake]:
        """Other groups of a name, of which it is not said yet whether they are the person of these images."""
        with self._lock:
            known = [row for row in rows if row < self.n_images]
            return find_namesakes(name, known, self.index, self._counting())

    @property
    def n_images(self) -> int:
        """How many images there are."""
        return self._loaded.collection.n_images

    @property
    def index(self) -> GroupIndex:
        """The groups as they are now, under the names that were given since too."""
        with self._lock:
            loaded = self._loaded
            names: dict[int, str] = {}
            for one in self._counting():
                if one.kind == "name" and one.id >= loaded.collection.n_applied:
                    names |= {loaded.index.group_of(image): one.name for image in one.images}
            names.pop(-1, None)
            return loaded.index.with_names({**loaded.index.names, **names}) if names else loaded.index

    def journal(self) -> list[Correction]:
        """Return all entries; read again only when the file has grown."""
        file = self.folder / JOURNAL
        with self._lock:
            state = (file.stat().st_size, file.stat().st_mtime_ns) if file.exists() else (0, 0)
            if self._journal[0] != state:
                self._journal = (state, read_journal(self.folder))
            return self._journal[1]

    def _counting(self) -> list[Correction]:
        """List the entries that count now, except those about images that a killed command did not add."""
        return applicable(active_corrections(self.journal()), self.n_images)

    def waiting(self) -> list[Correction]:
        """Return the entries that came since the groups were made."""
        applied = self._loaded.collection.n_applied
        return [one for one in self.journal() if one.id >= applied]

    def view(self, prefix: str) -> View:
        """Return what pages are drawn from."""
        with self._lock:
            loaded = self._refreshed()
            counts = self._counting()
            waiting = [one for one in counts if one.id >= loaded.collection.n_applied]
            said = [image for one in waiting for image in one.images]
            touched = np.unique(loaded.index.identity[said]) if said else np.zeros(0, np.int64)
            answers = [one for one in counts if one.source == SOURCE]
            answered, needed = len(batches(answers)), loaded.queue.n_left(counts)
            return View(
                title=os.path.basename(os.path.realpath(self.folder)),
                prefix=prefix,
                index=self.index,
                probabilities=loaded.probabilities,
                paths=loaded.collection.paths,
                photos=loaded.photo_names,
                has_pictures=self.has_pictures,
                waiting=len(self.waiting()),
                touched=frozenset(touched[touched >= 0].tolist()),
                leaving=leaving_images(waiting, loaded.index.identity),
                progress=(progress_in_words(answered, needed), answered / max(1, answered + needed)),
                rows=loaded.collection.row_keys[-1],
            )

    def refuse_other_rows(self, key: str) -> None:
        """Refuse a form of a page whose rows are other images by now.

        Raises:
            InputError: images were removed since, or the collection was replaced.
        """
        with self._lock:
            if key and key not in self._refreshed().collection.row_keys:
                raise InputError(
                    "Nothing was recorded: images were removed from the collection since this page was made; "
                    "reload the page.",
                    code="review-page-outdated",
                )

    def _refreshed(self) -> _Loaded:
        """Return the collection, opened again if another process has changed it."""
        card = _card_now(self.folder)
        if card != self._card:
            self._loaded = self._load(open_collection(self.folder), self._loaded)
            self._card = card
        return self._loaded

    def questions(self) -> list[Asked]:
        """Return the next few questions, those put off at the end."""
        with self._lock:
            corrections = self._counting()
            return self._loaded.queue.ask(corrections, list(self._postponed), _CARDS, self.index.called)

    def postpone(self, key: str) -> None:
        """Ask something else first."""
        with self._lock:
            self._postponed.pop(key, None)
            self._postponed[key] = None

    def record(self, corrections: Sequence[Correction]) -> list[int]:
        """Put corrections on disk and return their numbers.

        Raises:
            InputError: they name images that are not there, or contradict earlier corrections.
            StoreError: the disk is full or cannot be written.
        """
        with self._lock:
            collection = self._loaded.collection
            wrong = [row for one in corrections for row in one.images if row >= collection.n_images]
            if wrong:
                raise InputError(
                    f"There is no image {wrong[0]}; reload the page.", code="image-row-unknown", row=wrong[0]
                )
            collection.refuse_contradictions(corrections, self._counting())
            return append_corrections(self.folder, stamped(corrections, SOURCE))

    def undo(self, numbers: Sequence[int]) -> list[int]:
        """Take back entries, or the last action if none is named; returns the numbers of the new entries."""
        with self._lock:
            journal = self.journal()
            counts = {one.id for one in active_corrections(journal)}
            if not numbers:
                last = next((batch for batch in reversed(batches(journal)) if batch[0].id in counts), None)
                if last is None:
                    raise InputError("Nothing to undo.", code="nothing-to-undo")
                numbers = [one.id for one in last]
            wanted = [number for number in dict.fromkeys(numbers) if number in counts]
            if not wanted:
                raise InputError("Already undone.", code="correction-undone-already")
            return undo_corrections(self.folder, wanted, SOURCE)

    def apply(self) -> None:
        """Recompute the groups with all corrections applied.

        Raises:
            InputError: the corrections contradict each other; the message names the chain.
        """
        with self._lock:
            waiting, start = len(self.waiting()), time.perf_counter()
            collection, changes = regroup(self._loaded.collection)
            self._loaded = self._load(collection, self._loaded)
            took = time.perf_counter() - start
            what = counted(len(changes.events) - 1, "change")
            self._changes = (
                f"{counted(waiting, 'entry', 'entries')} applied in {took:.1f} s: {what}.",
                changes,
            )

    def changes(self) -> tuple[str, list[tuple[str, tuple[int, ...]]]]:
        """Return what the last Apply changed, in words, with a few images each."""
        with self._lock:
            summary, changes = self._changes
            events = () if changes is None else changes.events
            return summary, [
                event_in_words(event, self._loaded.index, _FEW)
                for event in events[:200]
                if event.identity >= 0
            ]

    def history(self) -> list[HistoryEntry]:
        """Return the journal as it is shown, the latest first."""
        with self._lock:
            journal = self.journal()
            counts = {one.id for one in active_corrections(journal)}
            applied = self._loaded.collection.n_applied
            return [
                _history_entry(batch, counts, applied, self._loaded.index, {one.id: one for one in journal})
                for batch in reversed(batches(journal))
            ]

    def message_between(self, first: int, last: int) -> tuple[str, list[int]] | None:
        """Describe some entries in words; with their numbers if they can be undone."""
        with self._lock:
            journal = self.journal()
            entries = [one for one in journal if first <= one.id <= last]
            if not entries or last - first > 10_000:
                return None
            by_number = {one.id: one for one in journal}
            words = correction_in_words(entries, self._loaded.index, by_number)
            counts = {one.id for one in active_corrections(journal)}
            return f"On disk: {words}", [one.id for one in entries if one.id in counts]


def _card_now(folder: Path) -> tuple[int, int, int]:
    """Tell a card from every other: each is a file of its own that takes the place of the one before."""
    try:
        card = os.stat(folder / CARD)
    except OSError:  # opening the collection says why
        return 0, 0, 0
    return card.st_ino, card.st_size, card.st_mtime_ns


def _open_photos(collection: Collection) -> tuple[PhotoPictures | None, Sequence[str] | None]:
    """Return the photos that images were cut from, and what they are called; None if there are none."""
    faces = read_collection_faces(collection)
    if faces is None:
        return None, None
    return PhotoPictures(faces), short_photo_names(["" if one is None else one.photo for one in faces])


def _history_entry(
    batch: Sequence[Correction],
    counts: set[int],
    applied: int,
    index: GroupIndex,
    by_number: dict[int, Correction],
) -> HistoryEntry:
    images = list(dict.fromkeys(image for one in batch for image in one.images))
    is_undo = batch[0].kind == "undo"
    return HistoryEntry(
        numbers=tuple(one.id for one in batch),
        words=correction_in_words(batch, index, by_number),
        when=batch[0].when,
        source=batch[0].source,
        images=tuple(images[:_FEW]),
        undone=not is_undo and batch[0].id not in counts,
        waits=batch[0].id >= applied,
        is_undo=is_undo,
    )


def leaving_images(waiting: Sequence[Correction], identity: IntArray) -> frozenset[int]:
    """Return images that corrections remove from their present group."""
    leaving: set[int] = set()
    for batch in batches(waiting):
        for one in batch:
            if one.kind == "reject":
                leaving |= set(one.images)
            if one.kind != "different" or identity[one.images[0]] != identity[one.images[1]]:
                continue
            # What was said in one breath to be the same as the image that leaves, leaves with it.
            first = one.images[0]
            mates = [
                image
                for other in batch
                if other.kind == "same" and first in other.images
                for image in other.images
            ]
            leaving |= {image for image in (first, *mates) if identity[image] == identity[first]}
    return frozenset(leaving)


def progress_in_words(answered: int, needed: int) -> str:
    """Describe how many questions are answered, and how many more are worth asking."""
    if not needed:
        return "No useful questions left"
    return f"{answered:,} of about {answered + needed:,} useful questions answered"
