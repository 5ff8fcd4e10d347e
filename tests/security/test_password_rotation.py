"""The password of the database is changed while a gateway runs.

Pools and listeners, all that identity and memory have, are in libs/postgres/tests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import pytest
from asyncpg import Connection, Record

from bos.gateway.v1 import (
    AgentRequest,
    AskRequest,
    GetRunRequest,
    ListRunsRequest,
    OrchestratorServiceStub,
)
from bos_chassis.settings import AuthSettings, ServerSettings, TelemetrySettings
from bos_chassis.telemetry import Telemetry
from bos_gateway import service as gateway
from bos_gateway.settings import GatewaySettings
from bos_postgres import connect

pytestmark = [pytest.mark.security, pytest.mark.timeout(900)]

ROLE, OLD, NEW = "rotating_services", "the-old-password", "the-new-password"
_TIMEOUT_S = 60.0
_SESSIONS = """
SELECT DISTINCT application_name FROM pg_stat_activity
WHERE usename = $1 AND backend_type = 'client backend' ORDER BY 1
"""
_END = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = $1"


@pytest.fixture
async def administrator(postgres_dsn: str) -> AsyncIterator[Connection[Record]]:
    async with connect(postgres_dsn) as session:
        await session.execute(f"CREATE ROLE {ROLE} LOGIN SUPERUSER PASSWORD '{OLD}'")
        yield session
        await session.fetch(_END, ROLE)
        await session.execute(f"DROP OWNED BY {ROLE}; DROP ROLE {ROLE}")


@pytest.fixture
def store_url(postgres_dsn: str, tmp_path: Path) -> str:
    """As an operator writes it who mounts the password as a file."""
    (tmp_path / "password").write_text(f"{OLD}\n")
    parts = urlsplit(postgres_dsn)
    options = "&".join(filter(None, (parts.query, f"password_file={tmp_path / 'password'}")))
    place = parts.netloc.rpartition("@")[2]
    return f"postgresql://{ROLE}@{place}{parts.path}?{options}"


async def test_gateway_goes_on_with_the_new_password(
    store_url: str, administrator: Connection[Record], tmp_path: Path
) -> None:
    settings = GatewaySettings.load(
        store_url=store_url,
        auth=AuthSettings.load(),
        server=ServerSettings.load(grace_s=0.2),
        telemetry=TelemetrySettings.load(),
        planner_target="127.0.0.1:1",
        composer_target="127.0.0.1:1",
        agent_targets={},
        call_attempts=1,
        restart_wait_s=0,
    )
    async with (
        gateway.serve(settings, Telemetry.for_tests("gateway")) as server,
        grpc.aio.insecure_channel(server.address) as channel,
    ):
        runs = OrchestratorServiceStub(channel)

        async def list_runs() -> None:
            await runs.ListRuns(ListRunsRequest(), timeout=_TIMEOUT_S)

        async def ask() -> None:
            """A run is stored and ends, though no planner is running."""
            request = AskRequest(request=AgentRequest(question="Why?"))
            answered = await runs.Ask(request, timeout=_TIMEOUT_S)
            await runs.GetRun(GetRunRequest(run_id=answered.response.run_id), timeout=_TIMEOUT_S)
            await list_runs()

        await ask()
        before = {row[0] for row in await administrator.fetch(_SESSIONS, ROLE)}
        assert any("listener" in name for name in before), before
        assert any("writer" in name for name in before), before

        await administrator.execute(f"ALTER ROLE {ROLE} PASSWORD '{NEW}'")
        await ask()  # open connections ask for no password
        await administrator.fetch(_END, ROLE)

        async def until_refused() -> None:
            while True:  # until none of the pool is left that was open
                await list_runs()

        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await asyncio.wait_for(until_refused(), 120)
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert NEW not in str(refused.value)

        (tmp_path / "password").write_text(NEW)
        await until_it_works(ask)

        async def same_sessions() -> None:
            after = {row[0] for row in await administrator.fetch(_SESSIONS, ROLE)}
            assert after >= {name for name in before if "listener" in name or "lease" in name}

        await until_it_works(same_sessions)


async def until_it_works(work: Callable[[], Awaitable[None]]) -> None:
    """Services recover by themselves; no event says when."""
    async with asyncio.timeout(120):
        while True:
            try:
                return await work()
            except (grpc.aio.AioRpcError, AssertionError):
                await asyncio.sleep(0.05)
