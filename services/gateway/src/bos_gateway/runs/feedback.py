"""Feedback of users on the answers of their runs: stored, changed, taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from uuid import UUID

from attrs import define

from bos.gateway import v1 as gateway
from bos_errors import InvalidArgument
from bos_gateway.run_log.reader import not_found
from bos_postgres import fetch, fetchrow, fetchval, for_user

if TYPE_CHECKING:
    import asyncpg

    from bos_gateway.metrics import GatewayMetrics

    Pool = asyncpg.Pool[asyncpg.Record]

_SHOWN: Final = "rating, reasons, note, created_at, updated_at"
# Without a row of this user's run nothing is inserted.
_SET: Final = f"""
WITH former AS (
    SELECT rating FROM run_feedback WHERE run_id = $1
), stored AS (
    INSERT INTO run_feedback AS f (run_id, user_id, rating, reasons, note)
    SELECT run_id, user_id, $3, $4, $5 FROM runs WHERE run_id = $1 AND user_id = $2
    ON CONFLICT (run_id) DO UPDATE
    SET rating = $3, reasons = $4, note = $5, updated_at = now()
    RETURNING {_SHOWN}
)
SELECT *, (SELECT rating FROM former) AS former FROM stored
"""  # noqa: S608  our own text
_DELETE: Final = """
WITH owned AS (
    SELECT run_id FROM runs WHERE run_id = $1 AND user_id = $2
), gone AS (
    DELETE FROM run_feedback USING owned WHERE run_feedback.run_id = owned.run_id RETURNING 1
)
SELECT (SELECT count(*) FROM gone) FROM owned
"""
_GET: Final = for_user(
    f"SELECT {_SHOWN} FROM run_feedback WHERE run_id = $1 AND user_id = $2"  # noqa: S608
)
_LABELS: Final = {
    gateway.FEEDBACK_RATING_UP: "up",
    gateway.FEEDBACK_RATING_DOWN: "down",
}


@define(eq=False)
class Feedback:
    """Feedback by run; rows of other users are never found.

    Raises of all methods:
        Unavailable: the database is away.
    """

    _pool: Pool
    _readers: Pool
    """Connections of the role that sees the rows of one user."""
    _metrics: GatewayMetrics

    async def get(self, run_id: UUID, user_id: str) -> gateway.RunFeedback | None:
        """Feedback on a run of the user's; None if there is none."""
        rows = await fetch(self._readers, _GET, user_id, run_id, user_id)
        return _feedback(rows[0]) if rows else None

    async def store(
        self, run_id: str, feedback: gateway.RunFeedback, user_id: str
    ) -> gateway.RunFeedback:
        """Store feedback on a run of the user's, in place of an earlier one.

        Raises:
            NotFound: there is no such run, or it belongs to another user.
            InvalidArgument: the note holds U+0000.
        """
        if "\0" in feedback.note:
            raise InvalidArgument.field("feedback.note", "must not contain U+0000")
        given = (feedback.rating, sorted(feedback.reasons), feedback.note)
        row = await fetchrow(self._pool, _SET, _key(run_id), user_id, *given)
        if row is None:
            raise not_found(run_id)
        if row["former"] != feedback.rating:
            self._metrics.feedback.labels(_LABELS[feedback.rating]).inc()
        return _feedback(row)

    async def take_back(self, run_id: str, user_id: str) -> None:
        """Delete the feedback on a run of the user's, if there is any.

        Raises:
            NotFound: there is no such run, or it belongs to another user.
        """
        deleted = await fetchval(self._pool, _DELETE, _key(run_id), user_id)
        if deleted is None:
            raise not_found(run_id)
        if deleted:
            self._metrics.feedback.labels("taken_back").inc()


def _key(run_id: str) -> UUID:
    try:
        return UUID(run_id)
    except ValueError:  # no run can have such an id
        raise not_found(run_id) from None


def _feedback(row: asyncpg.Record) -> gateway.RunFeedback:
    feedback = gateway.RunFeedback(rating=row["rating"], reasons=row["reasons"], note=row["note"])
    feedback.create_time.FromDatetime(row["created_at"])
    feedback.update_time.FromDatetime(row["updated_at"])
    return feedback
