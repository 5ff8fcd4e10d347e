"""Server-sent events out of the pieces in which they arrive.

The client package has a reader of its own that hands out one event at a time through a chain of
generators. A model's reply usually arrives several events at once, and what arrived together is
worth handing on together.
"""

from __future__ import annotations

import json

_DATA = b"data:"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BEGINS_JSON = (b"{", b"[")


class EventReader:
    """Turns pieces of a byte stream into the data of the events that they complete.

    A body that is JSON instead, as from proxies that do not stream, is one event at its end.

    Args:
        max_event_bytes: Longest event; a longer one is none of a model's.
    """

    def __init__(self, max_event_bytes: int) -> None:
        self._max_event_bytes = max_event_bytes
        self._rest = b""
        self._data: list[bytes] = []
        self._begun = False
        self._is_json = False

    def feed(self, piece: bytes) -> list[bytes]:
        """The data of every event that ends in ``piece``, in order.

        Raises:
            ValueError: an event is longer than any real one.
        """
        self._rest += piece
        if not self._begun and not self._begin():
            return []
        events = [] if self._is_json else self._events()
        if len(self._rest) + sum(map(len, self._data)) > self._max_event_bytes:
            raise ValueError("an event without an end")
        return events

    def end(self) -> list[bytes]:
        """The data of the last event if the stream ends without the blank line after it.

        What breaks off in the middle of its line is none.
        """
        line, self._rest = self._rest.strip(), b""
        data, self._data = self._data, []
        if self._is_json:
            return [line] if line else []
        if line.startswith(_DATA) and _is_whole(line[len(_DATA) :]):
            data.append(line[len(_DATA) :].removeprefix(b" "))
        return [b"\n".join(data)] if data else []

    def _begin(self) -> bool:
        """Whether it is known now whether the stream has events or is JSON."""
        if _BYTE_ORDER_MARK.startswith(self._rest):
            return False
        beginning = self._rest.removeprefix(_BYTE_ORDER_MARK).lstrip()
        if not beginning:
            return False
        self._begun = True
        self._rest = beginning
        self._is_json = beginning.startswith(_BEGINS_JSON)
        return True

    def _events(self) -> list[bytes]:
        # Lines may end in CR LF, whose two bytes may arrive apart; a lone CR ends no line that
        # any endpoint sends.
        *lines, self._rest = self._rest.split(b"\n")
        events: list[bytes] = []
        for line in lines:
            line = line.removesuffix(b"\r")
            if line.startswith(_DATA):
                self._data.append(line[len(_DATA) :].removeprefix(b" "))
            elif not line and self._data:
                events.append(b"\n".join(self._data))
                self._data = []
        return events


def _is_whole(data: bytes) -> bool:
    """Whether a line without its end is JSON all the same."""
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True
