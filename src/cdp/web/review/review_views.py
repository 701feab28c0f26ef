"""View models of the review: what its pages are drawn from, and what each of them shows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlencode

from cdp.web.review.group_index import GroupIndex
from cdp.web.review.pair_probabilities import PairProbabilities

_MOST_NAMES = 500


@dataclass(frozen=True, eq=False)
class View:
    """What a page is drawn from: the groups as they are now, and what waits to be applied.

    Attributes:
        title: what the collection is called.
        prefix: what every address starts with.
        index: the groups.
        probabilities: of the scored pairs.
        paths: where the images are stored, if known.
        photos: the photo of every image as it is called, empty where there is none; None without photos.
        has_pictures: whether they can be shown.
        waiting: how many corrections wait to be applied.
        touched: the groups that they speak of.
        leaving: the images that they take out of their group.
        progress: how far the review is, in words, and as a share.
        rows: which image each row is: forms and pictures are about these.
    """

    title: str
    prefix: str
    index: GroupIndex
    probabilities: PairProbabilities
    paths: Sequence[str] | None
    photos: Sequence[str] | None
    has_pictures: bool
    waiting: int
    touched: frozenset[int]
    leaving: frozenset[int]
    progress: tuple[str, float]
    rows: str = ""

    @property
    def names(self) -> list[str]:
        """Names to choose from."""
        return sorted(set(self.index.names.values()))[:_MOST_NAMES]

    @property
    def people(self) -> list[str]:
        """People with a name to choose from; those who share one with their numbers."""
        return sorted(map(self.index.called, self.index.names))[:_MOST_NAMES]

    @property
    def thing(self) -> str:
        """What a row is: a face of a photo, or an image."""
        return "image" if self.photos is None else "face"

    def person(self, number: int) -> str:
        """Return what a group is called: its name, else its number."""
        return self.index.called(number)

    def address(self, *parts: object, **query: object) -> str:
        """Return the address of a page of this server."""
        if parts[:1] in (("do",), ("thumbnail",)):
            query["rows"] = self.rows
        asked = urlencode({key: value for key, value in query.items() if value not in ("", None)})
        return "/".join((self.prefix, *map(str, parts))) + (f"?{asked}" if asked else "")

    def staying(self, rows: Sequence[int]) -> list[int]:
        """Return the images that do not leave their group: what is said of a group is said of these."""
        return [row for row in rows if row not in self.leaving]


@dataclass(frozen=True)
class Asked:
    """One question: are these images and those one person?

    Attributes:
        key: says which question it is, however often it is asked.
        title: the question in words.
        one: rows of the images on one side.
        other: rows on the other side.
        within: whether both sides are in one group now, so that "no" splits it.
        groups: the groups that the images are in, one or two.
        sizes: how many images either side stands for.
        why: why it is asked.
    """

    key: str
    title: str
    one: tuple[int, ...]
    other: tuple[int, ...]
    within: bool
    groups: tuple[int, ...]
    sizes: tuple[int, int]
    why: str


@dataclass(frozen=True)
class HistoryEntry:
    """Entries of the journal that were written at once.

    Attributes:
        numbers: of the entries.
        words: the correction in words.
        when: at what time, in UTC.
        source: by whom.
        images: of whom, a few of them.
        undone: whether it still counts.
        waits: whether it is not applied yet.
        is_undo: whether it took something back.
    """

    numbers: tuple[int, ...]
    words: str
    when: str
    source: str
    images: tuple[int, ...]
    undone: bool
    waits: bool
    is_undo: bool = False


@dataclass(frozen=True)
class Notice:
    """What was just put on disk, with the entries to undo; or why something was refused."""

    words: str
    numbers: Sequence[int] = ()
    refused: bool = False


@dataclass(frozen=True)
class Shot:
    """One image: its path and confidence in words, its file name, and its confidence if it is doubtful.

    Attributes:
        has_photo: whether it was cut from a photo.
    """

    row: int
    hint: str
    name: str
    mark: str
    leaving: bool
    has_photo: bool = False


@dataclass(frozen=True)
class Pager:
    """A page of several; `path` and `query` lead to the others."""

    number: int
    n_pages: int
    path: Sequence[object]
    query: dict[str, object]


@dataclass(frozen=True)
class Side:
    """One side of a question, or a group that may be the same person.

    Attributes:
        heading: in place of a link to the group; empty = the link.
        rows: the images that an answer is about.
        more: how many are shown of how many, if not all.
    """

    name: str
    group: int
    heading: str
    note: str
    rows: Sequence[int]
    shots: Sequence[Shot]
    more: str = ""


@dataclass(frozen=True)
class Card:
    """A question as it is shown."""

    key: str
    title: str
    note: str
    within: bool
    sides: Sequence[Side]


@dataclass(frozen=True)
class GroupRow:
    """A group in the list; merging confirms the images in `rows`."""

    group: int
    confidence: str
    shots: Sequence[Shot]
    rows: Sequence[int]


@dataclass(frozen=True)
class GroupsPage:
    """Groups to look through, select and merge."""

    what: str
    order: str
    orders: dict[str, str]
    search: str
    rows: Sequence[GroupRow]
    pager: Pager


@dataclass(frozen=True)
class ImagesPage:
    """The images of a group, or in none (-1); answers about `similar` groups name the `own` images."""

    group: int
    title: str
    about: str
    rows: Sequence[int]
    shots: Sequence[Shot]
    pager: Pager
    own: Sequence[int] = ()
    similar: Sequence[Side] = ()


@dataclass(frozen=True)
class SameNamePage:
    """A name that other groups have already: is it the same person?

    Attributes:
        name: that was typed.
        rows: the images that are to get it.
        shots: some of them.
        others: the groups that have it.
        apart: of each of them an image, from which `rows` differ if it is somebody else.
    """

    name: str
    rows: Sequence[int]
    shots: Sequence[Shot]
    others: Sequence[Side]
    apart: Sequence[int]


@dataclass(frozen=True)
class Entry:
    """An entry of the history, or a change: a sentence, a few images, and the entries to undo."""

    words: str
    shots: Sequence[Shot]
    about: str = ""
    state: str = ""
    numbers: Sequence[int] = ()


@dataclass(frozen=True)
class EntriesPage:
    """The history, or what applying the answers changed."""

    title: str
    about: str
    entries: Sequence[Entry]
    pager: Pager | None = None
