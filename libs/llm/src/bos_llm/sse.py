"""Server-sent events out of the pieces in which they arrive.

The client package has a reader of its own that hands out one event at a time through a chain of
generators. A model's reply usually arrives several events at once, and what arrived together is
worth handing on together.
"""

from __future__ import annotations

_DATA = b"data:"


class EventReader:
    """Turns pieces of a byte stream into the data of the events that they complete.

    Args:
        max_event_bytes: Longest event; a longer one is none of a model's.
    """

    def __init__(self, max_event_bytes: int) -> None:
        self._max_event_bytes = max_event_bytes
        self._rest = b""
        self._data: list[bytes] = []

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of every event that ends in ``piece``, in order.

        Raises:
            ValueError: an event is longer than any real one.
        """
        # Lines may end in CR LF, whose two bytes may arrive apart; a lone CR ends no line that
        # any endpoint sends.
        *lines, self._rest = (self._rest + piece).split(b"\n")
        events: list[bytes] = []
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(_DATA):
                self._data.append(line[len(_DATA) :].removeprefix(b" "))
            elif not line and self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        if len(self._rest) + sum(map(len, self._data)) > self._max_event_bytes:
            raise ValueError("an event without an end")
        return events
