"""Stage 3: one trunk trained from scratch on identities and pseudo-labels; reads the labels."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from scipy import sparse

from cdp.data.manifests import merge_manifests
from cdp.data.views import read_label_numbers
from cdp.errors import InputError
from cdp.nets.label_spaces import NO_PIXELS, LabelSpace
from cdp.nets.loop import LoopOptions
from cdp.nets.losses import check_classes
from cdp.nets.recipe import Recipe
from cdp.nets.supervised import Member, labeled_space, train_members
from cdp.storage.array_files import reading
from cdp.types import Labels, Views
from cdp.types.arrays import LongArray
from cdp.types.manifest import Manifest


@dataclass(frozen=True, eq=False)
class PseudoPart:
    """An unlabeled part with the labels that were found for it.

    Attributes:
        manifest: its images; their true identities are never looked at.
        labels: one per row; -1 = discarded, not used.
        soft: distributions over the pseudo-identities, sparse (n, C), instead of one label per image.
        siblings: sparse (C, C), pseudo-identities that may be one, which are no negatives of each other; not
            used with soft labels, or with sampled or sharded classes.
        teachers: views of the same images by other networks, which the network is to follow; None = no
            distillation.
    """

    manifest: Manifest
    labels: Labels
    soft: sparse.csr_array | None = None
    siblings: sparse.csr_array | None = None
    teachers: Views | None = None

    def __post_init__(self) -> None:
        n_soft = len(self.manifest) if self.soft is None else self.soft.shape[0]
        n_seen = len(self.manifest) if self.teachers is None else self.teachers.n_images
        rows = {"labels": len(self.labels), "soft labels": n_soft, "rows in the teachers' views": n_seen}
        for what, n_rows in rows.items():
            if n_rows != len(self.manifest):
                raise InputError(
                    f"There are {n_rows:,} {what} for {len(self.manifest):,} rows of the manifest; "
                    "give the labels made from this manifest's views.",
                    code="pseudo-rows-differ",
                    what=what,
                    expected=len(self.manifest),
                    found=n_rows,
                )
        if self.soft is not None and self.soft.shape[1] < self.labels.n_identities:
            raise InputError(
                f"The soft labels have {self.soft.shape[1]:,} identities, the labels "
                f"{self.labels.n_identities:,}; take both from one run of cdp label.",
                code="soft-identities-differ",
                expected=self.labels.n_identities,
                found=self.soft.shape[1],
            )


def read_pseudo_part(
    manifest: Manifest,
    path: Path,
    *,
    soft: bool = False,
    siblings: float = 1.0,
    teachers: Views | None = None,
) -> PseudoPart:
    """Read pseudo-labels from a collection, a run, a .npy or a text file, and check their rows.

    Args:
        soft: use `soft_labels.npz` of the folder (`cdp label --soft-depth`).
        siblings: pseudo-identities that are one with a greater probability (`split_groups.csv` of the folder)
            are no negatives of each other; 1 = all are negatives.
        teachers: views of the same images by other networks, for distillation.
    """
    with reading(path):
        if not path.exists():
            raise InputError(
                f"{path}: there are no labels; give a folder written by cdp label, a .npy or a text file.",
                code="labels-missing",
                file=path,
            )
        numbers = _read_numbers(path, manifest)
        labels = Labels.from_array(numbers)
        try:
            kin = _read_siblings(path / "split_groups.csv", numbers, labels, siblings)
            return PseudoPart(manifest, labels, _read_soft(path) if soft else None, kin, teachers)
        except InputError as error:
            raise InputError(f"{path}: {error}", **error.details(file=path)) from None


def _read_numbers(path: Path, manifest: Manifest) -> LongArray:
    """Return the identity of every row, whatever its number; negative = discarded."""
    if not path.is_dir():
        return read_label_numbers(path)
    table = path / "labels.parquet"
    if not table.is_file():
        return Labels.load(path).labels.astype(np.int64)
    import pyarrow.parquet as parquet

    columns = parquet.read_schema(table).names
    if "identity" not in columns:
        raise InputError(
            f"{table}: it has no column identity; label again.", code="labels-column-missing", file=table
        )
    _compare_paths(manifest, path, columns)
    numbers: LongArray = parquet.read_table(table, columns=["identity"]).column("identity").to_numpy()
    return numbers


def _read_siblings(file: Path, numbers: LongArray, labels: Labels, above: float) -> sparse.csr_array | None:
    """Read pairs of groups that may be one identity, by their numbers in the folder."""
    if above >= 1 or not file.is_file():
        return None
    import pyarrow.csv

    table = pyarrow.csv.read_csv(file)
    one, other, probability = (
        table.column(name).to_numpy() for name in ("identity", "other_identity", "probability")
    )
    kept = probability > above
    kin = np.stack((one[kept], other[kept])).astype(np.int64)
    known, first = np.unique(numbers[numbers >= 0], return_index=True)
    at = np.searchsorted(known, kin)
    if kin.size and not (len(known) and np.array_equal(known[np.minimum(at, len(known) - 1)], kin)):
        raise InputError(
            f"{file}: it names groups that the labels do not have; label again.",
            code="siblings-unknown",
            file=file,
        )
    label_of = labels.labels[numbers >= 0][first]
    n_groups = labels.n_identities
    half = sparse.coo_array((np.ones(kin.shape[1], np.bool_), tuple(label_of[at])), (n_groups, n_groups))
    both = sparse.csr_array(half + half.T)
    both.sort_indices()
    return both


def _read_soft(path: Path) -> sparse.csr_array:
    file = path / "soft_labels.npz" if path.is_dir() else path.with_suffix(".npz")
    try:
        return sparse.csr_array(sparse.load_npz(file))
    except FileNotFoundError:
        raise InputError(
            f"{file}: there are no soft labels; make them with cdp label --soft-depth 3.",
            code="soft-labels-missing",
            file=file,
        ) from None
    except (ValueError, OSError, KeyError, zipfile.BadZipFile):
        raise InputError(
            f"{file}: damaged or not a sparse matrix; run cdp label --soft-depth again.",
            code="soft-labels-damaged",
            file=file,
        ) from None


def _compare_paths(manifest: Manifest, folder: Path, columns: Sequence[str]) -> None:
    """Check that labels which name their images name this manifest's, in this order."""
    if "path" not in columns:
        return
    import pyarrow.parquet as parquet

    paths = parquet.read_table(folder / "labels.parquet", columns=["path"]).column("path").to_pylist()
    for row, (labeled, here) in enumerate(zip(paths, manifest.locations, strict=False)):
        # The same images may be behind another prefix; a folder and a name are enough to recognize them.
        if labeled and labeled != here and Path(labeled).parts[-2:] != Path(here).parts[-2:]:
            raise InputError(
                f"{folder}: its row {row} is about {labeled}, the manifest's is {here}; give the manifest "
                "that was embedded and labeled.",
                code="labels-of-other-manifest",
                folder=folder,
                row=row,
                expected=labeled,
                found=here,
            )


def train_joint(
    labeled: Manifest,
    parts: Sequence[PseudoPart],
    network: str,
    out: str | Path,
    *,
    recipe: Recipe | None = None,
    labeled_share: float | None = None,
    distill: float = 0.0,
    one_classifier: bool = False,
    memory_budget: int | float | str = "2GB",
    threads: int = 0,
    device: str = "auto",
    options: LoopOptions | None = None,
) -> Path:
    """Train one network on the labeled part and any number of pseudo-labeled parts.

    Paper: L = lambda * labeled + (1 - lambda) * pseudo, each with a classifier of its own on a shared trunk,
    because the same person may well be in both label spaces under different numbers. Where it is known that
    nobody is, one classifier gives every image the identities of all other parts as negatives.

    Args:
        parts: unlabeled parts with their pseudo-labels; each is a label space of its own.
        network: `NAME` or `NAME:SEED`.
        out: folder; the network gets a folder of its name in it.
        labeled_share: lambda; None = the share of the labeled images among all that are used. A part whose
            share is 0 is not read at all, so a lambda of 1 is supervised training, bit for bit.
        distill: weight of the distance from the teachers of a part, where it has some, in addition to the
            loss of its labels.
        one_classifier: all parts share one classifier, for parts that share nobody; the loss then weighs
            every image the same.
        memory_budget: most memory for decoded images, per part.

    Returns:
        The network's folder.
    """
    _check_weights(labeled_share, distill)
    pseudo = [_pseudo_space(index, part, distill) for index, part in enumerate(parts)]
    spaces = [labeled_space(labeled), *pseudo]
    manifests = [labeled, *(part.manifest for part in parts)]
    if one_classifier:
        _check_one_classifier(parts, labeled_share, distill)
        whole = merge_manifests(manifests)
        used = [(_one_space(spaces, [len(part) for part in manifests], whole), whole)]
    else:
        weighted = zip(_weigh(spaces, labeled_share), manifests, strict=True)
        used = [(space, manifest) for space, manifest in weighted if space.weight > 0]
    member = Member.parse(network)
    (folder,) = train_members([member], used, Path(out), recipe, memory_budget, threads, device, options)
    return folder


def _check_weights(labeled_share: float | None, distill: float) -> None:
    if labeled_share is not None and not 0 <= labeled_share <= 1:
        raise InputError(
            f"lambda={labeled_share}: lambda is the weight of the labeled part, from 0 to 1.",
            code="lambda-out-of-range",
            key="lambda",
            value=labeled_share,
        )
    if distill < 0:
        raise InputError(
            f"distill={distill}: it is the weight of a loss, 0 or more.",
            code="distill-negative",
            key="distill",
            value=distill,
        )


def _check_one_classifier(parts: Sequence[PseudoPart], labeled_share: float | None, distill: float) -> None:
    given = {
        "lambda": labeled_share is not None,
        "distill": distill > 0,
        "soft labels": any(part.soft is not None for part in parts),
    }
    for name in (name for name, is_given in given.items() if is_given):
        raise InputError(
            f"one_classifier goes without {name}; leave one of them out.",
            code="one-classifier-clashes",
            key=name,
        )


def _one_space(spaces: Sequence[LabelSpace], sizes: Sequence[int], whole: Manifest) -> LabelSpace:
    """Concatenate label spaces into one; classes of different parts stay different identities.

    Args:
        spaces: of hard labels.
        sizes: images of every part, used or not.
        whole: all parts, one after the other.
    """
    first_rows = np.cumsum([0, *sizes[:-1]])
    first_classes = np.cumsum([0, *(space.n_classes for space in spaces[:-1])])
    rows = [start + space.rows for start, space in zip(first_rows, spaces, strict=True)]
    targets = [start + space.targets for start, space in zip(first_classes, spaces, strict=True)]
    n_classes = sum(space.n_classes for space in spaces)
    check_classes(n_classes)
    siblings = None
    if any(space.siblings is not None for space in spaces):
        kin = [
            sparse.csr_array((space.n_classes, space.n_classes), dtype=np.bool_)
            if space.siblings is None
            else space.siblings
            for space in spaces
        ]
        siblings = sparse.csr_array(sparse.block_diag(kin, format="csr"))
    hashed = whole.digest
    together = np.concatenate(rows), np.concatenate(targets)
    return LabelSpace("all", NO_PIXELS, *together, n_classes, 1.0, hashed, siblings)


def _pseudo_space(index: int, part: PseudoPart, distill: float) -> LabelSpace:
    name = "pseudo" if index == 0 else f"pseudo{index + 1}"
    rows = np.flatnonzero(part.labels.labels >= 0)
    if not len(rows):
        raise InputError(
            f"{name}: every image was discarded; label with a lower threshold, or leave this part out.",
            code="pseudo-part-empty",
            part=name,
        )
    n_classes = part.labels.n_identities
    check_classes(n_classes)
    targets: LongArray | sparse.csr_array = part.labels.labels[rows].astype(np.int64)
    if part.soft is not None:
        targets = sparse.csr_array(part.soft[rows])
        n_classes = int(part.soft.shape[1])
        empty = rows[np.diff(targets.indptr) == 0]
        if len(empty):
            raise InputError(
                f"{name}: row {empty[0]} has a label but no soft label; make both again together.",
                code="soft-label-row-empty",
                part=name,
                row=empty[0],
            )
    siblings = part.siblings if part.soft is None else None
    space = LabelSpace(name, NO_PIXELS, rows, targets, n_classes, 1.0, part.manifest.digest, siblings)
    return replace(space, teachers=part.teachers, distill=distill) if distill else space


def _weigh(spaces: Sequence[LabelSpace], labeled_share: float | None) -> list[LabelSpace]:
    """Weights of the losses; pseudo-labeled parts divide 1 - lambda by their images."""
    n_labeled, n_pseudo = len(spaces[0]), sum(len(space) for space in spaces[1:])
    if not n_pseudo:
        return list(spaces)
    share = n_labeled / (n_labeled + n_pseudo) if labeled_share is None else labeled_share
    return [
        replace(spaces[0], weight=share),
        *(replace(space, weight=(1 - share) * len(space) / n_pseudo) for space in spaces[1:]),
    ]
