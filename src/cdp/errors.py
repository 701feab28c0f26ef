"""What can go wrong, in one sentence each: what was found, where, and the way out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

DISTRIBUTION = "consensus-driven-propagation"
"""What the package is called where packages are installed; `cdp` there is another project."""

NO_WINDOWS = "cdp runs on Linux and macOS; on Windows, install and run it in WSL (wsl --install)."

_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class CdpError(Exception):
    """Base of all errors of `cdp`; the message is one line written for the user.

    Names out of files stand in messages, and a line feed or an escape sequence in one is shown, not obeyed.
    The wording of a message may change; its code stays.

    Args:
        code: which condition this is, in lower case with hyphens, e.g. `views-rows-differ`.
        fields: what the message names, for programs: `file`, `row`, `key`, `value`, ...

    Examples:
        >>> from cdp import CDP, CdpError
        >>> try:
        ...     CDP(k=0).fit([[1.0, 0.0]])
        ... except CdpError as error:
        ...     print(error.code, error.fields["value"])
        setting-out-of-range 0
    """

    exit_code = 1

    def __init__(self, message: str, *, code: str = "", **fields: object) -> None:
        super().__init__(message)
        self.code = code
        self._fields = {name: _as_plain(value) for name, value in fields.items()}

    @property
    def fields(self) -> Mapping[str, Any]:
        """What the message names, by name; read-only."""
        return MappingProxyType(self._fields)

    def details(self, **more: object) -> dict[str, Any]:
        """Return code and fields, for raising this error again with other text; own fields win."""
        return {"code": self.code, **more, **self._fields}

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), *self.args), self.__dict__

    def __str__(self) -> str:
        return _UNPRINTABLE.sub(lambda found: ascii(found[0])[1:-1], super().__str__())


class InputError(CdpError, ValueError):
    """Report a wrong input or setting; the message names the row, file or key.

    Examples:
        >>> from cdp import Embeddings, InputError
        >>> try:
        ...     Embeddings([[1.0, 0.0], [0.0, 0.0]])
        ... except InputError as error:
        ...     print(error.code)
        embeddings-zero-length
    """

    exit_code = 2


class OutputExistsError(InputError):
    """The output folder is already there, and replacing it was not asked for."""


class MissingExtraError(CdpError, ImportError):
    """An optional dependency is not installed; the message names the command that installs it."""

    exit_code = 2


class StoreError(CdpError):
    """A file or folder could not be written or read back as it was written."""


class BusyError(CdpError):
    """Another process works in the same folder."""

    exit_code = 2


class NotFittedError(InputError, AttributeError):
    """A prediction was asked of something that has not learned yet."""


def _rebuild(kind: type[CdpError], message: str = "") -> CdpError:
    """Rebuild an error from a copy or another process with its attributes, without its constructor."""
    error = kind.__new__(kind)
    CdpError.__init__(error, message)
    return error


def _as_plain(value: object) -> object:
    """NumPy's numbers as Python's, also in a tuple, without loading NumPy."""
    if isinstance(value, tuple):
        return tuple(map(_as_plain, value))
    return value.item() if getattr(value, "shape", None) == () and hasattr(value, "item") else value


def install_command(extra: str = "") -> str:
    """Return the command that installs an extra, for messages; a checkout is the only source."""
    package = f"'.[{extra}]'" if extra else "."
    return f"pip install -c constraints.txt {package} in the source folder of {DISTRIBUTION}"


def name_rows(rows: Any, most: int = 5) -> str:
    """`rows 3, 17 and 240 more` for an error message, so that a long list or array of rows stays readable."""
    shown = ", ".join(str(int(row)) for row in rows[:most])
    word = "row" if len(rows) == 1 else "rows"
    more = f" and {len(rows) - most:,} more" if len(rows) > most else ""
    return f"{word} {shown}{more}"


def rows_not_utf8(texts: Sequence[str]) -> list[int]:
    """Rows whose text cannot be written as UTF-8, such as a path with bytes of another encoding."""
    return [row for row, text in enumerate(texts) if not text.isascii() and _has_surrogates(text)]


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= letter <= "\udfff" for letter in text)
