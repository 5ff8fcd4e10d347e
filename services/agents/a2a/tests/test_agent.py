import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import grpc
import pytest
from a2a.types import a2a_pb2 as a2a

from bos.agent.v1 import AgentInput, ApprovalContext, InstructionMode, SideEffectClass
from bos.common.v1 import SourceType
from bos_a2a.service import serve
from bos_a2a.settings import A2aSettings
from bos_chassis.values import table_rows, to_value, to_value_map
from bos_testkit.agent_contract import Rule, Subject, agent_subject, answers, own_rules, refusals
from bos_testkit.fixtures.agent_harness import ASKS, AWAITING, SUCCEEDED
from bos_testkit.processes import free_port
from bos_testkit.waiting import eventually

from .conftest import NAME, NETWORKS, replied, specialist, written
from .remote_agent import RemoteAgent, data, served

TASK = "What is invoice 7?"
REPLIES = [written(TASK, "Please tell me the amount of invoice 7.")]
WAYS = {
    "json-rpc stream": (("JSONRPC",), True),
    "json-rpc": (("JSONRPC",), False),
    "rest stream": (("HTTP+JSON",), True),
    "rest": (("HTTP+JSON", "JSONRPC"), False),
}


@pytest.fixture
def remote() -> RemoteAgent:
    return RemoteAgent()


@pytest.fixture
async def url(remote: RemoteAgent) -> AsyncIterator[str]:
    async with served(remote) as address:
        yield address


@pytest.mark.parametrize("way", WAYS)
async def test_read_only_agent_gets_message_and_answers(remote: RemoteAgent, way: str) -> None:
    bindings, streaming = WAYS[way]
    async with (
        served(remote, bindings=bindings, streaming=streaming) as url,
        specialist({"url": url, "reads": True, "token": "t-0p"}, REPLIES) as found,
    ):
        outcome = await found.ask(TASK)
    result = outcome.result
    assert result.status == SUCCEEDED, result.error
    assert result.answer == "Invoice 7 is 120 euros."
    assert outcome.data["text"] == "Invoice 7 is 120 euros."
    assert outcome.data["message"] == "Please tell me the amount of invoice 7."
    assert result.tainted
    (source,) = result.sources
    assert source.type == SourceType.SOURCE_TYPE_API
    assert source.title == NAME
    assert source.uri == url.removesuffix("/billing")
    (message,) = remote.messages
    assert message.parts[0].text == "Please tell me the amount of invoice 7."
    assert all(headers["authorization"] == "Bearer t-0p" for _, headers in remote.requests)


async def test_card_quotes_what_the_agent_says_of_itself(url: str) -> None:
    async with specialist({"url": url, "description": "Asks billing.", "keywords": ["bill"]}) as it:
        card = await it.card()
    assert card.name == NAME
    assert card.description == "Asks billing. As it describes itself: “Knows all invoices.”"
    assert card.capabilities == ["“Invoices: Finds invoices.”"]
    assert card.typical_use_cases == ["What is invoice 7?"]
    assert card.keywords == ["bill"], "those of the operator, and no tags of the agent"
    (tool,) = card.tools
    assert tool.requires_approval
    assert tool.side_effect == SideEffectClass.SIDE_EFFECT_CLASS_IRREVERSIBLE


async def test_card_of_an_agent_that_only_reads_has_no_side_effect(url: str) -> None:
    async with specialist({"url": f"{url}/.well-known/agent-card.json", "reads": True}) as found:
        (tool,) = (await found.card()).tools
    assert not tool.requires_approval
    assert tool.side_effect == SideEffectClass.SIDE_EFFECT_CLASS_NONE


async def test_message_is_sent_once_after_approval(remote: RemoteAgent, url: str) -> None:
    async with specialist({"url": url}, REPLIES) as found:
        proposed = await found.ask(TASK, run="r1")
        assert proposed.result.status == AWAITING, proposed.result.error
        assert proposed.arguments.pop("agent_definition").startswith("sha256:")
        assert proposed.arguments["message"] == "Please tell me the amount of invoice 7."
        shown = "Tell billing: “Please tell me the amount of invoice 7.”"
        assert proposed.action.summary == shown
        assert not remote.messages
        done = await found.ask(TASK, run="r1", approved=proposed.action)
    assert done.result.status == SUCCEEDED, done.result.error
    (performed,) = done.result.performed_actions
    assert not performed.outcome_unknown
    (message,) = remote.messages
    assert message.parts[0].text == "Please tell me the amount of invoice 7."
    assert message.message_id


async def test_instructions_lead_to_another_proposal(remote: RemoteAgent, url: str) -> None:
    replies = [written("invoice 8 instead", "Please tell me the amount of invoice 8.")]
    context = ApprovalContext(
        user_instructions="Ask for invoice 8 instead.",
        instruction_mode=InstructionMode.INSTRUCTION_MODE_ENHANCE,
    )
    async with specialist({"url": url}, replies) as found:
        again = await found.ask(TASK, "Tell me.", approval_context=context)
    assert again.arguments["message"] == "Please tell me the amount of invoice 8."
    assert not remote.messages


async def test_plan_cannot_name_a_task_of_the_remote_agent(remote: RemoteAgent, url: str) -> None:
    given = to_value_map({"message": "Go on.", "task": "of-another-user"}).fields
    async with specialist({"url": url, "reads": True}, REPLIES) as found:
        outcome = await found.ask(TASK, tool_name="send_message", sub_task_input=given)
    assert outcome.result.status == SUCCEEDED, outcome.result.error
    (message,) = remote.messages
    assert message.task_id != "of-another-user"
    assert message.parts[0].text == "Please tell me the amount of invoice 7."


async def test_declined_task_sends_nothing(remote: RemoteAgent, url: str) -> None:
    replies = [written(TASK, "", failure_reason="It knows no weather.")]
    async with specialist({"url": url, "reads": True}, replies) as found:
        outcome = await found.ask(TASK)
    assert outcome.result.error.type == "PlanningDeclined"
    assert outcome.result.error.message.endswith("It knows no weather.")
    assert not remote.messages


async def test_data_files_and_links_are_rows_files_and_names(remote: RemoteAgent, url: str) -> None:
    rows = [{"no": 7, "amount": 120.5}, {"no": 8, "amount": None}]
    remote.parts = [
        data(rows),
        a2a.Part(raw=b"a,b", filename="bill.csv", media_type="text/csv"),
        a2a.Part(url="https://x.example/7.pdf", filename="7.pdf", media_type="application/pdf"),
        a2a.Part(url="javascript:alert(1)", filename="evil"),
    ]
    async with specialist({"url": url, "reads": True}) as found:
        outcome = await found.ask(TASK, "Tell me.")
    assert outcome.result.status == SUCCEEDED, outcome.result.error
    assert table_rows(outcome.result.table) == rows
    assert list(outcome.files) == ["bill.csv"]
    (link,) = outcome.data["links"]
    assert link["url"] == "https://x.example/7.pdf"
    assert "7.pdf: https://x.example/7.pdf" in outcome.result.answer
    assert outcome.data["truncated"]
    assert [source.uri for source in outcome.result.sources][1:] == ["https://x.example/7.pdf"]


@pytest.mark.parametrize(
    ("said", "answer"), [("in pieces", "One and two and three."), ("at once", "At once.")]
)
async def test_answers_in_pieces_and_at_once_are_whole(url: str, said: str, answer: str) -> None:
    async with specialist({"url": url, "reads": True}) as found:
        outcome = await found.ask(TASK, said)
    assert outcome.result.answer == answer, outcome.result.error
    if said == "in pieces":
        assert "I look." in str(outcome.trace)


@pytest.mark.parametrize("reads", [True, False])
@pytest.mark.parametrize("lists", [True, False])
async def test_question_and_reply(remote: RemoteAgent, url: str, reads: bool, lists: bool) -> None:
    async with AsyncExitStack() as stack:
        found = await stack.enter_async_context(specialist({"url": url, "reads": reads}))
        asked = await found.ask(TASK, "Please ask.", run="r1")
        if not reads:
            asked = await found.ask(TASK, "Please ask.", run="r1", approved=asked.action)
        assert asked.result.status == ASKS, asked.result.error
        (question,) = asked.result.clarification.questions
        assert question.question == "Which one? ask"
        if lists:  # another process, without notes: the remote agent lists its tasks
            found = await stack.enter_async_context(specialist({"url": url, "reads": reads}))
        turns = [replied("r1", question.question, "The seventh.")]
        done = await found.ask(TASK, run="r2", clarifications=turns)
        if not reads:
            summary = "Tell billing, in reply to its question: “The seventh.”"
            assert done.action.summary == summary
            done = await found.ask(TASK, run="r2", clarifications=turns, approved=done.action)
    assert done.result.status == SUCCEEDED, done.result.error
    first, second = remote.messages
    assert second.task_id == first.task_id != ""
    assert second.context_id == first.context_id
    assert second.parts[0].text == "The seventh."
    assert done.result.answer == "Invoice 7 is 120 euros."


async def test_reply_to_another_agent_is_not_sent(remote: RemoteAgent, url: str) -> None:
    turns = [replied("r1", "Which year?", "The last one.")]
    async with specialist({"url": url, "reads": True}, REPLIES) as found:
        await found.ask(TASK, "Tell me.", run="other")
        done = await found.ask(TASK, run="r2", clarifications=turns)
    assert done.result.status == SUCCEEDED, done.result.error
    assert remote.messages[1].parts[0].text == "Please tell me the amount of invoice 7."


BAD_ENDS = {
    "log in": ("RemoteAgentUnauthorized", "BOS_A2A_SERVERS", True),
    "reject": ("RemoteAgentRejected", "does not take the task", False),
    "fail": ("RemoteAgentFailed", "failed at the task", True),
}


@pytest.mark.parametrize("said", BAD_ENDS)
async def test_bad_ends_are_errors_that_say_which(url: str, said: str) -> None:
    kind, words, unknown = BAD_ENDS[said]
    async with specialist({"url": url}) as found:
        action = (await found.ask(TASK, f"Please {said}.", run="r1")).action
        outcome = await found.ask(TASK, f"Please {said}.", run="r1", approved=action)
    error = outcome.result.error
    assert error.type == kind
    assert words in error.message
    assert f"It says: “Which one? {said}”" in error.message
    assert not error.retryable
    assert [one.outcome_unknown for one in outcome.result.performed_actions] == [True] * unknown


@pytest.mark.parametrize("binding", ["JSONRPC", "HTTP+JSON"])
async def test_cancelled_step_cancels_the_task(remote: RemoteAgent, binding: str) -> None:
    async with (
        served(remote, bindings=(binding,)) as url,
        specialist({"url": url, "reads": True}) as found,
    ):
        call = found.execute(TASK, "Please wait.")
        reading = asyncio.ensure_future(_read(call))
        await eventually(lambda: remote.messages, within_s=60)
        call.cancel()
        await asyncio.wait({reading})
        await eventually(lambda: remote.canceled, within_s=60)
    assert remote.canceled == [remote.messages[0].task_id]


async def test_late_task_is_canceled_and_unknown(remote: RemoteAgent, url: str) -> None:
    async with specialist({"url": url, "call_timeout_s": 2}) as found:
        action = (await found.ask(TASK, "Please wait.", run="r1")).action
        late = await found.ask(TASK, "Please wait.", run="r1", approved=action)
        await eventually(lambda: remote.canceled, within_s=60)
    assert late.result.error.type == "OutcomeUnknown"
    assert "did not finish in time" in late.result.error.message
    (performed,) = late.result.performed_actions
    assert performed.outcome_unknown
    assert len(remote.messages) == 1


@pytest.mark.parametrize("drops", [1, 2])
async def test_dropped_stream_is_followed_on(remote: RemoteAgent, url: str, drops: int) -> None:
    remote.drops = drops
    async with specialist({"url": url, "reads": True}) as found:
        step = asyncio.ensure_future(found.ask(TASK, "Please wait."))
        await eventually(lambda: not remote.drops, within_s=60)
        remote.go_on.set()
        outcome = await step
    assert outcome.result.status == SUCCEEDED, outcome.result.error
    assert outcome.result.answer == "Invoice 7 is 120 euros."
    assert len(remote.messages) == 1


async def test_next_attempt_finds_the_task_of_the_first(remote: RemoteAgent, url: str) -> None:
    async with specialist({"url": url}) as found:
        action = (await found.ask(TASK, "Tell me.", run="r1")).action
        first = await found.ask(TASK, "Tell me.", run="r1", approved=action)
    async with specialist({"url": url}) as found:  # after the first process was killed
        again = await found.ask(TASK, "Tell me.", run="r1", approved=action, attempt=2)
    assert first.result.answer == again.result.answer == "Invoice 7 is 120 euros."
    assert len(remote.messages) == 1


async def test_agent_that_is_away_is_unavailable_until_it_is_back(remote: RemoteAgent) -> None:
    port = free_port()
    server = {"url": f"http://127.0.0.1:{port}/billing", "reads": True}
    async with specialist(server, max_backoff_s=0.2, refresh_s=1) as found:
        why = await found.away()
        assert why.startswith(f"The remote agent http://127.0.0.1:{port} cannot be called.")
        refused = await found.ask(TASK, "Tell me.")
        assert refused.result.error.retryable
        async with served(remote, port=port):
            await found.is_there()
            outcome = await found.ask(TASK, "Tell me.")
        assert outcome.result.status == SUCCEEDED, outcome.result.error
        await found.is_away()


async def test_message_approved_for_another_card_is_not_sent(remote: RemoteAgent) -> None:
    port = free_port()
    async with specialist({"url": f"http://127.0.0.1:{port}/billing"}, max_backoff_s=0.2) as found:
        async with served(remote, port=port):
            await found.is_there()
            action = (await found.ask(TASK, "Tell me.", run="r1")).action
        changed = _Changed()
        async with served(changed, port=port):
            outcome = await found.ask(TASK, "Tell me.", run="r1", approved=action)
    assert outcome.result.error.type == "ToolChanged"
    assert not outcome.result.performed_actions
    assert not changed.messages


class _Changed(RemoteAgent):
    def card(self, url: str, bindings: tuple[str, ...], *, streaming: bool) -> a2a.AgentCard:
        card = super().card(url, bindings, streaming=streaming)
        card.description = "Deletes invoices."
        return card


async def test_tainted_input_is_said_to_the_agent(remote: RemoteAgent, url: str) -> None:
    async with specialist({"url": url, "reads": True}) as found:
        await found.ask(TASK, "Tell me.", tainted=True)
        await found.ask(TASK, "Tell me.")
    assert [dict(message.metadata) for message in remote.messages] == [{"tainted": True}, {}]


async def _read(call: Any) -> None:
    try:
        async for _ in call:
            pass
    except (grpc.aio.AioRpcError, asyncio.CancelledError):
        pass


EXAMPLE = AgentInput(task=TASK, tools=["send_message"])


PROPOSING = AgentInput(
    task="Pay invoice 7",
    tools=["send_message"],
    tool_name="send_message",
    sub_task_input={"message": to_value("Please pay invoice 7.")},
)


@asynccontextmanager
async def opened(*, reads: bool) -> AsyncIterator[Subject]:
    remote = RemoteAgent()
    async with served(remote) as url:
        servers = {NAME: {"url": url, "networks": NETWORKS, "reads": reads}}
        async with agent_subject(
            *(NAME, serve, A2aSettings, REPLIES, EXAMPLE),
            package="a2a",
            servers=servers,
            environment={"BOS_A2A_SERVERS": json.dumps(servers)},
            proposing=PROPOSING,
            performed=lambda: len(remote.messages),
        ) as subject:
            yield subject


@own_rules
async def test_contract(rule: Rule) -> None:
    async with opened(reads=True) as subject:
        await rule(subject)


@pytest.mark.parametrize(
    "rule", [answers.same_step_twice_has_the_same_result, refusals.nothing_is_performed_unapproved]
)
async def test_contract_of_proposals(rule: Rule) -> None:
    async with opened(reads=False) as subject:
        await rule(subject)
