"""Every study: its name, its variants, its columns and the paper's table."""

import dataclasses

import pytest

from cdp.config.checks import check_recipe
from cdp.config.reading import recipe_from
from cdp.errors import InputError
from cdp.lab.study import cost_studies, label_studies, network_studies
from cdp.lab.study.catalog import SENTENCES, find_study
from cdp.lab.study.design import Options
from cdp.lab.study.execute import make_jobs

RECIPE = recipe_from(
    {
        "data": {"images": "."},
        "split": {"validation": 0.1, "probes": 0.1, "distractors": 0.1, "unlabeled_parts": 9},
        "committee": {"networks": [f"small_vgg:{number}" for number in range(8)]},
    }
)


def variants(name, recipe=RECIPE, **options):
    return {one.slug: one for one in find_study(name).variants(recipe, Options(**options))}


def test_the_list_names_all_studies():
    assert [find_study(name).name for name in SENTENCES] == list(SENTENCES)
    modules = (network_studies, label_studies, cost_studies)
    assert sum(len(module.STUDIES) for module in modules) == len(SENTENCES)
    with pytest.raises(InputError) as caught:
        find_study("ration")
    assert str(caught.value) == "No study is called ration. Did you mean ratio? `cdp study list` names all."


@pytest.mark.parametrize("name", SENTENCES)
def test_a_study_is_sound(name):
    study = find_study(name)
    found = study.variants(RECIPE, Options())
    assert len({one.slug for one in found}) == len(found)
    tuned = {"consensus.tune": True, "consensus.recall_weight": 2.0, "joint.soft_depth": 5}
    for one in found:
        check_recipe(recipe_from(RECIPE.as_dict(), one.overrides))
        check_recipe(recipe_from(RECIPE.as_dict(), {**tuned, **one.overrides}))
    keys = [column.key for column in study.columns(RECIPE)]
    assert len(set(keys)) == len(keys)
    assert set(study.fits) | {plot.column for plot in study.plots} <= set(keys)
    assert study.main in (*keys, "")
    assert study.together < len(study.heads)
    if study.paper is not None:
        assert {len(row) for row in study.paper.rows} == {len(study.paper.header)}


@pytest.mark.parametrize("name", [name for name in SENTENCES if find_study(name).main in ("f", "bcubed_f")])
def test_labels_that_are_compared_by_f_are_chosen_by_f(name):
    for one in variants(name).values():
        assert one.overrides["consensus.recall_weight"] == 1
        assert one.overrides["consensus.mend"] == "nothing"


def test_mistakes_need_pairs_and_the_truth():
    for section, key, value in (("consensus", "mediator", "hierarchical"), ("data", "truth", False)):
        told = RECIPE.as_dict()
        told[section] = {**told[section], key: value}
        with pytest.raises(InputError, match="mistakes: labels by mediator or vote are "):
            variants("mistakes", recipe_from(told))


def test_ratios_count_the_validation_part():
    parts = {slug: one.overrides["split.use_parts"] for slug, one in variants("ratio").items()}
    assert {slug.partition("-")[0]: many for slug, many in parts.items()} == {
        "ratio2": 1, "ratio4": 3, "ratio6": 5, "ratio8": 7, "ratio10": 9,
    }  # fmt: skip
    bare = dataclasses.replace(
        RECIPE, split=dataclasses.replace(RECIPE.split, validation=0.0, unlabeled_parts=5)
    )
    assert {one.overrides["split.use_parts"] for one in variants("ratio", bare).values()} == {2, 4, 5}
    assert variants("loss", bare)["arcface"].overrides["split.use_parts"] == 2
    apart = recipe_from({"data": {"labeled": "a", "unlabeled": ["b"], "test": "c"}})
    with pytest.raises(InputError) as caught:
        variants("ratio", apart)
    assert str(caught.value) == (
        "A study over ratios cuts the images itself: give data.images instead of data.labeled and data.unlabeled."
    )
    assert "split.use_parts" not in variants("loss", apart)["softmax"].overrides


def test_committees_grow_at_one_recall():
    found = variants("committee_size")
    assert [len(one.overrides.get("committee.networks", "x")) for one in found.values()] == [1, 0, 2, 4, 6, 8]
    assert found["members8"].overrides["consensus.pair_recall"] == 0.313
    own = recipe_from(RECIPE.as_dict(), {"consensus.pair_recall": 0.5})
    assert variants("committee_size", own)["members2"].overrides["consensus.pair_recall"] == 0.5


def test_whoever_is_not_the_base_is_on_the_committee():
    everyone = {RECIPE.base.network, *RECIPE.committee.networks}
    for one in variants("base").values():
        base, members = one.overrides["base.network"], one.overrides["committee.networks"]
        assert base not in members
        assert {base, *members} == everyone


def test_committees_alike_and_unlike_are_of_one_size():
    found = variants("heterogeneity")
    assert {len(one.overrides["committee.networks"]) for one in found.values()} == {8}
    kinds = {name.partition(":")[0] for name in found["one-vote"].overrides["committee.networks"]}
    assert kinds == {"small_vgg"}
    alone = recipe_from(RECIPE.as_dict(), {"committee.networks": ["small_vgg"]})
    with pytest.raises(InputError) as caught:
        variants("heterogeneity", alone)
    assert str(caught.value) == (
        "heterogeneity: committee.networks has 1 member; two or more are needed to be alike or unlike."
    )


def test_baselines_need_something_to_tune_on():
    bare = recipe_from(RECIPE.as_dict(), {"split.validation": 0.0})
    with pytest.raises(InputError) as caught:
        variants("baselines", bare)
    assert str(caught.value) == (
        "baselines: every method is tuned on the validation part; give split.validation a share, e.g. 0.1, or "
        "data.validation."
    )


def test_jobs_are_variants_times_seeds(tmp_path):
    jobs = make_jobs(find_study("k"), RECIPE, tmp_path, n_seeds=2, variants=["k20", "k10"])
    assert [(one.variant.slug, one.seed) for one in jobs] == [("k20", 0), ("k10", 0), ("k20", 1), ("k10", 1)]
    assert jobs[3].folder == tmp_path / "runs" / "k10" / "seed1"
    assert jobs[3].recipe == recipe_from(RECIPE.as_dict(), {"consensus.k": 10, "seed": 1})
    names = [stage.name for stage in jobs[0].stages()]
    assert names[-1] == "measure labels"
    assert "train with pseudo-labels" not in names
    same = set(jobs[0].signatures()) & set(jobs[1].signatures())
    assert len(same) == len([name for name in names if name.split()[0] in ("split", "train", "embed")])
    assert not set(jobs[0].signatures()) & set(jobs[2].signatures())
    for wrong, message in (
        ({"variants": ["k5"]}, "k has no variant k5; it has k10, k20, k30, k40."),
        ({"n_seeds": 0}, "--seeds 0: one seed or more is needed."),
    ):
        with pytest.raises(InputError) as caught:
            make_jobs(find_study("k"), RECIPE, tmp_path, **wrong)
        assert str(caught.value) == message


def test_the_plan_knows_that_the_labeled_part_is_the_same_at_every_ratio(tmp_path):
    jobs = make_jobs(
        find_study("ratio"), RECIPE, tmp_path, n_seeds=1, variants=["ratio2-mediator", "ratio4-mediator"]
    )
    one, other = (
        dict(zip([stage.name for stage in job.stages()], job.signatures(), strict=True)) for job in jobs
    )
    same = {name for name in one if one[name] == other[name]}
    trained = {"train small_resnet", *(f"train small_vgg-{number}" for number in range(8))}
    assert same == trained | {"test small_resnet"}
