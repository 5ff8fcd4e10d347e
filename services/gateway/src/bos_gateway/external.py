"""Events that are too large for the log: what stands for them there. Pure.

The log's row holds a stub with the digest of the serialised event; the event itself is in the
artefact store. Folding and deciding never see a stub: who reads the log puts the event in its
place, or, if its value is gone, an event that says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from bos.agent.v1 import AGENT_EXECUTION_STATUS_FAILED, AgentResult
from bos.common.v1 import AgentError
from bos.gateway.v1 import OrchestratorResponse, ResponseMetadata
from bos.runlog.v1 import (
    ApprovalRequested,
    ExternalEvent,
    LogEvent,
    PlanFailed,
    RunFinished,
    StepDispatched,
    StepFinished,
    StepProgressed,
)
from bos_gateway.failures import VALUE_MISSING, error_trace
from bos_gateway.results import fit

if TYPE_CHECKING:
    from bos_artefacts import Artefact

MAX_EVENT_BYTES: Final = 256 * 1024
PLAIN_VERSION: Final = 1
"""Schema version of events that stand in the log themselves."""
EXTERNAL_VERSION: Final = 2
"""Schema version of stubs, and of steps with files; earlier readers leave the run to later ones."""

_MOVED: Final = frozenset(
    {"step_dispatched", "step_progressed", "step_finished", "approval_requested", "run_finished"}
)
_OUTLINE_BYTES: Final = 96 * 1024
_OUTLINE_CHARS: Final = 16 * 1024
_GONE = "A value of this question is gone from the artefact store, or damaged there."


def is_large(event: LogEvent) -> bool:
    """Whether the event belongs into the artefact store."""
    return event.WhichOneof("event") in _MOVED and event.ByteSize() > MAX_EVENT_BYTES


def kind_of(event: LogEvent) -> str:
    """What happened, also for a stub."""
    kind = event.WhichOneof("event") or ""
    return event.external_event.kind if kind == "external_event" else kind


def version_of(event: LogEvent) -> int:
    """The oldest schema version that can read what is stored of the event.

    A step with files counts as one with values elsewhere, which go with the run when it is deleted.
    """
    with_files = event.HasField("step_finished") and event.step_finished.result.files
    elsewhere = with_files or event.HasField("external_event")
    return EXTERNAL_VERSION if elsewhere else PLAIN_VERSION


def stub_of(event: LogEvent, artefact: Artefact) -> LogEvent:
    """What stands in the log for an event that is stored elsewhere."""
    external = ExternalEvent(
        kind=event.WhichOneof("event") or "",
        digest=artefact.digest,
        size_bytes=artefact.size_bytes,
        outline=_outline(event),
    )
    return LogEvent(create_time=event.create_time, external_event=external)


def substitute(stub: LogEvent) -> LogEvent:
    """The event that takes the place of one whose value is gone.

    A step's result becomes a failure, the end of a run keeps its answer; without anything else the
    run cannot go on, which is what a plan that failed says.
    """
    external = stub.external_event
    event = LogEvent()
    event.CopyFrom(external.outline)
    event.create_time.CopyFrom(stub.create_time)
    now = stub.create_time.ToDatetime()
    match external.kind:
        case "step_finished":
            result = event.step_finished.result
            result.status = AGENT_EXECUTION_STATUS_FAILED
            result.error.CopyFrom(AgentError(type=VALUE_MISSING, message=_GONE))
        case "step_progressed":
            event.step_progressed.events.append(error_trace("", VALUE_MISSING, _GONE, now))
        case "run_finished":
            response = event.run_finished.response
            response.trace.append(error_trace("", VALUE_MISSING, _GONE, now))
        case _:
            revision = event.step_dispatched.revision or event.approval_requested.revision
            error = AgentError(type=VALUE_MISSING, message=_GONE)
            event.plan_failed.CopyFrom(PlanFailed(revision=revision, error=error))
    return event


def cut(event: LogEvent) -> LogEvent:
    """The event as it is when the store does not take it: a step's result is cut, and says so."""
    if not event.HasField("step_finished"):
        return event
    smaller = LogEvent()
    smaller.CopyFrom(event)
    result = smaller.step_finished.result
    (fitting,) = fit([result], MAX_EVENT_BYTES - 1024)
    text = "The result was cut, because the artefact store did not take it."
    now = event.create_time.ToDatetime()
    fitting.trace.append(error_trace(result.agent_name, VALUE_MISSING, text, now))
    result.CopyFrom(fitting)
    return smaller


def _outline(event: LogEvent) -> LogEvent:
    match event.WhichOneof("event"):
        case "step_finished":
            finished = event.step_finished
            result = AgentResult(
                agent_id=finished.result.agent_id,
                agent_name=finished.result.agent_name,
                depends_on=finished.result.depends_on,
                usage=finished.result.usage,
                latency=finished.result.latency,
            )
            outline = StepFinished(
                revision=finished.revision,
                step_id=finished.step_id,
                result=result,
                attempts=finished.attempts,
            )
            return LogEvent(step_finished=outline)
        case "step_progressed":
            progressed = event.step_progressed
            return LogEvent(
                step_progressed=StepProgressed(
                    revision=progressed.revision, step_id=progressed.step_id
                )
            )
        case "run_finished":
            response = _outline_of(event.run_finished.response)
            return LogEvent(run_finished=RunFinished(response=response))
        case "step_dispatched":
            dispatched = event.step_dispatched
            return LogEvent(
                step_dispatched=StepDispatched(
                    revision=dispatched.revision, step_id=dispatched.step_id
                )
            )
        case "approval_requested":
            requested = ApprovalRequested(revision=event.approval_requested.revision)
            return LogEvent(approval_requested=requested)
        case _:
            return LogEvent()


def _outline_of(response: OrchestratorResponse) -> OrchestratorResponse:
    outline = OrchestratorResponse()
    outline.CopyFrom(response)
    for field in ("data", "trace", "charts"):
        outline.ClearField(field)
    results = fit(outline.agent_results, _OUTLINE_BYTES // 2)
    del outline.agent_results[:]
    outline.agent_results.extend(results)
    if outline.ByteSize() <= _OUTLINE_BYTES:
        return outline
    metadata = ResponseMetadata(
        usage=response.metadata.usage, max_tokens=response.metadata.max_tokens
    )
    return OrchestratorResponse(
        run_id=response.run_id,
        status=response.status,
        answer=response.answer[:_OUTLINE_CHARS],
        metadata=metadata,
    )
