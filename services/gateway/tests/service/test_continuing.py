"""Replies to clarifying questions go on with the same purpose."""

import asyncio

import grpc
import pytest
from gateway_harness.answering import refusal
from gateway_harness.harness import Harness

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_FAILED,
    AgentResult,
)
from bos.common.v1 import (
    Clarification,
    ClarificationTurn,
    ClarifyingQuestion,
)
from bos.gateway.v1 import (
    RUN_STATUS_CLARIFICATION_NEEDED,
    RUN_STATUS_FAILED,
    RUN_STATUS_SUCCEEDED,
)
from bos.planner.v1 import MakePlanResponse
from bos_agentkit import AgentTask, needs_clarification, succeeded
from bos_testkit.agents import RecordingAgent
from bos_testkit.waiting import eventually

pytestmark = pytest.mark.requirement("D-04")

QUESTION = "How is my dollar value shifting?"
METRIC = ClarifyingQuestion(question="Which metric?", options=["balance", "turnover"])
ASKED = Clarification(questions=[METRIC], assumptions=["The balance is meant."])


class AskingAgent(RecordingAgent):
    """Asks which metric is meant, until it was asked often enough to know."""

    def __init__(self, name: str, rounds: int) -> None:
        super().__init__(name)
        self.rounds = rounds
        self.reads_cells = False
        self.hold = asyncio.Event()
        self.hold.set()

    async def behave(self, task: AgentTask) -> AgentResult:

        await self.hold.wait()
        if self.reads_cells:
            task.taint()
        if task.input.clarification_turn_count < self.rounds:
            return needs_clarification(task, [METRIC], assumptions=ASKED.assumptions)
        return succeeded(task, answer="It fell.")


async def asking(harness: Harness, rounds: int = 1) -> AskingAgent:
    return await harness.plan(AskingAgent("asker", rounds))


async def test_reply_is_planned_done_and_answered_as_original_question(harness: Harness) -> None:
    agent = await asking(harness)
    async with harness.gateway() as gateway:
        first = await gateway.ask(QUESTION)
        assert first.status == RUN_STATUS_CLARIFICATION_NEEDED
        second = await gateway.ask("the balance", continues_run_id=first.run_id)
        run = await gateway.run(second.run_id)
        await gateway.plan("balance", continues_run_id=first.run_id)

    assert second.status == RUN_STATUS_SUCCEEDED
    assert (run.question, run.continues_run_id) == ("the balance", first.run_id)
    assert run.original_question == QUESTION
    turn = ClarificationTurn(run_id=first.run_id, asked=ASKED, reply="the balance")
    for request in (harness.planner.requests[1], harness.composer.requests[0], agent.inputs[1]):
        assert request.question == QUESTION
        assert list(request.clarifications) == [turn]
    assert [given.clarification_turn_count for given in agent.inputs] == [0, 1]
    assert not harness.planner.requests[0].clarifications
    planned = harness.planner.requests[-1]
    assert (planned.question, [each.reply for each in planned.clarifications]) == (
        QUESTION,
        ["balance"],
    )


async def test_reply_at_any_replica_is_the_same_for_every_adopter(harness: Harness) -> None:
    agent = await asking(harness)
    async with harness.gateway() as second:
        async with harness.gateway() as first:
            asked = await first.ask(QUESTION)
            agent.hold.clear()
            call = first.stream("the balance", continues_run_id=asked.run_id)
            accepted = (await call.read()).event
            first_event = accepted.run_accepted
            assert (first_event.continues_run_id, first_event.original_question) == (
                asked.run_id,
                QUESTION,
            )
            await eventually(lambda: len(agent.inputs) == 2)
        agent.hold.set()
        events = await second.watch(accepted.run_id)
        changed = await second.ask("the turnover", continues_run_id=asked.run_id)

    assert events[-1].run_finished.response.status == RUN_STATUS_SUCCEEDED
    before, adopted, other = list(agent.inputs)[1:]
    assert list(before.clarifications) == list(adopted.clarifications)
    assert before.metadata.run_id == adopted.metadata.run_id != other.metadata.run_id
    assert adopted.question == other.question == QUESTION
    assert [turn.reply for turn in other.clarifications] == ["the turnover"]
    assert changed.status == RUN_STATUS_SUCCEEDED


async def test_every_exchange_and_its_taint_go_with_the_reply(harness: Harness) -> None:
    agent = await asking(harness, rounds=2)
    agent.reads_cells = True
    async with harness.gateway() as gateway:
        first = await gateway.ask(QUESTION)
        agent.reads_cells = False
        second = await gateway.ask("the balance", continues_run_id=first.run_id)
        third = await gateway.ask("of savings", continues_run_id=second.run_id)
    assert third.status == RUN_STATUS_SUCCEEDED
    given = agent.inputs[2]
    assert given.question == QUESTION
    assert [(turn.run_id, turn.reply) for turn in given.clarifications] == [
        (first.run_id, "the balance"),
        (second.run_id, "of savings"),
    ]
    assert given.clarification_turn_count == 2
    assert [each.tainted for each in agent.inputs] == [False, True, True]


@pytest.mark.requirement("C-06", "D-04")
async def test_after_the_last_round_nothing_asks_any_more(harness: Harness) -> None:
    await asking(harness, rounds=99)
    async with harness.gateway(max_clarification_turns=2) as gateway:
        runs = [await gateway.ask(QUESTION)]
        for reply in ("the balance", "I said the balance"):
            runs.append(await gateway.ask(reply, continues_run_id=runs[-1].run_id))

    harness.planner.answer = MakePlanResponse(clarification=ASKED)
    async with harness.gateway(max_clarification_turns=1) as gateway:
        first = await gateway.ask(QUESTION)
        last = await gateway.ask("the balance", continues_run_id=first.run_id)
    assert (last.status, last.error.type) == (RUN_STATUS_FAILED, "ClarificationLimit")
    assert not last.HasField("clarification")
    assert [run.status for run in runs] == [
        RUN_STATUS_CLARIFICATION_NEEDED,
        RUN_STATUS_CLARIFICATION_NEEDED,
        RUN_STATUS_FAILED,
    ]
    (result,) = runs[-1].agent_results
    assert result.status == AGENT_EXECUTION_STATUS_FAILED
    assert result.error.type == "ClarificationLimit"
    assert "2 rounds" in result.error.message
    assert "Which metric?" in result.error.message


async def test_a_reply_needs_a_run_of_its_conversation_that_asked(harness: Harness) -> None:
    agent = await asking(harness)
    async with harness.gateway() as gateway:
        for run_id in ("018f0000-0000-7000-8000-000000000000", "no id"):
            reply = await refusal(gateway.ask("balance", continues_run_id=run_id))
            got = await refusal(gateway.run(run_id))
            assert (reply.reason, reply.message) == (got.reason, got.message)
            assert reply.code is grpc.StatusCode.NOT_FOUND
        first = await gateway.ask(QUESTION, conversation_id="talk")
        other = await refusal(
            gateway.ask("balance", continues_run_id=first.run_id, conversation_id="other")
        )
        inherited = await gateway.ask("balance", continues_run_id=first.run_id)
        agent.rounds = 0
        answered = await gateway.ask(QUESTION)
        error = await refusal(gateway.ask("balance", continues_run_id=answered.run_id))
    assert other.code is grpc.StatusCode.INVALID_ARGUMENT
    assert [each.field for each in other.violations] == ["request.conversation_id"]
    assert inherited.metadata.conversation_id == "talk"
    assert error.code is grpc.StatusCode.FAILED_PRECONDITION
    assert error.reason == "NOT_WAITING_FOR_REPLY"
    assert [each.field for each in error.violations] == ["request.continues_run_id"]
    assert "SUCCEEDED" in error.message
    assert "conversation_id" in error.message
