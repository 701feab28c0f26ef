"""The tables of labels without labels are made of the figures that are kept, and the grid continues where it stopped."""

import runpy
from pathlib import Path

import numpy as np
from benchmarks import unlabeled_albums
from benchmarks.unlabeled_data import Source, albums

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = runpy.run_path(str(ROOT / "docs" / "make_unlabeled_tables.py"))


def test_pages_show_the_figures_that_are_kept():
    for file, made in SCRIPT["tables"]().items():
        page = file.read_text(encoding="utf-8")
        for name, table in made.items():
            assert table in page, f"{file.name}, {name}: run python docs/make_unlabeled_tables.py"
            assert SCRIPT["between_marks"](page, name, table) == page


def made_up(n_people=40, n_singletons=60, dimensions=64):
    generator = np.random.default_rng(0)
    truth = np.concatenate([np.repeat(np.arange(n_people), 5), n_people + np.arange(n_singletons)])
    vectors = generator.normal(size=(n_people + n_singletons, dimensions))[truth]
    vectors = (vectors + 0.3 * generator.normal(size=vectors.shape)).astype(np.float32)
    return Source("made up", {"one": vectors / np.linalg.norm(vectors, axis=1, keepdims=True)}, truth)


def test_albums_have_the_size_and_the_singletons_asked_for():
    source = made_up()
    for album in albums(source.truth, (50,)):
        counts = np.bincount(source.truth[album.rows])
        assert counts.max() <= (album.most or 5)
        if album.size is not None:
            assert len(album.rows) == album.size
            assert (counts == 1).sum() == round(album.singletons * album.size)


def test_albums_that_are_kept_are_not_measured_again(monkeypatch):
    source = made_up()
    monkeypatch.setattr(unlabeled_albums, "sources", lambda quick: iter([source]))
    monkeypatch.setattr(unlabeled_albums, "SIZES", (50,))
    monkeypatch.setattr(unlabeled_albums, "BLOB_DIMENSIONS", (32,))
    kept = {}
    found = unlabeled_albums.measure(quick=False, kept={}, keep=kept.update)
    assert kept["cells"] == found["cells"]
    for name in ("made up", "blobs"):
        assert found["summaries"][name]["within_0.01"] == 1
    monkeypatch.setattr(unlabeled_albums, "measure_album", None)
    again = unlabeled_albums.measure(quick=False, kept=found, keep=kept.update)
    assert again["summaries"] == found["summaries"]


def test_the_share_of_the_same_identity_leaves_the_image_itself_out():
    labels, truth = np.array([0, 0, 0, 1, 1, 2]), np.array([0, 0, 1, 1, 1, 2])
    expected = np.mean([1 / 2, 1 / 2, 0, 1, 1])
    assert unlabeled_albums._same_share(labels, truth) == expected
