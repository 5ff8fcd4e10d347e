"""Time limit and number of TLS handshakes, counted from a connection's first moment.

The library counts a connection, and times it, only once its handshake is over: a client that opens
sockets and says nothing would hold as many as there are.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from bos_chassis.client_address import network

if TYPE_CHECKING:
    import ssl

    from bos_webserver.connections import Connections, Waiting

_MOST_EARLY = 256 * 1024
"""More than the library decrypts before it lets others have their turn."""


class Handshake(asyncio.Protocol):
    """A connection until its handshake is over; then it is the protocol's that it was made for.

    For asyncio's own event loop: that of uvloop reads before it is asked to, so now and then the
    peer's hello would be lost.

    Args:
        then: Takes the connection.
        context: Of the server.
        shared: Counts the connection until then.
    """

    def __init__(self, then: Waiting, context: ssl.SSLContext, shared: Connections) -> None:
        self._then = then
        self._context = context
        self._shared = shared
        self._early = bytearray()
        self._transport: asyncio.Transport | None = None
        self._task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection, and begin."""
        if self._task is not None:
            return
        self._transport = transport = cast("asyncio.Transport", transport)
        # Until the handshake reads: what comes before belongs to it.
        transport.pause_reading()
        peer = transport.get_extra_info("peername")
        self._task = asyncio.create_task(self._shake(transport), name="TLS handshake")
        self._shared.came(self, network(peer[0]) if isinstance(peer, tuple) else "")

    def data_received(self, data: bytes) -> None:
        """Keep what came with the end of the handshake."""
        self._early += data
        if len(self._early) > _MOST_EARLY:
            self.abort()

    def abort(self) -> None:
        """Close it now; nothing is owed to the peer."""
        if self._task is not None:
            self._task.cancel()
        if self._transport is not None:
            self._transport.abort()

    async def _shake(self, transport: asyncio.Transport) -> None:
        seconds = self._shared.limits.header_s
        try:
            # The library's own limit says nothing where the peer was gone before it began.
            async with asyncio.timeout(2 * seconds):
                secure = await asyncio.get_running_loop().start_tls(
                    transport,
                    self,
                    self._context,
                    server_side=True,
                    ssl_handshake_timeout=seconds,
                )
        except OSError:  # also one that is no TLS, and one that takes too long
            transport.abort()
            return
        finally:
            self._shared.went(self)
        if secure is None or secure.is_closing():
            return
        secure.set_protocol(self._then)
        self._then.connection_made(secure)
        if self._early:
            self._then.data_received(bytes(self._early))


def after_handshake(protocol: type[Waiting], context: ssl.SSLContext) -> Any:
    """Make connections of ``protocol`` that begin with a handshake; in the place of its class."""

    def make(**how: Any) -> Handshake:
        return Handshake(protocol(**how), context, protocol.shared)

    return make
