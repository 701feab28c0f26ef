"""`cdp embed`: images through ONNX models and trained networks into views."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory, mkdtemp
from typing import TYPE_CHECKING, Annotated, Protocol

import typer

from cdp.cli.app import ForceOption, OutOption, QuietOption, app, plain_errors
from cdp.cli.derived_options import Given, settings_from, with_settings
from cdp.cli.help_pages import Command, help_page
from cdp.cli.image_options import ManifestArgument
from cdp.cli.signals import resumable
from cdp.cli.train_commands import RunOptions, torch_ready
from cdp.errors import InputError
from cdp.runtime.settings import ON_RAY, RuntimeSettings

if TYPE_CHECKING:
    from cdp.nets.embed_images import Embedded, Embedder
    from cdp.runtime.progress import Progress


@app.command(cls=Command)
@with_settings(RuntimeSettings, RunOptions, only=("device", "threads", *ON_RAY, "root", "skip", "trunks"))
@help_page(
    "cdp embed faces --model model.onnx --out embeddings",
    "cdp embed images --networks networks --base small_resnet --out embeddings",
    Input="manifest model networks base member alone",
    Result="out flip force",
    Machine="batch threads device quiet",
)
@plain_errors()
def embed(
    manifest: ManifestArgument,
    out: OutOption,
    given: Given,
    model: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="A model as .onnx; the first is the base."),
    ] = None,
    networks: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Folder written by cdp train.")
    ] = None,
    base: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The base among --networks; default: the first --model."),
    ] = None,
    member: Annotated[
        list[str] | None, typer.Option(metavar="NAME", help="A committee member; all others by default.")
    ] = None,
    alone: Annotated[bool, typer.Option("--alone", help="The base only, no committee.")] = False,
    flip: Annotated[bool, typer.Option("--flip", help="Average with the mirrored image.")] = False,
    batch: Annotated[
        int, typer.Option(help="Images per forward pass; 0 = what suits the model.", min=0, max=10**6)
    ] = 0,
    force: ForceOption = False,
    quiet: QuietOption = False,
) -> None:
    """Embed images with ONNX models or trained networks. An interrupted run goes on where it was.

    Images that cannot be read are left out and listed in OUT/unreadable.csv; OUT/images.csv then has the
    others.
    """
    chosen = Models(tuple(model or ()), networks, base, [] if alone else member)
    made = embed_images(
        manifest, chosen, out, given, flip=flip, batch=batch, skip=True, force=force, quiet=quiet
    )
    for note in made.notes:
        typer.echo(f"Note: {note}", err=True)
    if made.unreadable:
        listed = f"{len(made.unreadable):,} of {len(made.manifest) + len(made.unreadable):,} images"
        typer.echo(
            f"{listed} cannot be read and have no row; {out / 'unreadable.csv'} lists them, "
            f"{out / 'images.csv'} the others.",
            err=True,
        )
    if not quiet:
        typer.echo(f"{made.views}\nWritten to {out}. Next: cdp label {out} …")


@dataclass(frozen=True)
class Models:
    """What images are embedded with: ONNX models, trained networks or both.

    Attributes:
        networks: folder of trained networks.
        base: which of the networks is the base; None = the first of the files.
        members: which networks are in the committee; None = all but the base.
    """

    files: tuple[Path, ...] = ()
    networks: Path | None = None
    base: str | None = None
    members: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.networks is None and (self.base is not None or self.members):
            raise InputError(
                "--base and --member name trained networks: give their folder as --networks.",
                code="networks-not-given",
            )
        if self.base is None and not self.files:
            raise InputError(
                "No model: give --model FILE.onnx, or --networks FOLDER and --base NAME.",
                code="embedding-models-not-given",
            )

    def open(self, device: str) -> list[Embedder]:
        """Return all of them ready to embed, the base first."""
        from cdp.nets.onnx_models import open_models

        opened: list[Embedder] = [*open_models(self.files, device)]
        if self.networks is not None:
            from cdp.nets.extract import open_networks

            trained: list[Embedder] = [*open_networks(self.networks, self.base, self.members, device)]
            opened = opened + trained if self.base is None else trained[:1] + opened + trained[1:]
        return opened


def embed_images(
    manifest: str,
    models: Models,
    out: Path,
    given: Given,
    *,
    flip: bool = False,
    batch: int = 0,
    skip: bool = False,
    force: bool = False,
    quiet: bool = False,
) -> Embedded:
    """Embed the images of a manifest.

    `given` holds settings of RuntimeSettings and RunOptions; `skip` applies to unreadable images.
    """
    from cdp.nets.embed_images import embed_images as embed
    from cdp.runtime.runtime import Runtime
    from cdp.storage.files import check_output

    options, engine = settings_from(RunOptions, given), settings_from(RuntimeSettings, given)
    inputs = [manifest, options.skip, models.networks, *models.files]
    check_output(out, force=force, kind="Views", inputs=inputs)
    with _embedding_tools(models, options, engine, quiet) as progress:
        return embed(
            options.read(manifest),
            models.open(engine.device),
            out,
            flip=flip,
            batch=batch,
            skip_unreadable=skip,
            force=force,
            inputs=inputs,
            runtime=Runtime(engine, progress=progress),
        )


@contextmanager
def _embedding_tools(
    models: Models, options: RunOptions, engine: RuntimeSettings, quiet: bool
) -> Iterator[Progress]:
    """Progress bars, and torch where a network needs it."""
    from cdp.runtime.progress import progress_bars

    if models.networks is None:
        with resumable(), progress_bars(not quiet) as progress:
            yield progress
        return
    with torch_ready(options.trunks, engine, quiet) as (world, progress):
        if world.is_shared:
            raise InputError(
                "cdp embed runs as one process; start it without torchrun.", code="embed-in-several-processes"
            )
        yield progress


class Embed(Protocol):
    """Embeds images by a trained network; answers with the views' folder."""

    def __call__(self, network: Path, images: Path) -> Path:
        """Embed a manifest, a folder of images or an InsightFace pack."""


@contextmanager
def embedding(*, flip: bool, threads: int, quiet: bool, device: str = "auto") -> Iterator[Embed]:
    """For `cdp eval … --network`: embeds into a temporary folder that is gone afterwards."""
    with TemporaryDirectory(prefix="cdp-eval-") as home:

        def embed(network: Path, images: Path) -> Path:
            if not (network / "card.json").exists():
                raise InputError(
                    f"{network}: not a trained network; give its own folder, such as nets/small_resnet.",
                    code="network-folder-wrong",
                    folder=network,
                )
            out = Path(mkdtemp(dir=home)) / "views"
            manifest = _unpack(images, out.parent) if images.suffix == ".bin" else images
            given = {"threads": threads, "device": device}
            models = Models(networks=network.parent, base=network.name, members=[])
            embed_images(str(manifest), models, out, given, flip=flip, quiet=quiet)
            return out

        yield embed


def _unpack(pack: Path, folder: Path) -> Path:
    """Return the images of a verification pack as files and a manifest, in the pack's order."""
    from cdp.data.verification_packs import read_verification_pack

    manifest = folder / "images.csv"
    with manifest.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "identity"])
        for row, content in enumerate(read_verification_pack(pack).images):
            name = f"{row:06d}.png"
            (folder / name).write_bytes(content)
            rows.writerow([name, -1])
    return manifest
