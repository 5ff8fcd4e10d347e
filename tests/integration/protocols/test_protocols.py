"""The same cases through every endpoint, with the same outcome."""

import asyncio

import pytest

from .a2a_endpoint import A2aGrpcEndpoint, A2aHttpEndpoint, A2aJsonRpcEndpoint
from .endpoint import Endpoint, Refused, State
from .harness import ANSWER, DEPLOYMENT, QUESTION_BACK, ROWS, Harness
from .mcp_endpoint import McpEndpoint
from .openai_endpoints import CompletionsEndpoint, ResponsesEndpoint

pytestmark = [
    pytest.mark.rest,
    pytest.mark.process,
    pytest.mark.asyncio(loop_scope="module"),
]

PROTOCOLS: list[type[Endpoint]] = [
    ResponsesEndpoint,
    CompletionsEndpoint,
    McpEndpoint,
    A2aJsonRpcEndpoint,
]
BINDINGS: list[type[Endpoint]] = [*PROTOCOLS, A2aHttpEndpoint, A2aGrpcEndpoint]
through_every_protocol = pytest.mark.parametrize("kind", PROTOCOLS, ids=lambda kind: kind.name)
# The bindings of A2A differ in how requests and streams are sent; one servicer is behind them.
through_every_binding = pytest.mark.parametrize("kind", BINDINGS, ids=lambda kind: kind.name)


@through_every_binding
async def test_ask(harness: Harness, kind: type[Endpoint]) -> None:
    async with kind(harness, harness.token()) as endpoint:
        seen = await endpoint.ask("Who brought what?")
    assert (seen.state, seen.rows) == (State.ANSWERED, ROWS)
    assert ANSWER in seen.text


@through_every_binding
async def test_stream(harness: Harness, kind: type[Endpoint]) -> None:
    async with kind(harness, harness.token()) as endpoint:
        seen = await endpoint.stream("Who brought what?")
    assert (seen.state, seen.rows) == (State.ANSWERED, ROWS)
    assert ANSWER in "".join(seen.pieces)


@through_every_protocol
async def test_drop_and_resume_over_a_kill_of_the_gateway(
    harness: Harness, kind: type[Endpoint]
) -> None:
    harness.gateway.composer.release = asyncio.Event()
    async with kind(harness, harness.token()) as endpoint:
        dropped = await endpoint.drop("Who brought what?")
        await harness.kill_gateway()
        await harness.start_gateway()
        harness.gateway.composer.release.set()
        seen = await endpoint.resume(dropped)
    assert seen.state is State.ANSWERED
    assert seen.text.count(ANSWER) == 1, "nothing is missing, and nothing comes twice"


@through_every_protocol
async def test_clarify(harness: Harness, kind: type[Endpoint]) -> None:
    harness.ask_back()
    async with kind(harness, harness.token()) as endpoint:
        asking = await endpoint.ask("Who brought what?")
        assert asking.state is State.ASKS_BACK
        assert QUESTION_BACK in asking.text
        assert "2026" in asking.text
        seen = await endpoint.reply(asking, "2026")
    assert seen.state is State.ANSWERED
    assert ANSWER in seen.text
    (settled,) = harness.gateway.planner.requests[-1].clarifications
    assert settled.reply == "2026"


@through_every_protocol
async def test_deny_and_approve(harness: Harness, kind: type[Endpoint]) -> None:
    harness.plan(DEPLOYMENT)
    async with kind(harness, harness.token()) as endpoint:
        waiting = await endpoint.ask("Put it into production")
        assert waiting.state is State.WAITS_FOR_APPROVAL
        for shown in ("trigger_deployment", "shop-web", "1.2"):
            assert shown in waiting.text
        denied = await endpoint.reply(waiting, "no")
        assert denied.state in (State.FAILED, State.ANSWERED)
        waiting = await endpoint.ask("Put it into production")
        assert not harness.agent.landed
        approved = await endpoint.reply(waiting, "yes")
    assert approved.state is State.ANSWERED
    assert harness.agent.landed == {DEPLOYMENT: 1}


@through_every_protocol
async def test_cancel(harness: Harness, kind: type[Endpoint]) -> None:
    harness.gateway.composer.release = asyncio.Event()
    async with kind(harness, harness.token()) as endpoint:
        dropped = await endpoint.drop("Who brought what?")
        await endpoint.cancel(dropped)
        assert (await endpoint.look(dropped)).state is State.CANCELLED


@through_every_binding
async def test_the_run_of_another_user(harness: Harness, kind: type[Endpoint]) -> None:
    harness.gateway.composer.release = asyncio.Event()
    async with (
        kind(harness, harness.token("ada")) as endpoint,
        kind(harness, harness.token("mallory")) as other,
    ):
        dropped = await endpoint.drop("Who brought what?")
        with pytest.raises(Refused):
            await other.look(dropped)
        with pytest.raises(Refused):
            await other.cancel(dropped)
        harness.gateway.composer.release.set()
        assert (await endpoint.look(dropped)).state is State.ANSWERED
