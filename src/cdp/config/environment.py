"""What a recipe names outside itself: are the files there, are the networks known?"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from cdp.config.checks import folder_name, member_names
from cdp.config.sections import RunRecipe
from cdp.data.views import looks_like_views
from cdp.errors import InputError


def check_paths(recipe: RunRecipe) -> None:
    """Refuse a path that is not there; nothing is read.

    Raises:
        InputError: names the key and the path.
    """
    from cdp.data.webdataset import has_pattern, shards_of

    data = recipe.data
    named = [("images", data.images), ("labeled", data.labeled)]
    named += [(f"unlabeled[{place}]", path) for place, path in enumerate(data.unlabeled)]
    named += [
        ("embeddings", data.embeddings),
        ("validation", data.validation),
        ("test", data.test),
        ("probes", data.probes),
        ("distractors", data.distractors),
        ("templates", data.templates),
        ("template_images", data.template_images),
        ("root", data.root),
        ("skip", data.skip),
    ]
    for key, path in named:
        if not path or Path(path).exists():
            continue
        if has_pattern(path) and key not in ("root", "skip", "templates"):
            try:
                shards_of(path)
            except InputError as error:
                raise InputError(f"data.{key}: {error}") from None
        else:
            raise InputError(
                f"data.{key} = {path}: no such file or folder; relative paths start from the recipe's folder, and "
                "data/ is also looked for in the working directory and in $CDP_DATA."
            )


def source_kind(recipe: RunRecipe) -> Literal["images", "embeddings"]:
    """What a recipe starts from, by looking at what lies there."""
    data = recipe.data
    if data.embeddings:
        return "embeddings"
    if data.images:
        return "images"
    kinds = {
        key: looks_like_views(path)
        for key, path in (
            ("labeled", data.labeled),
            *((f"unlabeled[{at}]", path) for at, path in enumerate(data.unlabeled)),
            ("validation", data.validation),
            ("test", data.test),
            ("probes", data.probes),
            ("distractors", data.distractors),
        )
        if path
    }
    if len(set(kinds.values())) > 1:
        images, views = (
            next(key for key, kind in kinds.items() if kind is wanted) for wanted in (False, True)
        )
        raise InputError(
            f"data.{views} holds embeddings and data.{images} holds images: give all parts as images, or all as embeddings."
        )
    return "embeddings" if kinds["labeled"] else "images"


def network_files(recipe: RunRecipe) -> dict[str, Path]:
    """Whose rows are where, if data.embeddings is a folder of NETWORK.npy: `identities`, then every network by its name."""
    folder = Path(recipe.data.embeddings)
    names = ["identities", *map(folder_name, member_names(recipe))]
    files = {name: folder / f"{name}.npy" for name in names}
    for file in files.values():
        if not file.is_file():
            raise InputError(
                f"data.embeddings: {file} is not there; give views (base.npy, committee/NAME.npy), or a folder with "
                "identities.npy and one .npy per network, called as base.network and committee.networks call it."
            )
    return files


def check_networks(recipe: RunRecipe) -> bool:
    """Refuse a network that nobody knows, or that cannot see images as small as the recipe's.

    Returns:
        False if nothing was checked, because torch is not installed.

    Raises:
        InputError: names the key and the network.
    """
    if find_spec("torch") is None:
        return False
    from cdp.nets.trunks import find_trunk

    for place, text in enumerate(member_names(recipe)):
        key = "committee.networks" if place else "base.network"
        name = text.partition(":")[0]
        try:
            entry = find_trunk(name)
        except InputError as error:
            raise InputError(f"{key}: {error}") from None
        for section in (recipe.train,) if place else (recipe.train, recipe.joint):
            if section.size < entry.least_size:
                raise InputError(
                    f"{key}: {name} needs images of {entry.least_size} pixels a side or more, {section.section}.size "
                    f"is {section.size}; choose a larger size or a small network (cdp networks)."
                )
    return True
