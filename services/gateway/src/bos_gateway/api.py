"""Servicers of the public API: translation between gRPC and the replica, no logic."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any
from uuid import UUID

from attrs import define
from opentelemetry import trace

from bos.gateway import v1 as gateway
from bos_artefacts import Owner
from bos_chassis.auth.access import AccessRules
from bos_chassis.auth.callers import AUTHORIZATION_KEY, LOCAL_USER, current_principal
from bos_chassis.auth.roles import require_role
from bos_chassis.auth.session_check import SessionCheck
from bos_chassis.concurrency.user_places import Full, UserPlaces
from bos_chassis.names import USER
from bos_chassis.tracing.attributes import RUN_ID
from bos_chassis.tracing.spans import caller_span, traceparent_of
from bos_errors import PermissionDenied, ResourceExhausted, Unavailable
from bos_gateway.admission.dry_run import DryRun
from bos_gateway.core.public_events import Cursor, Piece, project, project_text, visible_response
from bos_gateway.effects.registry import Registry
from bos_gateway.metrics import GatewayMetrics
from bos_gateway.ownership.attempt_checks import Attempts
from bos_gateway.ownership.clock import DatabaseClock
from bos_gateway.permits.approvers import Answerer
from bos_gateway.run_log.approvals import Approvals
from bos_gateway.run_log.reader import Runs, run_of
from bos_gateway.run_log.run_files import RunFiles
from bos_gateway.runs.feedback import Feedback
from bos_gateway.runs.follow import is_end
from bos_gateway.runs.replica import Replica
from bos_postgres.audit import AuditEntry, By

SERVICE_NAME = "bos.gateway.v1.OrchestratorService"
APPROVAL_SERVICE_NAME = "bos.gateway.v1.ApprovalService"
FEEDBACK_SERVICE_NAME = "bos.gateway.v1.FeedbackService"
RUN_TOKEN_SERVICE_NAME = "bos.gateway.v1.RunTokenService"  # noqa: S105  no secret
_PART_BYTES = 256 * 1024


class StreamLimiter:
    """Limits the calls that stay open until a run ends, in total and by user.

    The bound is below that of all calls of the server (``BOS_SERVER_MAX_CONCURRENT_RPCS``), so that
    those who want to cancel a run, and health checks, get through.

    Args:
        limit: Such calls at once.
        user_limit: Such calls at once of one account; 0: no bound. Without sign-in, all callers
            are one user, for whom only the other bound holds.
        metrics: Counts refusals.
    """

    def __init__(self, limit: int, user_limit: int, metrics: GatewayMetrics) -> None:
        self._places = UserPlaces(limit, user_limit or None)
        self._metrics = metrics

    @property
    def open(self) -> int:
        """Open calls."""
        return self._places.open

    @contextmanager
    def slot(self, user_id: str) -> Iterator[None]:
        """Take a place for one call of a user while the block runs.

        Raises:
            ResourceExhausted: there is none.
        """
        full = self._places.full_for(user_id, bounded=user_id != LOCAL_USER)
        if full is Full.USER:
            self._metrics.refused.labels("user_stream_limit").inc()
            raise ResourceExhausted(
                "You follow too many questions at the same time; stop following one first.",
                reason="USER_STREAM_LIMIT",
                retry_after_s=1.0,
            )
        if full is Full.ALL:
            self._metrics.refused.labels("stream_limit").inc()
            raise ResourceExhausted(
                "Too many callers follow questions here at the moment; try again shortly.",
                reason="REPLICA_FULL",
                retry_after_s=1.0,
            )
        with self._places.taken(user_id):
            yield


@define(eq=False)
class OrchestratorServicer(gateway.OrchestratorServiceServicer):
    """Implements ``bos.gateway.v1.OrchestratorService``."""

    _replica: Replica
    _runs: Runs
    _registry: Registry
    _dry_run: DryRun
    _streams: StreamLimiter
    _files: RunFiles
    _clock: DatabaseClock
    _access: AccessRules
    _audit: Callable[[AuditEntry], Awaitable[None]]
    """Writes an entry that stands by itself."""
    _feedback: Feedback
    _models: Mapping[str, str]
    """Models that a question may choose, each with its label."""

    async def Ask(self, request: gateway.AskRequest, context: Any) -> gateway.AskResponse:
        """Run a question to its end."""
        with self._streams.slot(caller()):
            run_id = await self._accept(request.request, interactive=False)
            async for _, shown in self._replica.reader.follow(run_id, Cursor(), caller()):
                if is_end(shown):
                    response = visible_response(shown.run_finished.response, request.request)
                    return gateway.AskResponse(response=response)
        raise Unavailable("The run goes on elsewhere; ask again with the same request id.")

    async def AskStream(
        self, request: gateway.AskStreamRequest, context: Any
    ) -> AsyncIterator[gateway.AskStreamResponse]:
        """Run a question and stream its events."""
        with self._streams.slot(caller()):
            run_id = await self._accept(request.request, interactive=True)
            async for event in self._events(run_id, Cursor()):
                yield gateway.AskStreamResponse(event=event)

    async def SubmitRun(
        self, request: gateway.SubmitRunRequest, context: Any
    ) -> gateway.SubmitRunResponse:
        """Store a question as a run and return it at once."""
        # Its user can be asked all the same: approvals wait without a follower.
        run_id = await self._accept(request.request, interactive=True)
        run = run_of(await self._replica.reader.state(run_id, caller()))
        return gateway.SubmitRunResponse(run=run)

    async def GetRun(self, request: gateway.GetRunRequest, context: Any) -> gateway.GetRunResponse:
        """One of the caller's runs, at once or after its next event."""
        run_id = await self._runs.find(request.run_id, caller())
        if wait_s := request.wait.ToTimedelta().total_seconds():
            known = request.after_sequence if request.HasField("after_sequence") else None
            with self._streams.slot(caller()):
                await self._replica.reader.wait(run_id, known, caller(), wait_s)
        run = run_of(await self._replica.reader.state(run_id, caller()))
        if (feedback := await self._feedback.get(run_id, caller())) is not None:
            run.feedback.CopyFrom(feedback)
        return gateway.GetRunResponse(run=run)

    async def ListRuns(
        self, request: gateway.ListRunsRequest, context: Any
    ) -> gateway.ListRunsResponse:
        """The caller's runs."""
        runs, token = await self._runs.list(request, caller())
        return gateway.ListRunsResponse(runs=runs, next_page_token=token)

    async def WatchRun(
        self, request: gateway.WatchRunRequest, context: Any
    ) -> AsyncIterator[gateway.WatchRunResponse]:
        """The events of one of the caller's runs, from any position."""
        with self._streams.slot(caller()):
            run_id = await self._runs.find(request.run_id, caller())
            after = Cursor(request.after_sequence, request.after_offset)
            async for event in self._events(run_id, after):
                yield gateway.WatchRunResponse(event=event)

    async def CancelRun(
        self, request: gateway.CancelRunRequest, context: Any
    ) -> gateway.CancelRunResponse:
        """Ask for one of the caller's runs to end."""
        run_id = await self._runs.find(request.run_id, caller())
        await self._replica.cancel(run_id, caller(), request.reason, _by())
        run = run_of(await self._replica.reader.state(run_id, caller()))
        return gateway.CancelRunResponse(run=run)

    async def DownloadFile(
        self, request: gateway.DownloadFileRequest, context: Any
    ) -> AsyncIterator[gateway.DownloadFileResponse]:
        """A file of one of the caller's runs."""
        with self._streams.slot(caller()):
            run_id = await self._runs.find(request.run_id, caller())
            digest = request.digest.removeprefix("sha256:")
            file = await self._replica.reader.file(run_id, digest, caller())
            content = await self._files.kept(Owner(caller(), run_id), digest)
            # The file is sent only if the audit trail has the entry.
            await self._audit(_by().entry("file.read", str(run_id), digest=file.digest))
            yield gateway.DownloadFileResponse(file=file, content=content[:_PART_BYTES])
            for start in range(_PART_BYTES, len(content), _PART_BYTES):
                yield gateway.DownloadFileResponse(content=content[start : start + _PART_BYTES])

    async def ListAgents(
        self, request: gateway.ListAgentsRequest, context: Any
    ) -> gateway.ListAgentsResponse:
        """Agents that the caller may use."""
        caller()  # refuses callers that may not know
        principal = current_principal()
        access = self._access.of(groups())
        tables = access.table_patterns()
        return gateway.ListAgentsResponse(
            agents=self._registry.agents(access),
            roles=sorted(principal.roles) if principal else (),
            groups=access.groups,
            tables=[gateway.ReadableTables(database=d, tables=t) for d, t in tables.items()],
            models=[gateway.ModelChoice(name=m, label=label) for m, label in self._models.items()],
        )

    async def PlanQuestion(
        self, request: gateway.PlanQuestionRequest, context: Any
    ) -> gateway.PlanQuestionResponse:
        """A plan without running it."""
        require_role(current_principal(), USER)
        return await self._dry_run.plan(request.request, caller(), groups())

    async def _accept(self, request: gateway.AgentRequest, *, interactive: bool) -> UUID:
        require_role(current_principal(), USER)
        span, theirs = trace.get_current_span(), caller_span()
        run_id = await self._replica.accept(
            request,
            caller(),
            groups(),
            interactive=interactive,
            # This call's span is lost with this process, which the run may survive.
            traceparent=traceparent_of(theirs or span.get_span_context()),
            own_trace=theirs is None,
            by=_by(),
        )
        span.set_attribute(RUN_ID, str(run_id))
        return run_id

    async def _events(self, run_id: UUID, after: Cursor) -> AsyncIterator[gateway.RunEvent]:
        """The run's events as its client may see them; the log's first event says what that is."""
        accepted = await self._replica.reader.request(run_id, caller())
        async for sequence, shown in self._replica.reader.follow(run_id, after, caller()):
            if isinstance(shown, Piece):
                yield project_text(str(run_id), sequence, shown, self._clock.now())
            elif (public := project(str(run_id), sequence, shown, accepted)) is not None:
                yield public


@define(eq=False)
class ApprovalServicer(gateway.ApprovalServiceServicer):
    """Implements ``bos.gateway.v1.ApprovalService``."""

    _approvals: Approvals
    _sessions: SessionCheck | None = None
    """Knows whether the session of a caller is open; None where another issuer than identity is."""

    async def ListApprovals(
        self, request: gateway.ListApprovalsRequest, context: Any
    ) -> gateway.ListApprovalsResponse:
        """The requests that the caller may see."""
        approvals, token = await self._approvals.list(request, answerer())
        return gateway.ListApprovalsResponse(approvals=approvals, next_page_token=token)

    async def GetApproval(
        self, request: gateway.GetApprovalRequest, context: Any
    ) -> gateway.GetApprovalResponse:
        """One of the requests that the caller may see."""
        approval = await self._approvals.get(request.approval_id, answerer())
        return gateway.GetApprovalResponse(approval=approval)

    async def RespondApproval(
        self, request: gateway.RespondApprovalRequest, context: Any
    ) -> gateway.RespondApprovalResponse:
        """Decide one of the requests, as a user who is still signed in."""
        approval = await self._approvals.respond(request, await self._present(context))
        return gateway.RespondApprovalResponse(approval=approval)

    async def _present(self, context: Any) -> Answerer:
        """Who calls, with the roles and groups of this moment; tokens have those of minutes ago.

        Raises:
            Unauthenticated: the session has ended, or the API key was revoked.
            Unavailable: identity does not answer, so the session cannot be checked.
        """
        found, signed_in = answerer(), ("user_token", "api_key")
        if self._sessions is None or found.principal is None:
            return found
        if found.principal.kind not in signed_in:
            return found
        metadata = dict(context.invocation_metadata() or ())
        credential = str(metadata.get(AUTHORIZATION_KEY, ""))
        roles, groups = await self._sessions.require_open(credential)
        principal = replace(found.principal, roles=roles, groups=groups)
        return Answerer(found.user_id, roles, groups, principal)


@define(eq=False)
class FeedbackServicer(gateway.FeedbackServiceServicer):
    """Implements ``bos.gateway.v1.FeedbackService``."""

    _feedback: Feedback

    async def SetRunFeedback(
        self, request: gateway.SetRunFeedbackRequest, context: Any
    ) -> gateway.SetRunFeedbackResponse:
        """Store feedback on one of the caller's runs."""
        stored = await self._feedback.store(request.run_id, request.feedback, caller())
        return gateway.SetRunFeedbackResponse(feedback=stored)

    async def DeleteRunFeedback(
        self, request: gateway.DeleteRunFeedbackRequest, context: Any
    ) -> gateway.DeleteRunFeedbackResponse:
        """Delete the feedback on one of the caller's runs."""
        await self._feedback.take_back(request.run_id, caller())
        return gateway.DeleteRunFeedbackResponse()


@define(eq=False)
class RunTokenServicer(gateway.RunTokenServiceServicer):
    """Implements ``bos.gateway.v1.RunTokenService``; its callers are known by run tokens alone."""

    _attempts: Attempts

    async def CheckRunToken(
        self, request: gateway.CheckRunTokenRequest, context: Any
    ) -> gateway.CheckRunTokenResponse:
        """Whether the attempt of the caller's token is under way."""
        principal = current_principal()
        under_way = principal is not None and await self._attempts.under_way(principal)
        return gateway.CheckRunTokenResponse(under_way=under_way)


def _by() -> By:
    """Who calls, as the audit trail names it."""
    return By.of(current_principal())


def answerer() -> Answerer:
    """The caller, as one who answers requests."""
    user_id, principal = caller(), current_principal()
    if principal is None:
        return Answerer(user_id)
    return Answerer(user_id, principal.roles, principal.groups, principal)


def groups() -> frozenset[str]:
    """Groups of the caller."""
    principal = current_principal()
    return frozenset() if principal is None else principal.groups


def caller() -> str:
    """The caller's user id; all callers are one user where authentication is off.

    Raises:
        PermissionDenied: a step of a run calls; it was given what it needs for its user.
    """
    principal = current_principal()
    if principal is None:
        return LOCAL_USER
    if principal.kind == "run_token":
        raise PermissionDenied("This is for people; a run token does not open it.")
    return principal.user_id
