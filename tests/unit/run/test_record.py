"""What a run records of the code it ran."""

import subprocess

from cdp.run import record


def test_the_commit_is_that_of_a_checkout_of_cdp_only(tmp_path, monkeypatch):
    file = tmp_path / "src" / "cdp" / "run" / "record.py"
    file.parent.mkdir(parents=True)
    file.write_text("1\n")
    monkeypatch.setattr(record, "__file__", str(file))
    assert record.commit() is None

    def git(*words):
        name = ["-c", "user.name=x", "-c", "user.email=x@y"]
        done = subprocess.run(
            ["git", "-C", tmp_path, *name, *words], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("init", "-q")
    assert record.commit() is None, "nothing is committed yet"
    git("add", "src")
    git("commit", "-qm", "one")
    head = git("rev-parse", "HEAD")
    assert record.commit() == head[:12]
    file.write_text("2\n")
    assert record.commit() == head[:12] + "+"
    # Installed into an environment inside somebody's own repository: not their commit.
    installed = tmp_path / ".venv" / "lib" / "cdp" / "run" / "record.py"
    monkeypatch.setattr(record, "__file__", str(installed))
    assert record.commit() is None
