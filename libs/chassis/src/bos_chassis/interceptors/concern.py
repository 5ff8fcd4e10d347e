from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import grpc

if TYPE_CHECKING:
    from collections.abc import Iterable

    from opentelemetry.trace import Span


class ServerCall:
    """One call in progress: what the concerns know and tell one another about it."""

    __slots__ = (
        "code",
        "error",
        "metadata",
        "method",
        "received_bytes",
        "sent_bytes",
        "sent_messages",
        "service",
        "span",
        "started",
        "streaming",
        "time_remaining_s",
        "timeout_s",
    )

    def __init__(
        self, path: str, metadata: Iterable[tuple[str, str | bytes]], *, streaming: bool
    ) -> None:
        _, self.service, self.method = path.split("/", 2)
        self.metadata: dict[str, str] = {k: v for k, v in metadata if isinstance(v, str)}
        """Text entries of the client's metadata."""
        self.streaming = streaming
        """Whether either side sends a stream."""
        self.started = time.perf_counter()
        self.time_remaining_s: float | None = None
        """What the client allowed, in seconds; None if it set no deadline."""
        self.timeout_s: float | None = None
        """What the handler gets, in seconds."""
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


class Concern:
    """One thing that has to happen around server calls. Subclasses override what they need.

    Hooks that are not overridden cost nothing: the chain leaves them out.
    """

    async def begin(self, call: ServerCall) -> None:
        """Before the handler; a raised ``BosError`` refuses the call."""

    def request(self, call: ServerCall, message: Any) -> None:
        """For each request message; a raised ``BosError`` refuses the call."""

    def end(self, call: ServerCall) -> None:
        """After the handler, always, even if a ``begin`` failed. Must not raise."""
