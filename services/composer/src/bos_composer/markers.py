"""Citation numbers of a streamed answer: known ones renumbered, unknown ones dropped. Pure.

A marker is ``[1]``, ``[1, 2]`` or ``[1-3]``, also in doubled brackets. Code and links are not
changed. The result does not depend on how the text is split into pieces.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_ITEM = r"-?\d{1,18}(?:\s*[-–]\s*\d{1,18})?"
_MARKER = re.compile(rf"(\[+)\s*({_ITEM}(?:\s*[,;]\s*{_ITEM})*)\s*(\]+)")
_MARKER_BEGUN = re.compile(r"\[+[\d\s,;–-]*\]*")
_INSIDE = re.compile(r"[\d\s,;–-]*")
_RANGE = re.compile(r"(\d+)\s*[-–]\s*(\d+)")
_LINKS = ("(https://", "(http://")
_INDEXED = re.compile(r"[\w)\]]")
_PLAIN = re.compile(r"[^`\[ \t\n]+")
_SPACE = re.compile(r"[ \t]+")
_TICKS = re.compile(r"`+")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_FENCE_BEGUN = re.compile(r" {0,3}(?:`*|~*)")
_MAX_MARKER_CHARS = 500
_MAX_CODE_CHARS = 1000
"""Inline code is closed within so many characters, on its line; else its backticks are text."""
_MAX_RANGE = 50
_LEFT_OUT = "…"
"""Stands for a dropped marker within brackets, which must not become a marker without it."""


class Markers:
    """Streaming check of the citation markers of one text.

    Args:
        numbers: Number of each source in the text that is returned: ``[n]`` becomes
            ``[numbers[n-1]]``.
        values: Numbers in brackets are values, since nothing is to be cited: unknown ones become
            ``(n)``, so that no content is lost, and indexes such as ``row[7]`` stay.
    """

    def __init__(self, numbers: Sequence[int], *, values: bool = False) -> None:
        self.known = 0
        """Numbers that have a source."""
        self.unknown = 0
        """Numbers without a source, none of which is returned."""
        self._numbers = numbers
        self._values = values
        self._held = ""
        self._last = ""
        self._fence = ""
        self._starts_line = True
        self._skips_space = False
        self._inside = False

    def add(self, text: str) -> str:
        """Add a piece; returns the text that is decided, possibly empty."""
        decided = []
        # In parts, as what is decided is cut off from all that is held.
        for start in range(0, len(text), _MAX_CODE_CHARS):
            self._held += text[start : start + _MAX_CODE_CHARS]
            decided.append(self._decided(final=False))
        return "".join(decided)

    def end(self) -> str:
        """End of the text; returns the rest."""
        return self._decided(final=True)

    def _decided(self, *, final: bool) -> str:
        pieces: list[str] = []
        while self._held:
            piece = self._in_fence(final) if self._fence else self._in_text(final)
            if piece is None:
                break
            pieces.append(piece)
        return "".join(pieces)

    def _in_text(self, final: bool) -> str | None:
        """The next decided piece of text; None if more is needed to decide."""
        held = self._held
        if self._starts_line:
            if not final and len(held) < _MAX_CODE_CHARS and _FENCE_BEGUN.fullmatch(held):
                return None
            if fence := _FENCE.match(held):
                end = held.find("\n") + 1
                if not end and not final and len(held) < _MAX_CODE_CHARS:
                    return None
                rest = held[fence.end() : end or len(held)]
                if "`" not in rest or "~" in fence[1]:
                    self._fence = fence[1]
                    return self._take(end or len(held))
        if held[0] == "\n":
            return self._take(1)
        if held[0] == "`":
            return self._code(final)
        if plain := _PLAIN.match(held):
            return self._take(plain.end())
        return self._marker(final)

    def _in_fence(self, final: bool) -> str | None:
        """The next line of a code block, up to the one that closes it."""
        end = self._held.find("\n") + 1
        if not end and not final and len(self._held) < _MAX_CODE_CHARS:
            return None
        end = end or len(self._held)
        line = self._held[:end].strip()
        if self._starts_line and line and not line.strip(self._fence[0]):
            self._fence = "" if len(line) >= len(self._fence) else self._fence
        return self._take(end)

    def _code(self, final: bool) -> str | None:
        """Inline code as it is; backticks that nothing closes are text."""
        ticks = _TICKS.match(self._held)
        assert ticks is not None
        if not final and ticks.end() == len(self._held) < _MAX_CODE_CHARS:
            return None
        line, newline, _ = self._held[:_MAX_CODE_CHARS].partition("\n")
        closing = re.search(rf"(?<!`){ticks[0]}(?!`)", line[ticks.end() :])
        at_edge = closing is not None and ticks.end() + closing.end() == len(self._held)
        undecided = not newline and len(line) < _MAX_CODE_CHARS and (closing is None or at_edge)
        if undecided and not final:
            return None
        return self._take(ticks.end() + (closing.end() if closing else 0))

    def _marker(self, final: bool) -> str | None:
        """White space and the marker behind it, if there is one."""
        held = self._held
        space = _SPACE.match(held)
        start = space.end() if space else 0
        if start >= _MAX_MARKER_CHARS:
            return self._spaced(_MAX_MARKER_CHARS)
        if held[start : start + 1] not in ("[", ""):
            return self._spaced(start)
        if start == len(held):
            return self._spaced(start) if final else None
        begun = _MARKER_BEGUN.match(held, start)
        assert begun is not None
        if begun.end() - start > _MAX_MARKER_CHARS:
            return self._replaced(start + 1, f"{held[:start]}(")
        if begun.end() == len(held) and not final:
            return None
        marker = _MARKER.match(held, start, begun.end())
        if marker is None:
            return self._take(start + 1)
        after = held[marker.end() :]
        if not final and any(link.startswith(after) for link in _LINKS):
            return None
        if after.startswith(_LINKS):
            return self._take(marker.end())
        return self._cited(held[:start], marker)

    def _cited(self, space: str, marker: re.Match[str]) -> str:
        """A marker with the numbers of its sources; nothing if it has none."""
        opening, items, closing = marker.groups()
        depth = min(len(opening), len(closing))
        before, behind = opening[depth:], closing[depth:]
        space = "" if self._skips_space else space
        cited, unknown = self._sources(items)
        if unknown and self._values:
            indexed = not space and _INDEXED.fullmatch(self._last)
            kept = marker[0] if indexed else f"{before}({items}){behind}"
            return self._replaced(marker.end(), f"{space}{kept}")
        self.known += len(cited)
        self.unknown += unknown
        if cited:
            listed = ", ".join(map(str, dict.fromkeys(cited)))
            kept = f"{before}{'[' * depth}{listed}{']' * depth}{behind}"
            return self._replaced(marker.end(), f"{space}{kept}")
        if before or self._inside:
            return self._replaced(marker.end(), f"{space}{before}{_LEFT_OUT}{behind}")
        starts_line = self._starts_line
        text = self._replaced(marker.end(), behind)
        self._skips_space = self._starts_line = starts_line and not behind
        return text

    def _sources(self, items: str) -> tuple[list[int], int]:
        """Sources of the items of a marker, and how many items have none."""
        cited: list[int] = []
        unknown = 0
        for item in re.split(r"[,;]", items):
            ends = _RANGE.fullmatch(item.strip())
            first, last = (int(ends[1]), int(ends[2])) if ends else (_number(item), _number(item))
            if 1 <= first <= last <= len(self._numbers) and last - first <= _MAX_RANGE:
                cited += [self._numbers[n - 1] for n in range(first, last + 1)]
            else:
                unknown += 1
        return cited, unknown

    def _spaced(self, count: int) -> str:
        if not self._skips_space:
            return self._take(count)
        self._held = self._held[count:]
        return ""

    def _take(self, count: int) -> str:
        return self._replaced(count, self._held[:count])

    def _replaced(self, count: int, text: str) -> str:
        """Remove ``count`` characters from what is held; returns ``text`` in their place."""
        self._held = self._held[count:]
        self._skips_space = False
        if text:
            self._last = text[-1]
            self._starts_line = self._last == "\n"
            _, opening, inside = text.rpartition("[")
            self._inside = bool((opening or self._inside) and _INSIDE.fullmatch(inside))
        return text


def checked(text: str, numbers: Sequence[int], *, values: bool = False) -> tuple[str, int]:
    """A whole text with its markers checked, and how many numbers have no source."""
    markers = Markers(numbers, values=values)
    return markers.add(text) + markers.end(), markers.unknown


def _number(item: str) -> int:
    item = item.strip()
    return int(item) if item.lstrip("-").isdigit() else 0
