"""What a flood is."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from .flood_targets import Target


@dataclass(frozen=True)
class Flood:
    """A flood over any number of connections, without credentials."""

    name: str
    keep: Callable[[Target, int, Callable[[], None]], Awaitable[None]]
    """Keeps so many calls up over one connection until that is closed; says when all were sent."""
    calls: int = 1
    """Under way at once, over all connections; one of each at least."""
    for_open_methods: bool = False
    """Whether it wants methods that need no credential."""
    kind: str = ""
    """Protocol: ``grpc`` or ``http``; empty: for any server."""

    def is_for(self, target: Target) -> bool:
        """Whether it can be let loose on a target."""
        speaks = self.kind in ("", target.kind)
        return speaks and (bool(target.open_methods) or not self.for_open_methods)


@asynccontextmanager
async def opened(
    target: Target, *, bare: bool = False
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection; of TLS, where there is any, only the handshake unless ``bare``."""
    host, _, port = target.address.rpartition(":")
    tls = None if bare else target.tls()
    reader, writer = await asyncio.open_connection(host, int(port), ssl=tls)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()
