"""Agent contract of the A2A agent, with a real remote agent."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from bos.agent.v1 import AgentInput
from bos_a2a.service import serve
from bos_a2a.settings import A2aSettings
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import to_value
from bos_llm import Models
from bos_testkit.agent_contract import (
    Process,
    Rule,
    Subject,
    answers,
    every_rule,
    refusals,
    serving,
)
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.server import ScriptedModel

from .conftest import NAME, NETWORKS, written
from .remote_agent import RemoteAgent, served

TASK = "What is invoice 7?"
REPLIES = [written(TASK, "Please tell me the amount of invoice 7.")]
PROPOSING = AgentInput(
    task="Pay invoice 7",
    tools=["send_message"],
    tool_name="send_message",
    sub_task_input={"message": to_value("Please pay invoice 7.")},
)


@asynccontextmanager
async def opened(*, reads: bool) -> AsyncIterator[Subject]:
    telemetry, remote = Telemetry.for_tests("a2a"), RemoteAgent()
    async with (
        served(remote) as url,
        ScriptedModel(REPLIES) as model,
        Models(model_settings(model, max_attempts=1), telemetry) as models,
    ):
        servers = {NAME: {"url": url, "networks": NETWORKS, "reads": reads}}
        yield Subject(
            name=NAME,
            example=AgentInput(task=TASK, tools=["send_message"]),
            model=model,
            serve=serving(serve, A2aSettings, telemetry, models, servers=servers),
            telemetry=telemetry,
            process=Process("bos_a2a", {"BOS_A2A_SERVERS": json.dumps(servers)}),
            proposing=PROPOSING,
            performed=lambda: len(remote.messages),
        )


@every_rule
async def test_contract(rule: Rule) -> None:
    async with opened(reads=True) as subject:
        await rule(subject)


@pytest.mark.parametrize(
    "rule",
    [
        answers.example_has_a_valid_result,
        answers.same_step_twice_has_the_same_result,
        answers.taint_is_carried_on,
        refusals.nothing_is_performed_unapproved,
        refusals.secrets_are_never_echoed,
    ],
)
async def test_contract_of_proposals(rule: Rule) -> None:
    async with opened(reads=False) as subject:
        await rule(subject)
