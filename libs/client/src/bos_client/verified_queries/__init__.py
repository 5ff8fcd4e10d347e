"""Client of verified queries: questions with the queries that are right for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bos.gateway.v1 import (
    CreateVerifiedQueryRequest,
    DeleteVerifiedQueryRequest,
    ListVerifiedQueriesRequest,
    VerifiedQueryServiceStub,
)
from bos_client.calling import ServiceClient

if TYPE_CHECKING:
    from bos.gateway.v1 import (
        ListVerifiedQueriesResponse,
        VerifiedQuery,
        VerifiedQueryServiceAsyncStub,
    )


class VerifiedQueryClient(ServiceClient):
    """A client of the gateway for verified queries; see :class:`ServiceClient`."""

    async def verify(
        self, run_id: str, *, step_id: str = "", group: str = "", corrected_sql: str = ""
    ) -> VerifiedQuery:
        """Mark question and query of one of the caller's runs as verified.

        Args:
            run_id: The run.
            step_id: Its step; empty: the only one that asked a database.
            group: Group to share it with; empty: for the caller alone.
            corrected_sql: What is right instead of the query that ran.

        Raises:
            NotFound: the caller has no such run.
            FailedPrecondition: the run has not ended, or asked no database.
            InvalidArgument: there is no such step, or the guard refuses the corrected query.
            PermissionDenied: the caller may not share with this group.
            ResourceExhausted: there are as many as may be.
        """
        request = CreateVerifiedQueryRequest(
            run_id=run_id, step_id=step_id, group=group, corrected_sql=corrected_sql
        )
        response = await self._unary(self._stub.CreateVerifiedQuery, request)
        verified: VerifiedQuery = response.verified_query
        return verified

    async def verified(
        self, *, page_size: int = 50, page_token: str = "", run_id: str = ""
    ) -> ListVerifiedQueriesResponse:
        """A page of the caller's own, and of those shared with groups of the caller, newest first.

        With ``run_id`` only those made from that run of the caller.

        Raises:
            InvalidArgument: the page token is not of this service.
            NotFound: the caller has no such run.
        """
        request = ListVerifiedQueriesRequest(
            page_size=page_size, page_token=page_token, run_id=run_id
        )
        return await self._unary(self._stub.ListVerifiedQueries, request)

    async def unverify(self, query_id: str) -> None:
        """Take a verification back.

        Raises:
            NotFound: there is none that the caller may read.
            PermissionDenied: it is another member's, and the caller is no approver.
        """
        request = DeleteVerifiedQueryRequest(query_id=query_id)
        await self._unary(self._stub.DeleteVerifiedQuery, request)

    @property
    def _stub(self) -> VerifiedQueryServiceAsyncStub:
        return VerifiedQueryServiceStub(self._channel)
