"""The work of one machine of a cluster, in this process; the cluster itself is in tests/engine."""

import numpy as np
import pytest

from cdp.knn import exact
from cdp.knn.distributed import GraphOptions, GraphTask, _search
from cdp.knn.search import knn_graph
from cdp.runtime import checkpoint
from cdp.runtime.settings import RuntimeSettings
from cdp.runtime.step_cache import StepCache
from cdp.storage.artifacts import load
from cdp.types import KnnGraph
from cdp.types.graphs import UnfinishedLists


def test_a_machine_goes_on_where_a_lost_one_was(small_views, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint, "_SECONDS", 0.0)
    monkeypatch.setattr(checkpoint, "_LONGEST_SHARE", np.inf)
    monkeypatch.setattr(exact, "BLOCK_ROWS", 50)
    expected = knn_graph(small_views.base, 10)
    cache = StepCache(tmp_path / "cache")
    options = GraphOptions(10, "auto", 0.97, 0, None, RuntimeSettings(threads=1), tmp_path, cache)
    task = GraphTask(small_views.base, "some-key", tmp_path / "graph")
    find, resumed = checkpoint.ListCheckpoint.resume, []
    noted = []

    def note(self, done, best, ids):
        noted.append(done)
        self.keep(lambda: UnfinishedLists(ids, best, done))
        if len(noted) == 2:
            raise SystemExit("the machine is lost")

    monkeypatch.setattr(checkpoint.ListCheckpoint, "note", note)
    monkeypatch.setattr(
        checkpoint.ListCheckpoint, "resume", lambda *given: resumed.append(find(*given)) or resumed[-1]
    )
    with pytest.raises(SystemExit):
        _search(options, task)
    assert not task.path.exists()
    _search(options, task)
    assert resumed == [0, noted[1]]
    assert noted[1] > 0
    assert noted[2] > noted[1], "what was done is not done again"
    found = load(task.path, KnnGraph)
    assert found.neighbors.tobytes() == expected.neighbors.tobytes()
    assert found.similarity.tobytes() == expected.similarity.tobytes()
