"""What keys of a recipe must not be together: pure rules, each a sentence with the way out."""

from __future__ import annotations

from collections.abc import Iterator

from cdp.config.sections import RunRecipe
from cdp.errors import InputError
from cdp.settings import listed


def check_recipe(recipe: RunRecipe) -> None:
    """Refuse a recipe that cannot be run, whatever the images are.

    Each value is right by itself already; here they are looked at together. Files and networks are looked at in
    `cdp.config.environment`.

    Raises:
        InputError: the first rule that is broken.
    """
    rules = (_sources, _shares, _tests, _networks, _consensus, _pair_recall, _mending, _tuning, _drawn_sizes)
    for rule in rules:
        for sentence in rule(recipe):
            raise InputError(sentence)


def member_names(recipe: RunRecipe) -> list[str]:
    """`NAME` or `NAME:SEED` of the base, then of the committee."""
    return [recipe.base.network, *recipe.committee.networks]


def folder_name(network: str) -> str:
    """`small_vgg:1` -> `small_vgg-1`, as `cdp train` names its folders."""
    return network.replace(":", "-")


def _sources(recipe: RunRecipe) -> Iterator[str]:
    data = recipe.data
    if data.embeddings:
        yield from _embeddings(recipe)
        return
    if not data.images and not data.labeled:
        yield (
            "data.images and data.labeled are both empty: name the images that are to be split (data.images, "
            '"drawn" for drawn faces), or parts that are split already (data.labeled and data.unlabeled).'
        )
    if data.images and data.labeled:
        yield (
            "data.images and data.labeled are both given: images are split here, labeled is split already; "
            "leave one of them empty."
        )
    if data.labeled and not data.unlabeled:
        yield "data.labeled is given without data.unlabeled: name the unlabeled parts too."
    if "" in data.unlabeled:
        yield "data.unlabeled holds an empty path: remove it."
    for key in ("unlabeled", "validation"):
        if data.images and getattr(data, key):
            yield (
                f"data.{key} goes with data.labeled; with data.images the part comes from [split]: leave data.{key} "
                "empty."
            )


def _embeddings(recipe: RunRecipe) -> Iterator[str]:
    data, split = recipe.data, recipe.split
    for key in ("images", "labeled", "unlabeled", "validation", "test", "skip"):
        if getattr(data, key):
            yield f"data.{key} and data.embeddings are both given: leave one of them empty."
    if data.rotations:
        yield "data.rotations turns images, and data.embeddings has none: set data.rotations = false."
    for key in ("probes", "distractors"):
        if getattr(split, key):
            yield f"split.{key} is for testing trained networks, and data.embeddings trains none: set split.{key} = 0."
    if recipe.consensus.rounds > 1:
        yield "consensus.rounds trains networks, and data.embeddings has no images to train on: set consensus.rounds = 1."
    if recipe.consensus.folds:
        yield "consensus.folds trains networks, and data.embeddings has no images to train on: set consensus.folds = 0."


def _shares(recipe: RunRecipe) -> Iterator[str]:
    split = recipe.split
    if not recipe.data.is_split_here:
        return
    if split.labeled == 1:
        yield "split.labeled = 1: nothing is left to be labeled; give a smaller share, e.g. 0.1."
    if split.validation + split.probes + split.distractors >= 1:
        yield (
            "split.validation, split.probes and split.distractors together are 1 or more: leave a share of the images "
            "for training."
        )
    if split.use_parts > split.unlabeled_parts:
        yield (
            f"split.use_parts = {split.use_parts}: there are {split.unlabeled_parts} unlabeled parts; use as many "
            "at most, or raise split.unlabeled_parts."
        )


def _tests(recipe: RunRecipe) -> Iterator[str]:
    data, split, drawn = recipe.data, recipe.split, recipe.drawn
    if data.embeddings:
        return
    in_split = bool(data.images) and (split.probes > 0 or split.distractors > 0)
    own_test = data.is_drawn and drawn.test_identities > 0
    if data.test and own_test:
        yield (
            "data.test and drawn.test_identities are both given: leave data.test empty, or set "
            "drawn.test_identities = 0."
        )
    if in_split and (data.test or own_test):
        source = "data.test" if data.test else "drawn.test_identities"
        way = 'data.test = ""' if data.test else "drawn.test_identities = 0"
        yield (
            f"split.probes and split.distractors do not go with {source}, which has both: set them to 0, or set {way}."
        )
    if in_split and not (split.probes > 0 and split.distractors > 0):
        missing = "distractors" if split.probes > 0 else "probes"
        yield f"split.{missing} = 0: evaluation needs probes and distractors; give both a share, e.g. 0.1."
    if not (in_split or data.test or own_test):
        if data.images:
            more = " (or drawn.test_identities)" if data.is_drawn else ""
            yield (
                "There is nobody to be found again: give split.probes and split.distractors a share of the images, "
                f"e.g. 0.1 each, or name other images in data.test{more}."
            )
        else:
            yield "There is nobody to be found again: name images with identities in data.test."
    if (data.test or own_test) and split.test_probes == 1:
        yield "split.test_probes = 1: nobody is left to be a distractor; give a smaller share, e.g. 0.5."
    n_probes = drawn.test_identities * split.test_probes
    if own_test and not 0.5 < n_probes < drawn.test_identities - 0.5:
        yield (
            f"drawn.test_identities = {drawn.test_identities} with split.test_probes = {split.test_probes:g}: there "
            "must be a probe and a distractor at least; draw more."
        )


def _networks(recipe: RunRecipe) -> Iterator[str]:
    keys = ["base.network", *("committee.networks" for _ in recipe.committee.networks)]
    seen: dict[str, str] = {}
    for key, text in zip(keys, member_names(recipe), strict=True):
        name, colon, seed = text.partition(":")
        if not name or (colon and not (seed.isascii() and seed.isdigit())):
            yield f'{key}: "{text}" is not NAME or NAME:SEED with a whole number, e.g. small_resnet:1.'
        # As the folders are named: small_resnet:1 and small_resnet:01 would be one.
        spelled = f"{name}-{int(seed)}" if colon else name
        if spelled in seen:
            yield (
                f'{key}: "{text}" is there already (in {seen[spelled]}); another of the same kind needs another '
                f"seed, e.g. {name}:1."
            )
        seen[spelled] = key


def _consensus(recipe: RunRecipe) -> Iterator[str]:
    consensus, n_members = recipe.consensus, len(recipe.committee.networks)
    if not consensus.inputs:
        yield "consensus.inputs is empty: the mediator must hear something, e.g. affinity."
    if len(set(consensus.inputs)) < len(consensus.inputs):
        yield f"consensus.inputs names one input twice: {listed(consensus.inputs)}; remove one."
    if consensus.mediator == "mlp" and not n_members and consensus.inputs == ("relationship",):
        yield (
            "consensus.inputs has relationship only, which is about the committee, and committee.networks is empty: "
            "add affinity, or members."
        )
    if consensus.quorum > n_members:
        yield (
            f"consensus.quorum = {consensus.quorum}: the committee has {n_members} "
            f"member{'' if n_members == 1 else 's'}; ask for as many at most, or -1 for all."
        )
    if consensus.mediator != "mlp" and consensus.folds:
        who = "a vote" if consensus.mediator == "vote" else "clustering"
        yield (
            f"consensus.folds = {consensus.folds} is about how the mediator learns, and {who} does not learn: set "
            'consensus.folds = 0, or consensus.mediator = "mlp".'
        )
    if consensus.lessons == "validation":
        if consensus.folds:
            yield (
                f'consensus.lessons = "validation" and consensus.folds = {consensus.folds} both say what the mediator learns '
                'from: set consensus.folds = 0, or consensus.lessons = "labeled".'
            )
        if not (recipe.data.validation or (recipe.data.is_split_here and recipe.split.validation)):
            yield (
                'consensus.lessons = "validation" needs a validation part: give split.validation a share, e.g. 0.1, or '
                "data.validation."
            )
    if consensus.rounds > 1 and consensus.mediator == "hierarchical":
        yield (
            f"consensus.rounds = {consensus.rounds}: clustering has no committee to train again: set consensus.rounds = 1, "
            'or consensus.mediator = "mlp".'
        )
    if consensus.rounds > 1 and consensus.folds:
        yield (
            f"consensus.rounds = {consensus.rounds} with consensus.folds = {consensus.folds}: networks of a later round have "
            "seen all labeled identities: set consensus.folds = 0, or consensus.rounds = 1."
        )
    if consensus.mediator == "hierarchical" and recipe.joint.soft_depth:
        yield (
            f"joint.soft_depth = {recipe.joint.soft_depth}: soft labels come from accepted pairs, and clustering "
            'has none: set joint.soft_depth = 0, or consensus.mediator = "mlp".'
        )


def _pair_recall(recipe: RunRecipe) -> Iterator[str]:
    consensus = recipe.consensus
    if consensus.pair_recall < 0:
        return
    if consensus.tune:
        yield (
            "consensus.tune and consensus.pair_recall both choose the threshold: set consensus.tune = false, or "
            "consensus.pair_recall = -1."
        )
    if consensus.mediator == "hierarchical" or consensus.grouping == "average":
        yield (
            "consensus.pair_recall is about accepted pairs, which only grouping components has with mediator mlp "
            "or vote: set consensus.pair_recall = -1."
        )
    if not recipe.data.truth:
        yield "consensus.pair_recall looks at the truth, and data.truth is false: set consensus.pair_recall = -1."


def _mending(recipe: RunRecipe) -> Iterator[str]:
    consensus = recipe.consensus
    if consensus.mend == "nothing":
        return
    if not recipe.data.truth:
        yield f'consensus.mend = "{consensus.mend}" looks at the truth, and data.truth is false: set consensus.mend = "nothing".'
    if consensus.mediator == "hierarchical" or recipe.joint.soft_depth:
        yield (
            f'consensus.mend = "{consensus.mend}" is for hard labels by mediator or vote: set joint.soft_depth = 0 and '
            'consensus.mediator = "mlp", or consensus.mend = "nothing".'
        )


def _tuning(recipe: RunRecipe) -> Iterator[str]:
    if not recipe.consensus.tune:
        return
    if recipe.data.is_split_here and not recipe.split.validation:
        yield (
            "consensus.tune needs images to choose the threshold on: give split.validation a share, e.g. 0.1, or set "
            "consensus.tune = false."
        )
    if recipe.data.labeled and not recipe.data.validation:
        yield (
            "consensus.tune needs images to choose the threshold on: name some with identities in data.validation, or "
            "set consensus.tune = false."
        )


def _drawn_sizes(recipe: RunRecipe) -> Iterator[str]:
    if not recipe.data.is_drawn:
        return
    for section in (recipe.train, recipe.joint):
        if recipe.drawn.size < section.stored_size and not section.enlarge:
            yield (
                f"drawn.size = {recipe.drawn.size}: {section.section} wants images of {section.stored_size} pixels a "
                f"side; draw them larger, or set {section.section}.enlarge = true."
            )
