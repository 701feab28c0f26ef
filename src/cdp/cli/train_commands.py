"""`cdp run`, `cdp demo`, `cdp train`: from images to networks and labels, by a recipe or step by step."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer import Argument, Option

from cdp.cli.app import (
    ForceOption,
    LinesOption,
    PlanOption,
    QuietOption,
    app,
    plain_errors,
    print_table,
)
from cdp.cli.derived_options import Given, settings_from, with_settings
from cdp.cli.help_pages import Command, help_page
from cdp.cli.image_options import ManifestArgument, ManifestOptions
from cdp.cli.recipe_options import with_recipe
from cdp.cli.signals import resumable
from cdp.errors import InputError, install_command
from cdp.nets.recipe import JointLoss, Recipe
from cdp.runtime.settings import ON_RAY, RuntimeSettings
from cdp.settings import setting

if TYPE_CHECKING:
    from cdp.config.sections import RunRecipe
    from cdp.nets.processes import World
    from cdp.run.runner import Planned
    from cdp.runtime.progress import Progress
    from cdp.types.manifest import Manifest


@app.command(cls=Command)
@with_recipe
@help_page(
    "cdp run --labeled labeled --unlabeled unlabeled --out work",
    "cdp run recipe.toml --out work --consensus.k 10",
    Input="recipe data__images data__labeled data__unlabeled data__embeddings data__test",
    Result="out plan consensus__preset base__network committee__networks",
    Machine="engine__threads engine__device seed quiet as_json",
)
@plain_errors()
def run(
    out: Annotated[
        Path, Option("--out", metavar="FOLDER", help="The collection; an interrupted run goes on in it.")
    ],
    overrides: Given,
    recipe: Annotated[
        str | None, Argument(metavar="RECIPE", help="A recipe (TOML); any key of it can be an option.")
    ] = None,
    plan: PlanOption = False,
    quiet: QuietOption = False,
    as_json: LinesOption = False,
) -> None:
    """Run the whole paper on your images or embeddings: split, train, label, train again, measure, report.

    Images are a folder per person or any other layout; embeddings are labeled without training. The result is
    a collection with the labels, and the networks in FOLDER/run. What is up to date is kept: run the same
    command again after an interruption or a change.
    """
    from cdp.config.reading import read_recipe, recipe_from

    if recipe is not None and Path(recipe).is_dir():
        raise InputError(
            f"{recipe} is a folder, not a recipe: cdp run --images {recipe} … or --embeddings {recipe} …",
            code="recipe-is-a-folder",
            folder=recipe,
        )
    settings = recipe_from({}, overrides) if recipe is None else read_recipe(recipe, overrides)
    run_or_plan(settings, out, plan=plan, quiet=quiet, as_json=as_json)


@app.command(cls=Command)
@with_recipe
@help_page(
    "cdp demo",
    "cdp demo --embeddings --out example",
    Result="out full quick embeddings plan force",
    Machine="engine__threads seed quiet as_json",
)
@plain_errors()
def demo(
    overrides: Given,
    out: Annotated[
        Path, Option("--out", metavar="FOLDER", help="The demo's folder; an interrupted demo goes on in it.")
    ] = Path("demo"),
    full: Annotated[
        bool, Option("--full", help="More faces and stronger networks; takes about three times as long.")
    ] = False,
    quick: Annotated[
        bool, Option("--quick", help="A smoke test: few faces, weak networks, poor figures.")
    ] = False,
    embeddings: Annotated[
        bool,
        Option("--embeddings", help="No images: label made-up embeddings four ways and compare."),
    ] = False,
    plan: PlanOption = False,
    force: ForceOption = False,
    quiet: QuietOption = False,
    as_json: LinesOption = False,
) -> None:
    """Show the whole paper on drawn faces, without downloads or a GPU; ends with a page to look at."""
    from cdp.runtime.progress import progress_bars
    from cdp_lab.demo import Size, demo_recipe, draw_demo_faces, plan_demo

    if not embeddings and not plan and not _has_torch():
        typer.echo(
            "PyTorch is not installed, so no networks are trained: this labels made-up embeddings only. For "
            f"the whole paper: {install_command('demo')}.",
            err=True,
        )
        embeddings, overrides = True, {key: value for key, value in overrides.items() if key == "seed"}
    if embeddings:
        _demo_embeddings(out, overrides, force=force, quiet=quiet)
        return
    size: Size = "full" if full else "quick" if quick else "default"
    recipe = demo_recipe(out, size, overrides)
    if plan:
        _show_plan(plan_demo(out, recipe, size), out, as_json=as_json)
        return
    if force:
        from cdp.run.run_recipe import clear

        clear(out)
    with resumable(), progress_bars(not (quiet or as_json)) as progress:
        draw_demo_faces(out, recipe, size, progress=progress)
    run_or_plan(recipe, out, plan=False, quiet=quiet, as_json=as_json)


def _has_torch() -> bool:
    from importlib.util import find_spec

    return find_spec("torch") is not None


def _demo_embeddings(out: Path, overrides: Given, *, force: bool, quiet: bool) -> None:
    """Made-up embeddings labeled four ways, and the last one's collection."""
    from cdp.cli.label_command import Files, Labeling, label_embeddings
    from cdp.cli.terminal import print_example
    from cdp.runtime.progress import progress_bars
    from cdp.runtime.runtime import Runtime
    from cdp.scoring.settings import ConsensusSettings
    from cdp.storage.artifacts import fill, write_card
    from cdp.storage.files import writing_folder
    from cdp_lab.demo import compare_ways
    from cdp_lab.synthetic import synthetic_views

    seed = overrides.pop("seed", 0)
    if overrides:
        raise InputError(
            f"--embeddings takes --seed only, not {next(iter(overrides))}.",
            code="demo-option-not-taken",
            key=next(iter(overrides)),
        )
    split = synthetic_views(1000, seed=seed)
    with writing_folder(out, force=force, kind="Example") as folder:
        for name, part in (("labeled", split.labeled), ("unlabeled", split.unlabeled)):
            fill(folder / name, part)
        with progress_bars(not quiet) as progress:
            rows = compare_ways(split, seed=seed, progress=progress)
        files = Files(str(folder / "unlabeled"), folder / "labeled")
        how = Labeling(folder / "faces", ConsensusSettings.of(), seed, quiet=True)
        label_embeddings(files, how, Runtime())
        write_card(folder, "Example", "Made-up embeddings, labeled four ways", {"seed": seed}, {})
    if not quiet:
        print_example(split, rows, out)


def run_or_plan(recipe: RunRecipe, out: Path, *, plan: bool, quiet: bool, as_json: bool) -> None:
    """Run a recipe and say how it went, or say what would run."""
    from cdp.cli.terminal import JsonLines, Terminal, listening, print_run, say_line
    from cdp.run.run_recipe import plan_recipe, run_recipe
    from cdp.run.runner import Listener

    if plan:
        _show_plan(plan_recipe(recipe, out), out, as_json=as_json)
        return
    with (
        resumable(),
        listening(Listener, JsonLines, Terminal, as_json=as_json, quiet=quiet) as listener,
    ):
        outcome = run_recipe(recipe, out, command=typed_command(sys.argv[1:]), listener=listener)
    record = outcome.record
    if as_json:
        headline = record.results.headline
        gap = None if headline is None or headline.gap_closed is None else headline.gap_closed.rank1.value
        models = [] if headline is None else headline.models
        about = {"folder": str(out), "report": str(outcome.report), "seconds": round(record.seconds or 0, 1)}
        rank1 = {model.key: model.rank1.value for model in models}
        say_line("run", {**about, "rank1": rank1, "gap_closed": gap, "notes": record.notes})
    elif not quiet:
        print_run(record, out)


def _show_plan(planned: Sequence[Planned], out: Path, *, as_json: bool) -> None:
    from rich.text import Text

    from cdp.cli.terminal import say_line

    if as_json:
        for one in planned:
            say_line("plan", {"stage": one.stage.name, "state": one.state, "why": one.why})
        return
    words = {
        "fresh": Text("kept", "green"),
        "run": Text("would run", "bold"),
        "perhaps": Text("if inputs change", "yellow"),
    }
    rows = [(one.stage.name, words[one.state], one.why) for one in planned]
    print_table(f"Dry run of {out}", ("stage", "", "why"), rows)
    n_runs, n_perhaps = (sum(one.state == state for one in planned) for state in ("run", "perhaps"))
    more = f"; {n_perhaps} more if their inputs change" if n_perhaps else ""
    typer.echo(f"{n_runs} of {len(planned)} stages would run{more}.")


def typed_command(arguments: Sequence[str], program: str = "cdp") -> str:
    """Return the command as it was typed, for the record."""
    import shlex

    return shlex.join([program, *arguments])


@dataclass(frozen=True)
class RunOptions(ManifestOptions):
    """What training takes in addition to settings, device, threads and memory."""

    trunks: str = setting("", "A Python file that registers trunks of your own.")
    checkpoint_every: int = setting(0, "Steps between checkpoints; 0 = every epoch.", low=0)
    tensorboard: bool = setting(False, "Write TensorBoard files too.")
    start_from: str = setting("", "Start from these weights: .safetensors, a network's folder, or timm.")


FLAGS = {
    "labeled_share": "--lambda",
    "one_classifier": "--one-classifier",
    "color": "--color/--grey",
    "tensorboard": "--tensorboard",
}


_MOST_PIXELS = 10**4
_PSEUDO = "Pseudo-labels"
UnlabeledOption = Annotated[
    list[str] | None,
    Option(metavar="IMAGES", help="Unlabeled images to train on too.", rich_help_panel=_PSEUDO),
]
LabelsOption = Annotated[
    list[Path] | None,
    Option(
        metavar="COLLECTION",
        help="Their pseudo-labels: a collection, .npy or text; one per --unlabeled.",
        rich_help_panel=_PSEUDO,
    ),
]
SoftOption = Annotated[
    bool, Option("--soft", help="Use soft labels (cdp label --soft-depth).", rich_help_panel=_PSEUDO)
]
TeachersOption = Annotated[
    list[Path] | None,
    Option(
        metavar="VIEWS",
        help="With --distill: embeddings of an unlabeled part to follow; one per --unlabeled.",
        rich_help_panel=_PSEUDO,
    ),
]
TrueLabelsOption = Annotated[
    bool, Option("--true-labels", help="The upper bound: all true identities.", rich_help_panel=_PSEUDO)
]
ListOption = Annotated[
    bool, Option("--list-networks", help="List all networks with their parameters, and stop.")
]
ClassesOption = Annotated[
    int, Option(help="With --list-networks: identities of the classifier.", min=1, max=10**9)
]


@app.command(cls=Command)
@with_settings(Recipe, JointLoss, RuntimeSettings, RunOptions, without=ON_RAY, flags=FLAGS)
@help_page(
    "cdp train labeled --network small_resnet --network small_vgg --out networks",
    "cdp train labeled --network small_resnet --unlabeled unlabeled --labels faces --out joint",
    Input="manifest network unlabeled labels soft list_networks",
    Result="out force epochs loss",
    Machine="threads device seed quiet",
)
@plain_errors()
def train(
    manifest: ManifestArgument = "",
    out: Annotated[
        Path | None,
        Option("--out", metavar="FOLDER", help="Folder for the networks; an interrupted run goes on here."),
    ] = None,
    network: Annotated[
        list[str] | None, Option(metavar="NAME", help="A network, or NAME:SEED for several of one kind.")
    ] = None,
    *,
    unlabeled: UnlabeledOption = None,
    labels: LabelsOption = None,
    soft: SoftOption = False,
    teachers: TeachersOption = None,
    true_labels: TrueLabelsOption = False,
    list_networks: ListOption = False,
    classes: ClassesOption = 35012,
    json: Annotated[bool, Option("--json", help="With --list-networks: print as JSON.")] = False,
    force: Annotated[bool, Option("--force", help="Throw away what is there and start again.")] = False,
    quiet: QuietOption = False,
    given: Given,
) -> None:
    """Train networks on labeled images, or one network on labeled and pseudo-labeled images together."""
    from cdp.storage.files import check_writable

    if list_networks:
        _list_networks(classes, given, as_json=json)
        return
    if not manifest or out is None:
        raise InputError(
            "Give the labeled images and --out FOLDER: cdp train IMAGES --network NAME --out FOLDER.",
            code="train-inputs-not-given",
        )
    if not network:
        raise InputError(
            "Name at least one --network; cdp train --list-networks lists them.", code="network-not-given"
        )
    pseudo = _Pseudo(tuple(unlabeled or ()), tuple(labels or ()), tuple(teachers or ()), soft, true_labels)
    pseudo.check(network, given)
    check_writable(out)
    inputs: list[str | Path] = [manifest, *pseudo.parts, *pseudo.labels, *pseudo.teachers]
    with _training(given, force, inputs, quiet) as (options, shared, say):
        from cdp.data.manifests import merge_manifests
        from cdp.nets.supervised import train_supervised

        labeled, parts = options.read(manifest), [options.read(one) for one in pseudo.parts]
        if parts and not true_labels:
            say([pseudo.train(labeled, parts, network[0], out, settings_from(JointLoss, given), shared)])
        else:
            whole = merge_manifests([labeled, *parts]) if parts else labeled
            say(train_supervised(whole, network, out, **shared))


@dataclass(frozen=True)
class _Pseudo:
    """Unlabeled images to train on, with what is known of them."""

    parts: tuple[str, ...]
    labels: tuple[Path, ...]
    teachers: tuple[Path, ...]
    soft: bool
    are_true: bool

    def check(self, networks: Sequence[str], given: Given) -> None:
        """Refuse what does not go together."""
        if not self.parts:
            if self.labels or self.teachers or self.soft or self.are_true:
                raise InputError(
                    "--labels, --teachers, --soft and --true-labels go with --unlabeled IMAGES.",
                    code="unlabeled-not-given",
                )
            return
        if len(networks) != 1:
            raise InputError(
                "With --unlabeled one network is trained; give one --network.",
                code="network-not-one",
                found=len(networks),
            )
        if self.are_true and (self.labels or self.teachers or self.soft or "labeled_share" in given):
            raise InputError(
                "--true-labels goes without --labels, --teachers, --soft and --lambda.",
                code="true-labels-clash",
            )
        distill = settings_from(JointLoss, given).distill
        n_parts, n_labels, n_teachers = len(self.parts), len(self.labels), len(self.teachers)
        if not self.are_true and n_labels != n_parts:
            raise InputError(
                f"{n_parts} --unlabeled but {n_labels} --labels; give one --labels per part, in order.",
                code="labels-per-part-differ",
                expected=n_parts,
                found=n_labels,
            )
        if (n_teachers > 0) != (distill > 0) or n_teachers not in (0, n_parts):
            raise InputError(
                f"--distill {distill:g} with {n_teachers} --teachers for {n_parts} unlabeled parts; give "
                "both, one --teachers per part, in order, or neither.",
                code="teachers-per-part-differ",
                expected=n_parts,
                found=n_teachers,
            )

    def train(
        self,
        labeled: Manifest,
        parts: Sequence[Manifest],
        network: str,
        out: Path,
        loss: JointLoss,
        shared: dict[str, Any],
    ) -> Path:
        """Train on both."""
        from cdp.data.views import read_views
        from cdp.nets.joint import read_pseudo_part, train_joint

        views = [read_views(path) for path in self.teachers] if self.teachers else [None] * len(parts)
        pseudo = [
            read_pseudo_part(part, file, soft=self.soft, siblings=loss.siblings, teachers=one)
            for part, file, one in zip(parts, self.labels, views, strict=True)
        ]
        return train_joint(
            labeled,
            pseudo,
            network,
            out,
            labeled_share=None if loss.labeled_share < 0 else loss.labeled_share,
            distill=loss.distill,
            one_classifier=loss.one_classifier,
            **shared,
        )


def _list_networks(classes: int, given: Given, *, as_json: bool) -> None:
    from cdp.nets.torchvision_guard import require

    require("torch")
    from cdp.nets.embedding import count_all_parameters
    from cdp.nets.trunks import load_trunks

    if trunks := given.get("trunks"):
        load_trunks(trunks)
    recipe, size = settings_from(Recipe, given), given.get("size") or 224
    if size > _MOST_PIXELS:
        raise InputError(
            f"--size {size}: networks are listed for {_MOST_PIXELS:,} pixels a side at most.",
            code="listed-size-too-large",
            option="--size",
            value=size,
        )
    rows = count_all_parameters(classes, size, recipe.channels, recipe.dimensions)
    if as_json:
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


@contextmanager
def _training(
    given: Given, force: bool, inputs: Sequence[str | Path], quiet: bool
) -> Iterator[tuple[RunOptions, dict[str, Any], Callable[[Sequence[Path]], None]]]:
    """Yield the options, the arguments of all training functions, and a printer of networks."""
    recipe, engine = settings_from(Recipe, given), settings_from(RuntimeSettings, given)
    options = settings_from(RunOptions, given)
    with torch_ready(options.trunks, engine, quiet) as (world, progress):
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
        is_shown = world.is_first and not quiet
        yield (
            options,
            {**shared, "device": engine.device, "options": loop},
            _print_trained if is_shown else _ignore,
        )


@contextmanager
def torch_ready(trunks: str, engine: RuntimeSettings, quiet: bool) -> Iterator[tuple[World, Progress]]:
    """Set up torch: threads, processes of torchrun, user-defined trunks and progress bars."""
    from cdp.nets.torchvision_guard import require

    torch = require("torch")
    from cdp.nets.processes import joined_world
    from cdp.nets.trunks import load_trunks
    from cdp.runtime.progress import progress_bars

    if engine.threads:
        torch.set_num_threads(engine.threads)
    if trunks:
        load_trunks(trunks)
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
    typer.echo(f"Next: cdp embed IMAGES --networks {where} --base {folders[0].name} --out VIEWS")


def _say_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    typer.echo(f"Warning: {message}", err=True)


def _ignore(*_: Any, **__: Any) -> None:
    return
