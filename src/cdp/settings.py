"""Settings: dataclass fields that carry their help, choices and range, and the one place that checks them."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cache
from numbers import Integral, Real
from types import MappingProxyType, NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from cdp.errors import InputError, rows_not_utf8

Slice = TypeVar("Slice")

T = TypeVar("T")

KINDS: Mapping[type, str] = MappingProxyType(
    {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
)
"""The plain words for what a setting may be."""


MOST_IMAGES = 2**31 - 1
"""Image ids are 32-bit integers, so no number of images or neighbors is larger."""


@dataclass(frozen=True)
class Setting:
    """What is known about one field.

    Attributes:
        kind: bool, int, float or str; of one element, when there are many.
        many: whether the value is a list.
        default: what it is when nobody says otherwise.
        meaning: what the value is, in words that can stand before "from 0 to 1".
        choices: what it (or each element) must be one of; empty = anything.
        low, high: the range, ends included; above, below: the same, ends excluded; None = no such end.
        also: a value outside the range that has a meaning of its own.
        none: the word for None in text, such as `auto`; empty = None is not allowed.
        check: raises an InputError if a value has no meaning, where a range does not say it all.
    """

    name: str
    kind: type
    many: bool
    default: Any
    help: str
    meaning: str = ""
    choices: tuple[str, ...] = ()
    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None
    also: float | None = None
    none: str = ""
    check: Callable[[Any], Any] | None = None

    @property
    def wanted(self) -> str:
        """`a whole number`, `a list of text`."""
        return f"a list of {_PLURALS[self.kind]}" if self.many else KINDS[self.kind]

    @property
    def range(self) -> str:
        """Describe the range: `from 0 to 1`, `1 or more`, `above 0`; empty without limits."""
        high = None if self.high == MOST_IMAGES else self.high
        ends = [
            f"above {_number(self.above)}" if self.above is not None else "",
            f"below {_number(self.below)}" if self.below is not None else "",
        ]
        if self.low is not None and high is not None:
            return f"from {_number(self.low)} to {_number(high)}"
        if self.low is not None:
            ends[0] = f"{_number(self.low)} or more"
        if high is not None:
            ends[1] = f"at most {_number(high)}"
        return " and ".join(end for end in ends if end)

    @property
    def limits(self) -> str:
        """The range, and the value outside it: `0 or more, or -1`, `1 or more, or all`."""
        other = self.none or (f"{self.also:g}" if self.also is not None else "")
        return f"{self.range}, or {other}" if self.range and other else self.range or other

    @property
    def facts(self) -> str:
        """Return `1 or more; default: 20`, the end of help texts; empty if there is nothing to say."""
        default = ",".join(map(str, self.default)) if self.many else self.shown(self.default).strip('"')
        if self.kind is bool and not self.many and self.default is not None:
            default = "on" if self.default else "off"
        facts = (self.limits, ", ".join(self.choices), f"default: {default}" if default else "")
        return "; ".join(fact for fact in facts if fact)

    def shown(self, value: Any) -> str:
        """Return the value as a recipe would spell it; None by its word."""
        return self.none if value is None else shown(value)

    def convert(self, value: Any, key: str) -> Any:
        """Convert a value to the setting's type: whole floats to int, lists to tuples, words to None."""
        if self.none and (value is None or value == self.none):
            return None
        if not self.many:
            return self._convert_one(value, key)
        if not isinstance(value, list | tuple):
            raise InputError(
                f"{key} = {shown(value)}: {self.wanted} is needed, not {word_for(value)}.",
                code="setting-type-wrong",
                key=key,
                value=value,
            )
        return tuple(self._convert_one(one, f"{key}[{index}]") for index, one in enumerate(value))

    def _convert_one(self, given: Any, key: str) -> Any:
        value: Any = given
        # NumPy's numbers too; whole ones beyond what a float holds stay as they are, and are refused below.
        if not isinstance(given, bool) and isinstance(given, Real) and self.kind in (int, float):
            if not isinstance(given, Integral):
                value = float(given) if self.kind is float else given
            elif self.kind is int or abs(int(given)) < 2**1000:
                value = self.kind(int(given))
        # Exact types: True is an int to Python, not to a reader of recipes.
        if not _is_exactly(value, self.kind):
            raise InputError(
                f"{key} = {shown(given)}: {KINDS[self.kind]}{self._or_none} is needed, not "
                f"{word_for(value)}.",
                code="setting-type-wrong",
                key=key,
                value=given,
            )
        if self.kind is str and rows_not_utf8([value]):
            raise InputError(
                f"{key} = {shown(given)}: text that is not UTF-8, which no recipe or card can hold; rename "
                "the file.",
                code="setting-not-utf8",
                key=key,
            )
        if self.choices and value not in self.choices:
            raise InputError(
                f"{key} = {shown(given)}: choose one of "
                f"{', '.join(self.choices)}.{did_you_mean(value, self.choices)}",
                code="setting-choice-unknown",
                key=key,
                value=given,
            )
        if self.kind in (int, float) and not self.holds(value):
            raise InputError(
                f"{key} = {shown(given)}: {self._range_sentence(value)}.{self._percent_hint(value)}",
                code="setting-out-of-range",
                key=key,
                value=given,
            )
        if self.check is not None:
            try:
                self.check(value)
            except InputError as error:
                raise InputError(f"{key.rpartition(self.name)[0]}{error}", **error.details(key=key)) from None
        return value

    def holds(self, value: float) -> bool:
        """Return whether a number is in the range, or is the extra value."""
        if self.also is not None and value == self.also:
            return True
        return (
            # A whole number is finite, and may be too large to ask.
            (isinstance(value, int) or math.isfinite(value))
            and (self.low is None or value >= self.low)
            and (self.high is None or value <= self.high)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
        )

    @property
    def _or_none(self) -> str:
        return f" or {self.none}" if self.none else ""

    def _range_sentence(self, value: float) -> str:
        meaning = self.meaning or KINDS[self.kind]
        if self.high == MOST_IMAGES and value > self.high:
            return f"{meaning}, at most {self.high:,}"
        joint = " " if self.range.startswith("from") and "," not in meaning else ", "
        return f"{meaning}{joint}{self.limits}" if self.range else f"{meaning}{self._or_none} that is finite"

    def _percent_hint(self, value: float) -> str:
        is_share = self.kind is float and (self.high or self.below) == 1
        if is_share and 2 <= value <= 100 and self.holds(value / 100):
            return f" Did you mean {value / 100:g}?"
        return ""


def setting(default: T, help: str, **known: Any) -> T:
    """Define a dataclass field with default, help and checks; `known` are fields of `Setting`.

    The field's annotation says the type: bool, int, float, str, a Literal of texts, a tuple of any of them,
    or `… | None` together with `none`, the word for None.
    """
    # The type says T, as the standard library's own `field` does: that is what the attribute will be.
    return dataclasses.field(default=default, metadata={"help": help, **known})


def share(default: T, help: str, **known: Any) -> T:
    """Return the setting of a share: from 0 to 1, unless its ends are given."""
    ends = {"low": None if "above" in known else 0, "high": None if "below" in known else 1}
    return setting(default, help, **{"meaning": "a share", **ends, **known})


def setting_like(owner: type, name: str, default: T) -> T:
    """Return the same setting as in another dataclass, with another default."""
    known = next(field for field in dataclasses.fields(owner) if field.name == name)
    return dataclasses.field(default=default, metadata=known.metadata)


def settings_of(owner: type) -> Mapping[str, Setting]:
    """Return the settings of a dataclass by name, in order; fields made without `setting` are left out."""
    key: Any = owner
    return _read_settings(key)


@cache
def _read_settings(owner: Any) -> Mapping[str, Setting]:
    hints = get_type_hints(owner)
    found: dict[str, Setting] = {}
    for field in dataclasses.fields(owner):
        if "help" in field.metadata and field.default is not MISSING:
            kind, many, literals = _read_annotation(hints[field.name])
            known: dict[str, Any] = {"choices": literals} | dict(field.metadata)
            if bool(known.get("none")) != _is_optional(hints[field.name]):
                raise TypeError(
                    f"{field.name}: a setting that may be None has a word for it, and no other has one"
                )
            if kind is int and not {"high", "below"} & known.keys():
                known["high"] = MOST_IMAGES  # compiled code holds whole numbers in 32 bits
            found[field.name] = Setting(field.name, kind, many, field.default, **known)
    return MappingProxyType(found)


def check_settings(owner: Any, section: str = "") -> None:
    """Check all settings of a frozen dataclass in `__post_init__`, and store the converted values."""
    for name, known in settings_of(type(owner)).items():
        key = f"{section}.{name}" if section else name
        object.__setattr__(owner, name, known.convert(getattr(owner, name), key))


def shown(value: Any, most: int = 60) -> str:
    """Return a value as a recipe would spell it, shortened, for an error message."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        text = f'"{value}"'
    elif isinstance(value, list | tuple):
        text = f"[{', '.join(shown(one) for one in value)}]"
    elif isinstance(value, float):
        text = repr(value).removesuffix(".0")
    else:
        text = f"{value}"
    return text if len(text) <= most else f"{text[: most - 1]}…"


def word_for(value: Any) -> str:
    """Return what a value is, in plain words."""
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, list | tuple):
        return "a list"
    if isinstance(value, bool):
        return "true or false"
    words = {int: "a whole number", float: "a number with a point", str: "text"}
    return words.get(type(value), f"a {type(value).__name__}")


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """` Did you mean x?` when there is a name like it, else nothing."""
    near = difflib.get_close_matches(name, list(known), n=1)
    return f" Did you mean {near[0]}?" if near else ""


def listed(names: Iterable[str], last: str = "and") -> str:
    """Write `a, b and c`."""
    words = list(names)
    return f" {last} ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


_PLURALS = {bool: "true or false", int: "whole numbers", float: "numbers", str: "texts"}


def _number(end: float) -> str:
    return str(end) if isinstance(end, int) else f"{end:g}"


def _is_exactly(value: Any, kind: type) -> bool:
    return type(value) is kind


def _is_optional(hint: Any) -> bool:
    return NoneType in get_args(hint)


def _read_annotation(hint: Any) -> tuple[type, bool, tuple[str, ...]]:
    if _is_optional(hint):
        (hint,) = (one for one in get_args(hint) if one is not NoneType)
    if get_origin(hint) is tuple:
        kind, _, literals = _read_annotation(get_args(hint)[0])
        return kind, True, literals
    if get_origin(hint) is Literal:
        return str, False, get_args(hint)
    if hint not in KINDS:
        raise TypeError(f"a setting is bool, int, float, str or a tuple of these, not {hint}")
    return hint, False, ()


def slice_of(settings: Any, kind: type[Slice]) -> Slice:
    """Only the settings of one class: what a step may depend on, and so its key."""
    names = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: getattr(settings, name) for name in names})


def plain(settings: Any) -> dict[str, Any]:
    """Return settings as JSON holds them: lists for tuples."""
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in asdict(settings).items()
    }
