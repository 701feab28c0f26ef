"""What a recipe names outside itself: are the files there, are the networks known?"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from cdp.config.checks import folder_name, member_names
from cdp.config.sections import RunRecipe
from cdp.errors import InputError


def check_paths(recipe: RunRecipe) -> None:
    """Refuse a path that is not there; nothing is read.

    Raises:
        InputError: names the key and the path.
    """
    from cdp.data.webdataset import has_pattern, shards_of

    data = recipe.data
    images = "" if data.is_drawn else data.images
    named = [("images", images), ("labeled", data.labeled)]
    named += [(f"unlabeled[{place}]", path) for place, path in enumerate(data.unlabeled)]
    named += [
        ("embeddings", data.embeddings),
        ("validation", data.validation),
        ("test", data.test),
        ("root", data.root),
        ("skip", data.skip),
    ]
    for key, path in named:
        if not path or Path(path).exists():
            continue
        if has_pattern(path) and key not in ("root", "skip"):
            try:
                shards_of(path)
            except InputError as error:
                raise InputError(f"data.{key}: {error}") from None
        else:
            raise InputError(
                f"data.{key} = {path}: no such file or folder; relative paths start from the recipe's folder, and "
                "data/ is also looked for in the working directory and in $CDP_DATA."
            )

    if data.embeddings:
        for file in embedding_files(recipe).values():
            if not file.is_file():
                raise InputError(
                    f"data.embeddings: {file} is not there; a folder of embeddings has identities.npy and one .npy per "
                    "network, called as base.network and committee.networks call it."
                )


def embedding_files(recipe: RunRecipe) -> dict[str, Path]:
    """Whose rows are where, for data.embeddings: `identities`, then every network by its name."""
    folder = Path(recipe.data.embeddings)
    names = ["identities", *map(folder_name, member_names(recipe))]
    return {name: folder / f"{name}.npy" for name in names}


def check_networks(recipe: RunRecipe) -> bool:
    """Refuse a network that nobody knows, or that cannot see images as small as the recipe's.

    Returns:
        False if nothing was checked, because torch is not installed or nothing is trained.

    Raises:
        InputError: names the key and the network.
    """
    if recipe.data.embeddings or find_spec("torch") is None:
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
