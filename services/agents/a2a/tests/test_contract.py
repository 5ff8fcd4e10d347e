"""Agent contract of the A2A agent, with a real remote agent."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bos.agent.v1 import AgentInput
from bos_a2a.service import serve
from bos_a2a.settings import A2aSettings
from bos_chassis.values import to_value
from bos_testkit.agent_contract import Rule, Subject, agent_subject, answers, own_rules, refusals

from .conftest import NAME, NETWORKS, written
from .remote_agent import RemoteAgent, served

TASK = "What is invoice 7?"
REPLIES = [written(TASK, "Please tell me the amount of invoice 7.")]
EXAMPLE = AgentInput(task=TASK, tools=["send_message"])
PROPOSING = AgentInput(
    task="Pay invoice 7",
    tools=["send_message"],
    tool_name="send_message",
    sub_task_input={"message": to_value("Please pay invoice 7.")},
)


@asynccontextmanager
async def opened(*, reads: bool) -> AsyncIterator[Subject]:
    remote = RemoteAgent()
    async with served(remote) as url:
        servers = {NAME: {"url": url, "networks": NETWORKS, "reads": reads}}
        async with agent_subject(
            *(NAME, serve, A2aSettings, REPLIES, EXAMPLE),
            package="a2a",
            servers=servers,
            environment={"BOS_A2A_SERVERS": json.dumps(servers)},
            proposing=PROPOSING,
            performed=lambda: len(remote.messages),
        ) as subject:
            yield subject


@own_rules
async def test_contract(rule: Rule) -> None:
    async with opened(reads=True) as subject:
        await rule(subject)


@pytest.mark.parametrize(
    "rule", [answers.same_step_twice_has_the_same_result, refusals.nothing_is_performed_unapproved]
)
async def test_contract_of_proposals(rule: Rule) -> None:
    async with opened(reads=False) as subject:
        await rule(subject)
