"""The public API: translates between gRPC and the replica, and holds no logic of its own."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from bos.gateway.v1 import (
    ApprovalServiceServicer,
    AskResponse,
    AskStreamResponse,
    CancelRunResponse,
    DownloadFileResponse,
    GetApprovalResponse,
    GetRunResponse,
    ListAgentsResponse,
    ListApprovalsResponse,
    ListRunsResponse,
    OrchestratorServiceServicer,
    PlanQuestionResponse,
    RespondApprovalResponse,
    WatchRunResponse,
)
from bos_artefacts import Owner
from bos_chassis.auth import LOCAL_USER, current_principal
from bos_chassis.errors import Unavailable
from bos_gateway.cursors import Cursor, Piece
from bos_gateway.projection import project, project_text, visible_response
from bos_gateway.reading import is_end
from bos_gateway.runs import parse_run_id, run_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from typing import Any
    from uuid import UUID

    from bos.gateway.v1 import (
        AgentRequest,
        AskRequest,
        AskStreamRequest,
        CancelRunRequest,
        DownloadFileRequest,
        GetApprovalRequest,
        GetRunRequest,
        ListAgentsRequest,
        ListApprovalsRequest,
        ListRunsRequest,
        PlanQuestionRequest,
        RespondApprovalRequest,
        RunEvent,
        WatchRunRequest,
    )
    from bos_gateway.approvals import Approvals
    from bos_gateway.clock import DatabaseClock
    from bos_gateway.dry_run import DryRun
    from bos_gateway.files import RunFiles
    from bos_gateway.registry import Registry
    from bos_gateway.replica import Replica
    from bos_gateway.runs import Runs
    from bos_gateway.streams import Streams

SERVICE_NAME = "bos.gateway.v1.OrchestratorService"
APPROVAL_SERVICE_NAME = "bos.gateway.v1.ApprovalService"
_PART_BYTES = 256 * 1024


class OrchestratorServicer(OrchestratorServiceServicer):
    """Implements ``bos.gateway.v1.OrchestratorService``."""

    def __init__(
        self,
        replica: Replica,
        runs: Runs,
        registry: Registry,
        dry_run: DryRun,
        streams: Streams,
        files: RunFiles,
        clock: DatabaseClock,
    ) -> None:
        self._replica = replica
        self._streams = streams
        self._runs = runs
        self._registry = registry
        self._dry_run = dry_run
        self._files = files
        self._clock = clock

    async def Ask(self, request: AskRequest, context: Any) -> AskResponse:
        """Run a question to its end."""
        with self._streams.one_more(caller()):
            run_id = await self._accept(request.request, interactive=False)
            async for _, shown in self._replica.reader.follow(run_id, Cursor(), caller()):
                if is_end(shown):
                    response = visible_response(shown.run_finished.response, request.request)
                    return AskResponse(response=response)
        raise Unavailable("The run goes on elsewhere; ask again with the same request id.")

    async def AskStream(
        self, request: AskStreamRequest, context: Any
    ) -> AsyncIterator[AskStreamResponse]:
        """Run a question and stream its events."""
        with self._streams.one_more(caller()):
            run_id = await self._accept(request.request, interactive=True)
            async for event in self._events(run_id, Cursor()):
                yield AskStreamResponse(event=event)

    async def GetRun(self, request: GetRunRequest, context: Any) -> GetRunResponse:
        """One of the caller's runs."""
        run = await self._runs.find(parse_run_id(request.run_id), caller())
        return GetRunResponse(run=run_of(await self._replica.reader.state(run.run_id, caller())))

    async def ListRuns(self, request: ListRunsRequest, context: Any) -> ListRunsResponse:
        """The caller's runs."""
        runs, token = await self._runs.list(request, caller())
        return ListRunsResponse(runs=runs, next_page_token=token)

    async def WatchRun(
        self, request: WatchRunRequest, context: Any
    ) -> AsyncIterator[WatchRunResponse]:
        """The events of one of the caller's runs, from any position."""
        with self._streams.one_more(caller()):
            run = await self._runs.find(parse_run_id(request.run_id), caller())
            after = Cursor(request.after_sequence, request.after_offset)
            async for event in self._events(run.run_id, after):
                yield WatchRunResponse(event=event)

    async def CancelRun(self, request: CancelRunRequest, context: Any) -> CancelRunResponse:
        """Ask for one of the caller's runs to end."""
        run = await self._runs.find(parse_run_id(request.run_id), caller())
        await self._replica.cancel(run.run_id, caller(), request.reason)
        return CancelRunResponse(run=run_of(await self._replica.reader.state(run.run_id, caller())))

    async def DownloadFile(
        self, request: DownloadFileRequest, context: Any
    ) -> AsyncIterator[DownloadFileResponse]:
        """A file of one of the caller's runs."""
        with self._streams.one_more(caller()):
            run = await self._runs.find(parse_run_id(request.run_id), caller())
            digest = request.digest.removeprefix("sha256:")
            file = await self._replica.reader.file(run.run_id, digest, caller())
            content = await self._files.kept(Owner(caller(), run.run_id), digest)
            yield DownloadFileResponse(file=file, content=content[:_PART_BYTES])
            for start in range(_PART_BYTES, len(content), _PART_BYTES):
                yield DownloadFileResponse(content=content[start : start + _PART_BYTES])

    async def ListAgents(self, request: ListAgentsRequest, context: Any) -> ListAgentsResponse:
        """The agents that exist."""
        return ListAgentsResponse(agents=self._registry.agents())

    async def PlanQuestion(
        self, request: PlanQuestionRequest, context: Any
    ) -> PlanQuestionResponse:
        """A plan without running it."""
        return await self._dry_run.plan(request.request, caller())

    async def _accept(self, request: AgentRequest, *, interactive: bool) -> UUID:
        carrier: dict[str, str] = {}
        TraceContextTextMapPropagator().inject(carrier)
        return await self._replica.accept(
            request,
            caller(),
            interactive=interactive,
            traceparent=carrier.get("traceparent", ""),
        )

    async def _events(self, run_id: UUID, after: Cursor) -> AsyncIterator[RunEvent]:
        """The run's events as its client may see them; the log's first event says what that is."""
        accepted = await self._replica.reader.request(run_id, caller())
        async for sequence, shown in self._replica.reader.follow(run_id, after, caller()):
            if isinstance(shown, Piece):
                yield project_text(str(run_id), sequence, shown, self._clock.now())
            elif (public := project(str(run_id), sequence, shown, accepted)) is not None:
                yield public


class ApprovalServicer(ApprovalServiceServicer):
    """Implements ``bos.gateway.v1.ApprovalService``."""

    def __init__(self, approvals: Approvals) -> None:
        self._approvals = approvals

    async def ListApprovals(
        self, request: ListApprovalsRequest, context: Any
    ) -> ListApprovalsResponse:
        """The caller's requests."""
        approvals, token = await self._approvals.list(request, caller())
        return ListApprovalsResponse(approvals=approvals, next_page_token=token)

    async def GetApproval(self, request: GetApprovalRequest, context: Any) -> GetApprovalResponse:
        """One of the caller's requests."""
        approval = await self._approvals.get(request.approval_id, caller())
        return GetApprovalResponse(approval=approval)

    async def RespondApproval(
        self, request: RespondApprovalRequest, context: Any
    ) -> RespondApprovalResponse:
        """A decision about one of the caller's requests."""
        approval = await self._approvals.respond(request, caller())
        return RespondApprovalResponse(approval=approval)


def caller() -> str:
    """Who calls; everybody is one user where nobody signs in."""
    principal = current_principal()
    return LOCAL_USER if principal is None else principal.user_id
