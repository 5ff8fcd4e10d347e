"""Names of files in a workspace: one level, visible characters, one spelling. Pure."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

from bos_errors import InvalidArgument

MAX_BYTES: Final = 255
_HIDDEN: Final = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
# Joiners that Indic and Arabic words need inside of them.
_JOINERS: Final = frozenset("\u200c\u200d")
_FORBIDDEN: Final = frozenset('/\\:*?"<>|')
# What Windows takes for a device, with any ending.
_DEVICE: Final = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)(\..*)?", re.IGNORECASE)


def checked_name(given: str, field: str = "name") -> str:
    """``given`` in Unicode's composed form (NFC), if it is a name that a file may have.

    Raises:
        InvalidArgument: names the field and what is wrong with it.
    """
    try:
        name = unicodedata.normalize("NFC", given)
        size = len(name.encode())
    except UnicodeEncodeError:
        raise InvalidArgument.field(field, "must be valid Unicode") from None
    problem = _problem(name, size)
    if problem:
        raise InvalidArgument.field(field, problem)
    return name


def _problem(name: str, size: int) -> str:
    if not name:
        return "must not be empty"
    if size > MAX_BYTES:
        return f"may have {MAX_BYTES} bytes"
    if found := next((c for c in name if c in _FORBIDDEN), ""):
        return f"must hold no {found}, as there are no folders"
    if found := next((c for c in name if _is_hidden(c)), ""):
        return f"must hold visible characters only, and holds U+{ord(found):04X}"
    if name != name.strip() or name[0] == "." or name[-1] == ".":
        return "must not begin or end with a space or a dot"
    if "  " in name or any(unicodedata.category(c) == "Zs" and c != " " for c in name):
        return "must hold single plain spaces only"
    if _DEVICE.fullmatch(name):
        return "is the name of a device on some systems; choose another"
    return ""


def _is_hidden(character: str) -> bool:
    return character not in _JOINERS and unicodedata.category(character) in _HIDDEN


def with_ending(name: str, ending: str) -> str:
    """``name`` with the ending, such as ``.pdf``, if it has not got it."""
    return name if name.lower().endswith(ending) else f"{name}{ending}"


def name_of_url(path: str, fallback: str = "download") -> str:
    """A valid name from the last part of a URL's path, or ``fallback``."""
    last = unicodedata.normalize("NFC", path.rpartition("/")[2])
    kept = "".join(" " if c in _FORBIDDEN or _is_hidden(c) else c for c in last)
    name = " ".join(kept.split()).strip(". ")
    while len(name.encode()) > MAX_BYTES:
        name = name[:-1]
    name = name.strip(". ")
    return name if name and not _problem(name, len(name.encode())) else fallback
