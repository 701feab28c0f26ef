"""The rules of the house: who may import whom, what importing costs, which names are public."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import cdp

SOURCE = Path(cdp.__file__).parent
# What each room may import at the top of its files. Imports inside functions are doors that open late: they are
# checked for heavy libraries only.
LEAVES = {"devices", "errors", "files", "kernels", "memory", "parallel", "progress", "settings", "types"}
ROOMS = {
    "devices": {"errors"},
    "errors": set(),
    "files": {"errors"},
    "kernels": set(),
    "memory": {"errors"},
    "parallel": {"errors"},
    "progress": set(),
    "settings": {"errors"},
    "types": {"errors"},
    "graph": LEAVES,
    "data": LEAVES | {"graph"},
    "consensus": LEAVES | {"graph"},
    "evaluate": LEAVES | {"graph", "data"},
    "store": LEAVES | {"data"},
    "nets": LEAVES | {"data", "store"},
    "config": LEAVES | {"nets"},
    "report": LEAVES | {"data", "consensus", "evaluate", "store"},
    "run": LEAVES | {"graph", "data", "consensus", "evaluate", "store", "nets", "config", "report"},
    "lab": LEAVES | {"graph", "data", "consensus", "evaluate", "store", "nets", "config", "report", "run"},
    "cli": LEAVES
    | {"graph", "data", "consensus", "evaluate", "store", "nets", "config", "report", "run", "lab"},
}
FILES = sorted(SOURCE.rglob("*.py"))


def room_of(file: Path) -> str:
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(file: Path, everywhere: bool) -> set[str]:
    tree = ast.parse(file.read_text())
    nodes = ast.walk(tree) if everywhere else iter(tree.body)
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.add(node.module)
    return found


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_rooms_import_only_what_they_may(file):
    room = room_of(file)
    if room in ("__init__", "__main__"):
        return
    assert room in ROOMS, f"{room} is a new room: add it here and to ARCHITECTURE.md"
    inner = {name.split(".")[1] for name in imports(file, everywhere=False) if name.startswith("cdp.")}
    assert inner - {room} <= ROOMS[room]


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE)))
def test_heavy_libraries_stay_where_they_belong(file):
    allowed = {
        "torch": {"nets", "devices"},
        "ray": {"engine"},
        "faiss": set(),
        "pynndescent": {"graph"},
        "matplotlib": {"report", "evaluate", "cli"},
        "rich": {"progress", "cli"},
        "typer": {"cli"},
        "leidenalg": {"lab"},
        "igraph": {"lab"},
        "infomap": {"lab"},
        "pickle": {"data"},
    }
    for name in imports(file, everywhere=True):
        library = name.split(".")[0]
        is_device_path = library == "torch" and file.name == "exact_torch.py"
        if library in allowed and not is_device_path:
            assert room_of(file) in allowed[library], f"{file} imports {library}"


def test_no_rooms_without_a_thought():
    names = {part for file in FILES for part in file.relative_to(SOURCE).with_suffix("").parts}
    assert not names & {"utils", "util", "common", "misc", "helpers"}


def test_importing_is_light():
    loaded = subprocess.run(
        [sys.executable, "-c", "import cdp, sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    heavy = {"numpy", "scipy", "sklearn", "numba", "pyarrow", "rich", "torch", "pynndescent", "matplotlib"}
    assert not heavy & set(loaded)


def test_the_help_loads_nothing_heavy():
    code = (
        "import sys; from cdp.cli.main import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "print('LOADED', *sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    heavy = {"numpy", "scipy", "sklearn", "numba", "pyarrow", "torch", "pynndescent", "matplotlib"}
    assert not heavy & set(loaded.split("LOADED")[1].split())


def test_public_names_are_there():
    promised = {
        "CDP", "ConsensusGraph", "KnnGraph", "Labels", "Views", "Vote", "candidate_pairs", "collect_opinions",
        "diffuse", "knn_graph", "propagate",
    }  # fmt: skip
    assert promised <= set(dir(cdp))
    for name in cdp.__all__:
        assert getattr(cdp, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = cdp.nonsense


def test_nothing_is_compiled_or_seeded_at_import():
    code = (
        "import numpy as np; before = np.random.get_state()[1].tolist()\n"
        "import cdp.consensus.estimator, cdp.consensus.propagation as p\n"
        "assert np.random.get_state()[1].tolist() == before\n"
        "assert not p._join.signatures"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
