"""Replies to clarifying questions go on with the same purpose."""

import asyncio
from typing import Any

import grpc
import pytest
from gateway_harness.harness import Harness

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_FAILED,
    AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION,
    AgentResult,
)
from bos.common.v1 import (
    Clarification,
    ClarificationTurn,
    ClarifyingQuestion,
    ConversationMessage,
)
from bos.gateway.v1 import (
    RUN_STATUS_CLARIFICATION_NEEDED,
    RUN_STATUS_FAILED,
    RUN_STATUS_SUCCEEDED,
    AgentRequest,
    GetRunRequest,
    PlanQuestionRequest,
)
from bos.planner.v1 import MakePlanResponse
from bos.runlog.v1 import LogEvent, RunAccepted, RunFinished
from bos_agentkit import AgentTask, needs_clarification, succeeded
from bos_errors import BosError, FailedPrecondition, InvalidArgument, from_rpc_error
from bos_gateway.core.clarification import (
    MAX_REPLY_CHARS,
    ClarificationReply,
    beside_exchanges,
    clarification_limit,
    continued,
    question_of,
    with_inherited,
)
from bos_testkit.agents import RecordingAgent
from bos_testkit.plans import step
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
        """Ask, or succeed."""
        await self.hold.wait()
        if self.reads_cells:
            task.taint()
        if task.input.clarification_turn_count < self.rounds:
            return needs_clarification(task, [METRIC], assumptions=ASKED.assumptions)
        return succeeded(task, answer="It fell.")


async def asking(harness: Harness, rounds: int = 1) -> AskingAgent:
    agent = AskingAgent("asker", rounds)
    await harness.add_agent(agent)
    harness.planner.steps = [step("a", "asker")]
    return agent


async def refused(call: Any) -> BosError:
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        await call
    return from_rpc_error(raised.value)


@pytest.mark.requirement("D-04")
async def test_reply_is_planned_done_and_answered_as_original_question(
    harness: Harness,
) -> None:
    agent = await asking(harness)
    async with harness.gateway() as gateway:
        first = await gateway.ask(QUESTION)
        assert first.status == RUN_STATUS_CLARIFICATION_NEEDED
        second = await gateway.ask("the balance", continues_run_id=first.run_id)
        run = (await gateway.stub.GetRun(GetRunRequest(run_id=second.run_id))).run
        dry = AgentRequest(question="balance", continues_run_id=first.run_id)
        await gateway.stub.PlanQuestion(PlanQuestionRequest(request=dry), timeout=30)

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


async def test_reply_at_any_replica_is_the_same_for_every_adopter(
    harness: Harness,
) -> None:
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
async def test_after_the_last_round_no_agent_asks_any_more(harness: Harness) -> None:
    await asking(harness, rounds=99)
    async with harness.gateway(max_clarification_turns=2) as gateway:
        runs = [await gateway.ask(QUESTION)]
        for reply in ("the balance", "I said the balance"):
            runs.append(await gateway.ask(reply, continues_run_id=runs[-1].run_id))

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


@pytest.mark.requirement("D-04")
async def test_after_the_last_round_no_planner_asks_any_more_either(harness: Harness) -> None:
    harness.planner.answer = MakePlanResponse(clarification=ASKED)
    async with harness.gateway(max_clarification_turns=1) as gateway:
        first = await gateway.ask(QUESTION)
        last = await gateway.ask("the balance", continues_run_id=first.run_id)

    assert (first.status, last.status) == (RUN_STATUS_CLARIFICATION_NEEDED, RUN_STATUS_FAILED)
    assert last.error.type == "ClarificationLimit"
    assert "1 rounds" in last.error.message
    assert not last.HasField("clarification")


async def test_what_a_reply_leaves_out_is_taken_over(harness: Harness) -> None:
    agent = await asking(harness)
    context = {"current_date": "2026-06-15", "region": "west"}
    async with harness.gateway() as gateway:
        first = await gateway.ask(QUESTION, context=context, system_prompt="Be brief.")
        await gateway.ask("balance", continues_run_id=first.run_id, context={"region": "east"})

    given = agent.inputs[1].context
    assert (given["current_date"], given["region"]) == ("2026-06-15", "east")
    assert given["current_date_start_hour"] == "2026-06-15 00"
    assert harness.composer.requests[0].system_prompt == "Be brief."


async def test_a_reply_needs_a_run_of_its_conversation_that_asked(harness: Harness) -> None:
    agent = await asking(harness)
    async with harness.gateway() as gateway:
        for run_id in ("018f0000-0000-7000-8000-000000000000", "no id"):
            reply = await refused(gateway.ask("balance", continues_run_id=run_id))
            got = await refused(gateway.stub.GetRun(GetRunRequest(run_id=run_id)))
            assert (reply.code, reply.reason, reply.message, reply.metadata) == (
                got.code,
                got.reason,
                got.message,
                got.metadata,
            )
            assert reply.code is grpc.StatusCode.NOT_FOUND
        first = await gateway.ask(QUESTION, conversation_id="talk")
        other = await refused(
            gateway.ask("balance", continues_run_id=first.run_id, conversation_id="other")
        )
        inherited = await gateway.ask("balance", continues_run_id=first.run_id)
        agent.rounds = 0
        answered = await gateway.ask(QUESTION)
        error = await refused(gateway.ask("balance", continues_run_id=answered.run_id))
    assert other.code is grpc.StatusCode.INVALID_ARGUMENT
    assert [each.field for each in other.violations] == ["request.conversation_id"]
    assert inherited.metadata.conversation_id == "talk"
    assert error.code is grpc.StatusCode.FAILED_PRECONDITION
    assert error.reason == "NOT_WAITING_FOR_REPLY"
    assert [each.field for each in error.violations] == ["request.continues_run_id"]
    assert "SUCCEEDED" in error.message
    assert "conversation_id" in error.message


def test_a_run_that_is_under_way_cannot_be_replied_to() -> None:
    accepted = RunAccepted(request=AgentRequest(question=QUESTION))
    with pytest.raises(FailedPrecondition, match="has not ended yet"):
        continued(AgentRequest(question="balance"), "r1", accepted, LogEvent(run_accepted=accepted))


def asked_by(clarification: Clarification) -> LogEvent:
    finished = RunFinished()
    finished.response.status = RUN_STATUS_CLARIFICATION_NEEDED
    finished.response.clarification.CopyFrom(clarification)
    return LogEvent(run_finished=finished)


@pytest.mark.parametrize(
    ("chars", "taken"), [(MAX_REPLY_CHARS, True), (MAX_REPLY_CHARS + 1, False)]
)
def test_a_reply_has_a_longest_length(chars: int, taken: bool) -> None:
    accepted = RunAccepted(request=AgentRequest(question=QUESTION))
    reply = AgentRequest(question="x" * chars)
    if taken:
        assert continued(reply, "r1", accepted, asked_by(ASKED)).original_question == QUESTION
        return
    with pytest.raises(InvalidArgument, match=r"request\.question") as raised:
        continued(reply, "r1", accepted, asked_by(ASKED))
    assert str(MAX_REPLY_CHARS) in raised.value.message


def test_what_is_kept_of_questions_without_end_is_bounded() -> None:
    endless = ClarifyingQuestion(question="q" * 10_000, options=["o" * 10_000] * 100)
    asked = Clarification(questions=[endless] * 100, assumptions=["a" * 10_000] * 100)
    accepted = RunAccepted(request=AgentRequest(question=QUESTION))
    found = continued(AgentRequest(question="x"), "r1", accepted, asked_by(asked))
    assert found.clarifications[0].ByteSize() < 24 * 1024


def test_what_a_reply_says_itself_is_not_taken_over() -> None:
    before = AgentRequest(prefer_agents=["sql"], disable_agents=["web"], system_prompt="Be brief.")
    reply = AgentRequest(prefer_agents=["rag"], system_prompt="Be long.", question="x")
    whole = with_inherited(reply, ClarificationReply(before, QUESTION, ()))
    assert (list(whole.prefer_agents), list(whole.disable_agents)) == (["rag"], ["web"])
    assert (whole.question, whole.system_prompt) == ("x", "Be long.")
    assert with_inherited(reply, None) is reply


def test_clarification_limit_concerns_questions_alone() -> None:
    accepted = RunAccepted(clarification_turn_count=5)
    asks = AgentResult(status=AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION, clarification=ASKED)
    assert clarification_limit(accepted, asks) is None
    accepted.settings.max_clarification_turns = 6
    assert clarification_limit(accepted, asks) is None
    accepted.settings.max_clarification_turns = 5
    assert clarification_limit(accepted, asks) is not None
    assert clarification_limit(accepted, AgentResult(clarification=ASKED)) is None


def test_exchanges_are_not_shown_twice() -> None:
    said = [ConversationMessage(content=run_id, run_id=run_id) for run_id in ("", "r0", "r1")]
    assert beside_exchanges(said, [ClarificationTurn(run_id="r1")]) == said[:2]
    assert beside_exchanges(said, []) == said


def test_the_question_of_a_run_is_the_original_one() -> None:
    accepted = RunAccepted(request=AgentRequest(question="the balance"))
    assert question_of(accepted) == "the balance"
    accepted.original_question = QUESTION
    assert question_of(accepted) == QUESTION
