"""Templates and the style sheet of all pages."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined

from cdp.web.page_views import Html
from cdp.web.words import counted


def render(template: str, **values: object) -> str:
    """Fill in a template; text is escaped, and a name that is not given is an error."""
    return _environment().get_template(template).render(**values)


def render_part(name: str, value: object) -> Html:
    """Render a view model with the macro of this name in `parts.html`."""
    return Html(getattr(_environment().get_template("parts.html").module, name)(value))


@cache
def packaged(name: str) -> Html:
    """Return the text of a file in this package, such as `style.css`."""
    return Html((files("cdp.web") / name).read_text(encoding="utf-8"))


@cache
def _environment() -> Environment:
    loader = PackageLoader("cdp.web")
    made = Environment(
        loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    made.filters["counted"] = counted
    return made
