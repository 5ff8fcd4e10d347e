"""Users share the connections to a database: endless queries of one leave the next one a place."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp_db_rig import call, sqlite_database

from bos_chassis.auth.callers import RunTokenSigner, RunTokenVerifier, generate_keypair
from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_mcp_db.service import AUDIENCE, serve
from bos_mcp_db.settings import DatabaseSettings, McpDbSettings
from bos_testkit.waiting import eventually

pytestmark = pytest.mark.security

ENDLESS = (
    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n WHERE i < 0"
)


class Users:
    """Clients in the name of different users."""

    def __init__(self, url: str, signer: RunTokenSigner, telemetry: Telemetry) -> None:
        self._url = url
        self._signer = signer
        self._telemetry = telemetry

    async def ask(self, user: str, query: str) -> dict[str, Any]:
        token = self._signer.mint(user, f"run-{user}", f"run-{user}/0/a", [AUDIENCE], ttl_s=240)
        async with (
            httpx2.AsyncClient(headers={"bos-run-token": token}, timeout=100) as http,
            Client(streamable_http_client(self._url, http_client=http)) as client,
        ):
            return await call(client, "mcp_db_query", query=query)

    def in_flight(self) -> float | None:
        return self._telemetry.registry.get_sample_value("bos_db_queries_in_flight")


@asynccontextmanager
async def users(database: DatabaseSettings, **settings: Any) -> AsyncIterator[Users]:
    private, public = generate_keypair()
    telemetry = Telemetry.for_tests("mcp_db")
    chosen = McpDbSettings.load(
        databases={"main": database},
        database_url=None,
        server=ServerSettings.load(grace_s=0),
        max_estimated_cost=0,
        timeout_s=100,
        **settings,
    )
    auth = RunTokenVerifier([public], AUDIENCE)
    async with serve(chosen, telemetry, auth=auth) as server:
        yield Users(server.url, RunTokenSigner(private), telemetry)


async def test_twelve_endless_queries_of_one_user_leave_another_a_place(
    database: DatabaseSettings,
) -> None:
    async with users(database, pool_size=3, queue_timeout_s=60) as people:
        greedy = [asyncio.create_task(people.ask("greedy", ENDLESS)) for _ in range(12)]
        try:
            await eventually(lambda: people.in_flight() == 12)
            for _ in range(3):
                envelope = await people.ask("other", "SELECT count(*) FROM customers")
                assert envelope["data"] == [[3]]
            assert not any(task.done() for task in greedy)
        finally:
            for task in greedy:
                task.cancel()
            await asyncio.wait(greedy)


async def test_waiting_too_long_for_a_connection_is_refused(sqlite_file: Path) -> None:
    database = sqlite_database(sqlite_file)
    async with users(database, pool_size=2, queue_timeout_s=0.2) as people:
        greedy = asyncio.create_task(people.ask("greedy", ENDLESS))
        try:
            await eventually(lambda: people.in_flight() == 1)
            refused = await people.ask("greedy", "SELECT 1")
            served = await people.ask("other", "SELECT 1")
        finally:
            greedy.cancel()
            await asyncio.wait([greedy])
    assert refused["error"]["reason"] == "DATABASE_BUSY"
    assert served["data"] == [[1]]
