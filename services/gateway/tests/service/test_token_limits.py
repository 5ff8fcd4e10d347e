"""Tokens of a run and of a day at gateways: what is handed out, refused, and counted."""

from typing import Any

from gateway_harness.admission import AS_ANNA, as_account, days
from gateway_harness.answering import refusal
from gateway_harness.harness import Harness
from gateway_harness.stored import fetch, until

from bos.agent.v1 import AGENT_EXECUTION_STATUS_SUCCEEDED, AgentResult
from bos.common.v1 import Usage
from bos.gateway.v1 import RUN_STATUS_SUCCEEDED
from bos_agentkit import AgentFailure, AgentTask, agent_card
from bos_errors import Unavailable
from bos_gateway.core import budget as budgets
from bos_testkit.agents import EchoAgent, FailingAgent, RecordingAgent
from bos_testkit.plans import step


class Spender(RecordingAgent):
    """Says that it consumed 9100 tokens."""

    async def behave(self, task: AgentTask) -> AgentResult:
        usage = Usage(input_tokens=9000, output_tokens=100)
        return AgentResult(status=AGENT_EXECUTION_STATUS_SUCCEEDED, answer="done", usage=usage)


async def test_budget_reaches_planner_agents_and_composer(harness: Harness) -> None:
    agent = EchoAgent()
    await harness.add_agent(agent)
    harness.planner.steps = [step("a", "echo"), step("b", "echo")]
    async with harness.gateway(max_run_tokens=10_000) as gateway:
        response = await gateway.ask()
        lowered = await gateway.ask(max_tokens=4000)
        kept = await gateway.ask(max_tokens=20_000)
        harness.composer.error = Unavailable("Gone.")
        failed = await gateway.ask()
        harness.composer.error = None
    assert harness.planner.requests[0].token_budget == 2500
    # Three quarters: the rest is kept for another attempt.
    assert [given.token_budget for given in list(agent.inputs)[:2]] == [3000, 3000]
    assert harness.composer.requests[0].token_budget == 5000
    assert response.status == RUN_STATUS_SUCCEEDED
    assert failed.metadata.usage.unreported_tokens == 5000
    frozen = [each.metadata.max_tokens for each in (response, lowered, kept)]
    assert frozen == [10_000, 4000, 10_000]
    async with harness.gateway() as gateway:
        unbounded = await gateway.ask()
        chosen = await gateway.ask(max_tokens=6000)
        most = await gateway.ask(max_tokens=2**63 - 1)
    requests = [harness.planner.requests[-3], agent.inputs[-6], harness.composer.requests[-3]]
    assert not any(request.HasField("token_budget") for request in requests)
    assert [each.metadata.max_tokens for each in (unbounded, chosen, most)] == [
        *(0, 6000, budgets.MAX_RUN_TOKENS)
    ]


async def test_attempts_at_a_step_share_what_is_held_for_it(harness: Harness) -> None:
    failure = AgentFailure("HttpError", "Try again.", retryable=True)
    card = agent_card("failing", "Fails once.", max_retries=1)
    agent = await harness.plan(FailingAgent("failing", error=failure, times=1, card=card))
    async with harness.gateway(max_run_tokens=10_000) as gateway:
        response = await gateway.ask()
    assert response.status == RUN_STATUS_SUCCEEDED
    # The first reported that it consumed nothing, so the second may take all.
    assert [given.token_budget for given in agent.inputs] == [6000, 8000]


async def test_day_limit_refuses_runs_and_plans_and_is_settled(harness: Harness, pool: Any) -> None:
    await harness.plan(Spender("echo"))
    bounds = {"max_run_tokens": 20_000, "max_user_day_tokens": 10_000}
    async with harness.gateway(auth=as_account(), maintenance_interval_s=0.05, **bounds) as gateway:
        anna = gateway.by(AS_ANNA)
        first = await anna.ask()
        errors = [await refusal(call) for call in (anna.ask(), anna.plan())]
        assert gateway.metric("bos_runs_refused_total", reason="day_limit") == 2
        await until(harness.dsn, "bool_and(token_day IS NULL) FROM runs")
    used = first.metadata.usage
    spent = used.input_tokens + used.output_tokens + used.unreported_tokens
    assert spent >= 9000
    assert first.metadata.max_tokens == 10_000  # lowered to what the day allows
    for error in errors:
        assert error.reason == "USER_DAY_LIMIT"
        assert error.metadata["used_tokens"] == str(spent)
        assert error.metadata["limit_tokens"] == "10000"
        assert error.metadata["reset_time"].endswith("T00:00:00Z")
        assert 0 < error.retry_after_s <= 86_400
    assert len(harness.planner.requests) == 1
    rows = await fetch(harness.dsn, "SELECT user_id, tokens FROM token_days")
    assert dict(map(tuple, rows)) == await days(pool) == {"anna": spent, "": spent}


async def test_plan_of_a_dry_run_gets_what_the_day_has_left(harness: Harness) -> None:
    await harness.add_agent(EchoAgent())
    bounds = {"max_run_tokens": 20_000, "max_user_day_tokens": 3000}
    async with harness.gateway(auth=as_account(), **bounds) as gateway:
        await gateway.by(AS_ANNA).plan()
    assert harness.planner.requests[0].token_budget == 3000
