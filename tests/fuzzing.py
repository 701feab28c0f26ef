"""Valid files of every kind that cdp reads, changed at random: each must be read, or be refused in one sentence.

Case number n of a kind is a function of the seed, so that a failure can be looked at again: `kind.change(seed, n)`.
"""

import io
import json
import pickle
import re
import shutil
import time
import warnings
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
from tests.review_album import make_album

from cdp.collection.collection import open_collection
from cdp.collection.correction_tables import (
    read_correction_table,
    read_name_table,
    write_correction_table,
)
from cdp.collection.corrections import append_corrections, different, named, rejected, same, undo_corrections
from cdp.collection.outputs import refresh_outputs
from cdp.collection.regrouping import regroup
from cdp.config.reading import read_recipe
from cdp.data.images import open_images
from cdp.data.knn_files import read_knn
from cdp.data.lfw_pairs import read_pairs
from cdp.data.manifest_tables import read_table
from cdp.data.manifests import read_manifest
from cdp.data.megaface import read_feature, read_probe_list, write_feature
from cdp.data.split import split_by_identity
from cdp.data.verification_packs import read_verification_pack
from cdp.data.views import read_identities, read_views
from cdp.errors import CdpError
from cdp.export.export_formats import ExportOptions, export_images
from cdp.export.grouped_images import read_grouped_images
from cdp.faces.align_log import open_log
from cdp.faces.face import Face
from cdp.knn.search import knn_graph
from cdp.nets.checkpoints import TrainingLog
from cdp.run.photo_collection import read_photos
from cdp.scoring.mediator import Mediator
from cdp.storage.artifacts import load, read_card, read_run_record
from cdp.types import ConsensusGraph, Embeddings, KnnGraph, Labels, Manifest, Views
from cdp.web.review.session import Session
from image_layouts import insightface, picture, write_records, write_tar, write_zip

Change = Callable[[bytes, Random], bytes]
HERE = Path(__file__).parent
N_IMAGES = 12
NUMBERS = (
    "0",
    "-1",
    "1",
    "2147483648",
    "-9223372036854775809",
    "1e309",
    "nan",
    "True",
    "9" * 5000,
    "4L",
    "()",
)
WORDS = (*NUMBERS, "", "[", "]", "{", '"', "'", ",", "\n", "\0", "\x1b[31m", "é", "[" * 3000, "a" * 140_000)
VALUES: tuple[Any, ...] = (None, True, -1, 2**70, 1.5, "", "x[red]", [], [[]], {}, {"a": 1}, [None], ["a", 1])
BYTES = (
    b"\0",
    b"\xff",
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\0\0\0\x80",
    b"PK\3\4",
    b"r\xff\xff\xff\x7f",
)


def change_bytes(data: bytes, random: Random) -> bytes:
    """Some bytes flipped, overwritten, taken out, doubled, put in, or the end cut off."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 5))):
        at, length = random.randrange(len(changed) + 1), random.choice((1, 2, 4, 16, 100))
        what = random.randrange(6)
        if what == 0 and at < len(changed):
            changed[at] ^= 1 << random.randrange(8)
        elif what == 1:
            word = random.choice(BYTES)
            changed[at : at + len(word)] = word
        elif what == 2:
            del changed[at : at + length]
        elif what == 3:
            changed[at:at] = changed[at : at + length]
        elif what == 4:
            changed[at:at] = random.randbytes(length)
        elif what == 5:
            del changed[at:]
    return bytes(changed)


def change_text(data: bytes, random: Random) -> bytes:
    """One number or word, or one character, replaced by one that surprises."""
    text = data.decode("utf-8", "surrogateescape")
    found = list(re.finditer(r"[-+.\w]+|[^\w\s]", text)) or list(re.finditer("^", text))
    here = random.choice(found)
    changed = text[: here.start()] + random.choice(WORDS) + text[here.end() :]
    return changed.encode("utf-8", "surrogateescape")


def change_json(data: bytes, random: Random) -> bytes:
    """One value anywhere in a JSON file replaced by one of another type, taken out, or put under another key."""
    content = json.loads(data)
    holders = [content]
    for one in holders:
        inner = one.values() if isinstance(one, dict) else one
        holders.extend(value for value in inner if isinstance(value, dict | list) and value)
    holder = random.choice(holders)
    if not holder:
        return json.dumps(random.choice(VALUES)).encode()
    key = random.choice(list(holder) if isinstance(holder, dict) else range(len(holder)))
    value = random.choice(VALUES)
    if isinstance(holder, dict) and random.random() < 0.2:
        del holder[key]
    elif isinstance(holder, dict) and random.random() < 0.1:
        holder[random.choice(("", "kind", "\n", "x" * 3000))] = holder.pop(key)
    else:
        holder[key] = value
    return json.dumps(content).encode()


def change_line(data: bytes, random: Random) -> bytes:
    """One line of a log with another value in its JSON, or gone, or doubled, or cut off, or all zero bytes."""
    lines = data.splitlines(keepends=True)
    at = random.randrange(len(lines))
    what = random.randrange(8)
    if what == 0:
        del lines[at]
    elif what == 1:
        lines[at:at] = [lines[at]]
    elif what == 2:
        lines[at] = lines[at][: random.randrange(len(lines[at]))]
    elif what == 3:
        lines[at] = b"\0" * len(lines[at])
    else:
        lines[at] = change_json(lines[at], random) + b"\n"
    return b"".join(lines)


def change_header(data: bytes, random: Random) -> bytes:
    """A .npy file with another word in its header, which keeps its length."""
    start = data.index(b"{")
    stop = start + int.from_bytes(data[8:10], "little")
    header = change_text(data[start:stop], random)[:60_000].ljust(stop - start)
    return data[:8] + len(header).to_bytes(2, "little") + header + data[stop:]


def change_entry(data: bytes, random: Random) -> bytes:
    """A zip archive with valid checksums, in which one entry is changed, renamed, doubled or new."""
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        entries = [(name, archive.read(name)) for name in archive.namelist()]
    at = random.randrange(len(entries))
    name, content = entries[at]
    if content.startswith(b"\x93NUMPY") and random.random() < 0.5:
        entries[at] = name, change_header(content, random)
    elif random.random() < 0.5:
        entries[at] = name, change_bytes(content, random)
    else:
        entries[random.randrange(len(entries))] = random.choice(WORDS[:-2]) or "note.txt", content
    stream = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")  # that a name is there twice is the point
        for entry, inside in entries:
            archive.writestr(entry.replace("\0", "") or "x", inside)
    return stream.getvalue()


def change_columns(data: bytes, random: Random) -> bytes:
    """A valid Parquet file in which one column is of another type, has another name, or is there twice."""
    table = pq.read_table(pa.BufferReader(data))
    n_rows, at = table.num_rows, random.randrange(table.num_columns)
    others = (
        pa.array([2**64 - 1, None] * n_rows, pa.uint64()),
        pa.array([[1], None] * n_rows),
        pa.array([{"a": 1}, None] * n_rows),
        pa.array([b"\xff", None] * n_rows),
        pa.array([True, None] * n_rows),
        pa.array([float("nan"), 1.5] * n_rows),
        pa.array([float("inf"), 1.0] * n_rows),
        pa.array([1, None] * n_rows, pa.timestamp("s")),
        pa.array(["a", None] * n_rows).dictionary_encode(),
        pa.array([[], [1.5]] * n_rows),
        pa.array([[None, 1.0], [2.0, 1.0]] * n_rows),
        pa.nulls(2 * n_rows),
    )
    column = random.choice((table.column(at), *(other[:n_rows] for other in others)))
    name = random.choice((table.column_names[at], *table.column_names, "identities", "turn", "x\n"))
    stream = io.BytesIO()
    arrays, names = [*table.columns, column], [*table.column_names, name]
    if random.random() < 0.7:
        del arrays[at], names[at]
    pq.write_table(pa.Table.from_arrays(arrays, names), stream)
    return stream.getvalue()


@dataclass(frozen=True)
class Kind:
    """One kind of file: a valid one, how it is read, how it is changed, and whether it is made again where it is damaged."""

    name: str
    file: Path
    read: Callable[[], object]
    changes: Sequence[Change]
    is_derived: bool = False
    whole: bytes = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "whole", self.file.read_bytes())

    def change(self, seed: int, case: int) -> bytes:
        """The file as it is in one case."""
        random = Random(f"{seed} {self.name} {case}")
        return random.choice(self.changes)(self.whole, random)


@dataclass
class Outcome:
    """What became of the cases of one kind.

    Attributes:
        read: that were read all the same.
        refused: in a sentence.
        unforeseen: of these, with an exception that no reader expects, turned into a sentence by `reading`.
        failures: descriptions of the others.
        slowest: seconds of the slowest case.
    """

    read: int = 0
    refused: int = 0
    unforeseen: int = 0
    failures: list[str] = field(default_factory=list)
    slowest: float = 0.0


def fuzz(kind: Kind, n_cases: int, seed: int = 0) -> Outcome:
    """Read n changed files of one kind; the valid one is there again at the end."""
    outcome = Outcome()
    for case in range(n_cases):
        kind.file.write_bytes(kind.change(seed, case))
        start = time.perf_counter()
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            problem = _problem(kind, outcome)
        outcome.slowest = max(outcome.slowest, time.perf_counter() - start)
        # That a last line was cut off is said, as it should be.
        unexpected = [one for one in warned if "was cut off" not in str(one.message)]
        problem = problem or "".join(f"warned: {one.message}" for one in unexpected[:1])
        if problem:
            outcome.failures.append(f"{kind.name}, seed {seed}, case {case}: {problem}")
    kind.file.write_bytes(kind.whole)
    return outcome


def _problem(kind: Kind, outcome: Outcome) -> str:
    try:
        kind.read()
    except CdpError as error:
        outcome.refused += 1
        outcome.unforeseen += error.__cause__ is not None
        sentence = str(error)
        names = (kind.file.name, kind.file.parent.name, kind.file.stem)
        if (
            "\n" in sentence
            or not sentence.endswith((".", "?"))
            or not any(name in sentence for name in names)
        ):
            return f"not a sentence that names the file: {sentence}"
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    else:
        outcome.read += 1
    return ""


def make_kinds(folder: Path) -> list[Kind]:
    """A valid file of every kind below a folder, each with all that is read beside it."""
    generator = np.random.default_rng(0)
    base = generator.normal(size=(N_IMAGES, 4)).astype(np.float32)
    views = Views(
        base, {"other": base[:, ::-1] + 1}, np.arange(N_IMAGES) // 3, [f"{n}.png" for n in range(N_IMAGES)]
    )
    model = Embeddings(base)
    return [
        *_array_kinds(folder, views, model),
        *_table_kinds(folder),
        *_image_kinds(folder),
        *_text_kinds(folder, model),
        *_artifact_kinds(folder, views, knn_graph(model, 3)),
        *_table_of_facts_kinds(folder),
        *_work_kinds(folder),
        *_collection_kinds(folder / "kept"),
    ]


def _array_kinds(folder: Path, views: Views, model: Embeddings) -> list[Kind]:
    npy, npz, table = folder / "base.npy", folder / "views.npz", folder / "views.parquet"
    graph, ids, people = folder / "knn.npz", folder / "knn.npy", folder / "people.npy"
    np.save(npy, views.base.source)
    np.save(people, views.identities)
    np.savez(npz, base=views.base.source, other=views.committee["other"].source, identities=views.identities)
    columns = {"base": list(views.base.source), "identity": views.identities, "path": list(views.paths)}
    pq.write_table(pa.table(columns), table)
    nearest = knn_graph(model, 3)
    np.savez(graph, idx=nearest.neighbors, dist=1 - nearest.similarity)
    np.save(ids, nearest.neighbors)
    npz_changes = (change_bytes, change_entry)
    return [
        Kind("npy", npy, lambda: read_views(npy), (change_bytes, change_header)),
        Kind("identities npy", people, lambda: read_identities(people), (change_bytes, change_header)),
        Kind("npz", npz, lambda: read_views(npz), npz_changes),
        Kind("parquet views", table, lambda: read_views(table), (change_bytes, change_columns)),
        Kind("knn npz", graph, lambda: (read_knn(graph), read_knn(graph, model)), npz_changes),
        Kind("knn npy", ids, lambda: read_knn(ids, model), (change_bytes, change_header)),
    ]


def _table_kinds(folder: Path) -> list[Kind]:
    images = Manifest(
        tuple(f"{n}.png" for n in range(N_IMAGES)), np.arange(N_IMAGES) // 3, turns=np.arange(N_IMAGES) % 4
    )
    table, parquet = folder / "images.csv", folder / "images.parquet"
    images.save(table)
    images.save(parquet)
    return [
        Kind("csv", table, lambda: read_table(table), (change_bytes, change_text)),
        Kind("parquet images", parquet, lambda: read_table(parquet), (change_bytes, change_columns)),
    ]


def _image_kinds(folder: Path) -> list[Kind]:
    entries = {f"{who}/{n}.png": picture(40 * who + n) for who in range(3) for n in range(2)}
    archive = write_zip(folder / "images.zip", entries)
    shard = write_tar(folder / "shard.tar", {**entries, **{f"{name[:-4]}.cls": b"7" for name in entries}})
    flat = write_tar(folder / "flat.tar", entries)
    records = write_records(folder / "train.rec", insightface({0: [picture(1), picture(2)], 1: [picture(3)]}))
    index, pack = records.with_suffix(".idx"), folder / "lfw.bin"
    pictures = [np.frombuffer(picture(n), np.uint8) if n % 2 else picture(n) for n in range(4)]
    pack.write_bytes(pickle.dumps((pictures, [True, np.bool_(False)]), 2))
    photo, listed = folder / "photo.jpg", folder / "photos.csv"
    photo.write_bytes(picture(90, kind="JPEG", width=32, height=32))
    Manifest(("photo.jpg",), np.array([0]), root=str(folder)).save(listed)

    def decode_all(file: Path) -> None:
        reader = open_images(read_manifest(file))
        for row in range(len(reader)):
            reader.image(row, size=4)

    def decode_pack() -> None:
        content = read_verification_pack(pack)
        content.decode(0)

    return [
        Kind("zip", archive, lambda: decode_all(archive), (change_bytes, change_entry)),
        Kind("tar with classes", shard, lambda: decode_all(shard), (change_bytes,)),
        Kind("tar", flat, lambda: decode_all(flat), (change_bytes,)),
        Kind("rec", records, lambda: decode_all(records), (change_bytes,)),
        Kind("idx", index, lambda: decode_all(records), (change_bytes, change_text)),
        Kind("pack", pack, decode_pack, (change_bytes,)),
        Kind("jpeg", photo, lambda: decode_all(listed), (change_bytes,)),
    ]


def _text_kinds(folder: Path, model: Embeddings) -> list[Kind]:
    recipe, people, probes = folder / "recipe.toml", folder / "meta.txt", folder / "probes.json"
    shutil.copy(HERE.parent / "recipes" / "omniglot.toml", recipe)
    people.write_text("".join(f"{n // 3}\n" for n in range(N_IMAGES)))
    probes.write_text(json.dumps({"path": ["a.jpg", "b.jpg"], "id": ["a", 3]}))
    pairs, feature = folder / "pairs.csv", folder / "a.jpg.bin"
    pairs.write_text("first_row,second_row,same\n" + "".join(f"{n},{n + 1},{n % 2}\n" for n in range(11)))
    write_feature(feature, model.source[0])
    texts = (change_bytes, change_text)
    return [
        Kind("toml", recipe, lambda: read_recipe(recipe), texts),
        Kind("identities text", people, lambda: read_identities(people), texts),
        Kind("probe list", probes, lambda: read_probe_list(probes), (*texts, change_json)),
        Kind("pairs", pairs, lambda: read_pairs(pairs, N_IMAGES, None, 3), texts),
        Kind("feature", feature, lambda: read_feature(feature), (change_bytes,)),
    ]


def _artifact_kinds(folder: Path, views: Views, graph: KnnGraph) -> list[Kind]:
    views.save(folder / "views")
    graph.save(folder / "graph")
    Labels.from_array(views.identities).save(folder / "labels")
    images = Manifest(tuple(f"{n}.png" for n in range(N_IMAGES)), views.identities)
    split_by_identity(images, labeled=0.5, unlabeled_parts=1).save(folder / "split")
    for name in ("mediator", "consensus"):
        shutil.copytree(HERE / "golden" / "format1" / name, folder / name)
    run = folder / "run.json"
    shutil.copy(HERE / "unit" / "web" / "report" / "run_format1.json", run)
    readers = {
        "views": lambda: read_views(folder / "views"),
        "graph": lambda: load(folder / "graph", KnnGraph),
        "labels": lambda: load(folder / "labels", Labels),
        "split": lambda: type(split_by_identity(images, labeled=0.5, unlabeled_parts=1)).load(
            folder / "split"
        ),
        "mediator": lambda: load(folder / "mediator", Mediator),
        "consensus": lambda: load(folder / "consensus", ConsensusGraph),
    }
    cards = (change_bytes, change_text, change_json, change_json)
    kinds = [
        Kind(f"card of {name}", folder / name / "card.json", read, cards) for name, read in readers.items()
    ]
    return [
        *kinds,
        Kind("card shown", folder / "graph" / "card.json", lambda: read_card(folder / "graph"), cards),
        Kind(
            "array of labels",
            folder / "labels" / "labels.npy",
            readers["labels"],
            (change_bytes, change_header),
        ),
        Kind("run.json", run, lambda: read_run_record(run), cards),
    ]


def _collection_kinds(home: Path) -> list[Kind]:
    """Every file of a collection of faces on photos; each reading works on a copy, and must not change what was said."""
    home.mkdir()
    album = make_album(home).folder
    append_corrections(album, [named("Anna", 0, 1), same(2, 3), different(0, 18), rejected(17)], "review")
    undo_corrections(album, [3])
    regroup(open_collection(album))
    append_corrections(album, [named("Berta", 9)], "review")
    copy = home / "copy" / album.name

    def live() -> None:
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(album, copy)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            opened = open_collection(copy)
            list(opened.events)
            refresh_outputs(copy)
            session = Session(copy)
            session.view("x")
            session.questions()
            session.history()
            read_photos(copy, opened)
            export_images(read_grouped_images(copy), "csv", home / "out.csv", ExportOptions(force=True))
            regroup(opened)

    files = sorted(one for one in album.rglob("*") if one.is_file() and one.stat().st_size)
    return [
        Kind(
            f"album {one.relative_to(album)}",
            one,
            live,
            _changes_of(one),
            one.name in _DERIVED or "events" in one.parts,
        )
        for one in files
        if one.name != ".lock" and one.suffix not in (".png", ".html") and "0002" not in one.parts
    ]


_DERIVED = (
    ".outputs",
    "labels.csv",
    "labels.parquet",
    "metrics.json",
    "mixed_groups.csv",
    "split_groups.csv",
    "names.json",
)


def _changes_of(file: Path) -> tuple[Change, ...]:
    """How a file is changed, by its ending."""
    by_ending: dict[str, tuple[Change, ...]] = {
        ".json": (change_bytes, change_text, change_json, change_json),
        ".jsonl": (change_bytes, change_text, change_line, change_line),
        ".npy": (change_bytes, change_header),
        ".csv": (change_bytes, change_text),
        ".parquet": (change_bytes, change_columns),
    }
    return by_ending.get(file.suffix, (change_bytes, change_text))


def _table_of_facts_kinds(folder: Path) -> list[Kind]:
    paths = [f"{n}.png" for n in range(N_IMAGES)]
    said = [named("Anna", 0), same(2, 3), different(4, 5), rejected(7)]
    kinds = []
    for ending in ("csv", "parquet"):
        by_path, by_row, names = (folder / f"{one}.{ending}" for one in ("by_path", "by_row", "names"))
        write_correction_table(said, by_path, paths)
        write_correction_table(said, by_row)
        table = pa.table({"identity": [0, 1], "name": ["Anna", "Berta"]})
        pq.write_table(table, names) if ending == "parquet" else pyarrow.csv.write_csv(table, names)
        readers: dict[Path, Callable[[], object]] = {
            by_path: lambda file=by_path: read_correction_table(file, N_IMAGES, paths),
            by_row: lambda file=by_row: read_correction_table(file, N_IMAGES),
            names: lambda file=names: read_name_table(file, N_IMAGES, paths),
        }
        kinds += [Kind(one.name, one, read, _changes_of(one)) for one, read in readers.items()]
    return kinds


def _work_kinds(folder: Path) -> list[Kind]:
    """What half-done work leaves; it is gone on with or made again."""
    aligning, log = folder / "aligning", folder / "aligning" / "done.jsonl"
    started = open_log(aligning, "key")
    box, points = (1.0, 2.0, 30.0, 40.0), np.arange(10.0).reshape(5, 2)
    started.append(0, [Face(0, box, points, 0.9, 29, 5, 0.1, reason="small"), Face(1, reason="none")])
    started.append(16, [Face(16, box, points, 0.9, 29, 5, 0.1, reason="small")])
    network = folder / "network"
    network.mkdir()
    training = network / "log.jsonl"
    training.write_text("".join(json.dumps({"step": n, "loss": 1.5}) + "\n" for n in range(3)))
    return [
        Kind("align log", log, lambda: open_log(aligning, "key"), _changes_of(log), True),
        Kind("align key", aligning / "key.txt", lambda: open_log(aligning, "key"), (change_bytes,), True),
        Kind("training log", training, lambda: TrainingLog(network, 2), _changes_of(training), True),
    ]
