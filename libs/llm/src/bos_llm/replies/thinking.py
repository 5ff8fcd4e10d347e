"""Taking out of a reply what is not meant for its reader: thoughts and the marks of its end.

Thinking models write their thoughts in front of the reply, between tags, unless the server keeps
them apart. Servers with a wrong template also let the tokens through that end a turn.
"""

from __future__ import annotations

import re
from typing import Literal

_THOUGHTS = {
    "<think>": "</think>",
    "<thinking>": "</thinking>",
    "<reasoning>": "</reasoning>",
    "<thought>": "</thought>",
    "<seed:think>": "</seed:think>",
    "[think]": "[/think]",
    "<|channel|>analysis<|message|>": "<|channel|>final<|message|>",
}
_ENDS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|end|>",
    "<|return|>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<|end_of_turn|>",
    "<|end_of_turn_token|>",
    "<|eot|>",
    "<|endofturn|>",
    "<｜end▁of▁sentence｜>",
    "<end_of_turn>",
    "<eos>",
    "</s>",
)
_IGNORE_CASE = re.IGNORECASE | re.ASCII
_CLOSING = {
    opening: re.compile(re.escape(closing), _IGNORE_CASE) for opening, closing in _THOUGHTS.items()
}
_END = re.compile("|".join(map(re.escape, _ENDS)), _IGNORE_CASE)
_OPENING = re.compile("|".join(map(re.escape, _THOUGHTS)), _IGNORE_CASE)
_LONGEST_END = max(map(len, _ENDS))
_LONGEST_OPENING = max(map(len, _THOUGHTS))
_SPACE = re.compile(r"\s*")
# The chat template has written the opening tag into the prompt, so only the closing one is there.
# On a line's end, as all models put it: a reply may speak about the tag.
_LONE_CLOSING = re.compile(
    r"</(?:think|thinking|reasoning|thought|seed:think)>[ \t]*(?:\r?\n|\Z)|\[/think\][ \t]*\n",
    _IGNORE_CASE,
)
_MAX_HELD_CHARS = 1_000


class ThinkFilter:
    """Leaves thoughts and end marks out of a reply that arrives in pieces.

    Blocks such as ``<think>…</think>`` are hidden at the beginning of the reply only, several in a
    row too, and one that never ends hides the rest. Marks such as ``<|im_end|>`` are left out at
    the end only, and so is white space at the beginning. However the text is cut, the same remains
    of it; what is hidden is not kept.

    Args:
        opened: Whether the reply begins within thoughts, the prompt having opened them.
    """

    def __init__(self, *, opened: bool = False) -> None:
        self._state: Literal["start", "thoughts", "text"] = "thoughts" if opened else "start"
        self._opening = "<think>"
        self._rest = ""
        """Held-back text that may begin a tag or a mark."""
        self._marks = ""
        """End marks that are text after all if text follows."""
        self._marks_chars = 0
        self.hidden = False
        """Whether thoughts were left out so far."""

    def feed(self, text: str) -> str:
        """The part of the reply that can be shown once ``text`` has arrived."""
        text, self._rest = self._rest + text, ""
        at = 0
        while self._state != "text":
            step = self._skip_thoughts if self._state == "thoughts" else self._find_start
            found = step(text, at)
            if found is None:
                return ""
            at = found
        return self._without_marks(text, at)

    def end(self) -> str:
        """What was held back and is to be shown, now that nothing follows."""
        rest, self._rest = self._rest, ""
        if self._state == "thoughts" or not rest:
            return ""
        return self._release_marks() + rest

    def _find_start(self, text: str, at: int) -> int | None:
        """Where what the reply begins with ends; None if it is not known yet."""
        space = _SPACE.match(text, at)
        at = space.end() if space else at
        beginning = text[at : at + _LONGEST_OPENING].lower()
        for opening in _THOUGHTS:
            if beginning.startswith(opening):
                self._state, self._opening = "thoughts", opening
                return at + len(opening)
        if any(opening.startswith(beginning) for opening in _THOUGHTS):
            self._rest = text[at:]
            return None
        self._state = "text"
        return at

    def _skip_thoughts(self, text: str, at: int) -> int | None:
        """Where the thoughts end; None if they go on."""
        self.hidden = True
        closing = _CLOSING[self._opening].search(text, at)
        if closing is None:
            self._rest = text[max(at, len(text) + 1 - len(_THOUGHTS[self._opening])) :]
            return None
        self._state = "start"
        return closing.end()

    def _without_marks(self, text: str, at: int) -> str:
        shown: list[str] = []
        while at < len(text):
            if self._marks and (space := _SPACE.match(text, at)) and space[0]:
                self._hold_mark(space[0])
                at = space.end()
                continue
            mark = _END.search(text, at)
            end = mark.start() if mark else _tail(text, at)
            if end > at:
                shown += self._release_marks(), text[at:end]
            if mark is None:
                self._rest = text[end:]
                break
            self._hold_mark(mark[0])
            at = mark.end()
        return "".join(shown)

    def _hold_mark(self, text: str) -> None:
        # A model that does not know its end repeats it until it is stopped.
        self._marks_chars += len(text)
        self._marks += text[: _MAX_HELD_CHARS - len(self._marks)]

    def _release_marks(self) -> str:
        marks = self._marks if self._marks_chars <= _MAX_HELD_CHARS else ""
        self._marks, self._marks_chars = "", 0
        return marks


def shown_text(text: str) -> str:
    """What a :class:`ThinkFilter` shows of a reply."""
    filtered = ThinkFilter()
    return filtered.feed(text) + filtered.end()


def without_thinking(text: str) -> str:
    """A whole reply without thoughts and end marks, also if only the closing tag is there."""
    shown = shown_text(text)
    lone = _LONE_CLOSING.search(shown)
    if lone is None or _OPENING.search(shown, 0, lone.start()):
        return shown
    return shown_text(shown[lone.end() :])


def _tail(text: str, at: int) -> int:
    """Where a mark may have begun that is not whole yet."""
    at = text.find("<", max(at, len(text) - _LONGEST_END + 1))
    while at >= 0:
        beginning = text[at:].lower()
        if any(mark.startswith(beginning) for mark in _ENDS):
            return at
        at = text.find("<", at + 1)
    return len(text)
