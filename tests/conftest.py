"""Fixtures for all suites: a small set of views, and the real data where it is at hand."""

import fcntl
import functools
import os
from pathlib import Path

import numpy as np
import pytest
import typer.testing
from hypothesis import HealthCheck, settings

from cdp.scoring import boosting as boosted_trees
from cdp.scoring import mlp
from cdp.storage.artifacts import read_run_record
from cdp.types import Views
from cdp.types.run_record import RunRecord

# How long an example takes says something about the machine, which may be busy, and nothing about the code.
settings.register_profile("any-machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any-machine")

# Else every command that is called builds all commands anew, which takes longer than most of the tests.
typer.testing._get_command = functools.cache(typer.testing._get_command)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever needs the folder of a whole run is slow."""
    for item in items:
        if "made_run" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(autouse=True)
def shorter_training(request, monkeypatch):
    """As many trees and epochs as tiny data needs; the quality of labels is measured with all of them."""
    if "quality" not in request.path.parts and not request.node.get_closest_marker("whole_training"):
        monkeypatch.setattr(boosted_trees, "N_TREES", 15)
        monkeypatch.setattr(mlp, "_ENOUGH", 0.15)


@pytest.fixture(scope="session")
def small_views() -> Views:
    """300 images as three models of unlike quality see them: 40 identities of 7 images, 20 of one."""
    generator = np.random.default_rng(20180908)
    identities = generator.permutation(np.concatenate([np.repeat(np.arange(40), 7), np.arange(40, 60)]))

    def embed(dimensions: int, noise: float, dtype: str) -> np.ndarray:
        faces = generator.normal(size=(60, dimensions))
        return (faces[identities] + noise * generator.normal(size=(300, dimensions))).astype(dtype)

    return Views(
        base=embed(24, 0.45, "float32"),
        committee={"small": embed(12, 0.5, "float32"), "wide": embed(40, 0.7, "float64")},
        identities=identities,
        paths=[f"{row:03d}.jpg" for row in range(300)],
    )


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder with the real data of docs/data.md, $CDP_DATA or beside the project; tests are skipped without it."""
    beside = Path(__file__).resolve().parents[2] / "shared" / "data"
    folder = Path(os.environ.get("CDP_DATA") or beside)
    for name in ("lfw/identities.npy", "omniglot/images_background.zip", "omniglot/images_evaluation.zip"):
        if not (folder / name).is_file():
            pytest.skip(f"{folder / name} is not there; docs/data.md says where to get it")
    return folder


@pytest.fixture(scope="session")
def made_run(tmp_path_factory) -> tuple[Path, RunRecord]:
    """A small collection made by a run, and what its run.json says; no test may change the folder.

    Processes that share the tests share it: the first one makes it.
    """
    from run_folder import make_run_folder

    home = tmp_path_factory.getbasetemp()
    home = home.parent if "PYTEST_XDIST_WORKER" in os.environ else home
    folder = home / "runs" / "small-faces"
    folder.parent.mkdir(exist_ok=True)
    with (home / "runs.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not (folder / "report.html").exists():
            make_run_folder(folder)
    return folder, read_run_record(folder / "run" / "run.json")
