"""Planning: candidates by heuristic and preferences, then a stored plan or one model call.

Any failure of the model leads to the heuristic plan; the trace has the reason.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from google.protobuf import timestamp_pb2

from bos.common.v1 import TraceEvent, TraceEventType
from bos.planner.v1 import (
    Intent,
    IntentRoute,
    MakePlanRequest,
    MakePlanResponse,
    Plan,
    PlannerDecision,
)
from bos_chassis.values import to_value
from bos_llm import NoReply, TokenBudget, Usage, attempt, consumed, set_budget, set_model_choice
from bos_planner.draft import (
    Bounds,
    Draft,
    PlanInvalid,
    draft_from_reply,
    heuristic_draft,
    same_work,
)
from bos_planner.prompts import plan_messages
from bos_planner.reply import PlannerReply
from bos_plans import HEURISTIC, HEURISTIC_CONFIDENCE, Selection, select

if TYPE_CHECKING:
    from bos_chassis.telemetry import Telemetry
    from bos_llm import Message, Models
    from bos_planner.settings import PlannerSettings
    from bos_planner.templates import Templates


@dataclass(frozen=True, slots=True)
class _Task:
    """A planning request with its candidates and constraints."""

    request: MakePlanRequest
    selection: Selection
    bounds: Bounds

    @property
    def revising(self) -> bool:
        return self.request.HasField("revision")


class Planner:
    """Makes plans; stateless and safe to share.

    Args:
        settings: Limits.
        telemetry: Where plans are logged.
        models: Access to the model; None plans by heuristic and stored plans only.
        templates: Stored plans that are tried first.
    """

    def __init__(
        self,
        settings: PlannerSettings,
        telemetry: Telemetry,
        *,
        models: Models | None,
        templates: Templates,
    ) -> None:
        self._settings = settings
        self._log = telemetry.logger("bos.planner")
        # Resolved here, so that wrong model settings fail the start and not the first plan.
        self._model = None if models is None else models.for_agent("planner")
        self._templates = templates

    async def make_plan(self, request: MakePlanRequest) -> MakePlanResponse:
        """Make a plan for the question, or a revision.

        A revision without a new plan has no steps. Failures of the model never reach the caller.
        """
        started = time.monotonic()
        set_budget(TokenBudget(request.token_budget if request.HasField("token_budget") else None))
        set_model_choice(request.model)
        task = self._task(request)
        trace: list[TraceEvent] = []
        usage = Usage()
        draft = None if task.revising else self._stored(task, trace)
        if draft is None:
            try:
                draft, usage = await self._asked(task, trace)
            except NoReply as failure:
                trace.append(_explain(failure, task))
                usage = failure.usage
                draft = _fallback(task, failure)
        trace += _route_and_decision(draft)
        self._log.info(
            "planned",
            origin=draft.plan.origin,
            intent=Intent.Name(draft.intent.intent),
            agents=list(draft.decision.chosen_agents),
            steps=len(draft.plan.steps),
            confidence=draft.decision.confidence,
        )
        return MakePlanResponse(
            plan=draft.plan,
            decision=draft.decision,
            intent=draft.intent,
            trace=trace,
            usage=consumed(usage, started),
            only_plan=self._model is None or not self._model.configured,
        )

    def _task(self, request: MakePlanRequest) -> _Task:
        cards = {card.name: card for card in request.cards}
        selection = select(request)
        completed = {e.step_id for e in request.revision.execution_context if e.succeeded}
        steps = {step.step_id: step for step in request.revision.failed_plan.steps}
        bounds = Bounds(
            cards=cards,
            disabled=selection.disabled,
            max_steps=request.max_steps or self._settings.max_steps,
            completed=completed,
            earlier=steps,
            blocked=[step.step_id for step in request.revision.blocked_steps],
        )
        return _Task(request, selection, bounds)

    def _stored(self, task: _Task, trace: list[TraceEvent]) -> Draft | None:
        reply = self._templates.match(task.request.question)
        if reply is None:
            return None
        try:
            draft = draft_from_reply(
                reply, task.request.question, task.selection, task.bounds, origin="template"
            )
        except PlanInvalid as error:
            trace.append(
                _event(
                    TraceEventType.TRACE_EVENT_TYPE_MESSAGE,
                    "A stored plan fits the question but cannot be used here.",
                    problems=list(error.problems),
                )
            )
            return None
        wanted = task.selection.guardrails.get("preferred_agents", ())
        # A stored plan does not consider this user's preferences; the model does.
        return draft if set(wanted) <= set(draft.decision.chosen_agents) else None

    async def _asked(self, task: _Task, trace: list[TraceEvent]) -> tuple[Draft, Usage]:
        reply = await attempt(
            self._model,
            lambda: self._messages(task),
            PlannerReply,
            within_s=self._settings.model_timeout_s,
            log=self._log,
        )
        usage = reply.usage
        trace.append(
            _event(
                TraceEventType.TRACE_EVENT_TYPE_MESSAGE,
                "Planner called its model",
                model=usage.model,
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                model_calls=usage.calls,
            )
        )
        try:
            draft = draft_from_reply(
                reply.value, task.request.question, task.selection, task.bounds, origin="model"
            )
        except PlanInvalid as error:
            raise NoReply(
                f"The model's plan cannot be used. {error}", "PLAN_INVALID", usage
            ) from error
        if task.revising and _nothing_new(draft.plan, task):
            raise NoReply("The model found no new plan.", "NO_NEW_PLAN", usage)
        return draft, usage

    def _messages(self, task: _Task) -> list[Message]:
        bounds = task.bounds
        return plan_messages(
            task.request,
            task.selection,
            cards=[c for c in task.request.cards if c.name not in bounds.disabled],
            disabled=list(bounds.disabled),
            max_steps=bounds.max_steps,
            history_messages=self._settings.history_messages,
        )


def _fallback(task: _Task, failure: NoReply) -> Draft:
    if not task.revising:
        return heuristic_draft(
            task.request.question, task.selection, task.bounds, why=failure.message
        )
    # The heuristic would repeat its plan; no new plan ends the attempts.
    decision = PlannerDecision(
        rationale=f"No new plan: {failure.message}", confidence=HEURISTIC_CONFIDENCE
    )
    return Draft(Plan(origin=HEURISTIC), decision, IntentRoute())


def _nothing_new(plan: Plan, task: _Task) -> bool:
    settled = {*task.bounds.completed, *task.bounds.blocked}
    open_steps = [
        step for step in task.request.revision.failed_plan.steps if step.step_id not in settled
    ]
    return not plan.steps or same_work(plan, Plan(steps=open_steps))


def _explain(failure: NoReply, task: _Task) -> TraceEvent:
    """Trace event for a missing reply: a message if no model is configured, else an error."""
    kind = (
        TraceEventType.TRACE_EVENT_TYPE_MESSAGE
        if failure.not_configured
        else TraceEventType.TRACE_EVENT_TYPE_ERROR
    )
    outcome = "There is no new plan." if task.revising else "The heuristic plans instead."
    return _event(kind, f"{failure.message} {outcome}", reason=failure.reason)


def _route_and_decision(draft: Draft) -> list[TraceEvent]:
    events = []
    route, decision = draft.intent, draft.decision
    if route.intent != Intent.INTENT_UNSPECIFIED:
        events.append(
            _event(
                TraceEventType.TRACE_EVENT_TYPE_MESSAGE,
                "Planner routed the intent",
                intent=Intent.Name(route.intent).removeprefix("INTENT_"),
                confidence=route.confidence,
                reason=route.reason,
                suggested_next_agent=route.suggested_next_agent,
            )
        )
    events.append(
        _event(
            TraceEventType.TRACE_EVENT_TYPE_DECISION,
            "Planner produced execution order",
            agents=list(decision.chosen_agents),
            confidence=decision.confidence,
        )
    )
    return events


def _event(kind: TraceEventType, message: str, **data: Any) -> TraceEvent:
    now = timestamp_pb2.Timestamp()
    now.GetCurrentTime()
    return TraceEvent(
        type=kind,
        agent="planner",
        message=message,
        data={name: to_value(value) for name, value in data.items()},
        create_time=now,
    )
