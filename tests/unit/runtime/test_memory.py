import errno
import resource
import subprocess
import sys

import pytest
from tests.refusals import refuses
from typer.testing import CliRunner

from cdp.cli.main import app
from cdp.errors import CdpError
from cdp.runtime.memory import check_address_space, is_memory_error, parse_bytes, rows_within
from cdp.runtime.progress import progress_bars


@pytest.mark.parametrize(
    ("text", "n_bytes"),
    [("2GB", 2 * 10**9), ("500 MiB", 500 * 2**20), ("1.5kB", 1500), (4096, 4096), (1e6, 10**6)],
)
def test_sizes(text, n_bytes):
    assert parse_bytes(text) == n_bytes


@pytest.mark.parametrize("text", ["", "2 apples", "-1", "0", 0, "9" * 400, float("nan"), float("inf")])
def test_what_is_no_size(text):
    with refuses("memory-budget-not-a-size"):
        parse_bytes(text)


def test_rows():
    assert rows_within("1MB", 100) == 10_000
    assert rows_within("1MB", 10**6) == 1024


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 4 GiB"),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:118] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"),
        RuntimeError("can't start new thread"),
        ImportError("_csr.so: failed to map segment from shared object"),
    ],
)
def test_memory_runs_out_in_many_words(error):
    assert is_memory_error(error)


def test_other_errors():
    for error in (ImportError("No module named x"), ValueError("out of memory"), OSError(errno.EACCES, "no")):
        assert not is_memory_error(error)


@pytest.mark.parametrize(
    ("words", "where", "way_out"),
    [
        ("data check photos", "check, after images", "use a machine with more of it."),
        (
            "data split photos --out out --skip-unreadable",
            "split, after images",
            "use a machine with more of it.",
        ),
    ],
)
def test_the_step_and_the_options_of_the_command_are_named(monkeypatch, tmp_path, words, where, way_out):
    def fail(images, threads, progress):
        progress("images", 3, 3)
        raise MemoryError("Unable to allocate 4.00 GiB")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cdp.data.manifests.read_manifest", lambda *_, **__: None)
    monkeypatch.setattr("cdp.data.check.check_images", fail)
    result = CliRunner().invoke(app, [*words.split(), "--quiet"])
    assert result.exit_code == 1
    assert result.stderr.endswith(f"{where}: out of memory (Unable to allocate 4.00 GiB); {way_out}\n")


def test_a_command_with_a_budget_says_to_lower_it(monkeypatch, tmp_path):
    def fail(*_, runtime, **__):
        runtime.progress("base graph", 1, 9)
        raise MemoryError("Unable to allocate 4.00 GiB")

    import numpy as np

    np.save(tmp_path / "given.npy", np.eye(4))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("cdp.collection.creation.label", fail)
    result = CliRunner().invoke(app, ["label", "given.npy", "--mediator", "vote", "--out", "out", "--quiet"])
    assert result.exit_code == 1
    assert result.stderr.endswith(
        "label, base graph: out of memory (Unable to allocate 4.00 GiB); lower --memory-budget or --k, or use a "
        "machine with more of it.\n"
    )
    assert not (tmp_path / "out").exists()


def test_a_step_is_noted_with_and_without_bars():
    def work(enabled):
        with progress_bars(enabled) as progress:
            progress("graphs", 1, 2)
            raise MemoryError

    for enabled in (True, False):
        with pytest.raises(MemoryError) as caught:
            work(enabled)
        assert caught.value.__notes__ == ["graphs"]


def test_a_tiny_address_space_is_refused(monkeypatch):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (350_000 * 1024, -1))
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "2")
    with refuses("address-space-too-small", CdpError, expected=804000000, found=358400000):
        check_address_space()
    monkeypatch.setattr(resource, "getrlimit", lambda _: (resource.RLIM_INFINITY, -1))
    check_address_space()


@pytest.mark.parametrize("kilobytes", [350_000, 420_000])
def test_a_tiny_address_space_does_not_hang(tmp_path, kilobytes):
    """At 420,000 OpenBLAS, once loaded, asks for its buffers without end."""
    script = "import sys; from cdp.cli.main import run; run()"
    limited = (
        f"ulimit -v {kilobytes}; exec '{sys.executable}' -c '{script}' label x --mediator vote --out out"
    )
    done = subprocess.run(
        ["bash", "-c", limited], cwd=tmp_path, capture_output=True, text=True, timeout=30, check=False
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("Error: The address space is limited to ")
    assert done.stderr.count("\n") == 1
