"""What keys of a recipe must not be together: pure rules, each a sentence with the way out."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from cdp.config.sections import RunRecipe
from cdp.errors import InputError

FROZEN = "onnx:"
"""What the name of a network begins with that is a file and is not trained."""


def check_recipe(recipe: RunRecipe) -> None:
    """Refuse a recipe that cannot be run, whatever the images are.

    Each value is right by itself already; here they are looked at together. Files and networks are looked at
    in `cdp.config.environment`.
    """
    for rule in (_sources, _shares, _tests, _networks, _consensus):
        for refusal in rule(recipe):
            raise refusal


def check_without_images(recipe: RunRecipe) -> None:
    """Refuse what only images have, where a recipe starts from embeddings."""
    for key in ("templates", "skip", "rotations"):
        if getattr(recipe.data, key):
            raise InputError(
                f"data.{key} applies to images, and only embeddings are given; leave it out.",
                code="recipe-key-needs-images",
                key=f"data.{key}",
            )
    for refusal in _needs_training(recipe, "there are embeddings only"):
        raise refusal


def _needs_training(recipe: RunRecipe, why_not: str) -> Iterator[InputError]:
    """Yield what trains networks, where none is trained."""
    for key, value, none in (
        ("joint.rounds", recipe.joint.rounds, 1),
        ("train.folds", recipe.train.folds, 0),
    ):
        if value > none:
            yield InputError(
                f"{key} trains networks, and {why_not}: set {key} = {none}.",
                code="recipe-key-needs-training",
                key=key,
                value=value,
            )


def member_names(recipe: RunRecipe) -> list[str]:
    """`NAME` or `NAME:SEED` of the base, then of the committee."""
    return [recipe.base.network, *recipe.committee.networks]


def network_names(recipe: RunRecipe) -> list[str]:
    """Return the names of the folders of the base and the committee."""
    return [folder_name(network) for network in member_names(recipe)]


def folder_name(network: str) -> str:
    """Turn `small_vgg:1` into the folder `small_vgg-1`, and `onnx:models/sface.onnx` into `sface`."""
    file = frozen_file(network)
    return network.replace(":", "-") if file is None else PurePath(file).stem


def frozen_file(network: str) -> str | None:
    """Return the file of a network that is used as it is, `onnx:FILE`; None for one that is trained here."""
    return network.removeprefix(FROZEN) if network.startswith(FROZEN) else None


def trained_members(recipe: RunRecipe) -> list[str]:
    """Return those of the base and the committee that are trained here."""
    return [network for network in member_names(recipe) if frozen_file(network) is None]


def _sources(recipe: RunRecipe) -> Iterator[InputError]:
    data = recipe.data
    given = [name for name in ("images", "embeddings", "labeled") if getattr(data, name)]
    if not given:
        yield InputError(
            "No input: give data.images or data.embeddings (to be split), or data.labeled and "
            "data.unlabeled.",
            code="recipe-sources-missing",
            keys=("data.images", "data.embeddings", "data.labeled"),
        )
    if len(given) > 1:
        yield InputError(
            f"data.{given[0]} and data.{given[1]} are both given: images and embeddings are split here, "
            "labeled is split already; leave one of them empty.",
            code="recipe-sources-clash",
            keys=(f"data.{given[0]}", f"data.{given[1]}"),
        )
    if data.labeled and not data.unlabeled:
        yield InputError(
            "data.labeled is given without data.unlabeled: name the unlabeled parts too.",
            code="recipe-unlabeled-missing",
            key="data.unlabeled",
        )
    if "" in data.unlabeled:
        yield InputError(
            "data.unlabeled holds an empty path: remove it.",
            code="recipe-unlabeled-path-empty",
            key="data.unlabeled",
        )
    for key in ("unlabeled", "validation"):
        if data.is_split_here and getattr(data, key):
            yield InputError(
                f"data.{key} goes with data.labeled; with data.{given[0]} the part comes from [split]: leave "
                f"data.{key} empty.",
                code="recipe-part-not-split-here",
                key=f"data.{key}",
            )


def _shares(recipe: RunRecipe) -> Iterator[InputError]:
    split = recipe.split
    if not recipe.data.is_split_here:
        return
    if split.labeled == 1:
        yield InputError(
            "split.labeled = 1: nothing is left to be labeled; give a smaller share, e.g. 0.1.",
            code="recipe-labeled-share-whole",
            key="split.labeled",
        )
    if sum(max(0, share) for share in (split.validation, split.probes, split.distractors)) >= 1:
        yield InputError(
            "split.validation, split.probes and split.distractors together are 1 or more: leave a share of "
            "the images for training.",
            code="recipe-shares-too-large",
            keys=("split.validation", "split.probes", "split.distractors"),
        )
    # 0 parts are as many as the data allow, and are looked at again once that is known.
    if split.unlabeled_parts and split.use_parts > split.unlabeled_parts:
        yield InputError(
            f"split.use_parts = {split.use_parts}: there are {split.unlabeled_parts} unlabeled parts; use as "
            "many at most, or raise split.unlabeled_parts.",
            code="recipe-use-parts-too-many",
            key="split.use_parts",
            value=split.use_parts,
            most=split.unlabeled_parts,
        )


def _tests(recipe: RunRecipe) -> Iterator[InputError]:
    data, split = recipe.data, recipe.split
    for one, other in (("probes", "distractors"), ("templates", "template_images")):
        if bool(getattr(data, one)) != bool(getattr(data, other)):
            lacking = other if getattr(data, one) else one
            yield InputError(
                f"data.{one} and data.{other} go together: give data.{lacking} too, or leave out both.",
                code="recipe-keys-go-together",
                keys=(f"data.{one}", f"data.{other}"),
                key=f"data.{lacking}",
            )
    if data.test and data.probes:
        yield InputError(
            "data.test and data.probes are both given: test is cut into probes and distractors here, probes "
            "is cut already; leave one of them empty.",
            code="recipe-tests-clash",
            keys=("data.test", "data.probes"),
        )
    if data.is_split_here and (data.test or data.probes) and (split.probes > 0 or split.distractors > 0):
        given = "data.test, which has" if data.test else "data.probes and data.distractors, which are"
        yield InputError(
            f"split.probes and split.distractors do not go with {given} both: set them to 0.",
            code="recipe-test-shares-clash",
            keys=("split.probes", "split.distractors"),
        )
    if data.is_split_here and 0 in (split.probes, split.distractors) and split.probes + split.distractors > 0:
        missing = "probes" if split.probes == 0 else "distractors"
        yield InputError(
            f"split.{missing} = 0: evaluation needs probes and distractors; give both a share, e.g. 0.1.",
            code="recipe-test-share-missing",
            key=f"split.{missing}",
        )
    if data.test and split.test_probes == 1:
        yield InputError(
            "split.test_probes = 1: no distractors are left; give a smaller share, e.g. 0.5.",
            code="recipe-test-probes-whole",
            key="split.test_probes",
        )


def _networks(recipe: RunRecipe) -> Iterator[InputError]:
    keys = ["base.network", *("committee.networks" for _ in recipe.committee.networks)]
    seen: dict[str, str] = {}
    for key, text in zip(keys, member_names(recipe), strict=True):
        if frozen_file(text) is not None:
            if folder_name(text) in seen:
                yield InputError(
                    f'{key}: "{text}" has the name of another network (in '
                    f"{seen[folder_name(text)]}); rename the file.",
                    code="recipe-network-name-repeated",
                    key=key,
                    value=text,
                )
            seen[folder_name(text)] = key
            continue
        name, colon, seed = text.partition(":")
        if not name or (colon and not (seed.isascii() and seed.isdigit())):
            yield InputError(
                f'{key}: "{text}" is not NAME or NAME:SEED with a whole number, e.g. small_resnet:1.',
                code="recipe-network-text-wrong",
                key=key,
                value=text,
            )
        # As the folders are named: small_resnet:1 and small_resnet:01 would be one.
        spelled = f"{name}-{int(seed)}" if colon else name
        if spelled in seen:
            yield InputError(
                f'{key}: "{text}" is there already (in {seen[spelled]}); another of the same kind '
                "needs another "
                f"seed, e.g. {name}:1.",
                code="recipe-network-repeated",
                key=key,
                value=text,
            )
        seen[spelled] = key
    if recipe.base.weights and frozen_file(recipe.base.network) is not None:
        yield InputError(
            "base.weights is where training starts, and base.network is not trained: leave one of them out.",
            code="recipe-weights-of-frozen-base",
            key="base.weights",
        )
    if not trained_members(recipe):
        yield from _needs_training(recipe, "base and committee are frozen ones")


def _consensus(recipe: RunRecipe) -> Iterator[InputError]:
    consensus, n_members = recipe.consensus, len(recipe.committee.networks)
    folds, rounds = recipe.train.folds, recipe.joint.rounds
    yield from _one_classifier(recipe)
    votes = consensus.min_votes
    if recipe.data.images and votes is not None and votes > n_members:
        yield InputError(
            f"consensus.min_votes = {votes}: the committee has {n_members} "
            f'member{"" if n_members == 1 else "s"}; lower it, or write "all".',
            code="min-votes-exceed-committee",
            key="consensus.min_votes",
            value=votes,
            members=n_members,
        )
    if (
        recipe.data.images
        and consensus.inputs == ("relationship",)
        and not n_members
        and consensus.mediator != "vote"
    ):
        yield InputError(
            "consensus.inputs has relationship only, which is about the committee, and committee.networks is "
            "empty: add affinity, or members.",
            code="inputs-need-committee",
            key="consensus.inputs",
        )
    if consensus.mediator == "vote" and folds:
        yield InputError(
            f"train.folds = {folds} is about how the mediator is trained, and a vote is not: "
            'set train.folds = 0, or consensus.mediator = "mlp".',
            code="recipe-folds-with-vote",
            key="train.folds",
            value=folds,
        )
    if consensus.train_on == "validation":
        if folds:
            yield InputError(
                f'consensus.train_on = "validation" and train.folds = {folds} both say what the mediator '
                'is trained on: set train.folds = 0, or consensus.train_on = "labeled".',
                code="recipe-folds-with-validation",
                key="train.folds",
                value=folds,
            )
        no_share = recipe.data.is_split_here and recipe.split.validation == 0
        if no_share or (recipe.data.labeled and not recipe.data.validation):
            yield InputError(
                'consensus.train_on = "validation" needs a validation part: give split.validation a '
                "share, e.g. 0.1, or data.validation.",
                code="train-on-validation-missing",
                key="consensus.train_on",
            )
    if rounds > 1 and folds:
        yield InputError(
            f"joint.rounds = {rounds} with train.folds = {folds}: networks of a later round have seen all "
            "labeled identities: set train.folds = 0, or joint.rounds = 1.",
            code="recipe-rounds-with-folds",
            rounds=rounds,
            folds=folds,
        )


def _one_classifier(recipe: RunRecipe) -> Iterator[InputError]:
    joint, consensus = recipe.joint, recipe.consensus
    if not joint.one_classifier:
        return
    if not consensus.is_disjoint:
        yield InputError(
            "joint.one_classifier needs disjoint people, and consensus.disjoint = false: change one of them.",
            code="recipe-one-classifier-not-disjoint",
            key="consensus.disjoint",
        )
    for key, is_set in (
        ("joint.labeled_share", joint.labeled_share >= 0),
        ("joint.distill", joint.distill > 0),
        ("consensus.soft_depth", consensus.soft_depth > 0),
    ):
        if is_set:
            yield InputError(
                f"joint.one_classifier goes without {key}; leave one of them out.",
                code="one-classifier-clashes",
                key=key,
            )
