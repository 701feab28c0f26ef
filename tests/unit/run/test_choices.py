"""What a recipe leaves to the data."""

import numpy as np
import pytest

from cdp.config.reading import recipe_from
from cdp.data.split import split_by_identity
from cdp.labeling.tuning import MIN_IDENTITIES
from cdp.run import choices
from cdp.run.image_scan import ImageScan
from cdp.run.sources import Facts, resolve
from cdp.types.manifest import Manifest


def resolved(identities, scan=None, **values):
    facts = Facts("images", identities=identities, scan=scan)
    return resolve(recipe_from({}, {"data.images": "x", **values}), facts)


def people(n_identities, seed=0):
    """Skewed, as real ones are: few people have most of the images."""
    sizes = np.random.default_rng(seed).lognormal(3.5, 0.9, n_identities).astype(int) + 2
    identities = np.repeat(np.arange(n_identities), sizes)
    return Manifest(tuple(f"{row}.png" for row in range(len(identities))), identities)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_hundred_identities_are_enough_to_train_and_to_tune_on(seed):
    """An eleventh of an eleventh of 102 chimpanzees used to be 7."""
    split = resolved(102).recipe.split
    cut = split_by_identity(
        people(102, seed),
        labeled=split.labeled,
        unlabeled_parts=split.unlabeled_parts,
        validation=split.validation,
        probes=split.probes,
        distractors=split.distractors,
    )
    assert cut.labeled.n_identities >= 28
    assert cut.validation.n_identities >= MIN_IDENTITIES
    assert sum(part.n_identities for part in cut.unlabeled) >= 25


@pytest.mark.parametrize("identities", [5, 10, 30, 60])
def test_few_identities_fill_all_parts(identities):
    """Ten unlabeled parts used to be refused."""
    split = resolved(identities).recipe.split
    assert split.unlabeled_parts == 1
    table = people(max(identities, 8))
    cut = split_by_identity(table, labeled=split.labeled, unlabeled_parts=1, validation=split.validation)
    assert cut.labeled.n_identities >= 2


@pytest.mark.parametrize("identities", [None, 2000, 10**6])
def test_many_identities_are_split_as_in_the_paper(identities):
    chosen = resolved(identities)
    split = chosen.recipe.split
    assert (split.labeled, split.validation, split.unlabeled_parts) == pytest.approx((1 / 11, 1 / 11, 10))
    assert chosen.said == ()


def test_what_is_given_is_kept():
    split = resolved(100, **{"split.labeled": 0.2, "split.validation": 0.1}).recipe.split
    assert (split.labeled, split.validation, split.unlabeled_parts) == (0.2, 0.1, 4)
    assert resolved(100, **{"split.unlabeled_parts": 7}).recipe.split.unlabeled_parts == 7
    assert resolved(100, **{"split.use_parts": 3}).recipe.split.unlabeled_parts == 3
    split = resolved(100, **{"split.probes": 0.4}).recipe.split
    assert split.validation + split.probes + split.distractors < 1
    again = resolve(resolved(100).recipe, Facts("images", identities=100))
    assert again.recipe == resolved(100).recipe


def scanned(*sides):
    return ImageScan({}, {}, {side: sides.count(side) for side in sides}, {})


@pytest.mark.parametrize(
    ("sides", "size"), [((36,), 32), ((30, 47, 400), 32), ((30, 48, 400), 64), ((200, 900), 64)]
)
def test_the_input_is_as_large_as_most_images(sides, size):
    chosen = resolved(None, scanned(*sides)).recipe
    assert (chosen.train.size, chosen.joint.size) == (size, size)


def test_a_size_that_is_given_or_needed_comes_first():
    chosen = resolved(None, scanned(200), **{"train.size": 28})
    assert (chosen.recipe.train.size, chosen.recipe.joint.size) == (28, 64)
    assert resolved(None).recipe.train.size == 32
    assert choices.choose_size(scanned(20), least=75) == 75
    assert resolved(None, scanned(200), **{"joint.scale": 40}).recipe.joint.size == 40


def test_little_to_train_on_is_said_before_training():
    few = {"labeled": {"images": 412, "identities": 7}}
    (sentence,) = choices.few_sentences(few)
    assert "412" in sentence
    assert "--base.weights" in sentence
    assert choices.few_sentences({"labeled": {"images": 5000, "identities": 80}}) == []
