"""What is a credential does not depend on which agents have answered the replica that is asked."""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

import grpc
import pytest
from google.protobuf.struct_pb2 import Struct

from bos_agentkit import agent_card
from bos_errors import AlreadyExists, from_rpc_error
from bos_gateway.run_log.reader import StoredCards
from bos_testkit.agents import EchoAgent, agent_server
from bos_testkit.plans import step

from .test_planted_secrets import stored
from .test_stored_cards import accepted, pool

if TYPE_CHECKING:
    from gateway_harness.harness import Harness
    from test_stored_cards import Pool

__all__ = ["pool"]


def shop(token: str, **more: str) -> Struct:
    context = Struct()
    context.update({"shop_token": token, **more})
    return context


@pytest.mark.security
async def test_new_replica_knows_declared_keys_of_an_unreachable_agent(
    harness: Harness,
) -> None:
    await harness.add_agent(EchoAgent("echo"))
    harness.planner.steps = [step("a", "echo")]
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
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await fresh.ask(request_id="mine", context=shop("Token-of-monday", tenant="other"))
            assert isinstance(from_rpc_error(refused.value), AlreadyExists)
    kept = await stored(harness)
    assert not [day for day in ("monday", "tuesday", "wednesday") if day.encode().hex() in kept]


async def test_the_latest_card_of_each_agent_counts(pool: Pool) -> None:
    cards = StoredCards(pool)
    assert await cards.latest() == []
    old, other = agent_card("shop", "Sells.", secret_context_keys=["old"]), agent_card("a", "Does.")
    new = agent_card("shop", "Sells.", secret_context_keys=["new"])
    await cards.without(accepted(old, other))
    await cards.without(accepted(new))
    found = {card.name: list(card.secret_context_keys) for card in await cards.latest()}
    assert found == {"shop": ["new"], "a": []}
