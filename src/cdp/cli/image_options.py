"""What the commands on images take in addition to settings: where images are, and which are left out."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from typer import Argument, Option

from cdp.runtime.settings import MOST_THREADS
from cdp.settings import setting

if TYPE_CHECKING:
    from cdp.faces.photo_scan import PhotoScan
    from cdp.types.manifest import Manifest

ManifestArgument = Annotated[
    str,
    Argument(
        metavar="IMAGES",
        help="A folder per identity, .csv, .parquet, list.txt, .zip, .tar (or a pattern), .rec.",
    ),
]
RootOption = Annotated[
    Path | None,
    Option(metavar="FOLDER", help="Root of relative paths in a table; default: the table's folder."),
]
ProcessesOption = Annotated[
    int,
    Option(
        help="Processes that decode images; 0 = all cores.",
        min=0,
        max=MOST_THREADS,
        rich_help_panel="Machine",
    ),
]


@dataclass(frozen=True)
class ManifestOptions:
    """How a table of images is read."""

    root: str = setting("", "Root of relative paths in a table.")
    skip: str = setting("", "Leave out the images listed by cdp data check --list.")

    def read(self, path: str) -> Manifest:
        """Return a manifest, its paths from `root`, without the images of `skip`."""
        from cdp.data.manifests import read_manifest

        return read_manifest(path, root=self.root or None, skip=Path(self.skip) if self.skip else None)


@dataclass(frozen=True)
class PhotoOptions(ManifestOptions):
    """How photos are found."""

    identities: Literal["none", "folders"] = setting(
        "none",
        "Names of people on photos with one face; folders = the name of the photo's folder.",
    )

    def scan(self, path: str) -> PhotoScan:
        """Find the photos at a path."""
        from cdp.faces.photo_scan import scan_photos

        skip = Path(self.skip) if self.skip else None
        return scan_photos(path, identities=self.identities, root=self.root or None, skip=skip)
