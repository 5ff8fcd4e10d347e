"""Agent contract of the mail agent, with real mail servers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from bos.agent.v1 import AgentInput
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import to_value
from bos_llm import Models
from bos_mail.service import serve
from bos_mail.settings import MailSettings
from bos_testkit.agent_contract import Process, Rule, Subject, every_rule, serving
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import ScriptedModel

from .conftest import LOOPBACK, connection
from .mail_servers import PASSWORD

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from .mail_servers import ImapServer, SmtpServer

TEXT = fixture(
    "text", ["### From"], schema="MailText", json={"subject": "Hello", "body": "Dear Max,\n\nAda"}
)


@pytest.fixture
async def subject(imap: ImapServer, smtp: SmtpServer) -> AsyncIterator[Subject]:
    telemetry = Telemetry.for_tests("mail")
    example = AgentInput(
        task="Greet max@example.com",
        tools=["send_email"],
        tool_name="send_email",
        sub_task_input={"to": to_value(["max@example.com"])},
        connections=[connection(imap, smtp)],
        secrets={"mail.imap": PASSWORD},
    )
    async with (
        ScriptedModel([TEXT]) as model,
        Models(model_settings(model, max_attempts=1), telemetry) as models,
    ):
        yield Subject(
            name="mail",
            example=example,
            model=model,
            serve=serving(serve, MailSettings, telemetry, models, internal_hosts=LOOPBACK),
            telemetry=telemetry,
            process=Process("bos_mail", {"BOS_MAIL_INTERNAL_HOSTS": json.dumps(LOOPBACK)}),
            proposing=example,
            performed=lambda: len(smtp.taken),
        )


@every_rule
async def test_contract(rule: Rule, subject: Subject) -> None:
    await rule(subject)
