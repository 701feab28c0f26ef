"""Cached steps: a graph or mediator from the same inputs is not computed again."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from cdp.settings import plain
from cdp.storage.artifacts import hash_array, load, save
from cdp.storage.hashes import hash_values
from cdp.types import Embeddings, Views

Noun = TypeVar("Noun")


@dataclass(frozen=True)
class StepCache:
    """A folder of artifacts named by a hash of their inputs; without a folder nothing is cached.

    A killed run loses a minute, or one of the short steps, and a changed setting recomputes only what depends
    on it.
    """

    folder: Path | None = None

    def absolute(self) -> StepCache:
        """Return the same for a process that works in another folder."""
        return StepCache(self.folder and self.folder.absolute())

    def get(self, name: str, key: str, kind: type[Noun]) -> Noun | None:
        """Return the artifact of a key, or None if it has not been made."""
        return load(self.find(name, key), kind) if self.has(name, key) else None

    def has(self, name: str, key: str) -> bool:
        """Return whether an artifact has been made."""
        return self.folder is not None and self.find(name, key).exists()

    def put(self, name: str, key: str, noun: Any) -> None:
        """Keep an artifact, if there is a folder."""
        if self.folder is not None:
            save(noun, self.find(name, key), force=True)

    def drop(self, name: str, key: str) -> None:
        """Keep an artifact no longer, if it is kept."""
        if self.folder is not None:
            shutil.rmtree(self.find(name, key), ignore_errors=True)

    def keeping(
        self, name: str, key: str, kind: type[Noun]
    ) -> tuple[Callable[[], Noun | None], Callable[[Noun], None] | None]:
        """Return where a step keeps its checkpoint; without a cache nothing is kept."""
        if self.folder is None:
            return lambda: None, None
        return lambda: self.get(name, key, kind), lambda noun: self.put(name, key, noun)

    def find(self, name: str, key: str) -> Path:
        """Return where an artifact is kept."""
        assert self.folder is not None
        return self.folder / f"{name}-{key[:24]}"

    def hash(self, array: Any) -> str:
        """Hash an array; nothing is read where nothing is kept."""
        return "" if self.folder is None else hash_array(array)

    def hash_embeddings(self, embeddings: Embeddings) -> str:
        """Hash the arrays of embeddings."""
        hashes = [self.hash(source) for source in embeddings.sources]
        return hashes[0] if len(hashes) == 1 else hash_values(hashes)

    def hash_views(self, views: Views) -> list[list[str]]:
        """Hash every model's embeddings, by name and in order."""
        return [[name, self.hash_embeddings(one)] for name, one in zip(views.names, views, strict=True)]


def step_key(step: str, version: int, settings: Any, *inputs: Any) -> str:
    """Hash everything a step's result depends on: settings, inputs and code version."""
    return hash_values(step, version, plain(settings) if settings is not None else None, list(inputs))
