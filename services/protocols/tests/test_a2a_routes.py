"""Requests of A2A whose clients leave."""

import asyncio

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_protocols.a2a.routes import while_its_client_waits
from bos_protocols.settings import ProtocolsSettings
from bos_webserver import http_server


async def test_work_for_a_client_that_leaves_ends() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def held(request: Request) -> Response:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()
        return Response()

    async def quick(request: Request) -> Response:
        return Response(await request.body())

    routes = [
        Route(path, while_its_client_waits(endpoint, 15), methods=["POST"])
        for path, endpoint in (("/held", held), ("/quick", quick))
    ]
    limits = ProtocolsSettings.load().connection_limits(60)
    server = ServerSettings.load(port=0, grace_s=0.1)
    telemetry = Telemetry.for_tests("protocols")
    async with (
        http_server(Starlette(routes=routes), server, limits, telemetry) as port,
        httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}") as http,
    ):
        assert (await http.post("/quick", content=b"x")).content == b"x"
        asking = asyncio.ensure_future(http.post("/held", content=b"x"))
        await begun.wait()
        assert not ended.is_set()
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        async with asyncio.timeout(60):
            await ended.wait()
