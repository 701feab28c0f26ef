"""A few bad commands and kills of each kind; `python -m benchmarks bad_input kills` tries many more.

They are forked, so from a process that has no threads yet. Kills are counted by changes of files, not timed.
"""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
BAD = """
from bad_inputs import Bench, Case, pick_cases
bench = Bench(Path(sys.argv[1]))
for case in pick_cases(36, seed=0):
    verdict = bench.run(case)
    if verdict.problem:
        print(case, verdict.problem, verdict.said[-300:])
for code, words in (
    ("baseline-tuned-on-itself", "baselines known --validation known --methods kmeans --out out.json --k 3"),
    ("setting-not-utf8", "data recipe out.toml --images people --data.skip x\\udcff"),
    ("file-not-regular", "train --list-networks --trunks ../bad/fifo"),
):
    verdict = bench.run(Case(words, "", "", tuple(words.split())), seconds=30)
    if verdict.problem or f"[{code}]" not in verdict.said:
        print(words, verdict)
"""
KILLS = """
from bad_inputs import Bench
from kills import WRITERS, kill_often
bench = Bench(Path(sys.argv[1]))
for writer in WRITERS:
    if writer.words.startswith(("add faces more --quiet", "regroup", "forget", "export album", "label photos")):
        for problem in kill_often(bench, writer, n_timed=0, n_counted=2, n_full=1, seed=3):
            print(problem)
"""


@pytest.mark.parametrize("script", [BAD, KILLS], ids=["bad", "kills"])
def test_whatever_is_given_and_whenever_it_is_killed(tmp_path, script):
    pytest.importorskip("onnxruntime")
    code = f"import sys\nfrom pathlib import Path\nsys.path[:0] = [{str(ROOT / 'tests')!r}, {str(ROOT)!r}]\n{script}"
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr[-2000:]
