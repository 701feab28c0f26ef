"""Recipes as text, and the page about them."""

import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from cdp.config.reading import read_recipe, recipe_from
from cdp.config.sections import SECTIONS, RunRecipe
from cdp.config.writing import differences, reference_table, settings_table, to_toml, write_recipe
from cdp.runtime.settings import RuntimeSettings
from cdp.scoring.settings import ConsensusSettings
from cdp.settings import settings_of

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_every_key_is_written_with_its_help():
    text = write_recipe(RunRecipe())
    lines = text.splitlines()
    for section, kind in SECTIONS.items():
        assert f"[{section}]" in lines
        for name, one in settings_of(kind).items():
            value = getattr(getattr(RunRecipe(), section), name)
            assert f"{name} = {to_toml(one.none if value is None else value)}" in lines
            assert one.help.split(".")[0][:60] in text
    assert all(len(line) <= 100 for line in lines)
    assert "# A probability" not in text
    assert '# more, or auto)\nmax_cluster_size = "auto"\n' in text
    assert recipe_from(tomllib.loads(text)) == RunRecipe()


def test_bare_text_has_no_comments():
    text = write_recipe(RunRecipe(seed=2), commented=False)
    assert "#" not in text
    assert text.startswith("seed = 2\n\n[data]\nimages = ")
    assert recipe_from(tomllib.loads(text)) == RunRecipe(seed=2)


def test_a_template_has_its_defaults_as_comments_which_a_preset_can_move():
    recipe = recipe_from({"seed": 2, "consensus": {"preset": "paper", "k": 30}})
    for commented in (True, False):
        lines = write_recipe(recipe, commented=commented, template=True).splitlines()
        assert [line for line in lines if line and line[0] not in "#["] == [
            "seed = 2",
            "k = 30",
            'preset = "paper"',
        ]
        # Without its preset the rest would be that of the default.
        assert '#grouping = "components"' in lines
        assert recipe_from(tomllib.loads("\n".join(lines))) == recipe
    text = write_recipe(RunRecipe(), template=True)
    moved = recipe_from(tomllib.loads(text), {"consensus.preset": "paper"})
    assert moved.consensus == recipe_from({"consensus": {"preset": "paper"}}).consensus
    assert moved.consensus.grouping == "components"
    # The threshold of a preset depends on what it is compared with.
    for threshold in (0.96, 0.3, "auto"):
        own = {"preset": "paper", "grouping": "average", "threshold": threshold}
        given = recipe_from({"consensus": own})
        assert recipe_from(tomllib.loads(write_recipe(given, template=True))) == given
    # All that is commented out is a key and its value.
    keys = "\n".join(line.removeprefix("#") for line in text.splitlines() if not line.startswith("# "))
    assert recipe_from(tomllib.loads(keys)) == RunRecipe()


def test_a_recipe_written_to_another_folder_means_the_same(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "mine.toml").write_text('[data]\nlabeled = "a"\nunlabeled = ["b", "../c"]\n')
    recipe = read_recipe(tmp_path / "mine.toml")
    (tmp_path / "run" / "recipe.toml").write_text(write_recipe(recipe))
    assert read_recipe(tmp_path / "run" / "recipe.toml") == recipe


def test_differences_from_the_defaults():
    assert differences(RunRecipe()) == []
    recipe = recipe_from(
        {"seed": 1, "consensus": {"k": 30, "threshold": "auto"}, "committee": {"networks": []}}
    )
    assert [(one.key, one.value) for one in differences(recipe)] == [
        ("seed", 1),
        ("committee.networks", ()),
        ("consensus.k", 30),
    ]
    assert differences(recipe)[2].default == 20
    given = recipe_from({"consensus": {"threshold": 0.5}})
    assert differences(given) == [("consensus.threshold", 0.5, "auto")]
    paper = recipe_from({"consensus": {"preset": "paper", "grouping": "average"}})
    assert [(one.key, one.value, one.default) for one in differences(paper)] == [
        ("consensus.grouping", "average", "components"),
        ("consensus.preset", "paper", "best"),
    ]


@pytest.mark.parametrize(
    ("page", "table"), [("recipes.md", reference_table), ("settings.md", settings_table)]
)
def test_the_pages_about_keys_and_settings_are_up_to_date(page, table):
    made = runpy.run_path(str(DOCS / "make_recipe_reference.py"))["with_reference"](page)
    assert made == (DOCS / page).read_text(encoding="utf-8"), "run: python docs/make_recipe_reference.py"
    assert table() in made


def test_the_table_of_settings_has_both_presets():
    rows = settings_table().splitlines()
    assert sum(row.startswith('| `grouping` | `"average"` | `"components"` |') for row in rows) == 1
    assert sum(row.startswith("| `k` | `20` |  |") for row in rows) == 1
    assert len(rows) == 2 + len(settings_of(ConsensusSettings)) - 1 + len(settings_of(RuntimeSettings))


def test_recipes_need_no_torch():
    code = (
        "import sys, cdp.config.reading, cdp.config.writing, cdp.config.checks, cdp.config.environment\n"
        "assert not {'torch', 'sklearn', 'scipy', 'numba'} & set(sys.modules), sorted(sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_minus_before_zero_is_no_default():
    recipe = recipe_from({"train": {"logit_scale": -0.0}})
    again = recipe_from(tomllib.loads(write_recipe(recipe, template=True)))
    assert repr(again.train.logit_scale) == "-0.0"
