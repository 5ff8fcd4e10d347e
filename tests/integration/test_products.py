"""Agents of others and mailboxes in the whole product, and the product without a model."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from community_servers import community_server
from mail_servers import PASSWORD, ImapServer, SmtpServer, connection, imap_server, smtp_server
from remote_agent import RemoteAgent, served

from bos.gateway.v1 import RunEvent, RunStatus
from bos_chassis.values import from_value_map
from bos_client import BosClient
from bos_client.user_connections import ConnectionClient
from bos_mcp_db.settings import DatabaseSettings
from bos_postgres import connect
from bos_testkit.scripted_model.replies import Fixture, fixture
from bos_testkit.scripted_model.server import ScriptedModel

from .conftest import OpenProduct, Product
from .harness import no_internals, plan_reply, planned, rows

pytestmark = [pytest.mark.e2e, pytest.mark.asyncio(loop_scope="module")]

SUCCEEDED = RunStatus.RUN_STATUS_SUCCEEDED
LOOPBACK = ["127.0.0.0/8"]


async def decided(
    bos: BosClient, question: str, *, approve: bool, **options: Any
) -> tuple[dict[str, Any], Any]:
    """Arguments that were shown for approval, and the response."""
    shown: dict[str, Any] = {}
    event = RunEvent()
    async for event in bos.ask_stream(question, **options):
        if event.HasField("approval_requested"):
            approval = event.approval_requested.approval
            shown = from_value_map(approval.actions[0].arguments)
            await (bos.approve if approve else bos.deny)(approval.approval_id)
    return shown, event.run_finished.response


async def is_away(bos: BosClient, name: str) -> None:
    """An agent whose server does not answer is listed with the address."""
    agents = {each.card.name: each for each in await bos.agents()}
    assert not agents[name].available
    assert "127.0.0.1:9" in agents[name].unavailable_reason


@dataclass
class Others:
    """The product with servers of others, and what these hold."""

    product: Product
    folder: Path
    """Of the MCP server."""
    remote: RemoteAgent
    imap: ImapServer
    smtp: SmtpServer


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def others(
    open_product: OpenProduct, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Others]:
    folder, remote = tmp_path_factory.mktemp("files"), RemoteAgent()
    (folder / "plan.txt").write_text("Pumps are due on Friday.", "utf-8")
    replies = [*mcp_replies(folder), *a2a_replies(), *MAIL_REPLIES]
    async with (
        ScriptedModel(replies) as model,
        served(remote) as url,
        imap_server() as imap,
        smtp_server() as smtp,
    ):
        mcp = {
            "mcp_files": {"command": community_server("filesystem", str(folder))},
            "mcp_away": {"url": "http://127.0.0.1:9/mcp", "networks": LOOPBACK},
        }
        at = {"billing": url, "away": "http://127.0.0.1:9"}
        a2a = {name: {"url": each, "networks": LOOPBACK} for name, each in at.items()}
        async with open_product(
            model,
            BOS_MCP_SERVERS=json.dumps(mcp),
            BOS_A2A_SERVERS=json.dumps(a2a),
            BOS_MAIL_INTERNAL_HOSTS=json.dumps({"127.0.0.1": LOOPBACK}),
        ) as product:
            yield Others(product, folder, remote, imap, smtp)


READS, WRITES = "What is in the plan file?", "Note in todo.txt that Ravi is to be called"


def mcp_replies(folder: Path) -> list[Any]:
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
        fixture(
            "answer of mcp_files", ["### Question", "Agent: mcp_files"], text="As the files show."
        ),
    ]


async def test_mcp_server_reads_and_writes_once_approved(others: Others) -> None:
    bos, folder = others.product.bos, others.folder
    await is_away(bos, "mcp_away")

    read = await bos.ask(READS)
    assert read.status == SUCCEEDED, read
    assert list(read.metadata.agents) == ["mcp_files"]

    denied, _ = await decided(bos, WRITES, approve=False)
    assert denied["path"] == str(folder / "todo.txt")
    assert not (folder / "todo.txt").exists()

    shown, finished = await decided(bos, WRITES, approve=True)
    assert shown["content"] == "Call Ravi."
    assert finished.status == SUCCEEDED, finished
    assert (folder / "todo.txt").read_text("utf-8") == "Call Ravi."


PAYS, ASKS = "Pay invoice 7", "Pay the invoice of Ravi"
SEVENTH = "The seventh."


def a2a_replies() -> list[Any]:
    def message(task: str, said: str) -> Any:
        reply = {"reason": "It can.", "message": said}
        return fixture(f"{task} {said}", [f"### Task\n{task}"], schema="AgentMessage", json=reply)

    reply = plan_reply(ASKS, planned("pay", "billing", ASKS)).model_dump(by_alias=True)
    reply["name"] = "plan of the reply"
    reply["when"]["contains"] = [f"### Question\n{ASKS}", f"The user replied: {SEVENTH}"]
    again = Fixture.model_validate(reply)
    return [
        plan_reply(PAYS, planned("pay", "billing", PAYS)),
        plan_reply(ASKS, planned("pay", "billing", ASKS)),
        again,
        message(PAYS, "Please pay invoice 7."),
        message(ASKS, "Please pay, and ask which one."),
        fixture("a2a answer", ["### Question", "Agent: billing"], text="It is paid."),
    ]


async def test_remote_agent_gets_the_approval_and_asks_back(others: Others) -> None:
    bos, remote = others.product.bos, others.remote
    await is_away(bos, "away")

    denied, _ = await decided(bos, PAYS, approve=False)
    assert denied["message"] == "Please pay invoice 7."
    assert not remote.messages

    _, paid = await decided(bos, PAYS, approve=True)
    assert paid.status == SUCCEEDED, paid
    assert paid.tainted
    assert [each.parts[0].text for each in remote.messages] == ["Please pay invoice 7."]

    _, asking = await decided(bos, ASKS, approve=True)
    assert asking.status == RunStatus.RUN_STATUS_CLARIFICATION_NEEDED, asking
    assert [each.question for each in asking.clarification.questions] == ["Which one? ask"]

    reply = {"continues_run_id": asking.run_id}
    shown, settled = await decided(bos, SEVENTH, approve=True, **reply)
    assert shown["message"] == SEVENTH
    assert settled.status == SUCCEEDED, settled
    _, asked, replied = remote.messages
    assert replied.task_id == asked.task_id
    assert replied.parts[0].text == SEVENTH


LOOKS, SENDS = "What did Asha write?", "Tell asha@supplier.example that we accept"
OFFER = b"""From: Asha Rao <asha@supplier.example>
To: ada@example.com
Subject: Offer for pumps
Date: Mon, 01 Jun 2026 09:00:00 +0530
Message-ID: <offer-1@supplier.example>

We offer 12 pumps. Your password is app-password-17.
"""
SENDING = {**planned("mail", "mail", SENDS, to="asha@supplier.example"), "tool_name": "send_email"}
MAIL_REPLIES = [
    plan_reply(LOOKS, planned("look", "mail", "Find what Asha wrote", query="from:asha")),
    plan_reply(SENDS, SENDING),
    fixture(
        "action",
        ["### Allowed actions"],
        schema="MailAction",
        json={
            "action": "search_inbox",
            "query": "",
            "message_id": "",
            "to": [],
            "cc": [],
            "bcc": [],
        },
    ),
    fixture(
        "words",
        ["### From", "### To"],
        schema="MailText",
        json={"subject": "Pumps", "body": "Dear Asha,\n\nwe accept.\n\nAda"},
    ),
    fixture("summary", ["### Action"], schema="MailSummary", json={"result": "Done so."}),
    fixture("mail answer", ["### Question", "Agent: mail"], text="As the mailbox shows."),
]


@pytest.mark.requirement("A-08", "I-09", "M-14", "M-16")
async def test_mailbox_is_connected_searched_and_sent_from(others: Others) -> None:
    bos, imap, smtp = others.product.bos, others.imap, others.smtp
    (mail,) = [each.card for each in await bos.agents() if each.card.name == "mail"]
    assert "mail_agent" in mail.aliases

    without = await bos.ask(LOOKS)
    assert without.status == RunStatus.RUN_STATUS_FAILED
    assert "bos mail connect" in str(without)

    standalone = others.product.standalone
    identity = standalone.addresses["identity"]
    async with ConnectionClient(identity, api_key=standalone.api_key) as connections:
        await connections.connect("mail.imap", PASSWORD, connection(imap, smtp).fields)
    imap.put(OFFER)
    found = await bos.ask(LOOKS)
    assert found.status == SUCCEEDED, found

    skipped = await bos.ask(SENDS)
    assert "approval" in str(skipped)
    assert smtp.taken == []

    shown, finished = await decided(bos, SENDS, approve=True)
    assert shown["to"] == ["asha@supplier.example"]
    assert shown["body"] == "Dear Asha,\n\nwe accept.\n\nAda"
    assert finished.status == SUCCEEDED, finished
    (envelope,) = smtp.taken
    assert envelope.rcpt_tos == ["asha@supplier.example"]
    # The mail quotes the password; what is kept does not.
    async with connect(others.product.store_url, schema="gateway") as session:
        events = await session.fetch("SELECT * FROM run_events")
    kept = b"".join(each for row in events for each in row if isinstance(each, bytes))
    assert b"We offer 12 pumps" in kept
    assert PASSWORD.encode() not in kept
    assert b"[secret mail.imap]" in kept


@pytest.mark.requirement("T-10")
async def test_without_a_model_answers_say_what_to_set(
    open_product: OpenProduct, company: DatabaseSettings
) -> None:
    async with open_product() as product:
        await _says_what_to_set(product.bos, company)


async def _says_what_to_set(bos: BosClient, company: DatabaseSettings) -> None:
    response = await bos.ask("List all tables in the database", trace=True)
    assert response.status == SUCCEEDED
    assert list(response.planner.chosen_agents) == ["sql"]
    listed = [row[0].removeprefix("company.") for row in rows(response.data)]
    assert listed == sorted(company.allowed_tables)
    assert "invoices" in response.answer
    assert response.metadata.usage.model_calls == 0

    response = await bos.ask("What is 17% of 2,450?", trace=True)
    assert response.status == SUCCEEDED
    (computed,) = response.agent_results
    assert str(from_value_map(computed.data)["result"]) == "416.5"
    assert "416.5" in response.answer

    for question, agent in (
        ("Show the five customers with the highest credit limit", "sql"),
        ("Forecast and estimate the growth of the next ten years", "computation"),
    ):
        response = await bos.ask(question, trace=True)
        assert response.status == RunStatus.RUN_STATUS_FAILED
        assert [result.agent_name for result in response.agent_results] == [agent]
        assert response.error.type == "ConfigurationError"
        for variable in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "BOS_MODEL"):
            assert variable in response.answer
        no_internals(response)

    plan = await bos.plan("List all tables in the database")
    assert (plan.plan.origin, plan.decision.confidence) == ("heuristic", pytest.approx(0.4))
    assert "No model is configured." in plan.decision.rationale
