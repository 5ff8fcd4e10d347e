"""Trace events of a step, buffered until they are streamed to the gateway."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from typing import Any

from google.protobuf import timestamp_pb2

from bos.agent.v1 import TraceBatch
from bos.common.v1 import TraceEvent, TraceEventType, Value
from bos_agentkit.failures import lenient_value

MAX_BATCH = 32
COALESCE_S = 0.02
"""Time to collect events into one message, which costs more than an event itself."""

_MAX_PENDING = 1024
_MAX_MESSAGE_CHARS = 8_192
_MAX_FIELD_BYTES = 8_192
_MAX_FIELDS = 32


class TraceRecorder:
    """Records trace events without blocking or failing the agent.

    The gateway masks credentials, because it trusts no agent with that. So texts that are too long
    are dropped and never truncated: the gateway would not find half a credential. When the reader
    is 1024 events behind, further ones are counted and dropped, except errors.

    Args:
        agent: Canonical name, written on each event.
    """

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._pending: deque[TraceEvent] = deque()
        self._dropped = 0
        self._closed = False
        self._some = asyncio.Event()
        self._enough = asyncio.Event()

    def decision(self, message: str, /, **data: Any) -> None:
        """Record a decision of the agent."""
        self._record(TraceEventType.TRACE_EVENT_TYPE_DECISION, message, data)

    def tool(self, message: str, /, **data: Any) -> None:
        """Record a tool call; the toolbox does it for every call."""
        self._record(TraceEventType.TRACE_EVENT_TYPE_TOOL, message, data)

    def message(self, message: str, /, **data: Any) -> None:
        """Record a message, such as a correction."""
        self._record(TraceEventType.TRACE_EVENT_TYPE_MESSAGE, message, data)

    def result(self, message: str, /, **data: Any) -> None:
        """Record a result, such as the end of the work."""
        self._record(TraceEventType.TRACE_EVENT_TYPE_RESULT, message, data)

    def error(self, message: str, /, **data: Any) -> None:
        """Record an error; the one that ends a step is recorded by the kit."""
        self._record(TraceEventType.TRACE_EVENT_TYPE_ERROR, message, data)

    def close(self) -> None:
        """Stop recording; :meth:`batches` ends after the events that remain."""
        self._closed = True
        self._some.set()
        self._enough.set()

    async def batches(self) -> AsyncIterator[TraceBatch]:
        """Yield events in batches, oldest first, until :meth:`close`; one reader only."""
        while True:
            await self._some.wait()
            await self._wait_for_batch()
            events = [self._pending.popleft() for _ in range(min(MAX_BATCH, len(self._pending)))]
            if not self._pending and self._dropped:
                events.append(self._note_of_dropped())
            if events:
                yield TraceBatch(events=events)
            elif self._closed:
                return
            if not self._closed:
                self._reset()

    async def _wait_for_batch(self) -> None:
        try:
            async with asyncio.timeout(COALESCE_S):
                await self._enough.wait()
        except TimeoutError:
            pass

    def _reset(self) -> None:
        if not self._pending:
            self._some.clear()
        if len(self._pending) < MAX_BATCH:
            self._enough.clear()

    def _note_of_dropped(self) -> TraceEvent:
        count, self._dropped = self._dropped, 0
        return self._event(
            TraceEventType.TRACE_EVENT_TYPE_MESSAGE,
            f"{count} trace events were dropped: they came faster than they could be sent.",
            {"dropped": count},
        )

    def _record(self, kind: TraceEventType, message: str, data: dict[str, Any]) -> None:
        if self._closed:
            return
        if len(self._pending) >= _MAX_PENDING:
            self._dropped += 1
            if kind != TraceEventType.TRACE_EVENT_TYPE_ERROR:
                return
            self._pending.popleft()
        self._pending.append(self._event(kind, message, data))
        self._some.set()
        if len(self._pending) >= MAX_BATCH:
            self._enough.set()

    def _event(self, kind: TraceEventType, message: str, data: dict[str, Any]) -> TraceEvent:
        now = timestamp_pb2.Timestamp()
        now.GetCurrentTime()
        fields = list(data.items())[:_MAX_FIELDS]
        return TraceEvent(
            type=kind,
            agent=self._agent,
            message=_whole(message),
            data={name: self._field(value) for name, value in fields},
            create_time=now,
        )

    @staticmethod
    def _field(data: Any) -> Value:
        value = lenient_value(data)
        size = value.ByteSize()
        return (
            value if size <= _MAX_FIELD_BYTES else Value(string_value=f"({size} bytes, not kept)")
        )


def _whole(message: str) -> str:
    """The message, or its length in place of one that is too long."""
    size = len(message)
    return message if size <= _MAX_MESSAGE_CHARS else f"({size} characters, not kept)"
