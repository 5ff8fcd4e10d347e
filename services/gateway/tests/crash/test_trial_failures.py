"""Trials: ends that PostgreSQL refuses, events from a newer version, calls that break off."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from gateway_harness.harness import result_of
from gateway_harness.trials import (
    HELD_STEP_S,
    add_raw,
    ended_once,
    fetch,
    plan_by_question,
    replica,
    served,
    succeeded,
    until,
)

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_FAILED,
    SIDE_EFFECT_CLASS_IDEMPOTENT,
    SIDE_EFFECT_CLASS_IRREVERSIBLE,
    AgentResult,
)
from bos.common.v1 import AgentError
from bos.composer.v1 import (
    ComposeResponse,
    ComposerOutput,
    ComposerServiceServicer,
    add_ComposerServiceServicer_to_server,
)
from bos.gateway.v1 import RUN_STATUS_FAILED, RUN_STATUS_SUCCEEDED
from bos.planner.v1 import (
    MakePlanResponse,
    Plan,
    PlannerServiceServicer,
    add_PlannerServiceServicer_to_server,
)
from bos_agentkit import tool
from bos_errors import AgentErrorType
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import connect
from bos_testkit.plans import step

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from gateway_harness.harness import Harness

    from bos.agent.v1 import AgentInput, SideEffectClass

BUDGET = 100_000


async def execute(harness: Harness, sql: str, *arguments: object) -> None:
    async with connect(harness.dsn, schema=SCHEMA) as connection:
        await connection.execute(sql, *arguments)


async def refuse_ends(harness: Harness) -> None:
    """PostgreSQL takes no end of a run any more, as if a constraint spoke against it."""
    await execute(
        harness,
        "CREATE FUNCTION no() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE EXCEPTION 'no' USING ERRCODE = '23514'; END $$",
    )
    await execute(
        harness,
        "CREATE TRIGGER no BEFORE INSERT ON run_events FOR EACH ROW "
        "WHEN (NEW.kind = 'run_finished') EXECUTE FUNCTION no()",
    )


async def test_end_that_is_refused_for_good_costs_little_and_comes_once_it_is_taken(
    harness: Harness,
) -> None:
    agent = await add_raw(harness, "good")
    harness.planner.steps = [step("a", "good")]
    async with replica(harness, hold_off_s=0.05) as (_, client, _):
        await refuse_ends(harness)
        call = client.stream("refused?")
        await call.read()
        # Tried, let go, and taken again, often enough to tell for good from for now.
        await until(harness, "bool_and(epoch >= 7) FROM runs")
        assert len(harness.composer.requests) <= 6
        assert len(agent.inputs) == 1
        composed = len(harness.composer.requests)
        await until(harness, "bool_and(epoch >= 8) FROM runs")
        assert len(harness.composer.requests) == composed
        await execute(harness, "DROP TRIGGER no ON run_events")
        # Back-off has grown by now; it is skipped here.
        await execute(harness, "UPDATE runs SET retry_at = now() WHERE replica_id IS NULL")
        await until(harness, "bool_and(finished_at IS NOT NULL) FROM runs")
        await ended_once(harness, "refused?")
        assert (await client.ask("good?")).status == RUN_STATUS_SUCCEEDED
        call.cancel()


async def run_with_newer_event(harness: Harness) -> None:
    """A run under way whose plan was stored by a version to come, which was then taken back."""
    gate = asyncio.Event()

    async def gated(_: AgentInput, __: Any) -> AgentResult:
        await gate.wait()
        return succeeded()

    await add_raw(harness, "gated", gated, default_timeout_s=HELD_STEP_S)
    await add_raw(harness, "good")
    plan_by_question(harness, {"newer": [step("a", "gated")], "good": [step("a", "good")]})
    async with replica(harness) as (process, client, _):
        call = client.stream("newer?")
        await call.read()
        await until(harness, "count(*) = 1 FROM run_events WHERE kind = 'step_dispatched'")
        process.kill()
        await process.wait()
        call.cancel()
    await execute(harness, "UPDATE run_events SET schema_version = 99 WHERE kind = 'planned'")


async def test_run_from_a_newer_version_is_released_without_affecting_others(
    harness: Harness,
) -> None:
    await run_with_newer_event(harness)
    async with replica(harness, hold_off_s=0.5) as (_, client, _):
        await until(harness, "bool_and(epoch >= 4) FROM runs")
        assert (await client.ask("good?")).status == RUN_STATUS_SUCCEEDED
        # It is not ended here: it may be that the newer version comes back.
        (row,) = await fetch(harness, "SELECT finished_at FROM runs WHERE question = 'newer?'")
        assert row["finished_at"] is None
        await execute(harness, "UPDATE run_events SET schema_version = 1 WHERE kind = 'planned'")
        await execute(harness, "UPDATE runs SET retry_at = now() WHERE replica_id IS NULL")
        await until(
            harness, "count(*) = 2 FROM run_events AS e JOIN runs AS r USING (run_id) "
            "WHERE r.question = 'newer?' AND e.kind = 'step_dispatched'"
        )  # fmt: skip


async def test_run_that_is_unreadable_for_hours_is_ended(harness: Harness) -> None:
    await run_with_newer_event(harness)
    async with replica(harness, hold_off_s=0.5) as (_, client, _):
        await until(harness, "bool_and(unreadable_since IS NOT NULL) FROM runs")
        await execute(
            harness,
            "UPDATE runs SET unreadable_since = now() - interval '1 day', retry_at = now() "
            "WHERE replica_id IS NULL",
        )
        await until(harness, "bool_and(finished_at IS NOT NULL) FROM runs")
        end = await ended_once(harness, "newer?")
        assert end.run_finished.response.status == RUN_STATUS_FAILED
        assert (await client.ask("good?")).status == RUN_STATUS_SUCCEEDED


async def test_calls_that_cost_tokens_are_not_repeated_behind_the_budgets_back(
    harness: Harness,
) -> None:
    spent: list[int] = []

    class DyingPlanner(PlannerServiceServicer):
        """Dies twice after it has paid its model."""

        async def MakePlan(self, request: Any, context: Any) -> MakePlanResponse:
            spent.append(request.token_budget)
            if len(spent) < 3:
                await context.abort(grpc.StatusCode.UNAVAILABLE, "died")
            return MakePlanResponse(plan=Plan(steps=[step("a", "good")], origin="test"))

    class DyingComposer(ComposerServiceServicer):
        """The same."""

        async def Compose(self, request: Any, context: Any) -> AsyncIterator[ComposeResponse]:
            spent.append(request.token_budget)
            await context.abort(grpc.StatusCode.UNAVAILABLE, "died")
            yield ComposeResponse(output=ComposerOutput(answer="never"))

    await add_raw(harness, "good")
    harness.planner_target = await served(
        harness,
        DyingPlanner(),
        add_PlannerServiceServicer_to_server,
        "bos.planner.v1.PlannerService",
    )
    harness.composer_target = await served(
        harness,
        DyingComposer(),
        add_ComposerServiceServicer_to_server,
        "bos.composer.v1.ComposerService",
    )
    async with replica(harness, max_run_tokens=BUDGET) as (_, client, _):
        events = await client.events("budget?")
    await ended_once(harness, "budget?")
    usage = events[-1].run_finished.response.metadata.usage
    counted = usage.input_tokens + usage.output_tokens + usage.unreported_tokens
    assert sum(spent) <= counted <= BUDGET


def sending(side_effect: SideEffectClass) -> Any:
    @tool(description="Sends it.", side_effect=side_effect, requires_approval=False)
    async def send(label: str) -> dict[str, Any]:
        raise AssertionError("raw agents do not come to this")

    return send


async def test_action_whose_call_broke_off_has_an_unknown_outcome(harness: Harness) -> None:
    acted = 0

    async def act_and_die(_: AgentInput, context: Any) -> AgentResult:
        nonlocal acted
        acted += 1
        await context.abort(grpc.StatusCode.UNAVAILABLE, "gone after acting")
        raise AssertionError("unreachable")

    tools = (sending(SIDE_EFFECT_CLASS_IRREVERSIBLE),)
    await add_raw(harness, "sender", act_and_die, tools=tools)
    harness.planner.steps = [step("a", "sender")]
    async with replica(harness) as (_, client, _):
        events = await client.events("send it!")
    assert acted == 1
    assert result_of(events, "a").error.type == AgentErrorType.OUTCOME_UNKNOWN


@pytest.mark.parametrize("how", ["says that it failed", "may be repeated"])
async def test_action_is_not_of_unknown_outcome(harness: Harness, how: str) -> None:
    acted = 0

    async def act(_: AgentInput, context: Any) -> AgentResult:
        nonlocal acted
        acted += 1
        if how == "may be repeated" and acted == 1:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "gone after acting")
        if how == "may be repeated":
            return succeeded()
        error = AgentError(type="HttpError", message="nothing was sent")
        return AgentResult(status=AGENT_EXECUTION_STATUS_FAILED, error=error)

    repeatable = how == "may be repeated"
    kind = SIDE_EFFECT_CLASS_IDEMPOTENT if repeatable else SIDE_EFFECT_CLASS_IRREVERSIBLE
    await add_raw(harness, "sender", act, tools=(sending(kind),), max_retries=2)
    harness.planner.steps = [step("a", "sender")]
    async with replica(harness) as (_, client, _):
        events = await client.events("send it!")
    assert result_of(events, "a").error.type == ("" if repeatable else "HttpError")
    assert acted == (2 if repeatable else 1)
