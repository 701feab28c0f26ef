"""Errors outside a command's files: standard output is full or closed, or the current folder is gone."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

needs_full = pytest.mark.skipif(not Path("/dev/full").exists(), reason="macOS has no /dev/full")


def run(code, **how):
    script = f"import sys; from cdp.cli.app import *; {code}"
    return subprocess.run(
        [sys.executable, "-c", script], stderr=subprocess.PIPE, text=True, check=False, **how
    )


@needs_full
@pytest.mark.parametrize("words", [["--help"], ["--version"], []])
def test_help_that_cannot_be_written_is_one_sentence(words):
    with open("/dev/full", "w") as full:
        done = run(f"sys.argv = ['cdp', *{words}]; run_app(app)", stdout=full)
    assert (done.returncode, done.stderr) == (
        1,
        "Error: the disk is full; free space and run the same command again. [disk-full]\n",
    )


@needs_full
def test_a_table_that_cannot_be_written_is_one_sentence():
    table = "one = make_app('x'); one.command()(plain_errors()(lambda: print_table('a', ['b'], [['c']])))"
    with open("/dev/full", "w") as full:
        done = run(f"{table}; run_app(one)", stdout=full)
    assert done.returncode == 1
    assert (
        done.stderr.strip()
        == "Error: the disk is full; free space and run the same command again. [disk-full]"
    )


def test_a_table_that_nobody_reads_is_no_failure():
    reader, writer = os.pipe()
    os.close(reader)
    table = "one = make_app('x'); one.command()(plain_errors()(lambda: print_table('a', ['b'], [['c']])))"
    done = run(f"{table}; run_app(one)", stdout=writer)
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_current_folder_that_is_gone_is_one_sentence(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    work = "one = make_app('x'); one.command()(plain_errors()(lambda: os.getcwd()))"
    done = run(
        f"{work}; os.chdir({str(gone)!r}); os.rmdir({str(gone)!r}); run_app(one)", stdout=subprocess.DEVNULL
    )
    assert (done.returncode, done.stderr) == (
        2,
        "Error: The current folder has been removed; change to another one. [folder-removed]\n",
    )


def test_a_full_disk_outside_of_writers_is_one_sentence():
    raising = (
        "raise_it = lambda: (_ for _ in ()).throw(OSError(28, 'No space left on device', 'album/faces'))"
    )
    work = "one = make_app('x'); one.command()(plain_errors()(lambda: raise_it()))"
    done = run(f"{raising}; {work}; run_app(one)", stdout=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (
        1,
        "Error: album/faces: the disk is full; free space and run the same command again. [disk-full]\n",
    )
