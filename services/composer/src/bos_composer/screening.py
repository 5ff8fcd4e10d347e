"""Screening what a model writes before people see it: web pages, and echoes of its own prompt."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from bos_composer.prompts import HEADINGS, own_words

if TYPE_CHECKING:
    from collections.abc import Iterable

    from bos_composer.numbers import NumberFormat

# So much of the prompt's own words in a row is no coincidence, and so much of an answer is held
# back before any of it is shown. White space and letter case do not count.
STRETCH_CHARS = 60
# A proxy's error page can arrive as a model's text.
_PAGE_STARTS = ("<!doctype html", "<html")
_TAG = re.compile(r"<\s{0,9}/?\s{0,9}untrusted", re.IGNORECASE)
_TAGS = ("<untrusted", "</untrusted")
_MAX_TAG_CHARS = len(_TAGS[1]) + 18
_MAX_LINE_CHARS = 200
_LINE_ENDS = re.compile(r"[\r\n]+")
_SPACE = re.compile(r"\s+")


class Unfit(Exception):
    """The text is not to be shown; the message says why, in words for people."""


class OwnWords:
    """The texts of the prompts, to be recognised in replies; made once, safe to share.

    Args:
        texts: What the prompts say by themselves, whatever the question.
        headings: Of their sections, without the marks before them.
    """

    def __init__(self, texts: Iterable[str], headings: Iterable[str]) -> None:
        self.headings = frozenset(f"### {heading}" for heading in headings)
        plain = [_plain(text) for text in texts]
        self.stretches = frozenset(
            text[start : start + STRETCH_CHARS]
            for text in plain
            for start in range(len(text) - STRETCH_CHARS + 1)
        )

    @classmethod
    def of_prompts(cls, numbers: NumberFormat) -> OwnWords:
        """Those of the composer's own prompts."""
        return cls(own_words(numbers), HEADINGS)


class Screen:
    """One reply on its way: takes it in pieces of any size, gives back what may be shown.

    Nothing of a tag, of a heading or of a page is ever given back, wherever the pieces end; of a
    stretch of the prompt's words, only what came after the beginning of the reply.
    """

    def __init__(self, own: OwnWords) -> None:
        self._own = own
        self._held = ""
        self._begun = False
        # The ends of what was read so far: for marks that pieces cut in two.
        self._recent = ""
        self._line = ""
        self._plain = ""

    def add(self, text: str) -> str:
        """The next piece; what may be shown now, maybe nothing.

        Raises:
            Unfit: the reply is a web page or an echo of the prompt.
        """
        self._held += text
        self._look_for_tags(text)
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
        """The reply has ended: the rest of it.

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

    def _look_for_tags(self, text: str) -> None:
        recent = self._recent + text
        if _TAG.search(recent):
            raise _echo()
        self._recent = recent[-_MAX_TAG_CHARS:]

    def _look_for_stretches(self, text: str) -> None:
        plain = _SPACE.sub(" ", self._plain + text.casefold())
        for end in range(STRETCH_CHARS, len(plain) + 1):
            if plain[end - STRETCH_CHARS : end] in self._own.stretches:
                raise _echo()
        self._plain = plain[-(STRETCH_CHARS - 1) :]

    def _look_at_lines(self, lines: list[str]) -> None:
        if any(line.strip() in self._own.headings for line in lines):
            raise _echo()

    def _doubtful(self) -> int:
        """How many characters at the end may yet turn out to begin a tag or a heading."""
        line = self._line.lstrip()
        begun = line.rstrip()
        if begun and any(heading.startswith(begun) for heading in self._own.headings):
            return min(len(line), len(self._held))
        start = self._held.rfind("<", -_MAX_TAG_CHARS)
        opened = "".join(self._held[start:].casefold().split()) if start >= 0 else ""
        return len(self._held) - start if opened and _begins_a_tag(opened) else 0


def _begins_a_tag(text: str) -> bool:
    return any(tag.startswith(text) for tag in _TAGS)


def _plain(text: str) -> str:
    return " ".join(text.casefold().split())


def _echo() -> Unfit:
    return Unfit("The model repeated its instructions instead of answering.")
