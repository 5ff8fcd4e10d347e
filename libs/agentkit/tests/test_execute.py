"""Steps through real gRPC: time, errors, cancellation."""

import asyncio
import json
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import grpc
import pytest

from bos.agent.v1 import (
    AgentExecutionStatus,
    AgentInput,
    AgentResult,
    AgentServiceStub,
    ApprovalContext,
    DescribeRequest,
    ExecuteRequest,
    InstructionMode,
    ProposedAction,
    RetryConfig,
    SideEffectClass,
)
from bos.common.v1 import Clarification, ClarifyingQuestion, TraceEventType
from bos_agentkit import (
    Agent,
    AgentFailure,
    AgentTask,
    agent_card,
    failed,
    needs_clarification,
    succeeded,
)
from bos_chassis.deadlines import remaining_s
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import from_value_map, make_table, to_value, to_value_map
from bos_errors import (
    AgentErrorType,
    InvalidArgument,
    Unavailable,
    from_rpc_error,
)
from bos_llm import Models, ModelSettings, Usage
from bos_testkit.agents import (
    CountingAgent,
    EchoAgent,
    FailingAgent,
    OneCallAgent,
    RecordingAgent,
    SlowAgent,
    agent_server,
    call_agent,
)
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import ScriptedModel

SUCCEEDED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED
FAILED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_FAILED
AWAITING = AgentExecutionStatus.AGENT_EXECUTION_STATUS_AWAITING_APPROVAL


class CallbackAgent(RecordingAgent):
    """Agent whose behaviour is a function of the test."""

    def __init__(self, do: Callable[[AgentTask], Any], **card: Any) -> None:
        super().__init__("doing", **card)
        self._do = do

    async def behave(self, task: AgentTask) -> AgentResult:
        outcome = self._do(task)
        return await outcome if asyncio.iscoroutine(outcome) else outcome


def limited(seconds: float) -> RetryConfig:
    config = RetryConfig()
    config.timeout.FromTimedelta(timedelta(seconds=seconds))
    return config


async def execute(agent: Agent, input: AgentInput | None = None, **kwargs: Any) -> AgentResult:
    async with agent_server(agent) as address:
        return (await call_agent(address, input or AgentInput(task="t"), **kwargs))[1]


@pytest.mark.requirement("B-14")
async def test_describe_returns_the_card() -> None:
    agent = CountingAgent(protected=True)
    async with agent_server(agent) as address, grpc.aio.insecure_channel(address) as channel:
        card = (await AgentServiceStub(channel).Describe(DescribeRequest(), timeout=5)).card
    assert card == agent.card
    assert card.tools[0].requires_approval
    assert card.aliases == ["counting_agent"]


@pytest.mark.requirement("A-16", "A-17", "C-30", "M-18", "P-05", "P-12")
async def test_a_result_carries_what_every_result_carries() -> None:
    def do(task: AgentTask) -> AgentResult:
        task.usage.add(Usage("m", input_tokens=10, output_tokens=2, calls=1, cost=0.5))
        task.usage.api_call(3)
        return succeeded(task, answer="A", data={"n": 1}, confidence=0.5)

    result = await execute(
        CallbackAgent(do), AgentInput(agent_id="doing-1", task="T", tainted=True)
    )
    assert (result.status, result.agent_id, result.agent_name) == (SUCCEEDED, "doing-1", "doing")
    assert (result.task_description, result.task_overridden, result.tainted) == ("T", False, True)
    assert (result.usage.model_calls, result.usage.input_tokens) == (1, 10)
    assert (result.usage.output_tokens, result.usage.api_calls) == (2, 3)
    assert (result.usage.cost_micros, list(result.usage.models)) == (500_000, ["m"])
    assert result.latency.ToTimedelta() > timedelta(0)
    assert result.usage.duration == result.latency
    assert result.start_time.seconds > 0


@pytest.mark.parametrize("says", [True, False])
async def test_taint_of_a_returned_result_is_kept(says: bool) -> None:
    """For an agent that builds its result itself, from what its model has read."""

    def do(task: AgentTask) -> AgentResult:
        return AgentResult(status=SUCCEEDED, answer="A", tainted=says)

    assert (await execute(CallbackAgent(do), AgentInput(task="T"))).tainted is says


@pytest.mark.requirement("C-14", "C-16")
async def test_an_agent_gets_its_input_as_plain_python_values() -> None:
    result = await execute(
        EchoAgent(),
        AgentInput(
            task="T",
            dependency_outputs={"sql_1": to_value_map({"total": 9_007_199_254_740_993})},
            sub_task_input={"n": to_value([1, 2])},
        ),
    )
    assert from_value_map(result.data) == {
        "task": "T",
        "dependencies": {"sql_1": {"total": 9_007_199_254_740_993}},
        "n": [1, 2],
    }


@pytest.mark.requirement("M-18", "M-20", "K-11")
async def test_an_override_is_reported_with_its_marker() -> None:
    context = ApprovalContext(
        user_instructions="Do that",
        instruction_mode=InstructionMode.INSTRUCTION_MODE_OVERRIDE,
    )
    result = await execute(EchoAgent(), AgentInput(task="This", approval_context=context))
    assert result.task_overridden
    assert result.task_description.startswith("IMPORTANT — The user wants")


@pytest.mark.parametrize(
    ("error", "type", "message", "retryable"),
    [
        (
            AgentFailure(AgentErrorType.QUERY_ERROR, "No such table."),
            "QueryError",
            "No such table.",
            False,
        ),
        (Unavailable("Down."), "Unavailable", "Down.", True),
        (InvalidArgument.field("a", "b"), "InvalidArgument", "a: b", False),
    ],
)
@pytest.mark.requirement("A-17", "C-30", "C-33", "Q-01", "Q-05", "Q-06", "Q-07")
async def test_known_errors_become_failed_results(
    error: Exception, type: str, message: str, retryable: bool
) -> None:
    async with agent_server(FailingAgent(error=error, partial={"rows": 3})) as address:
        trace, result = await call_agent(address, AgentInput(task="t"))
    assert (result.status, result.error.type, result.error.message) == (FAILED, type, message)
    assert result.error.retryable is retryable
    assert from_value_map(result.partial_data) == {"rows": 3}
    (event,) = trace
    assert event.type == TraceEventType.TRACE_EVENT_TYPE_ERROR
    assert (event.message, event.data["type"].string_value) == (message, type)


@pytest.mark.requirement("Q-01", "R-04")
async def test_an_unexpected_exception_hides_its_text() -> None:
    """The text and the traceback go to the log only."""
    telemetry = Telemetry.for_tests()
    agent = FailingAgent(error=ZeroDivisionError("password=hunter2"))
    async with agent_server(agent, telemetry=telemetry) as address:
        trace, result = await call_agent(address, AgentInput(task="t"))
    assert result.error.type == "ZeroDivisionError"
    assert result.error.retryable
    assert "hunter2" not in f"{result}{trace}"
    (logged,) = [line for line in telemetry.logs if line["event"] == "agent failed unexpectedly"]
    assert "hunter2" in str(logged["exc_info"])


async def test_a_returned_failure_is_treated_like_a_raised_one() -> None:
    def do(task: AgentTask) -> AgentResult:
        task.partial(a=1)
        return failed(task, type="QueryError", message="No.", details={"odd": object()})

    async with agent_server(CallbackAgent(do)) as address:
        trace, result = await call_agent(address, AgentInput(task="t"))
    assert (result.error.type, result.error.details["odd"].string_value) == (
        "QueryError",
        "(object)",
    )
    assert from_value_map(result.partial_data) == {"a": 1}
    assert [event.message for event in trace] == ["No."]


@pytest.mark.parametrize(
    "outcome",
    [
        None,
        AgentResult(status=AgentExecutionStatus.AGENT_EXECUTION_STATUS_RUNNING),
        AgentResult(
            status=AWAITING, proposed_actions=[ProposedAction(tool="x", digest="sha256:0")]
        ),
    ],
)
async def test_an_invalid_result_becomes_a_failure(outcome: Any) -> None:
    result = await execute(CallbackAgent(lambda task: outcome))
    assert (result.status, result.error.type) == (FAILED, "Internal")


async def test_a_result_too_large_to_send_becomes_a_failure() -> None:
    rows = [("x" * 1000,)] * 10_000
    result = await execute(
        CallbackAgent(lambda task: succeeded(task, table=make_table(["c"], rows)))
    )
    assert result.status == FAILED
    assert result.error.details["reason"].string_value == "RESULT_TOO_LARGE"


@pytest.mark.parametrize(("size", "kept"), [(1_000, True), (9_000_000, False)])
async def test_partial_data_too_large_to_send_is_dropped(size: int, kept: bool) -> None:
    def do(task: AgentTask) -> AgentResult:
        task.partial(rows="x" * size)
        raise AgentFailure(AgentErrorType.QUERY_ERROR, "No such table.")

    async with agent_server(CallbackAgent(do)) as address:
        _, result = await call_agent(address, AgentInput(task="t"))
    assert result.error.type == AgentErrorType.QUERY_ERROR
    assert ("rows" in result.partial_data.fields) is kept


async def test_questions_to_the_user_end_the_step() -> None:
    question = ClarifyingQuestion(question="Which year?", options=["2025", "2026"])
    result = await execute(
        CallbackAgent(lambda task: needs_clarification(task, [question], assumptions=["2026"]))
    )
    assert result.status == AgentExecutionStatus.AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION
    assert result.clarification == Clarification(questions=[question], assumptions=["2026"])


@pytest.mark.requirement("C-32", "C-33")
async def test_the_plans_time_limit_ends_the_step_with_partial_data() -> None:
    agent = SlowAgent(partial={"rows": 3})
    result = await execute(agent, AgentInput(task="t", retry_config=limited(0.05)))
    assert agent.cancelled.is_set()
    assert (result.status, result.error.type) == (FAILED, "DeadlineExceeded")
    assert result.error.message == "The agent slow did not finish within 0.05 s."
    assert result.error.retryable
    assert from_value_map(result.partial_data) == {"rows": 3}


async def test_the_cards_time_limit_holds_when_the_plan_sets_none() -> None:
    agent = SlowAgent(card=agent_card("slow", "Waits.", default_timeout_s=0.05))
    assert (await execute(agent)).error.type == "DeadlineExceeded"


@pytest.mark.requirement("C-33")
async def test_the_result_is_sent_before_the_callers_deadline() -> None:
    result = await execute(SlowAgent(partial={"rows": 3}), timeout_s=5)
    assert result.error.type == "DeadlineExceeded"
    assert from_value_map(result.partial_data) == {"rows": 3}


async def test_calls_inside_the_agent_have_the_deadline_of_the_step() -> None:
    def do(task: AgentTask) -> AgentResult:
        return succeeded(task, data={"inner": remaining_s() or 0.0, "task": task.remaining_s()})

    result = await execute(
        CallbackAgent(do), AgentInput(task="t", retry_config=limited(5)), timeout_s=60
    )
    assert all(0 < seconds <= 5 for seconds in from_value_map(result.data).values())


async def test_cancelling_the_call_cancels_the_agent() -> None:
    agent = SlowAgent()
    async with agent_server(agent) as address, grpc.aio.insecure_channel(address) as channel:
        request = ExecuteRequest(input=AgentInput(task="t"))
        call = AgentServiceStub(channel).Execute(request, timeout=30)
        await asyncio.wait_for(agent.started.wait(), 60)
        call.cancel()
        await asyncio.wait_for(agent.cancelled.wait(), 60)


async def test_an_agent_that_ignores_cancellation_uses_capacity() -> None:
    release = asyncio.Event()

    async def unresponsive(task: AgentTask) -> AgentResult:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        return succeeded(task)

    telemetry = Telemetry.for_tests()
    agent = CallbackAgent(unresponsive)
    async with agent_server(agent, telemetry=telemetry, max_concurrent_steps=1) as address:
        first = AgentInput(task="t", retry_config=limited(0.05))
        _, result = await call_agent(address, first, timeout_s=60)
        assert result.error.type == "DeadlineExceeded"
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call_agent(address, AgentInput(task="t"))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        release.set()
        async with asyncio.timeout(60):
            while not await _served(address):
                pass
    assert "agent ignores cancellation" in [line["event"] for line in telemetry.logs]


async def _served(address: str) -> bool:
    try:
        return (await call_agent(address, AgentInput(task="t")))[1].status == SUCCEEDED
    except grpc.aio.AioRpcError:
        return False


async def test_more_steps_than_allowed_are_refused_with_a_retry_delay() -> None:
    agent = SlowAgent()
    async with agent_server(agent, max_concurrent_steps=1) as address:
        first = asyncio.create_task(call_agent(address, AgentInput(task="t")))
        await asyncio.wait_for(agent.started.wait(), 60)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call_agent(address, AgentInput(task="t"))
        error = from_rpc_error(caught.value)
        assert (caught.value.code(), error.reason) == (
            grpc.StatusCode.RESOURCE_EXHAUSTED,
            "AGENT_BUSY",
        )
        assert error.retry_after_s == 1.0
        agent.release.set()
        assert (await first)[1].status == SUCCEEDED
        assert (await call_agent(address, AgentInput(task="t")))[1].status == SUCCEEDED


@pytest.mark.requirement("C-28")
async def test_a_step_for_another_agent_is_refused_and_an_alias_is_not() -> None:
    async with agent_server(EchoAgent()) as address:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call_agent(address, AgentInput(task="t", agent_name="sql"))
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "input.agent_name" in (caught.value.details() or "")
        step = AgentInput(task="t", agent_name="echo_agent")
        assert (await call_agent(address, step))[1].agent_name == "echo"


@pytest.mark.requirement("P-03")
async def test_trace_events_arrive_while_the_step_is_running() -> None:
    release = asyncio.Event()

    async def do(task: AgentTask) -> AgentResult:
        task.trace.decision("first", n=1)
        await release.wait()
        for number in range(100):
            task.trace.message("more", n=number)
        return succeeded(task)

    async with (
        agent_server(CallbackAgent(do)) as address,
        grpc.aio.insecure_channel(address) as channel,
    ):
        request = ExecuteRequest(input=AgentInput(task="t"))
        call = AgentServiceStub(channel).Execute(request, timeout=10)
        responses = aiter(call)
        first = await anext(responses)
        assert [event.message for event in first.trace.events] == ["first"]
        release.set()
        rest = [response async for response in responses]
    assert [response.WhichOneof("payload") for response in rest] == ["trace"] * 4 + ["result"]
    events = [event for response in rest for event in response.trace.events]
    assert [event.data["n"].int64_value for event in events] == list(range(100))


@pytest.mark.requirement("Q-06")
async def test_after_an_irreversible_effect_no_failure_is_retryable() -> None:
    class MarkThenFail(CountingAgent):
        async def behave(self, task: AgentTask) -> AgentResult:
            await task.tools.call("leave_mark", label="x")
            raise Unavailable("Down.")

    irreversible = await execute(MarkThenFail())
    assert not irreversible.error.retryable
    idempotent = SideEffectClass.SIDE_EFFECT_CLASS_IDEMPOTENT
    assert (await execute(MarkThenFail(side_effect=idempotent))).error.retryable


@pytest.mark.requirement("T-18", "L-08")
async def test_one_model_call_with_the_users_profile() -> None:
    reply = fixture("any", ["### Task"], text="Forty-two.")
    async with ScriptedModel([reply]) as model:
        settings = ModelSettings(base_url=model.base_url, model="scripted")
        async with Models(settings, Telemetry.for_tests()) as models:
            agent = OneCallAgent(models.for_agent("oracle"), "oracle")
            input = AgentInput(task="Why?")
            input.long_term_memory.critical.user_name = "Alice"
            input.long_term_memory.preferences.tone = "casual"
            result = await execute(agent, input)
    assert (result.status, result.answer) == (SUCCEEDED, "Forty-two.")
    assert from_value_map(result.data) == {"oracle": "Forty-two."}
    assert model.calls == result.usage.model_calls == 1
    assert "- Name: Alice\n- Preferred tone: casual" in model.requests[0].prompt


async def test_spans_name_the_agent_and_its_tools() -> None:
    telemetry = Telemetry.for_tests()
    async with agent_server(CountingAgent(), telemetry=telemetry) as address:
        await call_agent(address, AgentInput(task="secret text"))
    spans = {span.name: span for span in telemetry.spans}
    tool, agent = spans["execute_tool leave_mark"], spans["invoke_agent counting"]
    assert tool.parent.span_id == agent.context.span_id
    assert "secret text" not in json.dumps([span.to_json() for span in telemetry.spans])
