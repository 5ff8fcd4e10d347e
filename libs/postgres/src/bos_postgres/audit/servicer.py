"""AuditService: administrators read the audit trail of a service, page by page."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from attrs import define

from bos.audit.v1 import (
    AuditEntry,
    AuditServiceServicer,
    ListAuditEntriesResponse,
    add_AuditServiceServicer_to_server,
)
from bos_chassis.auth.callers import current_principal
from bos_chassis.auth.roles import require_role
from bos_chassis.names import ADMINISTRATOR
from bos_chassis.paging import decoded, encoded, foreign_token
from bos_chassis.server import Servicer
from bos_errors import InvalidArgument, PermissionDenied
from bos_postgres.audit.actors import By
from bos_postgres.audit.entries import record_alone
from bos_postgres.statements import fetch

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import asyncpg

    from bos.audit.v1 import ListAuditEntriesRequest

    Permit = Callable[[Any], Awaitable[By]]

AUDIT_SERVICE: Final = "bos.audit.v1.AuditService"
_DEFAULT_PAGE: Final = 50
# However few entries a filter leaves, one call reads no more of a trail than this.
_SCANNED: Final = 20_000
_LAST: Final = 2**63 - 1
_PAGE: Final = f"""
WITH scanned AS (
    SELECT position, occurred_at, actor, actor_kind, action, target, outcome, address, details
    FROM audit_trail WHERE position < $1 ORDER BY position DESC LIMIT {_SCANNED}
)
SELECT *, (SELECT min(position) FROM scanned) AS first, (SELECT count(*) FROM scanned) AS scanned
FROM scanned
WHERE $2 IN ('', actor) AND $4 IN ('', target) AND $5 IN ('', outcome)
      AND ($3 IN ('', action) OR right($3, 1) = '.' AND starts_with(action, $3))
ORDER BY position DESC LIMIT $6
"""  # noqa: S608  our own text
_SCANNED_TO: Final = f"""
SELECT min(position) AS first, count(*) AS scanned FROM (
    SELECT position FROM audit_trail WHERE position < $1 ORDER BY position DESC LIMIT {_SCANNED}
) AS scanned
"""  # noqa: S608  our own text


@define(eq=False)
class AuditServicer(AuditServiceServicer):
    """Implements ``bos.audit.v1.AuditService`` for the service that owns the pool's schema."""

    _pool: asyncpg.Pool[asyncpg.Record]
    _service: str
    _permit: Permit
    """Returns who calls, if that is an administrator."""

    async def ListAuditEntries(
        self, request: ListAuditEntriesRequest, context: Any
    ) -> ListAuditEntriesResponse:
        """Sealed entries, newest first."""
        by = await self._permit(context)
        if request.service != self._service:
            raise InvalidArgument.field("service", f"is {self._service} here")
        for name in ("actor", "action", "target"):
            if "\0" in getattr(request, name):
                raise InvalidArgument.field(name, "must not contain U+0000")
        response = await self._page(request)
        read = by.entry("audit.read", request.target, entries=str(len(response.entries)))
        await record_alone(self._pool, read)
        return response

    async def _page(self, request: ListAuditEntriesRequest) -> ListAuditEntriesResponse:
        before, size = _before(request.page_token), request.page_size or _DEFAULT_PAGE
        wanted = (request.actor, request.action, request.target, request.outcome)
        rows = await fetch(self._pool, _PAGE, before, *wanted, size + 1)
        response = ListAuditEntriesResponse(entries=[_entry(row) for row in rows[:size]])
        if len(rows) > size:
            response.next_page_token = encoded(str(rows[size - 1]["position"]))
            return response
        (end,) = [rows[0]] if rows else await fetch(self._pool, _SCANNED_TO, before)
        if end["scanned"] == _SCANNED:
            response.next_page_token = encoded(str(end["first"]))
        return response


def audit_servicer(
    pool: asyncpg.Pool[asyncpg.Record], service: str, permit: Permit | None = None
) -> Servicer:
    """The trail of a service, for its server.

    Args:
        pool: Connections of the service's own role, to its schema.
        service: Name of the service, as of its schema.
        permit: Returns who calls if that is an administrator; None: by the roles of the credential.
    """
    servicer = AuditServicer(pool, service, permit or _administrator)
    return Servicer(servicer, add_AuditServiceServicer_to_server, AUDIT_SERVICE)


async def _administrator(_context: Any) -> By:
    """Who calls, by the credential.

    Raises:
        PermissionDenied: a step of a run calls, or a user who is no administrator.
    """
    principal = current_principal()
    if principal is not None and principal.kind == "run_token":
        raise PermissionDenied("This is for people; a run token does not open it.")
    require_role(principal, ADMINISTRATOR)
    return By.of(principal)


def _before(token: str) -> int:
    if not token:
        return _LAST
    text = decoded(token)
    if not text.isascii() or not text.isdigit() or int(text) > _LAST:
        raise foreign_token()
    return int(text)


def _entry(row: asyncpg.Record) -> AuditEntry:
    names = ("position", "actor", "actor_kind", "action", "target", "outcome", "address")
    entry = AuditEntry(**{name: row[name] for name in names}, details=json.loads(row["details"]))
    entry.occur_time.FromDatetime(row["occurred_at"])
    return entry
