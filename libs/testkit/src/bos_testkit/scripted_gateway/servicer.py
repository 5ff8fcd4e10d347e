"""A scripted gateway: the public API over one fixed run, with failures as a test sets them."""

# ruff: noqa: D102 - the methods are the RPCs of the contract

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bos.agent.v1 import AgentCard, AgentExecutionStatus, AgentResult
from bos.common.v1 import Column, ColumnType, Row, Table, Value
from bos.gateway.v1 import (
    AgentInfo,
    AskResponse,
    AskStreamResponse,
    CancelRunResponse,
    DownloadFileResponse,
    GetRunResponse,
    ListAgentsResponse,
    ListRunsResponse,
    ModelChoice,
    OrchestratorResponse,
    OrchestratorServiceServicer,
    PlanQuestionResponse,
    ReadableTables,
    Run,
    RunEvent,
    RunStatus,
    SubmitRunResponse,
    WatchRunResponse,
)
from bos.planner.v1 import Plan, PlannerDecision, Step
from bos_errors import NotFound, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from bos.gateway.v1 import AgentRequest, GetRunRequest
    from bos_errors import BosError

RUN_ID = "0190-run"
PLAN = Plan(
    origin="model",
    steps=[
        Step(step_id="find", agent="sql", task="Find the customers"),
        Step(step_id="share", agent="computation", task="Calculate", depends_on=["find"]),
    ],
)
DECISION = PlannerDecision(rationale="Data, then arithmetic.", confidence=0.9)
TABLE = Table(
    columns=[
        Column(name="customer", type=ColumnType.COLUMN_TYPE_STRING),
        Column(name="revenue", type=ColumnType.COLUMN_TYPE_DECIMAL),
    ],
    rows=[
        Row(values=[Value(string_value="Acme"), Value(decimal_value="9007199254740993.10")]),
        Row(values=[Value(string_value="Zeta"), Value(decimal_value="7.50")]),
        Row(values=[Value(string_value="Yoyo"), Value()]),
    ],
    row_count=3,
)


def response(status: RunStatus = RunStatus.RUN_STATUS_SUCCEEDED) -> OrchestratorResponse:
    """Response of the run: an answer with a table, a source and a follow-up question."""
    answer = OrchestratorResponse(
        run_id=RUN_ID,
        status=status,
        answer="Acme leads [1].",
        data=TABLE,
        highlights=["Acme is far ahead"],
        followups=["And the year before?"],
    )
    answer.sources.add(title="customers", excerpt="Companies that buy from us")
    answer.metadata.latency.FromMilliseconds(1500)
    answer.metadata.agents.extend(["sql", "computation"])
    return answer


def story(outcome: OrchestratorResponse | None = None) -> list[RunEvent]:
    """The events of one run; sequences have a gap, as hidden events leave them."""
    result = AgentResult(
        agent_name="sql",
        status=AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED,
        table=TABLE,
    )
    result.latency.FromMilliseconds(340)
    kinds: list[dict[str, Any]] = [
        {"run_accepted": {"question": "Who leads?", "request_id": "r"}},
        {"planned": {"plan": PLAN, "decision": DECISION}},
        {"step_started": {"step_id": "find", "agent_name": "sql", "attempt": 1}},
        {
            "step_progress": {
                "step_id": "find",
                "events": [{"type": 2, "agent": "sql", "message": "asked"}],
            }
        },
        {"step_finished": {"step_id": "find", "result": result}},
        {"answer_started": {"attempt": 1}},
        {"answer_delta": {"text": "Acme ", "attempt": 1}},
        {"answer_delta": {"text": "leads [1].", "attempt": 1, "offset": 5}},
        {"run_finished": {"response": outcome or response()}},
    ]
    events: list[RunEvent] = []
    position = -1
    for kind in kinds:
        position += "answer_delta" not in kind  # which has no sequence of its own
        event = RunEvent(run_id=RUN_ID, sequence=2 * position + 1, **kind)
        event.create_time.FromMilliseconds(1_780_000_000_000 + 100 * position)
        events.append(event)
    return events


@dataclass
class Gateway(OrchestratorServiceServicer):
    """A gateway with one run; streams break, stall or fail as its fields say."""

    events: list[RunEvent] = field(default_factory=story)
    breaks_after: list[int] = field(default_factory=list)
    """Events that each of the next streams sends before it breaks."""
    ends_after: list[int] = field(default_factory=list)
    """The same, but the stream ends without an error."""
    holds_after: int | None = None
    """Events after which streams send nothing more."""
    error: BosError | None = None
    unary_failures: int = 0
    files: dict[str, bytes] = field(default_factory=dict)
    """Content for `DownloadFile`, by digest."""
    models: dict[str, str] = field(default_factory=dict)
    """Models that a question may choose, name to label."""
    asked: list[AgentRequest] = field(default_factory=list)
    looked_up: list[GetRunRequest] = field(default_factory=list)
    watched: list[tuple[int, int]] = field(default_factory=list)
    """Positions of `WatchRun`: sequence and offset."""
    silent: asyncio.Event = field(default_factory=asyncio.Event)
    address: str = ""

    async def Ask(self, request: Any, context: Any) -> AskResponse:
        self.asked.append(request.request)
        self._drop()
        self._fail()
        return AskResponse(response=self.events[-1].run_finished.response)

    async def AskStream(self, request: Any, context: Any) -> AsyncIterator[AskStreamResponse]:
        self.asked.append(request.request)
        async for event in self._stream(0, 0):
            yield AskStreamResponse(event=event)

    async def WatchRun(self, request: Any, context: Any) -> AsyncIterator[WatchRunResponse]:
        if request.run_id != RUN_ID:
            raise NotFound("There is no such run.")
        self.watched.append((request.after_sequence, request.after_offset))
        async for event in self._stream(*self.watched[-1]):
            yield WatchRunResponse(event=event)

    async def SubmitRun(self, request: Any, context: Any) -> SubmitRunResponse:
        self.asked.append(request.request)
        self._drop()
        self._fail()
        run = self._run()
        run.status = RunStatus.RUN_STATUS_ACCEPTED
        return SubmitRunResponse(run=run)

    async def GetRun(self, request: Any, context: Any) -> GetRunResponse:
        self.looked_up.append(request)
        self._fail()
        return GetRunResponse(run=self._run())

    async def ListRuns(self, request: Any, context: Any) -> ListRunsResponse:
        self._fail()
        return ListRunsResponse(runs=[self._run()], next_page_token="next")  # noqa: S106

    async def DownloadFile(self, request: Any, context: Any) -> AsyncIterator[DownloadFileResponse]:
        content = self.files.get(request.digest)
        if content is None:
            raise NotFound("This run has no such file.")
        yield DownloadFileResponse(content=content[:3])
        yield DownloadFileResponse(content=content[3:])

    async def CancelRun(self, request: Any, context: Any) -> CancelRunResponse:
        run = self._run()
        run.status = RunStatus.RUN_STATUS_CANCELLED
        return CancelRunResponse(run=run)

    async def ListAgents(self, request: Any, context: Any) -> ListAgentsResponse:
        self._fail()
        sql = AgentInfo(card=AgentCard(name="sql", description="Asks databases."), available=True)
        web = AgentInfo(card=AgentCard(name="web"), unavailable_reason="does not answer")
        tables = [ReadableTables(database="company", tables=["orders", "sales_*"])]
        models = [ModelChoice(name=name, label=label) for name, label in self.models.items()]
        return ListAgentsResponse(agents=[sql, web], tables=tables, models=models)

    async def PlanQuestion(self, request: Any, context: Any) -> PlanQuestionResponse:
        self.asked.append(request.request)
        self._fail()
        return PlanQuestionResponse(plan=PLAN, decision=DECISION)

    async def _stream(self, after: int, offset: int) -> AsyncIterator[RunEvent]:
        self._fail()
        broken = self.breaks_after.pop(0) if self.breaks_after else None
        ended = self.ends_after.pop(0) if self.ends_after else None
        sent = 0
        for event in self.events:
            if event.HasField("answer_delta"):
                if event.sequence <= after and event.answer_delta.offset < offset:
                    continue
            elif event.sequence <= after:
                continue
            if sent == broken:
                raise Unavailable("The replica stops.")
            if sent == ended:
                return
            if sent == self.holds_after:
                self.silent.set()
                await asyncio.Event().wait()
            sent += 1
            yield event

    def _run(self) -> Run:
        last = self.events[-1].run_finished.response
        run = Run(run_id=RUN_ID, question="Who leads?", plan=PLAN, response=last, model="large")
        run.status = last.status
        return run

    def _drop(self) -> None:
        if self.unary_failures:
            self.unary_failures -= 1
            raise Unavailable("gone")

    def _fail(self) -> None:
        if self.error is not None:
            raise self.error
