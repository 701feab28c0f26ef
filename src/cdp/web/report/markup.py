"""Elements as values: what is not markup already is escaped, so no name of a file or person can break the page."""

from __future__ import annotations

import html
from collections.abc import Iterable

Attribute = str | float | bool | None
_VOID = {"img", "br", "meta", "input", "link"}


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def element(name: str, /, *children: str | None, **attributes: Attribute) -> Html:
    """`<name ...>children</name>`; plain text is escaped, None is left out.

    Attributes are written as in Python: `class_` is class, `stroke_width` is stroke-width; None and False are
    left out.
    """
    written = "".join(_attribute(key, value) for key, value in attributes.items())
    if name in _VOID:
        return Html(f"<{name}{written}>")
    return Html(f"<{name}{written}>{join(children)}</{name}>")


def join(children: Iterable[str | None], between: str = "") -> Html:
    """Several pieces one after the other, each escaped unless it is markup."""
    return Html(html.escape(between).join(escape(child) for child in children if child is not None))


def escape(text: str) -> Html:
    """Text as markup; markup stays as it is."""
    return text if isinstance(text, Html) else Html(html.escape(text))


def _attribute(key: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = key.removesuffix("_").replace("_", "-")
    if value is True:
        return f" {name}"
    text = value if isinstance(value, str) else shortest(value)
    return f' {name}="{html.escape(text)}"'


def shortest(number: float) -> str:
    """A coordinate with two decimals at most: `12`, `3.5`, `0.25`; a tenth of a pixel is not seen."""
    text = f"{number:.2f}".rstrip("0").rstrip(".")
    return "0" if text == "-0" else text
