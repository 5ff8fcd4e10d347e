"""Whether the first row of a table holds headings."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

_VALUE: Final = re.compile(
    r"\s*(?:[+-]?[\d.,]*\d(?:[eE][+-]?\d+)?|\d{4}-\d\d?-\d\d?.*|\d\d?[./]\d\d?[./]\d{2,4}|true|false)\s*",
    re.IGNORECASE | re.ASCII,
)
_YEAR: Final = re.compile(r"\s*(?:19|20)\d\d\s*", re.ASCII)


def has_headings(rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first row names the columns: no number, date or truth value is in it.

    Years are headings too, as of a table with a column for each, where other cells are words.
    """
    if not rows:
        return False
    first = [cell for cell in rows[0] if cell.strip()]
    words = [cell for cell in first if not _VALUE.fullmatch(cell)]
    return bool(words) and all(cell in words or _YEAR.fullmatch(cell) for cell in first)
