"""Every study: its name, its variants, its columns and the paper's table."""

import dataclasses

import numpy as np
import pytest
from tests.refusals import refuses

from cdp.config.checks import check_recipe
from cdp.config.reading import recipe_from
from cdp.types import Views
from cdp_lab.study import cost_studies, label_studies, network_studies
from cdp_lab.study.catalog import SENTENCES, find_study
from cdp_lab.study.design import Options
from cdp_lab.study.execute import make_jobs

RECIPE = recipe_from(
    {
        "data": {"images": "."},
        "split": {"validation": 0.1, "probes": 0.1, "distractors": 0.1, "unlabeled_parts": 9},
        "committee": {"networks": [f"small_vgg:{number}" for number in range(8)]},
    }
)


@pytest.fixture
def people(tmp_path):
    """The recipe with two images to look at."""
    for name in ("a", "b"):
        (tmp_path / "people" / name).mkdir(parents=True)
        (tmp_path / "people" / name / "1.png").touch()
    return recipe_from(RECIPE.as_dict(), {"data.images": str(tmp_path / "people")})


def variants(name, recipe=RECIPE, **options):
    return {one.slug: one for one in find_study(name).variants(recipe, Options(**options))}


def test_the_list_names_all_studies():
    assert [find_study(name).name for name in SENTENCES] == list(SENTENCES)
    modules = (network_studies, label_studies, cost_studies)
    assert sum(len(module.STUDIES) for module in modules) == len(SENTENCES)
    with refuses("study-unknown", study="ration") as caught:
        find_study("ration")
    assert (
        str(caught.value) == "No study is called ration. Did you mean ratio? `cdp-lab study list` names all."
    )


@pytest.mark.parametrize("name", SENTENCES)
def test_a_study_is_sound(name):
    study = find_study(name)
    found = study.variants(RECIPE, Options())
    assert len({one.slug for one in found}) == len(found)
    tuned = {"consensus.threshold": "auto", "consensus.beta": 2.0, "consensus.soft_depth": 5}
    for one in found:
        check_recipe(recipe_from(RECIPE.as_dict(), one.overrides))
        check_recipe(recipe_from(RECIPE.as_dict(), {**tuned, **one.overrides}))
    keys = [column.key for column in study.columns(RECIPE)]
    assert len(set(keys)) == len(keys)
    assert set(study.fits) | {plot.column for plot in study.plots} <= set(keys)
    assert study.main in (*keys, "")
    assert study.n_shared_cells < len(study.heads)
    if study.paper is not None:
        assert {len(row) for row in study.paper.rows} == {len(study.paper.header)}


@pytest.mark.parametrize("name", [name for name in SENTENCES if find_study(name).main in ("f", "bcubed_f")])
def test_labels_that_are_compared_by_f_are_chosen_by_f(name):
    for one in variants(name).values():
        assert one.overrides["consensus.beta"] == 1


def test_mistakes_need_the_truth():
    with refuses("study-needs-truth", study="mistakes"):
        variants("mistakes", recipe_from(RECIPE.as_dict(), {"data.truth": False}))


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
    with refuses("study-needs-unsplit-images"):
        variants("ratio", apart)
    assert "split.use_parts" not in variants("loss", apart)["softmax"].overrides


def test_committees_grow_at_one_recall(people, tmp_path):
    found = variants("committee_size")
    assert [len(one.overrides.get("committee.networks", "x")) for one in found.values()] == [1, 0, 2, 4, 6, 8]

    def recall(**options):
        (job,) = make_jobs(
            find_study("committee_size"),
            people,
            tmp_path,
            n_seeds=1,
            variants=["members8"],
            options=Options(**options),
        )
        return job.stages()[-1].settings.pair_recall

    assert recall() == 0.313
    assert recall(pair_recall=0.5) == 0.5


def test_variants_with_and_without_tuning_are_compared_on_one_split(people, tmp_path):
    """A share that is left open used to follow each variant's own tuning."""
    auto = recipe_from(people.as_dict(), {"split.validation": -1.0, "consensus.threshold": "auto"})
    jobs = make_jobs(find_study("committee_size"), auto, tmp_path, n_seeds=1)
    assert {job.resolved.recipe.consensus.threshold is None for job in jobs} == {True, False}
    assert {job.resolved.recipe.split.validation for job in jobs} == {1 / 11}


def test_a_threshold_of_probabilities_is_none_of_similarities(people, tmp_path):
    """A vote used to accept only pairs that are as similar as the mediator is sure."""
    given = recipe_from(people.as_dict(), {"consensus.preset": "paper", "consensus.grouping": "components"})
    given = recipe_from(given.as_dict(), {"consensus.mediator": "mlp", "consensus.threshold": 0.9})
    jobs = make_jobs(find_study("heterogeneity"), given, tmp_path, n_seeds=1)
    thresholds = {job.variant.slug: job.resolved.recipe.consensus.threshold for job in jobs}
    assert thresholds == {
        "one-vote": -1.0,
        "one-mediator": 0.9,
        "different-vote": -1.0,
        "different-mediator": 0.9,
    }


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
    with refuses("study-members-too-few", study="heterogeneity", found=1):
        variants("heterogeneity", alone)


def test_baselines_need_something_to_tune_on():
    bare = recipe_from(RECIPE.as_dict(), {"split.validation": 0.0})
    with refuses("study-validation-missing", study="baselines"):
        variants("baselines", bare)


def test_jobs_are_variants_times_seeds(people, tmp_path):
    jobs = make_jobs(find_study("k"), people, tmp_path, n_seeds=2, variants=["k20", "k10"])
    assert [(one.variant.slug, one.seed) for one in jobs] == [("k20", 0), ("k10", 0), ("k20", 1), ("k10", 1)]
    assert jobs[3].folder == tmp_path / "runs" / "k10" / "seed1"
    varied = {"consensus.k": 10, "consensus.train_on": "validation", "seed": 1}
    # A study does not look at images: what is left to them is as for many identities and small images.
    varied |= {"split.labeled": 1 / 11, "train.size": 32, "joint.size": 32}
    assert jobs[3].resolved.recipe == recipe_from(people.as_dict(), varied)
    names = [stage.name for stage in jobs[0].stages()]
    assert names[-1] == "label"
    assert "train with pseudo-labels" not in names
    same = set(jobs[0].signatures()) & set(jobs[1].signatures())
    assert len(same) == len([name for name in names if name.split()[0] in ("split", "train", "embed")])
    assert not set(jobs[0].signatures()) & set(jobs[2].signatures())
    for wrong, code, fields in (
        ({"variants": ["k5"]}, "study-variant-unknown", {"study": "k", "variant": "k5"}),
        ({"n_seeds": 0}, "study-seeds-too-few", {"option": "--seeds", "value": 0}),
    ):
        with refuses(code, **fields):
            make_jobs(find_study("k"), people, tmp_path, **wrong)


def test_the_plan_knows_that_the_labeled_part_is_the_same_at_every_ratio(people, tmp_path):
    jobs = make_jobs(
        find_study("ratio"), people, tmp_path, n_seeds=1, variants=["ratio2-mediator", "ratio4-mediator"]
    )
    one, other = (
        dict(zip([stage.name for stage in job.stages()], job.signatures(), strict=True)) for job in jobs
    )
    same = {name for name in one if one[name] == other[name]}
    trained = {"train small_resnet", *(f"train small_vgg-{number}" for number in range(8))}
    assert same == trained | {"test small_resnet"}


def test_embeddings_have_no_networks_to_train_and_views_one_committee(tmp_path):
    generator = np.random.default_rng(0)
    arrays = {
        name: generator.normal(size=(6, 3)).astype("f4") for name in ("ours", "small_vgg", "small_vgg-1")
    }
    (tmp_path / "files").mkdir()
    for name, array in arrays.items():
        np.save(tmp_path / "files" / f"{name}.npy", array)
    np.save(tmp_path / "files" / "identities.npy", np.arange(6) // 2)
    Views(arrays["ours"], {"small_vgg": arrays["small_vgg"]}, np.arange(6) // 2).save(tmp_path / "views")

    def jobs(name, folder):
        recipe = recipe_from(
            {
                "data": {"embeddings": str(tmp_path / folder)},
                "base": {"network": "ours"},
                "committee": {"networks": ["small_vgg", "small_vgg:1"]},
            }
        )
        return make_jobs(find_study(name), recipe, tmp_path / "out", n_seeds=1)

    with refuses("study-needs-unsplit-images"):
        jobs("ratio", "views")
    for name in ("base", "loss", "rounds"):
        with refuses("study-needs-images", study=name):
            jobs(name, "views")
    assert [one.resolved.facts.models for one in jobs("committee_size", "files")] == [
        ("ours", "small_vgg", "small_vgg-1"),
        ("ours",),
        ("ours", "small_vgg", "small_vgg-1"),
    ]
    with refuses("study-needs-networks", study="committee_size"):
        jobs("committee_size", "views")
    assert len(jobs("k", "views")) == 4
