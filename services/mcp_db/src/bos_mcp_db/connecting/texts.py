"""Names and comments of a database as text that is safe to print and to write into files."""

from __future__ import annotations

import re
import unicodedata
from typing import Final

MAX_COMMENT_CHARS: Final = 300
MAX_NAME_CHARS: Final = 128
_UNSEEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_WORD = re.compile(r"[^\W_]+")


def one_line(text: str, limit: int = MAX_COMMENT_CHARS) -> str:
    """``text`` on one line, without characters that are not seen, truncated to ``limit``."""
    spaced = " ".join(text.split())
    line = "".join(each for each in spaced if unicodedata.category(each) not in _UNSEEN).strip()
    return line if len(line) <= limit else f"{line[: limit - 1]}…"


def is_plain(name: str) -> bool:
    """Whether ``name`` reads as it is: nothing in it vanishes or breaks a line."""
    return bool(name) and one_line(name, MAX_NAME_CHARS) == name


def words(name: str) -> list[str]:
    """Words of a name, in lower case: ``netAmount`` and ``net_amount`` have the same two."""
    return [each.casefold() for each in _WORD.findall(_CAMEL.sub(" ", name))]
