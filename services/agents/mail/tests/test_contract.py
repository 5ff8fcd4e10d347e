"""Agent contract of the mail agent, with real mail servers."""

import json
from collections.abc import AsyncIterator

import pytest

from bos.agent.v1 import AgentInput
from bos_chassis.values import to_value
from bos_mail.service import serve
from bos_mail.settings import MailSettings
from bos_testkit.agent_contract import Rule, Subject, agent_subject, own_rules
from bos_testkit.scripted_model.replies import fixture

from .mail_servers import LOOPBACK, PASSWORD, ImapServer, SmtpServer, connection

TEXT = fixture(
    "text", ["### From"], schema="MailText", json={"subject": "Hello", "body": "Dear Max,\n\nAda"}
)


@pytest.fixture
async def subject(imap: ImapServer, smtp: SmtpServer) -> AsyncIterator[Subject]:
    example = AgentInput(
        task="Greet max@example.com",
        tools=["send_email"],
        tool_name="send_email",
        sub_task_input={"to": to_value(["max@example.com"])},
        connections=[connection(imap, smtp)],
        secrets={"mail.imap": PASSWORD},
    )
    async with agent_subject(
        *("mail", serve, MailSettings, [TEXT], example),
        internal_hosts=LOOPBACK,
        environment={"BOS_MAIL_INTERNAL_HOSTS": json.dumps(LOOPBACK)},
        proposing=example,
        performed=lambda: len(smtp.taken),
    ) as subject:
        yield subject


@own_rules
async def test_contract(rule: Rule, subject: Subject) -> None:
    await rule(subject)
