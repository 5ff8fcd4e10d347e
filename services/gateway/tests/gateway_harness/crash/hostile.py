"""Mischief in the random crash test: agents that return anything, and steps that kill their owner.

What is innocent must not notice: its runs end, and do not fail, however often another user's run
takes its gateway down and whichever rows are in the same log table.
"""

import asyncio
from collections.abc import Awaitable, Callable

from bos.agent.v1 import AgentResult
from bos.common.v1 import Value, ValueList
from bos.planner.v1 import Step
from bos_testkit.plans import step
from gateway_harness.raw_agents import RawAgent, success
from gateway_harness.run_contract import MISCHIEF, POISON

PATIENCE = "patience"
"""In a question: one of its steps takes longer than a poison needs to kill."""
SLOW_S = 1.5
KILLS_AFTER_S = 0.5
_INT64_MAX = 2**63 - 1
_REFERENCED = 250_000


def _negative(result: AgentResult) -> None:
    result.usage.input_tokens = -5
    result.usage.model_calls = -1
    result.usage.cost_micros = -_INT64_MAX
    result.latency.seconds = -1


def _huge(result: AgentResult) -> None:
    result.usage.input_tokens = _INT64_MAX
    result.usage.output_tokens = _INT64_MAX
    result.usage.abandoned_calls = 2**31 - 1
    result.confidence = float("nan")


def _deep(result: AgentResult) -> None:
    """As deep as it can be and still reach the gateway, but not be read from its log."""
    value = Value(string_value="x")
    for _ in range(47):
        value = Value(list_value=ValueList(values=[value]))
    result.data.fields["k"].CopyFrom(value)


def _wide(result: AgentResult) -> None:
    for n in range(30_000):
        result.data.fields[f"k{n}"].int64_value = n


def _long(result: AgentResult) -> None:
    result.answer = "x" * 3_000_000


def _empty(result: AgentResult) -> None:
    result.Clear()


_MISCHIEF: dict[str, Callable[[AgentResult], None]] = {
    "negative": _negative,
    "huge": _huge,
    "deep": _deep,
    "wide": _wide,
    "long": _long,
    "empty": _empty,
}
REFERENCES = {"references": 60, "more references": 2400}
"""Plans with so many of a quarter of a megabyte each."""
KINDS = (*_MISCHIEF, *REFERENCES)
"""What a question with MISCHIEF in it may say to get."""


class HostileAgent(RawAgent):
    """Does as its task says, without any of the checks that agentkit makes."""

    def __init__(self) -> None:
        super().__init__("hostile", lambda _: self._result(), capabilities=["hostile"])
        self.kills: Callable[[str], Awaitable[None]] | None = None
        """Called with the run whose step is to kill its owner."""

    async def _result(self) -> AgentResult:
        given = self.inputs[-1]
        task, result = given.task, success()
        if task == POISON and self.kills is not None:
            await asyncio.sleep(KILLS_AFTER_S)
            await self.kills(given.metadata.step_key.split("/")[0])
            await asyncio.Event().wait()  # until its owner is gone
        elif task == PATIENCE:
            await asyncio.sleep(SLOW_S)
        elif task == "large":
            result.answer = "x" * _REFERENCED
        else:
            _MISCHIEF[task](result)
        return result


def hostile_steps(question: str) -> list[Step] | None:
    """The plan for a question with mischief in it; None for any other."""
    if POISON in question:
        return [step("look", "quick"), step("kill", "hostile", POISON, "look")]
    if PATIENCE in question:
        return [step("slow", "hostile", PATIENCE), step("sum", "quick", "", "slow")]
    if MISCHIEF not in question:
        return None
    for kind in sorted(KINDS, key=len, reverse=True):
        if kind in question and kind in _MISCHIEF:
            return [step("evil", "hostile", kind), step("look", "quick"), step("sum", "quick")]
        if kind in question:
            greedy = step("greedy", "quick")
            reference = Value(string_value="@{outputs.large.answer}")
            values = greedy.sub_task_input["all"].list_value.values
            values.extend([reference] * REFERENCES[kind])
            return [step("large", "hostile", "large"), greedy]
    raise AssertionError(question)
