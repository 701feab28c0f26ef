"""`cdp eval identification` and `cdp eval verification`: read, measure, print, draw."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from cdp.cli.evaluate import read_truth
from cdp.cli.recognition_output import Output, check_output, print_identification, print_verification, tell
from cdp.data.ijb import (
    TemplateProtocol,
    ijba_splits,
    read_detector_scores,
    read_ijb_pack,
    read_ijba_split,
)
from cdp.data.image_names import ImageNames, name_some, read_image_names
from cdp.data.lfw_pairs import N_FOLDS, read_pairs
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
from cdp.evaluate.bootstrap import Comparison
from cdp.evaluate.identification import (
    RANKS,
    Identification,
    check_distractors,
    compare_identification,
    keep_with_mates,
    mate_pairs,
    measure_identification,
)
from cdp.evaluate.templates import pool_templates
from cdp.evaluate.verification import (
    FPRS,
    ScoredPairs,
    Verification,
    compare_verification,
    measure_verification,
    score_pairs,
)
from cdp.progress import progress_bars
from cdp.types import Embeddings, Views
from cdp.types.arrays import AnyArray, BoolArray


@dataclass(frozen=True)
class VerificationSettings:
    """Everything that can be said to `cdp eval verification`."""

    embeddings: Path
    pairs: Path | None = None
    pack: Path | None = None
    ijba: Path | None = None
    ijb: Path | None = None
    names: Path | None = None
    suffix: str | None = None
    identities: Path | None = None
    flipped: Path | None = None
    detector_scores: bool = False
    against: Path | None = None
    against_flipped: Path | None = None
    folds: int = N_FOLDS
    fprs: tuple[float, ...] = FPRS
    replicates: int = 1000
    seed: int = 0
    threads: int = 0
    titles: tuple[str, ...] = ()

    def title(self, number: int, otherwise: str) -> str:
        """What the tables call a network."""
        return self.titles[number] if number < len(self.titles) else otherwise


@dataclass(frozen=True)
class IdentificationSettings:
    """Everything that can be said to `cdp eval identification`."""

    probes: Path
    distractors: Path
    identities: Path | None = None
    probe_list: Path | None = None
    distractor_lists: tuple[Path, ...] = ()
    suffix: str = ".bin"
    probe_noise: Path | None = None
    distractor_noise: Path | None = None
    against: Path | None = None
    against_distractors: Path | None = None
    against_suffix: str | None = None
    sizes: tuple[int, ...] | None = None
    ranks: tuple[int, ...] = RANKS
    replicates: int = 1000
    seed: int = 0
    threads: int = 0
    titles: tuple[str, ...] = ()

    def title(self, number: int, otherwise: str) -> str:
        """What the tables call a network."""
        return self.titles[number] if number < len(self.titles) else otherwise


def evaluate_verification(settings: VerificationSettings, output: Output) -> Verification:
    """Run `cdp eval verification`."""
    ways = [settings.pairs, settings.pack, settings.ijba, settings.ijb]
    if sum(way is not None for way in ways) != 1:
        raise InputError("Choose one of --pairs FILE, --pack FILE, --ijba FOLDER and --ijb FOLDER.")
    if settings.detector_scores and settings.ijb is None:
        raise InputError("--detector-scores goes with --ijb.")
    if settings.identities is not None and (settings.ijb or settings.ijba):
        raise InputError("--identities goes with --pairs and --pack; IJB's files say who a template shows.")
    if settings.against_flipped is not None and settings.against is None:
        raise InputError("--against-flipped goes with --against.")
    check_output(output)
    name = settings.title(0, str(settings.embeddings))
    measured = {name: _verify(settings, settings.embeddings, settings.flipped, output)}
    found: list[Comparison] = []
    if settings.against is not None:
        other = _verify(settings, settings.against, settings.against_flipped, output)
        found = compare_verification(measured[name], other)
        measured[settings.title(1, f"against {settings.against}")] = other
    if output.picture is not None:
        from cdp.evaluate.pictures import draw_roc

        draw_roc(measured, output.picture)
    tell(list(measured.items()), found, output, print_verification)
    return measured[name]


def evaluate_identification(settings: IdentificationSettings, output: Output) -> Identification:
    """Run `cdp eval identification`."""
    if (settings.probe_list is None) != (not settings.distractor_lists):
        raise InputError("--probe-list and --distractor-list go together: both name the devkit's lists.")
    if (settings.against is None) != (settings.against_distractors is None):
        raise InputError("--against and --against-distractors go together: one network embeds both.")
    check_output(output)
    measure = _megaface if settings.probe_list is not None else _own_split
    name = settings.title(0, str(settings.probes))
    measured = {name: measure(settings, settings.probes, settings.distractors, settings.suffix, output)}
    found: list[Comparison] = []
    if settings.against is not None and settings.against_distractors is not None:
        suffix = settings.suffix if settings.against_suffix is None else settings.against_suffix
        other = measure(settings, settings.against, settings.against_distractors, suffix, output)
        found = compare_identification(measured[name], other)
        measured[settings.title(1, f"against {settings.against}")] = other
    if output.picture is not None:
        from cdp.evaluate.pictures import draw_cmc

        draw_cmc(measured, output.picture, replicates=settings.replicates, seed=settings.seed)
    tell(list(measured.items()), found, output, print_identification)
    return measured[name]


def _verify(settings: VerificationSettings, path: Path, flipped: Path | None, output: Output) -> Verification:
    """One network by the protocol asked for."""
    parts = _scored_parts(settings, path, flipped)
    with progress_bars(output.watched) as progress:
        return measure_verification(
            parts,
            fprs=settings.fprs,
            replicates=settings.replicates,
            seed=settings.seed,
            threads=settings.threads,
            progress=progress,
        )


def _scored_parts(settings: VerificationSettings, path: Path, flipped: Path | None) -> list[ScoredPairs]:
    listed = None if settings.names is None else read_image_names(settings.names)
    if settings.ijba is not None:
        return _score_ijba(settings, path, flipped, listed)
    views = _read_embeddings(path, flipped, listed, settings.suffix)
    names = _names_of(views, listed, path)
    truth = None if settings.identities is None else read_truth(settings.identities)
    if truth is None:
        truth = views.identities
    if settings.ijb is not None:
        pack = read_ijb_pack(settings.ijb, views.n_images, names)
        weights = read_detector_scores(settings.ijb, pack) if settings.detector_scores else None
        return [_score_templates(pack, views.base, weights, settings.threads)]
    if settings.pack is not None:
        content = read_verification_pack(settings.pack)
        if views.n_images != len(content.images):
            raise InputError(
                f"{path}: {views.n_images:,} rows for the {len(content.images):,} images of {settings.pack}; embed "
                "all of them in the pack's order."
            )
        ends, same, folds = content.ends, content.same, content.folds(settings.folds)
    else:
        assert settings.pairs is not None, "one protocol was chosen"
        pairs = read_pairs(settings.pairs, views.n_images, names, settings.folds)
        ends, same, folds = pairs.ends, pairs.same, pairs.folds
        if truth is None:
            truth = pairs.identities(views.n_images)
    return [score_pairs(views.base, ends, same, identities=truth, folds=folds, threads=settings.threads)]


def _score_templates(
    protocol: TemplateProtocol, embeddings: Embeddings, weights: AnyArray | None, threads: int
) -> ScoredPairs:
    pooled = pool_templates(embeddings, protocol.images, protocol.templates, protocol.media, weights)
    return score_pairs(pooled, protocol.ends, protocol.same, identities=protocol.subjects, threads=threads)


def _score_ijba(
    settings: VerificationSettings, path: Path, flipped: Path | None, listed: ImageNames | None
) -> list[ScoredPairs]:
    assert settings.ijba is not None, "IJB-A was chosen"
    numbers = ijba_splits(settings.ijba)
    per_split = path.is_dir() and (path / "split1.npy").exists()
    shared = None if per_split else _read_embeddings(path, flipped, listed, settings.suffix)
    names = None if shared is None else _names_of(shared, listed, path)
    if shared is not None and names is None:
        raise InputError(
            f"{path}: which image is which row? Give --list FILE with one name (FILE or FILE#SIGHTING_ID) per row, "
            "or a folder with split1.npy, split2.npy, ... in the order of the metadata."
        )
    parts = []
    for number in numbers:
        split = read_ijba_split(settings.ijba, number, names)
        views = shared
        if views is None:
            file = path / f"split{number}.npy"
            other = None if flipped is None else flipped / f"split{number}.npy"
            views = _read_embeddings(file, other, None, None)
            if views.n_images != len(split.images):
                raise InputError(
                    f"{file}: {views.n_images:,} rows, but split {number} lists {len(split.images):,} images."
                )
        parts.append(_score_templates(split, views.base, None, settings.threads))
    return parts


def _read_embeddings(
    path: Path, flipped: Path | None, listed: ImageNames | None, suffix: str | None
) -> Views:
    if suffix is not None:
        if listed is None:
            raise InputError("--suffix reads MegaFace feature files, which need --list FILE with the images.")
        views = Views(read_features(path, listed.names, suffix))
    else:
        views = read_views(path)
    if flipped is None:
        return views
    mirrored = _read_embeddings(flipped, None, listed, suffix)
    if mirrored.base.source.shape != views.base.source.shape:
        raise InputError(
            f"{flipped}: shape {mirrored.base.source.shape}, but {path} has {views.base.source.shape}; "
            "both must embed the same images."
        )
    summed = views.base.source.astype(np.float32) + mirrored.base.source.astype(np.float32)
    return Views(summed, identities=views.identities, paths=views.paths)


def _names_of(views: Views, listed: ImageNames | None, path: Path) -> ImageNames | None:
    if listed is not None and len(listed.names) != views.n_images:
        raise InputError(
            f"{listed.source}: {len(listed.names):,} names for the {views.n_images:,} rows of {path}."
        )
    if listed is None and views.paths is not None:
        return ImageNames(views.paths, f"the paths of {path}")
    return listed


def _megaface(
    settings: IdentificationSettings, probes: Path, distractors: Path, suffix: str, output: Output
) -> Identification:
    """The devkit's lists and feature files."""
    assert settings.probe_list is not None, "the devkit's lists were given"
    if settings.identities is not None or settings.sizes is not None:
        raise InputError("--identities and --sizes do not go with the devkit's lists, which say both.")
    listed = read_probe_list(settings.probe_list)
    people = np.array(listed.identities)
    lists = [read_distractor_list(file) for file in settings.distractor_lists]
    for file, paths in zip(settings.distractor_lists, lists, strict=True):
        both = sorted(set(listed.paths) & set(paths))
        if both and probes.resolve() == distractors.resolve():
            raise InputError(f"{file}: {name_some(both)} is a probe too; leave it out.")
    keep, left_out = _clean_probes(people, listed.paths, settings.probe_noise)
    kept_lists, noisy = [], 0
    noise = frozenset() if settings.distractor_noise is None else read_noise_list(settings.distractor_noise)
    for file, paths in zip(settings.distractor_lists, lists, strict=True):
        bad = is_noisy(paths, noise) if noise else np.zeros(len(paths), bool)
        if bad.all():
            raise InputError(f"{file}: every distractor is on {settings.distractor_noise}.")
        noisy = max(noisy, int(bad.sum()))
        kept_lists.append([path for path, left in zip(paths, bad, strict=True) if not left])
    if noise:
        left_out["noisy distractors"] = noisy
    kept = [path for path, stays in zip(listed.paths, keep, strict=True) if stays]
    with progress_bars(output.watched) as progress:
        return measure_identification(
            read_features(probes, kept, suffix),
            people[keep],
            [read_features(distractors, paths, suffix) for paths in kept_lists],
            ranks=settings.ranks,
            left_out=left_out,
            replicates=settings.replicates,
            seed=settings.seed,
            threads=settings.threads,
            progress=progress,
        )


def _clean_probes(
    people: AnyArray, paths: Sequence[str] | None, noise_file: Path | None
) -> tuple[BoolArray, dict[str, int]]:
    """Which probes stay, and why how many do not. A probe that never had a mate is an error, not noise."""
    mate_pairs(people)
    keep = np.ones(len(people), bool)
    if noise_file is None:
        return keep, {}
    if paths is None:
        raise InputError(
            f"{noise_file} names images, so the probes need names too: add paths.txt to the views."
        )
    keep &= ~is_noisy(paths, read_noise_list(noise_file))
    noisy = int((~keep).sum())
    rows = np.flatnonzero(keep)
    with_mates = keep_with_mates(people[rows]) if rows.size else np.zeros(0, bool)
    keep[rows[~with_mates]] = False
    if not keep.any():
        raise InputError(f"{noise_file}: no probe with a mate is left once its names are taken out.")
    return keep, {"noisy probes": noisy, "probes whose mates are all noisy": int((~with_mates).sum())}


def _own_split(
    settings: IdentificationSettings, probes: Path, distractors: Path, _suffix: str, output: Output
) -> Identification:
    """Views or arrays of probes and distractors."""
    probe_views, distractor_views = read_views(probes), read_views(distractors)
    people = probe_views.identities
    if settings.identities is not None:
        people = read_truth(settings.identities)
    if people is None:
        raise InputError(
            f"{probes}: who do the probes show? Give --identities FILE or views that carry them."
        )
    if len(people) != probe_views.n_images:
        raise InputError(f"{probes}: {len(people):,} identities for {probe_views.n_images:,} probes.")
    if distractor_views.identities is not None:
        names = [read_identity_names(path) for path in (settings.identities or probes, distractors)]
        if names[0] is not None and names[1] is not None:
            check_distractors(names[0], names[1])
        elif names[0] is None and names[1] is None:
            check_distractors(people, distractor_views.identities)
    keep, left_out = _clean_probes(people, probe_views.paths, settings.probe_noise)
    stay = _clean_distractors(distractor_views, settings.distractor_noise)
    if settings.distractor_noise is not None:
        left_out["noisy distractors"] = int((~stay).sum())
    gallery = distractor_views.base if stay.all() else Embeddings(distractor_views.base.source[stay])
    with progress_bars(output.watched) as progress:
        return measure_identification(
            Embeddings(probe_views.base.source[keep]),
            people[keep],
            gallery,
            sizes=settings.sizes,
            ranks=settings.ranks,
            left_out=left_out,
            replicates=settings.replicates,
            seed=settings.seed,
            threads=settings.threads,
            progress=progress,
        )


def _clean_distractors(views: Views, noise_file: Path | None) -> BoolArray:
    if noise_file is None:
        return np.ones(views.n_images, bool)
    if views.paths is None:
        raise InputError(
            f"{noise_file} names images, so the distractors need names too: add paths.txt to them."
        )
    stay: BoolArray = ~is_noisy(views.paths, read_noise_list(noise_file))
    if not stay.any():
        raise InputError(f"{noise_file}: no distractor is left once its names are taken out.")
    return stay


def parse_numbers(text: str, option: str, kind: Callable[[str], Any]) -> tuple[Any, ...]:
    """`1,5,10` or `1e-3,1e-4` as numbers."""
    try:
        return tuple(kind(part) for part in text.split(",") if part.strip())
    except ValueError:
        raise InputError(f"{option} {text}: write numbers parted by commas.") from None
