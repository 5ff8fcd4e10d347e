"""Users share the connections to a database: endless queries of one leave the next one a place."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from mcp_db_rig import Served, call, served

from bos_mcp_db.settings import DatabaseSettings
from bos_testkit.waiting import eventually

pytestmark = pytest.mark.security

ENDLESS = (
    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n WHERE i < 0"
)
SETTINGS: dict[str, Any] = {"max_estimated_cost": 0, "timeout_s": 100}


async def ask(service: Served, user: str, query: str) -> dict[str, Any]:
    async with service.client(user) as client:
        return await call(client, "mcp_db_query", query=query)


async def until_in_flight(service: Served, count: int) -> None:
    sample = service.telemetry.registry.get_sample_value
    await eventually(lambda: sample("bos_db_queries_in_flight") == count)


async def test_endless_queries_of_one_user_leave_a_place(database: DatabaseSettings) -> None:
    async with served({"main": database}, pool_size=3, queue_timeout_s=60, **SETTINGS) as service:
        greedy = [asyncio.create_task(ask(service, "greedy", ENDLESS)) for _ in range(12)]
        try:
            await until_in_flight(service, 12)
            for _ in range(3):
                envelope = await ask(service, "other", "SELECT count(*) FROM customers")
                assert envelope["data"] == [[3]]
            assert not any(task.done() for task in greedy)
        finally:
            for task in greedy:
                task.cancel()
            await asyncio.wait(greedy)


async def test_waiting_too_long_for_a_connection_is_refused(sqlite_file: Path) -> None:
    async with served(sqlite_file, pool_size=2, queue_timeout_s=0.2, **SETTINGS) as service:
        greedy = asyncio.create_task(ask(service, "greedy", ENDLESS))
        try:
            await until_in_flight(service, 1)
            refused = await ask(service, "greedy", "SELECT 1")
            answered = await ask(service, "other", "SELECT 1")
        finally:
            greedy.cancel()
            await asyncio.wait([greedy])
    assert refused["error"]["reason"] == "DATABASE_BUSY"
    assert answered["data"] == [[1]]
