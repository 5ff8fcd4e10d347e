"""A remote A2A agent in the whole product: configured, planned with, approved, asked back."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr
from remote_agent import RemoteAgent, served

from bos.gateway.v1 import RunEvent, RunStatus
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import from_value_map
from bos_client import BosClient
from bos_mcp_db.settings import DatabaseSettings
from bos_postgres import create_database
from bos_standalone.service import serve_all
from bos_standalone.settings import StandaloneSettings
from bos_testkit.postgres import PostgresServer
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import ScriptedModel

from .harness import plan_reply, planned

pytestmark = pytest.mark.e2e

PAYS, ASKS = "Pay invoice 7", "Pay the invoice of Ravi"
SEVENTH = "The seventh."


def _replies() -> list[Any]:
    def message(task: str, said: str) -> Any:
        reply = {"reason": "It can.", "message": said}
        return fixture(f"{task} {said}", [f"### Task\n{task}"], schema="AgentMessage", json=reply)

    return [
        plan_reply(PAYS, planned("pay", "billing", PAYS)),
        plan_reply(ASKS, planned("pay", "billing", ASKS)),
        fixture(
            "plan of the reply",
            [f"### Question\n{ASKS}", f"The user replied: {SEVENTH}"],
            schema="PlannerReply",
            json={
                "rationale": "As scripted.",
                "intent": "DATA_QA",
                "confidence": 0.9,
                "steps": [planned("pay", "billing", ASKS)],
            },
        ),
        message(PAYS, "Please pay invoice 7."),
        message(ASKS, "Please pay, and ask which one."),
        fixture("answer", ["### Question", "Agent: billing"], text="It is paid."),
    ]


async def test_remote_agent_gets_the_approval_and_asks_back(
    company: DatabaseSettings,
    postgres_server: PostgresServer,
    clean_environment: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = await create_database(postgres_server.dsn(), "store_of_a2a")
    remote, networks = RemoteAgent(), ["127.0.0.0/8"]
    async with ScriptedModel(_replies()) as model, served(remote) as url:
        servers = {
            "billing": {"url": url, "networks": networks},
            "away": {"url": "http://127.0.0.1:9", "networks": networks},
        }
        tables = ",".join(f"company.{table}" for table in company.allowed_tables)
        for name, value in {
            "OPENAI_BASE_URL": model.base_url,
            "BOS_MODEL": "any-name",
            "BOS_DATABASE_URL": company.url.get_secret_value(),
            "BOS_DATABASE_ALLOWED_TABLES": tables,
            "BOS_STANDALONE_REST": "false",
            "BOS_A2A_SERVERS": json.dumps(servers),
        }.items():
            monkeypatch.setenv(name, value)
        settings = StandaloneSettings.load(data_dir=tmp_path / "data", store_url=SecretStr(store))
        async with (
            serve_all(settings, Telemetry.for_tests("standalone")) as product,
            BosClient(product.target, api_key=product.api_key) as bos,
        ):
            agents = {each.card.name: each for each in await bos.agents()}
            assert agents["billing"].available
            assert "127.0.0.1:9" in agents["away"].unavailable_reason

            denied, _ = await _decided(bos, PAYS, approve=False)
            assert denied["message"] == "Please pay invoice 7."
            assert not remote.messages

            _, paid = await _decided(bos, PAYS, approve=True)
            assert paid.status == RunStatus.RUN_STATUS_SUCCEEDED, paid
            assert paid.tainted
            assert [each.parts[0].text for each in remote.messages] == ["Please pay invoice 7."]

            _, asking = await _decided(bos, ASKS, approve=True)
            assert asking.status == RunStatus.RUN_STATUS_CLARIFICATION_NEEDED, asking
            assert [each.question for each in asking.clarification.questions] == ["Which one? ask"]

            reply = {"continues_run_id": asking.run_id}
            shown, settled = await _decided(bos, SEVENTH, approve=True, **reply)
            assert shown, settled
            assert shown["message"] == SEVENTH
            assert settled.status == RunStatus.RUN_STATUS_SUCCEEDED, settled
    _, asked, replied = remote.messages
    assert replied.task_id == asked.task_id
    assert replied.parts[0].text == SEVENTH


async def _decided(
    bos: BosClient, question: str, *, approve: bool, **options: Any
) -> tuple[dict[str, Any], Any]:
    """Arguments that were shown, and the response."""
    shown: dict[str, Any] = {}
    event = RunEvent()
    async for event in bos.ask_stream(question, **options):
        if event.HasField("approval_requested"):
            approval = event.approval_requested.approval
            shown = from_value_map(approval.actions[0].arguments)
            await (bos.approve if approve else bos.deny)(approval.approval_id)
    return shown, event.run_finished.response
