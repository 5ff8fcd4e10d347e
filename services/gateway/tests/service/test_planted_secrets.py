"""Credentials that services echo are neither stored, nor sent, logged or traced."""

import base64
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from gateway_harness.answering import APPROVE, Following, get, respond, until_released
from gateway_harness.harness import Client, Harness, result_of
from gateway_harness.raw_agents import RawAgent, add_raw_agent, success
from google.protobuf.struct_pb2 import Struct

from bos.agent.v1 import (
    AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION,
    AGENT_EXECUTION_STATUS_SUCCEEDED,
    AgentResult,
    ExecuteResponse,
    SideEffectClass,
    TraceBatch,
)
from bos.common.v1 import Row, Table, TraceEvent, Value
from bos.gateway.v1 import RunStatus
from bos_agentkit import AgentTask, agent_card, succeeded, tool
from bos_errors import FailedPrecondition
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import connect
from bos_testkit.agents import RecordingAgent
from bos_testkit.plans import step

from .test_run_secrets import new_key

SECRET, PASSWORD = "Planted/47+11-Token", "Pl4nted-Password"
MASK = "[secret shop_token]"
DECLARES = {"secret_context_keys": ["shop_token"]}
FORMS = [
    *(SECRET, PASSWORD, quote(SECRET, safe=""), SECRET.encode().hex()),
    *(base64.b64encode(SECRET.encode()).decode()[:-4], json.dumps(SECRET)[1:-1]),
]


def nested() -> Struct:
    """A context with credentials deep inside, one of them of no agent."""
    context = Struct()
    context.update(
        {
            "calls": [{"to": "shop", "auth": {"Shop-Token": SECRET}}],
            "users": {"ada": {"firebase_password": PASSWORD}},
            "token_budget": 5,
            "example": f"curl -H 'X: {SECRET}'",
        }
    )
    return context


def echoing(text: str) -> AgentResult:
    """A result that says a text wherever it can."""
    said = success(answer=f"Used {text}.", highlights=[text], followups=[f"Why {text}?"])
    said.table.CopyFrom(Table(rows=[Row(values=[Value(string_value=text)])]))
    said.table.columns.add(name="c")
    said.data.fields[text].bytes_value = text.encode()
    said.data.fields["quoted"].string_value = quote(text, safe="")
    said.data.fields["basic"].string_value = base64.b64encode(text.encode()).decode()
    return said


class Poster(RecordingAgent):
    """Proposes a call that carries its credential, and makes it once that was approved."""

    def __init__(self, key: str = "shop_token") -> None:
        @tool(
            description="Posts.",
            requires_approval=True,
            side_effect=SideEffectClass.SIDE_EFFECT_CLASS_IRREVERSIBLE,
            summary="Post to {url}",
        )
        async def post(url: str, headers: dict[str, str]) -> dict[str, Any]:
            self.posted.append((url, headers))
            return {"echo": headers, "url": url}

        self.posted: list[tuple[str, dict[str, str]]] = []
        self.tools = (post,)
        declares = {"secret_context_keys": [key]}
        card = agent_card("poster", "Posts.", tools=self.tools, max_retries=0, **declares)
        super().__init__("poster", card=card)

    async def behave(self, task: AgentTask) -> AgentResult:
        key = task.input.secrets["shop_token"]
        headers = {"Authorization": f"Bearer {key}", "Note": "for shop"}
        data = await task.tools.call("post", url=f"https://shop/?k={key}", headers=headers)
        return succeeded(task, data=data)


async def stored(harness: Harness) -> str:
    """Every byte of the gateway's tables, as text; bytes in hex."""
    async with connect(harness.dsn, schema=SCHEMA) as session:
        tables = await session.fetch(
            "SELECT table_name FROM information_schema.tables WHERE table_schema = $1", SCHEMA
        )
        names = [str(row["table_name"]) for row in tables]
        assert {"runs", "run_events", "approvals", "answers", "run_inputs", "run_secrets"} <= set(
            names
        )
        found = [await session.fetch(f'SELECT t::text AS row FROM "{name}" AS t') for name in names]
    return "\n".join(row["row"] for rows in found for row in rows)


def left_behind(gateway: Client) -> str:
    """What the gateway has logged and traced."""
    assert gateway.telemetry.spans
    spans = "\n".join(span.to_json() for span in gateway.telemetry.spans)
    return f"{gateway.telemetry.logs}\n{spans}"


def assert_nowhere(text: str) -> None:
    assert not [form for form in FORMS if form in text or form.encode().hex() in text.lower()]


async def echo(text: str) -> AsyncIterator[ExecuteResponse]:
    event = TraceEvent(message=f"GET {text}", data={text: Value(string_value=text)})
    yield ExecuteResponse(trace=TraceBatch(events=[event]))
    yield ExecuteResponse(file={"name": f"{text}.png", "media_type": "image/png", "last": True})
    yield ExecuteResponse(result=echoing(text))


def refuse(_: Any) -> AgentResult:
    raise FailedPrecondition(f"The shop said: no such key {SECRET}, nor {quote(SECRET, safe='')}.")


@pytest.mark.security
async def test_planted_credentials_are_in_no_byte_no_line_and_no_span(harness: Harness) -> None:
    poster = Poster()
    await harness.add_agent(poster)
    leaky = await add_raw_agent(harness, RawAgent("leaky", lambda _: echo(SECRET), **DECLARES))
    broken = await add_raw_agent(harness, RawAgent("broken", refuse, **DECLARES))
    other = await add_raw_agent(harness, RawAgent("other", lambda _: success()))
    posting = step("c", "poster", "post it", "a")
    posting.tools.append("post")
    harness.planner.steps = [
        *(step("a", "leaky"), step("b", "broken"), posting),
        # As planned by a model that has read it in an earlier conversation.
        step("d", "other", f"Use {SECRET} now.", "a"),
    ]
    harness.composer.deltas = ["By ", SECRET[:5], SECRET[5:], " it was done: P."]
    async with harness.gateway(secrets_keys=new_key()) as gateway:
        following = Following(
            gateway, f"What does {SECRET} open?", context=nested(), trace=True, include_data=True
        )
        approval = await following.asked()
        await until_released(harness.dsn, approval.run_id)
        waiting = await stored(harness) + str(await get(gateway, approval))
        await respond(gateway, approval, APPROVE)
        events = await following.end()
        run = await gateway.run(approval.run_id)
        ended = await stored(harness)
        logged = left_behind(gateway)

    for text in (waiting, ended, logged, str(events), str(run), str(harness.planner.requests)):
        assert_nowhere(text)
    assert_nowhere(str(harness.composer.requests))
    # It was there: it came in, it was said again, and it was used.
    assert [dict(each.secrets) for each in leaky.inputs] == [{"shop_token": SECRET}]
    assert [dict(each.secrets) for each in other.inputs] == [{}]
    assert len(broken.inputs) == 1
    wanted = {"Authorization": f"Bearer {SECRET}", "Note": "for shop"}
    assert poster.posted == [(f"https://shop/?k={SECRET}", wanted)]
    # And what stands in its place says which it was.
    (action,) = approval.actions
    assert action.arguments.fields["url"].string_value == f"https://shop/?k={MASK}"
    assert MASK in str(approval.display)
    leaked, failed, posted = (result_of(events, each) for each in "abc")
    assert leaked.answer == f"Used {MASK}."
    assert set(leaked.data.fields) == {MASK, "quoted", "basic"}
    assert leaked.data.fields[MASK].bytes_value == MASK.encode()
    assert leaked.table.rows[0].values[0].string_value == MASK
    assert failed.error.message == (
        f"The agent broken could not do its part: The shop said: no such key {MASK}, nor {MASK}."
    )
    assert posted.status == AGENT_EXECUTION_STATUS_SUCCEEDED
    assert MASK in str(posted.performed_actions)
    assert run.question == f"What does {MASK} open?"
    response = events[-1].run_finished.response
    assert response.status == RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED
    assert response.answer == f"By {MASK} it was done: P."
    streamed = "".join(
        event.answer_delta.text for event in events if event.HasField("answer_delta")
    )
    # Provisional text is not stored: a follower that reads after the end sees none.
    assert streamed in ("", response.answer)
    assert [each.task for each in other.inputs] == [f"Use {MASK} now."]
    messages = [event.message for event in response.trace]
    assert [each for each in messages if each.startswith(f"The file {MASK}.png was not kept")]
    assert f"GET {MASK}" in messages
    places = "context.calls[0].auth.Shop-Token, context.users.ada.firebase_password"
    assert f"Credentials were taken out of the request: {places}." in messages
    context = harness.planner.requests[0].context
    assert context["token_budget"] == 5
    assert context["example"] == f"curl -H 'X: {MASK}'"


@pytest.mark.security
async def test_questions_to_the_user_say_no_credential(harness: Harness) -> None:
    asks = success(status=AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION, answer="")
    asks.clarification.questions.add(question=f"Is {SECRET} right?", options=[SECRET, "no"])
    await harness.plan(RawAgent("asking", lambda _: asks, **DECLARES))
    async with harness.gateway() as gateway:
        events = await gateway.events(context=nested())
        assert_nowhere(await stored(harness) + str(events))
    (question,) = events[-1].run_finished.response.clarification.questions
    assert question.question == f"Is {MASK} right?"
    assert list(question.options) == [MASK, "no"]


@pytest.mark.security
async def test_a_credential_is_masked_before_anything_is_cut(harness: Harness) -> None:
    """Half a credential would not be found."""

    asks = success(status=AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION, answer="")
    # Too long, so half of it goes: that ends in the midst of the credential.
    question = ("x" * 10_000 + SECRET).ljust(20_024, "y")
    asks.clarification.questions.add(question=question)
    await harness.plan(RawAgent("asking", lambda _: asks, **DECLARES))
    async with harness.gateway() as gateway:
        await gateway.events(context=nested())
        kept = await stored(harness)
    assert ("x" * 1000).encode().hex() in kept
    assert SECRET[:8].encode().hex() not in kept


@pytest.mark.security
async def test_a_plan_without_a_run_is_made_without_credentials(harness: Harness) -> None:
    await harness.plan(RawAgent("leaky", lambda _: success(), **DECLARES))
    async with harness.gateway() as gateway:
        await gateway.plan(f"What is {SECRET}?", context=nested())
    assert_nowhere(str(harness.planner.requests))
    assert harness.planner.requests[0].question == f"What is {MASK}?"


async def test_file_named_by_request_is_read_where_operator_allows_it(
    harness: Harness, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(SECRET, encoding="utf-8")
    declares = {"secret_context_keys": ["api_token_file"]}
    agent = await harness.plan(RawAgent("api", lambda _: echo(SECRET), **declares))
    context = Struct()
    context.update({"api": {"api_token_file": "token"}})
    async with harness.gateway(token_files_folder=tmp_path) as gateway:
        await gateway.events(context=context)
        assert_nowhere(await stored(harness))
    assert [dict(each.secrets) for each in agent.inputs] == [{"api_token_file": SECRET}]


class HeaderPoster(Poster):
    """Proposes a call with one of several headers that it was given, and with another encoding."""

    async def behave(self, task: AgentTask) -> AgentResult:
        key = json.loads(task.input.secrets["api_headers"])["X-Key"]
        data = await task.tools.call(
            "post", url=f"https://shop/?k={quote(key, safe='')}", headers={"X-Key": key}
        )
        return succeeded(task, data=data)


@pytest.mark.security
async def test_value_of_a_map_is_masked_in_displays_and_whole_in_calls(harness: Harness) -> None:
    poster = HeaderPoster("api_headers")
    await harness.add_agent(poster)
    posting = step("a", "poster", "post it")
    posting.tools.append("post")
    harness.planner.steps = [posting]
    context = Struct()
    context.update({"api_headers": {"Authorization": f"Bearer {PASSWORD}", "X-Key": SECRET}})
    async with harness.gateway(secrets_keys=new_key()) as gateway:
        following = Following(gateway, "Post it", context=context)
        approval = await following.asked()
        shown = await stored(harness) + str(await get(gateway, approval))
        await respond(gateway, approval, APPROVE)
        events = await following.end()
        assert_nowhere(shown + await stored(harness) + str(events) + left_behind(gateway))
    assert "[secret api_headers #" in str(approval.display)
    assert result_of(events, "a").status == AGENT_EXECUTION_STATUS_SUCCEEDED
    assert poster.posted == [(f"https://shop/?k={quote(SECRET, safe='')}", {"X-Key": SECRET})]
