"""What of a run folder the page is made from: labels, accepted pairs, images, and what the mediator learned."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

from PIL import Image

from cdp.consensus.mediator import Mediator
from cdp.consensus.mlp import PaperMLP
from cdp.data.images import open_images
from cdp.data.manifest_tables import read_table
from cdp.errors import InputError, StoreError
from cdp.store import load, read_card
from cdp.types import ConsensusGraph, KnnGraph, Labels, Manifest
from cdp.types.arrays import FloatArray

SIDE = 56
RUN_FORMAT = 1
Thumbnail = Callable[[int], str | None]


def no_thumbnail(row: int) -> None:
    """For a run whose images are not at hand."""


@dataclass(frozen=True, eq=False)
class Artifacts:
    """The artifacts of a run; each may be missing, and the page says so.

    Attributes:
        manifest: the unlabeled images, in the order of the labels; their identities are the truth, where known.
        labels: the pseudo-identities.
        consensus: the accepted pairs.
        base_graph: the base network's neighbors of the unlabeled images.
        weights: float32 (inputs, hidden), the first layer of the mediator.
        thumbnail: row -> a data URI of the image, or None if it cannot be read.
    """

    manifest: Manifest | None = None
    labels: Labels | None = None
    consensus: ConsensusGraph | None = None
    base_graph: KnnGraph | None = None
    weights: FloatArray | None = None
    thumbnail: Thumbnail = no_thumbnail

    def __post_init__(self) -> None:
        counts = {
            "unlabeled.csv": None if self.manifest is None else self.manifest.n_images,
            "labels": None if self.labels is None else self.labels.n_images,
            "consensus": None if self.consensus is None else self.consensus.n_images,
        }
        known = {name: number for name, number in counts.items() if number is not None}
        if len(set(known.values())) > 1:
            said = ", ".join(f"{name} {number:,}" for name, number in known.items())
            raise InputError(f"The run folder speaks of different numbers of images ({said}); run it again.")


def read_run(folder: Path) -> dict[str, Any]:
    """What a run wrote about itself.

    Raises:
        InputError: this is not the folder of a run, or one of a newer cdp.
        StoreError: run.json is damaged.
    """
    file = folder / "run.json"
    try:
        run = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(
            f"{folder}: no run.json there; give the folder that `cdp run --out` wrote."
        ) from None
    except (json.JSONDecodeError, UnicodeDecodeError):
        raise StoreError(f"{file} is damaged; run the recipe again, finished stages are kept.") from None
    if not isinstance(run, dict) or run.get("kind") != "Run" or not isinstance(run.get("format"), int):
        raise InputError(f"{file}: not written by `cdp run`; give the folder that `cdp run --out` wrote.")
    if run["format"] > RUN_FORMAT:
        raise InputError(
            f"{folder} was written by a newer cdp ({run.get('cdp')}); update with pip install -U cdp."
        )
    return run


def read_artifacts(folder: Path, base: str | None = None) -> Artifacts:
    """The artifacts in a run folder; `base` names the network whose neighbors are looked for."""
    manifest = (
        read_table(folder / "parts" / "unlabeled.csv")
        if (folder / "parts" / "unlabeled.csv").is_file()
        else None
    )
    labels = load(folder / "labels", Labels) if (folder / "labels").is_dir() else None
    return Artifacts(
        manifest=manifest,
        labels=labels,
        consensus=load(folder / "consensus", ConsensusGraph) if (folder / "consensus").is_dir() else None,
        base_graph=None if labels is None else _base_graph(folder / "graphs", base, labels.n_images),
        weights=_weights(folder / "mediator"),
        thumbnail=no_thumbnail if manifest is None else thumbnails(manifest),
    )


def accepted_only(run: Mapping[str, Any], artifacts: Artifacts) -> Artifacts:
    """Without the pairs that were only kept to speak against joining groups, as average grouping keeps them."""
    labels = (run.get("results") or {}).get("labels") or {}
    graph, bar = artifacts.consensus, labels.get("threshold")
    if graph is None or bar is None or labels.get("setting") != "join_above":
        return artifacts
    kept = graph.doubt < 1 - bar
    return replace(artifacts, consensus=ConsensusGraph(graph.ids[kept], graph.doubt[kept], graph.n_images))


def _weights(folder: Path) -> FloatArray | None:
    if not folder.is_dir():
        return None
    classifier = load(folder, Mediator).classifier
    if not isinstance(classifier, PaperMLP):
        return None
    weights: FloatArray = classifier.weights_[0][0]
    return weights


def _base_graph(folder: Path, base: str | None, n_images: int) -> KnnGraph | None:
    """The base network's graph over the unlabeled images, wherever below graphs/ it was put."""
    for card in sorted(folder.rglob("card.json")):
        place = card.parent.relative_to(folder)
        if base is not None and base not in place.parts:
            continue
        about = read_card(card.parent)
        if about.kind == "KnnGraph" and about.arrays["neighbors"].shape[0] == n_images:
            return load(card.parent, KnnGraph)
    return None


def thumbnails(manifest: Manifest) -> Thumbnail:
    """A function from rows to small pictures as data URIs; an image that cannot be read gives None."""
    images = open_images(manifest)

    @cache
    def thumbnail(row: int) -> str | None:
        try:
            pixels = images.image(row, size=SIDE)
        except InputError:
            return None
        stream = io.BytesIO()
        Image.fromarray(pixels).save(stream, "JPEG", quality=78, optimize=True)
        return "data:image/jpeg;base64," + base64.b64encode(stream.getvalue()).decode("ascii")

    return thumbnail
