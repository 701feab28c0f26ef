"""`cdp label` and `cdp example`: options here, work elsewhere, nothing heavy imported."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cdp.cli.app import ForceOption, OutOption, QuietOption, app, plain_errors


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
    grouping: Annotated[
        str,
        typer.Option(help="components (the paper) or average, which one false pair cannot mislead."),
    ] = "components",
    join_above: Annotated[
        float,
        typer.Option(help="With --grouping average: join groups while their mean probability is greater."),
    ] = 0.3,
    method: Annotated[
        str, typer.Option(help="k-NN search: auto (exact up to 50,000 images), exact or nndescent.")
    ] = "auto",
    knn: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=FILE: use this k-NN file for a model of the unlabeled part; may be repeated."
        ),
    ] = None,
    keep_graphs: Annotated[
        Path | None,
        typer.Option(
            help="Keep every k-NN graph in this folder, and use it again where embeddings and k are the same."
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
    seed: Annotated[int, typer.Option(help="Seed.")] = 0,
    threads: Annotated[int, typer.Option(help="Threads; 0 = all cores.")] = 0,
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
                grouping=grouping,
                join_above=join_above,
                method=method,
                knn=tuple(knn or ()),
                keep_graphs=keep_graphs,
                depth=depth,
                decay=decay,
                base=base,
                dim=dim,
                memory_budget=memory_budget,
                seed=seed,
                threads=threads,
                force=force,
                quiet=quiet,
            )
        )


@app.command()
def example(
    out: OutOption = Path("example"),
    identities: Annotated[int, typer.Option(help="How many made-up people.")] = 1000,
    seed: Annotated[int, typer.Option(help="Seed.")] = 0,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Label made-up embeddings four ways and compare, in under a minute, with no download."""
    with plain_errors():
        from cdp.cli.example import run_example

        run_example(out, identities, seed=seed, force=force, quiet=quiet)
