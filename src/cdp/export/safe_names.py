"""Names of people and images as names of folders and files, on any file system."""

from __future__ import annotations

import re
import unicodedata

_REFUSED = re.compile(r'[\\/:*?"<>|]')
# Reserved on Windows, whatever the ending.
_DEVICES = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\..*)?", re.IGNORECASE)
# Joiners inside words of several scripts; other invisible characters only mislead.
_JOINERS = "\u200c\u200d"
_MOST_BYTES = 120


def safe_name(text: str, most_bytes: int = _MOST_BYTES) -> str:
    """Return a name that every file system takes, and that cannot lead out of its folder.

    Separators, wildcards and invisible characters become `_`; dots and spaces at the ends go; what is too
    long is cut.
    """
    text = unicodedata.normalize("NFC", text)
    text = "".join(one if one.isprintable() or one in _JOINERS else "_" for one in text)
    text = _REFUSED.sub("_", text)
    text = text.encode("utf-8", "replace")[:most_bytes].decode("utf-8", "ignore").strip(" .")
    # A dash in front would be an option to other commands.
    text = re.sub(r"^-", "_", text)
    return f"{text}_" if _DEVICES.fullmatch(text) else text or "_"


class UniqueNames:
    """Hands out safe names, each once, where capitals do not count; the second one is called `anna (2)`."""

    def __init__(self, *taken: str) -> None:
        self._taken = {one.casefold() for one in taken}

    def take(self, text: str) -> str:
        """Return the safe name of a text, numbered if there is one already."""
        name = wanted = safe_name(text)
        number = 1
        while name.casefold() in self._taken:
            number += 1
            name = f"{wanted} ({number})"
        self._taken.add(name.casefold())
        return name
