"""Hooks of mkdocs.yml: pages from outside docs/, the entries of the API page, and links that work here and on the site.

Links in the Markdown files are those of the repository. On the site, a link to a page outside `docs/` leads to its copy, and one to
any other file of the repository to that file, which is added.
"""

from __future__ import annotations

import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "index.md",
    **{f"{name}.md": f"{name}.md" for name in ("ARCHITECTURE", "CONTRIBUTING", "CHANGELOG", "SECURITY")},
}
_SHIM = "https://unpkg.com/iframe-worker/shim"
_LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(#[^)\s]*)?(?=[)\s])")


FIRST = ("CDP", "Views", "Embeddings", "Labels", "Status", "Collection", "Correction")
"""The names that most users need; the others follow in alphabetical order."""


def public_names() -> list[str]:
    """The public names of cdp, from its `__all__`."""
    import cdp

    return [*FIRST, *(name for name in cdp.__all__ if name not in (*FIRST, "__version__"))]


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from outside docs/."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    # Files that pages link to must be there before links are checked.
    for file in list(files.documentation_pages()):
        for link in _LINK.finditer(file.content_string):
            target = resolve(repository_path(file.src_uri), link[1])
            place = None if target is None else site_path(target)
            if (
                place is not None
                and place.startswith("repository/")
                and files.get_file_from_path(place) is None
            ):
                files.append(File.generated(config, place, abs_src_path=str(ROOT / target)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links of the repository as links of the site; the API page gets its entries."""
    here = page.file.src_uri
    if here == "api.md":
        return markdown + "\n".join(f"\n::: cdp.{name}\n" for name in public_names())

    def replace(link: re.Match[str]) -> str:
        target = resolve(repository_path(here), link[1])
        place = None if target is None else site_path(target)
        if place is None:
            return link[0]
        name, _, anchor = place.partition("#")
        relative = os.path.relpath(name, PurePosixPath(here).parent).replace(os.sep, "/")
        return relative + (link[2] or (f"#{anchor}" if anchor else ""))

    return _LINK.sub(replace, markdown)


def on_post_page(output: str, page: Any, **_: Any) -> str:
    """Use the project's own script for searching from disk, so that nothing is fetched from elsewhere."""
    here = PurePosixPath(page.file.dest_uri).parent
    return output.replace(_SHIM, os.path.relpath("iframe_worker.js", here).replace(os.sep, "/"))


def repository_path(page: str) -> str:
    """Where the Markdown of a site's page lies in the repository."""
    return next((source for source, name in PAGES.items() if name == page), f"docs/{page}")


def resolve(page: str, link: str) -> str | None:
    """The file or folder of the repository that a link leads to; None if there is no such."""
    path = os.path.normpath(PurePosixPath(page).parent / link).replace(os.sep, "/")
    return path if not path.startswith("..") and (ROOT / path).exists() else None


def site_path(target: str) -> str | None:
    """Where a file of the repository is on the site; None for a folder that has no page."""
    if target in PAGES:
        return PAGES[target]
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    return f"repository/{target}" if (ROOT / target).is_file() else None
