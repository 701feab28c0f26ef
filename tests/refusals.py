"""How tests say which refusal they expect: by its code and what it names, not by its wording."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from typing import Any

import pytest

from cdp.errors import CdpError, InputError


@contextmanager
def refuses(
    code: str, /, error: type[CdpError] = InputError, **fields: Any
) -> Iterator[pytest.ExceptionInfo[CdpError]]:
    """Expects an error of this class, with this code and at least these fields; paths are compared as text.

    The error is in what `as` names, as with `pytest.raises`.
    """
    with pytest.raises(error) as caught:
        yield caught
    check_refusal(caught.value, code, **fields)


def check_refusal(found: CdpError, code: str, /, **fields: Any) -> None:
    """The same about an error that was caught already."""
    assert found.code == code, f"{found.code!r} instead of {code!r}: {found}"
    for name, expected in fields.items():
        assert name in found.fields, f"no field {name!r}, only {dict(found.fields)}: {found}"
        value = found.fields[name]
        if isinstance(expected, PathLike) or isinstance(value, PathLike):
            expected, value = str(expected), str(value)
        assert value == expected, f"{name} = {value!r} instead of {expected!r}: {found}"
