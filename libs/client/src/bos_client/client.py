"""The client: calls with deadlines, streams that survive a lost connection."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool

from bos.gateway.v1 import (
    ApprovalDecision,
    ApprovalServiceStub,
    ApprovalStatus,
    AskRequest,
    AskStreamRequest,
    CancelRunRequest,
    CancelUserRunRequest,
    DownloadFileRequest,
    GetApprovalRequest,
    GetRunRequest,
    GetUserRunRequest,
    ListAgentsRequest,
    ListAgentsResponse,
    ListApprovalsRequest,
    ListRunsRequest,
    ListUserRunsRequest,
    OperatorServiceStub,
    OrchestratorServiceStub,
    PlanQuestionRequest,
    RespondApprovalRequest,
    RunStatus,
    SubmitRunRequest,
    WatchRunRequest,
)
from bos_client.calling import ServiceClient
from bos_client.requests import agent_request
from bos_client.transport import failure_of
from bos_errors import DeadlineExceeded, Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from typing import Unpack

    from bos.gateway.v1 import (
        AgentInfo,
        AgentRequest,
        Approval,
        ApprovalServiceAsyncStub,
        AskResponse,
        ListApprovalsResponse,
        ListRunsResponse,
        ListUserRunsResponse,
        OperatorServiceAsyncStub,
        OrchestratorResponse,
        OrchestratorServiceAsyncStub,
        PlanQuestionResponse,
        Run,
        RunEvent,
        RunOverview,
        SubmitRunResponse,
    )
    from bos_client.calling import Metadata, TokenSource
    from bos_client.requests import AskOptions

_SERVICE = "bos.gateway.v1.OrchestratorService"
_APPROVAL_SERVICE = "bos.gateway.v1.ApprovalService"
_OPERATOR_SERVICE = "bos.gateway.v1.OperatorService"


def _repeatable(service: str) -> list[dict[str, str]]:
    """The methods that gRPC may retry: those whose ``idempotency_level`` says so.

    Streams are not among them: who reads one takes it up again where it broke off.
    """
    descriptor = descriptor_pool.Default().FindServiceByName(service)
    return [
        {"service": service, "method": method.name}
        for method in descriptor.methods
        if not method.server_streaming
        and method.GetOptions().idempotency_level
        != descriptor_pb2.MethodOptions.IDEMPOTENCY_UNKNOWN
    ]


_OPTIONS = (
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),
    (
        "grpc.service_config",
        json.dumps(
            {
                "loadBalancingConfig": [{"round_robin": {}}],
                "methodConfig": [
                    {
                        "name": [
                            *_repeatable(_SERVICE),
                            *_repeatable(_APPROVAL_SERVICE),
                            *_repeatable(_OPERATOR_SERVICE),
                        ],
                        "retryPolicy": {
                            "maxAttempts": 3,
                            "initialBackoff": "0.1s",
                            "maxBackoff": "1s",
                            "backoffMultiplier": 3,
                            "retryableStatusCodes": ["UNAVAILABLE"],
                        },
                    }
                ],
            }
        ),
    ),
)
_PLAN_TIMEOUT_S = 90.0
_DOWNLOAD_TIMEOUT_S = 120.0
# A run's own time limit fails it with an explanation; ours must leave time for that to arrive.
_MARGIN_S = 30.0


@dataclass(frozen=True, slots=True)
class Reconnect:
    """Reconnect policy after a lost connection. Times are in seconds.

    Its own, not the chassis's backoff: the client stands on the protos alone.
    """

    attempts: int = 12
    """Attempts in a row without an event in between."""
    first_s: float = 0.1
    cap_s: float = 5.0

    def wait_s(self, failures: int) -> float:
        """Wait before the attempt that follows ``failures`` failed ones."""
        return min(self.cap_s, self.first_s * 2.0 ** (failures - 1))


@dataclass(slots=True)
class _Seen:
    """How far a stream was seen."""

    sequence: int = 0
    offset: int = 0
    """Characters of the text behind the last ``answer_started`` up to that event."""

    def take(self, event: RunEvent) -> bool:
        """Whether there is anything new in the event; text that is known is cut off."""
        if not event.HasField("answer_delta"):
            if event.sequence <= self.sequence:
                return False
            if event.HasField("answer_started"):
                self.offset = 0
        else:
            piece = event.answer_delta
            known = self.offset - piece.offset
            if event.sequence < self.sequence or known >= len(piece.text):
                return False
            if known > 0:
                piece.text, piece.offset = piece.text[known:], self.offset
            self.offset = piece.offset + len(piece.text)
        self.sequence = event.sequence
        return True


class BosClient(ServiceClient):
    """A client of one gateway; an async context manager.

    ::

        async with BosClient("127.0.0.1:8080", api_key=key) as bos:
            response = await bos.ask("Which customers brought the most revenue last quarter?")

    Every method raises :class:`bos_errors.BosError` and nothing else of gRPC.

    Args:
        target: ``host:port`` or a gRPC target URI.
        api_key: Sent as a bearer token.
        tokens: Where the bearer token of each call comes from, instead of a key.
        credentials: For TLS; None connects in plain text.
        timeout_s: Deadline of short calls, in seconds.
        run_timeout_s: How long to wait for a run whose request sets no time limit, in seconds.
        reconnect: How streams come back after a lost connection.
    """

    def __init__(
        self,
        target: str,
        *,
        api_key: str | None = None,
        tokens: TokenSource | None = None,
        credentials: grpc.ChannelCredentials | None = None,
        timeout_s: float = 30.0,
        run_timeout_s: float = 3600.0,
        reconnect: Reconnect | None = None,
    ) -> None:
        super().__init__(
            target,
            api_key=api_key,
            tokens=tokens,
            credentials=credentials,
            timeout_s=timeout_s,
            options=_OPTIONS,
        )
        self._run_timeout_s = run_timeout_s
        self._reconnect = reconnect or Reconnect()

    async def ask(self, question: str, **options: Unpack[AskOptions]) -> OrchestratorResponse:
        """Ask and wait for the outcome. A lost connection leads back to the same run."""
        request = agent_request(question, options)
        ask = AskRequest(request=request)
        answer: AskResponse = await self._repeated(self._stub.Ask, ask, self._wait_s(request))
        return answer.response

    async def ask_stream(
        self, question: str, **options: Unpack[AskOptions]
    ) -> AsyncGenerator[RunEvent, None]:
        """Ask and follow the run until its last event, ``run_finished``.

        After a lost connection the stream goes on behind what was seen last: no event and no text
        is missing or comes twice. Closing the stream does not cancel the run.
        """
        request = agent_request(question, options)
        seen = _Seen()
        async with aclosing(self._follow(request, "", seen, self._wait_s(request))) as events:
            async for event in events:
                yield event

    async def submit(self, question: str, **options: Unpack[AskOptions]) -> Run:
        """Have a question stored as a run and return it at once; the run goes on by itself.

        A lost connection leads back to the same run. :meth:`get_run` and :meth:`watch` show what
        becomes of it; its approvals wait for a decision.
        """
        request = SubmitRunRequest(request=agent_request(question, options))
        answer: SubmitRunResponse = await self._repeated(
            self._stub.SubmitRun, request, self._timeout_s
        )
        return answer.run

    async def watch(
        self, run_id: str, after_sequence: int = 0, after_offset: int = 0
    ) -> AsyncGenerator[RunEvent, None]:
        """Follow a run until its end, across lost connections.

        Args:
            run_id: The run.
            after_sequence: The last event that is known.
            after_offset: Characters known of the text behind the last ``answer_started`` up to it.
        """
        seen = _Seen(after_sequence, after_offset)
        async with aclosing(self._follow(None, run_id, seen, self._run_timeout_s)) as events:
            async for event in events:
                yield event

    async def get_run(
        self, run_id: str, *, wait_s: float = 0.0, after_sequence: int | None = None
    ) -> Run:
        """A run with its plan and, once it has ended, its response.

        Args:
            run_id: The run.
            wait_s: How long the gateway may wait, in seconds, a minute at most: for news behind
                ``after_sequence``, or for the end of the run without one.
            after_sequence: ``last_sequence`` of the run as it is known.
        """
        request = GetRunRequest(run_id=run_id, after_sequence=after_sequence)
        if wait_s:
            request.wait.FromMilliseconds(round(wait_s * 1000))
        return (await self._unary(self._stub.GetRun, request, self._timeout_s + wait_s)).run

    async def list_runs(
        self,
        *,
        page_size: int = 0,
        page_token: str = "",
        status: RunStatus = RunStatus.RUN_STATUS_UNSPECIFIED,
        conversation_id: str = "",
    ) -> ListRunsResponse:
        """A page of runs, newest first; ``next_page_token`` leads to the next page."""
        request = ListRunsRequest(
            page_size=page_size,
            page_token=page_token,
            status=status,
            conversation_id=conversation_id,
        )
        return await self._unary(self._stub.ListRuns, request)

    async def download_file(self, run_id: str, digest: str) -> bytes:
        """A file that a step of a run made; ``AgentResult.files`` lists them.

        Its content and its name are a program's work: open it with care.

        Raises:
            NotFound: the run has no such file, or it is gone.
            Unavailable: the gateway or its store is away, or the file came damaged.
        """
        request = DownloadFileRequest(run_id=run_id, digest=digest)
        content = bytearray()
        call = self._stub.DownloadFile(
            request, timeout=_DOWNLOAD_TIMEOUT_S, metadata=await self._metadata()
        )
        try:
            async for part in call:
                content += part.content
        except grpc.RpcError as error:
            raise failure_of(error) from error
        finally:
            call.cancel()
        if hashlib.sha256(content).hexdigest() != digest.removeprefix("sha256:"):
            raise Unavailable("The file did not arrive whole; try again.")
        return bytes(content)

    async def cancel(self, run_id: str, reason: str = "") -> Run:
        """Ask for a run to end; returns it as it is now, which may still be ending."""
        request = CancelRunRequest(run_id=run_id, reason=reason)
        return (await self._unary(self._stub.CancelRun, request)).run

    async def list_user_runs(
        self,
        *,
        owner_id: str = "",
        page_size: int = 0,
        page_token: str = "",
        status: RunStatus = RunStatus.RUN_STATUS_UNSPECIFIED,
    ) -> ListUserRunsResponse:
        """For operators: a page of the runs of all users, or of one; without what was asked."""
        request = ListUserRunsRequest(
            owner_id=owner_id, page_size=page_size, page_token=page_token, status=status
        )
        return await self._unary(self._operator.ListUserRuns, request)

    async def get_user_run(self, run_id: str) -> RunOverview:
        """For operators: how a run of any user stands, with its steps; without its content."""
        request = GetUserRunRequest(run_id=run_id)
        return (await self._unary(self._operator.GetUserRun, request)).run

    async def cancel_user_run(self, run_id: str, reason: str = "") -> RunOverview:
        """For operators: ask for a run of any user to end; its owner sees the reason."""
        request = CancelUserRunRequest(run_id=run_id, reason=reason)
        return (await self._unary(self._operator.CancelUserRun, request)).run

    async def agents(self) -> list[AgentInfo]:
        """The agents that the caller may use, by name."""
        return list((await self.access()).agents)

    async def access(self) -> ListAgentsResponse:
        """What the caller may use: agents and their tools, tables, models; its roles and groups."""
        return await self._unary(self._stub.ListAgents, ListAgentsRequest())

    async def plan(self, question: str, **options: Unpack[AskOptions]) -> PlanQuestionResponse:
        """The plan for a question, without running it."""
        request = PlanQuestionRequest(request=agent_request(question, options))
        return await self._unary(self._stub.PlanQuestion, request, _PLAN_TIMEOUT_S)

    async def list_approvals(
        self,
        *,
        page_size: int = 0,
        page_token: str = "",
        status: ApprovalStatus = ApprovalStatus.APPROVAL_STATUS_UNSPECIFIED,
    ) -> ListApprovalsResponse:
        """A page of requests for approval, newest first."""
        request = ListApprovalsRequest(page_size=page_size, page_token=page_token, status=status)
        return await self._unary(self._approvals.ListApprovals, request)

    async def get_approval(self, approval_id: str) -> Approval:
        """A request with the exact actions it is about."""
        request = GetApprovalRequest(approval_id=approval_id)
        return (await self._unary(self._approvals.GetApproval, request)).approval

    async def approve(self, approval_id: str, instructions: str = "") -> Approval:
        """Allow exactly what is proposed; instructions lead to another proposal instead.

        Raises:
            AlreadyExists: it was decided otherwise, or its time is over.
        """
        return await self._respond(
            approval_id, ApprovalDecision.APPROVAL_DECISION_APPROVE, instructions
        )

    async def deny(self, approval_id: str) -> Approval:
        """Have nothing done; raises as :meth:`approve` does."""
        return await self._respond(approval_id, ApprovalDecision.APPROVAL_DECISION_DENY, "")

    async def _respond(
        self, approval_id: str, decision: ApprovalDecision, instructions: str
    ) -> Approval:
        request = RespondApprovalRequest(
            approval_id=approval_id, decision=decision, instructions=instructions
        )
        return (await self._unary(self._approvals.RespondApproval, request)).approval

    @property
    def _approvals(self) -> ApprovalServiceAsyncStub:
        return ApprovalServiceStub(self._channel)

    @property
    def _operator(self) -> OperatorServiceAsyncStub:
        return OperatorServiceStub(self._channel)

    @property
    def _stub(self) -> OrchestratorServiceAsyncStub:
        return OrchestratorServiceStub(self._channel)

    def _wait_s(self, request: AgentRequest) -> float:
        if not request.HasField("timeout"):
            return self._run_timeout_s
        return request.timeout.ToMilliseconds() / 1000 + _MARGIN_S

    async def _repeated(self, method: Any, request: Any, within_s: float) -> Any:
        """Call it until there is an answer: the request id leads back to the same run."""
        deadline = time.monotonic() + within_s
        failures = 0
        while True:
            try:
                return await self._unary(method, request, _left_s(deadline))
            except Unavailable:
                failures += 1
                if failures >= self._reconnect.attempts:
                    raise
                await self._pause(failures, deadline)

    async def _follow(
        self, request: AgentRequest | None, run_id: str, seen: _Seen, wait_s: float
    ) -> AsyncGenerator[RunEvent, None]:
        """What comes behind ``seen``; asks by ``request`` until the run's id is known."""
        deadline = time.monotonic() + wait_s
        failures = 0
        while True:
            metadata = await self._metadata()
            call = self._stream(request, run_id, seen, _left_s(deadline), metadata)
            silent = True
            try:
                async for message in call:
                    event: RunEvent = message.event
                    silent = False
                    if not seen.take(event):
                        continue
                    run_id, failures = event.run_id, 0
                    yield event
                    if event.HasField("run_finished"):
                        return
                if silent and seen.sequence and await self._has_ended(run_id):
                    return  # asked for what lies behind the end of the run, which is nothing
                lost = Unavailable("The stream ended before the run did.")
            except grpc.RpcError as error:
                failure = failure_of(error)
                if not isinstance(failure, Unavailable):
                    raise failure from error
                lost = failure
            finally:
                call.cancel()
            failures += 1
            if failures >= self._reconnect.attempts:
                raise lost
            await self._pause(failures, deadline)

    async def _has_ended(self, run_id: str) -> bool:
        try:
            return (await self.get_run(run_id)).HasField("response")
        except Unavailable:
            return False

    def _stream(
        self,
        request: AgentRequest | None,
        run_id: str,
        seen: _Seen,
        left_s: float,
        metadata: Metadata,
    ) -> Any:
        if request is not None and not run_id:
            # The same request id leads to the same run, however often it is asked.
            ask = AskStreamRequest(request=request)
            return self._stub.AskStream(ask, timeout=left_s, metadata=metadata)
        watch = WatchRunRequest(
            run_id=run_id, after_sequence=seen.sequence, after_offset=seen.offset
        )
        return self._stub.WatchRun(watch, timeout=left_s, metadata=metadata)

    async def _pause(self, failures: int, deadline: float) -> None:
        await asyncio.sleep(min(self._reconnect.wait_s(failures), _left_s(deadline)))


def _left_s(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise DeadlineExceeded("The time to wait for the run is over; the run itself goes on.")
    return left
