from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import pytest_asyncio

from bos_mail.service import serve
from bos_mail.settings import MailSettings
from bos_testkit.fixtures.agent_harness import AgentHarness

from .mail_servers import LOOPBACK, PASSWORD, connection, imap_server, smtp_server

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AsyncExitStack

    from bos_testkit.fixtures.agent_harness import StartAgent, StepOutcome
    from bos_testkit.scripted_model.replies import Fixture

    from .mail_servers import ImapServer, SmtpServer


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
        outcome: StepOutcome = await super().do(task, inputs, **fields)
        return outcome


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def imap_process() -> AsyncIterator[ImapServer]:
    """One server for all tests, because its start takes a second."""
    async with imap_server() as server:
        yield server


@pytest.fixture
def imap(imap_process: ImapServer) -> ImapServer:
    """The server with an empty mailbox."""
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
