"""Webhook outbox in PostgreSQL: claims of due deliveries, outcomes of attempts.

A claim moves the time at which the delivery is due behind the end of the attempt, so a gateway that
dies leaves nothing behind but deliveries that are due again, under the same id. Several gateways
claim at once; rows that another one is claiming are passed over.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from attrs import define

from bos.gateway import v1 as gateway
from bos_gateway.key_ring import SealedSecrets
from bos_postgres import execute, fetch, fetchrow, fetchval

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime
    from uuid import UUID

    import asyncpg

    Pool = asyncpg.Pool[asyncpg.Record]

_OLDEST: Final = """
SELECT extract(epoch FROM now() - min(due_at))::float8 FROM webhook_deliveries WHERE state = 1
"""
_CLAIMED: Final = """
d.delivery_id, d.webhook_id, d.user_id, d.run_id, d.approval_id, d.event, d.attempts, d.failures,
d.created_at, h.url, h.origin, h.key_id, h.secret
"""
# Webhooks with something pending are found one after the other by the index, however much each of
# them has. Of each origin no more is chosen than may be under way at once, the first of every one
# before the second of any. An event waits for the earlier ones of its run.
_CLAIM: Final = f"""
WITH RECURSIVE pending AS (
    (SELECT webhook_id FROM webhook_deliveries WHERE state = 1 ORDER BY webhook_id LIMIT 1)
    UNION ALL
    SELECT (SELECT d.webhook_id FROM webhook_deliveries AS d
            WHERE d.state = 1 AND d.webhook_id > p.webhook_id ORDER BY d.webhook_id LIMIT 1)
    FROM pending AS p WHERE p.webhook_id IS NOT NULL
), due AS (
    SELECT h.origin, e.delivery_id, e.due_at,
           row_number() OVER (PARTITION BY h.origin ORDER BY e.due_at, e.position)
           + coalesce(b.attempts, 0) AS place
    FROM pending AS p
    JOIN webhooks AS h ON h.webhook_id = p.webhook_id AND h.disabled_at IS NULL
    LEFT JOIN unnest($3::text[], $4::int[]) AS b (origin, attempts) ON b.origin = h.origin
    CROSS JOIN LATERAL (
        SELECT d.delivery_id, d.due_at, d.position FROM webhook_deliveries AS d
        WHERE d.webhook_id = p.webhook_id AND d.state = 1 AND d.due_at <= now() AND NOT EXISTS (
            SELECT FROM webhook_deliveries AS earlier
            WHERE earlier.run_id = d.run_id AND earlier.webhook_id = d.webhook_id
                  AND earlier.position < d.position AND earlier.state = 1
        )
        ORDER BY d.due_at LIMIT $2
    ) AS e
), chosen AS (
    SELECT delivery_id FROM due WHERE place <= $2 ORDER BY place, due_at LIMIT $1
), claimed AS (
    SELECT d.delivery_id FROM webhook_deliveries AS d JOIN chosen USING (delivery_id)
    WHERE d.state = 1 AND d.due_at <= now()
    FOR UPDATE OF d SKIP LOCKED
)
UPDATE webhook_deliveries AS d
SET attempts = d.attempts + 1, begun_at = coalesce(d.begun_at, now()),
    due_at = now() + make_interval(secs => $5)
FROM claimed AS c, webhooks AS h
WHERE d.delivery_id = c.delivery_id AND h.webhook_id = d.webhook_id
RETURNING {_CLAIMED}
"""  # noqa: S608  our own text
_CLAIM_TEST: Final = f"""
WITH d AS (
    INSERT INTO webhook_deliveries (webhook_id, user_id, event, attempts, begun_at, due_at)
    SELECT webhook_id, user_id, {gateway.WEBHOOK_EVENT_TEST}, 1, now(),
           now() + make_interval(secs => $3)
    FROM webhooks WHERE webhook_id = $1 AND user_id = $2
    RETURNING *
)
SELECT {_CLAIMED} FROM d JOIN webhooks AS h USING (webhook_id)
"""  # noqa: S608  our own text
# A receiver's row is not written for every event: once a second says as much.
_ACCEPTED: Final = f"""
WITH delivered AS (
    UPDATE webhook_deliveries
    SET state = 2, outcome = {gateway.WEBHOOK_OUTCOME_ACCEPTED}, ended_at = now()
    WHERE delivery_id = $1 AND state = 1
    RETURNING webhook_id, event
)
UPDATE webhooks AS h
SET last_success_at = now(),
    disabled_at = CASE WHEN d.event <> {gateway.WEBHOOK_EVENT_TEST} THEN h.disabled_at END
FROM delivered AS d
WHERE h.webhook_id = d.webhook_id
      AND (h.disabled_at IS NOT NULL OR h.last_success_at IS NULL
           OR h.last_success_at < now() - interval '1 s')
"""  # noqa: S608  our own text
# Later events of the run wait with it, and need not be looked at meanwhile.
_FAILED: Final = f"""
WITH mine AS (
    SELECT delivery_id, event = {gateway.WEBHOOK_EVENT_TEST}
           OR now() - begun_at >= make_interval(secs => $5) AS final
    FROM webhook_deliveries WHERE delivery_id = $1 AND state = 1 AND attempts = $2
    FOR UPDATE
), failed AS (
    UPDATE webhook_deliveries AS d
    SET outcome = $3, failures = d.failures + 1, due_at = now() + make_interval(secs => $4),
        state = CASE WHEN m.final THEN 3 ELSE 1 END, ended_at = CASE WHEN m.final THEN now() END
    FROM mine AS m WHERE d.delivery_id = m.delivery_id
    RETURNING d.webhook_id, d.run_id, d.position, d.due_at, d.state
), later AS (
    UPDATE webhook_deliveries AS d SET due_at = greatest(d.due_at, f.due_at)
    FROM failed AS f
    WHERE f.state = 1 AND d.run_id = f.run_id AND d.webhook_id = f.webhook_id
          AND d.position > f.position AND d.state = 1
), noted AS (
    UPDATE webhooks AS h SET last_failure_at = now()
    FROM failed AS f
    WHERE h.webhook_id = f.webhook_id
          AND (h.last_failure_at IS NULL OR h.last_failure_at < now() - interval '1 s')
)
SELECT state = 3 FROM failed
"""  # noqa: S608  our own text
# Two statements, so that the webhook's row is not held while those of its deliveries are taken.
# What a crash between them leaves pending, maintenance gives up.
_DISABLE: Final = """
UPDATE webhooks SET disabled_at = coalesce(disabled_at, now()), last_failure_at = now()
WHERE webhook_id = $1
"""
_GONE: Final = f"""
UPDATE webhook_deliveries
SET state = 3, outcome = {gateway.WEBHOOK_OUTCOME_GONE}, ended_at = now()
WHERE webhook_id = $1 AND state = 1
"""  # noqa: S608  our own text
_RELEASE: Final = """
UPDATE webhook_deliveries SET due_at = now() WHERE delivery_id = $1 AND attempts = $2 AND state = 1
"""


class Claim(NamedTuple):
    """A delivery that this replica attempts."""

    delivery_id: UUID
    webhook_id: UUID
    user_id: str
    run_id: UUID | None
    """None for a test."""
    approval_id: UUID | None
    event: gateway.WebhookEvent
    attempts: int
    """Those that were begun, with this one."""
    failures: int
    created_at: datetime
    url: str
    origin: str
    sealed: SealedSecrets


@define(eq=False)
class Outbox:
    """Reads and writes the outbox as the service itself.

    Raises of all methods:
        BosError: the database is away.
    """

    _pool: Pool
    _lease_s: float
    """After which an attempt counts as lost."""
    _give_up_s: float
    """Since the first attempt."""

    async def oldest_due_s(self) -> float | None:
        """For how long the oldest has been due; negative until it is; None if there is none."""
        found: float | None = await fetchval(self._pool, _OLDEST)
        return found

    async def claim(self, limit: int, per_origin: int, under_way: Mapping[str, int]) -> list[Claim]:
        """Deliveries that are due, for this replica alone.

        Args:
            limit: Most to claim.
            per_origin: Most that may be under way to one origin.
            under_way: What is, by origin.
        """
        busy = list(under_way), list(under_way.values())
        rows = await fetch(self._pool, _CLAIM, limit, per_origin, *busy, self._lease_s)
        return [_claim(row) for row in rows]

    async def claim_test(self, webhook_id: UUID, user_id: str) -> Claim | None:
        """A new test of a user's webhook, for this replica alone; None if there is no such one."""
        row = await fetchrow(self._pool, _CLAIM_TEST, webhook_id, user_id, self._lease_s)
        return None if row is None else _claim(row)

    async def accepted(self, claim: Claim) -> None:
        """Record that the receiver accepted the event."""
        await execute(self._pool, _ACCEPTED, claim.delivery_id)

    async def failed(self, claim: Claim, outcome: gateway.WebhookOutcome, wait_s: float) -> bool:
        """The attempt failed; whether the event is given up."""
        mine = claim.delivery_id, claim.attempts, outcome, wait_s, self._give_up_s
        return bool(await fetchval(self._pool, _FAILED, *mine))

    async def gone(self, claim: Claim) -> None:
        """The receiver wants no more: disable the webhook and give up all that is pending."""
        await execute(self._pool, _DISABLE, claim.webhook_id)
        await execute(self._pool, _GONE, claim.webhook_id)

    async def release(self, claim: Claim) -> None:
        """The attempt was broken off; it may be made again at once."""
        await execute(self._pool, _RELEASE, claim.delivery_id, claim.attempts)


def _claim(row: asyncpg.Record) -> Claim:
    *columns, key_id, secret = row
    return Claim._make([*columns, SealedSecrets(key_id, secret)])
