"""The table of docs/results/demo.md is made of the figures that are kept."""

import importlib.util
import json
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def maker():
    spec = importlib.util.spec_from_file_location("make_demo_figures", ROOT / "docs" / "make_demo_figures.py")
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_shows_the_figures_that_are_kept(maker):
    page = (ROOT / "docs" / "results" / "demo.md").read_text()
    kept = json.loads((ROOT / "docs" / "results" / "demo.json").read_text())
    assert maker.between_marks(page, maker.table(kept)) == page
    assert maker.table(kept) in page


def test_the_figures_are_those_of_the_recipe_that_ships():
    from cdp.config.reading import read_recipe, recipe_from
    from cdp_lab.demo import demo_file

    kept = json.loads((ROOT / "docs" / "results" / "demo.json").read_text())
    ran, ships = recipe_from(tomllib.loads(kept["recipe_text"])), read_recipe(demo_file())
    for section in ("base", "committee", "train", "joint"):
        assert getattr(ran, section) == getattr(ships, section)
    # A run writes down what it decided where the recipe leaves it open.
    assert ships.consensus.train_on == "auto"
    assert replace(ran.consensus, train_on="auto") == ships.consensus
    assert (ran.split.labeled, ran.split.unlabeled_parts) == (
        ships.split.labeled,
        ships.split.unlabeled_parts,
    )


def test_what_is_kept_of_a_run_makes_the_table_and_names_no_folder(maker, made_run):
    folder, record = made_run
    kept = maker.kept_figures(record)
    assert all(f"{model.rank1.value:.3f}" in maker.table(kept) for model in record.results.headline.models)
    assert str(folder.parent) not in json.dumps(kept)
    assert json.loads(json.dumps(kept)) == kept
