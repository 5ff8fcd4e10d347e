"""What agents read ahead while the first plan of a run is being made.

Nothing depends on it, so nothing of it is in the run's log: planning does not wait for it, failures
are counted and forgotten, and a replica that adopts the run does without.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc

from bos.agent.v1 import PrepareRequest, TaskMetadata
from bos_chassis.errors import from_rpc_error
from bos_gateway.continuing import question_of
from bos_gateway.decide import run_deadline

if TYPE_CHECKING:
    from bos.agent.v1 import AgentCard
    from bos_gateway.effects import EffectContext
    from bos_gateway.state import RunState

# What takes longer than making a plan is hardly ahead of the steps any more.
_TIMEOUT_S = 5.0
_MAX_AGENTS = 8


async def prepare_agents(run: EffectContext) -> None:
    """Have the agents that can read ahead do so, all at once; returns when they are done."""
    await asyncio.gather(*(_prepare(run, card) for card in _preparing(run.state)))


def _preparing(state: RunState) -> list[AgentCard]:
    """The agents to tell, those first that the user prefers."""
    request = state.request.request
    cards = [
        card
        for card in state.request.cards
        if card.prepares
        and card.name not in request.disable_agents
        and card.name not in state.request.unavailable_agents
    ]
    return sorted(cards, key=lambda card: card.name not in request.prefer_agents)[:_MAX_AGENTS]


async def _prepare(run: EffectContext, card: AgentCard) -> None:
    stub = run.services.registry.stub(card.name)
    if stub is None:
        return
    accepted = run.state.request
    request = PrepareRequest(
        metadata=TaskMetadata(
            user_id=accepted.user_id,
            run_id=run.state.run_id,
            conversation_id=accepted.request.conversation_id,
        ),
        question=question_of(accepted),
    )
    timeout_s = min(_TIMEOUT_S, run.left_s(run_deadline(run.state)))
    audiences = [card.name, *card.downstream_audiences]
    call = stub.Prepare(request, timeout=timeout_s, metadata=run.token(audiences, timeout_s))
    outcome = "cancelled"
    try:
        await call
        outcome = "done"
    except grpc.RpcError as error:
        outcome = from_rpc_error(error).code.name.lower()
    finally:
        call.cancel()
        run.services.metrics.preparations.labels(card.name, outcome).inc()
