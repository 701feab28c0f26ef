"""Hooks of mkdocs.yml: pages from outside docs/, an API page per package, and links that work here and on the site.

Links in the Markdown files are those of the repository. On the site, a link to a page outside `docs/` leads to its copy, one to a
module to its place in the API reference, and one to any other file of the repository to that file, which is added.
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
    **{f"{name}.md": f"{name}.md" for name in ("ARCHITECTURE", "CONTRIBUTING", "CHANGELOG")},
}
_SOURCE = "src/cdp/"
_LINK = re.compile(r"(?<=\]\()([^)\s#:]+)(#[^)\s]*)?(?=[)\s])")


def packages() -> dict[str, str]:
    """API page -> the module or package that it documents."""
    top = ROOT / _SOURCE
    found = {
        f"api/{path.parent.name}.md": f"cdp.{path.parent.name}" for path in sorted(top.glob("*/__init__.py"))
    }
    found |= {f"api/{path.stem}.md": f"cdp.{path.stem}" for path in sorted(top.glob("[a-z]*.py"))}
    return found


def on_config(config: Any) -> Any:
    """The API pages at the end of the navigation."""
    config.nav.append({"API": [{name: page} for page, name in packages().items()]})
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages from outside docs/, and the API pages."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=(ROOT / source).read_text(encoding="utf-8")))
    for page, name in packages().items():
        files.append(
            File.generated(
                config, page, content=f"# {name}\n\n::: {name}\n    options:\n      heading_level: 2\n"
            )
        )
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
    """Links of the repository as links of the site."""
    here = page.file.src_uri

    def replace(link: re.Match[str]) -> str:
        target = resolve(repository_path(here), link[1])
        place = None if target is None else site_path(target)
        if place is None:
            return link[0]
        name, _, anchor = place.partition("#")
        relative = os.path.relpath(name, PurePosixPath(here).parent).replace(os.sep, "/")
        return relative + (link[2] or (f"#{anchor}" if anchor else ""))

    return _LINK.sub(replace, markdown)


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
    if target.startswith(_SOURCE):
        module = (
            target.removeprefix(_SOURCE)
            .removesuffix("/__init__.py")
            .removesuffix(".py")
            .rstrip("/")
            .split("/")
        )
        return f"api/{module[0]}.md#cdp.{'.'.join(module)}"
    return f"repository/{target}" if (ROOT / target).is_file() else None
