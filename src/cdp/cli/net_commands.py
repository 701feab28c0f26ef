"""`cdp networks`, `train`, `embed`, `join` and `ensemble`: options here, work elsewhere, nothing heavy imported."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cdp.cli import net_options
from cdp.cli.app import ForceOption, JsonOption, OutOption, QuietOption, app, plain_errors
from cdp.cli.image_commands import ManifestArgument


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
    rate: net_options.Rate = 0.05,
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
    threads: net_options.Threads = 0,
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
    threads: net_options.Threads = 0,
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
    rate: net_options.Rate = 0.05,
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
    threads: net_options.Threads = 0,
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
