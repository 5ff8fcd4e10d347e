"""Calls to the gateway that end by gRPC's own cancellation are no end of the MCP server."""

import asyncio
from typing import Any, cast

from mcp import Client

from bos_conversation.mcp.callers import Callers
from bos_conversation.mcp.server import build_server


class _Gateway:
    """Ends the first call as gRPC does on any cancellation; answers the next."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.hangs = False

    async def list_runs(self, *_: Any, **__: Any) -> Any:
        self.begun.set()
        if self.hangs:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                # What gRPC raises has no word of who cancelled.
                raise asyncio.CancelledError from None
        raise asyncio.CancelledError


class _Callers:
    has_documents = False

    def __init__(self, gateway: _Gateway) -> None:
        self._gateway = gateway

    def bos(self, _: Any) -> Any:
        return self._gateway


async def test_a_call_that_grpc_cancels_fails_alone() -> None:
    server = build_server(cast("Callers", _Callers(_Gateway())))
    async with Client(server) as client:
        for _ in range(2):
            result = await client.call_tool("list_runs", {})
            assert result.is_error
            assert "broke off" in str(result.content)


async def test_a_call_that_the_client_cancels_ends_alone() -> None:
    gateway = _Gateway()
    gateway.hangs = True
    server = build_server(cast("Callers", _Callers(gateway)))
    async with Client(server) as client, asyncio.timeout(60):
        call = asyncio.create_task(client.call_tool("list_runs", {}))
        await gateway.begun.wait()
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
        gateway.hangs = False
        assert (await client.call_tool("list_runs", {})).is_error
