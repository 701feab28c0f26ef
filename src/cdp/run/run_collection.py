"""The collection of a run: the labels of its last round, to be reviewed, corrected, extended and exported.

The run's stages work in `run/` of the collection's folder. Their labels never change; the collection does, as
people correct it. So when the stages made other labels, the collection gets new pairs and groups, and keeps
its corrections and its identities' numbers where the images are the same.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from cdp.collection.collection import Collection, open_collection
from cdp.collection.collection_folder import State, numbered, write_batch
from cdp.collection.corrections import JOURNAL, read_corrections
from cdp.collection.outputs import write_outputs
from cdp.collection.regrouping import write_groups
from cdp.data.manifest_tables import read_some_columns
from cdp.run.contents import ContentHashes
from cdp.run.label_stage import LabelSettings, read_part, stored_views
from cdp.scoring.settings import ConsensusSettings
from cdp.settings import plain
from cdp.storage.artifacts import read_card, read_facts, read_json, read_settings
from cdp.storage.files import artifact_kind, link_tree, locked
from cdp.types import Labels, Views
from cdp.types.run_record import Results, RunRecord

_KEPT = (
    "Images were added to this collection since it was made, so it keeps its groups; for a collection of the "
    "new labels, run with another --out."
)


def publish_collection(
    root: Path, run: Path, settings: LabelSettings, record: RunRecord, hashes: ContentHashes
) -> tuple[Collection, RunRecord]:
    """Publish a run's labels as the collection at `root`; return it with a note if others are kept.

    Its tables and its report are written again.

    Args:
        root: folder of the collection; one that was corrected keeps its corrections.
        run: folder of the stages.
        settings: of the stage that labeled.
        record: of the run, for the report.
        hashes: of the run's files.
    """
    labels = run / settings.round.folder / settings.output
    made_from = hashes.of_path(labels) or ""
    with locked(root):
        before = open_collection(root) if artifact_kind(root) == "Collection" else None
        if before is None or before.state.made_from != made_from:
            if before is not None and len(before.state.batches) > 1:
                # Other networks embedded the images that were added; they cannot be among these.
                record = msgspec.structs.replace(record, notes=[*record.notes, _KEPT])
            else:
                _write_collection(root, run, labels, settings, before, made_from)
        collection = open_collection(root)
        write_outputs(collection, record=record)
    return collection, record


def _write_collection(
    root: Path, run: Path, labels: Path, settings: LabelSettings, before: Collection | None, made_from: str
) -> None:
    number = 1 if before is None else before.state.newest + 1
    unlabeled = read_part(settings, run, "unlabeled", settings.round.networks)
    write_batch(root, number, unlabeled, stored_views(settings, run))
    labeled: tuple[int, ...] = ()
    if (labels / "labeled").is_dir():
        write_batch(root, number + 1, Views.load(labels / "labeled"), labels / "labeled")
        labeled = (number + 1,)
    link_tree(labels / "scored", numbered(root, "scored", number))
    results: Results = read_json(labels / "metrics.json", Results)
    state = State(
        batches=(number,),
        labeled=labeled,
        scored=number,
        groups=0,
        next_identity=0 if before is None else before.state.next_identity,
        consensus=plain(read_settings(labels, read_card(labels), ConsensusSettings)),
        threshold=_threshold(results),
        seed=settings.seed,
        n_trained=unlabeled.n_images,
        growth={} if before is None else before.state.growth,
        notes=tuple(read_facts(labels).notes),
        made_from=made_from,
        labeled_names=_labeled_names(run / "parts" / "labeled.csv"),
    )
    identity, named = np.full(unlabeled.n_images, -1, np.int32), {}
    if before is not None and _are_same_images(before, unlabeled):
        identity, named = before.identity, dict(before.named)
    elif before is not None and (root / JOURNAL).is_file():
        # They name rows of other images; kept for whoever wants to look.
        (root / JOURNAL).rename(run / f"corrections-{before.state.groups:04d}.jsonl")
    given = None if read_corrections(root) else (Labels.load(labels), results.expected)
    write_groups(root, state, identity, named, "created", given=given)


def _labeled_names(table: Path) -> dict[str, str]:
    """Return number -> name of the labeled identities; empty if they are numbers."""
    if not table.is_file():
        return {}
    wanted = ("identity", "identity_name")
    columns = read_some_columns(table, lambda _file, header: [name for name in wanted if name in header])
    names = columns.get("identity_name", [])
    pairs = zip(map(str, columns["identity"]), map(str, names), strict=False)
    return {number: name for number, name in pairs if name.strip() and name.isprintable()}


def _threshold(results: Results) -> float:
    threshold = results.labels.threshold
    assert threshold is not None
    return threshold


def _are_same_images(before: Collection, unlabeled: Views) -> bool:
    """Test whether a collection has the same images in the same order, by embeddings or paths."""
    if before.n_images != unlabeled.n_images:
        return False
    if before.paths is None or unlabeled.paths is None:
        return before.paths is None and unlabeled.paths is None
    return all(
        one.rpartition("/")[2] == other.rpartition("/")[2]
        for one, other in zip(before.paths, unlabeled.paths, strict=True)
    )
