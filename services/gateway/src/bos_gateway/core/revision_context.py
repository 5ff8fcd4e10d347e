"""Revision context: results and errors of a run's plans so far, for the next plan. Pure.

For the planner that is to make another plan, for the composer that must explain a failure, and for
people. All texts are bounded: results may be of any size.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from bos.planner import v1 as planner
from bos_gateway.core.revision import blocked_steps, mendable
from bos_gateway.core.run_state import RunState, StepState
from bos_plans import NOTHING_TO_REFER_TO

_MAX_TEXT_CHARS = 300
_MAX_ERROR_CHARS = 1000
_MAX_FINDINGS = 30
_MAX_ERRORS = 30
_MAX_HIGHLIGHTS = 3
_MAX_FIELDS = 50
_MAX_PARTIAL_BYTES = 8 * 1024
_OFFERED = ("answer",)
_OFFERED_OF_TABLES = ("table", "rows", "columns", "row_count")


def revision_context(state: RunState) -> planner.RevisionContext:
    """The planner's request for the revision that is being planned.

    The plan that failed includes the steps of earlier attempts whose results stay, so that a new
    plan can refer to them and repeats none of them.
    """
    assert state.plan is not None
    steps, blocked = state.result_steps, blocked_steps(state)
    untold = {step.agent_id for step in blocked}
    return planner.RevisionContext(
        revision=state.replanning or 0,
        failed_plan=planner.Plan(
            steps=[step.step for step in steps],
            entities=state.plan.entities,
            origin=state.plan.origin,
        ),
        failed_steps=[
            _failed_step(step) for step_id, step in state.steps.items() if step_id in state.mending
        ],
        execution_context=[
            _entry(step) for step in steps if step.settled and step.agent_id not in untold
        ],
        working_context=working_context(state),
        blocked_steps=[_failed_step(step) for step in blocked],
    )


def working_context(state: RunState) -> planner.WorkingContext:
    """Findings and errors of all attempts so far, oldest first."""
    steps = [step for attempt in state.past for step in attempt.steps.values()]
    steps += state.steps.values()
    findings = dict.fromkeys(text for step in steps for text in _findings(step))
    errors = dict.fromkeys(filter(None, map(_error, steps)))
    # The latest count most; what stands first of those was found first.
    return planner.WorkingContext(
        key_findings=list(findings)[-_MAX_FINDINGS:],
        errors_encountered=list(errors)[-_MAX_ERRORS:],
    )


def journal(state: RunState) -> list[planner.JournalEntry]:
    """Journal of all attempts and how they went, oldest first."""
    return [
        planner.JournalEntry(entry=entry, revision=revision) for revision, entry in _entries(state)
    ]


def definitive_failure(state: RunState) -> str:
    """Why what failed is not attempted any more, in words; empty if nothing such failed."""
    failed = mendable(state)
    if not failed or state.replanning is not None:
        return ""
    if state.revision_failure is not None:
        return f"No other plan was found. {state.revision_failure.message}"
    limit = state.request.settings.max_revisions
    if state.revision and state.revision >= limit:
        times = "once" if limit == 1 else f"{limit} times"
        return f"The plan was revised {times}, which is the limit, and steps still failed."
    return ""


def _entries(state: RunState) -> Iterator[tuple[int, str]]:
    for attempt in state.past:
        number = attempt.revision + 1
        yield attempt.revision, f"execution attempt {number} started"
        yield attempt.revision, f"execution attempt {number} ended: {_outcome(attempt.steps)}"
        yield number, f"replanning {number} started{_because(attempt.failed, attempt.steps)}"
        yield number, f"replanning {number} succeeded"
    if state.plan is None:
        return
    revision, number = state.revision, state.revision + 1
    yield revision, f"execution attempt {number} started"
    revising = state.replanning is not None or state.revision_failure is not None
    over = state.answer_attempt > 0 or state.finished
    if revising or over:
        yield revision, f"execution attempt {number} ended: {_outcome(state.steps)}"
    if revising:
        yield number, f"replanning {number} started{_because(state.mending, state.steps)}"
    if (error := state.revision_failure) is not None:
        yield number, f"replanning {number} failed: {error.type}: {_cut(error.message)}"
    if over and (failed := mendable(state)):
        limit = state.request.settings.max_revisions
        if limit and revision >= limit:
            yield revision, f"limit of {limit} revisions reached"
        yield revision, f"definitively failed: {', '.join(s for s in state.steps if s in failed)}"


def _outcome(steps: Mapping[str, StepState]) -> str:
    good = sum(step.succeeded for step in steps.values())
    parts = [f"{good} of {len(steps)} steps succeeded", *filter(None, map(_error, steps.values()))]
    return "; ".join(parts)


def _because(failed: Collection[str], steps: Iterable[str]) -> str:
    names = [step_id for step_id in steps if step_id in failed]
    return f", because of {', '.join(names)}" if names else ", because the results are thin"


def _failed_step(step: StepState) -> planner.FailedStep:
    failed = planner.FailedStep(step_id=step.step.step_id, agent=step.step.agent)
    if step.result is None:
        return failed
    error, room = step.result.error, _MAX_PARTIAL_BYTES
    failed.error.type, failed.error.message = error.type, _cut(error.message, _MAX_ERROR_CHARS)
    failed.partial_data.SetInParent()
    for name, value in sorted(step.result.partial_data.fields.items()):
        room -= value.ByteSize()
        if room < 0:
            break
        failed.partial_data.fields[name].CopyFrom(value)
    return failed


def _entry(step: StepState) -> planner.ContextEntry:
    fields: list[str] = []
    if step.succeeded and step.result is not None and step.outcome not in NOTHING_TO_REFER_TO:
        fields += [*_OFFERED, *sorted(step.result.data.fields)]
        fields += _OFFERED_OF_TABLES if step.result.HasField("table") else ()
        fields += ("files",) if step.result.files else ()
    return planner.ContextEntry(
        step_id=step.step.step_id,
        sub_task_input=step.step.sub_task_input,
        output_fields=dict.fromkeys(fields[:_MAX_FIELDS]),
        succeeded=step.succeeded,
    )


def _findings(step: StepState) -> Iterator[str]:
    if step.result is None or not step.succeeded:
        return
    for text in step.result.highlights[:_MAX_HIGHLIGHTS] or [step.result.answer]:
        if text.strip():
            yield f"{_name(step)}: {_cut(text)}"


def _error(step: StepState) -> str:
    if step.result is None or not step.result.HasField("error"):
        return ""
    error = step.result.error
    return f"{_name(step)}: {error.type}: {_cut(error.message)}"


def _name(step: StepState) -> str:
    return f"{step.step.step_id} ({step.step.agent})"


def _cut(text: str, limit: int = _MAX_TEXT_CHARS) -> str:
    """``text`` on one line and within bounds."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"
