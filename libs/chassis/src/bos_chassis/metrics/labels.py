"""Bounded labels: values from outside never make more than a fixed number of time series."""

from __future__ import annotations

import threading
from collections.abc import Iterable

OTHER = "other"
"""Label of values that are not among those allowed."""

_MAX_CHARS = 64
_EXTRA = frozenset("._-:/@+,")


class BoundedLabel:
    """Admits the first values of a label up to a limit; all others count as :data:`OTHER`.

    Args:
        limit: Most values, beside :data:`OTHER`.
        known: Values that are always admitted, such as configured names; they count as well.
        max_chars: Longest value that is admitted.
    """

    def __init__(self, limit: int, known: Iterable[str] = (), max_chars: int = _MAX_CHARS) -> None:
        self._limit = limit
        self._max_chars = max_chars
        self._admitted = set(known)
        # Values are admitted by loops and threads alike.
        self._lock = threading.Lock()

    def value(self, text: str) -> str:
        """Return ``text`` if it is or can be admitted, otherwise :data:`OTHER`."""
        if text in self._admitted:
            return text
        if not _is_plain(text, self._max_chars):
            return OTHER
        with self._lock:
            if len(self._admitted) >= self._limit and text not in self._admitted:
                return OTHER
            self._admitted.add(text)
        return text


def _is_plain(text: str, max_chars: int) -> bool:
    """Whether a value is a name, and no sentence, payload or control character."""
    return len(text) <= max_chars and all(
        char.isascii() and (char.isalnum() or char in _EXTRA) for char in text
    )
