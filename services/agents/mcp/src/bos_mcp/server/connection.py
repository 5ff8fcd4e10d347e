"""Connection with one MCP server: kept by a background task, which lists the tools and reconnects.

::

    connect -> list tools -> ready -> (announced change | refresh_s) -> list tools -> …
       ^                        '-> broken: unavailable with a reason -> back-off -.
       '---------------------------------------------------------------------------'
"""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import anyio
from mcp import MCPError
from mcp.client.client import Client
from mcp.client.subscriptions import ListenNotSupportedError, SubscriptionLost
from mcp.types import (
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    Implementation,
    InputRequiredResult,
    PaginatedRequestParams,
    ToolListChangedNotification,
)
from pydantic import TypeAdapter, ValidationError

from bos_agentkit.foreign import CallFailed
from bos_errors import BosError, Unavailable
from bos_http import HttpRefused
from bos_http.endpoints import Exchange
from bos_mcp.server.catalogue import Catalogue, catalogue_of
from bos_mcp.server.http import EXCHANGE, http_streams
from bos_mcp.server.stdio import stdio_streams
from bos_mcp.server.tolerant import tolerant_streams

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from mcp.types import Tool
    from structlog.typing import FilteringBoundLogger

    from bos_chassis.telemetry import Telemetry
    from bos_mcp.settings import McpServer, McpSettings

_RESULT: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(
    CallToolResult | InputRequiredResult
)
_CLIENT = Implementation(name="bos", version="0.1.0")
_FIRST_WAIT_S = 10.0
_FIRST_BACKOFF_S = 0.2
# The back-off of a server that ends sooner grows, as that of one that does not start.
_STEADY_S = 10.0
_QUIET_S = 0.2
_MAX_PAGES = 20
_MAX_LISTED = 1_000
_AWAY = "MCP_UNAVAILABLE"
# After these errors the server has not begun to work on the call.
_REFUSALS = frozenset({METHOD_NOT_FOUND, INVALID_PARAMS})
_CLOSED = (anyio.ClosedResourceError, anyio.BrokenResourceError)
_NO_CREDENTIALS = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})


class Connection:
    """The server as steps see it: its tools, and calls of them.

    Args:
        name: Name of the specialist.
        server: Settings of the server.
        settings: Of the agent.
        telemetry: Of the agent.
        on_change: Called with each new listing.
    """

    def __init__(
        self,
        name: str,
        server: McpServer,
        settings: McpSettings,
        telemetry: Telemetry,
        on_change: Callable[[Catalogue], None],
    ) -> None:
        self._name = name
        self._server = server
        self._settings = settings
        self._telemetry = telemetry
        self._log: FilteringBoundLogger = telemetry.logger("bos.mcp")
        self._on_change = on_change
        self._session: Client | None = None
        self._changed = asyncio.Event()
        self.catalogue = Catalogue()
        """The latest listing; kept while the server is away."""
        self.problem = f"The MCP server {server.where} has not answered yet."
        """Why the server cannot be used now; empty while it can."""

    def require_ready(self) -> None:
        """Refuse while the server is away.

        Raises:
            Unavailable: says why.
        """
        if self.problem:
            raise Unavailable(self.problem, reason=_AWAY)

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Keep the connection until the context exits, from the first attempt on."""
        first = asyncio.Event()
        keeping = asyncio.create_task(self._keep(first), name=f"mcp server {self._name}")
        try:
            # A server that is away must not keep the agent from starting.
            with suppress(TimeoutError):
                async with asyncio.timeout(_FIRST_WAIT_S):
                    await first.wait()
            yield
        finally:
            keeping.cancel()
            with suppress(asyncio.CancelledError):
                await keeping

    async def call(
        self, tool: str, arguments: Mapping[str, Any], *, timeout_s: float
    ) -> CallToolResult:
        """Call a tool by the server's name for it.

        Raises:
            CallFailed: there is no result.
        """
        session = self._session
        if session is None:
            raise CallFailed(self.problem, reached=False, retryable=True)
        exchange = Exchange()
        token = EXCHANGE.set(exchange)
        try:
            async with asyncio.timeout(timeout_s):
                result = await session.session.send_request(
                    CallToolRequest(
                        params=CallToolRequestParams(name=tool, arguments=dict(arguments))
                    ),
                    _RESULT,
                )
        except TimeoutError:
            raise CallFailed(
                f"The MCP server {self._server.where} did not answer in time.",
                reached=True,
                retryable=True,
            ) from None
        except MCPError as error:
            # Whether the session is still good shows when the tools are listed next.
            self._changed.set()
            raise self._failed(error, exchange) from error
        except _CLOSED as error:
            self._changed.set()
            raise CallFailed(
                f"The MCP server {self._server.where} went away during the call.",
                reached=True,
                retryable=True,
            ) from error
        except ValidationError as error:
            raise CallFailed(
                f"The result of the MCP server {self._server.where} is not valid MCP.",
                reached=True,
                retryable=False,
            ) from error
        finally:
            EXCHANGE.reset(token)
        if isinstance(result, InputRequiredResult):
            raise CallFailed(
                "The tool asks for more input in the middle of the call, which is declined.",
                reached=False,
                retryable=False,
            )
        return result

    async def listed_now(self, *, timeout_s: float) -> Catalogue:
        """The tools as the server lists them at this moment.

        Raises:
            CallFailed: they cannot be listed.
        """
        session = self._session
        if session is None:
            raise CallFailed(self.problem, reached=False, retryable=True)
        try:
            async with asyncio.timeout(timeout_s):
                await self._list(session)
        except (TimeoutError, MCPError, ValidationError, BosError, *_CLOSED) as error:
            self._changed.set()
            raise CallFailed(
                f"The MCP server {self._server.where} does not list its tools.",
                reached=False,
                retryable=True,
            ) from error
        return self.catalogue

    def _failed(self, error: MCPError, exchange: Exchange) -> CallFailed:
        """Failure by what the guarded client saw; words of the server are not used."""
        where = self._server.where
        if exchange.error is not None:
            return CallFailed(
                f"The MCP server {where} cannot be called. {exchange.error.message}",
                reached=not exchange.is_unsent,
                retryable=not isinstance(exchange.error, HttpRefused),
            )
        if exchange.status in _NO_CREDENTIALS:
            return CallFailed(_no_credentials(where), reached=False, retryable=False)
        is_gone = exchange.status == HTTPStatus.NOT_FOUND
        if 300 <= exchange.status < 500 or error.error.code in _REFUSALS:
            return CallFailed(
                f"The MCP server {where} refused the call.", reached=False, retryable=is_gone
            )
        return CallFailed(
            f"The MCP server {where} failed or went away during the call.",
            reached=True,
            retryable=True,
        )

    async def _keep(self, first: asyncio.Event) -> None:
        """Connect until shutdown; each failure lengthens the wait."""
        backoff_s = _FIRST_BACKOFF_S
        while True:
            exchange = Exchange()
            EXCHANGE.set(exchange)
            ready_at: float | None = None
            try:
                async with (
                    asyncio.timeout(self._server.connect_timeout_s) as limit,
                    self._client() as client,
                ):
                    await self._list(client)
                    limit.reschedule(None)
                    ready_at = time.monotonic()
                    self._ready(client)
                    first.set()
                    await self._watch(client)
            except Exception as error:  # of code of others: any failure ends this connection
                self._lose(_reason(self._server.where, error, exchange))
            first.set()
            if ready_at is not None and time.monotonic() - ready_at > _STEADY_S:
                backoff_s = _FIRST_BACKOFF_S
            await asyncio.sleep(backoff_s * random.uniform(0.5, 1.0))  # noqa: S311
            backoff_s = min(2 * backoff_s, self._settings.max_backoff_s)

    def _client(self) -> Client:
        return Client(
            self._transport(),
            client_info=_CLIENT,
            read_timeout_seconds=self._server.call_timeout_s,
            message_handler=self._take,
            cache=None,
        )

    def _transport(self) -> AbstractAsyncContextManager[Any]:
        if self._server.url:
            streams = http_streams(self._server, self._settings.http, self._telemetry)
        else:
            streams = stdio_streams(self._server, self._ended)
        return tolerant_streams(streams, self._log)

    def _ended(self) -> None:
        """Note at once that the program says no more; the connection is ended by the next look."""
        self._session = None
        self.problem = f"The MCP server {self._server.where} has ended."
        self._changed.set()

    async def _watch(self, client: Client) -> None:
        """List the tools from time to time, and at once where something happened."""
        listening = asyncio.create_task(self._listen(client), name=f"mcp changes {self._name}")
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(self._settings.refresh_s):
                        await self._changed.wait()
                # Announcements that come in a flood are one change.
                await asyncio.sleep(_QUIET_S)
                self._changed.clear()
                async with asyncio.timeout(self._server.connect_timeout_s):
                    await self._list(client)
        finally:
            self._session = None
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def _listen(self, client: Client) -> None:
        """Note announced changes; servers of older revisions announce them unasked."""
        EXCHANGE.set(Exchange())
        while True:
            try:
                async with client.listen(tools_list_changed=True) as changes:
                    async for _ in changes:
                        self._changed.set()
            except ListenNotSupportedError:
                return
            except (SubscriptionLost, MCPError, TimeoutError):
                # Where the server is gone, listing its tools shows it.
                self._changed.set()
            await asyncio.sleep(self._settings.refresh_s)

    async def _take(self, message: object) -> None:
        """What the server says by itself; requests to sample or to ask people are declined."""
        if isinstance(message, ToolListChangedNotification):
            self._changed.set()

    async def _list(self, client: Client) -> None:
        listed: list[Tool] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            page = await client.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
            listed += page.tools
            cursor = page.next_cursor
            if not cursor or len(listed) > _MAX_LISTED:
                break
        found = catalogue_of(listed[:_MAX_LISTED], self._server)
        if found != self.catalogue:
            self.catalogue = found
            self._on_change(found)
            if found.left_out:
                self._log.warning(
                    "tools of the server are not offered",
                    agent=self._name,
                    count=len(found.left_out),
                    reasons=sorted(set(found.left_out.values())),
                )

    def _ready(self, client: Client) -> None:
        self._session = client
        self.problem = ""
        self._log.info("mcp server connected", agent=self._name, tools=len(self.catalogue.tools))

    def _lose(self, reason: str) -> None:
        if self.problem != reason:
            self._log.warning("mcp server is away", agent=self._name, reason=reason)
        self.problem = reason


def _reason(where: str, error: Exception, exchange: Exchange) -> str:
    """Why there is no connection, for users; without words of the server."""
    if isinstance(error, BosError):
        return error.message
    if exchange.error is not None:
        return f"The MCP server {where} cannot be called. {exchange.error.message}"
    if exchange.status in _NO_CREDENTIALS:
        return _no_credentials(where)
    if isinstance(error, TimeoutError):
        return f"The MCP server {where} does not answer in time."
    return f"The MCP server {where} is away, or its answers are not valid MCP."


def _no_credentials(where: str) -> str:
    return (
        f"The MCP server {where} does not accept the credentials; correct token, token_file or "
        "headers in BOS_MCP_SERVERS."
    )
