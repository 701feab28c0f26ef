"""Stages and their keys: rounds learn from one another, and who is the base is never forgotten."""

from pathlib import Path

import pytest

from cdp.config.checks import check_recipe
from cdp.config.reading import recipe_from
from cdp.errors import InputError
from cdp.run.labeling import best_of
from cdp.run.plan import make_stages
from cdp.run.stages import only


def stages(rounds, **more):
    recipe = recipe_from(
        {
            "data": {"images": "x", "test": "y"},
            "split": {"validation": 0.1},
            "base": {"network": "a"},
            "committee": {"networks": ["b"]},
            "consensus": {"rounds": rounds, **more},
        }
    )
    check_recipe(recipe)
    return {stage.name: stage for stage in make_stages(recipe, Path("run"))}


def test_one_round_is_the_papers_way():
    assert not [name for name in stages(1) if "round" in name]


def test_every_round_learns_from_the_one_before():
    found = stages(3)
    assert found["train round2/a"].needs == ("labeled", "unlabeled", "round1 labels")
    assert found["train round3/b"].needs == ("labeled", "unlabeled", "round2 labels")
    assert found["train with pseudo-labels"].needs == ("labeled", "unlabeled", "labels")
    assert "round2/b of unlabeled" in found["round2 consensus"].needs
    assert "round2 mediator" in found["round2 consensus"].needs
    assert "round3/b of unlabeled" in found["consensus"].needs
    assert "networks/a of unlabeled" not in found["consensus"].needs
    assert found["round1 labels"].makes == {"round1 labels": "rounds/1/labels"}
    assert found["labels"].makes == {"labels": "labels"}
    # What it is made from is made before it, and nothing is made twice.
    made = {"images", "test images"}
    for stage in found.values():
        assert set(stage.needs) <= made, stage.name
        assert not set(stage.makes) & made
        made |= set(stage.makes)
    paths = [path for stage in found.values() for path in stage.makes.values()]
    assert len(set(paths)) == len(paths)


def test_figures_of_the_last_labels_need_no_figures_of_earlier_ones():
    names = [stage.name for stage in only(list(stages(2).values()), ["label figures"])]
    assert "train round2/a" in names
    assert "round1 measure labels" not in names


@pytest.mark.parametrize(("key", "value"), [("folds", 3), ("mediator", "hierarchical")])
def test_what_does_not_go_with_rounds_is_refused(key, value):
    with pytest.raises(InputError, match=r"set consensus\.(folds = 0|rounds = 1)"):
        stages(2, **{key: value})


def test_what_is_not_asked_for_is_not_in_the_keys():
    plain = stages(1, tune=True)
    assert "recall_weight" not in plain["consensus"].settings
    assert "mend" not in plain["labels"].settings
    assert "unlabeled" not in plain["labels"].needs
    assert "recall_weight" not in stages(1, recall_weight=2)["consensus"].settings, "nothing is chosen by it"
    assert stages(1, tune=True, recall_weight=2)["consensus"].settings["recall_weight"] == 2
    clusters = {"tune": True, "mediator": "hierarchical"}
    assert "recall_weight" not in stages(1, **clusters)["labels"].settings
    assert stages(1, recall_weight=2, **clusters)["labels"].settings["recall_weight"] == 2
    mended = stages(1, mend="splits")["labels"]
    assert mended.settings["mend"] == "splits"
    assert "unlabeled" in mended.needs


def test_the_best_threshold_depends_on_the_weight_of_recall():
    careful = {"threshold": 0.9, "precision": 0.8, "recall": 0.4, "f": 0.533}
    bold = {"threshold": 0.5, "precision": 0.4, "recall": 0.8, "f": 0.533}
    assert best_of([careful, bold], 0.5)["chosen"] == 0.9
    assert best_of([careful, bold], 2.0) == {"chosen": 0.5, "recall_weight": 2.0, "curve": [careful, bold]}
    assert best_of([bold, careful], 1.0) == {"chosen": 0.5, "curve": [bold, careful]}, "the first of equals"


@pytest.mark.parametrize("joint", [{}, {"soft_depth": 3}])
def test_labels_without_pairs_and_soft_labels_are_not_mended(joint):
    recipe = {
        "data": {"images": "x", "test": "y"},
        "consensus": {"mend": "all", "mediator": "mlp" if joint else "hierarchical"},
        "joint": joint,
    }
    with pytest.raises(InputError, match=r'consensus\.mend = "all" is for hard labels'):
        check_recipe(recipe_from(recipe))
    recipe = {"data": {"images": "x", "test": "y", "truth": False}, "consensus": {"mend": "all"}}
    with pytest.raises(InputError, match=r"looks at the truth"):
        check_recipe(recipe_from(recipe))


def test_who_is_the_base_and_the_order_of_members_are_part_of_the_key():
    def keys(base, *members):
        recipe = recipe_from(
            {
                "data": {"images": "x", "test": "y"},
                "base": {"network": base},
                "committee": {"networks": list(members)},
            }
        )
        found = {stage.name: stage for stage in make_stages(recipe, Path("run"))}
        names = ("mediator", "consensus", "measure labels", "measure members")
        return [found[name].key(dict.fromkeys(found[name].needs, "same")) for name in names]

    first = keys("a", "b", "c")
    assert first == keys("a", "b", "c")
    for other in (keys("b", "a", "c"), keys("a", "c", "b")):
        assert not set(first) & set(other)
