"""The rules of ARCHITECTURE.md: who may import whom, what importing costs, which names are public, how long things are."""

import ast
import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import pytest

import cdp

SOURCE = Path(cdp.__file__).parent
LAB = SOURCE.with_name("cdp_lab")
PRODUCT = sorted(SOURCE.rglob("*.py"))
FILES = [*PRODUCT, *sorted(LAB.rglob("*.py"))]
each_file = pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(SOURCE.parent)))

LAYERS = (
    {"errors"},
    {"blocks", "input_blocks", "settings"},
    {"types"},
    {"storage"},
    {"runtime"},
    {"knn"},
    {"data", "scoring"},
    {"evaluate", "grouping"},
    {"labeling", "nets"},
    {"collection", "config", "faces"},
    {"web"},
    {"export", "run"},
    {"cdp_lab"},
    {"cli"},
    {"lab_cli"},
)
"""Packages and modules from the bottom to the top; each imports only from layers below its own."""

FORBIDDEN = {
    "scoring": {"storage"},
    "grouping": {"storage", "data"},
    "nets": {"knn", "scoring", "grouping", "evaluate"},
    "web": {"nets"},
}
"""Layers below that must not be imported all the same."""

LATE = {
    "types": {"data", "storage"},
    "labeling": {"collection"},
    "collection": {"web"},
}
"""Imports inside functions that the layers would refuse: `save` and `load` of data classes, `CDP.save`, reports."""


def package_of(file: Path) -> str:
    if LAB in file.parents:
        return "lab_cli" if file.parent == LAB / "cli" else "cdp_lab"
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


def packages(file: Path, everywhere: bool) -> set[str]:
    """The packages of cdp that a file imports, and the laboratory, but for its own."""
    found = [name.split(".") for name in imports(file, everywhere)]
    names = {parts[1] for parts in found if parts[0] == "cdp" and len(parts) > 1}
    names |= {"lab_cli" if parts[1:2] == ["cli"] else "cdp_lab" for parts in found if parts[0] == "cdp_lab"}
    return names - {package_of(file)}


def allowed(package: str) -> set[str]:
    level = next(number for number, layer in enumerate(LAYERS) if package in layer)
    return set().union(*LAYERS[:level]) - FORBIDDEN.get(package, set())


def test_every_package_has_its_layer():
    known = [package for layer in LAYERS for package in layer]
    assert len(known) == len(set(known))
    assert set(known) == {package_of(file) for file in FILES} - {"__init__", "__main__"}


@each_file
def test_packages_import_only_from_layers_below(file):
    package = package_of(file)
    if package not in ("__init__", "__main__"):
        assert packages(file, everywhere=False) <= allowed(package)
        assert packages(file, everywhere=True) <= allowed(package) | LATE.get(package, set())


def test_exceptions_are_needed():
    for package, names in LATE.items():
        files = [file for file in FILES if package_of(file) == package]
        assert names <= set().union(*(packages(file, everywhere=True) for file in files))
        assert not names & allowed(package)
    for package, names in FORBIDDEN.items():
        assert names <= set().union(*LAYERS[: next(n for n, layer in enumerate(LAYERS) if package in layer)])


def test_nothing_but_the_command_line_imports_the_laboratory():
    importing = {package_of(file) for file in PRODUCT if "cdp_lab" in packages(file, everywhere=True)}
    assert importing == {"cli"}


ONE_FILE = {
    ("torch", "gpu.py"),
    ("torch", "devices.py"),
    ("ray", "ray_pool.py"),
    ("rich", "progress.py"),
    ("pickle", "packing.py"),
}
"""Files of the runtime and of the k-NN search that alone may import a heavy library."""


@each_file
def test_heavy_libraries_stay_where_they_belong(file):
    homes = {
        "torch": {"nets"},
        "onnxruntime": {"nets"},
        "onnx": {"nets"},
        "ray": set(),
        "faiss": set(),
        "matplotlib": {"web", "evaluate", "cdp_lab", "cli"},
        "rich": {"cli"},
        "typer": {"cli", "lab_cli"},
        "jinja2": {"web"},
        "starlette": {"web"},
        "uvicorn": {"web"},
        "leidenalg": {"cdp_lab"},
        "igraph": {"cdp_lab"},
        "infomap": {"cdp_lab"},
        "pickle": {"data"},
    }
    for name in imports(file, everywhere=True):
        library = name.split(".")[0]
        if library in homes and (library, file.name) not in ONE_FILE:
            assert package_of(file) in homes[library], f"{file} imports {library}"


def test_names_of_files_say_what_is_inside_and_occur_once():
    names = {part for file in FILES for part in file.relative_to(SOURCE.parent).with_suffix("").parts}
    assert not names & {"utils", "util", "common", "misc", "helpers"}
    counts = Counter(file.name for file in FILES if file.name != "__init__.py")
    # cdp/settings.py says what a setting is, cdp/scoring/settings.py which ones section 3.1 has.
    assert {name for name, count in counts.items() if count > 1} == {"settings.py"}


def test_everything_that_is_no_python_is_listed_as_package_data():
    project = tomllib.loads((SOURCE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
    for package, patterns in project["tool"]["setuptools"]["package-data"].items():
        home = SOURCE.with_name(package)
        listed = {file for pattern in patterns for file in home.glob(pattern)}
        found = {
            file
            for file in home.rglob("*")
            if file.is_file() and file.suffix != ".py" and file.parent.name != "__pycache__"
        }
        assert found == listed


def test_no_function_is_longer_than_60_lines():
    long = {
        f"{file.relative_to(SOURCE.parent)}: {node.name}"
        for file in FILES
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and node.end_lineno is not None
        and node.end_lineno - node.lineno + 1 > 60
    }
    assert not long


def test_importing_is_light():
    loaded = subprocess.run(
        [sys.executable, "-c", "import cdp, sys; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    heavy = {
        "numpy",
        "scipy",
        "sklearn",
        "numba",
        "pyarrow",
        "rich",
        "torch",
        "matplotlib",
        "jinja2",
        "onnxruntime",
    }
    assert not heavy & set(loaded)


def test_the_help_loads_nothing_heavy():
    code = (
        "import sys; from cdp.cli.main import app\n"
        "try: app(['--help'])\n"
        "except SystemExit: pass\n"
        "print('LOADED', *sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    heavy = {"numpy", "scipy", "sklearn", "numba", "pyarrow", "torch", "matplotlib", "jinja2"}
    assert not heavy & set(loaded.split("LOADED")[1].split())


def test_public_names_are_there():
    promised = {
        "CDP", "ConsensusGraph", "KnnGraph", "Labels", "Mediator", "Views",
        "knn_graph", "propagate",
    }  # fmt: skip
    assert promised <= set(dir(cdp))
    for name in cdp.__all__:
        assert getattr(cdp, name) is not None
    with pytest.raises(AttributeError, match="has no attribute 'nonsense'"):
        _ = cdp.nonsense


@pytest.mark.slow
def test_nothing_is_compiled_or_seeded_at_import():
    code = (
        "import numpy as np; before = np.random.get_state()[1].tolist()\n"
        "import cdp.labeling.estimator, cdp.grouping.propagation as p\n"
        "assert np.random.get_state()[1].tolist() == before\n"
        "assert not p._join_apart.signatures"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
