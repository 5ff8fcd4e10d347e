"""Origins of tainted proposals: the steps, sources and inputs whose content others wrote. Pure.

A proposal rests on all that taints its step (:mod:`bos_gateway.core.taint`): on the steps whose
results it was handed and what those rest on, on attempts before a revision, on what the run began
with, and on what its own agent has read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

from bos.agent.v1 import AgentResult
from bos.common.v1 import Source
from bos.gateway import v1 as gateway
from bos.gateway.v1 import ContentOrigin
from bos_gateway.core.run_state import RunState, StepState

MAX_ORIGINS: Final = 8
"""Origins named in one request."""
MAX_SOURCES: Final = 3
"""Sources named of one origin."""
_MAX_TITLE_CHARS: Final = 120
_MAX_URI_CHARS: Final = 240


def origins_of(state: RunState, step: StepState, result: AgentResult) -> list[ContentOrigin]:
    """Origins of the content that tainted actions of ``result`` rest on; at most MAX_ORIGINS.

    Args:
        state: The run.
        step: The step that proposes.
        result: Its result, with the proposal.
    """
    found: dict[tuple[int, str, str], ContentOrigin] = {}
    for origin in chain(_began_with(state), _handed(state, step), _of_attempts(state)):
        found.setdefault((origin.kind, origin.step_id, origin.agent_name), origin)
    if step.approval is not None:  # of a proposal before this one
        for origin in step.approval.origins:
            found.setdefault((origin.kind, origin.step_id, origin.agent_name), origin)
    if result.sources or not found:
        own = _of_step(step.step.step_id, step.step.agent, result.sources)
        found.setdefault((own.kind, own.step_id, own.agent_name), own)
    return list(found.values())[:MAX_ORIGINS]


def _began_with(state: RunState) -> Iterator[ContentOrigin]:
    accepted = state.request
    if accepted.request.tainted:
        yield ContentOrigin(kind=gateway.CONTENT_ORIGIN_KIND_REQUEST)
    if any(message.tainted for message in accepted.conversation_history):
        yield ContentOrigin(kind=gateway.CONTENT_ORIGIN_KIND_CONVERSATION)
    if accepted.long_term_memory.tainted:
        yield ContentOrigin(kind=gateway.CONTENT_ORIGIN_KIND_MEMORY)
    if any(turn.tainted for turn in accepted.clarifications):
        yield ContentOrigin(kind=gateway.CONTENT_ORIGIN_KIND_CLARIFICATIONS)


def _handed(state: RunState, step: StepState) -> Iterator[ContentOrigin]:
    """Steps whose tainted results the step was handed, and those that these were handed."""
    waiting, seen = sorted(step.needs), set[str]()
    while waiting:
        step_id = waiting.pop(0)
        result = state.outputs.get(step_id)
        if step_id in seen or result is None:
            continue
        seen.add(step_id)
        waiting.extend(result.depends_on)
        if result.tainted:
            yield _of_step(step_id, result.agent_name, result.sources)


def _of_attempts(state: RunState) -> Iterator[ContentOrigin]:
    """Tainted steps of plans that were revised: the planner has read what came of them."""
    for attempt in state.past:
        for step_id, step in attempt.steps.items():
            if step.result is not None and step.result.tainted:
                yield _of_step(step_id, step.step.agent, step.result.sources)
            elif step.tainted:
                yield _of_step(step_id, step.step.agent, ())


def _of_step(step_id: str, agent: str, sources: Iterable[Source]) -> ContentOrigin:
    named = [
        Source(
            type=each.type,
            title=each.title[:_MAX_TITLE_CHARS],
            uri=each.uri[:_MAX_URI_CHARS],
        )
        for each in sources
    ]
    return ContentOrigin(
        kind=gateway.CONTENT_ORIGIN_KIND_STEP,
        step_id=step_id,
        agent_name=agent,
        sources=named[:MAX_SOURCES],
    )
