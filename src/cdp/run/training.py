"""Stages that make parts, views, networks and embeddings; torch is imported when one of them runs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from cdp.data.ijb import TemplateProtocol, save_templates
from cdp.data.manifests import merge_manifests
from cdp.errors import InputError
from cdp.nets.recipe import Recipe, TrainingSettings
from cdp.run.choices import few_sentences
from cdp.run.parts import SplitSettings, make_parts
from cdp.run.sources import TEMPLATE_IMAGES, TEMPLATES, rows_of_part
from cdp.run.stages import Body, Context, remove, version
from cdp.runtime.parallel import count_threads
from cdp.runtime.progress import Progress
from cdp.runtime.runtime import Runtime
from cdp.storage.artifacts import fill, read_json
from cdp.storage.files import write_json, writing_folder
from cdp.types import Labels, Views
from cdp.types.arrays import LongArray
from cdp.types.manifest import Manifest

if TYPE_CHECKING:
    from cdp.nets.loop import LoopOptions


@version(1)
def split_sources(settings: SplitSettings, context: Context) -> None:
    """Write one table per part; the sources are the stage's inputs."""
    sources = context.sources
    assert sources is not None
    tables = make_parts(
        settings, {name: sources.manifest(name) for name in sources.names if name != TEMPLATE_IMAGES}
    )
    protocols: list[TemplateProtocol] = []
    if sources.has_templates:
        tables[TEMPLATES], protocols = sources.templates()
    counts = {name: _count(table) for name, table in tables.items() if "fold" not in name}
    remove(context.folder / "parts")
    with writing_folder(context.folder / "parts") as folder:
        for name, table in tables.items():
            _stored(table, context.folder).save(folder / f"{name}.csv")
        if protocols:
            save_templates(folder / "protocol.npz", protocols)
        write_json(folder / "counts.json", counts)


def _stored(manifest: Manifest, run: Path) -> Manifest:
    """Return the images as the tables name them: relative if inside the collection."""
    home, parts = f"{run.parent}{os.sep}", run / "parts"
    found = _absolute(manifest)
    names = (os.path.relpath(one, parts) if one.startswith(home) else one for one in found.locations)
    return Manifest(tuple(names), found.identities, found.names, str(parts), found.turns)


def _absolute(manifest: Manifest) -> Manifest:
    """Return the same images by absolute locations."""
    paths = (os.path.abspath(os.path.join(manifest.root, location)) for location in manifest.locations)
    return Manifest(tuple(paths), manifest.identities, manifest.names, turns=manifest.turns)


def _count(manifest: Manifest) -> dict[str, int | None]:
    known = bool((manifest.identities >= 0).any())
    return {"images": manifest.n_images, "identities": manifest.n_identities if known else None}


def tell_few(folder: Path) -> list[str]:
    """Note that the labeled part is small, before networks are trained on it."""
    return few_sentences(read_json(folder / "parts" / "counts.json", dict[str, dict[str, int | None]]))


def part(folder: Path, name: str) -> Manifest:
    """Return a part's table, with absolute locations."""
    return _absolute(Manifest.load(folder / "parts" / f"{name}.csv"))


@dataclass(frozen=True)
class ViewSettings:
    """Which parts are written as views, which models see them, and which sources they come from."""

    parts: tuple[str, ...]
    models: tuple[str, ...]
    sources: tuple[str, ...]


@version(1)
def collect_views(settings: ViewSettings, context: Context) -> None:
    """Write the given embeddings of some parts as views."""
    assert context.sources is not None
    sources: dict[str, Views] = {}
    for name in settings.sources:
        sources |= context.sources.views(name)
    for name in settings.parts:
        pieces = [_rows_of(*piece) for piece in rows_of_part(part(context.folder, name), sources)]
        with (
            writing_folder(context.folder / "views" / name, force=True) as output,
            tempfile.TemporaryDirectory(prefix=".views-", dir=context.folder) as together,
        ):
            # Files larger than memory are put together on disk.
            views = pieces[0] if len(pieces) == 1 else Views.concatenate(pieces, Path(together))
            fill(output, Views(views.base, views.committee, None, views.paths))


def _rows_of(given: Views, rows: LongArray) -> Views:
    """Return some rows of views; all of them are not copied."""
    is_whole = np.array_equal(rows, np.arange(given.n_images))
    return given if is_whole else given.take(rows)


@dataclass(frozen=True)
class NetworkSettings:
    """What a trained network depends on in addition to its images; its folder is that of its kind."""

    network: str
    part: str
    folder: str
    training: TrainingSettings
    seed: int


@dataclass(frozen=True)
class StartedNetworkSettings(NetworkSettings):
    """The same for a network that starts from given weights, which are one of its inputs."""

    start_from: str


@version(1)
def train_network(settings: NetworkSettings, context: Context) -> None:
    """Train one network on a labeled part."""
    _train(settings, context, part(context.folder, settings.part))


@version(1)
def train_bound(settings: NetworkSettings, context: Context) -> None:
    """Train the base network on all true labels, the upper bound of what labels can give."""
    parts = [part(context.folder, name) for name in ("labeled", "unlabeled")]
    _train(settings, context, merge_manifests(parts))


def _train(settings: NetworkSettings, context: Context, images: Manifest) -> None:
    options = _options(context, settings)
    from cdp.nets.supervised import train_supervised

    train_supervised(
        images,
        [settings.network],
        context.folder / settings.folder,
        recipe=Recipe(**asdict(settings.training), seed=settings.seed),
        memory_budget=context.engine.memory_budget,
        threads=context.engine.threads,
        options=options,
        device=context.engine.device,
    )


@dataclass(frozen=True)
class EmbedSettings:
    """Which network embeds which parts."""

    network: str
    parts: tuple[str, ...]


@version(1)
def embed_parts(settings: EmbedSettings, context: Context) -> None:
    """Return some parts as one network sees them."""
    _options(context)
    from cdp.nets.extract import extract_views

    network = context.folder / settings.network
    for name in settings.parts:
        extract_views(
            network.parent,
            part(context.folder, name),
            context.folder / "embeddings" / settings.network / name,
            base=network.name,
            members=[],
            force=True,
            runtime=Runtime(context.engine, progress=_under(f"embed {name}", context.progress)),
        )


def embed_frozen(file: str) -> Body:
    """Stage body: embed parts with a given model, which is its input."""

    @version(1)
    def embed(settings: EmbedSettings, context: Context) -> None:
        from cdp.nets.embed_images import embed_images
        from cdp.nets.onnx_models import open_models

        # Parts are embedded one by one, and what is tried on each could differ.
        models = open_models([file], context.engine.device, may_try=False)
        for name in settings.parts:
            embed_images(
                part(context.folder, name),
                models,
                context.folder / "embeddings" / settings.network / name,
                force=True,
                runtime=Runtime(context.engine, progress=_under(f"embed {name}", context.progress)).here(),
            )

    return embed


def _under(name: str, progress: Progress) -> Progress:
    """Return the same progress under another name of the step."""

    def renamed(step: str, done: int, total: int) -> None:  # noqa: ARG001
        progress(name, done, total)

    return renamed


@dataclass(frozen=True)
class JointSettings:
    """What a network that learns from labels and pseudo-labels depends on in addition to both.

    Attributes:
        teachers: networks whose embeddings of the unlabeled part it is to follow; none without distillation.
    """

    network: str
    folder: str
    labels: str
    training: TrainingSettings
    labeled_share: float
    one_classifier: bool
    soft: bool
    siblings: float
    distill: float
    teachers: tuple[str, ...]
    seed: int


@dataclass(frozen=True)
class StartedJointSettings(JointSettings):
    """The same for a network that starts from given weights, which are one of its inputs."""

    start_from: str


@version(1)
def train_on_both(settings: JointSettings, context: Context) -> None:
    """Stage 3: a network on true and pseudo-labels; the base in the end, all of them between two rounds."""
    options = _options(context, settings)
    from cdp.nets.joint import read_pseudo_part, train_joint

    folder = context.folder
    n_found = Labels.load(folder / settings.labels).n_identities
    if n_found < 2:
        raise InputError(
            "No image got a label: the networks are too weak to agree on any pair. Train them longer, or "
            "lower consensus.threshold."
            if n_found == 0
            else "All labeled images ended in one group; raise consensus.threshold, or lower "
            "consensus.max_cluster_size.",
            code="pseudo-labels-missing" if n_found == 0 else "pseudo-labels-one-group",
            found=n_found,
        )
    train_joint(
        part(folder, "labeled"),
        [
            read_pseudo_part(
                part(folder, "unlabeled"),
                folder / settings.labels,
                soft=settings.soft,
                siblings=settings.siblings,
                teachers=_teachers(folder, settings.teachers),
            )
        ],
        settings.network,
        folder / settings.folder,
        recipe=Recipe(**asdict(settings.training), seed=settings.seed),
        labeled_share=None if settings.labeled_share < 0 else settings.labeled_share,
        distill=settings.distill,
        one_classifier=settings.one_classifier,
        memory_budget=context.engine.memory_budget,
        threads=context.engine.threads,
        options=options,
        device=context.engine.device,
    )


def _teachers(folder: Path, artifacts: Sequence[str]) -> Views | None:
    """Return the unlabeled part as some networks see it."""
    if not artifacts:
        return None
    base, *others = [Views.load(folder / "embeddings" / name / "unlabeled").base for name in artifacts]
    return Views(base, dict(zip(artifacts[1:], others, strict=True)))


def prepare_torch(threads: int) -> None:
    """torch, with the threads that the engine has."""
    from cdp.nets.torchvision_guard import require

    require("torch").set_num_threads(count_threads(threads))


def _options(context: Context, settings: object = None) -> LoopOptions:
    """torch, and how its training goes on."""
    prepare_torch(context.engine.threads)
    from cdp.nets.loop import LoopOptions

    start_from = getattr(settings, "start_from", "")
    return LoopOptions(context.engine.checkpoint_every, progress=context.progress, start_from=start_from)
