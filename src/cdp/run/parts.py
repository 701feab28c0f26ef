"""The parts of a run: labeled, unlabeled, probes and distractors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from cdp.config.sections import SplitSection
from cdp.data.manifests import merge_manifests
from cdp.data.split import families, rotated, split_by_identity
from cdp.errors import InputError
from cdp.evaluate.identification import check_distractors, mate_pairs
from cdp.storage.array_files import naming
from cdp.types.arrays import LongArray
from cdp.types.manifest import Manifest

TEST_SOURCES = ("test images", "probe images", "distractor images")
"""Sources that only test parts come from."""


@dataclass(frozen=True)
class SplitSettings:
    """What the parts depend on in addition to the sources."""

    split: SplitSection
    rotations: bool
    truth: bool
    folds: int
    seed: int


def make_parts(settings: SplitSettings, sources: Mapping[str, Manifest]) -> dict[str, Manifest]:
    """Cut the sources into the tables that stages read; no identity is in two parts.

    `labeled` are images whose identities may be used, `unlabeled` all images to be labeled. Where there are
    such: `validation` are the last rows of `unlabeled`, whose identities may be used to choose a threshold,
    as in the paper, where it is one of the unlabeled parts; `probes` are people who are searched for in the
    evaluation, among `distractors`; `fold1`, `without_fold1` and so on are folds of the labeled part, and the
    rest of it.
    """
    split, seed = settings.split, settings.seed
    tables = {
        name: rotated(table) if settings.rotations and name not in TEST_SOURCES else table
        for name, table in sources.items()
    }
    probes = distractors = None
    if "images" in tables:
        cut = split_by_identity(
            tables["images"],
            labeled=split.labeled,
            unlabeled_parts=split.unlabeled_parts,
            validation=split.validation,
            probes=split.probes,
            distractors=split.distractors,
            seed=seed,
        )
        labeled, parts, validation = cut.labeled, list(cut.unlabeled), cut.validation
        if labeled.n_identities < 2:
            raise InputError(
                f"split.labeled = {split.labeled:.3g} leaves one labeled identity, training needs two; "
                "give a larger share, e.g. 0.3.",
                code="split-labeled-too-small",
                key="split.labeled",
                value=split.labeled,
            )
        parts = parts[: split.use_parts or None]
        probes, distractors = cut.probes, cut.distractors
    else:
        labeled, parts = tables["labeled images"], [tables["unlabeled images"]]
        validation = tables.get("validation images")
    if not settings.truth:
        parts = [without_identities(part) for part in parts]
    if validation is not None:
        parts.append(validation)
    if "test images" in tables:
        probes, distractors = _cut_test(tables["test images"], split.test_probes, seed)
    if "probe images" in tables:
        probes, distractors = _number_together(tables["probe images"], tables["distractor images"])
    tables = {"labeled": labeled, "unlabeled": merge_manifests(parts)}
    others = {"validation": validation, "probes": probes, "distractors": distractors}
    tables |= {name: table for name, table in others.items() if table is not None}
    if settings.folds:
        fold_of = fold_of_rows(labeled, settings.folds, seed)
        for fold in range(settings.folds):
            tables[f"fold{fold + 1}"] = labeled.take(fold_of == fold)
            tables[f"without_fold{fold + 1}"] = labeled.take(fold_of != fold)
    return tables


def without_identities(manifest: Manifest) -> Manifest:
    """Return the same images without identities."""
    return Manifest(
        manifest.locations, np.full(len(manifest), -1), manifest.names, manifest.root, manifest.turns
    )


def _cut_test(test: Manifest, share: float, seed: int) -> tuple[Manifest, Manifest]:
    """Probes and distractors of a test set: a share of its people, drawn at random, and the others."""
    known = test.take(test.identities >= 0)
    people = np.unique(known.identities)
    several = people[known.sizes > 1]
    n_probes = round(share * len(people))
    if not 0 < n_probes < len(people) or not len(several):
        raise InputError(
            f"split.test_probes = {share:g} of {len(people):,} people leaves no probes or no "
            "distractors; set it to e.g. 0.5, and give two images per person.",
            code="test-probes-wrong",
            key="split.test_probes",
            value=share,
            people=len(people),
        )
    is_probe = np.isin(known.identities, np.random.default_rng([seed, 1]).permutation(several)[:n_probes])
    return known.take(is_probe), known.take(~is_probe)


def _number_together(probes: Manifest, distractors: Manifest) -> tuple[Manifest, Manifest]:
    """Give probes and distractors of two sources common numbers, before any training.

    Names are compared as names and numbers as numbers; where one side has names and the other numbers, nobody
    can be found on both sides, and the distractors' identities are dropped.
    """
    if (probes.names is None) != (distractors.names is None):
        distractors = without_identities(distractors)
    both = merge_manifests([probes, distractors])
    is_probe = np.arange(len(both)) < len(probes)
    probes, distractors = both.take(is_probe), both.take(~is_probe)
    with naming("data.probes, data.distractors", keys=("data.probes", "data.distractors")):
        mate_pairs(probes.identities)
        check_distractors(probes.identities, distractors.identities)
    return probes, distractors


def fold_of_rows(labeled: Manifest, folds: int, seed: int) -> LongArray:
    """Return every labeled image's fold, int64 (n,); identities that share pictures stay together."""
    family = families(labeled)
    members = np.unique(family)
    if len(members) < 2 * folds:
        raise InputError(
            f"train.folds = {folds}: {len(members)} labeled identities make folds of less than two; "
            "use fewer folds, or 0.",
            code="folds-exceed-identities",
            key="train.folds",
            value=folds,
            identities=len(members),
        )
    numbers = np.random.default_rng([seed, 2]).permutation(len(members)) % folds
    return numbers[np.searchsorted(members, family)]
