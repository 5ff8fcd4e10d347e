"""A run as it happens: the same lines with and without a terminal, plus a status line with one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from rich.text import Text

from bos.agent.v1 import AgentExecutionStatus
from bos_cli.render.parts import (
    WHOLE,
    View,
    decision_text,
    heading,
    show_approval,
    show_outcome,
    show_plan,
    show_trace,
    titles,
)
from bos_client.text import (
    clean,
    duration_text,
    one_line,
    seconds_text,
    step_end_text,
    usage_text,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from google.protobuf.timestamp_pb2 import Timestamp
    from rich.console import Console
    from rich.status import Status

    from bos.common.v1 import TraceEvent
    from bos.gateway.v1 import (
        OrchestratorResponse,
        RunEvent,
        RunFinishedEvent,
        StepFinishedEvent,
        StepStartedEvent,
    )

_STATUS_CHARS = 100
_MARKS = {
    AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED: ("✔", "green"),
    AgentExecutionStatus.AGENT_EXECUTION_STATUS_FAILED: ("✘", "red"),
}


async def show_run(
    events: AsyncIterator[RunEvent], console: Console, view: View | None = None
) -> OrchestratorResponse | None:
    """Show a run's events as they arrive; returns its response, None if the stream had no end.

    On a terminal a status line says what is going on between two events. Elsewhere only whole
    lines and the answer's own text are written.
    """
    with RunView(console, view or View()) as shown:
        async for event in events:
            shown.show(event)
        return shown.response


class RunView:
    """Shows the events of one run, one after another; a context manager.

    Args:
        console: Where to.
        view: How much.
    """

    def __init__(self, console: Console, view: View) -> None:
        self.run_id = ""
        """Id of the run, from its first event on."""
        self.response: OrchestratorResponse | None = None
        """The outcome, once the run has ended."""
        self.asking = False
        """A person is being asked on the same terminal: no status line."""
        self._console = console
        self._view = view
        self._status: Status | None = None
        self._started: dict[str, Timestamp] = {}
        self._traced: set[bytes] = set()
        self._answer = ""
        self._attempt = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._busy("")

    def show(self, event: RunEvent) -> None:
        """Show one event; events of a kind not known here are passed over."""
        self.run_id = event.run_id
        match event.WhichOneof("event"):
            case "run_accepted":
                self._line(Text(f"Run {event.run_id}", style="dim"))
                self._busy("planning")
            case "planned":
                planned = event.planned
                self._busy("")
                show_plan(self._console, planned.plan, planned.decision, planned.revision)
                self._console.print()
            case "step_started":
                self._step_started(event.step_started, event.create_time)
            case "step_progress":
                for trace in event.step_progress.events:
                    self._progress(event.step_progress.step_id, trace)
            case "step_finished":
                self._step_finished(event.step_finished, event.create_time)
            case "revision_started":
                failed = ", ".join(event.revision_started.failed_step_ids)
                why = f"of {failed}" if failed else "the results are thin"
                self._line(Text(f"↻ planning anew, because {why}", style="yellow"))
                self._busy("planning")
            case "answer_started":
                self._busy("composing the answer")
            case "answer_delta":
                self._delta(event.answer_delta.text, event.answer_delta.attempt)
            case "approval_requested":
                approval = event.approval_requested.approval
                self._busy("")
                self._line(Text(f"⏸ waits for approval: {titles(approval)}", style="yellow"))
                show_approval(self._console, approval)
                self._line(Text(f"  bos approvals approve {approval.approval_id}", style="dim"))
            case "approval_resolved":
                approval = event.approval_resolved.approval
                self._line(Text(f"⏵ {decision_text(approval)}", style="yellow"))
            case "run_resumed":
                self._line(Text("↻ the run goes on", style="yellow"))
            case "cancel_requested":
                self._line(Text("✘ cancel requested", style="yellow"))
                self._busy("ending")
            case "run_finished":
                self._finished(event.run_finished)

    def interrupt(self) -> None:
        """Stop showing in the middle of a run."""
        self._busy("")
        self._end_line()

    def _step_started(self, started: StepStartedEvent, when: Timestamp) -> None:
        self._started[started.step_id] = when
        attempt = f", attempt {started.attempt}" if started.attempt > 1 else ""
        line = Text().append("▶ ", style="cyan")
        line.append(started.step_id, style="bold")
        line.append(f" {started.agent_name}{attempt}", style="dim")
        self._line(line)
        self._busy(self._running())

    def _progress(self, step_id: str, trace: TraceEvent) -> None:
        if self._view.trace:
            self._traced.add(_identity(trace))
            show_trace(self._console, trace)
        elif trace.message:
            self._busy(f"{step_id}: {one_line(trace.message, _STATUS_CHARS)}")

    def _step_finished(self, finished: StepFinishedEvent, when: Timestamp) -> None:
        result = finished.result
        started = self._started.pop(finished.step_id, None)
        if result.HasField("latency"):
            took = duration_text(result.latency)
        elif started is not None:
            took = seconds_text((when.ToNanoseconds() - started.ToNanoseconds()) / 1e9)
        else:
            took = "no time"
        mark, style = _MARKS.get(result.status, ("■", "yellow"))
        if result.outcome not in WHOLE:
            mark, style = "■", "yellow"
        line = Text().append(f"{mark} ", style=style)
        line.append(finished.step_id, style="bold")
        line.append(f" {result.agent_name} {step_end_text(result)} in {took}", style="dim")
        if result.HasField("table"):
            line.append(f", {result.table.row_count} rows", style="dim")
        if self._view.trace and (consumed := usage_text(result.usage)):
            line.append(f", {consumed}", style="dim")
        if result.error.message:
            line.append(f": {one_line(result.error.message)}", style=style)
        self._line(line)
        self._busy(self._running())

    def _delta(self, text: str, attempt: int) -> None:
        if attempt < self._attempt:
            return
        if attempt > self._attempt:
            self._busy("")
            title = "Answer, begun anew" if self._answer else "Answer"
            self._end_line()
            heading(self._console, title)
            self._attempt, self._answer = attempt, ""
        self._answer += text
        self._out(text)

    def _out(self, text: str) -> None:
        # Not print(): nothing may be wrapped, highlighted or read as markup in a piece of a text.
        self._console.out(clean(text), end="", highlight=False)
        self._console.file.flush()

    def _finished(self, finished: RunFinishedEvent) -> None:
        self._busy("")
        self.response = response = finished.response
        # The response is what counts; usually it is what was streamed, or goes on from there.
        if self._answer and response.answer.startswith(self._answer):
            self._out(response.answer[len(self._answer) :])
            self._answer = response.answer
        self._end_line()
        if response.answer.strip() != self._answer.strip():
            heading(self._console, "Answer as corrected" if self._answer else "Answer")
            self._console.out(clean(response.answer).rstrip("\n"), highlight=False)
        if self._view.trace:
            rest = [trace for trace in response.trace if _identity(trace) not in self._traced]
            if rest:
                heading(self._console, "Trace of everything else")
            for trace in rest:
                show_trace(self._console, trace)
        show_outcome(self._console, response, self._view)

    def _end_line(self) -> None:
        if self._answer and not self._answer.endswith("\n"):
            self._console.out("")

    def _line(self, line: Text) -> None:
        self._console.print(line)

    def _running(self) -> str:
        return f"running {', '.join(self._started)}" if self._started else ""

    def _busy(self, what: str) -> None:
        """Say on the status line what is going on; nothing removes it."""
        if not what:
            if self._status is not None:
                self._status.stop()
                self._status = None
        elif self._console.is_terminal and not self.asking:
            if self._status is None:
                self._status = self._console.status(Text(what))
                self._status.start()
            else:
                self._status.update(Text(what))


def _identity(trace: TraceEvent) -> bytes:
    return trace.SerializeToString(deterministic=True)
