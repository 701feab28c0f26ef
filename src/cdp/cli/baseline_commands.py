"""`cdp baselines`: options here, work elsewhere, nothing heavy imported."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cdp.cli.app import QuietOption, app, plain_errors


@app.command()
def baselines(
    unlabeled: Annotated[
        Path, typer.Argument(help="Views of the images to label, with identities to measure against.")
    ],
    tune_on: Annotated[
        Path, typer.Option(help="Views with identities on which every method's settings are tuned.")
    ],
    out: Annotated[Path, typer.Option("--out", help="JSON file to write; must not exist unless --force.")],
    methods: Annotated[
        str | None,
        typer.Option(
            help="Which methods, by commas [default: all but leiden and infomap, which are extras to install]."
        ),
    ] = None,
    learn_from: Annotated[
        Path | None,
        typer.Option(help="Views of a labeled part: adds rows for CDP, whose mediator learns here."),
    ] = None,
    model: Annotated[
        str, typer.Option(help="Whose embeddings the methods get: base, a member's name, or ensemble.")
    ] = "base",
    k: Annotated[int, typer.Option(help="Neighbors per image in every graph.")] = 20,
    method: Annotated[
        str, typer.Option(help="k-NN search: auto (exact up to 50,000 images), exact or nndescent.")
    ] = "auto",
    memory_budget: Annotated[
        str, typer.Option(help="Memory for all pairs in hierarchical clustering, and for CDP's blocks.")
    ] = "1GB",
    seed: Annotated[int, typer.Option(help="Seed.")] = 0,
    threads: Annotated[int, typer.Option(help="Threads, where a method uses several; 0 = all cores.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Replace the output file if it is there.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Label by other clustering methods, tuned, beside CDP: quality, seconds and memory on the same embeddings."""
    with plain_errors():
        from cdp.cli.baselines import BaselineSettings, compare_baselines

        compare_baselines(
            BaselineSettings(
                unlabeled=unlabeled,
                tune_on=tune_on,
                out=out,
                methods=None
                if methods is None
                else tuple(m.strip() for m in methods.split(",") if m.strip()),
                learn_from=learn_from,
                model=model,
                k=k,
                method=method,
                memory_budget=memory_budget,
                seed=seed,
                threads=threads,
                force=force,
                quiet=quiet,
            )
        )
