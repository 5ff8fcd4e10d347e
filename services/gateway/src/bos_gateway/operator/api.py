"""OperatorService: operators list and cancel runs of all users; they read no content.

Row-level security shows the readers' role the runs of one user alone, so the rows of all users are
read here by the gateway's own role, behind a check of the caller's role in the very same call. What
is read of a single run beyond its row is read as its owner, and only states, names and counts of it
are handed on. Nothing is, before the audit trail says so.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
from attrs import define
from google.protobuf.message import DecodeError

from bos.gateway import v1 as gateway
from bos_chassis.auth.callers import current_principal
from bos_chassis.auth.roles import require_role
from bos_chassis.names import OPERATOR
from bos_errors import PermissionDenied
from bos_gateway.core.run_state import BrokenLog
from bos_gateway.operator.approvals import page_of_approvals
from bos_gateway.operator.overview import add_state, overview_of_row
from bos_gateway.operator.rows import page_of_runs, row_of_run
from bos_gateway.operator.spend import spend_of
from bos_gateway.operator.storage import storage_of
from bos_gateway.runs.replica import Replica
from bos_gateway.settings import GatewaySettings
from bos_postgres.audit import AuditEntry, By

SERVICE_NAME = "bos.gateway.v1.OperatorService"


@define(eq=False)
class OperatorServicer(gateway.OperatorServiceServicer):
    """Implements ``bos.gateway.v1.OperatorService``."""

    _replica: Replica
    _pool: asyncpg.Pool[asyncpg.Record]
    """Connections of the gateway's own role."""
    _audit: Callable[[AuditEntry], Awaitable[None]]
    """Writes an entry that stands by itself."""
    _settings: GatewaySettings

    async def ListUserRuns(
        self, request: gateway.ListUserRunsRequest, context: Any
    ) -> gateway.ListUserRunsResponse:
        """The runs of all users, or of one."""
        operator = _operator()
        runs, token = await page_of_runs(self._pool, request)
        entry = operator.entry("runs.listed", request.owner_id, runs=str(len(runs)))
        await self._audit(entry)
        return gateway.ListUserRunsResponse(runs=runs, next_page_token=token)

    async def GetUserRun(
        self, request: gateway.GetUserRunRequest, context: Any
    ) -> gateway.GetUserRunResponse:
        """Overview of a run of any user."""
        operator = _operator()
        row = await row_of_run(self._pool, request.run_id)
        run_id, owner = row["run_id"], row["user_id"]
        await self._audit(operator.entry("run.inspected", str(run_id), owner=owner))
        run = overview_of_row(row)
        try:
            add_state(run, await self._replica.reader.state(run_id, owner))
        except (BrokenLog, DecodeError):  # which is the very run that an operator looks for
            return gateway.GetUserRunResponse(run=overview_of_row(row))
        return gateway.GetUserRunResponse(run=run)

    async def CancelUserRun(
        self, request: gateway.CancelUserRunRequest, context: Any
    ) -> gateway.CancelUserRunResponse:
        """Cancel a run of any user."""
        operator = _operator()
        row = await row_of_run(self._pool, request.run_id)
        run_id, owner = row["run_id"], row["user_id"]
        # The answer shows the run, also if it has ended or was cancelled before.
        await self._audit(operator.entry("run.inspected", str(run_id), owner=owner))
        user = operator.user or operator.actor
        await self._replica.cancel(run_id, user, request.reason, operator, owner=owner)
        row = await row_of_run(self._pool, request.run_id)
        return gateway.CancelUserRunResponse(run=overview_of_row(row))

    async def ListUserApprovals(
        self, request: gateway.ListUserApprovalsRequest, context: Any
    ) -> gateway.ListUserApprovalsResponse:
        """Requests for approval of all users."""
        operator = _operator()
        approvals, token = await page_of_approvals(self._pool, request)
        await self._audit(operator.entry("approvals.listed", approvals=str(len(approvals))))
        return gateway.ListUserApprovalsResponse(approvals=approvals, next_page_token=token)

    async def GetSpend(
        self, request: gateway.GetSpendRequest, context: Any
    ) -> gateway.GetSpendResponse:
        """Model tokens that the runs of the last days consumed."""
        operator, days = _operator(), request.days or 1
        spend = await spend_of(self._pool, self._settings, days)
        await self._audit(operator.entry("spend.read", days=str(days)))
        return spend

    async def GetStorage(
        self, request: gateway.GetStorageRequest, context: Any
    ) -> gateway.GetStorageResponse:
        """Sizes of the tables."""
        operator = _operator()
        storage = await storage_of(self._pool)
        await self._audit(operator.entry("storage.read"))
        return storage


def _operator() -> By:
    """Who calls, as the audit trail names it.

    Raises:
        PermissionDenied: a step of a run calls, or a user who is no operator; no other role
            includes this one.
    """
    principal = current_principal()
    if principal is not None and principal.kind == "run_token":
        raise PermissionDenied("This is for people; a run token does not open it.")
    require_role(principal, OPERATOR)
    return By.of(principal)
