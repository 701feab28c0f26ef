"""`cdp eval … --network`: images are embedded by a trained network first, into a folder that is gone afterwards."""

from __future__ import annotations

import csv
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from cdp.cli.nets import RunSettings, embed_images
from cdp.data.verification_packs import read_verification_pack
from cdp.errors import InputError


class Embed(Protocol):
    """Embeds images by a trained network; answers with the views' folder."""

    def __call__(self, network: Path, images: Path) -> Path:
        """Embed a manifest, a folder of images or an InsightFace pack."""


@contextmanager
def embedding(*, flip: bool, threads: int, quiet: bool) -> Iterator[Embed]:
    """A place for embeddings that lasts as long as the measuring."""
    with tempfile.TemporaryDirectory(prefix="cdp-eval-") as home:

        def embed(network: Path, images: Path) -> Path:
            if not (network / "card.json").exists():
                raise InputError(
                    f"{network}: not a trained network; give its own folder, such as nets/small_resnet."
                )
            out = Path(tempfile.mkdtemp(dir=home)) / "views"
            manifest = _unpack(images, out.parent) if images.suffix == ".bin" else images
            settings = RunSettings(out, threads=threads, quiet=quiet)
            embed_images(
                str(manifest),
                network.parent,
                network.name,
                out,
                members=[],
                flip=flip,
                batch=256,
                settings=settings,
            )
            return out

        yield embed


def _unpack(pack: Path, folder: Path) -> Path:
    """The images of a verification pack as files and a manifest, in the pack's order."""
    manifest = folder / "images.csv"
    with manifest.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["path", "identity"])
        for row, content in enumerate(read_verification_pack(pack).images):
            name = f"{row:06d}.png"
            (folder / name).write_bytes(content)
            rows.writerow([name, -1])
    return manifest
