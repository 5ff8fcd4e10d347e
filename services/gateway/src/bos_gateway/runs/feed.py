"""Live feed of a run on its owner: committed events and the answer's text.

The text is not in the log: the answer is there with the run's end, and an attempt that breaks off
is void. It is held here while it is being written, and shown once the AnswerStarted of its attempt
is committed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence

from attrs import define, field

from bos.runlog.v1 import LogEvent
from bos_gateway.core.public_events import Cursor, Piece


@define(eq=False)
class RunFeed:
    """A list of events that only grows, a text that only grows until it starts over, and waiters.

    Followers keep a cursor, not a queue: a slow one costs nothing and gets what it missed at once.
    """

    events: list[LogEvent] = field(factory=list)
    """The committed events held here, by sequence."""
    _before: int = field(default=0, kw_only=True)
    """Sequence of the event before these; followers that want earlier ones read the log."""
    _window_s: float = field(default=0.0, kw_only=True)
    """Text is gathered this long before it is shown; the first of it is shown at once."""
    _on_change: Callable[[bool], None] = field(default=lambda text: None, kw_only=True)
    """Called after more was shown here, for those who follow elsewhere; with whether that was
    text."""
    _closed: bool = field(init=False, default=False)
    _error: Exception | None = field(init=False, default=None)
    _changed: asyncio.Event = field(init=False, factory=asyncio.Event)
    _attempt: int = field(init=False, default=0)
    _text: str = field(init=False, default="")
    _started: tuple[int, int] = field(init=False, default=(0, 0))
    """The last AnswerStarted that was shown: attempt and sequence."""
    _gathered: list[str] = field(init=False, factory=list)
    _shown_at: float = field(init=False, default=0.0)
    _timer: asyncio.TimerHandle | None = field(init=False, default=None)

    def __attrs_post_init__(self) -> None:
        """Find the last attempt at the answer in what there is already."""
        self._note_start(self.events, self._before)

    @property
    def last_sequence(self) -> int:
        """Sequence of the last event shown."""
        return self._before + len(self.events)

    @property
    def answer(self) -> tuple[int, int, str]:
        """The text that may be shown: attempt, sequence of its AnswerStarted, and the text.

        The attempt is 0 if there is none.
        """
        attempt, sequence = self._started
        return (attempt, sequence, self._text) if attempt == self._attempt else (0, 0, "")

    def publish(self, events: Sequence[LogEvent]) -> None:
        """Show events that are committed, in order."""
        self._note_start(events, self.last_sequence)
        self.events.extend(events)
        self._show_text()
        self._on_change(False)
        if self._text and any(event.HasField("answer_started") for event in events):
            self._on_change(True)  # it was said before it could be shown

    def say(self, attempt: int, text: str) -> None:
        """Append to the answer's text; a higher attempt starts it over."""
        if self._closed or not text or not self._takes(attempt):
            return
        self._gathered.append(text)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_at(self._shown_at + self._window_s, self._window_over)

    def resume(self, attempt: int, sequence: int, text: str) -> None:
        """The same without a wait, for an attempt whose AnswerStarted stands at ``sequence``."""
        self._started = max(self._started, (attempt, sequence))
        if self._takes(attempt):
            self._gathered.append(text)
            self._show_text()

    def forget(self, sequence: int) -> None:
        """Hold no events up to a sequence any more."""
        if sequence > self._before:
            del self.events[: sequence - self._before]
            self._before = sequence

    def close(self, error: Exception | None = None) -> None:
        """Close the feed: the run ended, or this replica released it."""
        self._closed, self._error = True, error
        if self._timer is not None:
            self._timer.cancel()
        self._show_text()

    async def follow(self, after: Cursor) -> AsyncIterator[tuple[int, LogEvent | Piece]]:
        """Events and text after a cursor, with the sequence of the last event, until the end.

        Ends early where events before the ones held here are wanted.

        Raises:
            Exception: the one that the feed was closed with.
        """
        cursor = after
        while True:
            changed = self._changed
            while (following := self._following(cursor)) is not None:
                cursor = cursor.moved(*following)
                yield following
            if cursor.sequence < self._before:
                return
            if self._error is not None:
                raise self._error
            if self._closed:
                return
            await changed.wait()

    def _following(self, cursor: Cursor) -> tuple[int, LogEvent | Piece] | None:
        """Text and then the next event behind a cursor, if it is in memory."""
        sequence, offset = cursor
        if sequence < self._before:
            return None
        attempt, started_at, text = self.answer
        # Who is ahead of what is here may have seen another attempt by now.
        if attempt and started_at <= sequence <= self.last_sequence and offset < len(text):
            return sequence, Piece(attempt, offset, text[offset:])
        if sequence < self.last_sequence:
            return sequence + 1, self.events[sequence - self._before]
        return None

    def _takes(self, attempt: int) -> bool:
        """Whether text of an attempt counts; a higher attempt starts the text over."""
        if attempt > self._attempt:
            self._attempt, self._text, self._gathered = attempt, "", []
        return attempt == self._attempt

    def _note_start(self, events: Sequence[LogEvent], before: int) -> None:
        for sequence, event in enumerate(events, before + 1):
            if event.HasField("answer_started"):
                self._started = (event.answer_started.attempt, sequence)

    def _window_over(self) -> None:
        self._timer = None
        self._shown_at = asyncio.get_running_loop().time()
        self._show_text()
        self._on_change(True)

    def _show_text(self) -> None:
        if self._gathered:
            self._text += "".join(self._gathered)
            self._gathered = []
        # A new event object per change: a follower that took the old one before cannot miss it.
        self._changed.set()
        self._changed = asyncio.Event()
