"""`cdp label` in a process that may not have more memory than its budget, above its libraries and mapped files."""

import subprocess
import sys

import numpy as np
import pytest

from cdp.knn import autotune
from cdp.knn.ivf_search import approximate_graph
from cdp.knn.search import knn_graph
from cdp.runtime.runtime import Runtime
from cdp.types import Embeddings, Views
from cdp_lab.synthetic import synthetic_views

BUDGET = 64 * 10**6
LABEL = """
import ctypes, resource, sys
from pathlib import Path
from cdp.cli.label_command import Files, Labeling, label_embeddings
from cdp.scoring.settings import ConsensusSettings
from cdp.runtime.settings import RuntimeSettings
from cdp.runtime.progress import no_progress

def label(folder, budget):
    files = Files(str(folder / "unlabeled"), folder / "labeled")
    settings = ConsensusSettings.of(sys.argv[2], method="exact")
    how = Labeling(folder / "faces", settings, force=True, quiet=True)
    label_embeddings(files, how, how.open_runtime(RuntimeSettings(memory_budget=budget, threads=1), no_progress))

home = Path(sys.argv[1])
label(home / "few", "1GB")  # so that libraries are loaded and loops compiled
label(home / "few", "1GB")
ctypes.CDLL(None).malloc_trim(0)
held = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData:"))
budget, stack = int(sys.argv[3]), 2**23
limit = 1024 * held + budget + stack
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
label(home / "many", str(budget))
"""


def run(home, preset, budget):
    code = [sys.executable, "-c", LABEL, str(home), preset, str(budget)]
    return subprocess.run(code, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    """A few images, and 6,000 in two models of 512 dimensions: 25 MB on disk, as float16 and float32."""
    folder = tmp_path_factory.mktemp("memory")
    for name, people in (("few", 100), ("many", 500)):
        split = synthetic_views(people, members=1, dimensions=512, seed=1)
        for part in ("labeled", "unlabeled"):
            views = getattr(split, part)
            half = views.base.source.astype(np.float16)
            Views(half, dict(views.committee), views.identities).save(folder / name / part)
    return folder


SEARCH = """
import resource, sys
import numpy as np
from cdp.data.views import read_views
from cdp.knn.search import knn_graph
from cdp.runtime.runtime import Runtime
from cdp.types import Embeddings

knn_graph(np.eye(30, dtype=np.float16), 3, runtime=Runtime.of(threads=1))
held = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData:"))
limit = 1024 * held + int(sys.argv[2]) + 2**23
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
views = read_views(sys.argv[1])
assert views.base.source.dtype == np.float16 and views.base.source.nbytes > int(sys.argv[2])
graph = knn_graph(Embeddings(views.base.source[:1500]), 5, runtime=Runtime.of(threads=1))
np.save(sys.argv[1] + "/graph.npy", graph.neighbors)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits a process as Linux does")
def test_float16_files_larger_than_memory_are_read_block_by_block(tmp_path):
    vectors = np.random.default_rng(0).standard_normal((1500, 1024), np.float32).astype(np.float16)
    np.save(tmp_path / "base.npy", np.concatenate([vectors] * 28))
    code = [sys.executable, "-c", SEARCH, str(tmp_path), str(BUDGET)]
    done = subprocess.run(code, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    expected = knn_graph(vectors.astype(np.float32), 5, runtime=Runtime.of(threads=1)).neighbors
    np.testing.assert_array_equal(np.load(tmp_path / "graph.npy"), expected)


APPROXIMATE = """
import resource, sys
import numpy as np
from cdp.knn import autotune
from cdp.knn.ivf_search import approximate_graph
from cdp.runtime.runtime import Runtime
from cdp.types import Embeddings

autotune._exact_cost = lambda _: np.inf
vectors = np.load(sys.argv[1], mmap_mode="r")
approximate_graph(Embeddings(vectors[:900]), 5, 0.99, runtime=Runtime.of(threads=1))
held = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmData:"))
limit = 1024 * held + int(sys.argv[3])
resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
graph = approximate_graph(Embeddings(vectors), 100, 0.97, runtime=Runtime.of(threads=1, memory_budget="4MiB"))
np.save(sys.argv[2], graph.neighbors)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits a process as Linux does")
def test_lists_of_an_approximate_search_need_no_memory_and_are_those_made_in_memory(tmp_path, monkeypatch):
    generator = np.random.default_rng(0)
    vectors = np.repeat(generator.standard_normal((200, 24), np.float32), 100, axis=0)
    vectors = (vectors + generator.standard_normal(vectors.shape, np.float32)).astype(np.float16)
    np.save(tmp_path / "base.npy", vectors)
    # In memory the lists of 20,000 images take about 50 MB; spilled, the search takes about 28.
    code = [sys.executable, "-c", APPROXIMATE, *(str(tmp_path / name) for name in ("base.npy", "found.npy"))]
    done = subprocess.run([*code, str(40 * 10**6)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    monkeypatch.setattr(autotune, "_exact_cost", lambda _: np.inf)
    expected = approximate_graph(Embeddings(vectors), 100, 0.97, runtime=Runtime.of(threads=2))
    np.testing.assert_array_equal(np.load(tmp_path / "found.npy"), expected.neighbors)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="limits a process as Linux does")
@pytest.mark.parametrize("preset", ["best", "paper"])
def test_labeling_keeps_to_its_memory_budget(home, preset):
    done = run(home, preset, BUDGET)
    assert done.returncode == 0, done.stderr[-2000:]
    assert (home / "many" / "faces" / "labels.csv").exists()
