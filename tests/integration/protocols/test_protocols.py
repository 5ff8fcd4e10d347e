"""The same cases through every endpoint, with the same outcome."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from .a2a_endpoint import A2aGrpcEndpoint, A2aHttpEndpoint, A2aJsonRpcEndpoint
from .endpoint import Endpoint, GrpcEndpoint, Refused, RestEndpoint, State
from .house import ANSWER, DEPLOYMENT, QUESTION_BACK, ROWS
from .mcp_endpoint import McpEndpoint
from .openai_endpoints import CompletionsEndpoint, ResponsesEndpoint

if TYPE_CHECKING:
    from .house import House

pytestmark = [pytest.mark.rest, pytest.mark.process]

PROTOCOLS: list[type[Endpoint]] = [
    GrpcEndpoint,
    RestEndpoint,
    ResponsesEndpoint,
    CompletionsEndpoint,
    McpEndpoint,
    A2aHttpEndpoint,
    A2aJsonRpcEndpoint,
    A2aGrpcEndpoint,
]
through_every_endpoint = pytest.mark.parametrize("kind", PROTOCOLS, ids=lambda kind: kind.name)


@through_every_endpoint
async def test_ask(house: House, kind: type[Endpoint]) -> None:
    async with kind(house, house.token()) as endpoint:
        seen = await endpoint.ask("Who brought what?")
    assert (seen.state, seen.rows) == (State.ANSWERED, ROWS)
    assert ANSWER in seen.text


@through_every_endpoint
async def test_stream(house: House, kind: type[Endpoint]) -> None:
    async with kind(house, house.token()) as endpoint:
        seen = await endpoint.stream("Who brought what?")
    assert (seen.state, seen.rows) == (State.ANSWERED, ROWS)
    assert ANSWER in "".join(seen.pieces)


@through_every_endpoint
async def test_drop_and_resume_over_a_kill_of_the_gateway(
    house: House, kind: type[Endpoint]
) -> None:
    house.harness.composer.release = asyncio.Event()
    async with kind(house, house.token()) as endpoint:
        dropped = await endpoint.drop("Who brought what?")
        await house.kill_gateway()
        await house.start_gateway()
        house.harness.composer.release.set()
        seen = await endpoint.resume(dropped)
    assert seen.state is State.ANSWERED
    assert seen.text.count(ANSWER) == 1, "nothing is missing, and nothing comes twice"


@through_every_endpoint
async def test_clarify(house: House, kind: type[Endpoint]) -> None:
    house.ask_back()
    async with kind(house, house.token()) as endpoint:
        asking = await endpoint.ask("Who brought what?")
        assert asking.state is State.ASKS_BACK
        assert QUESTION_BACK in asking.text
        assert "2026" in asking.text
        seen = await endpoint.reply(asking, "2026")
    assert seen.state is State.ANSWERED
    assert ANSWER in seen.text
    (settled,) = house.harness.planner.requests[-1].clarifications
    assert settled.reply == "2026"


@through_every_endpoint
async def test_approve(house: House, kind: type[Endpoint]) -> None:
    house.plan(DEPLOYMENT)
    async with kind(house, house.token()) as endpoint:
        waiting = await endpoint.ask("Put it into production")
        assert waiting.state is State.WAITS_FOR_APPROVAL
        for shown in ("trigger_deployment", "shop-web", "1.2"):
            assert shown in waiting.text
        assert not house.agent.landed
        seen = await endpoint.reply(waiting, "yes")
    assert seen.state is State.ANSWERED
    assert house.agent.landed == {DEPLOYMENT: 1}


@through_every_endpoint
async def test_deny(house: House, kind: type[Endpoint]) -> None:
    house.plan(DEPLOYMENT)
    async with kind(house, house.token()) as endpoint:
        waiting = await endpoint.ask("Put it into production")
        seen = await endpoint.reply(waiting, "no")
    assert seen.state in (State.FAILED, State.ANSWERED)
    assert not house.agent.landed


@through_every_endpoint
async def test_cancel(house: House, kind: type[Endpoint]) -> None:
    house.harness.composer.release = asyncio.Event()
    async with kind(house, house.token()) as endpoint:
        dropped = await endpoint.drop("Who brought what?")
        await endpoint.cancel(dropped)
        assert (await endpoint.look(dropped)).state is State.CANCELLED


@through_every_endpoint
async def test_the_run_of_another_user(house: House, kind: type[Endpoint]) -> None:
    house.harness.composer.release = asyncio.Event()
    async with (
        kind(house, house.token("ada")) as endpoint,
        kind(house, house.token("mallory")) as other,
    ):
        dropped = await endpoint.drop("Who brought what?")
        with pytest.raises(Refused):
            await other.look(dropped)
        with pytest.raises(Refused):
            await other.cancel(dropped)
        house.harness.composer.release.set()
        assert (await endpoint.look(dropped)).state is State.ANSWERED
