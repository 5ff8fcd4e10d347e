"""Signing in by an OpenID provider: calls of identity, and the place where a browser comes back."""

from __future__ import annotations

import asyncio
import hmac
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qs, urlsplit

from bos.identity.v1 import (
    BeginOpenIdLogInRequest,
    FinishOpenIdLogInRequest,
    GetOpenIdProviderRequest,
    OpenIdServiceStub,
)
from bos_client.calling import ServiceClient
from bos_errors import Unauthenticated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from bos.identity.v1 import (
        BeginOpenIdLogInResponse,
        FinishOpenIdLogInResponse,
        GetOpenIdProviderResponse,
        OpenIdServiceAsyncStub,
    )

_PATH: Final = "/callback"
_MAX_LINE_BYTES: Final = 16 * 1024
_MAX_HEADERS: Final = 100
_REQUEST_WITHIN_S: Final = 10.0
_MAX_AT_ONCE: Final = 16
_DONE: Final = "You can close this page and go back to the terminal."
_NOT_OURS: Final = "This is not what was waited for."


class OpenIdClient(ServiceClient):
    """A client of identity for signing in by an OpenID provider; see :class:`ServiceClient`."""

    async def provider(self) -> GetOpenIdProviderResponse:
        """By which provider people can sign in, if there is one."""
        return await self._unary(self._stub.GetOpenIdProvider, GetOpenIdProviderRequest())

    async def begin(self, redirect_uri: str = "") -> BeginOpenIdLogInResponse:
        """Begin: in a browser that comes back to there, or without it on another device."""
        request = BeginOpenIdLogInRequest(redirect_uri=redirect_uri)
        return await self._unary(self._stub.BeginOpenIdLogIn, request)

    async def finish(
        self, handle: str, came_back: Mapping[str, str], client_name: str = ""
    ) -> FinishOpenIdLogInResponse:
        """Open the session, with what the browser came back with, if one was to."""
        request = FinishOpenIdLogInRequest(
            handle=handle,
            code=came_back.get("code", ""),
            state=came_back.get("state", ""),
            issuer=came_back.get("iss", ""),
            client_name=client_name,
        )
        return await self._unary(self._stub.FinishOpenIdLogIn, request)

    @property
    def _stub(self) -> OpenIdServiceAsyncStub:
        return OpenIdServiceStub(self._channel)


class Callback:
    """Loopback address that a browser is redirected to, once.

    Pages of others, which can send a browser here as well, do not know the state: they are answered
    that they are not meant, and change nothing.
    """

    def __init__(self) -> None:
        self.redirect_uri = ""
        self._state = ""
        self._open = 0
        self._came: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    @classmethod
    @asynccontextmanager
    async def listening(cls) -> AsyncIterator[Callback]:
        """Listen on this machine alone, on a port of the system's choice."""
        own = cls()
        server = await asyncio.start_server(own._serve, "127.0.0.1", 0, limit=_MAX_LINE_BYTES)
        try:
            port = server.sockets[0].getsockname()[1]
            own.redirect_uri = f"http://127.0.0.1:{port}{_PATH}"
            yield own
        finally:
            server.close()
            own._came.cancel()

    async def wait(self, authorization_url: str, within_s: float) -> Mapping[str, str]:
        """What the browser comes back with from that address.

        Raises:
            Unauthenticated: It does not come in time, or the provider refused.
        """
        query = parse_qs(urlsplit(authorization_url).query)
        self._state = query.get("state", [""])[0]
        try:
            async with asyncio.timeout(within_s):
                came_back = await self._came
        except TimeoutError:
            raise Unauthenticated("The sign-in timed out; start it again.") from None
        if "code" not in came_back:
            raise Unauthenticated("The sign-in was refused or given up; begin again.")
        return came_back

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= _MAX_AT_ONCE:
                async with asyncio.timeout(_REQUEST_WITHIN_S):
                    await self._answer(reader, writer)
        except (TimeoutError, OSError, ValueError):
            pass  # another visitor; the browser that is waited for may still come
        finally:
            self._open -= 1
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        method, target, _ = (await reader.readline()).decode("ascii").split(" ")
        for _ in range(_MAX_HEADERS):
            if (await reader.readline()).strip() == b"":
                break
        is_ours = method == "GET" and self._take(target)
        status, text = ("200 OK", _DONE) if is_ours else ("400 Bad Request", _NOT_OURS)
        writer.write(
            f"HTTP/1.1 {status}\r\nContent-Type: text/plain; charset=utf-8\r\n"
            f"Content-Length: {len(text)}\r\nCache-Control: no-store\r\n"
            f"Referrer-Policy: no-referrer\r\nConnection: close\r\n\r\n{text}".encode()
        )
        await writer.drain()

    def _take(self, target: str) -> bool:
        """Whether a request is the browser's that is waited for; if so, keep what it brought."""
        parts = urlsplit(target)
        found = {name: values[0] for name, values in parse_qs(parts.query).items()}
        state = found.get("state", "")
        if parts.path != _PATH or not self._state or self._came.done():
            return False
        if not hmac.compare_digest(state.encode(), self._state.encode()):
            return False
        self._came.set_result(found)
        return True
