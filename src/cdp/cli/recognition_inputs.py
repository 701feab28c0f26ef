"""Inputs of `cdp eval`: embeddings, and the pairs or probes of a protocol."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path

import numpy as np

from cdp.cli.label_figures_command import read_true_identities
from cdp.cli.recognition_commands import refuse
from cdp.data.ijb import ijba_splits, read_detector_scores, read_ijb_pack, read_ijba_split
from cdp.data.image_names import ImageNames, name_some, read_image_names
from cdp.data.lfw_pairs import read_pairs
from cdp.data.megaface import (
    is_noisy,
    read_distractor_list,
    read_features,
    read_noise_list,
    read_probe_list,
)
from cdp.data.verification_packs import read_verification_pack
from cdp.data.views import read_identity_names, read_views
from cdp.errors import InputError
from cdp.evaluate.identification import check_distractors, mate_pairs
from cdp.evaluate.templates import score_templates
from cdp.evaluate.verification import ScoredPairs, score_pairs
from cdp.types import Embeddings, Views
from cdp.types.arrays import AnyArray, BoolArray

Probes = tuple[Embeddings, AnyArray, Embeddings | list[Embeddings], dict[str, int]]
"""Probes, who they show, distractors (a list of them per size), and how much of what was left out."""


@dataclass(frozen=True)
class PairProtocol:
    """The files of one protocol of pairs, as the options of `cdp eval verification` name them."""

    pairs: Path | None
    pack: Path | None
    ijba: Path | None
    ijb: Path | None
    identities: Path | None
    image_list: Path | None
    suffix: str | None
    folds: int
    detector_scores: bool

    def __post_init__(self) -> None:
        given = [path for path in (self.pairs, self.pack, self.ijba, self.ijb) if path is not None]
        refuse(
            (
                len(given) != 1,
                "Choose one of --pairs FILE, --pack FILE, --ijba FOLDER and --ijb FOLDER.",
                "protocol-not-one",
            ),
            (
                self.detector_scores and not self.ijb,
                "--detector-scores goes with --ijb.",
                "detector-scores-without-ijb",
            ),
            (
                self.identities and (self.ijb or self.ijba),
                "--identities goes with --pairs and --pack; IJB's files say who is who.",
                "identities-with-ijb",
            ),
        )

    def score(self, path: Path, flipped: Path | None, *, threads: int) -> list[ScoredPairs]:
        """Return the similarities one network gives to the pairs; IJB-A has several splits."""
        listed = None if self.image_list is None else read_image_names(self.image_list)
        if self.ijba is not None:
            return _score_ijba(self.ijba, path, flipped, listed, self.suffix, threads)
        views, names = _read_embeddings(path, flipped, listed, self.suffix)
        if self.ijb is not None:
            protocol = read_ijb_pack(self.ijb, views.n_images, names)
            weights = read_detector_scores(self.ijb, protocol) if self.detector_scores else None
            return [score_templates(protocol, views.base, weights, threads=threads)]
        people = views.identities if self.identities is None else read_true_identities(self.identities)
        if self.pack is not None:
            content = read_verification_pack(self.pack)
            if views.n_images != len(content.images):
                raise InputError(
                    f"{path}: {views.n_images:,} rows for the {len(content.images):,} images of {self.pack}; "
                    "embed all of them in the pack's order.",
                    code="pack-rows-differ",
                    file=path,
                    expected=len(content.images),
                    found=views.n_images,
                )
            ends, same, fold_of = content.ends, content.same, content.folds(self.folds)
        else:
            assert self.pairs is not None, "one protocol was given"
            rows = read_pairs(self.pairs, views.n_images, names, self.folds)
            ends, same, fold_of = rows.ends, rows.same, rows.folds
            people = rows.identities(views.n_images) if people is None else people
        return [score_pairs(views.base, ends, same, identities=people, folds=fold_of, threads=threads)]


def _score_ijba(
    ijba: Path, path: Path, flipped: Path | None, listed: ImageNames | None, suffix: str | None, threads: int
) -> list[ScoredPairs]:
    numbers = ijba_splits(ijba)
    if not (path / "split1.npy").exists():
        views, names = _read_embeddings(path, flipped, listed, suffix)
        if names is None:
            raise InputError(
                f"{path} has no image names; give --list FILE with one name per row (FILE or "
                "FILE#SIGHTING_ID), or a folder with split1.npy, split2.npy, ...",
                code="ijba-names-not-given",
                file=path,
            )
        splits = (read_ijba_split(ijba, number, names) for number in numbers)
        return [score_templates(split, views.base, threads=threads) for split in splits]
    parts = []
    for number in numbers:
        file = path / f"split{number}.npy"
        views, _ = _read_embeddings(file, flipped and flipped / file.name, None, None)
        split = read_ijba_split(ijba, number)
        if views.n_images != len(split.images):
            raise InputError(
                f"{file}: {views.n_images:,} rows, but split {number} lists {len(split.images):,} images.",
                code="ijba-rows-differ",
                file=file,
                expected=len(split.images),
                found=views.n_images,
            )
        parts.append(score_templates(split, views.base, threads=threads))
    return parts


def _read_embeddings(
    path: Path, flipped: Path | None, listed: ImageNames | None, suffix: str | None
) -> tuple[Views, ImageNames | None]:
    """Read one network's embeddings plus those of the mirrored images, and the names of the rows."""
    if suffix is None:
        views = read_views(path)
    elif listed is None:
        raise InputError(
            "--suffix reads MegaFace feature files, which need --list FILE with the images.",
            code="suffix-without-list",
        )
    else:
        views = Views(read_features(path, listed.names, suffix))
    if listed is not None and len(listed.names) != views.n_images:
        raise InputError(
            f"{listed.source}: {len(listed.names):,} names for the {views.n_images:,} rows of {path}.",
            code="image-names-differ",
            file=listed.source,
            expected=views.n_images,
            found=len(listed.names),
        )
    if flipped is not None:
        base, mirrored = views.base.source, _read_embeddings(flipped, None, listed, suffix)[0].base.source
        if mirrored.shape != base.shape:
            raise InputError(
                f"{flipped}: shape {mirrored.shape}, but {path} has {base.shape}; both must embed the same "
                "images.",
                code="mirrored-shape-differs",
                file=flipped,
                expected=base.shape,
                found=mirrored.shape,
            )
        summed = base.astype(np.float32) + mirrored.astype(np.float32)
        views = Views(summed, identities=views.identities, paths=views.paths)
    if listed is None and views.paths is not None:
        listed = ImageNames(views.paths, f"the paths of {path}")
    return views, listed


@dataclass(frozen=True)
class ProbeProtocol:
    """Probe lists and exclusion lists, as the options of `cdp eval identification` name them."""

    identities: Path | None
    probe_list: Path | None
    distractor_lists: Sequence[Path]
    probe_noise: Path | None
    distractor_noise: Path | None

    def __post_init__(self) -> None:
        is_half = bool(self.probe_list) != bool(self.distractor_lists)
        refuse((is_half, "--probe-list and --distractor-list go together.", "devkit-lists-incomplete"))

    def read(self, probes: Path, distractors: Path, suffix: str) -> Probes:
        """Read probes and distractors from MegaFace feature files or from views."""
        if self.probe_list is None:
            return self._read_views(probes, distractors)
        listed = read_probe_list(self.probe_list)
        people = np.array(listed.identities)
        keep, left_out = _keep_probes(people, listed.paths, self.probe_noise)
        kept, noisy = [], 0
        for file in self.distractor_lists:
            paths = read_distractor_list(file)
            both = sorted(set(listed.paths) & set(paths))
            if both and os.path.realpath(probes) == os.path.realpath(distractors):
                raise InputError(
                    f"{file}: {name_some(both)} is a probe too; leave it out.",
                    code="distractor-is-probe",
                    file=file,
                    name=both[0],
                )
            stays = _keep_clean(paths, len(paths), self.distractor_noise, "distractor")
            kept.append(list(compress(paths, stays)))
            noisy = max(noisy, int((~stays).sum()))
        if self.distractor_noise is not None:
            left_out["noisy distractors"] = noisy
        return (
            read_features(probes, list(compress(listed.paths, keep)), suffix),
            people[keep],
            [read_features(distractors, paths, suffix) for paths in kept],
            left_out,
        )

    def _read_views(self, probes: Path, distractors: Path) -> Probes:
        views, others = read_views(probes), read_views(distractors)
        people = views.identities if self.identities is None else read_true_identities(self.identities)
        if people is None:
            raise InputError(
                f"{probes}: the probes have no identities; give --identities FILE, or views that have them.",
                code="probe-identities-not-given",
                file=probes,
            )
        if len(people) != views.n_images:
            raise InputError(
                f"{probes}: {len(people):,} identities for {views.n_images:,} probes.",
                code="probe-identities-differ",
                file=probes,
                expected=views.n_images,
                found=len(people),
            )
        if others.identities is not None:
            names, other_names = (
                read_identity_names(path) for path in (self.identities or probes, distractors)
            )
            if names is not None and other_names is not None:
                check_distractors(names, other_names)
            elif names is None and other_names is None:
                check_distractors(people, others.identities)
        keep, left_out = _keep_probes(people, views.paths, self.probe_noise)
        stays = _keep_clean(others.paths, others.n_images, self.distractor_noise, "distractor")
        if self.distractor_noise is not None:
            left_out["noisy distractors"] = int((~stays).sum())
        gallery = others.base if stays.all() else Embeddings(others.base.source[stays])
        return Embeddings(views.base.source[keep]), people[keep], gallery, left_out


def _keep_probes(
    people: AnyArray, paths: Sequence[str] | None, noise_file: Path | None
) -> tuple[BoolArray, dict[str, int]]:
    """Return the probes to keep and the counts left out; a probe that never had a mate is an error."""
    mate_pairs(people)
    keep = _keep_clean(paths, len(people), noise_file, "probe")
    if noise_file is None:
        return keep, {}
    noisy = int((~keep).sum())
    _, person, counts = np.unique(people[keep], return_inverse=True, return_counts=True)
    keep[keep] = counts[person] > 1
    if not keep.any():
        raise InputError(
            f"{noise_file}: without its names, no probe has a mate.",
            code="noise-leaves-no-mates",
            file=noise_file,
        )
    return keep, {"noisy probes": noisy, "probes whose mates are all noisy": int((~keep).sum()) - noisy}


def _keep_clean(paths: Sequence[str] | None, n_images: int, noise_file: Path | None, what: str) -> BoolArray:
    """Return which images are not on a noise list; all where there is no list."""
    if noise_file is None:
        return np.ones(n_images, bool)
    if paths is None:
        raise InputError(
            f"{noise_file} names images, so the {what}s need names too: add paths.txt to the views.",
            code="noise-needs-names",
            file=noise_file,
            what=what,
        )
    clean: BoolArray = ~is_noisy(paths, read_noise_list(noise_file))
    if not clean.any():
        raise InputError(
            f"{noise_file}: no {what} is left without its names.",
            code="noise-leaves-nothing",
            file=noise_file,
            what=what,
        )
    return clean
