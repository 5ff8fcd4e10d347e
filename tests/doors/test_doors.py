"""The same cases through every door, with the same outcome."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from .a2a_door import A2aGrpcDoor, A2aHttpDoor, A2aJsonRpcDoor
from .door import Door, GrpcDoor, Refused, RestDoor, State
from .house import ANSWER, DEPLOYMENT, QUESTION_BACK, ROWS
from .mcp_door import McpDoor
from .openai_doors import CompletionsDoor, ResponsesDoor

if TYPE_CHECKING:
    from .house import House

pytestmark = [pytest.mark.rest, pytest.mark.process]

DOORS: list[type[Door]] = [
    GrpcDoor,
    RestDoor,
    ResponsesDoor,
    CompletionsDoor,
    McpDoor,
    A2aHttpDoor,
    A2aJsonRpcDoor,
    A2aGrpcDoor,
]
through_every_door = pytest.mark.parametrize("kind", DOORS, ids=lambda kind: kind.name)


@through_every_door
async def test_ask(house: House, kind: type[Door]) -> None:
    async with kind(house, house.token()) as door:
        seen = await door.ask("Who brought what?")
    assert (seen.state, seen.rows) == (State.ANSWERED, ROWS)
    assert ANSWER in seen.text


@through_every_door
async def test_stream(house: House, kind: type[Door]) -> None:
    async with kind(house, house.token()) as door:
        seen = await door.stream("Who brought what?")
    assert (seen.state, seen.rows) == (State.ANSWERED, ROWS)
    assert ANSWER in "".join(seen.pieces)


@through_every_door
async def test_drop_and_resume_over_a_kill_of_the_gateway(house: House, kind: type[Door]) -> None:
    house.harness.composer.release = asyncio.Event()
    async with kind(house, house.token()) as door:
        dropped = await door.drop("Who brought what?")
        await house.kill_gateway()
        await house.start_gateway()
        house.harness.composer.release.set()
        seen = await door.resume(dropped)
    assert seen.state is State.ANSWERED
    assert seen.text.count(ANSWER) == 1, "nothing is missing, and nothing comes twice"


@through_every_door
async def test_clarify(house: House, kind: type[Door]) -> None:
    house.ask_back()
    async with kind(house, house.token()) as door:
        asking = await door.ask("Who brought what?")
        assert asking.state is State.ASKS_BACK
        assert QUESTION_BACK in asking.text
        assert "2026" in asking.text
        seen = await door.reply(asking, "2026")
    assert seen.state is State.ANSWERED
    assert ANSWER in seen.text
    (settled,) = house.harness.planner.requests[-1].clarifications
    assert settled.reply == "2026"


@through_every_door
async def test_approve(house: House, kind: type[Door]) -> None:
    house.plan(DEPLOYMENT)
    async with kind(house, house.token()) as door:
        waiting = await door.ask("Put it into production")
        assert waiting.state is State.WAITS_FOR_APPROVAL
        for shown in ("trigger_deployment", "shop-web", "1.2"):
            assert shown in waiting.text
        assert not house.agent.landed
        seen = await door.reply(waiting, "yes")
    assert seen.state is State.ANSWERED
    assert house.agent.landed == {DEPLOYMENT: 1}


@through_every_door
async def test_deny(house: House, kind: type[Door]) -> None:
    house.plan(DEPLOYMENT)
    async with kind(house, house.token()) as door:
        waiting = await door.ask("Put it into production")
        seen = await door.reply(waiting, "no")
    assert seen.state in (State.FAILED, State.ANSWERED)
    assert not house.agent.landed


@through_every_door
async def test_cancel(house: House, kind: type[Door]) -> None:
    house.harness.composer.release = asyncio.Event()
    async with kind(house, house.token()) as door:
        dropped = await door.drop("Who brought what?")
        await door.cancel(dropped)
        assert (await door.look(dropped)).state is State.CANCELLED


@through_every_door
async def test_the_run_of_another_user(house: House, kind: type[Door]) -> None:
    house.harness.composer.release = asyncio.Event()
    async with (
        kind(house, house.token("ada")) as door,
        kind(house, house.token("mallory")) as other,
    ):
        dropped = await door.drop("Who brought what?")
        with pytest.raises(Refused):
            await other.look(dropped)
        with pytest.raises(Refused):
            await other.cancel(dropped)
        house.harness.composer.release.set()
        assert (await door.look(dropped)).state is State.ANSWERED
