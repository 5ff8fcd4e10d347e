"""kill -9 of the agent at any point of sending: no message goes out twice.

``BOS_TEST_KILLS`` says how often (3 in the suite), ``BOS_TEST_SEED`` where; a failure names both.
"""

import asyncio
import json
import os
import random
import sys
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import grpc
import pytest

from bos.agent.v1 import (
    AgentExecutionStatus,
    AgentInput,
    AgentServiceStub,
    ApprovalContext,
    ExecuteRequest,
    ProposedAction,
    SideEffectClass,
    TaskMetadata,
)
from bos_agentkit import action_digest
from bos_chassis.values import to_value_map
from bos_testkit.processes import free_port

from .mail_servers import LOOPBACK, PASSWORD, ImapServer, SmtpServer, connection

KILLS = int(os.environ.get("BOS_TEST_KILLS", "3"))
SEED = int(os.environ.get("BOS_TEST_SEED", "1"))
POINTS = ("before", "during_data", "after_data", "after_reply")
SUCCEEDED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED

pytestmark = [pytest.mark.process, pytest.mark.timeout(120 + 20 * KILLS)]


@asynccontextmanager
async def agent_process() -> AsyncIterator[tuple[Process, Any]]:
    """The agent as a process of its own, and a stub of it."""
    port = free_port()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "bos_mail"),
        env={
            "PATH": os.environ["PATH"],
            "BOS_MAIL_SERVER__PORT": str(port),
            "BOS_MAIL_INTERNAL_HOSTS": json.dumps(LOOPBACK),
        },
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            async with asyncio.timeout(60):
                await channel.channel_ready()
            yield process, AgentServiceStub(channel)
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def message(number: int) -> ProposedAction:
    arguments = to_value_map(
        {
            "sender": "ada@example.com",
            "to": ["max@example.com"],
            "cc": [],
            "bcc": [],
            "subject": f"Message {number}",
            "body": "Dear Max,\n\nAda",
            "attachments": [],
        }
    )
    return ProposedAction(
        action_id=f"send_email-{number}",
        tool="send_email",
        arguments=arguments,
        digest=action_digest("send_email", arguments),
        side_effect=SideEffectClass.SIDE_EFFECT_CLASS_IDEMPOTENT,
    )


async def perform(stub: Any, number: int, imap: ImapServer, smtp: SmtpServer) -> Any:
    """The result of the approved step; None if its process died."""
    request = AgentInput(
        agent_name="mail",
        task="Greet Max",
        tools=["send_email"],
        metadata=TaskMetadata(user_id="ada", run_id="r", step_key=f"r/0/{number}", attempt=1),
        connections=[connection(imap, smtp)],
        secrets={"mail.imap": PASSWORD},
        approval_context=ApprovalContext(approval_id="a", approved_actions=[message(number)]),
    )
    try:
        async for part in stub.Execute(ExecuteRequest(input=request), timeout=60):
            if part.WhichOneof("payload") == "result":
                return part.result
    except grpc.aio.AioRpcError:
        return None
    return None


async def broken_off(
    process: Process, stub: Any, number: int, point: str, delay_s: float, *servers: Any
) -> None:
    """Perform, and kill the process at ``point``."""
    smtp: SmtpServer = servers[1]

    async def kill() -> None:
        with suppress(ProcessLookupError):
            process.kill()

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
    await perform(stub, number, *servers)
    await process.wait()
    smtp.during_data = smtp.after_data = None


async def outcome_of(stub: Any, number: int, where: str, imap: ImapServer, smtp: SmtpServer) -> str:
    """What later attempts say, and that it is true."""
    again = await perform(stub, number, imap, smtp)
    thrice = await perform(stub, number, imap, smtp)
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
        async with agent_process() as (process, stub):
            if number:
                name = f"{point}: {await outcome_of(stub, number - 1, where, imap, smtp)}"
                outcomes[name] = outcomes.get(name, 0) + 1
            if number < KILLS:
                point = POINTS[number % len(POINTS)] if KILLS > 3 else POINTS[1 + number]
                delay_s = chance.uniform(0.0, 0.4)
                where = f"kill {number} of seed {SEED}, {point} after {delay_s:.3f} s"
                await broken_off(process, stub, number, point, delay_s, imap, smtp)
    print(f"seed {SEED}: {outcomes}")
    assert len(smtp.taken) == len({each.content for each in smtp.taken})
