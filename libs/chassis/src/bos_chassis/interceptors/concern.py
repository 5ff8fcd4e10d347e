from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

import grpc
from opentelemetry.trace import Span

from bos_chassis.auth.callers import AUTHORIZATION_KEY, RUN_TOKEN_KEY, Principal

_CREDENTIALS = frozenset({AUTHORIZATION_KEY, RUN_TOKEN_KEY})


class ServerCall:
    """One call in progress: what the interceptors know of it and share."""

    __slots__ = (
        "admitted",
        "ambiguous",
        "code",
        "error",
        "evicted",
        "limit",
        "metadata",
        "method",
        "network",
        "open",
        "peer",
        "principal",
        "received_bytes",
        "sent_bytes",
        "sent_messages",
        "service",
        "services",
        "span",
        "started",
        "streaming",
        "time_remaining_s",
        "timeout_s",
    )

    def __init__(
        self,
        service: str,
        method: str,
        metadata: Iterable[tuple[str, str | bytes]],
        *,
        streaming: bool,
        is_open: bool,
    ) -> None:
        self.service = service
        self.method = method
        self.metadata: dict[str, str] = {}
        """Text entries of the client's metadata."""
        self.ambiguous = ""
        """Name of a credential that the client sent more than once."""
        for key, value in metadata:
            if isinstance(value, str):
                if key in _CREDENTIALS and key in self.metadata:
                    self.ambiguous = key
                self.metadata[key] = value
        self.streaming = streaming
        """Whether either side sends a stream."""
        self.open = is_open
        """Whether this call needs no credential."""
        self.peer = ""
        """The other end of the connection, as gRPC names it."""
        self.network = ""
        """Where the client is, as places are counted; empty if unknown."""
        self.services: frozenset[str] | None = None
        """Who calls, by certificate; None where no certificates are demanded."""
        self.principal: Principal | None = None
        """Who calls, once that is known."""
        self.admitted = False
        """Whether caller and message were taken."""
        self.started = time.perf_counter()
        self.time_remaining_s: float | None = None
        """What the client allowed, in seconds; None if it set no deadline."""
        self.timeout_s: float | None = None
        """What the handler gets, in seconds."""
        self.limit: asyncio.Timeout | None = None
        """The time limit that runs: first that of caller and message, then that of the handler."""
        self.evicted = False
        """Whether the call has to go because there were too many."""
        self.received_bytes = 0
        self.sent_bytes = 0
        self.sent_messages = 0
        self.span: Span | None = None
        self.code = grpc.StatusCode.OK
        """Outcome; final when ``end`` runs."""
        self.error: BaseException | None = None
        """What the handler raised, if anything."""

    @property
    def duration_s(self) -> float:
        """Seconds since the call arrived."""
        return time.perf_counter() - self.started

    def evict(self) -> None:
        """End the call now, as one of too many."""
        if self.limit is not None and not self.limit.expired():
            self.evicted = True
            self.limit.reschedule(asyncio.get_running_loop().time())


class Concern:
    """An interceptor of server calls. Subclasses override what they need.

    Hooks that are not overridden cost nothing: the chain leaves them out.
    """

    async def begin(self, call: ServerCall) -> None:
        """Called when the headers are there, before any message; a ``BosError`` refuses it."""

    def arrived(self, call: ServerCall, size: int) -> None:
        """For each request of ``size`` bytes, before it is unpacked; a ``BosError`` refuses it."""

    def request(self, call: ServerCall, message: Any) -> None:
        """For each request message; a raised ``BosError`` refuses the call."""

    def end(self, call: ServerCall) -> None:
        """After the handler, always, even if a ``begin`` failed. Must not raise."""

    def close(self) -> None:
        """Once, when the server has ended."""
