"""The options that `cdp train`, `cdp join` and `cdp embed` share: names and help, nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Out = Annotated[Path, typer.Option("--out", help="Folder for the networks; a killed run goes on here.")]
Epochs = Annotated[float, typer.Option(help="Passes over the images.")]
Batch = Annotated[int, typer.Option(help="Images per step, over all processes.")]
Rate = Annotated[float, typer.Option(help="Highest learning rate.")]
Schedule = Annotated[str, typer.Option(help="one_cycle for short runs, or paper.")]
Size = Annotated[int, typer.Option(help="Pixels a side that the network sees.")]
Scale = Annotated[int, typer.Option(help="Scale images to this and crop --size out of it; 0 = no crop.")]
Color = Annotated[bool, typer.Option("--color/--grey", help="Color or grey images.")]
Dimensions = Annotated[int, typer.Option(help="Length of an embedding.")]
Loss = Annotated[str, typer.Option(help="softmax, arcface or cosface.")]
Flip = Annotated[bool, typer.Option(help="Mirror half of the images.")]
Shift = Annotated[float, typer.Option(help="Move images by up to this share of their side.")]
Rotate = Annotated[float, typer.Option(help="Turn images by up to this many degrees.")]
Zoom = Annotated[float, typer.Option(help="Scale images by up to this share.")]
Enlarge = Annotated[bool, typer.Option("--enlarge", help="Allow images smaller than --size.")]
Seed = Annotated[int, typer.Option(help="Of initialization, order and augmentation.")]
Set = Annotated[
    list[str] | None, typer.Option("--set", help="KEY=VALUE: any other setting of the recipe; repeatable.")
]
Root = Annotated[Path | None, typer.Option(help="What relative paths in a table start from.")]
Skip = Annotated[Path | None, typer.Option(help="Leave out the images listed by `cdp check --list`.")]
Trunks = Annotated[Path | None, typer.Option(help="A Python file that registers trunks of your own.")]
CheckpointEvery = Annotated[int, typer.Option(help="Steps between checkpoints; 0 = every epoch.")]
Tensorboard = Annotated[bool, typer.Option("--tensorboard", help="Write TensorBoard files too.")]
MemoryBudget = Annotated[str, typer.Option(help="Decoded images beyond this stay on disk.")]
Threads = Annotated[int, typer.Option(help="Threads that compute and decode; 0 = all cores.")]
Force = Annotated[bool, typer.Option("--force", help="Throw away what is there and start again.")]
