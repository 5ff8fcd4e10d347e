"""All services of a standalone inside the test's process."""

import asyncio
import sqlite3
import stat
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import grpc
import pytest

from bos.gateway.v1 import RunStatus
from bos_chassis.telemetry import Telemetry
from bos_client import BosClient
from bos_demo.questions import Question, load_questions
from bos_errors import ConfigurationError
from bos_standalone.agents import SERVICES
from bos_standalone.service import Standalone, serve_all
from bos_standalone.settings import StandaloneSettings
from bos_testkit.processes import PATIENT

from .conftest import agents_without_settings

pytestmark = pytest.mark.usefixtures("nothing_configured")


GUARDED = {
    "gateway": "bos.gateway.v1.OrchestratorService/ListRuns",
    "identity": "bos.identity.v1.IdentityService/GetUser",
    "memory": "bos.memory.v1.MemoryService/GetLongTermMemory",
    "documents": "bos.documents.v1.DocumentsService/ListDocuments",
    "planner": "bos.planner.v1.PlannerService/MakePlan",
    "composer": "bos.composer.v1.ComposerService/Compose",
    "sandbox": "bos.sandbox.v1.SandboxService/GetCapabilities",
}
"""A call of each service that is no agent."""
OVER_HTTP = {"mcp_db", "protocols", "rest"}
"""Shown by tests of their own."""


def one_of_each_kind() -> list[Question]:
    return list({question.kind: question for question in load_questions()}.values())


async def test_services_answer_their_callers_and_refuse_all_others(
    tmp_path: Path, started_before: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in PATIENT.items():  # or the log would tell of a busy machine
        monkeypatch.setenv(name, value)
    settings = StandaloneSettings.load(data_dir=started_before(tmp_path / "data"), grace_s=0.1)
    telemetry = Telemetry.for_tests("standalone")
    started = agents_without_settings()
    async with serve_all(settings, telemetry) as harness:
        with pytest.raises(ConfigurationError, match="is running on"):
            async with serve_all(settings, Telemetry.for_tests()):
                pass
        assert set(harness.addresses) - {"rest"} == {*SERVICES, *started}
        await asyncio.gather(
            *(refuses_anonymous_callers(harness, name) for name in {*harness.addresses} - OVER_HTTP)
        )
        async with BosClient(harness.target, api_key=harness.api_key) as bos:
            agents = await bos.agents()
            assert {a.card.name for a in agents if a.available} == started
            for question in one_of_each_kind():
                response = await bos.ask(question.question, context=harness.context)
                assert response.status == RunStatus.RUN_STATUS_SUCCEEDED, question.question
                assert response.answer
                assert list(response.metadata.agents) == list(question.agents)
            unknown = await bos.ask("List all tables in the database", context=harness.context)
            assert unknown.data.row_count > 10
        # Agents, and the services that they call, have had run tokens checked by the gateway.
        worked = {agent for question in one_of_each_kind() for agent in question.agents}
        for name in ("mcp_db", "sandbox", *sorted(worked)):
            asked = {"service": name, "grpc_method": "CheckRunToken", "grpc_code": "OK"}
            asked["grpc_service"] = "bos.gateway.v1.RunTokenService"
            assert telemetry.registry.get_sample_value("bos_rpc_client_handled_total", asked)
        key, target = harness.api_key, harness.target
        assert stat.S_IMODE((tmp_path / "data/standalone.json").stat().st_mode) == 0o600

    async with serve_all(settings, Telemetry.for_tests("standalone")) as again:
        assert (again.api_key, again.target) == (key, target)
        async with BosClient(again.target, api_key=key) as bos:
            assert len((await bos.list_runs()).runs) == len(one_of_each_kind()) + 1
    assert {entry["service"] for entry in telemetry.logs} >= {"gateway", "sql", "planner"}
    assert not [e for e in telemetry.logs if e["log_level"] in ("warning", "error", "critical")]


async def test_own_store_and_database_need_no_embedded_postgresql(
    tmp_path: Path, postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        database.execute("CREATE TABLE bicycles (id INTEGER PRIMARY KEY)")
    monkeypatch.setenv("BOS_STORE_URL", postgres_dsn)
    monkeypatch.setenv("BOS_DATABASE_URL", f"sqlite:///{tmp_path / 'shop.db'}")
    monkeypatch.setenv("BOS_DATABASE_ALLOWED_TABLES", "bicycles")
    monkeypatch.setenv("BOS_AUTH_STATIC_KEY", "a-key-that-was-chosen")
    for name in ("CERT", "KEY", "CA"):  # these are for services in separate processes
        monkeypatch.setenv(f"BOS_TLS_{name}_FILE", str(tmp_path / "missing.pem"))
    settings = StandaloneSettings.load(data_dir=tmp_path / "data", grace_s=0.1)
    async with (
        serve_all(settings, Telemetry.for_tests("standalone")) as harness,
        BosClient(harness.target, api_key="a-key-that-was-chosen") as bos,
    ):
        response = await bos.ask("List all tables in the database")
        assert (harness.context, harness.questions) == ({}, ())

    assert "bicycles" in response.answer
    assert not (tmp_path / "data/postgres").exists()


async def refuses_anonymous_callers(harness: Standalone, name: str) -> None:
    """Assert that a service refuses a caller without API key or run token."""
    path = GUARDED.get(name, "bos.agent.v1.AgentService/Describe")
    async with grpc.aio.insecure_channel(harness.addresses[name]) as channel:
        call = channel.unary_stream(f"/{path}")(b"")  # type: ignore[var-annotated]
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call.read()
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED, name
