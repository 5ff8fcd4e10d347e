"""A decision and the end of its run that cross: the request's row says what the log says."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest
from gateway_harness.admission import run_of, writers
from gateway_harness.stored import WAITS_FOR_A_LOCK, until

from bos.gateway.v1 import (
    APPROVAL_DECISION_APPROVE,
    APPROVAL_STATUS_APPROVED,
    APPROVAL_STATUS_CANCELLED,
    APPROVAL_STATUS_EXPIRED,
    APPROVAL_STATUS_PENDING,
    RUN_STATUS_CANCELLED,
    RUN_STATUS_FAILED,
    Approval,
    RespondApprovalRequest,
)
from bos.runlog.v1 import (
    ApprovalRequested,
    ApprovalResolved,
    LogEvent,
    RunFinished,
)
from bos_errors import AlreadyExists
from bos_gateway.permits.approvers import Answerer
from bos_gateway.run_log.approvals import Approvals
from bos_gateway.run_log.maintenance import tidy
from bos_gateway.run_log.reader import READER
from bos_gateway.run_log.records import Append
from bos_gateway.run_log.session import SCHEMA
from bos_gateway.run_log.writer import LogWriter
from bos_postgres import connect, open_database


@dataclass
class Waiting:
    """A run with a pending request, its owner's writer, and an approver."""

    log: LogWriter
    approvals: Approvals
    connection: Any
    run_id: UUID
    approval: Approval

    async def decide(self) -> Approval:
        request = RespondApprovalRequest(
            approval_id=self.approval.approval_id, decision=APPROVAL_DECISION_APPROVE
        )
        return await self.approvals.respond(request, Answerer("u"))

    async def record(self) -> None:
        await self._append(3, [self._resolved(APPROVAL_STATUS_APPROVED)])

    async def end(self, first: int, *events: LogEvent, status: int = RUN_STATUS_CANCELLED) -> None:
        finished = LogEvent(run_finished=RunFinished())
        finished.run_finished.response.status = status
        await self._append(first, [*events, finished], status=status, finished=True)

    def cancelled(self) -> LogEvent:
        return self._resolved(APPROVAL_STATUS_CANCELLED)

    def _resolved(self, status: int) -> LogEvent:
        resolved = ApprovalResolved(approval=self.approval)
        resolved.approval.status = status
        return LogEvent(approval_resolved=resolved)

    async def _append(self, first: int, events: list[LogEvent], **more: Any) -> None:
        await self.log.append(Append(self.run_id, 1, first, events, **more))

    async def state(self) -> int:
        status: int = await self.connection.fetchval("SELECT status FROM approvals")
        return status

    async def inputs(self) -> int:
        left: int = await self.connection.fetchval("SELECT count(*) FROM run_inputs")
        return left


@pytest.fixture
async def waiting(postgres_dsn: str) -> AsyncIterator[Waiting]:
    run = run_of("u")
    approval = Approval(approval_id=str(uuid4()), run_id=str(run.run_id), user_id="u")
    approval.status = APPROVAL_STATUS_PENDING
    approval.actions.add(tool="trigger_deployment")
    now = datetime.now(UTC)
    approval.create_time.FromDatetime(now)
    approval.expire_time.FromDatetime(now.replace(year=now.year + 1))
    requested = LogEvent(approval_requested=ApprovalRequested(approval=approval))
    async with (
        writers(postgres_dsn, 1) as (log,),
        open_database(postgres_dsn, schema=SCHEMA, max_size=2) as pool,
        open_database(postgres_dsn, schema=SCHEMA, max_size=2, role=READER) as readers,
        connect(postgres_dsn, schema=SCHEMA) as connection,
    ):
        assert await log.accept(run)
        await log.append(Append(run.run_id, 1, 2, [requested]))
        yield Waiting(log, Approvals(pool, readers), connection, run.run_id, approval)


@asynccontextmanager
async def held_row(dsn: str) -> AsyncIterator[Any]:
    """The request's row is locked by another session until the block ends."""
    async with connect(dsn, schema=SCHEMA) as holder, holder.transaction():
        await holder.execute("SELECT FROM approvals FOR UPDATE")
        yield holder


async def test_recorded_decision_stays_after_any_end_of_the_run(waiting: Waiting) -> None:
    await waiting.decide()
    await waiting.record()
    await waiting.end(4)
    assert await waiting.state() == APPROVAL_STATUS_APPROVED


async def test_decision_without_an_event_is_cancelled_with_the_run(waiting: Waiting) -> None:
    assert (await waiting.decide()).status == APPROVAL_STATUS_APPROVED
    await waiting.end(3, waiting.cancelled())
    assert await waiting.state() == APPROVAL_STATUS_CANCELLED
    assert await waiting.inputs() == 0


async def test_decision_after_the_end_is_refused(waiting: Waiting) -> None:
    await waiting.end(3, waiting.cancelled())
    with pytest.raises(AlreadyExists) as refused:
        await waiting.decide()
    assert refused.value.metadata["status"] == "cancelled"
    assert await waiting.inputs() == 0


@pytest.mark.requirement("M-05", "M-15")
async def test_run_that_ends_unread_lets_its_request_expire(waiting: Waiting) -> None:
    await waiting.end(3, status=RUN_STATUS_FAILED)
    assert await waiting.state() == APPROVAL_STATUS_EXPIRED


async def test_end_that_waits_for_a_decision_in_the_making(
    waiting: Waiting, postgres_dsn: str
) -> None:
    """The statement that ends the run began before the decision was there to be seen."""
    async with held_row(postgres_dsn) as holder:
        ending = asyncio.create_task(waiting.end(3, waiting.cancelled()))
        await until(postgres_dsn, WAITS_FOR_A_LOCK)
        await holder.execute("UPDATE approvals SET status = 2, responded_at = now()")
        await holder.execute(
            "INSERT INTO run_inputs (run_id, kind, input_key, payload) "
            "SELECT run_id, 'approval', approval_id::text, '' FROM approvals"
        )
    await asyncio.wait_for(ending, 60)
    assert await waiting.state() == APPROVAL_STATUS_CANCELLED
    # It is not read any more; maintenance removes it.
    await tidy(waiting.connection)
    assert await waiting.inputs() == 1
    await waiting.connection.execute("UPDATE runs SET finished_at = now() - interval '1 hour'")
    await tidy(waiting.connection)
    assert await waiting.inputs() == 0


async def test_decision_that_waits_for_the_end(waiting: Waiting, postgres_dsn: str) -> None:
    async with held_row(postgres_dsn) as holder:
        deciding = asyncio.create_task(waiting.decide())
        await until(postgres_dsn, WAITS_FOR_A_LOCK)
        await holder.execute("UPDATE approvals SET status = 6, responded_at = now()")
    with pytest.raises(AlreadyExists):
        await asyncio.wait_for(deciding, 60)
    assert await waiting.state() == APPROVAL_STATUS_CANCELLED
    assert await waiting.inputs() == 0
