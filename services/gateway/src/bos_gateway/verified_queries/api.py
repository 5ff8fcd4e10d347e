"""VerifiedQueryService: translates between gRPC and the verified queries of a caller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import UUID

from attrs import define

from bos.gateway import v1 as gateway
from bos_chassis.auth.access import AccessRules
from bos_chassis.auth.callers import current_principal
from bos_chassis.auth.roles import require_role
from bos_chassis.names import APPROVER, USER
from bos_errors import PermissionDenied
from bos_gateway.core.run_state import RunState
from bos_gateway.run_log.reader import Runs
from bos_gateway.verified_queries.stored import Reader, VerifiedQueries
from bos_gateway.verified_queries.verification import verified_of
from bos_postgres.audit import By

SERVICE_NAME = "bos.gateway.v1.VerifiedQueryService"


@define(eq=False)
class VerifiedQueryServicer(gateway.VerifiedQueryServiceServicer):
    """Implements ``bos.gateway.v1.VerifiedQueryService``."""

    _verified: VerifiedQueries
    _runs: Runs
    _state: Callable[[UUID, str], Awaitable[RunState]]
    """State of a run of a user's."""
    _access: AccessRules
    """Says which groups there are."""
    _caller: Callable[[], str]
    """The caller's user id; refuses callers that are no users."""

    async def CreateVerifiedQuery(
        self, request: gateway.CreateVerifiedQueryRequest, context: Any
    ) -> gateway.CreateVerifiedQueryResponse:
        """Store the question and the query of one of the caller's runs."""
        user_id, principal = self._caller(), current_principal()
        require_role(principal, USER)
        run_id = await self._runs.find(request.run_id, user_id)
        if request.group:
            self._require_reviewer(request.group)
        state = await self._state(run_id, user_id)
        # Parsing a long text takes longer than other calls may wait for.
        made = await asyncio.to_thread(verified_of, state, request)
        stored = await self._verified.store(made, user_id, By.of(principal))
        return gateway.CreateVerifiedQueryResponse(verified_query=stored)

    async def ListVerifiedQueries(
        self, request: gateway.ListVerifiedQueriesRequest, context: Any
    ) -> gateway.ListVerifiedQueriesResponse:
        """The caller's own, and those of the caller's groups; all, or those of one run."""
        reader, run_id = self._reads(), None
        if request.run_id:
            run_id = await self._runs.find(request.run_id, reader.user_id)
        found, token = await self._verified.list(
            request.page_size, request.page_token, reader, run_id=run_id
        )
        return gateway.ListVerifiedQueriesResponse(verified_queries=found, next_page_token=token)

    async def DeleteVerifiedQuery(
        self, request: gateway.DeleteVerifiedQueryRequest, context: Any
    ) -> gateway.DeleteVerifiedQueryResponse:
        """Delete one of these."""
        reader, principal = self._reads(), current_principal()
        may_review = principal is None or APPROVER in principal.roles
        await self._verified.delete(
            request.query_id, reader, By.of(principal), may_review=may_review
        )
        return gateway.DeleteVerifiedQueryResponse()

    def _reads(self) -> Reader:
        user_id, principal = self._caller(), current_principal()
        return Reader(user_id, self._access.of(principal.groups).groups if principal else ())

    def _require_reviewer(self, group: str) -> None:
        """Refuse a caller that may not share with a group: all its members' questions rest on it.

        Raises:
            PermissionDenied: it is no member, or lacks the role approver.
        """
        if group not in self._reads().groups:
            raise PermissionDenied(
                f'You are in no group "{group}" that this installation defines; share with one '
                "that you are in (`bos agents` shows them), or keep it to yourself.",
                reason="NOT_A_MEMBER",
            )
        require_role(current_principal(), APPROVER)
