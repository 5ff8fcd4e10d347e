"""Time limits of HTTP connections, for headers and bodies, and a limit of their number.

uvicorn limits neither how long a peer may take to send a request nor how many connections it may
hold. Here every connection that we wait for has a time limit, and when there are too many, the one
idle longest is closed: a client that sends its request never is, and one that asked
before with a good credential only if all are such.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Protocol

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from bos_chassis.client_address import network
from bos_chassis.credentials.tls import callers

if TYPE_CHECKING:
    import asyncio
    from typing import Any


CALLERS = "callers"
"""In the state of a request's scope: the services that its caller's certificate names."""
KNOWN = "known"
"""In that state: what to call once it is known who calls."""
_READ_BYTES = 32 * 1024
"""At once of one connection; asyncio would take 256 KiB of each of many."""


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Time limits and number of connections of peers."""

    header_s: float
    body_s: float
    answer_s: float
    keep_alive_s: float
    total: int
    per_peer: int


class Counted(Protocol):
    """A connection, from its first moment on."""

    def abort(self) -> None:
        """Close it now; nothing is owed to the peer."""


@dataclass(slots=True)
class Connections:
    """The connections of one server: how many of whom, and which we wait for."""

    limits: ConnectionLimits
    trust_domain: str
    """Whose URIs in certificates name services."""
    _peers: dict[Counted, str] = field(default_factory=dict)
    _of_peer: Counter[str] = field(default_factory=Counter)
    _waited_for: dict[Counted, None] = field(default_factory=dict)
    """In the order in which we began to wait."""
    _known: set[Counted] = field(default_factory=set)
    _known_waited_for: dict[Counted, None] = field(default_factory=dict)

    def came(self, connection: Counted, peer: str) -> None:
        """Count a connection, and close others where there are too many."""
        self._peers[connection] = peer
        self._of_peer[peer] += 1
        self._waited_for[connection] = None
        if self._of_peer[peer] > self.limits.per_peer:
            self._make_room(peer)
        elif len(self._peers) > self.limits.total:
            self._make_room(None)

    def went(self, connection: Counted) -> None:
        """Forget a connection."""
        peer = self._peers.pop(connection, None)
        self.serve(connection)
        self._known.discard(connection)
        if peer is not None:
            self._of_peer[peer] -= 1
            if not self._of_peer[peer]:
                del self._of_peer[peer]

    def know(self, connection: Counted) -> None:
        """Its peer has shown a good credential."""
        if connection in self._peers:
            self._known.add(connection)
            if connection in self._waited_for:  # for the rest of its request
                self.serve(connection)
                self.wait_for(connection)

    def wait_for(self, connection: Counted) -> None:
        """The peer has to send something now."""
        if connection in self._known:
            self._known_waited_for[connection] = None
        elif connection in self._peers:
            self._waited_for[connection] = None

    def serve(self, connection: Counted) -> None:
        """The request is there, and we have to answer."""
        self._waited_for.pop(connection, None)
        self._known_waited_for.pop(connection, None)

    def _make_room(self, peer: str | None) -> None:
        for connection in chain(self._waited_for, self._known_waited_for):
            if peer is None or self._peers[connection] == peer:
                self.went(connection)
                connection.abort()
                return
        # All others are being served: the newest one is in the list, so this is not reached.


class Waiting(H11Protocol):
    """A connection with time limits; made by :func:`protocol_of`."""

    shared: Connections
    _timer: asyncio.TimerHandle | None = None
    _waits_for = ""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the headers of the first request."""
        super().connection_made(transport)
        if hasattr(transport, "max_size"):  # uvloop's has none, and reads into one buffer for all
            transport.max_size = _READ_BYTES
        self.app_state = {**self.app_state, KNOWN: self._know}
        shown = transport.get_extra_info("peercert") or {}
        if shown:
            uris = [name for kind, name in shown.get("subjectAltName", ()) if kind == "URI"]
            self.app_state = {**self.app_state, CALLERS: callers(uris, self.shared.trust_domain)}
        self._await("headers")
        self.shared.came(self, network(self.client[0] if self.client else ""))

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._await("")
        self.shared.went(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Read on, and see what there is to wait for then."""
        if not self.transport.is_closing():
            super().data_received(data)
            self._look()

    def on_response_complete(self) -> None:
        """Wait for the next request, or for the rest of one that was answered early."""
        super().on_response_complete()
        self._look()

    def abort(self) -> None:
        """Close it now; nothing is owed to the peer."""
        self._await("")
        self.transport.abort()

    def _know(self) -> None:
        self.shared.know(self)

    def _look(self) -> None:
        if self.transport.is_closing():
            self._await("")
        elif self.conn.their_state is h11.SEND_BODY:
            self._await("body")
        elif self.conn.their_state is h11.IDLE:
            begun = bool(self.conn.trailing_data[0])
            self._await("headers" if begun else "next")
        else:
            # Ours to give; but a peer that does not take it is disconnected after a while.
            self._await("answer")

    def _await(self, what: str) -> None:
        """Set the timer for what has to come now; one that runs for it goes on running."""
        if what == self._waits_for:
            return
        self._waits_for = what
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if what in ("", "answer"):
            self.shared.serve(self)
        else:
            self.shared.wait_for(self)
        limits = self.shared.limits
        seconds = {
            "headers": limits.header_s,
            "body": limits.body_s,
            "answer": limits.answer_s,
            "next": limits.keep_alive_s,
        }
        if what:
            self._timer = self.loop.call_later(seconds[what], self.abort)


def protocol_of(limits: ConnectionLimits, trust_domain: str) -> type[Waiting]:
    """The protocol of one server, with connections of its own."""
    attributes: dict[str, Any] = {"shared": Connections(limits, trust_domain)}
    return type("LimitedConnection", (Waiting,), attributes)
