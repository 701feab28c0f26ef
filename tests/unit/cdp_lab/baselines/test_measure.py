import numpy as np
import pytest
from tests.refusals import refuses

from cdp import Labels, knn_graph
from cdp.errors import CdpError, InputError
from cdp.evaluate.label_figures import measure_labels
from cdp_lab.baselines.baseline import Baseline, labels_of
from cdp_lab.baselines.fresh_process import run_in_fresh_process
from cdp_lab.baselines.hierarchical import Hierarchical
from cdp_lab.baselines.measure import measure_baselines
from cdp_lab.baselines.rank_order import RankOrder
from cdp_lab.baselines.scikit_learn import DBSCAN


@pytest.mark.slow
def test_rows_are_the_figures_of_the_labels(small_views):
    graph = knn_graph(small_views.base, 10)
    methods = [Hierarchical(0.5), RankOrder(1.0)]
    rows = measure_baselines(methods, small_views.base, graph, small_views.identities)
    for method, row in zip(methods, rows, strict=True):
        figures = measure_labels(method.label(small_views.base, graph), small_views.identities)
        kept = figures.discards_kept
        assert (row.name, row.settings, row.failure) == (method.name, method.settings, None)
        assert (row.precision, row.recall, row.f) == (
            kept.pairwise.precision,
            kept.pairwise.recall,
            kept.pairwise.f,
        )
        assert (row.bcubed_f, row.nmi, row.coverage) == (kept.bcubed.f, kept.nmi, figures.coverage)
        assert row.identities == figures.identities_found
        assert 0 < row.seconds < 5
        assert row.as_dict()["name"] == method.name


def fill_100_megabytes(folder):
    def work():
        size = int((folder / "size.txt").read_text())
        return labels_of(np.ones(size, np.uint8)[:4].astype(int))

    return work


def refuse(folder):
    raise InputError(f"not today, {folder.name}.")


@pytest.mark.slow
def test_the_peak_is_what_the_work_takes_and_no_more(tmp_path):
    (tmp_path / "size.txt").write_text(str(100_000_000))
    # The other process must find this module, and pytest gives it a name that depends on the folder.
    run = run_in_fresh_process(_named("fill_100_megabytes"), tmp_path, "filling")
    if run.peak_bytes is None:
        pytest.skip("this system does not tell the peak of a process's memory")
    assert 95e6 < run.peak_bytes < 130e6
    (tmp_path / "size.txt").write_text("8")
    assert run_in_fresh_process(_named("fill_100_megabytes"), tmp_path, "filling").peak_bytes < 20e6
    assert run.labels.tolist() == [0, 0, 0, 0]


@pytest.mark.slow
def test_a_failure_in_the_other_process_is_a_sentence(tmp_path):
    with refuses("baseline-failed", CdpError, baseline="refusing") as error:
        run_in_fresh_process(_named("refuse"), tmp_path, "refusing")
    assert str(error.value) == f"refusing: not today, {tmp_path.name}."


@pytest.mark.slow
def test_a_killed_process_is_named(tmp_path):
    with refuses("baseline-stopped", CdpError, baseline="dying", signal=9):
        run_in_fresh_process(_named("die"), tmp_path, "dying")


def die(folder):
    import os

    os.kill(os.getpid(), 9)


def test_bad_input(small_views):
    with refuses("baseline-identities-differ", expected=300, found=3):
        measure_baselines([DBSCAN()], small_views.base, None, [0, 1, 2])
    with refuses("baseline-not-registered", baseline="mine"):
        measure_baselines([Mine()], small_views.base, None, small_views.identities)


@pytest.mark.slow
def test_a_method_that_fails_gets_a_row_that_says_so(small_views, monkeypatch):
    import cdp_lab.baselines.measure as measure

    monkeypatch.setattr(measure, "prepare_baseline", _named("refuse"))
    graph = knn_graph(small_views.base, 5)
    (row,) = measure_baselines([DBSCAN()], small_views.base, graph, small_views.identities)
    assert row.f is None
    assert row.failure.startswith("dbscan: not today, cdp-baselines-")


class Mine(Baseline):
    name = "mine"

    def label(self, embeddings, graph=None):
        return Labels.from_array(np.zeros(embeddings.n_images, int))


@pytest.fixture(autouse=True)
def _other_processes_find_this_module(monkeypatch):
    import os
    from pathlib import Path

    here = str(Path(__file__).parent)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([here, os.environ.get("PYTHONPATH", "")]))


def _named(name):
    function = globals()[name]
    function.__module__ = "test_measure"
    return function
