"""Ctrl-C and SIGTERM: one sentence, 130 and 143, nothing half-written, from the first moment on."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from typer.testing import CliRunner

from cdp.cli.app import plain_errors
from cdp.cli.main import app
from cdp.cli.signals import prepare_process, resumable, stop_sentence

SIGNALS = [(signal.SIGINT, 130, "Interrupted"), (signal.SIGTERM, 143, "Terminated")]


def start(script, *words, cwd=None):
    return subprocess.Popen(
        [sys.executable, "-c", script, *words],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell starts background jobs with the interrupt ignored; this one must get it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.parametrize("value", ["", "0", "-1", "two", "1e3", "9" * 400])
def test_threads_that_numba_would_end_on_are_refused_first(value, monkeypatch):
    monkeypatch.setenv("NUMBA_NUM_THREADS", value)
    with pytest.raises(SystemExit, match=r"^Error: NUMBA_NUM_THREADS=.*: a number of threads is needed"):
        prepare_process()


@pytest.mark.parametrize(("number", "code", "word"), SIGNALS)
def test_while_commands_are_imported(number, code, word):
    """The import of the commands is replaced by a long wait, so that the signal is sure to come inside it."""
    script = (
        "import sys, time, importlib.abc\n"
        "class Slow(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'cdp.cli.commands':\n"
        "            print('importing', flush=True); time.sleep(60)\n"
        "sys.meta_path.insert(0, Slow())\n"
        "from cdp.cli.main import run\n"
        "run()\n"
    )
    process = start(script)
    assert process.stdout is not None
    assert process.stdout.readline() == "importing\n"
    process.send_signal(number)
    _, said = process.communicate(timeout=30)
    assert (process.returncode, said) == (code, f"{word}; nothing was begun.\n")


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code", "word"), SIGNALS)
def test_while_a_command_works(tmp_path, number, code, word):
    np.save(tmp_path / "large.npy", np.random.default_rng(0).normal(size=(40_000, 64)).astype(np.float32))
    words = ["label", "large.npy", "--mediator", "vote", "--out", "never", "--quiet"]
    process = start("from cdp.cli.main import run; run()", *words, cwd=tmp_path)
    deadline = time.monotonic() + 60
    while not [entry for entry in tmp_path.iterdir() if entry.name.startswith(".never.partial")]:
        assert time.monotonic() < deadline, "the run never started"
        time.sleep(0.02)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (code, f"{word}; no output was changed.\n")
    assert [entry.name for entry in tmp_path.iterdir()] == ["large.npy"]


@pytest.mark.parametrize(("number", "code", "word"), SIGNALS)
def test_a_command_that_can_go_on_says_so(tmp_path, monkeypatch, number, code, word):
    def stop(*_, **__):
        os.kill(os.getpid(), number)
        time.sleep(5)

    before = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("cdp.run.run_recipe.run_recipe", stop)
    np.save(tmp_path / "given.npy", np.eye(3))
    words = ["run", "--embeddings", str(tmp_path / "given.npy"), "--out", str(tmp_path / "run")]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == code
    assert result.stderr.endswith(f"{word}; what is done is kept, type the same command again to go on.\n")
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


@pytest.mark.parametrize(("number", "code", "word"), SIGNALS)
def test_a_library_may_turn_the_interrupt_into_another_error(monkeypatch, number, code, word):
    def load(*_, **__):
        try:
            os.kill(os.getpid(), number)
            time.sleep(5)
        except KeyboardInterrupt:
            raise ImportError("numpy: half of it is loaded") from None

    monkeypatch.setattr("cdp.data.manifests.read_manifest", load)
    result = CliRunner().invoke(app, ["data", "check", "photos"])
    assert (result.exit_code, result.stderr) == (code, f"{word}; no output was changed.\n")


def test_an_import_that_would_swallow_the_interrupt_is_asked_again():
    """Raised in the callback of importlib's module lock, an exception is printed and forgotten."""
    script = (
        "import os, signal, sys, time\n"
        "from cdp.cli.signals import raised_signals\n"
        "with raised_signals():\n"
        "    code = compile('import os, signal; os.kill(os.getpid(), signal.SIGTERM)', '<frozen importlib._bootstrap>', 'exec')\n"
        "    exec(code)\n"
        "    print('not yet', flush=True)\n"
        "    try: time.sleep(30)\n"
        "    except KeyboardInterrupt: print('now')\n"
    )
    process = start(script)
    said, errors = process.communicate(timeout=20)
    assert (said, errors) == ("not yet\nnow\n", "")


def test_ignored_signals_stay_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        with plain_errors():
            os.kill(os.getpid(), signal.SIGINT)
            assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_without_a_signal_other_errors_are_not_explained():
    assert stop_sentence(ValueError("x")) is None

    def interrupted():
        with resumable():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as caught:
        interrupted()
    assert stop_sentence(caught.value) == (
        "Interrupted; what is done is kept, type the same command again to go on.",
        130,
    )


def test_the_commands_are_there_without_being_imported_first():
    code = "import sys, cdp.cli.main; print('cdp.cli.commands' in sys.modules, 'typer' in sys.modules)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said == "False False\n"
    assert app.registered_commands


@pytest.mark.parametrize(("given", "found"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
@pytest.mark.parametrize("module", ["cdp.cli.main", "cdp_lab.cli.lab_main"])
def test_threads_of_openmp_sleep_while_they_wait_unless_somebody_said_otherwise(module, given, found):
    """Spinning threads take the core that another process needs; torch reads this when it is loaded."""
    code = (
        "import atexit, os, sys\n"
        f"from {module} import run\n"
        "atexit.register(lambda: print(os.environ['OMP_WAIT_POLICY'], 'torch' in sys.modules))\n"
        "sys.argv = ['cdp', '--help']\n"
        "run()\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "OMP_WAIT_POLICY"}
    environment |= {} if given is None else {"OMP_WAIT_POLICY": given}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.splitlines()[-1] == f"{found} False"
