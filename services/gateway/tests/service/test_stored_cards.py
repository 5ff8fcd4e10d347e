"""Agents' cards beside the log: once for all runs that had the same, and back in every state."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any
from uuid import UUID

import pytest
from gateway_harness.answering import refusal
from gateway_harness.harness import Harness
from gateway_harness.stored import log_of
from google.protobuf.struct_pb2 import Struct

from bos.agent.v1 import AgentCard
from bos.runlog.v1 import LogEvent, RunAccepted
from bos_agentkit import agent_card
from bos_errors import AlreadyExists
from bos_gateway.core.run_state import BrokenLog
from bos_gateway.run_log.reader import Runs, StoredCards
from bos_testkit.agents import EchoAgent, agent_server

from .test_planted_secrets import stored

CARDS = [agent_card("echo", "Echoes."), agent_card("sums", "Adds up.")]


def accepted(*cards: AgentCard) -> LogEvent:
    return LogEvent(run_accepted=RunAccepted(user_id="anna", cards=cards))


async def count(pool: Any) -> int:
    stored: int = await pool.fetchval("SELECT count(*)::int FROM cards")
    return stored


async def test_cards_are_stored_once_and_come_back(pool: Any) -> None:
    event = accepted(*CARDS)
    replicas = [StoredCards(pool) for _ in range(4)]
    first, *others = await asyncio.gather(*(each.without(event) for each in replicas))
    assert others == [first] * 3
    assert await count(pool) == 1
    assert list(event.run_accepted.cards) == CARDS  # as it was
    assert not first.run_accepted.cards
    assert first.run_accepted.user_id == "anna"
    for cards in (replicas[0], StoredCards(pool)):
        read = LogEvent.FromString(first.SerializeToString())
        for _ in range(2):  # also an event that has them already
            await cards.put_back(read)
            assert list(read.run_accepted.cards) == CARDS


async def test_other_cards_are_other_rows(pool: Any) -> None:
    changed = CARDS[::-1]
    cards = StoredCards(pool)
    before = await cards.without(accepted(*CARDS))
    after = await cards.without(accepted(*changed))
    assert await count(pool) == 2
    for event, whole in ((before, CARDS), (after, changed)):
        await StoredCards(pool).put_back(event)
        assert list(event.run_accepted.cards) == whole


async def test_few_are_kept_in_memory(pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bos_gateway.run_log.reader._CARDS_KEPT", 2)
    cards = StoredCards(pool)
    events = [await cards.without(accepted(agent_card(f"a{n}", "Does."))) for n in range(4)]
    for n, event in enumerate(events):
        await cards.put_back(event)
        assert event.run_accepted.cards[0].name == f"a{n}"
    assert len(cards._known) == 2


async def test_runs_share_their_cards_and_are_read_with_them(harness: Harness, pool: Any) -> None:
    await harness.add_agent(EchoAgent("echo"))
    async with harness.gateway() as gateway:
        runs = [UUID((await gateway.ask(f"What? {n}")).run_id) for n in range(3)]
    assert await count(pool) == 1
    (first, *_) = await log_of(harness.dsn, "run_id = $1", runs[0])
    assert not first.run_accepted.cards
    for run_id in runs:
        log = await Runs(pool).log(run_id)
        assert [card.name for card in log[0].run_accepted.cards] == ["echo"]
    await pool.execute("DELETE FROM cards")
    with pytest.raises(BrokenLog, match=f"cards {first.run_accepted.cards_digest.hex()}"):
        await Runs(pool).log(runs[0])


def shop(token: str, **more: str) -> Struct:
    context = Struct()
    context.update({"shop_token": token, **more})
    return context


@pytest.mark.security
async def test_new_replica_knows_declared_keys_of_an_unreachable_agent(harness: Harness) -> None:
    await harness.plan(EchoAgent("echo"))
    card = agent_card("shop", "Sells.", secret_context_keys=["shop_token"])
    async with AsyncExitStack() as stack:
        async with agent_server(EchoAgent("shop", card=card)) as address:
            harness.agent_targets["shop"] = address
            first = await stack.enter_async_context(harness.gateway())
            asked = await first.ask(request_id="mine", context=shop("Token-of-monday"))
        async with harness.gateway() as fresh:
            again = await fresh.ask(request_id="mine", context=shop("Token-of-tuesday"))
            assert again.run_id == asked.run_id
            await fresh.ask(request_id="new", context=shop("Token-of-wednesday"))
            other = shop("Token-of-monday", tenant="other")
            refused = await refusal(fresh.ask(request_id="mine", context=other))
            assert isinstance(refused, AlreadyExists)
    kept = await stored(harness)
    assert not [day for day in ("monday", "tuesday", "wednesday") if day.encode().hex() in kept]


async def test_the_latest_card_of_each_agent_counts(pool: Any) -> None:
    cards = StoredCards(pool)
    assert await cards.latest() == []
    old, other = agent_card("shop", "Sells.", secret_context_keys=["old"]), agent_card("a", "Does.")
    new = agent_card("shop", "Sells.", secret_context_keys=["new"])
    await cards.without(accepted(old, other))
    await cards.without(accepted(new))
    found = {card.name: list(card.secret_context_keys) for card in await cards.latest()}
    assert found == {"shop": ["new"], "a": []}
