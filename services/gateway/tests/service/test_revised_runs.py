"""Revised runs on a whole gateway: events, planner requests, and results that are kept."""

from __future__ import annotations

from uuid import uuid4

import pytest
from gateway_harness.answering import APPROVE, Following, respond, until_released
from gateway_harness.harness import Harness
from gateway_harness.stored import adoptions, fetch, log_of, until

from bos.gateway.v1 import (
    APPROVAL_STATUS_APPROVED,
    RUN_STATUS_CLARIFICATION_NEEDED,
    RUN_STATUS_PARTIALLY_SUCCEEDED,
    RUN_STATUS_SUCCEEDED,
    Approval,
)
from bos.runlog.v1 import ApprovalResolved, LogEvent
from bos_agentkit import AgentFailure, agent_card
from bos_gateway.run_log.notifications import CHANNEL
from bos_testkit.agents import EchoAgent, FailingAgent
from bos_testkit.plans import step


def broken(error: str = "HttpError") -> FailingAgent:
    failure = AgentFailure(error, "The other side is broken.")
    return FailingAgent("broken", error=failure, card=agent_card("broken", "Fails."))


@pytest.mark.requirement("B-20", "C-18", "C-20", "C-24")
async def test_revision_request_holds_failures_and_results(harness: Harness) -> None:
    await harness.add_agent(EchoAgent("echo", data={"x": 7}))
    await harness.add_agent(broken())
    harness.planner.steps = [step("a", "echo"), step("b", "broken", "", "a", n=1)]
    harness.planner.revisions = [[step("c", "echo", "use @{outputs.a.x}")]]
    async with harness.gateway(max_steps=5) as gateway:
        response = await gateway.ask("Both?", trace=True)
        run = await gateway.run(response.run_id)
        harness.planner.revisions = [[step("c", "echo", "use @{outputs.a.x}"), step("d", "broken")]]
        lost = await gateway.ask("Both?")
        counted = [
            gateway.metric("bos_run_revisions_total", outcome=outcome)
            for outcome in ("planned", "failed")
        ]
    assert counted == [2, 1]
    assert lost.status == RUN_STATUS_PARTIALLY_SUCCEEDED
    of_mended, of_lost = harness.composer.requests
    assert not of_mended.HasField("working_context")
    assert len(of_lost.working_context.errors_encountered) == 2
    first, second, *_ = harness.planner.requests
    assert not first.HasField("revision")
    assert (second.question, second.max_steps) == ("Both?", 3)
    revision = second.revision
    assert revision.revision == 1
    assert [each.step_id for each in revision.failed_plan.steps] == ["a", "b"]
    (failed,) = revision.failed_steps
    assert (failed.step_id, failed.agent, failed.error.type) == ("b", "broken", "HttpError")
    achieved, tried = revision.execution_context
    assert (achieved.step_id, list(achieved.output_fields)) == ("a", ["answer", "x"])
    assert (tried.step_id, tried.succeeded, tried.sub_task_input["n"].int64_value) == (
        "b",
        False,
        1,
    )
    assert response.status == RUN_STATUS_SUCCEEDED
    assert [each.message for each in response.trace if each.agent == "broken"] == [
        "The other side is broken."
    ]
    assert (run.revision, [each.step_id for each in run.plan.steps]) == (1, ["c"])
    assert "replanning 1 succeeded" in [each.entry for each in run.journal]


@pytest.mark.requirement("C-23")
async def test_planner_questions_in_a_revision_end_the_run(harness: Harness) -> None:
    """A plan beside the questions counts for nothing, not even if it could not be taken."""
    await harness.plan(EchoAgent("echo"), broken())
    harness.planner.revisions = [[step("a", "echo", "otherwise")]]
    harness.planner.asks_in_revision = "Which of them?"
    async with harness.gateway() as gateway:
        response = await gateway.ask("Both?")
    assert response.status == RUN_STATUS_CLARIFICATION_NEEDED
    assert [each.question for each in response.clarification.questions] == ["Which of them?"]
    assert [each.agent_name for each in response.agent_results] == ["echo", "broken"]


async def test_only_a_planner_at_fault_is_logged_and_introduced(harness: Harness) -> None:
    await harness.plan(broken())
    async with harness.gateway() as gateway:
        for revised, error_type, text, faults in (
            (step("c", "broken"), "NoNewPlan", "There is no other plan.", 0),
            (step("c", "unknown"), "InvalidPlan", "The question could not be planned: ", 1),
        ):
            harness.planner.revisions = [[revised]]
            response = await gateway.ask("Both?", trace=True)
            ((found, message),) = [
                (event.data["type"].string_value, event.message)
                for event in response.trace
                if event.agent == "planner" and "type" in event.data
            ]
            assert found == error_type
            assert message.startswith(text)
            logged = [each["event"] for each in gateway.telemetry.logs]
            assert logged.count("planner made an invalid plan") == faults


async def test_void_decision_does_not_wake_a_waiting_run_again(harness: Harness) -> None:
    """Such as one about a step of a plan that is no longer in force."""
    await harness.plan_deployment()
    async with harness.gateway() as gateway:
        following = Following(gateway)
        approval = await following.asked()
        await until_released(harness.dsn, approval.run_id)
        void = Approval(approval_id=str(uuid4()), step_id="a", status=APPROVAL_STATUS_APPROVED)
        event = LogEvent(approval_resolved=ApprovalResolved(approval=void))
        await fetch(
            harness.dsn,
            "INSERT INTO run_inputs (run_id, kind, input_key, payload) "
            "VALUES ($1, 'approval', $2, $3)",
            *(approval.run_id, void.approval_id, event.SerializeToString()),
        )
        await fetch(harness.dsn, "SELECT pg_notify($1, 'released')", CHANNEL)
        await until(harness.dsn, "NOT EXISTS (SELECT FROM run_inputs)")
        await until_released(harness.dsn, approval.run_id)
        assert adoptions(await log_of(harness.dsn)).total() == 1
        # The one that counts is still awaited.
        await respond(gateway, approval, APPROVE)
        events = await following.end()
    assert events[-1].run_finished.response.status == RUN_STATUS_SUCCEEDED
