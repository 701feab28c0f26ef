"""What a recipe names outside itself: are the files there, are the networks known?"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from cdp.config.checks import check_without_images, frozen_file, member_names, trained_members
from cdp.config.sections import RunRecipe
from cdp.data.views import looks_like_views
from cdp.errors import InputError
from cdp.runtime.devices import find_accelerator


def check_environment(recipe: RunRecipe) -> bool:
    """Refuse a recipe with missing or conflicting files, or with an unknown device or network.

    Returns:
        False if networks were not checked: there are none, or torch is not installed.
    """
    check_paths(recipe)
    try:
        find_accelerator(recipe.engine.device)
        # Whether Ray is installed is not to be found out after training.
        if recipe.engine.engine == "ray":
            recipe.engine.ray_pool().is_this_machine  # noqa: B018
    except InputError as error:
        raise InputError(f"engine.{error}", **error.details()) from None
    if source_kind(recipe) == "images":
        return check_networks(recipe)
    check_without_images(recipe)
    return False


def check_paths(recipe: RunRecipe) -> None:
    """Refuse a path that is not there; nothing is read."""
    from cdp.data.webdataset import has_pattern, shards_of

    others = [(key, getattr(recipe.data, key)) for key in ("templates", "template_images", "root", "skip")]
    for key, path in [*_sources(recipe), *others]:
        if not path or Path(path).exists():
            continue
        if has_pattern(path) and key not in ("templates", "root", "skip"):
            try:
                shards_of(path)
            except InputError as error:
                raise InputError(f"data.{key}: {error}", **error.details(key=f"data.{key}")) from None
        else:
            raise InputError(
                f"data.{key} = {path}: no such file or folder; relative paths start from the recipe's folder "
                "(data/ also from the working directory and $CDP_DATA).",
                code="recipe-path-missing",
                key=f"data.{key}",
                file=path,
            )


def source_kind(recipe: RunRecipe) -> Literal["images", "embeddings"]:
    """Return what a recipe starts from, by looking at what is there."""
    if recipe.data.images and looks_like_views(recipe.data.images):
        raise InputError(
            f"data.images = {recipe.data.images} holds embeddings: give it as data.embeddings.",
            code="recipe-images-are-embeddings",
            key="data.images",
            file=recipe.data.images,
        )
    kinds = {
        # A folder of NETWORK.npy does not look like views, nor does a test part of the same kind.
        key: "embeddings" if recipe.data.embeddings or looks_like_views(path) else "images"
        for key, path in _sources(recipe)
        if path
    }
    if len(set(kinds.values())) > 1:
        first = {kind: f"data.{key}" for key, kind in reversed(kinds.items())}
        raise InputError(
            f"{first['embeddings']} holds embeddings and {first['images']} holds images: give all parts as "
            "images, or all as embeddings.",
            code="recipe-sources-mixed",
            embeddings=first["embeddings"],
            images=first["images"],
        )
    return "embeddings" if "embeddings" in kinds.values() else "images"


def _sources(recipe: RunRecipe) -> list[tuple[str, str]]:
    """Key and path of everything that may be read."""
    data = recipe.data
    return [
        ("images", data.images),
        ("embeddings", data.embeddings),
        ("labeled", data.labeled),
        *((f"unlabeled[{at}]", path) for at, path in enumerate(data.unlabeled)),
        ("validation", data.validation),
        ("test", data.test),
        ("probes", data.probes),
        ("distractors", data.distractors),
    ]


def check_networks(recipe: RunRecipe) -> bool:
    """Refuse a network that is unknown or needs larger images; return False without torch."""
    for at, text in enumerate(member_names(recipe)):
        file = frozen_file(text)
        if file is not None and not Path(file).is_file():
            key = "committee.networks" if at else "base.network"
            raise InputError(
                f"{key} = {text}: no such file; relative paths start from the recipe's folder.",
                code="recipe-network-file-missing",
                key=key,
                file=file,
            )
    if recipe.base.weights not in ("", "timm") and not Path(recipe.base.weights).exists():
        raise InputError(
            f"base.weights = {recipe.base.weights}: no such file or folder; relative paths start from the "
            "recipe's folder.",
            code="recipe-weights-missing",
            key="base.weights",
            file=recipe.base.weights,
        )
    if find_spec("torch") is None:
        return False
    from cdp.nets.trunks import find_trunk

    for at, text in enumerate(member_names(recipe)):
        key = "committee.networks" if at else "base.network"
        if frozen_file(text) is not None:
            continue
        name = text.partition(":")[0]
        try:
            entry = find_trunk(name)
        except InputError as error:
            raise InputError(f"{key}: {error}", **error.details(key=key)) from None
        for section in (recipe.train,) if at else (recipe.train, recipe.joint):
            # 0 is chosen by the images, and no smaller than the network can see.
            if section.size and section.size < entry.least_size:
                raise InputError(
                    f"{key}: {name} needs images of at least {entry.least_size} pixels, but "
                    f"{section.section}.size is {section.size}; increase it, or choose a small network "
                    "(cdp train --list-networks).",
                    code="network-images-too-small",
                    key=key,
                    network=name,
                    expected=entry.least_size,
                    found=section.size,
                )
    return True


def least_size(recipe: RunRecipe) -> int:
    """Pixels a side that the trained networks need at least; 0 without torch."""
    if find_spec("torch") is None:
        return 0
    from cdp.nets.trunks import find_trunk

    names = [name.partition(":")[0] for name in trained_members(recipe)]
    return max((find_trunk(name).least_size for name in names), default=0)
