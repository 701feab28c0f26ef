"""What the tests of networks share: one thread, tiny drawn images, a recipe of seconds."""

from pathlib import Path

import pytest

import drawn_images

pytest.importorskip("torch", reason="the networks need the extra nets")

import torch

from cdp.nets import trunks
from cdp.nets.recipe import Recipe
from cdp.nets.trunks import network_names, register_trunk
from cdp.types.manifest import Manifest


@register_trunk("thumb", least_size=8)
def thumb(channels: int) -> torch.nn.Module:
    """Two convolutions, for tests."""
    return torch.nn.Sequential(
        torch.nn.Conv2d(channels, 8, 3, 2, 1, bias=False),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.Conv2d(8, 16, 3, 2, 1, bias=False),
        torch.nn.BatchNorm2d(16),
        torch.nn.ReLU(),
    )


@pytest.fixture(autouse=True)
def _one_thread_and_no_new_names(monkeypatch):
    torch.set_num_threads(1)
    network_names()
    monkeypatch.setattr(trunks, "_ENTRIES", dict(trunks._ENTRIES))


@pytest.fixture(scope="session")
def people(tmp_path_factory) -> Manifest:
    """48 images of 6 identities."""
    return drawn_images.draw(tmp_path_factory.mktemp("people"))


@pytest.fixture(scope="session")
def strangers(tmp_path_factory) -> Manifest:
    """40 images of 5 other identities."""
    return drawn_images.draw(tmp_path_factory.mktemp("strangers"), n_identities=5, first=20)


@pytest.fixture
def quick() -> Recipe:
    """Twelve steps with everything random switched on."""
    return Recipe(
        epochs=4,
        batch=16,
        rate=0.05,
        size=16,
        dimensions=12,
        flip=True,
        rotate=5,
        zoom=0.1,
        shift=0.1,
        loss="arcface",
        logit_scale=16,
        seed=3,
    )


@pytest.fixture
def out(tmp_path) -> Path:
    """A folder to train into."""
    return tmp_path / "nets"
