"""`cdp-lab compile` runs every loop that a search or a labeling will need."""

import json
import subprocess
import sys

import pytest

# Called by other loops only, and compiled with them; for graphs that are given; for a GPU.
INSIDE = {"insert", "insert_in_order", "_find_above", "_bin", "_last_bin", "_find_bins", "_prefetch_row"}
RARE = {"drop_repeats", "find_tile_candidates"}
LOOK = """
import importlib, json, pkgutil
from numba.core.dispatcher import Dispatcher
from typer.testing import CliRunner
import cdp.knn
from cdp_lab.cli.lab_main import app

result = CliRunner().invoke(app, ["compile"])
modules = [importlib.import_module(f"cdp.knn.{found.name}") for found in pkgutil.iter_modules(cdp.knn.__path__)]
loops = {
    name: len(loop.signatures)
    for module in modules
    for name, loop in vars(module).items()
    if isinstance(loop, Dispatcher) and loop.py_func.__module__ == module.__name__
}
print(json.dumps([result.exit_code, result.output, loops]))
"""


@pytest.mark.slow
def test_all_loops_of_searches_are_compiled():
    done = subprocess.run([sys.executable, "-c", LOOK], capture_output=True, text=True, check=True)
    code, output, loops = json.loads(done.stdout.splitlines()[-1])
    assert code == 0, output
    assert "All loops are compiled and kept on disk." in output
    assert len(loops) > 20
    assert {name for name, compiled in loops.items() if not compiled} <= INSIDE | RARE
