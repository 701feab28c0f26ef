"""`cdp networks`, `train`, `join` and `ensemble`: images into networks."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cdp.cli.app import (
    ForceOption,
    JsonOption,
    OutOption,
    QuietOption,
    app,
    by_commas,
    plain_errors,
    print_table,
)
from cdp.cli.derived_options import Given, settings_from, with_settings
from cdp.cli.image_commands import ManifestArgument
from cdp.cli.signals import resumable
from cdp.engine import ON_RAY, Engine
from cdp.errors import InputError
from cdp.nets.recipe import JointLoss, Recipe
from cdp.settings import setting, settings_of

if TYPE_CHECKING:
    from cdp.nets.processes import World
    from cdp.progress import Progress
    from cdp.types.manifest import Manifest


@dataclass(frozen=True)
class RunOptions:
    """What the commands on images and networks take beside settings, device, threads and memory."""

    root: str = setting("", "What relative paths in a table start from.")
    skip: str = setting("", "Leave out the images listed by `cdp check --list`.")
    trunks: str = setting("", "A Python file that registers trunks of your own.")
    checkpoint_every: int = setting(0, "Steps between checkpoints; 0 = every epoch.", low=0)
    tensorboard: bool = setting(False, "Write TensorBoard files too.")
    start_from: str = setting(
        "",
        "Weights to start from: a .safetensors file, a trained network's folder, or timm for those that timm publishes.",
    )

    def read(self, path: str) -> Manifest:
        """A manifest, its paths from `root`, without the images of `skip`."""
        from cdp.data.manifests import read_manifest

        return read_manifest(path, root=self.root or None, skip=Path(self.skip) if self.skip else None)


_FLAGS = {
    "labeled_share": "--lambda",
    "one_classifier": "--one-classifier",
    "color": "--color/--grey",
    "enlarge": "--enlarge",
    "tensorboard": "--tensorboard",
}
_TEACHERS = Annotated[
    list[Path] | None,
    typer.Option(
        help="With --distill: views of an unlabeled part (cdp embed), whose models are followed; one per part, in order."
    ),
]
_NETWORKS_OUT = Annotated[
    Path, typer.Option("--out", help="Folder for the networks; a killed run goes on here.")
]
_SET = Annotated[
    list[str] | None, typer.Option("--set", help="KEY=VALUE: the same as --key VALUE; repeatable.")
]
_FORCE = Annotated[bool, typer.Option("--force", help="Throw away what is there and start again.")]


@app.command()
@with_settings(Recipe, RunOptions, only=("color", "dimensions", "trunks"), flags=_FLAGS)
@plain_errors()
def networks(
    given: Given,
    classes: Annotated[int, typer.Option(help="Identities of the classifier.", min=1, max=10**9)] = 35012,
    size: Annotated[int, typer.Option(help="Pixels a side.", min=1, max=10**4)] = 224,
    json: JsonOption = False,
) -> None:
    """List every network with the number of its parameters, classifier included."""
    rows = _count_parameters(classes, size, settings_from(Recipe, given), given.get("trunks"))
    if json:
        from json import dumps

        print(dumps(rows, indent=2))
        return
    cells = []
    for row in rows:
        count = "images too small" if row["parameters"] is None else f"{row['parameters'] / 1e6:.2f} M"
        cells.append((row["name"], count, str(row["least_size"]), row["about"]))
    title = f"Networks at {size} x {size} with {classes:,} classes"
    print_table(title, ("name", ">parameters", ">least size", "about"), cells)
    typer.echo("Any other trunk of timm can be named too.")


@app.command()
@with_settings(Recipe, Engine, RunOptions, without=ON_RAY, flags=_FLAGS)
@plain_errors()
def train(
    manifest: ManifestArgument,
    out: _NETWORKS_OUT,
    network: Annotated[
        list[str] | None, typer.Option(help="NAME, or NAME:SEED for several of one kind; repeatable.")
    ] = None,
    *,
    given: Given,
    more: _SET = None,
    force: _FORCE = False,
    quiet: QuietOption = False,
) -> None:
    """Stage 1: train a base model and a committee on labeled images, from scratch."""
    if not network:
        raise InputError("Name at least one --network; cdp networks lists them.")
    with _training(given, more, force, [manifest], quiet) as (options, shared, say):
        from cdp.nets.supervised import train_supervised

        say(train_supervised(options.read(manifest), network, out, **shared))


@app.command()
@with_settings(Recipe, JointLoss, Engine, RunOptions, without=ON_RAY, flags=_FLAGS)
@plain_errors()
def join(
    labeled: ManifestArgument,
    unlabeled: Annotated[list[str], typer.Argument(help="Manifests of the unlabeled parts.")],
    out: _NETWORKS_OUT,
    network: Annotated[str, typer.Option(help="NAME or NAME:SEED.")],
    given: Given,
    labels: Annotated[
        list[Path] | None, typer.Option(help="Labels of an unlabeled part; one per part, in order.")
    ] = None,
    soft: Annotated[bool, typer.Option("--soft", help="Use soft labels (cdp label --soft-depth).")] = False,
    teachers: _TEACHERS = None,
    true_labels: Annotated[
        bool, typer.Option("--true-labels", help="The upper bound: all true identities, one classifier.")
    ] = False,
    more: _SET = None,
    force: _FORCE = False,
    quiet: QuietOption = False,
) -> None:
    """Stage 3: train one network from scratch on true and pseudo-labels together."""
    files, seen, loss = labels or [], teachers or [], settings_from(JointLoss, given)
    if true_labels and (files or seen or soft or "labeled_share" in given):
        raise InputError("--true-labels goes without --labels, --teachers, --soft and --lambda.")
    _check_counts(len(unlabeled), None if true_labels else len(files), len(seen), loss.distill)
    with _training(given, more, force, [labeled, *unlabeled, *files, *seen], quiet) as (options, shared, say):
        from cdp.data.manifests import merge_manifests
        from cdp.data.views import read_views
        from cdp.nets.joint import read_pseudo_part, train_joint
        from cdp.nets.supervised import train_supervised

        known, parts = options.read(labeled), [options.read(path) for path in unlabeled]
        if true_labels:
            say(train_supervised(merge_manifests([known, *parts]), [network], out, **shared))
            return
        views = [read_views(path) for path in seen] if seen else [None] * len(parts)
        pseudo = [
            read_pseudo_part(part, file, soft=soft, siblings=loss.siblings, teachers=one)
            for part, file, one in zip(parts, files, views, strict=True)
        ]
        how = {
            **shared,
            "labeled_share": None if loss.labeled_share < 0 else loss.labeled_share,
            "distill": loss.distill,
            "one_classifier": loss.one_classifier,
        }
        say([train_joint(known, pseudo, network, out, **how)])


def _check_counts(n_parts: int, n_labels: int | None, n_teachers: int, distill: float) -> None:
    if n_labels is not None and n_labels != n_parts:
        raise InputError(
            f"{n_parts} unlabeled parts but {n_labels} --labels; give one --labels per part, in order."
        )
    if (n_teachers > 0) != (distill > 0) or n_teachers not in (0, n_parts):
        raise InputError(
            f"--distill {distill:g} with {n_teachers} --teachers for {n_parts} unlabeled parts; give both, one --teachers "
            "per part, in order, or neither."
        )


@app.command()
@plain_errors()
def ensemble(
    views: Annotated[Path, typer.Argument(help="Views with several models.")],
    models: Annotated[str, typer.Option(help="Models by commas, e.g. base,resnet18,vgg16.")],
    out: OutOption,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """The paper's ensemble baseline: embeddings of several models side by side, as one model."""
    from cdp.data.views import read_views
    from cdp.nets.ensemble import ensemble as concatenate
    from cdp.store import save

    made = concatenate(read_views(views), by_commas(models) or ())
    save(made, out, force=force, inputs=[views])
    if not quiet:
        typer.echo(f"{made}\nWritten to {out}.")


def _count_parameters(classes: int, size: int, recipe: Recipe, trunks: str | None) -> list[dict[str, Any]]:
    from cdp.nets.torchvision_guard import require

    require("torch")
    from cdp.nets.embedding import count_parameters
    from cdp.nets.trunks import find_trunk, load_trunks, network_names

    if trunks:
        load_trunks(trunks)
    rows: list[dict[str, Any]] = []
    for name in network_names():
        entry, count = find_trunk(name), None
        if size >= entry.least_size:
            count = count_parameters(
                name, size=size, classes=classes, channels=recipe.channels, dimensions=recipe.dimensions
            )
        facts = {"least_size": entry.least_size, "about": entry.about}
        rows.append({"name": name, "group": entry.group, "parameters": count, **facts})
    return rows


@contextmanager
def _training(
    given: Given, more: Sequence[str] | None, force: bool, inputs: Sequence[str | Path], quiet: bool
) -> Iterator[tuple[RunOptions, dict[str, Any], Callable[[Sequence[Path]], None]]]:
    """The options, what every training function takes, and what prints the trained networks."""
    from cdp.config.reading import parse_value

    known = settings_of(Recipe)
    for entry in more or ():
        name, equals, text = entry.partition("=")
        if not equals or name not in known:
            raise InputError(f"--set {entry}: write KEY=VALUE with a key from {', '.join(known)}.")
        given = given | {name: parse_value(known[name], text, f"--set {name}")}
    recipe, engine = settings_from(Recipe, given), settings_from(Engine, given)
    options = settings_from(RunOptions, given)
    with torch_ready(options, engine, quiet) as (world, progress):
        from cdp.nets.loop import LoopOptions

        loop = LoopOptions(
            options.checkpoint_every,
            tensorboard=options.tensorboard,
            force=force,
            inputs=(
                *inputs,
                options.skip,
                *([options.start_from] if options.start_from not in ("", "timm") else []),
            ),
            progress=progress,
            start_from=options.start_from,
        )
        shared = {"recipe": recipe, "memory_budget": engine.memory_budget, "threads": engine.threads}
        is_told = world.is_first and not quiet
        yield (
            options,
            {**shared, "device": engine.device, "options": loop},
            _print_trained if is_told else _ignore,
        )


@contextmanager
def torch_ready(options: RunOptions, engine: Engine, quiet: bool) -> Iterator[tuple[World, Progress]]:
    """Torch with its threads, the processes that torchrun started, the user's trunks and the progress bars."""
    from cdp.nets.torchvision_guard import require

    torch = require("torch")
    from cdp.nets.processes import joined_world
    from cdp.nets.trunks import load_trunks
    from cdp.progress import progress_bars

    if engine.threads:
        torch.set_num_threads(engine.threads)
    if options.trunks:
        load_trunks(options.trunks)
    with (
        resumable(),
        joined_world(engine.device) as world,
        progress_bars(world.is_first and not quiet) as progress,
        warnings.catch_warnings(),
    ):
        warnings.showwarning = _say_warning if world.is_first else _ignore
        yield world, progress


def _print_trained(folders: Sequence[Path]) -> None:
    from cdp.nets.weights import read_network_settings

    cells = []
    for folder in folders:
        settings = read_network_settings(folder)
        spaces = settings.spaces.values()
        counts = (
            " + ".join(f"{space.images:,}" for space in spaces),
            " + ".join(f"{space.classes:,}" for space in spaces),
        )
        cells.append((settings.network, *counts, f"{settings.loss:.3f}", settings.device, str(folder)))
    print_table("Trained", ("network", ">images", ">classes", ">loss at the end", "device", "folder"), cells)
    where = folders[0].parent
    typer.echo(f"Next: cdp embed MANIFEST --networks {where} --base {folders[0].name} --out VIEWS")


def _say_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.echo(f"Warning: {message}", err=True)


def _ignore(*_: Any, **__: Any) -> None:
    return
