"""Fixtures for all suites: a small set of views, and the real data where it is at hand."""

import os
from pathlib import Path

import numpy as np
import pytest

from cdp.consensus import boosted_trees
from cdp.types import Views
from cdp.types.run_record import RunRecord


@pytest.fixture(autouse=True)
def fewer_trees(request, monkeypatch):
    """As many as tiny data needs; the quality of labels is measured with all of them."""
    if "quality" not in request.path.parts:
        monkeypatch.setattr(boosted_trees, "N_TREES", 15)


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
    """A small, complete run folder and what its run.json says; no test may change the folder."""
    from run_folder import make_run_folder

    folder = tmp_path_factory.mktemp("runs") / "small-faces"
    return folder, make_run_folder(folder)
