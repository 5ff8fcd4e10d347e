"""Names to addresses, once per connection, and every address checked."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Protocol

from aiohttp.abc import AbstractResolver, ResolveResult

from bos_http.errors import Failure, HttpFailed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bos_http.gate import Gate

_MAX_ADDRESSES = 16


class Resolver(Protocol):
    """Where addresses come from; replaced in tests."""

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """The textual addresses of ``host``, best first.

        Raises:
            OSError: There is none, or the look-up failed.
        """


class SystemResolver:
    """The operating system's resolver, in a thread."""

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        """As :meth:`Resolver.resolve`."""
        loop = asyncio.get_running_loop()
        found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return [str(address[0]) for *_, address in found]


class CheckedResolver(AbstractResolver):
    """Gives the HTTP library only what the gate lets through: those addresses are connected to.

    One forbidden address refuses the whole answer. Names that lead inside and outside at once are
    how rebinding begins; there is no honest use for them.
    """

    def __init__(self, resolver: Resolver, gate: Gate) -> None:
        self._resolver = resolver
        self._gate = gate

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Resolve and check.

        Raises:
            HttpRefused: An address may not be connected to.
            HttpFailed: There is no address.
        """
        try:
            texts = await self._resolver.resolve(host, port)
        except (OSError, UnicodeError):
            raise HttpFailed(Failure.RESOLVE) from None
        addresses = [self._gate.check_address(host, port, text) for text in dict.fromkeys(texts)]
        if not addresses:
            raise HttpFailed(Failure.RESOLVE)
        return [
            ResolveResult(
                hostname=host,
                host=str(address),
                port=port,
                family=socket.AF_INET if address.version == 4 else socket.AF_INET6,
                proto=0,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in addresses[:_MAX_ADDRESSES]
        ]

    async def close(self) -> None:
        """Nothing to close."""
