from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
import pytest_asyncio

from bos_mail.service import serve
from bos_mail.settings import MailSettings
from bos_testkit.fixtures.agent_harness import AgentHarness, StartAgent, StepOutcome
from bos_testkit.scripted_model.replies import Fixture, fixture

from .mail_servers import (
    LOOPBACK,
    PASSWORD,
    ImapServer,
    SmtpServer,
    connection,
    imap_server,
    smtp_server,
)

SUMMARY = fixture("summary", ["### Action"], schema="MailSummary", json={"result": "Done so."})
TEXT = fixture(
    "text",
    ["### From"],
    schema="MailText",
    json={"subject": "Pumps", "body": "Dear Asha,\n\nwe take all 12.\n\nAda"},
)


class Mail(AgentHarness):
    """The mail agent; its steps have one connection unless others are given."""

    imap: ImapServer
    smtp: SmtpServer

    async def do(self, task: str = "Do it", inputs: Any = None, **arguments: Any) -> StepOutcome:
        """Execute a step with ``tool``, and ``secret`` for its ``connections``."""
        given = {**self.step, **arguments}
        tool, secret = given.pop("tool", ""), given.pop("secret", PASSWORD)
        fields = {
            "tool_name": tool,
            "tools": (tool,) if tool else (),
            "secrets": {each.kind: secret for each in given["connections"]},
            "context": {"current_date": "2026-06-15"},
            **given,
        }
        return await super().do(task, inputs, **fields)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def imap_process() -> AsyncIterator[ImapServer]:
    """One server for all tests, because its start takes a second."""
    async with imap_server() as server:
        yield server


@pytest.fixture
def imap(imap_process: ImapServer) -> ImapServer:
    imap_process.reset()
    return imap_process


@pytest.fixture
async def smtp(stack: AsyncExitStack) -> SmtpServer:
    return await stack.enter_async_context(smtp_server())


@pytest.fixture
def start(start_agent: StartAgent, imap: ImapServer, smtp: SmtpServer) -> Any:
    async def start(*replies: Fixture, **changes: Any) -> Mail:
        settings = {
            "internal_hosts": LOOPBACK,
            "harness": Mail,
            "step": {"connections": (connection(imap, smtp),)},
            **changes,
        }
        mail: Mail = await start_agent("mail", serve, MailSettings, *replies, **settings)
        mail.imap, mail.smtp = imap, smtp
        return mail

    return start


@pytest.fixture
async def mail(start: Any) -> Any:
    return await start(TEXT, SUMMARY)
