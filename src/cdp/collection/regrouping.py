"""Recompute the groups of a collection with all corrections applied; probabilities are reused."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from cdp.collection.collection import GROUPS_KIND, NAMES, Collection, GroupsFacts, Name, open_collection
from cdp.collection.collection_folder import State, numbered, switch_to
from cdp.collection.collection_settings import GrowthSettings
from cdp.collection.corrections import active_corrections, applicable, read_journal, to_constraints
from cdp.collection.id_stability import Evidence, defer_small_groups, stabilize_ids
from cdp.collection.labeled_identities import look_up_identities
from cdp.collection.numbering import Changes, Event, carry_numbers, describe_changes
from cdp.collection.outputs import write_outputs
from cdp.collection.scored_files import read_identities, read_scored
from cdp.errors import InputError
from cdp.grouping.group import group
from cdp.labeling.expectation import calibrate, expect
from cdp.labeling.tuning import count_shared, lowest_threshold, tune
from cdp.scoring.settings import ConsensusSettings, linkage_threshold
from cdp.settings import plain
from cdp.storage.artifacts import fill_arrays
from cdp.storage.files import locked, write_bytes, writing_folder
from cdp.types import ConsensusGraph, Labels, Status
from cdp.types.arrays import AnyArray, IntArray, LongArray
from cdp.types.constraints import Constraints, check_constraints, keep_identities
from cdp.types.labels import first_rows, number_by_first_appearance
from cdp.types.run_record import Expectation


def regroup(
    collection: Collection,
    *,
    settings: ConsensusSettings | None = None,
    growth: GrowthSettings | None = None,
) -> tuple[Collection, Changes]:
    """Recompute the groups with all corrections applied; pair probabilities are reused.

    Args:
        collection: whose folder gets new groups.
        settings: other settings of how groups are made (threshold, grouping, max_cluster_size); those of how
            pairs are scored must be the same, or nothing that is stored would fit. A threshold of None is
            chosen on the labeled images.
        growth: when identities are merged; unless given, as before.

    Raises:
        InputError: the corrections contradict each other, or the settings need pairs to be scored again.
    """
    with locked(collection.folder):
        # Another process may have changed the folder since.
        now = open_collection(collection.folder)
        state = now.state
        if settings is not None:
            _check_regroupable(now.settings, settings)
            state = msgspec.structs.replace(
                state, consensus=plain(settings), threshold=_threshold(now, settings)
            )
        if growth is not None:
            state = msgspec.structs.replace(state, growth=plain(growth))
        changes = write_groups(now.folder, state, now.identity, now.named, "regrouped", now.describe)
        regrouped = open_collection(collection.folder)
        write_outputs(regrouped)
    return regrouped, changes


_GROUPING = ("threshold", "grouping", "max_cluster_size", "step")


def _threshold(now: Collection, settings: ConsensusSettings) -> float:
    """Return the threshold for other settings: given, as before, or chosen on the labeled images."""
    if settings.threshold is not None:
        return settings.threshold
    is_same = settings.threshold_kind == now.settings.threshold_kind
    if is_same and now.settings.threshold is None:
        return now.state.threshold
    identities = read_identities(now.scored_place)
    if settings.mediator == "similarity" or not count_shared(identities):
        return now.state.threshold if is_same else settings.default_threshold
    scored = read_scored(now.scored_place, settings, lowest_threshold(settings))
    return tune(scored, identities, settings)[0].chosen


def _check_regroupable(old: ConsensusSettings, new: ConsensusSettings) -> None:
    others = [
        name for name, value in plain(new).items() if name not in _GROUPING and value != plain(old)[name]
    ]
    if others:
        raise InputError(
            f"{', '.join(others)}: another value means scoring all pairs again; create a new collection "
            "with this one's corrections.",
            code="regroup-needs-new-scores",
            keys=tuple(others),
        )


def write_groups(
    folder: Path,
    state: State,
    before: IntArray,
    named: Mapping[int, Name],
    kind: str,
    describe: Any = None,
    given: tuple[Labels, Expectation | None] | None = None,
) -> Changes:
    """Make groups, give them numbers, write them and what changed, and make them count.

    Args:
        folder: of the collection.
        state: its state, except for the groups, which are written here.
        before: int32 (n,), identities so far; -1 for new images.
        named: names so far.
        kind: of the event of the whole step.
        describe: what messages call an image.
        given: labels that labeling made of the same pairs, with what to expect of them; unless given, groups
            are made now.
    """
    settings = state.consensus_settings
    threshold, place = state.threshold, numbered(folder, "scored", state.scored)
    scored, labeled = read_scored(place, settings, threshold), read_identities(place)
    journal = read_journal(folder)
    constraints = to_constraints(applicable(active_corrections(journal), len(before)), len(before))
    check_constraints(constraints, settings.most_images, describe or "image {}".format)
    images = scored.first_images(len(before))
    labels, expected = given or _group_images(scored, labeled, settings, threshold, constraints, state.seed)
    mean = linkage_threshold(settings, threshold)
    evidence = Evidence(images, constraints, settings.k, mean, settings.most_images)

    def give_numbers(labels: Labels) -> tuple[IntArray, int]:
        preferred = _numbers_by_name(labels, constraints, named)
        return carry_numbers(before, labels.labels, state.next_identity, preferred)

    free, next_identity = give_numbers(labels)
    keep = 0.0 if kind == "created" else state.growth_settings.id_stability  # new labels stay as they are
    if keep and settings.is_trained and (before >= 0).any():
        is_new = free >= state.next_identity
        if kind != "extended":
            # What people take apart is a group at once, however small; what waits goes on waiting.
            is_new &= ~np.isin(free, free[before >= 0])
        labels = defer_small_groups(is_new, labels, evidence)
        free, next_identity = give_numbers(labels)
    identity = stabilize_ids(before, free, evidence, keep)
    labels = _with_stable_ids(labels, free, identity)
    changes = describe_changes(before, identity, images, settings.k, mean, constraints)
    names = _find_names(scored, labels, labeled, identity, state, constraints)
    number = state.newest + 1
    whole = Event(kind=kind, images=int((identity != before).sum()), why=_summary(changes))  # type: ignore[arg-type]
    events = _all_events(whole, changes, names, named, number)
    facts = GroupsFacts(journal[-1].id + 1 if journal else 0, expected)
    _write_group_files(numbered(folder, "groups", number), identity, labels, names, facts)
    _write_events(folder, number, events)
    state = msgspec.structs.replace(state, groups=number, next_identity=next_identity)
    switch_to(folder, state, f"{len(identity):,} images, {len(set(identity.tolist()) - {-1}):,} identities")
    return replace(changes, events=tuple(events))


def restore_names(collection: Collection) -> dict[int, Name]:
    """Find the names of a collection's groups again, as they were found when the groups were made."""
    journal = [one for one in read_journal(collection.folder) if one.id < collection.n_applied]
    n_images = collection.n_images
    constraints = to_constraints(applicable(active_corrections(journal), n_images), n_images)
    return _find_names(
        collection.scored_with_labeled,
        collection.labels,
        collection.labeled,
        collection.identity,
        collection.state,
        constraints,
    )


def _find_names(
    scored: ConsensusGraph,
    labels: Labels,
    labeled: LongArray,
    identity: IntArray,
    state: State,
    constraints: Constraints,
) -> dict[int, Name]:
    """Names by identity: of the labeled identities that groups show, and those that people gave."""
    is_disjoint = state.consensus_settings.is_disjoint
    names = {} if is_disjoint else _labeled_names(scored, labels, labeled, identity, state)
    return names | {int(identity[row]): Name(name) for row, name in constraints.named.items()}


def _numbers_by_name(labels: Labels, constraints: Constraints, named: Mapping[int, Name]) -> dict[int, int]:
    """Map each label to the identity that had its name before, where the name is unique on both sides."""
    called = {int(labels.labels[row]): name for row, name in constraints.named.items()}
    only, before = Counter(called.values()), Counter(one.name for one in named.values())
    number_of = {one.name: identity for identity, one in named.items() if one.source == "correction"}
    return {
        label: number_of[name]
        for label, name in called.items()
        if name in number_of and only[name] == before[name] == 1
    }


def _write_events(folder: Path, number: int, events: Sequence[Event]) -> None:
    (folder / "events").mkdir(exist_ok=True)
    log = b"".join(msgspec.json.encode(event) + b"\n" for event in events)
    write_bytes(folder / "events" / f"{number:04d}.jsonl", log)


def _all_events(
    whole: Event, changes: Changes, names: Mapping[int, Name], before: Mapping[int, Name], number: int
) -> list[Event]:
    """Return what is written into the log: the step, what changed, and who got a name."""
    now = datetime.now(UTC).isoformat(timespec="seconds")
    called = [
        Event(kind="named", identity=one, name=name.name, why=name.source)
        for one, name in sorted(names.items())
        if before.get(one) != name
    ]
    events = [whole, *changes.events, *called]
    return [msgspec.structs.replace(event, step=number, when=now) for event in events]


def _labeled_names(
    scored: ConsensusGraph, labels: Labels, labeled: LongArray, identity: IntArray, state: State
) -> dict[int, Name]:
    """Names of the labeled identities that groups show."""
    found = look_up_identities(scored, labels.labels, labeled, state.consensus_settings.k, seed=state.seed)
    kept = labels.labels >= 0
    number_of = dict(zip(labels.labels[kept].tolist(), identity[kept].tolist(), strict=True))
    return {
        number_of[label]: Name(
            state.labeled_names.get(str(person), str(person)),
            round(float(found.probability[label]), 4),
            "labeled",
        )
        for label, person in enumerate(found.person.tolist())
        if person >= 0
    }


def _write_group_files(
    place: Path, identity: IntArray, labels: Labels, names: Mapping[int, Name], facts: GroupsFacts
) -> None:
    arrays: dict[str, AnyArray] = {
        "identity": identity,
        "confidence": labels.confidence,
        "status": labels.status,
    }
    with writing_folder(place, force=True) as partial:
        (partial / NAMES).write_bytes(msgspec.json.encode(names))
        fill_arrays(partial, GROUPS_KIND, repr(labels), msgspec.to_builtins(facts), arrays)


def _group_images(
    scored: ConsensusGraph,
    labeled: LongArray,
    settings: ConsensusSettings,
    threshold: float,
    constraints: Constraints,
    seed: int,
) -> tuple[Labels, Expectation | None]:
    """Group the images together with the labeled ones; return their labels and the expected quality."""
    kept = constraints.among(len(labeled))
    if settings.mediator == "similarity":
        kept = keep_identities(kept, labeled)
    labels = group(scored, settings, threshold, kept)
    expected = None
    if (labeled >= 0).any() and settings.mediator != "similarity":
        if settings.threshold is None and count_shared(labeled):
            expected = expect(labels, labeled, seed, disjoint=settings.is_disjoint)
        if settings.grouping == "average":
            labels = calibrate(scored, labels, labeled, settings.k, disjoint=settings.is_disjoint)
    return first_rows(labels, constraints.n_images, list(constraints.named)), expected


def _with_stable_ids(labels: Labels, free: IntArray, identity: IntArray) -> Labels:
    """Return the labels where identities that got their ID back are groups of their own."""
    moved = free != identity
    if not moved.any():
        return labels
    status, confidence = np.array(labels.status), np.array(labels.confidence)
    status[moved & (free < 0)] = Status.LABELED
    gone = moved & (identity < 0)
    status[gone], confidence[gone] = Status.ISOLATED, 0
    return Labels(number_by_first_appearance(identity), status, confidence)


def _summary(changes: Changes) -> str:
    counts = {
        kind: sum(event.kind == kind for event in changes.events) for kind in ("merged", "split", "moved")
    }
    parts = [f"{count} {kind}" for kind, count in counts.items() if count]
    return ", ".join([f"{changes.joined} images joined, {changes.founded} identities new", *parts])
