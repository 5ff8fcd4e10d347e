"""Approval requests: listed, decided exactly once, timed out, counted.

A decision, or that none came in time, is one statement at any replica: a compare-and-set on
the request's row by the database's time, the input for the run that waits, and the message that
wakes its owner or an adopter. The owner turns the input into the one event that counts.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final
from uuid import UUID

from attrs import define, field
from google.protobuf.message import DecodeError
from opentelemetry import trace

from bos.gateway import v1 as gateway
from bos.runlog.v1 import ApprovalResolved, LogEvent
from bos_chassis.paging import after_time, time_token
from bos_chassis.tracing.spans import traceparent_of
from bos_errors import AlreadyExists, InvalidArgument, NotFound, PermissionDenied
from bos_gateway.core.proposals import resolved
from bos_gateway.core.shown.display import approval_display, with_display
from bos_gateway.permits.approvers import SEPARATOR, approvers_named
from bos_gateway.run_log.audit import SERVICE
from bos_gateway.run_log.notifications import CHANNEL
from bos_postgres import fetch, for_user
from bos_postgres.audit import By, columns_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    import asyncpg

    from bos_gateway.metrics import GatewayMetrics
    from bos_gateway.permits.approvers import Answerer
    from bos_postgres.audit import AuditEntry, Refusals

    Pool = asyncpg.Pool[asyncpg.Record]

_DEFAULT_PAGE = 50
_BATCH = 100
_COLUMNS = (
    "approval_id, run_id, status, instructions, payload, created_at, expire_at, responded_at, "
    "decided_by, user_id, approvers"
)
_MEMBER_OF = "bos.member_of"

_PAGE = f"""
SELECT {_COLUMNS} FROM approvals
WHERE {{whose}} AND (created_at, approval_id) < ($2, $3){{status}}
ORDER BY created_at DESC, approval_id DESC
LIMIT $4
"""  # noqa: S608  our own text

_WAITING_S: Final = 5.0
# So many are counted in milliseconds; of more, the time to the next look grows with them.
_FEW: Final = 20_000
_WAITING: Final = """
SELECT agent_name, tools, count(*)::bigint AS waiting,
       greatest(0, extract(epoch FROM now() - min(created_at)))::float8 AS oldest_s
FROM approvals WHERE status = 1
GROUP BY agent_name, tools
"""


def _page(status: str) -> str:
    """The caller's own requests, and those that it may answer: a page of each, by its own index."""
    own = _PAGE.format(whose="user_id = $1", status=status)
    shared = _PAGE.format(whose="shared AND user_id <> $1 AND approvers && $5", status=status)
    both = f"SELECT * FROM (({own}) UNION ALL ({shared})) AS found"  # noqa: S608  our own text
    page = f"{both} ORDER BY created_at DESC, approval_id DESC LIMIT $4"
    return for_user(page, _MEMBER_OF)


_LIST = _page("")
_LIST_BY_STATUS = _page(" AND status = $6")
_ONE = for_user(
    f"""
SELECT {_COLUMNS}, now() AS read_at FROM approvals
WHERE approval_id = $1 AND (user_id = $2 OR shared AND approvers && $3)
""",  # noqa: S608  our own text
    _MEMBER_OF,
)
_DUE = f"""
SELECT {_COLUMNS}, now() AS read_at FROM approvals
WHERE status = 1 AND expire_at <= now() AND ($1::uuid IS NULL OR approval_id = $1)
ORDER BY expire_at LIMIT {_BATCH}
"""  # noqa: S608  our own text
# Locked in one order by all, so that two replicas with the same time-outs do not block each
# other. Who comes second finds the status changed, and nothing happens twice.
_DECIDE = """
WITH wanted AS (
    SELECT * FROM unnest($1::uuid[], $2::bytea[]) AS t (approval_id, payload)
), open AS (
    SELECT a.approval_id
    FROM approvals AS a JOIN wanted AS w USING (approval_id)
    WHERE a.status = 1 AND (a.expire_at <= now()) = ($3::smallint = 4)
    ORDER BY a.approval_id
    FOR UPDATE OF a
), decided AS (
    UPDATE approvals AS a
    SET status = $3, instructions = $4, responded_at = now(), decided_by = $6
    FROM open JOIN wanted AS w USING (approval_id)
    WHERE a.approval_id = open.approval_id AND a.status = 1
    RETURNING a.approval_id, a.run_id, w.payload
), inputs AS (
    INSERT INTO run_inputs (run_id, kind, input_key, payload)
    SELECT run_id, 'approval', approval_id::text, payload FROM decided
    ON CONFLICT DO NOTHING
), audited AS (
    INSERT INTO audit_pending (actor, actor_kind, action, target, outcome, address, details)
    SELECT actor, actor_kind, action, target, outcome, address, details
    FROM unnest($7::uuid[], $8::text[], $9::text[], $10::text[], $11::text[], $12::text[],
                $13::text[], $14::jsonb[])
         AS t (approval_id, actor, actor_kind, action, target, outcome, address, details)
         JOIN decided USING (approval_id)
)
SELECT approval_id, pg_notify($5, 'input ' || run_id), pg_notify($5, 'released') FROM decided
"""


@define(eq=False)
class Approvals:
    """Reads and decides requests."""

    _pool: Pool
    _readers: Pool
    """Connections of the role that sees the rows of one user."""
    _refusals: Refusals | None = None
    """Counts answers that were refused."""

    async def list(
        self, request: gateway.ListApprovalsRequest, who: Answerer
    ) -> tuple[list[gateway.Approval], str]:
        """A page of the requests that a user may see, newest first, and the token of the next page.

        Raises:
            InvalidArgument: the page token is not one of ours.
        """
        before, last_id = after_time(request.page_token)
        size = request.page_size or _DEFAULT_PAGE
        known: list[object] = [who.user_id, SEPARATOR.join(who.names)]
        found: list[object] = [*known, who.user_id, before, last_id, size + 1, who.names]
        if request.status:
            found.append(request.status)
        rows = await fetch(self._readers, _LIST_BY_STATUS if request.status else _LIST, *found)
        last = rows[size - 1] if len(rows) > size else None
        token = time_token(last["created_at"], last["approval_id"]) if last else ""
        return [with_display(_approval(row), whole=False) for row in rows[:size]], token

    async def get(self, approval_id: str, who: Answerer) -> gateway.Approval:
        """One of the requests that a user may see.

        Raises:
            NotFound: there is none, or it is for others.
        """
        return with_display(_approval(await self._row(approval_id, who)))

    async def respond(
        self, request: gateway.RespondApprovalRequest, who: Answerer
    ) -> gateway.Approval:
        """Decide; the same decision once more is no error.

        Raises:
            NotFound: there is no such request, or it is for others.
            PermissionDenied: it is not the caller's to answer so.
            InvalidArgument: instructions that cannot be followed.
            AlreadyExists: it was decided otherwise, or its time is over.
        """
        approve = request.decision == gateway.APPROVAL_DECISION_APPROVE
        instructions = request.instructions.strip()
        if instructions and not approve:
            raise InvalidArgument.field("instructions", "only go with an approval; leave them out")
        if "\0" in instructions:
            raise InvalidArgument.field("instructions", "must not contain U+0000")
        status = gateway.APPROVAL_STATUS_APPROVED if approve else gateway.APPROVAL_STATUS_DENIED
        row = await self._row(request.approval_id, who)
        approval = _approval(row)
        by = By.of(who.principal) if who.principal is not None else By(who.user_id)
        try:
            who.check(approval, approve=approve)
        except PermissionDenied as error:
            if self._refusals is not None:
                self._refusals.count(_refused(approval, by, error.reason))
            raise
        if instructions and approval.kind == gateway.APPROVAL_KIND_OUTCOME_UNKNOWN:
            raise InvalidArgument.field(
                "instructions", "do not go with this request: approve, or deny, without any"
            )
        if approve and not approval.actions:
            raise InvalidArgument.field(
                "decision", "what was proposed cannot be read any more; it can only be denied"
            )
        entry = _answered(approval, by, approve=approve, instructed=bool(instructions))
        if not await self._decide([row], [entry], status, instructions, who.user_id):
            # Another approver, or the time-out, was faster.
            await self.time_out(row["approval_id"])
        found = await self.get(request.approval_id, who)
        if (found.status, found.user_instructions) != (status, instructions):
            name = (
                gateway.ApprovalStatus.Name(found.status).removeprefix("APPROVAL_STATUS_").lower()
            )
            raise AlreadyExists(
                f"This request is closed already: {name.replace('_', ' ')}.",
                reason="APPROVAL_RESOLVED",
                metadata={"approval_id": found.approval_id, "status": name},
            )
        return found

    async def time_out(self, approval_id: UUID | None = None) -> None:
        """End the requests that were not decided in time: all, or just this one."""
        while True:
            due = await fetch(self._pool, _DUE, approval_id)
            entries = [SERVICE.entry("approval.expired", str(row["approval_id"])) for row in due]
            await self._decide(due, entries, gateway.APPROVAL_STATUS_TIMED_OUT)
            if len(due) < _BATCH:
                return

    async def _decide(
        self,
        rows: Sequence[asyncpg.Record],
        entries: Sequence[AuditEntry],
        status: gateway.ApprovalStatus,
        instructions: str = "",
        decided_by: str = "",
    ) -> int:
        """Give requests a final state, as far as no other replica was faster; returns how many.

        Each of the entries belongs to the request in its place, and stands if that is decided here.
        """
        final = [
            resolved(_approval(row), status, row["read_at"], instructions, decided_by)
            for row in rows
        ]
        # Of the call that decides; what is timed out belongs to none.
        decided_in = traceparent_of(trace.get_current_span().get_span_context())
        inputs = [_input(approval, decided_in) for approval in final]
        ids = [row["approval_id"] for row in rows]
        arguments = (ids, inputs, status, instructions, CHANNEL, decided_by)
        audit = (ids, *columns_of(entries))
        return len(await fetch(self._pool, _DECIDE, *arguments, *audit))

    async def _row(self, approval_id: str, who: Answerer) -> asyncpg.Record:
        missing = NotFound("There is no such approval.", metadata={"approval_id": approval_id})
        try:
            key = UUID(approval_id)
        except ValueError:
            raise missing from None
        known = (who.user_id, SEPARATOR.join(who.names))
        rows = await fetch(self._readers, _ONE, *known, key, who.user_id, who.names)
        if not rows:
            raise missing
        return rows[0]


def _answered(approval: gateway.Approval, by: By, *, approve: bool, instructed: bool) -> AuditEntry:
    """SHA-256 of the display that the approver was shown, and the decision."""
    shown = approval_display(approval).SerializeToString(deterministic=True)
    actions = hashlib.sha256("".join(each.digest for each in approval.actions).encode())
    return by.entry(
        "approval.answered",
        approval.approval_id,
        decision="approved" if approve else "denied",
        run=approval.run_id,
        asked_by=approval.user_id,
        agent=approval.agent_name,
        shown=f"sha256:{hashlib.sha256(shown).hexdigest()}",
        actions=f"sha256:{actions.hexdigest()}",
        with_instructions="yes" if instructed else "no",
    )


def _refused(approval: gateway.Approval, by: By, reason: str) -> AuditEntry:
    return by.entry(
        "approval.refused",
        approval.approval_id,
        outcome="refused",
        reason=reason,
        run=approval.run_id,
    )


def _approval(row: asyncpg.Record) -> gateway.Approval:
    try:
        approval = gateway.Approval.FromString(row["payload"])
    except DecodeError:
        # One damaged row must not keep all others from being listed or timed out. The log of its
        # run has the request as well, so that the run can go on.
        approval = gateway.Approval(approval_id=str(row["approval_id"]), run_id=str(row["run_id"]))
        approval.user_id = row["user_id"]
        approval.approvers.CopyFrom(approvers_named(row["approvers"]))
        approval.create_time.FromDatetime(row["created_at"])
        approval.expire_time.FromDatetime(row["expire_at"])
    approval.status = row["status"]
    approval.user_instructions = row["instructions"]
    approval.decided_by = row["decided_by"]
    if row["responded_at"] is not None:
        approval.respond_time.FromDatetime(row["responded_at"])
    return approval


def _input(approval: gateway.Approval, traceparent: str) -> bytes:
    resolved = ApprovalResolved(approval=approval, traceparent=traceparent)
    event = LogEvent(approval_resolved=resolved)
    event.create_time.CopyFrom(approval.respond_time)
    return event.SerializeToString()


@define(eq=False)
class ApprovalGauges:
    """Gauges of waiting requests: number and age of the oldest, from an index.

    Runs that wait have no owner, so every gateway counts all of them and shows the same figures:
    the more there are, the less often.
    """

    _pool: asyncpg.Pool[asyncpg.Record]
    _metrics: GatewayMetrics
    _shown: set[tuple[str, str]] = field(init=False, factory=set)

    async def refresh(self) -> float:
        """Count; what has waited before and does no more is shown as 0.

        Returns:
            Seconds until the next look.

        Raises:
            BosError: the database is away; the gauges stay as they were.
        """
        found: dict[tuple[str, str], tuple[int, float]] = {}
        for agent, tools, waiting, oldest_s in await fetch(self._pool, _WAITING):
            labels = self._metrics.agent(agent), self._metrics.tools(tools)
            before, older_s = found.get(labels, (0, 0.0))
            found[labels] = before + waiting, max(older_s, oldest_s)
        self._shown |= found.keys()
        for labels in self._shown:
            waiting, oldest_s = found.get(labels, (0, 0.0))
            self._metrics.approvals_waiting.labels(*labels).set(waiting)
            self._metrics.approvals_oldest_seconds.labels(*labels).set(oldest_s)
        count = sum(waiting for waiting, _ in found.values())
        return _WAITING_S * max(1.0, count / _FEW)
