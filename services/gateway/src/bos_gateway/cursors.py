"""Where somebody is who follows a run, and a piece of its answer's text. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from bos.runlog.v1 import LogEvent


class Cursor(NamedTuple):
    """How far somebody has followed a run."""

    sequence: int = 0
    """The last event seen."""
    offset: int = 0
    """Characters seen of the text behind the last AnswerStarted up to that event."""

    def moved(self, sequence: int, shown: LogEvent | Piece) -> Cursor:
        """The cursor behind what :meth:`RunFeed.follow` has yielded."""
        if isinstance(shown, Piece):
            return Cursor(sequence, shown.offset + len(shown.text))
        return Cursor(sequence, 0 if shown.HasField("answer_started") else self.offset)


class Piece(NamedTuple):
    """A part of the answer's text."""

    attempt: int
    offset: int
    """Characters of the attempt before it."""
    text: str
