"""`cdp`: what can be typed. Options here, work elsewhere; nothing heavy is imported before a command runs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from cdp import __version__
from cdp.cli import net_options
from cdp.errors import CdpError

app = typer.Typer(
    help="Consensus-Driven Propagation: identities you can trust for a mass of unlabeled images.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
evaluation = typer.Typer(help="Measure results against true identities.", no_args_is_help=True)
app.add_typer(evaluation, name="eval")


@contextmanager
def plain_errors() -> Iterator[None]:
    """Errors become one sentence and an exit code: 2 wrong input, 1 failure, 130 interrupted."""
    try:
        yield
    except CdpError as error:
        typer.echo(f"Error: {error}", err=True)
        raise typer.Exit(error.exit_code) from None
    except KeyboardInterrupt:
        typer.echo("Interrupted; no output folder was changed.", err=True)
        raise typer.Exit(130) from None
    except MemoryError:
        typer.echo("Error: out of memory; lower --memory-budget or --k, or use a larger machine.", err=True)
        raise typer.Exit(1) from None
    except BrokenPipeError:
        # The reader of a pipe has gone (`cdp show x | head`); that is not our failure.
        sys.stderr.close()
        raise typer.Exit(0) from None


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cdp {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_say_version, is_eager=True, help="Print the version and stop."),
    ] = False,
) -> None:
    """Consensus-Driven Propagation: identities you can trust for a mass of unlabeled images."""


OutOption = Annotated[Path, typer.Option("--out", help="Folder to write; must not exist unless --force.")]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace the output folder if it is there.")]
QuietOption = Annotated[bool, typer.Option("--quiet", help="No progress bars, no table.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the figures as JSON instead of a table.")]


@app.command()
def label(
    unlabeled: Annotated[
        Path, typer.Argument(help="Views of the images to label: a folder, .npz, .parquet or .npy.")
    ],
    out: OutOption,
    learn_from: Annotated[
        Path | None,
        typer.Option(help="Views of the labeled part, with identities; the mediator learns here."),
    ] = None,
    mediator: Annotated[
        Path | None,
        typer.Option(help="A mediator folder that was learned before, instead of --learn-from."),
    ] = None,
    vote: Annotated[
        bool, typer.Option("--vote", help="Let the committee vote; no labeled part is needed.")
    ] = False,
    quorum: Annotated[
        int | None, typer.Option(help="With --vote: how many members must agree [default: all of them].")
    ] = None,
    similarity: Annotated[
        float | None, typer.Option(help="With --vote: base similarity must be greater than this.")
    ] = None,
    k: Annotated[int, typer.Option(help="Neighbors per image in every graph.")] = 20,
    threshold: Annotated[float, typer.Option(help="Accept a pair if its probability is greater.")] = 0.96,
    max_size: Annotated[int, typer.Option(help="Most images per identity.")] = 600,
    step: Annotated[float, typer.Option(help="How fast the threshold rises while a group is split.")] = 0.1,
    inputs: Annotated[
        str,
        typer.Option(help="What the mediator is told, by commas; add common_neighbors for better labels."),
    ] = "relationship,affinity,distribution",
    method: Annotated[
        str, typer.Option(help="k-NN search: auto (exact up to 50,000 images), exact or nndescent.")
    ] = "auto",
    knn: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=FILE: use this k-NN file for a model of the unlabeled part; may be repeated."
        ),
    ] = None,
    depth: Annotated[
        int, typer.Option(help="Also write soft labels that travel this many steps; 0 = none.")
    ] = 0,
    decay: Annotated[float, typer.Option(help="With --depth: factor per step.")] = 0.2,
    base: Annotated[
        str | None, typer.Option(help="Name of the base model, for folders of .bin files.")
    ] = None,
    dim: Annotated[int | None, typer.Option(help="Dimensions, for .bin files without a list.")] = None,
    memory_budget: Annotated[str, typer.Option(help="Memory for blocks of opinions, e.g. 500MB.")] = "1GB",
    random_state: Annotated[int, typer.Option(help="Seed.")] = 0,
    n_jobs: Annotated[int | None, typer.Option(help="Threads [default: all].")] = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Give every unlabeled image a pseudo-identity, or a reason why it has none."""
    with plain_errors():
        from cdp.cli.label import LabelSettings, label_images

        label_images(
            LabelSettings(
                unlabeled=unlabeled,
                out=out,
                learn_from=learn_from,
                mediator=mediator,
                vote=vote,
                quorum=quorum,
                similarity=similarity,
                k=k,
                threshold=threshold,
                max_size=max_size,
                step=step,
                inputs=tuple(part.strip() for part in inputs.split(",") if part.strip()),
                method=method,
                knn=tuple(knn or ()),
                depth=depth,
                decay=decay,
                base=base,
                dim=dim,
                memory_budget=memory_budget,
                random_state=random_state,
                n_jobs=n_jobs,
                force=force,
                quiet=quiet,
            )
        )


@evaluation.command("labels")
def eval_labels(
    labels: Annotated[Path, typer.Argument(help="A labels folder, or a text file with one number per line.")],
    identities: Annotated[
        Path,
        typer.Option(help="True identities: .npy, a text file with one per line, or views that carry them."),
    ],
    json: JsonOption = False,
) -> None:
    """Pairwise and BCubed figures, NMI, coverage and sizes of labels."""
    with plain_errors():
        from cdp.cli.evaluate import evaluate_labels

        evaluate_labels(labels, identities, as_json=json)


@app.command()
def show(
    folder: Annotated[Path, typer.Argument(help="A folder written by cdp.")],
    json: Annotated[bool, typer.Option("--json", help="Print the card as it is.")] = False,
) -> None:
    """What is this folder, and what was it made from?"""
    with plain_errors():
        from cdp.cli.show import show_folder

        show_folder(folder, as_json=json)


@app.command()
def demo(
    out: OutOption = Path("demo"),
    identities: Annotated[int, typer.Option(help="How many made-up people.")] = 1000,
    random_state: Annotated[int, typer.Option(help="Seed.")] = 0,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Label made-up embeddings four ways and compare, in under a minute, with no download."""
    with plain_errors():
        from cdp.cli.demo import run_demo

        run_demo(out, identities, random_state=random_state, force=force, quiet=quiet)


ManifestArgument = Annotated[
    str,
    typer.Argument(
        help="Images: a folder per identity, .csv, .parquet, list.txt, .zip, .tar (or a pattern), .rec."
    ),
]
RootOption = Annotated[
    Path | None, typer.Option(help="What relative paths in a table start from [default: its folder].")
]
JobsOption = Annotated[int | None, typer.Option(help="Processes that decode images [default: all cores].")]


@app.command()
def split(
    manifest: ManifestArgument,
    out: OutOption,
    labeled: Annotated[str, typer.Option(help="Labeled share of what the test parts leave.")] = "1/11",
    unlabeled_parts: Annotated[int, typer.Option(help="Equal unlabeled parts made of the rest.")] = 10,
    validation: Annotated[str, typer.Option(help="Share of all images for choosing settings.")] = "0",
    probes: Annotated[str, typer.Option(help="Share of all images: people to be found again.")] = "0",
    distractors: Annotated[str, typer.Option(help="Share of all images: people who are not probes.")] = "0",
    seed: Annotated[int, typer.Option(help="Which of the equally good splits.")] = 0,
    rotations: Annotated[
        bool, typer.Option("--rotations", help="Every image four times; each turn of an identity is its own.")
    ] = False,
    root: RootOption = None,
    skip: Annotated[
        Path | None, typer.Option(help="Leave out the images listed here by `cdp check --list`.")
    ] = None,
    skip_unreadable: Annotated[
        bool,
        typer.Option(
            "--skip-unreadable",
            help="Scan first; list unreadable images in OUT/unreadable.csv, go on without.",
        ),
    ] = False,
    table: Annotated[str, typer.Option(help="csv or parquet.")] = "csv",
    n_jobs: JobsOption = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Part images into labeled, unlabeled and test parts, with nobody on two sides."""
    with plain_errors():
        from cdp.cli.images import SplitSettings, split_images

        split_images(
            SplitSettings(
                manifest=manifest,
                out=out,
                labeled=labeled,
                unlabeled_parts=unlabeled_parts,
                validation=validation,
                probes=probes,
                distractors=distractors,
                seed=seed,
                rotations=rotations,
                root=root,
                skip=skip,
                skip_unreadable=skip_unreadable,
                table=table,
                n_jobs=n_jobs,
                force=force,
                quiet=quiet,
            )
        )


@app.command()
def check(
    manifest: ManifestArgument,
    root: RootOption = None,
    list_file: Annotated[
        Path | None, typer.Option("--list", help="Also write the unreadable images to this .csv file.")
    ] = None,
    n_jobs: JobsOption = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the list if it is there.")] = False,
    json: JsonOption = False,
    quiet: QuietOption = False,
) -> None:
    """Decode every image and list those that cannot be read; the exit code is 2 if there are any."""
    with plain_errors():
        from cdp.cli.images import check_manifest

        check_manifest(
            manifest, root=root, list_file=list_file, n_jobs=n_jobs, force=force, as_json=json, quiet=quiet
        )


@app.command()
def networks(
    classes: Annotated[int, typer.Option(help="Identities that the classifier tells apart.")] = 35012,
    size: Annotated[int, typer.Option(help="Pixels a side.")] = 224,
    color: net_options.Color = True,
    dimensions: net_options.Dimensions = 256,
    trunks: net_options.Trunks = None,
    json: JsonOption = False,
) -> None:
    """List every network with the number of its parameters, classifier included."""
    with plain_errors():
        from cdp.cli.nets import list_networks

        list_networks(classes, size, color=color, dimensions=dimensions, trunks=trunks, as_json=json)


@app.command()
def train(
    manifest: ManifestArgument,
    out: net_options.Out,
    network: Annotated[
        list[str] | None, typer.Option(help="NAME, or NAME:SEED for several of one kind; repeatable.")
    ] = None,
    epochs: net_options.Epochs = 20,
    batch: net_options.Batch = 128,
    rate: net_options.Rate = 0.1,
    schedule: net_options.Schedule = "one_cycle",
    size: net_options.Size = 32,
    scale: net_options.Scale = 0,
    color: net_options.Color = True,
    dimensions: net_options.Dimensions = 256,
    loss: net_options.Loss = "softmax",
    flip: net_options.Flip = False,
    shift: net_options.Shift = 0.0,
    rotate: net_options.Rotate = 0.0,
    zoom: net_options.Zoom = 0.0,
    enlarge: net_options.Enlarge = False,
    seed: net_options.Seed = 0,
    more: net_options.Set = None,
    root: net_options.Root = None,
    skip: net_options.Skip = None,
    trunks: net_options.Trunks = None,
    checkpoint_every: net_options.CheckpointEvery = 0,
    tensorboard: net_options.Tensorboard = False,
    memory_budget: net_options.MemoryBudget = "2GB",
    threads: net_options.Threads = None,
    force: net_options.Force = False,
    quiet: QuietOption = False,
) -> None:
    """Stage 1: train a base model and a committee on labeled images, from scratch."""
    with plain_errors():
        from cdp.cli.nets import RunSettings, make_recipe, train_networks

        given = {
            "epochs": epochs,
            "batch": batch,
            "rate": rate,
            "schedule": schedule,
            "size": size,
            "scale": scale,
            "color": color,
            "dimensions": dimensions,
            "loss": loss,
            "flip": flip,
            "shift": shift,
            "rotate": rotate,
            "zoom": zoom,
            "enlarge": enlarge,
            "seed": seed,
        }
        settings = RunSettings(
            out, root, skip, trunks, checkpoint_every, tensorboard, memory_budget, threads, force, quiet
        )
        train_networks(manifest, network or [], make_recipe(given, more or []), settings)


@app.command()
def embed(
    manifest: ManifestArgument,
    networks: Annotated[Path, typer.Option(help="The --out of cdp train or cdp join.")],
    base: Annotated[str, typer.Option(help="Which of the networks is the base.")],
    out: OutOption,
    member: Annotated[
        list[str] | None, typer.Option(help="A committee member; repeatable [default: all others].")
    ] = None,
    alone: Annotated[bool, typer.Option("--alone", help="The base only, no committee.")] = False,
    flip: Annotated[bool, typer.Option("--flip", help="Average with the mirrored image.")] = False,
    batch: Annotated[int, typer.Option(help="Images per forward pass.")] = 256,
    root: net_options.Root = None,
    skip: net_options.Skip = None,
    trunks: net_options.Trunks = None,
    threads: net_options.Threads = None,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Embed images with trained networks; row = manifest row. A killed run goes on where it was."""
    with plain_errors():
        from cdp.cli.nets import RunSettings, embed_images

        settings = RunSettings(out, root, skip, trunks, threads=threads, force=force, quiet=quiet)
        members = [] if alone else member
        embed_images(
            manifest, networks, base, out, members=members, flip=flip, batch=batch, settings=settings
        )


@app.command()
def join(
    labeled: ManifestArgument,
    unlabeled: Annotated[list[str], typer.Argument(help="Manifests of the unlabeled parts.")],
    out: net_options.Out,
    network: Annotated[str, typer.Option(help="NAME or NAME:SEED.")],
    labels: Annotated[
        list[Path] | None, typer.Option(help="Labels of an unlabeled part; one per part, in order.")
    ] = None,
    labeled_share: Annotated[
        float | None,
        typer.Option("--lambda", help="Weight of the labeled loss [default: its share of images]."),
    ] = None,
    soft: Annotated[bool, typer.Option("--soft", help="Use soft labels (cdp label --depth).")] = False,
    true_labels: Annotated[
        bool, typer.Option("--true-labels", help="The upper bound: all true identities, one classifier.")
    ] = False,
    epochs: net_options.Epochs = 20,
    batch: net_options.Batch = 128,
    rate: net_options.Rate = 0.1,
    schedule: net_options.Schedule = "one_cycle",
    size: net_options.Size = 32,
    scale: net_options.Scale = 0,
    color: net_options.Color = True,
    dimensions: net_options.Dimensions = 256,
    loss: net_options.Loss = "softmax",
    flip: net_options.Flip = False,
    shift: net_options.Shift = 0.0,
    rotate: net_options.Rotate = 0.0,
    zoom: net_options.Zoom = 0.0,
    enlarge: net_options.Enlarge = False,
    seed: net_options.Seed = 0,
    more: net_options.Set = None,
    root: net_options.Root = None,
    skip: net_options.Skip = None,
    trunks: net_options.Trunks = None,
    checkpoint_every: net_options.CheckpointEvery = 0,
    tensorboard: net_options.Tensorboard = False,
    memory_budget: net_options.MemoryBudget = "2GB",
    threads: net_options.Threads = None,
    force: net_options.Force = False,
    quiet: QuietOption = False,
) -> None:
    """Stage 3: train one network from scratch on true and pseudo-labels together."""
    with plain_errors():
        from cdp.cli.nets import RunSettings, join_parts, make_recipe

        given = {
            "epochs": epochs,
            "batch": batch,
            "rate": rate,
            "schedule": schedule,
            "size": size,
            "scale": scale,
            "color": color,
            "dimensions": dimensions,
            "loss": loss,
            "flip": flip,
            "shift": shift,
            "rotate": rotate,
            "zoom": zoom,
            "enlarge": enlarge,
            "seed": seed,
        }
        settings = RunSettings(
            out, root, skip, trunks, checkpoint_every, tensorboard, memory_budget, threads, force, quiet
        )
        join_parts(
            labeled,
            unlabeled,
            labels or [],
            network,
            make_recipe(given, more or []),
            settings,
            labeled_share=labeled_share,
            soft=soft,
            true_labels=true_labels,
        )


@app.command()
def ensemble(
    views: Annotated[Path, typer.Argument(help="Views with several models.")],
    models: Annotated[str, typer.Option(help="Models by commas, e.g. base,resnet18,vgg16.")],
    out: OutOption,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """The paper's ensemble baseline: embeddings of several models side by side, as one model."""
    with plain_errors():
        from cdp.cli.nets import ensemble_views

        names = [name.strip() for name in models.split(",") if name.strip()]
        ensemble_views(views, names, out, force=force, quiet=quiet)


run: Callable[[], None] = app
