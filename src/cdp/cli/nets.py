"""`cdp networks`, `train`, `embed`, `join` and `ensemble`: images into networks into views."""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from cdp.cli.app import InterruptedRunError
from cdp.data.manifests import read_manifest
from cdp.errors import InputError
from cdp.nets.recipe import Recipe
from cdp.progress import Progress, no_progress
from cdp.types import Views
from cdp.types.manifest import Manifest

if TYPE_CHECKING:
    from cdp.nets.loop import LoopOptions
    from cdp.nets.processes import World


@dataclass(frozen=True)
class RunSettings:
    """What `cdp train` and `cdp join` are told beside the recipe."""

    out: Path
    root: Path | None = None
    skip: Path | None = None
    trunks: Path | None = None
    checkpoint_every: int = 0
    tensorboard: bool = False
    memory_budget: str = "2GB"
    threads: int = 0
    force: bool = False
    quiet: bool = False


def make_recipe(given: Mapping[str, Any], more: Sequence[str]) -> Recipe:
    """The recipe from the options and from `--set KEY=VALUE`."""
    values = dict(given)
    kinds = {field.name: type(field.default) for field in dataclasses.fields(Recipe)}
    for entry in more:
        name, equals, text = entry.partition("=")
        if not equals or name not in kinds:
            raise InputError(f"--set {entry}: write KEY=VALUE with a key from {', '.join(kinds)}.")
        values[name] = _parse(entry, text, kinds[name])
    return Recipe(**values)


def _parse(entry: str, text: str, kind: type) -> Any:
    if kind is bool:
        if text.lower() not in ("true", "false"):
            raise InputError(f"--set {entry}: write true or false.")
        return text.lower() == "true"
    try:
        return kind(text)
    except ValueError:
        raise InputError(f"--set {entry}: {text!r} is not a {kind.__name__}.") from None


def train_networks(
    manifest: str, networks: Sequence[str], recipe: Recipe, settings: RunSettings
) -> list[Path]:
    """Run `cdp train`."""
    if not networks:
        raise InputError("Name at least one --network; cdp networks lists them.")
    with _running(settings) as (world, options):
        from cdp.nets.supervised import train_supervised

        images = _read(manifest, settings)
        folders = train_supervised(
            images,
            networks,
            settings.out,
            recipe=recipe,
            memory_budget=settings.memory_budget,
            threads=settings.threads,
            world=world,
            options=options,
        )
        if world.is_first and not settings.quiet:
            _say_trained(folders)
    return folders


def join_parts(
    labeled: str,
    unlabeled: Sequence[str],
    labels: Sequence[Path],
    network: str,
    recipe: Recipe,
    settings: RunSettings,
    *,
    labeled_share: float | None = None,
    soft: bool = False,
    true_labels: bool = False,
) -> Path:
    """Run `cdp join`."""
    if true_labels and (labels or soft or labeled_share is not None):
        raise InputError("--true-labels goes without --labels, --soft and --lambda.")
    if not true_labels and len(labels) != len(unlabeled):
        raise InputError(
            f"{len(unlabeled)} unlabeled parts but {len(labels)} --labels; give one --labels per part, in order."
        )
    with _running(settings) as (world, options):
        from cdp.data.merge import merge_manifests
        from cdp.nets.joint import train_joint
        from cdp.nets.label_files import read_pseudo_part
        from cdp.nets.supervised import train_supervised

        known = _read(labeled, settings)
        parts = [_read(place, settings) for place in unlabeled]
        if true_labels:
            (folder,) = train_supervised(
                merge_manifests([known, *parts]),
                [network],
                settings.out,
                recipe=recipe,
                memory_budget=settings.memory_budget,
                threads=settings.threads,
                world=world,
                options=options,
            )
        else:
            folder = train_joint(
                known,
                [read_pseudo_part(part, file, soft=soft) for part, file in zip(parts, labels, strict=True)],
                network,
                settings.out,
                recipe=recipe,
                labeled_share=labeled_share,
                memory_budget=settings.memory_budget,
                threads=settings.threads,
                world=world,
                options=options,
            )
        if world.is_first and not settings.quiet:
            _say_trained([folder])
    return folder


def embed_images(
    manifest: str,
    networks: Path,
    base: str,
    out: Path,
    *,
    members: Sequence[str] | None,
    flip: bool,
    batch: int,
    settings: RunSettings,
) -> Views:
    """Run `cdp embed`."""
    with _running(settings) as (world, options):
        if world.is_shared:
            raise InputError("cdp embed runs as one process; start it without torchrun.")
        from cdp.nets.extract import extract_views

        views = extract_views(
            networks,
            _read(manifest, settings),
            out,
            base=base,
            members=members,
            flip=flip,
            batch=batch,
            threads=settings.threads,
            force=settings.force,
            device=world.device,
            progress=options.progress,
        )
    if not settings.quiet:
        Console().print(
            f"{views}\nWritten to {out}. Next: cdp label {out} …", soft_wrap=True, highlight=False
        )
    return views


def ensemble_views(views: Path, models: Sequence[str], out: Path, *, force: bool, quiet: bool) -> None:
    """Run `cdp ensemble`."""
    from cdp.data.views import read_views
    from cdp.nets.ensemble import ensemble

    made = ensemble(read_views(views), models)
    made.save(out, force=force)
    if not quiet:
        Console().print(f"{made}\nWritten to {out}.", soft_wrap=True, highlight=False)


def list_networks(
    classes: int, size: int, *, color: bool, dimensions: int, trunks: Path | None, as_json: bool
) -> None:
    """Run `cdp networks`."""
    from cdp.nets.torchvision_guard import require

    require("torch")
    from cdp.nets.embedding import count_parameters
    from cdp.nets.trunks import find_trunk, load_trunks, network_names

    if trunks is not None:
        load_trunks(trunks)
    rows: list[dict[str, Any]] = []
    for name in network_names():
        entry = find_trunk(name)
        count = None
        if size >= entry.least_size:
            count = count_parameters(
                name, size=size, classes=classes, channels=3 if color else 1, dimensions=dimensions
            )
        rows.append(
            {
                "name": name,
                "group": entry.group,
                "parameters": count,
                "least_size": entry.least_size,
                "about": entry.about,
            }
        )
    if as_json:
        print(json.dumps(rows, indent=2))
        return
    table = Table(title=f"Networks at {size} x {size} with {classes:,} classes", title_justify="left")
    table.add_column("name", no_wrap=True)
    table.add_column("parameters", justify="right", no_wrap=True)
    table.add_column("least size", justify="right")
    table.add_column("about")
    for row in rows:
        told = "images too small" if row["parameters"] is None else f"{row['parameters'] / 1e6:.2f} M"
        table.add_row(row["name"], told, str(row["least_size"]), row["about"])
    Console().print(table)
    Console().print("Any other trunk of timm can be named too.", highlight=False)


@contextmanager
def _running(settings: RunSettings) -> Iterator[tuple[World, LoopOptions]]:
    """torch, its threads, the processes, the user's trunks and the progress bar."""
    from cdp.nets.torchvision_guard import require

    torch = require("torch")
    from cdp.nets.loop import LoopOptions
    from cdp.nets.processes import joined_world
    from cdp.nets.trunks import load_trunks

    if settings.threads:
        torch.set_num_threads(settings.threads)
    if settings.trunks is not None:
        load_trunks(settings.trunks)
    with (
        joined_world() as world,
        image_bars(world.is_first and not settings.quiet) as progress,
        warnings.catch_warnings(),
    ):
        warnings.showwarning = _say_warning if world.is_first else _say_nothing
        options = LoopOptions(
            settings.checkpoint_every,
            tensorboard=settings.tensorboard,
            force=settings.force,
            progress=progress,
        )
        try:
            yield world, options
        except KeyboardInterrupt:
            raise InterruptedRunError("Interrupted; type the same command again to go on.") from None


@contextmanager
def image_bars(enabled: bool = True) -> Iterator[Progress]:
    """A watch that draws one bar per step, with images per second and the time left, on standard error."""
    if not enabled:
        yield no_progress
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, Task, TextColumn, TimeRemainingColumn
    from rich.text import Text

    class Speed(TextColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:,.0f} images/s")

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        Speed(""),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[str, Any] = {}

        def progress(step: str, done: int, total: int) -> None:
            if step not in tasks:
                # Where a run goes on, what was done before does not count as speed.
                tasks[step] = bars.add_task(step, total=total, completed=0 if done == total else done)
            bars.update(tasks[step], completed=done)

        yield progress


def _read(place: str, settings: RunSettings) -> Manifest:
    return read_manifest(place, root=settings.root, skip=settings.skip)


def _say_trained(folders: Sequence[Path]) -> None:
    from cdp.nets.weights import read_network_settings

    table = Table(title="Trained", title_justify="left")
    for name in ("network", "images", "classes", "loss at the end", "folder"):
        table.add_column(name, justify="left" if name in ("network", "folder") else "right")
    for folder in folders:
        settings = read_network_settings(folder)
        spaces = settings.spaces.values()
        table.add_row(
            settings.network,
            " + ".join(f"{space.images:,}" for space in spaces),
            " + ".join(f"{space.classes:,}" for space in spaces),
            f"{settings.loss:.3f}",
            str(folder),
        )
    Console().print(table)
    where = folders[0].parent
    print(f"Next: cdp embed MANIFEST --networks {where} --base {folders[0].name} --out VIEWS")


def _say_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    Console(stderr=True).print(f"Warning: {message}", soft_wrap=True, highlight=False)


def _say_nothing(*_: Any, **__: Any) -> None:
    return
