"""The suite of the agent contract: an honest agent passes, and every rule catches who breaks it."""

import os
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bos.agent.v1 import AgentInput
from bos_chassis.telemetry import Telemetry
from bos_llm import Models
from bos_testkit.agent_contract import (
    RULES,
    ContractBroken,
    Process,
    Rule,
    Subject,
    answers,
    endings,
    every_rule,
    refusals,
)
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import ScriptedModel

from . import contract_agents as agents

HERE = str(Path(__file__).parent)
BEFORE = os.environ.get("PYTHONPATH", "")
ENVIRONMENT = {
    "PYTHONPATH": os.pathsep.join(filter(None, (HERE, BEFORE))),
    "GRPC_ENABLE_FORK_SUPPORT": "0",
}

KNOWN_USER = answers.what_is_known_of_the_user_reaches_every_prompt
BROKEN: list[tuple[Rule, dict[str, Any], str]] = [
    (answers.card_is_valid, {"agent": agents.WithoutUseCases}, "examples of questions"),
    (answers.health_needs_no_credentials, {"bare": True}, "health of '' needs no credentials"),
    (answers.example_has_a_valid_result, {"servicer": agents.Nameless}, "names the agent"),
    (answers.progress_is_well_formed, {"servicer": agents.Timeless}, "says when it happened"),
    (answers.same_step_twice_has_the_same_result, {"agent": agents.Forgetful}, "ends the same"),
    (answers.taint_is_carried_on, {"servicer": agents.Laundering}, "tainted input is tainted"),
    (KNOWN_USER, {"agent": agents.Impersonal}, "stands in every prompt"),
    (KNOWN_USER, {"agent": agents.Credulous}, "has UNTRUSTED_NOTICE"),
    (answers.metadata_and_trace_are_taken_over, {"bare": True}, "trace of its caller"),
    (answers.steps_at_once_are_kept_apart, {"servicer": agents.Confused}, "the result is of step"),
    (refusals.bad_input_is_refused_with_field_and_fix, {"bare": True}, "the call is refused"),
    (refusals.hostile_input_is_no_defect, {"agent": agents.Trusting}, "a tool that is not there"),
    (
        refusals.unauthenticated_callers_are_refused,
        {"auth": {"run_token_public_keys": None}},
        "Describe with no key is refused",
    ),
    (
        refusals.unauthenticated_callers_are_refused,
        {"audience": "another_agent"},
        "a token of another audience is refused",
    ),
    (refusals.nothing_is_performed_unapproved, {"agent": agents.Hasty}, "before the approval"),
    (refusals.nothing_is_performed_unapproved, {"agent": agents.Careless}, "fails its step"),
    (refusals.secrets_are_never_echoed, {"agent": agents.Talkative}, "what the agent sends"),
    (endings.deadline_reaches_the_bottom, {"agent": agents.Deaf}, "is called off with it"),
    (endings.cancellation_reaches_the_bottom, {"agent": agents.Deaf}, "is called off with it"),
    (endings.too_many_steps_are_refused, {"servicer": agents.Greedy}, "no place is refused"),
]


@pytest.fixture
async def subject() -> AsyncIterator[Subject]:
    telemetry = Telemetry.for_tests(agents.NAME)
    async with (
        ScriptedModel([fixture("a word", ["Say a word"], text="Good day.")]) as model,
        Models(model_settings(model, max_attempts=1), telemetry) as models,
    ):
        yield Subject(
            name=agents.NAME,
            example=AgentInput(task="Ask the model"),
            model=model,
            serve=agents.Serving(models, telemetry),
            telemetry=telemetry,
            process=Process("contract_agents", ENVIRONMENT),
            proposing=AgentInput(task="Leave it", tool_name="leave_mark", tools=["leave_mark"]),
            performed=lambda: len(agents.MARKS),
        )


@every_rule
async def test_an_honest_agent_passes(rule: Rule, subject: Subject) -> None:
    await rule(subject)


@pytest.mark.parametrize(
    ("rule", "changes", "says"), BROKEN, ids=[f"{rule.__name__}-{says}" for rule, _, says in BROKEN]
)
async def test_an_agent_that_breaks_a_rule_is_caught(
    rule: Rule, changes: dict[str, Any], says: str, subject: Subject
) -> None:
    # What these agents never do needs no patience: waiting longer changes no verdict.
    broken = replace(
        subject,
        serve=replace(subject.serve, **changes),  # type: ignore[type-var]
        patience_s=0.2,
    )
    with pytest.raises(ContractBroken, match=says):
        await rule(broken)


async def test_a_process_that_drops_its_steps_at_sigterm_is_caught(subject: Subject) -> None:
    hasty = Process("contract_agents", {**ENVIRONMENT, "BOS_SERVER_GRACE_S": "0"})
    with pytest.raises(ContractBroken, match="under way at SIGTERM ends"):
        await endings.shutdown_lets_steps_end(replace(subject, process=hasty))


async def test_an_unknown_protected_tool_is_a_broken_contract(subject: Subject) -> None:
    with pytest.raises(ContractBroken, match="leave_mark"):
        await refusals.nothing_is_performed_unapproved(replace(subject, proposing=None))


def test_every_rule_is_seen_to_fail() -> None:
    assert {rule for rule, _, _ in BROKEN} | {endings.shutdown_lets_steps_end} == set(RULES)
