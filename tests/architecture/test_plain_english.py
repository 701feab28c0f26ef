"""User-facing text uses the field's words: none of the private words below, which readers would have to look up."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
WORDS = re.compile(
    r"\b(anew|at home in|beside|but for|by arithmetic|code of before|in the midst|judge[ds]?|judging|keep_numbers"
    r"|known (?:people|person|images)|look(?:s|ed)? into|nobody is known|not measured again|put among|so many times"
    r"|strangers?|the aim is|told(?! apart)|visitors?|whoever|(?:chosen?|higher|lower|best) (?:the |a )?bars?)\b",
    re.IGNORECASE,
)
PAGES = [
    *ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("docs/notebooks/*.ipynb"),
    *ROOT.glob("src/cdp/web/**/*.html"), *ROOT.glob("src/cdp/web/**/*.js"), *ROOT.glob("recipes/*.toml"),
]  # fmt: skip
CODE = sorted(ROOT.glob("src/cdp/**/*.py"))
FILES = [*PAGES, *CODE]


def sentences(file: Path) -> list[str]:
    """Help, messages and other text of a module: its string literals with a space, without docstrings."""
    tree = ast.parse(file.read_text(encoding="utf-8"))
    bare = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and id(node) not in bare]
    return [text for text in texts if isinstance(text, str) and " " in text]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_text_uses_the_words_of_the_field(file):
    texts = sentences(file) if file.suffix == ".py" else [file.read_text(encoding="utf-8")]
    found = [match[0] for text in texts for match in WORDS.finditer(text)]
    assert not found, f"{file.relative_to(ROOT)}: {sorted(set(found))}"
