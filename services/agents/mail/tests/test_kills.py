"""kill -9 of the agent at any point of sending: no message goes out twice.

``BOS_TEST_KILLS`` says how often (3 in the suite), ``BOS_TEST_SEED`` where; a failure names both.
"""

import asyncio
import json
import os
import random
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import pytest

from bos.agent.v1 import DescribeRequest, ProposedAction, SideEffectClass
from bos_agentkit import action_digest
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import to_value_map
from bos_testkit.fixtures.agent_harness import SUCCEEDED, AgentHarness
from bos_testkit.processes import forked_service, is_dead
from bos_testkit.scripted_model.server import ScriptedModel
from bos_testkit.waiting import eventually

from .mail_servers import LOOPBACK, PASSWORD, ImapServer, SmtpServer, connection

KILLS = int(os.environ.get("BOS_TEST_KILLS", "3"))
SEED = int(os.environ.get("BOS_TEST_SEED", "1"))
POINTS = ("before", "during_data", "after_data", "after_reply")

pytestmark = [pytest.mark.process, pytest.mark.timeout(120 + 20 * KILLS)]


@asynccontextmanager
async def agent_process(*servers: Any) -> AsyncIterator[tuple[AgentHarness, int]]:
    """The agent as a process of its own, and its process id."""
    settings = {"BOS_SERVER_PORT": "0", "BOS_MAIL_INTERNAL_HOSTS": json.dumps(LOOPBACK)}
    async with (
        forked_service("bos_mail", settings) as process,
        grpc.aio.insecure_channel(process.address) as channel,
    ):
        step = {
            "tools": ["send_email"],
            "connections": [connection(*servers)],
            "secrets": {"mail.imap": PASSWORD},
        }
        telemetry, model = Telemetry.for_tests("mail"), ScriptedModel(())
        agent = AgentHarness("mail", process.address, channel, model, telemetry, step)
        await agent.stub.Describe(DescribeRequest(), timeout=60, wait_for_ready=True)
        yield agent, process.pid


def message(number: int) -> ProposedAction:
    words = {"subject": f"Message {number}", "body": "Dear Max,\n\nAda", "attachments": []}
    people = {"sender": "ada@example.com", "to": ["max@example.com"], "cc": [], "bcc": []}
    arguments = to_value_map({**people, **words})
    return ProposedAction(
        action_id=f"send_email-{number}",
        tool="send_email",
        arguments=arguments,
        digest=action_digest("send_email", arguments),
        side_effect=SideEffectClass.SIDE_EFFECT_CLASS_IDEMPOTENT,
    )


async def perform(agent: AgentHarness, number: int) -> Any:
    try:
        step = await agent.do("Greet Max", approved=message(number), step_key=f"r/0/{number}")
    except grpc.aio.AioRpcError:
        return None
    return step.result


async def broken_off(
    agent: AgentHarness, pid: int, number: int, point: str, delay_s: float, smtp: SmtpServer
) -> None:
    """Perform, and kill the process at ``point``."""

    async def kill() -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)

    async def kill_soon() -> None:
        asyncio.get_running_loop().call_later(delay_s / 10, lambda: asyncio.ensure_future(kill()))

    if point == "before":
        asyncio.get_running_loop().call_later(delay_s, lambda: asyncio.ensure_future(kill()))
    elif point == "during_data":
        smtp.during_data = kill
    elif point == "after_data":
        smtp.after_data = kill
    else:
        smtp.after_data = kill_soon
    await perform(agent, number)
    await eventually(lambda: is_dead(pid), within_s=60)
    smtp.during_data = smtp.after_data = None


async def outcome_of(
    agent: AgentHarness, number: int, where: str, imap: ImapServer, smtp: SmtpServer
) -> str:
    again = await perform(agent, number)
    thrice = await perform(agent, number)
    subject = f"Subject: Message {number}\r\n".encode()
    taken = [each for each in smtp.taken if subject in each.content]
    copies = [each for each in imap.messages("Sent") if subject in each]
    assert len(taken) <= 1, where
    assert len(copies) <= 1, where
    if again.status == SUCCEEDED:
        assert (len(taken), len(copies)) == (1, 1), where
    else:
        # Begun and not shown as sent: the outcome is reported as unknown, and nothing is done.
        assert again.error.type == "OutcomeUnknown", (where, again.error)
        assert again.performed_actions[0].outcome_unknown, where
    assert thrice.status == again.status, where
    return again.error.type or "sent"


@pytest.mark.requirement("I-09")
async def test_no_message_is_sent_twice_after_any_kill(imap: ImapServer, smtp: SmtpServer) -> None:
    chance = random.Random(SEED)
    outcomes: dict[str, int] = {}
    point = where = ""
    for number in range(KILLS + 1):
        async with agent_process(imap, smtp) as (agent, pid):
            if number:
                name = f"{point}: {await outcome_of(agent, number - 1, where, imap, smtp)}"
                outcomes[name] = outcomes.get(name, 0) + 1
            if number < KILLS:
                point = POINTS[number % len(POINTS)] if KILLS > 3 else POINTS[1 + number]
                delay_s = chance.uniform(0.0, 0.4)
                where = f"kill {number} of seed {SEED}, {point} after {delay_s:.3f} s"
                await broken_off(agent, pid, number, point, delay_s, smtp)
    print(f"seed {SEED}: {outcomes}")
    assert len(smtp.taken) == len({each.content for each in smtp.taken})
