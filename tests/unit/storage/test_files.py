import errno
import json
import os
import platform
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from tests.refusals import refuses

from cdp.collection.corrections import append_corrections, rejected
from cdp.errors import OutputExistsError, StoreError
from cdp.storage import files
from cdp.storage.files import (
    artifact_kind,
    check_output,
    disk_errors,
    link_tree,
    locked,
    partial_beside,
    put_in_place,
    remove_folder,
    replacing,
    sweep,
    write_bytes,
    write_json,
    write_text,
    writing_folder,
)


def names(folder: Path) -> list[str]:
    return sorted(entry.name for entry in folder.iterdir())


def fail_with(error: BaseException, path: str | Path = "out", kept: str = "all is well") -> None:
    with disk_errors(path, kept):
        raise error


@pytest.fixture
def dead() -> int:
    """The number of a process that has ended."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def left_by(target: Path, process: int, host: str | None = None, ending: str = "") -> Path:
    """The name of what a process left half-written beside a target."""
    own = partial_beside(target).name
    return target.with_name(
        re.sub(r"-[\w.]+-\d+-(\w{8})$", rf"-{host or platform.node()}-{process}-\1", own) + ending
    )


class TestDiskErrors:
    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
    def test_a_full_disk(self, number):
        with refuses("disk-full", StoreError, file="out") as caught:
            fail_with(OSError(number, os.strerror(number)))
        assert str(caught.value) == (
            "out: the disk is full; all is well. Free space and run the same command again."
        )

    def test_a_full_disk_as_numpy_reports_it(self, tmp_path):
        def fill_up():
            with disk_errors(tmp_path / "a.npy"), open("/dev/full", "wb", buffering=0) as stream:
                np.ones(5000).tofile(stream)

        with refuses("disk-full", StoreError, file=tmp_path / "a.npy"):
            fill_up()

    @pytest.mark.parametrize(
        "name",
        ["EACCES", "EPERM", "EROFS", "ENOTDIR", "EEXIST", "ENAMETOOLONG", "EISDIR", "ELOOP", "EIO", "ENOENT"],
    )
    def test_what_cannot_be_written(self, name):
        words = os.strerror(getattr(errno, name))
        with refuses("output-unwritable", StoreError, file="out"):
            fail_with(OSError(getattr(errno, name), words))

    @pytest.mark.parametrize(
        "error",
        [
            ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"),
            OSError("image file is truncated"),
            PermissionError(errno.EACCES, "Permission denied", "/photos/a.jpg"),
            ValueError("something else"),
        ],
    )
    def test_other_errors_pass_unchanged(self, error, tmp_path):
        with pytest.raises(type(error)) as caught:
            fail_with(error, tmp_path / "out")
        assert caught.value is error

    @pytest.mark.parametrize("inside", ["", "out", "out/a/b", ".out.partial-host-1-0a/card.json"])
    def test_files_of_the_path_are_its_own(self, inside, tmp_path):
        error = PermissionError(errno.EACCES, "Permission denied", str(tmp_path / inside))
        with refuses("output-unwritable", StoreError, file=tmp_path / "out"):
            fail_with(error, tmp_path / "out")

    def test_the_outermost_speaks(self, tmp_path):
        def nested():
            with disk_errors("train vgg", "what is done is kept"), replacing(tmp_path / "weights"):
                raise OSError(errno.ENOSPC, "No space left on device")

        with refuses("disk-full", StoreError, file="train vgg"):
            nested()

    def test_unless_it_is_about_something_else(self, tmp_path):
        def nested():
            with disk_errors("train vgg"):
                write_text(tmp_path / "nowhere" / "weights", "")

        with refuses("output-unwritable", StoreError, file=tmp_path / "nowhere/weights"):
            nested()


class TestFiles:
    def test_contents(self, tmp_path):
        write_text(tmp_path / "a", "ü\n")
        write_bytes(tmp_path / "b", b"\x00")
        write_json(tmp_path / "c", {"ü": [1]})
        contents = [(tmp_path / name).read_bytes() for name in "abc"]
        assert contents == ["ü\n".encode(), b"\x00", '{\n  "ü": [\n    1\n  ]\n}\n'.encode()]
        assert names(tmp_path) == ["a", "b", "c"]

    def test_the_mode_is_that_of_any_new_file(self, tmp_path):
        (tmp_path / "plain").touch()
        (tmp_path / "folder").mkdir()
        write_text(tmp_path / "written", "")
        with writing_folder(tmp_path / "filled"):
            pass
        assert (tmp_path / "written").stat().st_mode == (tmp_path / "plain").stat().st_mode
        assert (tmp_path / "filled").stat().st_mode == (tmp_path / "folder").stat().st_mode

    def test_nan_is_refused_and_the_old_file_stays(self, tmp_path):
        write_json(tmp_path / "a.json", 1)
        with pytest.raises(ValueError, match="JSON"):
            write_json(tmp_path / "a.json", float("nan"))
        assert (tmp_path / "a.json").read_text() == "1\n"
        assert names(tmp_path) == ["a.json"]

    def test_a_failure_leaves_the_old_file_and_nothing_else(self, tmp_path):
        write_text(tmp_path / "a.txt", "old")

        def fail():
            with replacing(tmp_path / "a.txt") as partial:
                partial.write_text("half")
                raise RuntimeError("power cut")

        with pytest.raises(RuntimeError, match="power cut"):
            fail()
        assert (tmp_path / "a.txt").read_text() == "old"
        assert names(tmp_path) == ["a.txt"]

    def test_the_ending_is_kept_for_writers_that_go_by_it(self, tmp_path):
        with replacing(tmp_path / "a.npz") as partial:
            np.savez(partial, one=np.ones(3))
        with np.load(tmp_path / "a.npz") as archive:
            assert archive.files == ["one"]
        assert names(tmp_path) == ["a.npz"]

    def test_a_link_stays_and_what_it_leads_to_is_replaced(self, tmp_path):
        (tmp_path / "real").mkdir()
        write_text(tmp_path / "real" / "a", "old")
        (tmp_path / "link").symlink_to(tmp_path / "real" / "a")
        write_text(tmp_path / "link", "new")
        assert (tmp_path / "link").is_symlink()
        assert (tmp_path / "real" / "a").read_text() == "new"
        assert names(tmp_path / "real") == ["a"]

    def test_folders_and_devices_are_refused(self, tmp_path):
        for path in (tmp_path, Path("/dev/null")):
            with refuses("output-not-a-file"):
                write_text(path, "x")
        assert not Path("/dev/null").is_file()

    def test_a_name_that_is_too_long_is_told_plainly(self, tmp_path):
        with refuses(
            "output-unwritable",
            StoreError,
            file=tmp_path / ("a" * 300),
        ):
            write_text(tmp_path / ("a" * 300), "x")
        with (
            refuses("output-unwritable", StoreError, file=tmp_path / ("a" * 300)),
            writing_folder(tmp_path / ("a" * 300)),
        ):
            pass


class TestFolders:
    def test_a_link_is_refused_and_nothing_is_left(self, tmp_path):
        (tmp_path / "real").mkdir()
        (tmp_path / "real" / "precious").write_text("x")
        (tmp_path / "link").symlink_to(tmp_path / "real")
        (tmp_path / "broken").symlink_to(tmp_path / "nowhere")
        for name in ("link", "broken"):
            with (
                refuses("output-is-a-link", file=tmp_path / name),
                writing_folder(tmp_path / name, force=True),
            ):
                pass
        assert names(tmp_path) == ["broken", "link", "real"]
        assert names(tmp_path / "real") == ["precious"]

    def test_a_link_that_appears_meanwhile_is_refused_too(self, tmp_path):
        (tmp_path / "real").mkdir()
        with refuses("output-is-a-link", file=tmp_path / "a"), writing_folder(tmp_path / "a", force=True):
            (tmp_path / "a").symlink_to(tmp_path / "real")
        assert names(tmp_path) == ["a", "real"]

    def test_a_folder_that_appears_at_the_last_moment_is_not_overwritten(self, tmp_path, monkeypatch):
        made = tmp_path / "made"
        made.mkdir()
        (made / "new").touch()
        target = tmp_path / "a"
        target.mkdir()
        (target / "theirs").touch()
        monkeypatch.setattr(Path, "exists", lambda *_: False)
        with refuses("output-appeared", OutputExistsError, file=tmp_path / "a"):
            put_in_place(made, target)
        assert names(target) == ["theirs"]


class TestForce:
    @pytest.fixture
    def here(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        write_json(self.make("labels") / "card.json", {"kind": "Labels"})
        write_text(self.make("photos/anne") / "1.jpg", "precious")
        return tmp_path

    def make(self, name: str) -> Path:
        Path(name).mkdir(parents=True)
        return Path(name)

    def refusal(self, path, **more) -> str:
        with refuses("output-not-replaced", OutputExistsError, file=path) as caught:
            check_output(path, force=True, **more)
        return caught.value.fields["reason"]

    def test_what_may_be_replaced(self, here):
        self.make("empty")
        write_text("file.csv", "")
        for path in ("nothing", "empty", "labels", "file.csv"):
            check_output(path, force=True, kind="Labels", inputs=["photos", None, "", "photos/*.jpg"])
        check_output("labels", force=True)
        with refuses("output-exists", OutputExistsError, file="labels"):
            check_output("labels", kind="Labels")

    def test_the_current_folder_is_not_replaced_under_the_feet(self, here, monkeypatch):
        monkeypatch.chdir("labels")
        for path in (".", "../labels", Path.cwd()):
            assert self.refusal(path) == "the current folder is in it"

    def test_folders_of_other_kinds(self, here):
        assert self.refusal("photos") == "it holds something that cdp did not write"
        assert self.refusal("labels", kind="Views") == "it holds Labels, not Views"
        for content in ("", "[]", "{}", "[" * 10**5, "nonsense"):
            write_text("labels/card.json", content)
            assert self.refusal("labels") == "it holds something that cdp did not write"

    def test_inputs(self, here):
        assert self.refusal("labels", inputs=["photos", "labels"]) == "it is the input labels"
        assert self.refusal("labels", inputs=[here]) == f"it is in the input {here}"
        assert (
            self.refusal("labels", inputs=["labels/a-{0..9}.tar"]) == "the input labels/a-{0..9}.tar is in it"
        )
        write_text("labels/one.csv", "")
        assert self.refusal("labels/one.csv", inputs=["labels"]) == "it is in the input labels"

    def test_links(self, here):
        Path("alias").symlink_to("labels")
        assert self.refusal("labels", inputs=["alias"]) == "it is the input alias"
        assert self.refusal("labels", inputs=["alias/x"]) == "the input alias/x is in it"
        Path("photos/anne/2.jpg").symlink_to(here / "labels" / "2.jpg")
        assert self.refusal("labels", inputs=["photos"]) == "the input photos has a link into it (2.jpg)"
        write_text("one.csv", "")
        os.link("one.csv", "same.csv")
        assert self.refusal("same.csv", inputs=["one.csv"]) == "it is the input one.csv"

    def test_kinds(self, here):
        assert (artifact_kind(Path("labels")), artifact_kind(Path("photos"))) == ("Labels", "")
        for name, kind in (
            ("run.json", "run"),
            ("checkpoint.safetensors", "Network"),
            ("log.jsonl", "Network"),
        ):
            folder = self.make(kind + name)
            (folder / name).touch()
            assert artifact_kind(folder) == kind
        self.make("mine/stages")
        assert artifact_kind(Path("mine")) == ""

    def test_what_appears_meanwhile_is_looked_at_again(self, here):
        with (
            refuses("output-not-replaced", OutputExistsError, file="late"),
            writing_folder("late", force=True, kind="Labels"),
        ):
            write_text(self.make("late") / "theirs", "")
        assert names(here) == ["labels", "late", "photos"]

    def test_a_failed_cleaning_hides_nothing(self, here, monkeypatch):
        """On a disk that becomes read-only the half-written file cannot be removed either."""

        def refuse(path, *_, **__):
            raise OSError(errno.EROFS, "Read-only file system", str(path))

        monkeypatch.setattr(Path, "unlink", refuse)
        monkeypatch.setattr(Path, "replace", refuse)
        with refuses("output-unwritable", StoreError, file="page"):
            write_text("page", "x")


class TestSweep:
    def test_what_a_dead_process_left_goes(self, tmp_path, dead):
        for name in ("a.csv", "b[1]"):
            left_by(tmp_path / name, dead).mkdir()
            left_by(tmp_path / name, dead, ending=".csv").touch()
            write_text(tmp_path / name, "")
        assert names(tmp_path) == ["a.csv", "b[1]"]

    def test_what_was_half_written_within_something_half_written_goes(self, tmp_path, dead):
        left_by(left_by(tmp_path / "a", dead), dead).touch()
        sweep(tmp_path, "a")
        assert names(tmp_path) == []

    def test_what_is_alive_stays(self, tmp_path):
        left = left_by(tmp_path / "a", os.getpid())
        left.mkdir()
        sweep(tmp_path)
        assert left.exists()

    def test_only_the_named_one_is_swept(self, tmp_path, dead):
        one, other = left_by(tmp_path / "a", dead), left_by(tmp_path / "ab", dead)
        one.mkdir()
        other.mkdir()
        sweep(tmp_path, "a")
        assert (one.exists(), other.exists()) == (False, True)
        sweep(tmp_path)
        assert not other.exists()

    def test_what_another_host_writes_stays(self, tmp_path, dead):
        left = left_by(tmp_path / "a", dead, "elsewhere")
        left.mkdir()
        (left / "half").touch()
        sweep(tmp_path)
        assert left.exists()
        old = time.time() - 8 * 24 * 3600
        os.utime(left, (old, old))
        sweep(tmp_path)
        assert left.exists(), "something in it is new"
        os.utime(left / "half", (old, old))
        sweep(tmp_path)
        assert not left.exists()

    def test_a_run_of_another_host_survives_one_of_this_host(self, tmp_path):
        # Another host is one of another name; its process numbers mean nothing here.
        script = (
            "import platform, sys, time; platform.node = lambda: 'node-17.elsewhere'\n"
            "from cdp.storage.files import writing_folder\n"
            "with writing_folder(sys.argv[1]) as folder:\n"
            "    (folder / 'half').write_text('x'); print('ready', flush=True); time.sleep(60)\n"
        )
        process = subprocess.Popen(
            [sys.executable, "-c", script, str(tmp_path / "labels")], stdout=subprocess.PIPE, text=True
        )
        assert process.stdout is not None
        assert process.stdout.readline().strip() == "ready"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        (left,) = tmp_path.iterdir()
        with writing_folder(tmp_path / "labels"):
            pass
        assert names(left) == ["half"]

    def test_what_was_to_be_replaced_comes_back(self, tmp_path, dead):
        old = left_by(tmp_path / "a", dead, ending=".replaced")
        old.mkdir()
        (old / "precious").touch()
        left_by(tmp_path / "a", dead).mkdir()
        with refuses("output-exists", OutputExistsError, file=tmp_path / "a"), writing_folder(tmp_path / "a"):
            pass
        assert names(tmp_path) == ["a"]
        assert names(tmp_path / "a") == ["precious"]

    def test_what_was_replaced_and_cannot_be_removed_is_named(self, tmp_path, monkeypatch):
        """As on NFS, where a folder with a file that another process has open stays."""
        made, target = tmp_path / "made", tmp_path / "a"
        made.mkdir()
        target.mkdir()
        monkeypatch.setattr(files.shutil, "rmtree", lambda *_, **__: None)
        with pytest.warns(
            UserWarning, match=r"\.a\.partial-.*\.replaced: .* could not be removed; remove it\."
        ):
            put_in_place(made, target, force=True)

    def test_a_folder_is_removed_whole_or_not_at_all(self, tmp_path, monkeypatch):
        (tmp_path / "a").mkdir()
        (tmp_path / "a" / "x").touch()
        seen = []
        remove = files.shutil.rmtree
        monkeypatch.setattr(files.shutil, "rmtree", lambda one: (seen.append(names(tmp_path)), remove(one)))
        remove_folder(tmp_path / "a")
        assert "a" not in seen[0]
        assert names(tmp_path) == []


def test_a_file_system_without_locks_is_one_sentence(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr("cdp.storage.files.fcntl.flock", refuse)
    with refuses("locks-missing", StoreError, file=tmp_path), locked(tmp_path):
        pass
    with refuses("locks-missing", StoreError):
        append_corrections(tmp_path, [rejected(1)])


def test_on_a_system_without_such_locks_the_reason_is_said():
    code = "import sys; sys.modules['fcntl'] = None\nimport cdp.storage.files"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "ImportError: cdp runs on Linux and macOS" in done.stderr
    code = "import sys; sys.platform = 'win32'\nfrom cdp.cli.main import run; run()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (
        done.stderr
        == "Error: cdp runs on Linux and macOS; on Windows, install and run it in WSL (wsl --install).\n"
    )
    assert done.returncode == 1


def test_a_tree_is_linked_over_what_a_killed_command_left(tmp_path):
    source, target = tmp_path / "source", tmp_path / "target"
    (source / "inner").mkdir(parents=True)
    for name in ("a", "inner/b"):
        (source / name).write_text(name)
    assert link_tree(source, target)
    (target / "inner" / "b").unlink()
    (target / "inner" / "b").write_text("half")
    assert link_tree(source, target)
    assert (target / "a").samefile(source / "a")
    assert (target / "inner" / "b").read_text() == "inner/b"


@pytest.mark.parametrize(
    "value",
    [{}, [], 5, "x", {"a": [1, 2.5, None, True, "ü\n"], "b": {"c": [[1, 2], [], {}], "1": {}}}, [1, [2]],
     {3: 1, 2.5: (1, 2), True: [{"x": 1e-7, "y": 1e16}], None: []}],
)  # fmt: skip
def test_json_is_written_as_the_json_module_would(tmp_path, value):
    write_json(tmp_path / "a.json", value)
    expected = json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == expected
