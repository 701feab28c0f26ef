"""The tables of docs/recipes.md and docs/settings.md, from the fields themselves: `python docs/make_recipe_reference.py`."""

from __future__ import annotations

from pathlib import Path

from cdp.config.writing import reference_table, settings_table

DOCS = Path(__file__).parent
TABLES = {"recipes.md": ("keys", reference_table), "settings.md": ("settings", settings_table)}
"""Page -> the name of its marked region, and what makes the region's contents."""


def with_reference(name: str) -> str:
    """A page with its table made anew."""
    region, make = TABLES[name]
    start, end = f"<!-- {region}: made by docs/make_recipe_reference.py -->\n", f"<!-- end of {region} -->\n"
    page = (DOCS / name).read_text(encoding="utf-8")
    before, _, rest = page.partition(start)
    return f"{before}{start}\n{make()}\n{end}{rest.partition(end)[2]}"


if __name__ == "__main__":
    for page in TABLES:
        (DOCS / page).write_text(with_reference(page), encoding="utf-8")
