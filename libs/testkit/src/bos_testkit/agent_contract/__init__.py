"""The agent contract as tests, for agents of any author and language.

A test module makes a :class:`Subject` of its agent and runs all rules::

    @every_rule
    async def test_contract(rule: Rule, subject: Subject) -> None:
        await rule(subject)

A rule raises :class:`ContractBroken`, which says what the contract wants. What only this agent does
has tests of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from bos_testkit.agent_contract import answers, endings, refusals
from bos_testkit.agent_contract.subject import (
    ContractBroken,
    Process,
    Subject,
    agent_subject,
    counted,
    serving,
)

__all__ = [
    "RULES",
    "ContractBroken",
    "Process",
    "Rule",
    "Subject",
    "agent_subject",
    "counted",
    "every_rule",
    "own_rules",
    "serving",
]

Rule = Callable[[Subject], Awaitable[None]]

RULES: tuple[Rule, ...] = (
    answers.card_is_valid,
    answers.health_needs_no_credentials,
    answers.example_has_a_valid_result,
    answers.progress_is_well_formed,
    answers.same_step_twice_has_the_same_result,
    answers.taint_is_carried_on,
    answers.what_is_known_of_the_user_reaches_every_prompt,
    answers.metadata_and_trace_are_taken_over,
    answers.steps_at_once_are_kept_apart,
    refusals.bad_input_is_refused_with_field_and_fix,
    refusals.hostile_input_is_no_defect,
    refusals.unauthenticated_callers_are_refused,
    refusals.nothing_is_performed_unapproved,
    refusals.secrets_are_never_echoed,
    endings.deadline_reaches_the_bottom,
    endings.cancellation_reaches_the_bottom,
    endings.too_many_steps_are_refused,
    endings.shutdown_lets_steps_end,
)

KIT_RULES = frozenset(
    {
        answers.health_needs_no_credentials,
        answers.metadata_and_trace_are_taken_over,
        refusals.bad_input_is_refused_with_field_and_fix,
        endings.too_many_steps_are_refused,
    }
)
"""Rules that agentkit keeps for every agent that is served by it."""

every_rule = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
"""Runs a test for each rule: agents of any author."""

own_rules = pytest.mark.parametrize(
    "rule", [rule for rule in RULES if rule not in KIT_RULES], ids=lambda rule: rule.__name__
)
"""Runs a test for each rule that an agent served by agentkit can break."""
