"""IngestionService: operators see how the reading of documents stands, in counts alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from attrs import define

from bos.documents.v1 import (
    GetIngestionQueueRequest,
    GetIngestionQueueResponse,
    IngestionFailure,
    IngestionServiceServicer,
    IngestionStage,
)
from bos_chassis.auth.callers import current_principal
from bos_chassis.auth.roles import require_role
from bos_chassis.names import OPERATOR
from bos_errors import PermissionDenied
from bos_postgres import fetch, fetchrow
from bos_postgres.audit import By, record_alone

if TYPE_CHECKING:
    import asyncpg

SERVICE_NAME: Final = "bos.documents.v1.IngestionService"
_ORDER: Final = ["parse", "chunk", "describe", "copy", "index", "publish", "clean", "delete"]
_STAGES: Final = """
SELECT stage, count(*) AS documents, count(*) FILTER (WHERE lease_until >= now()) AS under_way,
       count(*) FILTER (WHERE waits > 0) AS held_up, min(created_at) AS oldest
FROM jobs GROUP BY stage
"""
_FAILURES: Final = """
SELECT failure_reason, count(*) AS documents, max(state_changed_at) AS last
FROM documents WHERE state = 'failed' GROUP BY failure_reason
ORDER BY documents DESC, failure_reason LIMIT 50
"""
_STORED: Final = """
SELECT count(*) FILTER (WHERE state = 'ready') AS ready,
       coalesce(sum(size_bytes), 0)::bigint AS bytes
FROM documents
"""


@define(eq=False)
class IngestionServicer(IngestionServiceServicer):
    """Implements ``bos.documents.v1.IngestionService``."""

    _pool: asyncpg.Pool[asyncpg.Record]
    """Connections of the service's own role, which sees the rows of all users."""

    async def GetIngestionQueue(
        self, request: GetIngestionQueueRequest, context: Any
    ) -> GetIngestionQueueResponse:
        """What waits, what is under way, what failed."""
        operator = _operator()
        response = GetIngestionQueueResponse()
        stages = await fetch(self._pool, _STAGES)
        for row in sorted(stages, key=lambda each: _ORDER.index(each["stage"])):
            stage = IngestionStage(
                stage=row["stage"],
                documents=row["documents"],
                under_way=row["under_way"],
                held_up=row["held_up"],
            )
            stage.oldest_time.FromDatetime(row["oldest"])
            response.stages.append(stage)
        for row in await fetch(self._pool, _FAILURES):
            failure = IngestionFailure(reason=row["failure_reason"], documents=row["documents"])
            failure.last_time.FromDatetime(row["last"])
            response.failures.append(failure)
        stored = await fetchrow(self._pool, _STORED)
        assert stored is not None
        response.ready_documents, response.stored_bytes = stored["ready"], stored["bytes"]
        await record_alone(self._pool, operator.entry("ingestion.read"))
        return response


def _operator() -> By:
    """Who calls, as the audit trail names it.

    Raises:
        PermissionDenied: a step of a run calls, or a user who is no operator.
    """
    principal = current_principal()
    if principal is not None and principal.kind == "run_token":
        raise PermissionDenied("This is for people; a run token does not open it.")
    require_role(principal, OPERATOR)
    return By.of(principal)
