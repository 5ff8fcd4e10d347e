"""Screening of model output before users see it: web pages and echoes of the prompt."""

from __future__ import annotations

import re
from collections.abc import Iterable

from bos.agent.v1 import AgentExecutionStatus, AgentResult
from bos_composer.outcomes import status_word
from bos_composer.prompts import HEADINGS, ORDINARY_HEADINGS, STATED_HEADINGS, own_words

# Length of an echo: so many characters of the prompt in a row are no coincidence. As much of an
# answer is held back before any of it is shown. White space and letter case do not count.
STRETCH_CHARS = 60
# The error page of a proxy can arrive as the model's text.
_PAGE_STARTS = ("<!doctype html", "<html")
# Complete tags as in the prompt, since an answer may use the word "untrusted".
_TAGS = ("<untrusted>", "</untrusted>")
# Beginning of the prompt's line on an agent's result.
_AGENT = "Agent: "
_STATUSES = tuple(
    f" status: {status_word(AgentResult(status=name))}{end}"
    for name in AgentExecutionStatus.keys()  # noqa: SIM118
    for end in (".", ", ")
)
_MAX_NAME_CHARS = 80
_MARK = re.compile(
    "|".join(
        [
            *_TAGS,
            rf"{_AGENT}[^|\r\n]{{1,{_MAX_NAME_CHARS}}}\|(?:{'|'.join(map(re.escape, _STATUSES))})",
        ]
    )
)
_MAX_MARK_CHARS = len(_AGENT) + _MAX_NAME_CHARS + 1 + max(map(len, _STATUSES))
_MAX_HEADING_MARKS = 6
_MAX_LINE_CHARS = 200
_LINE_ENDS = re.compile(r"[\r\n]+")
_SPACE = re.compile(r"\s+")


class Unfit(Exception):
    """The text must not be shown; the message has the reason for the user."""


class OwnWords:
    """Index of the prompts' texts that detects echoes in replies; immutable, safe to share.

    Args:
        texts: Fixed texts of the prompts.
        headings: Of their sections, without leading marks; not allowed in answers.
        ordinary: Headings of which an answer may contain one, but not two.
    """

    def __init__(
        self, texts: Iterable[str], headings: Iterable[str], ordinary: Iterable[str]
    ) -> None:
        self.headings = frozenset(headings)
        self.ordinary = frozenset(ordinary)
        plain = [_plain(text) for text in texts]
        self.stretches = frozenset(
            text[start : start + STRETCH_CHARS]
            for text in plain
            for start in range(len(text) - STRETCH_CHARS + 1)
        )

    @classmethod
    def of_prompts(cls) -> OwnWords:
        """The index of the composer's own prompts."""
        telling = frozenset(HEADINGS) - ORDINARY_HEADINGS - STATED_HEADINGS
        return cls(own_words(), telling, ORDINARY_HEADINGS)


class Screen:
    """Streaming screen of one reply: takes pieces of any size, returns text that may be shown.

    No part of a tag, heading, agent line or web page is ever returned, at any split into pieces. Of
    a longer echo, only the part after the held-back beginning of the reply can be returned; of two
    ordinary headings, the first one.
    """

    def __init__(self, own: OwnWords) -> None:
        self._own = own
        self._held = ""
        self._begun = False
        # Tails of the text so far, for marks that are split between pieces.
        self._recent = ""
        self._line = ""
        self._plain = ""
        self._ordinary: set[str] = set()

    def add(self, text: str) -> str:
        """Add a piece; returns the text that may be shown now, possibly empty.

        Raises:
            Unfit: the reply is a web page or an echo of the prompt.
        """
        self._held += text
        self._look_for_marks(text)
        self._look_for_stretches(text)
        *lines, line = _LINE_ENDS.split(self._line + text)
        self._look_at_lines(lines)
        self._line = line[:_MAX_LINE_CHARS]
        if not self._begun:
            if len(_plain(self._held)) < STRETCH_CHARS:
                return ""
            self._begin()
        return self._take(len(self._held) - self._doubtful())

    def end(self) -> str:
        """End of the reply; returns the rest of the text.

        Raises:
            Unfit: as for :meth:`add`.
        """
        self._look_at_lines([self._line])
        self._begin()
        return self._take(len(self._held))

    def _begin(self) -> None:
        if not self._begun and self._held.lstrip().lower().startswith(_PAGE_STARTS):
            raise Unfit("The model answered with a web page.")
        self._begun = True

    def _take(self, count: int) -> str:
        shown, self._held = self._held[:count], self._held[count:]
        return shown

    def _look_for_marks(self, text: str) -> None:
        recent = self._recent + text
        if _MARK.search(recent):
            raise _echo()
        self._recent = recent[-_MAX_MARK_CHARS:]

    def _look_for_stretches(self, text: str) -> None:
        plain = _SPACE.sub(" ", self._plain + text.casefold())
        for end in range(STRETCH_CHARS, len(plain) + 1):
            if plain[end - STRETCH_CHARS : end] in self._own.stretches:
                raise _echo()
        self._plain = plain[-(STRETCH_CHARS - 1) :]

    def _look_at_lines(self, lines: list[str]) -> None:
        headings = {heading for line in lines if (heading := _heading(line)) is not None}
        self._ordinary |= headings & self._own.ordinary
        if len(self._ordinary) > 1 or not headings.isdisjoint(self._own.headings):
            raise _echo()

    def _doubtful(self) -> int:
        """Number of characters at the end that may be the beginning of a mark or heading."""
        begun = _heading(self._line)
        headings = self._own.headings | self._own.ordinary
        if begun is not None and any(heading.startswith(begun) for heading in headings):
            return min(len(self._line.lstrip()), len(self._held))
        end = self._held[-_MAX_MARK_CHARS:]
        starts = (place for place in range(len(end)) if _begins_a_mark(end[place:]))
        return len(end) - next(starts, len(end))


def _heading(line: str) -> str | None:
    """The text of a heading of any level; None for other lines."""
    line = line.strip()
    text = line.lstrip("#")
    return text.strip() if 0 < len(line) - len(text) <= _MAX_HEADING_MARKS else None


def _begins_a_mark(text: str) -> bool:
    if text[0] == "<":
        return any(tag.startswith(text) for tag in _TAGS)
    if not text.startswith(_AGENT):
        return _AGENT.startswith(text)
    name, bar, status = text.removeprefix(_AGENT).partition("|")
    if len(name) > _MAX_NAME_CHARS or "\n" in name or "\r" in name:
        return False
    return not bar or any(each.startswith(status) for each in _STATUSES)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _echo() -> Unfit:
    return Unfit("The model repeated its instructions instead of answering.")
