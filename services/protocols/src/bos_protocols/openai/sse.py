"""Server-sent events: their form, and comments that keep a silent stream open."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

from starlette.responses import StreamingResponse

HEARTBEAT = b": waiting\n\n"


def sse(content: Any, name: str = "") -> bytes:
    """One event."""
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(content, ensure_ascii=False)}\n\n".encode()


def stream(events: AsyncGenerator[bytes, None], heartbeat_s: float) -> StreamingResponse:
    """The events as they come. A client that leaves ends the stream, and not the run."""
    return StreamingResponse(
        with_heartbeat(events, heartbeat_s),
        media_type="text/event-stream",
        headers={"cache-control": "no-store"},
    )


async def with_heartbeat(
    events: AsyncGenerator[bytes, None], heartbeat_s: float
) -> AsyncGenerator[bytes, None]:
    """The events, with a comment whenever none came for ``heartbeat_s`` seconds."""
    async with aclosing(events):
        while True:
            coming = asyncio.ensure_future(anext(events, None))
            try:
                while not (await asyncio.wait([coming], timeout=heartbeat_s))[0]:
                    yield HEARTBEAT
            finally:
                if not coming.done():
                    coming.cancel()
                    with suppress(asyncio.CancelledError):
                        await coming
            event = coming.result()
            if event is None:
                return
            yield event
