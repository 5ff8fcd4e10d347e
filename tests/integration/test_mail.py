"""The mail agent in the whole product: connected, searched, proposed, approved, sent; masked."""

import json
from pathlib import Path
from typing import Any

import pytest
from mail_servers import PASSWORD, USER, imap_server, smtp_server
from pydantic import SecretStr

from bos.gateway.v1 import RunEvent, RunStatus
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import from_value_map
from bos_client import BosClient
from bos_client.user_connections import ConnectionClient
from bos_mcp_db.settings import DatabaseSettings
from bos_postgres import connect, create_database
from bos_standalone.service import serve_all
from bos_standalone.settings import StandaloneSettings
from bos_testkit.postgres import PostgresServer
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import ScriptedModel

from .harness import plan_reply, planned

pytestmark = pytest.mark.e2e

LOOKS, SENDS = "What did Asha write?", "Tell asha@supplier.example that we accept"
OFFER = b"""From: Asha Rao <asha@supplier.example>
To: ada@example.com
Subject: Offer for pumps
Date: Mon, 01 Jun 2026 09:00:00 +0530
Message-ID: <offer-1@supplier.example>

We offer 12 pumps. Your password is app-password-17.
"""
SENDING = {**planned("mail", "mail", SENDS, to="asha@supplier.example"), "tool_name": "send_email"}
REPLIES = [
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
    fixture("answer", ["### Question", "Agent: mail"], text="As the mailbox shows."),
]


@pytest.mark.requirement("A-08", "I-09", "M-14", "M-16")
async def test_mailbox_is_connected_searched_and_sent_from(
    company: DatabaseSettings,
    postgres_server: PostgresServer,
    clean_environment: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store = await create_database(postgres_server.dsn(), "store_of_mail")
    async with ScriptedModel(REPLIES) as model, imap_server() as imap, smtp_server() as smtp:
        tables = ",".join(f"company.{table}" for table in company.allowed_tables)
        for name, value in {
            "OPENAI_BASE_URL": model.base_url,
            "BOS_MODEL": "any-name",
            "BOS_DATABASE_URL": company.url.get_secret_value(),
            "BOS_DATABASE_ALLOWED_TABLES": tables,
            "BOS_STANDALONE_REST": "false",
            "BOS_MAIL_INTERNAL_HOSTS": json.dumps({"127.0.0.1": ["127.0.0.0/8"]}),
        }.items():
            monkeypatch.setenv(name, value)
        settings = StandaloneSettings.load(data_dir=tmp_path, store_url=SecretStr(store))
        async with (
            serve_all(settings, Telemetry.for_tests("standalone")) as product,
            BosClient(product.target, api_key=product.api_key) as bos,
            ConnectionClient(product.addresses["identity"], api_key=product.api_key) as identity,
        ):
            (mail,) = [each.card for each in await bos.agents() if each.card.name == "mail"]
            assert "mail_agent" in mail.aliases

            without = await bos.ask(LOOKS)
            assert without.status == RunStatus.RUN_STATUS_FAILED
            assert "bos mail connect" in str(without)

            await identity.connect("mail.imap", PASSWORD, _fields(imap.port, smtp.port))
            imap.put(OFFER)
            found = await bos.ask(LOOKS)
            assert found.status == RunStatus.RUN_STATUS_SUCCEEDED, found

            skipped = await bos.ask(SENDS)
            assert "requires human approval" in str(skipped) or "approval" in str(skipped)
            assert smtp.taken == []

            shown, finished = await _approved(bos)
            assert (shown["to"], shown["body"]) == (
                ["asha@supplier.example"],
                "Dear Asha,\n\nwe accept.\n\nAda",
            )
            assert finished.status == RunStatus.RUN_STATUS_SUCCEEDED, finished
            (envelope,) = smtp.taken
            assert envelope.rcpt_tos == ["asha@supplier.example"]
        # The mail quotes the password; what is kept does not.
        async with connect(store, schema="gateway") as session:
            rows = await session.fetch("SELECT * FROM run_events")
        kept = b"".join(each for row in rows for each in row if isinstance(each, bytes))
        assert b"We offer 12 pumps" in kept
        assert PASSWORD.encode() not in kept
        assert b"[secret mail.imap]" in kept


def _fields(imap: int, smtp: int) -> dict[str, str]:
    return {
        "user": USER,
        **{f"{name}_host": "127.0.0.1" for name in ("imap", "smtp")},
        **{f"{name}_security": "none" for name in ("imap", "smtp")},
        "imap_port": str(imap),
        "smtp_port": str(smtp),
    }


async def _approved(bos: BosClient) -> tuple[dict[str, Any], Any]:
    """Arguments that were shown, and the response, of the question that sends."""
    shown: dict[str, Any] = {}
    event = RunEvent()
    async for event in bos.ask_stream(SENDS):
        if event.HasField("approval_requested"):
            approval = event.approval_requested.approval
            shown = from_value_map(approval.actions[0].arguments)
            await bos.approve(approval.approval_id)
    return shown, event.run_finished.response
