"""Audit entries of runs: steps that may have read data, and actions performed. Pure.

It goes by what the gateway knows: an agent that says that it read nothing is recorded all the same,
if its run tokens open a service where data are.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final

from bos.common.v1 import TRACE_EVENT_TYPE_TOOL
from bos_gateway.core.run_state import SUCCEEDED
from bos_gateway.core.unknown_outcomes import uncertain_actions
from bos_gateway.permits.audiences import granted
from bos_postgres.audit import By

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from bos.common.v1 import TraceEvent
    from bos.runlog.v1 import LogEvent, StepFinished
    from bos_gateway.core.run_state import RunState, StepState
    from bos_gateway.permits.audiences import Audiences
    from bos_postgres.audit import AuditEntry

SERVICE: Final = By("gateway", "service")
"""What the gateway does by itself."""
_MOST_TOOLS: Final = 8


def entries_of(
    state: RunState, events: Sequence[LogEvent], audiences: Audiences
) -> list[AuditEntry]:
    """The entries that belong to events, to be written with them; the state is that before them."""
    entries: list[AuditEntry] = []
    for place, event in enumerate(events):
        if event.HasField("step_finished"):
            finished = event.step_finished
            step = state.steps.get(finished.step_id)
            if step is not None and step.revision == finished.revision:
                calls = _tool_calls(step, finished, events[:place])
                entries += _performed(state, step, finished)
                entries += _read(state, step, finished, calls, audiences)
    return entries


def _tool_calls(
    step: StepState, finished: StepFinished, before: Iterable[LogEvent]
) -> list[TraceEvent]:
    """What the agent reported of its tools, also in the events of the same commit."""
    reported = list(step.trace)
    for event in before:
        progressed = event.step_progressed
        if (progressed.step_id, progressed.revision) == (finished.step_id, finished.revision):
            reported += progressed.events
    return [each for each in reported if each.type == TRACE_EVENT_TYPE_TOOL]


def _read(
    state: RunState,
    step: StepState,
    finished: StepFinished,
    calls: Sequence[TraceEvent],
    audiences: Audiences,
) -> Iterator[AuditEntry]:
    result, agent = finished.result, step.step.agent
    services = granted(state.card(agent), agent, audiences)[1:]
    if step.sub_task is None or not (services or calls or result.sources or result.usage.api_calls):
        return
    tools = sorted({call.message for call in calls if _is_tool(state, agent, call.message)})
    yield By(state.request.user_id).entry(
        "data.read",
        state.run_id,
        outcome="succeeded" if result.status == SUCCEEDED else "failed",
        step=_place(state, step),
        agent=agent,
        services=" ".join(services),
        tools=" ".join(tools[:_MOST_TOOLS]),
        calls=str(len(calls)),
        digest=_digest(step, calls),
    )


def _place(state: RunState, step: StepState) -> str:
    """Revision and number of the step in its plan: its id was made up by a model."""
    return f"{step.revision}.{list(state.steps).index(step.step.step_id) + 1}"


def _is_tool(state: RunState, agent: str, name: str) -> bool:
    """Whether this names a tool of the agent's card: anything else would be content."""
    card = state.card(agent)
    return card is not None and any(tool.name == name for tool in card.tools)


def _digest(step: StepState, calls: Sequence[TraceEvent]) -> str:
    """SHA-256 of what was sent to the agent and of its calls, as they stand in the run's log."""
    digest = hashlib.sha256()
    for message in (step.sub_task, *calls):
        if message is not None:
            part = message.SerializeToString(deterministic=True)
            digest.update(len(part).to_bytes(8, "big") + part)
    return f"sha256:{digest.hexdigest()}"


def _performed(state: RunState, step: StepState, finished: StepFinished) -> Iterator[AuditEntry]:
    """What was approved and may have been done, also if the outcome is unknown."""
    result = finished.result
    approval = step.approval
    if approval is None:
        return
    sure = {each.action.digest for each in result.performed_actions if not each.outcome_unknown}
    for action in uncertain_actions(step):
        done = action.digest in sure
        yield By(state.request.user_id).entry(
            "action.performed",
            state.run_id,
            outcome="succeeded" if done else "failed",
            step=_place(state, step),
            agent=step.step.agent,
            tool=action.tool,
            digest=action.digest,
            approval=approval.approval_id,
            known="yes" if done else "no",
        )
