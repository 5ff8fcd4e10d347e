import asyncio
import ssl
from collections.abc import Mapping
from pathlib import Path

import grpc
import httpx2
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from mcp.client.client import Client
from mcp_db_rig import call, served, service

from bos_chassis.auth.callers import RUN_TOKEN_KEY, Principal, run_token
from bos_chassis.credentials.tls import CertificateFiles, ClientTls
from bos_chassis.telemetry import Telemetry
from bos_errors import BosError, ConfigurationError, Unauthenticated, Unavailable
from bos_mcp_db.service import AUDIENCE
from bos_sql.database.mcp import McpClient
from bos_testkit.certificates import Authority
from bos_testkit.processes import free_port
from bos_testkit.waiting import eventually

ENDLESS = (
    "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n WHERE i < 0"
)


async def test_probes_ask_for_health_by_grpc(sqlite_file: Path, tmp_path: Path) -> None:
    tls, port = Authority(tmp_path / "authority").issue("mcp_db"), free_port()
    async with (
        service(sqlite_file, server={"tls": tls, "health_port": port}),
        grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel,
    ):
        reply = await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
    assert reply.status == health_pb2.HealthCheckResponse.SERVING


async def test_health_is_open_and_reports_serving(sqlite_file: Path) -> None:
    async with (
        served(sqlite_file) as running,
        httpx2.AsyncClient() as http,
    ):
        reply = await http.get(running.server.url.replace("/mcp", "/healthz"))

    assert (reply.status_code, reply.json()) == (200, {"status": "serving"})


@pytest.mark.requirement("R-06")
async def test_only_a_run_token_for_this_service_is_served(sqlite_file: Path) -> None:
    async with served(sqlite_file) as running:
        good, elsewhere = running.token(), running.token(audiences=["sandbox"])
        async with running.client() as client:
            envelope = await call(client, "mcp_db_query", query="SELECT count(*) FROM orders")
        async with httpx2.AsyncClient() as http:
            none, wrong, garbage, twice = [
                await http.post(
                    running.server.url, json={}, headers=[(RUN_TOKEN_KEY, each) for each in sent]
                )
                for sent in ([], [elsewhere], ["x"], [good, elsewhere])
            ]

    assert envelope["data"] == [[500]]
    assert [reply.status_code for reply in (none, wrong, garbage)] == [401, 401, 401]
    assert wrong.json()["reason"] == "RUN_TOKEN_INVALID"
    assert (twice.status_code, twice.json()["reason"]) == (401, "CREDENTIAL_AMBIGUOUS")


class Ended:
    """Answers for every token that its step has ended, or that it is unknown."""

    def __init__(self, error: BosError) -> None:
        self._error = error

    async def authenticate(self, metadata: Mapping[str, str]) -> Principal | None:
        raise self._error


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (Unauthenticated("The step has ended.", reason="RUN_TOKEN_STEP_ENDED"), 401),
        (Unavailable("Not known.", reason="RUN_TOKEN_NOT_CHECKED"), 503),
    ],
)
async def test_an_ended_token_is_refused(sqlite_file: Path, error: BosError, status: int) -> None:
    async with (
        service(sqlite_file, auth=Ended(error)) as (server, _),
        httpx2.AsyncClient() as http,
    ):
        reply = await http.post(server.url, json={})
    assert (reply.status_code, reply.json()["reason"]) == (status, error.reason)


async def test_a_foreign_host_or_origin_is_refused_on_loopback(sqlite_file: Path) -> None:
    async with service(sqlite_file) as (server, _), httpx2.AsyncClient() as http:
        host = await http.post(server.url, json={}, headers={"host": "evil.example"})
        origin = await http.post(server.url, json={}, headers={"origin": "http://evil.example"})

    assert host.status_code == 421
    assert origin.status_code == 403


async def test_without_authentication_only_loopback_is_offered(sqlite_file: Path) -> None:
    with pytest.raises(ConfigurationError, match="loopback"):
        async with service(sqlite_file, server={"host": "0.0.0.0"}):
            pass


async def test_a_taken_port_is_named(sqlite_file: Path) -> None:
    async with service(sqlite_file) as (first, _):
        with pytest.raises(ConfigurationError, match=str(first.port)):
            async with service(sqlite_file, server={"port": first.port}):
                pass


async def test_hanging_up_cancels_the_query(sqlite_file: Path) -> None:
    async with service(sqlite_file) as (server, telemetry):
        asking = asyncio.create_task(_ask_endlessly(server.url))
        await eventually(lambda: _sample(telemetry, "bos_db_queries_in_flight") == 1)
        asking.cancel()
        await asyncio.wait([asking])
        await eventually(lambda: _sample(telemetry, "bos_db_queries_in_flight") == 0)

    assert _sample(telemetry, "bos_db_queries_total", outcome="cancelled") == 1


async def test_stopping_the_service_ends_running_queries(sqlite_file: Path) -> None:
    async with service(sqlite_file) as (server, telemetry):
        asking = asyncio.create_task(_ask_endlessly(server.url))
        await eventually(lambda: _sample(telemetry, "bos_db_queries_in_flight") == 1)

    assert _sample(telemetry, "bos_db_queries_in_flight") == 0
    asking.cancel()
    await asyncio.wait([asking])


async def _ask_endlessly(url: str) -> None:
    async with Client(url) as client:
        await client.call_tool("mcp_db_query", {"query": ENDLESS})


def _sample(telemetry: Telemetry, name: str, **labels: str) -> float | None:
    return telemetry.registry.get_sample_value(name, labels)


async def test_over_tls_a_token_is_of_one_agent(sqlite_file: Path, tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    log = Telemetry.for_tests("sql").logger("tls")
    seen = {}
    tls = {"tls": authority.issue("mcp_db")}
    async with served(sqlite_file, server=tls) as running:
        token = running.token(audiences=["sql", AUDIENCE])
        url = running.server.url.replace("http://", "https://")
        for caller in ("sql", "mail"):
            tls = ClientTls(CertificateFiles(authority.issue(caller), log))
            async with httpx2.AsyncClient(verify=tls.context) as http:
                reply = await http.post(url, json={}, headers={"bos-run-token": token})
            seen[caller] = reply.status_code
        anonymous = ssl.create_default_context(cafile=authority.issue("sql").ca_file)
        async with httpx2.AsyncClient(verify=anonymous) as http:
            with pytest.raises(httpx2.TransportError):
                await http.post(url, json={}, headers={"bos-run-token": token})
        client_tls = authority.issue("sql")
        mcp = McpClient(
            url, max_reply_bytes=1 << 20, certificates=CertificateFiles(client_tls, log)
        )
        async with mcp:
            with run_token(token):
                envelope = await mcp.call(
                    "mcp_db_query", {"query": "SELECT count(*) FROM orders"}, timeout_s=60
                )
    assert seen["mail"] == 401
    assert seen["sql"] not in (401, 403)
    assert envelope["data"] == [[500]]
