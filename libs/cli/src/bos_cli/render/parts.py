"""The parts that a run is shown in: plan, trace, outcome. They print lines and move no cursor."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import TYPE_CHECKING

from rich.text import Text

from bos.common.v1 import Outcome, SourceType, TraceEventType
from bos.gateway.v1 import ApprovalKind, RunStatus
from bos_cli.render.files import show_charts, show_files
from bos_cli.render.table import rows_note, table_grid
from bos_client.text import (
    ONE_LINE,
    approval_status_text,
    as_it_is,
    clean,
    clock_text,
    duration_text,
    one_line,
    passage_text,
    run_end_text,
    usage_text,
    value_text,
    visible,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console

    from bos.common.v1 import Clarification, Source, TraceEvent
    from bos.gateway.v1 import Approval, DisplayBlock, OrchestratorResponse, Run
    from bos.planner.v1 import Plan, PlannerDecision

_TASK_CHARS = 160
_TRACE_CHARS = 400
_JOURNAL_CHARS = 400
_EXCERPT_CHARS = 160
_QUOTE_CHARS = 500
_NAME_CHARS = 200
_MAX_SOURCES = 20
_ANSWERED = frozenset({RunStatus.RUN_STATUS_SUCCEEDED, RunStatus.RUN_STATUS_PARTIALLY_SUCCEEDED})
WHOLE = frozenset(
    {
        *(Outcome.OUTCOME_UNSPECIFIED, Outcome.OUTCOME_ANSWERED),
        *(Outcome.OUTCOME_EMPTY, Outcome.OUTCOME_PREMISE_REFUTED),
    }
)
"""Outcomes that answer what was asked; all others are shown as incomplete."""


@dataclass(frozen=True, slots=True)
class View:
    """Level of detail that is shown."""

    trace: bool = False
    """Trace lines of planner, agents and composer."""
    max_rows: int = 20
    """Rows of the table."""


def show_plan(console: Console, plan: Plan, decision: PlannerDecision, revision: int = 0) -> None:
    """The steps with their agents, tasks and dependencies, and why they were chosen."""
    title = f"Plan, revision {revision}" if revision else "Plan"
    about = f" by {plan.origin}" if plan.origin else ""
    if decision.HasField("confidence"):
        about += f", confidence {decision.confidence:.2f}"
    heading(console, title, about)
    if decision.rationale:
        console.print(Text(f"  {one_line(decision.rationale)}", style="dim"))
    if not plan.steps:
        console.print("  no steps")
    ids = max((len(step.step_id) for step in plan.steps), default=0)
    names = max((len(step.agent) for step in plan.steps), default=0)
    for number, step in enumerate(plan.steps, 1):
        line = Text(f"  {number}. ")
        line.append(step.step_id.ljust(ids), style="bold")
        line.append(f"  {step.agent.ljust(names)}", style="cyan")
        line.append(f"  {one_line(step.task, _TASK_CHARS)}")
        if step.depends_on:
            line.append(f"  (after {', '.join(step.depends_on)})", style="dim")
        console.print(line)


def show_trace(console: Console, event: TraceEvent) -> None:
    """One line of the trace."""
    kind = TraceEventType.Name(event.type).removeprefix("TRACE_EVENT_TYPE_").lower()
    data = ", ".join(f"{name}={value_text(value)}" for name, value in sorted(event.data.items()))
    text = "  ".join(filter(None, (event.message, data)))
    line = Text(f"    {clock_text(event.create_time)} {one_line(event.agent)} {kind}: ")
    line.stylize("dim")
    failed = event.type == TraceEventType.TRACE_EVENT_TYPE_ERROR
    line.append(one_line(text, _TRACE_CHARS), style="red" if failed else "dim")
    console.print(line)


def show_outcome(console: Console, response: OrchestratorResponse, view: View) -> None:
    """Everything of the response but its answer."""
    if response.HasField("clarification"):
        show_clarification(console, response.clarification)
        how = f'bos ask --continue {response.run_id} "your answers"'
        console.print(Text(f"  To answer: {how}"))
    if response.data.columns:
        console.print()
        console.print(table_grid(response.data, view.max_rows))
        note = rows_note(response.data, view.max_rows)
        if note:
            console.print(Text(f"({note})", style="dim"))
    # Those of a report stand in the answer already.
    further = [text for text in response.highlights if text not in response.answer]
    _show_list(console, "Highlights", further)
    if response.sources:
        heading(console, "Sources")
        for number, source in enumerate(response.sources[:_MAX_SOURCES], 1):
            _show_source(console, number, source)
        if len(response.sources) > _MAX_SOURCES:
            console.print(f"  and {len(response.sources) - _MAX_SOURCES} more")
    show_charts(console, response)
    show_files(console, response)
    _show_list(console, "You could ask next", response.followups, numbered=True)
    show_end(console, response)


def show_journal(console: Console, run: Run) -> None:
    """What was attempted, if it took more than one attempt, and what went wrong on the way."""
    if all(entry.revision == 0 for entry in run.journal):
        return
    heading(console, "Attempts")
    for entry in run.journal:
        console.print(Text(f"  - {one_line(entry.entry, _JOURNAL_CHARS)}"))


def show_clarification(console: Console, clarification: Clarification) -> None:
    """Questions to the user, with the answers that were offered."""
    heading(console, "Please settle this first")
    for question in clarification.questions:
        console.print(Text(f"  ? {one_line(question.question)}"))
        for number, option in enumerate(question.options, 1):
            console.print(Text(f"      {number}. {one_line(option)}"))
    for assumption in clarification.assumptions:
        console.print(Text(f"  would be assumed: {one_line(assumption)}", style="dim"))


def show_end(console: Console, response: OrchestratorResponse) -> None:
    """The run's id, state, time and cost; and its error, if any."""
    if response.HasField("error") and response.error.message:
        console.print(
            Text(clean(f"\n{response.error.type}: {response.error.message}"), style="red")
        )
    metadata = response.metadata
    line = Text().append(f"\nRun {response.run_id}: ", style="dim")
    line.append(run_end_text(response), style=end_style(response))
    if metadata.HasField("latency"):
        line.append(f" in {duration_text(metadata.latency)}", style="dim")
    if metadata.agents:
        line.append(f"; agents {', '.join(metadata.agents)}", style="dim")
    if consumed := usage_text(metadata.usage):
        bound = f", bound at {metadata.max_tokens} tokens" if metadata.max_tokens else ""
        line.append(f"; {consumed}{bound}", style="dim")
        if metadata.usage.models:
            models = ", ".join(map(one_line, metadata.usage.models))
            line.append(f" ({models})", style="dim")
    if metadata.conversation_id:
        line.append(f"; conversation {one_line(metadata.conversation_id)}", style="dim")
    console.print(line)


def end_style(response: OrchestratorResponse) -> str:
    """The colour of a run that ended: green, yellow for what lacks something, red for a failure."""
    if response.status not in _ANSWERED:
        return "red"
    return "green" if response.outcome in WHOLE else "yellow"


def show_approval(console: Console, approval: Approval) -> None:
    """What would be done, exactly, for the person who decides."""
    if approval.kind == ApprovalKind.APPROVAL_KIND_OUTCOME_UNKNOWN:
        text = "  you approved this before; it is unknown whether it was done: yes does it again"
        console.print(Text(text, style="yellow"))
    if len(approval.display.actions) != len(approval.actions):
        text = "  the gateway does not say how to show this: do not approve it from here"
        console.print(Text(text, style="red"))
    for action in approval.display.actions:
        line = Text(f"  {as_it_is(action.title)}", style="bold")
        console.print(line.append(f"  ({as_it_is(action.tool)})", style="dim"))
        for note in action.notes:
            console.print(Text(f"    {as_it_is(note)}", style="yellow"))
        for argument in action.arguments:
            _show_argument(console, argument)


def titles(approval: Approval, limit: int = 0) -> str:
    """What the actions are called, on one line; the gateway has made these fit to be shown."""
    return one_line("; ".join(as_it_is(each.title) for each in approval.display.actions), limit)


def decision_text(approval: Approval) -> str:
    """What was decided about which actions, by whom."""
    by = f" by {one_line(approval.decided_by)}" if approval.decided_by else ""
    return f"{approval_status_text(approval.status)}{by}: {approval.step_id}, {titles(approval)}"


def _show_argument(console: Console, argument: DisplayBlock) -> None:
    """An argument that would be used: one line behind its name, several below it."""
    label = f"    {as_it_is(argument.label)} ({as_it_is(argument.type)})"
    if len(argument.lines) == 1:
        label += f": {as_it_is(argument.lines[0])}"
    console.print(Text(label))
    for line in argument.lines if len(argument.lines) > 1 else ():
        console.print(Text(f"      {as_it_is(line)}"))


def heading(console: Console, title: str, about: str = "") -> None:
    """A title on a line of its own, with a line of air above."""
    console.print()
    line = Text().append(title, style="bold")
    line.append(about.translate(ONE_LINE), style="dim")
    console.print(line)


def _show_list(
    console: Console, title: str, items: Iterable[str], *, numbered: bool = False
) -> None:
    marks = (f"{number}." if numbered else "-" for number in count(1))
    lines = [Text(f"  {mark} {one_line(item)}") for mark, item in zip(marks, items, strict=False)]
    if lines:
        heading(console, title)
        for line in lines:
            console.print(line)


def _show_source(console: Console, number: int, source: Source) -> None:
    """A source; of a document the quotation stands on a line of its own."""
    if source.type != SourceType.SOURCE_TYPE_DOCUMENT:
        console.print(Text(f"  [{number}] {_source_text(source)}"))
        return
    place = [
        visible(source.title or source.reference, _NAME_CHARS),
        f"page {source.page}" if source.page else "",
        visible(source.section, _NAME_CHARS),
    ]
    console.print(Text(f"  [{number}] {', '.join(part for part in place if part)}"))
    quoted = passage_text(source.excerpt, _QUOTE_CHARS)
    if quoted:
        console.print(Text(f"      “{quoted}”", style="dim"))


def _source_text(source: Source) -> str:
    where = [source.title or source.reference, source.uri if source.uri != source.title else ""]
    if source.page:
        where.append(f"page {source.page}")
    if source.section:
        where.append(source.section)
    text = ", ".join(one_line(part) for part in where if part)
    excerpt = one_line(source.excerpt, _EXCERPT_CHARS)
    return f"{text}: {excerpt}" if excerpt else text
