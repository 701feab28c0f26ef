"""The table of all keys in docs/recipes.md, from the fields themselves: `python docs/make_recipe_reference.py`."""

from __future__ import annotations

from pathlib import Path

from cdp.config.writing import reference_table

PAGE = Path(__file__).parent / "recipes.md"
START, END = "<!-- keys: made by docs/make_recipe_reference.py -->\n", "<!-- end of keys -->\n"


def with_reference(page: str) -> str:
    """The page with its table made anew."""
    before, _, rest = page.partition(START)
    return f"{before}{START}\n{reference_table()}\n{END}{rest.partition(END)[2]}"


if __name__ == "__main__":
    PAGE.write_text(with_reference(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
