"""Writing to disk: whole or not at all, and what goes wrong as one sentence."""

from __future__ import annotations

import errno
import json
import os
import platform
import re
import secrets
import shutil
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from cdp.errors import NO_WINDOWS, BusyError, InputError, OutputExistsError, StoreError, rows_not_utf8

try:
    import fcntl
except ImportError:
    raise ImportError(NO_WINDOWS) from None

_FULL = (errno.ENOSPC, errno.EDQUOT)
# NumPy and safetensors report a full disk without its number.
_FULL_WORDS = re.compile(r"\d+ requested and \d+ written|No space left|Disk quota")
_UNWRITABLE = (
    errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EEXIST,
    errno.ENOTEMPTY, errno.ENAMETOOLONG, errno.ELOOP, errno.EFBIG, errno.EBUSY, errno.EIO, errno.ESTALE,
)  # fmt: skip
_PARTIAL = re.compile(
    r"\.(?P<name>.+)\.partial-(?P<host>[\w.]+)-(?P<process>\d+)-[0-9a-f]{8}(?P<ending>\..*)?", re.DOTALL
)
_REPLACED = ".replaced"
# What a folder without a card holds, if all of some files are there: a run, or a network in training.
_MARKS = (
    ("run", ("run/stages",)),
    ("run", ("run.json",)),
    ("run", ("recipe.toml", "stages")),
    ("Network", ("checkpoint.safetensors",)),
    ("Network", ("log.jsonl",)),
)
LEAST_ROOM = 2**20
"""Bytes that any output needs."""
_ABANDONED_AFTER = 7 * 24 * 3600.0


class _DiskError(StoreError):
    """A disk error as a sentence that an outer `disk_errors` may say again about the whole that it guards."""

    def __init__(
        self, sentence: str, reason: OSError | None = None, *, code: str = "", **fields: object
    ) -> None:
        super().__init__(sentence, code=code, **fields)
        self.reason = reason or OSError(sentence)


@contextmanager
def disk_errors(path: str | Path, kept: str = "nothing was changed there") -> Iterator[None]:
    """Turn a full disk or an unwritable path into a StoreError of one sentence.

    Of nested ones the outermost speaks: the user knows the folder that was asked for, not the files within
    it. An error that names a file elsewhere, such as one that is only read, is not about this path and passes
    unchanged.

    Args:
        kept: what is safe all the same, for the message.

    Raises:
        StoreError: the disk is full, or the path cannot be written.
    """
    try:
        yield
    except (OSError, _DiskError) as error:
        reason = error.reason if isinstance(error, _DiskError) else error
        words = str(reason.strerror or reason)
        if reason.errno in _FULL or _FULL_WORDS.search(words):
            code = "disk-full"
            sentence = f"{path}: the disk is full; {kept}. Free space and run the same command again."
        elif reason.errno in _UNWRITABLE and _concerns(reason, path):
            code = "output-unwritable"
            sentence = f"{path}: cannot be written ({words}); choose another place you may write to."
        else:
            raise
        raise _DiskError(sentence, reason, code=code, file=path) from None


def _concerns(error: OSError, path: str | Path) -> bool:
    """Check whether an error names no file, one within the path, hidden next to it, or a folder above."""
    if not isinstance(error.filename, str | bytes):
        return True
    named, target = Path(os.fsdecode(error.filename)).absolute(), Path(path).absolute()
    is_next_to = any(
        one.parent == target.parent and one.name.startswith(f".{target.name}.")
        for one in (named, *named.parents)
    )
    return is_next_to or named.is_relative_to(target) or target.is_relative_to(named)


@contextmanager
def replacing(file: str | Path, kept: str = "nothing was changed there") -> Iterator[Path]:
    """Provide an empty file next to `file`, which replaces `file` only when all is written.

    It has the ending of `file`, because some writers choose their format by it. Where `file` is a link, the
    link stays and what it leads to is replaced.

    Args:
        kept: what is safe if this fails, for the message.

    Raises:
        StoreError: the disk is full, or the file cannot be written.
    """
    with disk_errors(file, kept):
        target = Path(os.path.realpath(file))
        if target.exists() and not target.is_file():
            raise InputError(
                f"{file} is a folder or a device, not a file; choose another name.",
                code="output-not-a-file",
                file=file,
            )
        sweep(target.parent, target.name)
        partial = partial_beside(target, target.suffix)
        try:
            # Made before the work starts, so an unwritable folder is found out in the first second.
            partial.touch(exist_ok=False)
            yield partial
            _flush(partial)
            partial.replace(target)
            _flush_entries(target.parent)
        finally:
            with suppress(OSError):
                partial.unlink()


def write_bytes(file: str | Path, content: bytes) -> None:
    """Write a file with this content, whole or not at all."""
    with replacing(file) as partial:
        partial.write_bytes(content)


def write_text(file: str | Path, text: str) -> None:
    """Write a UTF-8 file with this text, whole or not at all."""
    write_bytes(file, text.encode("utf-8"))


def write_json(file: str | Path, value: Any) -> None:
    """Write a JSON file with a line per key, whole or not at all; NaN is a bug, not a value."""
    write_text(file, _as_lines(value) + "\n")


_NESTED = {dict, list, tuple}


def _as_lines(value: Any, margin: str = "\n") -> str:
    """Encode as `json.dumps(value, indent=2)` does; lists of numbers at once, ten times as fast."""
    inner = margin + "  "
    if isinstance(value, dict) and value:
        items = [f"{_as_key(key)}: {_as_lines(one, inner)}" for key, one in value.items()]
        return f"{{{inner}{f',{inner}'.join(items)}{margin}}}"
    if isinstance(value, list | tuple) and value:
        if not _NESTED.isdisjoint(map(type, value)):
            text = f",{inner}".join(_as_lines(one, inner) for one in value)
        else:
            text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(f",{inner}", ": "))[
                1:-1
            ]
        return f"[{inner}{text}{margin}]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)


def _as_key(key: Any) -> str:
    """Encode a key: numbers become text."""
    return json.dumps(key if isinstance(key, str) else json.dumps(key), ensure_ascii=False)


@contextmanager
def writing_file(
    path: str | Path, *, force: bool = False, inputs: Iterable[str | Path | None] = ()
) -> Iterator[Path]:
    """Provide a file next to `path` to write into, as `replacing` does; create folders above it.

    Args:
        inputs: what the same command reads, which is never replaced.

    Raises:
        OutputExistsError: there is one already that is not to be replaced.
        StoreError: the disk is full, or the file cannot be written.
    """
    with disk_errors(path):
        check_output(path, force=force, inputs=inputs)
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as partial:
            yield partial


@contextmanager
def writing_folder(
    path: str | Path, *, force: bool = False, kind: str = "", inputs: Iterable[str | Path | None] = ()
) -> Iterator[Path]:
    """Provide a folder next to `path`, which replaces `path` only when all is written.

    Opened before the work starts, so an unwritable disk is found out in the first second. If anything fails,
    what was at `path` is still there and the half-written folder is gone.

    Args:
        force: replace a folder that is there, where `check_output` allows it.
        kind: which artifact it must hold to be replaced.
        inputs: what the same command reads, which is never replaced.

    Raises:
        OutputExistsError: there is one already that is not to be replaced.
        StoreError: the disk is full, or the folder cannot be written.
    """
    with disk_errors(path):
        target, inputs = Path(path).absolute(), tuple(inputs)
        sweep(target.parent, target.name)
        refuse_link(target, path)
        check_output(path, force=force, kind=kind, inputs=inputs)
        if target.exists() and not target.is_dir():
            raise InputError(
                f"{path} is a file, not a folder; choose another name.", code="output-is-a-file", file=path
            )
        folder = partial_beside(target)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir()
            yield folder
            flush_files(folder)
            if force:  # hours may have passed
                check_output(path, force=force, kind=kind, inputs=inputs)
            put_in_place(folder, target, force=force)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder for one process; the lock ends with the process, so a killed command leaves none.

    Raises:
        BusyError: another process works there now.
    """
    with disk_errors(folder):
        handle = (folder / ".lock").open("a")
    with handle:
        try:
            lock_file(handle.fileno(), folder, waits=False)
        except BlockingIOError:
            raise BusyError(
                f"{folder}: another cdp process uses this folder; wait for it, or choose another --out.",
                code="folder-busy",
                folder=folder,
            ) from None
        yield


def lock_file(handle: int, shown: Path, *, waits: bool) -> None:
    """Lock an open file until it is closed.

    Args:
        handle: of the file.
        shown: what messages call the place.
        waits: whether to wait until another process has closed it.

    Raises:
        BlockingIOError: another process has locked it.
        StoreError: the file system has no locks.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if waits else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        raise StoreError(
            f"{shown}: the file system does not support locks ({error.strerror}); choose a folder on a "
            "local disk.",
            code="locks-missing",
            file=shown,
        ) from None


_KEY = "key.txt"


def open_work(folder: Path, key: str) -> bool:
    """Make a folder for work that can be resumed; whether it is new. One of another key is thrown away.

    Args:
        folder: hidden, next to the output that it becomes.
        key: hash of all that the work depends on.
    """
    if (folder / _KEY).is_file() and (folder / _KEY).read_bytes() == key.encode():
        return False
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / _KEY).write_text(key)
    return True


def close_work(folder: Path, *left: Path) -> None:
    """Leave what is output only: the key and other notes about the work go."""
    for file in (folder / _KEY, *left):
        file.unlink(missing_ok=True)


def check_output(
    path: str | Path, *, force: bool = False, kind: str = "", inputs: Iterable[str | Path | None] = ()
) -> None:
    """Refuse an output that is there already, unless `force` may replace it: the one place that decides this.

    A folder is replaced only if it is empty or cdp wrote it, which its card says. Nothing is replaced that is
    an input, holds one, is inside one, or is where a link inside an input leads.

    Args:
        kind: which artifact a folder must hold; empty = any.
        inputs: files, folders or patterns that the same command reads; empty ones count for nothing.

    Raises:
        OutputExistsError: it is there and is not to be replaced; the message says why.
        InputError: nothing can have this name.
        StoreError: nothing can be written there.
    """
    check_writable(path)
    target = Path(path)
    if not target.exists():
        return
    if not force:
        raise OutputExistsError(
            f"{path} already exists; choose another name or replace it with --force.",
            code="output-exists",
            file=path,
        )
    reason = next(filter(None, (_shared_files(target, Path(given)) for given in inputs if given)), "")
    way_out = "choose another name"
    if not reason and target.is_dir() and any(target.iterdir()):
        found, way_out = artifact_kind(target), "choose another name, or remove it yourself"
        if not found:
            reason = "it holds something that cdp did not write"
        elif kind not in ("", found):
            reason = f"it holds {found}, not {kind}"
        elif (target / "run").is_dir():
            reason = "it holds the networks of a run"
    if not reason and target.is_dir() and _holds_current_folder(target):
        reason, way_out = "the current folder is in it", "change to another folder first"
    if reason:
        raise OutputExistsError(
            f"{path} cannot be replaced, even with --force, because {reason}; {way_out}.",
            code="output-not-replaced",
            file=path,
            reason=reason,
        )


def check_writable(path: str | Path, n_bytes: int = LEAST_ROOM, what: str = "its files") -> None:
    """Refuse a place where nothing could be written in the end, before the first expensive step.

    Args:
        path: of the file or folder to write; it need not be there.
        n_bytes: how much will be written at least.
        what: that is, for the message.

    Raises:
        InputError: nothing can have this name.
        StoreError: the folder that it would be in may not be written, or has too little room.
    """
    if rows_not_utf8([os.fspath(path)]):
        raise InputError(
            f"{path}: a path that is not UTF-8, which no table or card can hold; choose another name.",
            code="path-not-utf8",
            file=path,
        )
    with disk_errors(path):
        try:
            os.lstat(path)
            os.stat(path)
        except FileNotFoundError:
            pass
    above = Path(os.path.realpath(path))
    while not above.exists():
        above = above.parent
    if not os.access(above, os.W_OK):
        raise StoreError(
            f"{path}: cannot be written ({os.strerror(errno.EACCES)} in {above}); choose another place you "
            "may write to.",
            code="output-unwritable",
            file=path,
        )
    check_room(above, n_bytes, what)


def check_room(folder: Path, n_bytes: int, what: str, way_out: str = "") -> None:
    """Refuse, before the work starts, what the disk cannot hold."""
    total, _, free = shutil.disk_usage(folder)
    if total and free < n_bytes:  # places that are no disks have none
        raise StoreError(
            f"{folder}: {what} need {n_bytes / 1e9:.3g} GB, {free / 1e9:.3g} GB are free; free space, choose "
            f"another --out{way_out}.",
            code="free-space-too-little",
            folder=folder,
            expected=n_bytes,
            found=free,
        )


def folder_bytes(folder: Path) -> int:
    """Sum the sizes of all files under a path, except hidden folders of the root; a file has its own size."""
    if folder.is_file():
        return folder.stat().st_size
    found = 0
    for place, folders, files in os.walk(folder):
        if Path(place) == folder:
            folders[:] = [name for name in folders if not name.startswith(".")]
        with suppress(OSError):  # another process may remove files meanwhile
            found += sum(os.lstat(os.path.join(place, name)).st_size for name in files)
    return found


def artifact_kind(folder: Path) -> str:
    """Return the artifact kind of a folder, `run` for a run; empty if cdp did not write it."""
    if not folder.exists():  # a command was killed while it replaced it
        target = folder.absolute()
        sweep(target.parent, target.name)
    card = folder / "card.json"
    if card.is_file():
        with suppress(OSError, ValueError, KeyError, TypeError, RecursionError):
            return str(json.loads(card.read_bytes())["kind"])
        return ""
    marked = (kind for kind, names in _MARKS if all((folder / name).exists() for name in names))
    return next(marked, "")


def _holds_current_folder(folder: Path) -> bool:
    return Path.cwd().is_relative_to(os.path.realpath(folder))


def _shared_files(target: Path, given: Path) -> str:
    """Describe how an output and an input have files in common; empty if they have none."""
    output, source = (Path(os.path.realpath(one)) for one in (target, given))
    if output == source or (given.exists() and target.samefile(given)):
        return f"it is the input {given}"
    if source.is_relative_to(output):
        return f"the input {given} is in it"
    if output.is_relative_to(source):
        return f"it is in the input {given}"
    for folder, inner, files in os.walk(source):
        for name in (*inner, *files):
            entry = os.path.join(folder, name)
            if os.path.islink(entry) and Path(os.path.realpath(entry)).is_relative_to(output):
                return f"the input {given} has a link into it ({name})"
    return ""


def put_in_place(folder: Path, target: Path, *, force: bool = False) -> None:
    """Rename a finished folder to its final name; an old one is removed only once the new one is there.

    Raises:
        OutputExistsError: a folder of this name has appeared, and `force` was not given.
    """
    refuse_link(target)
    if not target.exists():
        try:
            folder.rename(target)
        except OSError as error:
            if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                raise
        else:
            _flush_entries(target.parent)
            return
    if not force:
        raise OutputExistsError(
            f"{target} appeared while this was running; nothing was overwritten.",
            code="output-appeared",
            file=target,
        )
    old = partial_beside(target, _REPLACED)
    target.rename(old)
    try:
        folder.rename(target)
    except OSError:
        old.rename(target)
        raise
    _flush_entries(target.parent)
    shutil.rmtree(old, ignore_errors=True)
    if old.exists():
        warnings.warn(f"{old}: the folder that was replaced could not be removed; remove it.", stacklevel=2)


def remove_folder(folder: Path) -> None:
    """Remove a folder; renamed first, so a killed command leaves all of it or nothing under its name."""
    sweep(folder.parent, folder.name)
    old = partial_beside(folder)
    folder.rename(old)
    shutil.rmtree(old)


def refuse_link(folder: Path, shown: str | Path | None = None) -> None:
    """Refuse to replace or clear a folder through a link; the message shows it as the user gave it."""
    if folder.is_symlink():
        raise InputError(
            f"{shown or folder} is a link, and a folder is never replaced through one; give the folder "
            "itself, or remove the link.",
            code="output-is-a-link",
            file=shown or folder,
        )


def partial_beside(target: Path, ending: str = "") -> Path:
    """Return a new hidden name next to a path that says which process on which host writes there."""
    return target.with_name(f".{target.name}.partial-{_host()}-{os.getpid()}-{secrets.token_hex(4)}{ending}")


def sweep(folder: Path, name: str | None = None) -> None:
    """Remove what killed processes left half-written in a folder; what a living one writes stays.

    A process number says something on its own host only, and folders are shared between hosts. So what
    another host left is removed only when nothing in it has changed for a week.

    Args:
        name: of the file or folder whose leftovers are looked for; None = all.
    """
    with suppress(OSError):  # a folder that cannot be tidied may still be one that can be written
        for entry in sorted(os.listdir(folder)):
            found = _PARTIAL.fullmatch(entry)
            if found is None:
                continue
            # What was written whole within something half-written has the name of that.
            if name in (None, found["name"]) or found["name"].startswith(f".{name}.partial-"):
                _sweep_one(folder / entry, found)


def _sweep_one(left: Path, found: re.Match[str]) -> None:
    in_use = _is_alive(int(found["process"])) if found["host"] == _host() else _is_recent(left)
    target = left.with_name(found["name"])
    if in_use:
        return
    if found["ending"] == _REPLACED and not target.exists():
        # Killed between the two renames: what was to be replaced is all there is.
        left.rename(target)
    elif left.is_dir() and not left.is_symlink():
        shutil.rmtree(left, ignore_errors=True)
    else:
        left.unlink(missing_ok=True)


def _host() -> str:
    return re.sub(r"[^\w.]", "_", platform.node(), flags=re.ASCII) or "unknown"


def _is_alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def _is_recent(path: Path) -> bool:
    since = time.time() - _ABANDONED_AFTER
    with suppress(FileNotFoundError):  # its owner has just finished
        return any(one.lstat().st_mtime > since for one in (path, *path.rglob("*")))
    return True


def link_tree(source: Path, target: Path) -> bool:
    """Link a file, or a folder file by file, copied where links are not to be had; whether there was one."""
    if source.is_dir():
        for folder, inner, files in os.walk(source):
            inner[:] = [name for name in inner if not name.startswith(".")]
            into = target / Path(folder).relative_to(source)
            into.mkdir(parents=True, exist_ok=True)
            for name in files:
                if not name.startswith("."):
                    _link_file(Path(folder) / name, into / name)
        return True
    if not source.is_file():
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    _link_file(source, target)
    return True


def _link_file(source: Path, target: Path) -> None:
    if target.exists():  # a command that was killed left it, maybe half-copied
        if target.samefile(source):
            return
        target.unlink()
    try:
        os.link(source, target)
    except OSError:
        # Another disk, or one without links.
        shutil.copy2(source, target)


def flush_files(folder: Path) -> None:
    """Make sure that all files of a folder are on disk."""
    for file in folder.rglob("*"):
        if file.is_file():
            _flush(file)


def _flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _flush_entries(folder: Path) -> None:
    # Not every file system can do this; the file itself is on disk already.
    with suppress(OSError):
        _flush(folder)
