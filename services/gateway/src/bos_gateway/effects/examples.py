"""Verified queries for a step whose agent takes them; a step never fails, or waits, for them."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from bos.agent.v1 import AgentCard, QueryExample
from bos.runlog.v1 import SubTask
from bos_errors import BosError
from bos_gateway.core.agent_input import question_of_step
from bos_gateway.effects.context import EffectContext
from bos_gateway.verified_queries.stored import Reader

_TIMEOUT_S: Final = 1.0


async def examples_for(
    run: EffectContext, card: AgentCard | None, sub_task: SubTask
) -> Sequence[QueryExample]:
    """Verified queries like the question of a step, as the user and groups of its run read them."""
    if card is None or not card.takes_verified_queries:
        return ()
    accepted, reads = run.state.request, run.deps.metrics.verified_query_reads
    question = question_of_step(run.state, sub_task)
    try:
        async with asyncio.timeout(_TIMEOUT_S):
            found = await run.deps.verified_queries.similar(
                question,
                Reader(accepted.user_id, accepted.groups),
                database=accepted.request.backend,
            )
    except (BosError, TimeoutError):
        reads.labels("failed").inc()
        return ()
    reads.labels("found" if found else "none").inc()
    return found
