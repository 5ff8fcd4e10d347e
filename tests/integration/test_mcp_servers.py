"""MCP servers of others in the whole product: configured, planned with, read, approved, denied."""

import json
from pathlib import Path
from typing import Any

import pytest
from community_servers import community_server
from pydantic import SecretStr

from bos.gateway.v1 import RunEvent, RunStatus
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import from_value_map
from bos_client import BosClient
from bos_errors import ConfigurationError
from bos_mcp_db.settings import DatabaseSettings
from bos_postgres import create_database
from bos_standalone.service import serve_all
from bos_standalone.settings import StandaloneSettings
from bos_testkit.postgres import PostgresServer
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import ScriptedModel

from .harness import plan_reply, planned

pytestmark = pytest.mark.e2e

READS, WRITES = "What is in the plan file?", "Note in todo.txt that Ravi is to be called"


def _replies(folder: Path) -> list[Any]:
    writing = {**planned("write", "mcp_files", WRITES), "tool_name": "write_file"}

    def call(task: str, calls: str, tool: str, **arguments: str) -> Any:
        reply = {"reason": "It does that.", "tool": tool, "arguments": json.dumps(arguments)}
        needles = [f"### Task\n{task}", calls]
        return fixture(f"{task} {tool}", needles, schema="NextCall", json=reply)

    return [
        plan_reply(READS, planned("read", "mcp_files", READS)),
        plan_reply(WRITES, writing),
        call(READS, "Calls so far\nnone", "read_text_file", path=str(folder / "plan.txt")),
        fixture(
            "read",
            ["Pumps are due on Friday", "Calls so far"],
            schema="NextCall",
            json={"answer": "Pumps are due on Friday."},
        ),
        call(
            WRITES,
            "Calls so far\nnone",
            "write_file",
            path=str(folder / "todo.txt"),
            content="Call Ravi.",
        ),
        fixture("done", ["Successfully wrote"], schema="ResultSummary", json={"answer": "Noted."}),
        fixture("answer", ["### Question", "Agent: mcp_files"], text="As the files show."),
    ]


async def test_third_party_server_reads_and_writes_once_approved(
    company: DatabaseSettings,
    postgres_server: PostgresServer,
    clean_environment: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    (folder / "plan.txt").write_text("Pumps are due on Friday.", "utf-8")
    store = await create_database(postgres_server.dsn(), "store_of_mcp")
    servers = {
        "mcp_files": {"command": community_server("filesystem", str(folder))},
        "mcp_away": {"url": "http://127.0.0.1:9/mcp", "networks": ["127.0.0.0/8"]},
    }
    async with ScriptedModel(_replies(folder)) as model:
        tables = ",".join(f"company.{table}" for table in company.allowed_tables)
        for name, value in {
            "OPENAI_BASE_URL": model.base_url,
            "BOS_MODEL": "any-name",
            "BOS_DATABASE_URL": company.url.get_secret_value(),
            "BOS_DATABASE_ALLOWED_TABLES": tables,
            "BOS_STANDALONE_REST": "false",
            "BOS_MCP_SERVERS": json.dumps(servers),
        }.items():
            monkeypatch.setenv(name, value)
        settings = StandaloneSettings.load(data_dir=tmp_path / "data", store_url=SecretStr(store))
        async with (
            serve_all(settings, Telemetry.for_tests("standalone")) as product,
            BosClient(product.target, api_key=product.api_key) as bos,
        ):
            agents = {each.card.name: each for each in await bos.agents()}
            assert agents["mcp_files"].available
            assert not agents["mcp_away"].available
            assert "127.0.0.1:9" in agents["mcp_away"].unavailable_reason

            read = await bos.ask(READS)
            assert read.status == RunStatus.RUN_STATUS_SUCCEEDED, read
            assert list(read.metadata.agents) == ["mcp_files"]

            denied, _ = await _decided(bos, approve=False)
            assert denied["path"] == str(folder / "todo.txt")
            assert not (folder / "todo.txt").exists()

            shown, finished = await _decided(bos, approve=True)
            assert shown["content"] == "Call Ravi."
            assert finished.status == RunStatus.RUN_STATUS_SUCCEEDED, finished
            assert (folder / "todo.txt").read_text("utf-8") == "Call Ravi."


@pytest.mark.parametrize("name", ["sql", "gateway"])
async def test_server_does_not_take_the_name_of_an_agent_or_a_service(
    name: str, clean_environment: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOS_MCP_SERVERS", json.dumps({name: {"command": ["true"]}}))
    with pytest.raises(ConfigurationError, match="no free name"):
        async with serve_all(
            StandaloneSettings.load(data_dir=tmp_path), Telemetry.for_tests("standalone")
        ):
            pass


async def _decided(bos: BosClient, *, approve: bool) -> tuple[dict[str, Any], Any]:
    """Arguments that were shown, and the response, of the question that writes."""
    shown: dict[str, Any] = {}
    event = RunEvent()
    async for event in bos.ask_stream(WRITES):
        if event.HasField("approval_requested"):
            approval = event.approval_requested.approval
            shown = from_value_map(approval.actions[0].arguments)
            await (bos.approve if approve else bos.deny)(approval.approval_id)
    return shown, event.run_finished.response
