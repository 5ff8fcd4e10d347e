"""Ownership of runs: epochs, adoption, release, back-off after failures; its SQL.

All times are the database's, so replicas need not agree on the time. A run is taken by raising its
epoch; from that moment the log refuses what an earlier owner still tries to write. Statements
that others must hear of say (``notifications.py``): the message comes with the commit.

Nothing here reads rows in proportion to runs that wait or have ended: what can be taken is found by
an index on ``retry_at`` of the runs without an owner, what a dead replica left by its id, and a run
that waits for an approval by its input. Statements that lock several rows skip those
that others hold, so that one stuck session holds up nothing but its own runs.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import asyncpg
from attrs import define, field

from bos.runlog.v1 import LogEvent
from bos_errors import BosError
from bos_gateway.ownership.poison import GETS_FURTHER, RESUMED, SUSPECT_FROM
from bos_gateway.run_log.notifications import CHANNEL
from bos_postgres import execute, fetch
from bos_postgres.audit import AuditEntry, columns_of

# Raising the epochs of what is still ours makes this replica its own successor: all that it was
# about to write before it lost the lease is refused. The row of the lease is locked first, as by
# those who free runs of the dead: the second finds a lease, or no runs, and counts no death.
_TAKE = """
WITH lease AS (
    INSERT INTO replicas (replica_id, lease_until) VALUES ($1, now() + make_interval(secs => $2))
    ON CONFLICT (replica_id) DO UPDATE SET lease_until = excluded.lease_until
    RETURNING replica_id
), locked AS (
    SELECT r.run_id FROM lease JOIN runs AS r USING (replica_id) WHERE r.finished_at IS NULL
    ORDER BY r.run_id
    FOR NO KEY UPDATE OF r SKIP LOCKED
), ours AS (
    UPDATE runs AS r SET epoch = epoch + 1 FROM locked AS l WHERE r.run_id = l.run_id
    RETURNING r.run_id, r.epoch, r.failures
)
SELECT now() AS written_at, run_id, epoch, failures FROM (SELECT) AS one LEFT JOIN ours ON true
"""

# A run that waits for an approval has no owner until it has an input: a decision, or a request
# to cancel. An input is there until its event is in the log, so none is slept through. Looked up
# run by run: a join could read all that wait.
_WANTED = """
SELECT i.run_id FROM run_inputs AS i
WHERE (SELECT r.finished_at IS NULL AND r.replica_id IS NULL AND r.retry_at = 'infinity'
       FROM runs AS r WHERE r.run_id = i.run_id)
"""
# Runs that wait are not even in the index: else it would be taken for them, too.
_DUE = """finished_at IS NULL AND replica_id IS NULL AND retry_at < 'infinity'
          AND retry_at <= now()"""
_LOOK = f"""
SELECT EXISTS (SELECT FROM replicas WHERE lease_until < now() AND replica_id <> $1) AS dead,
       EXISTS (SELECT FROM runs WHERE {_DUE}) OR EXISTS ({_WANTED}) AS runs,
       extract(epoch FROM (
           SELECT min(lease_until) FROM replicas WHERE lease_until >= now() AND replica_id <> $1
       ) - now())::float8 AS expiry_s,
       extract(epoch FROM (
           SELECT min(expire_at) FROM approvals WHERE status = 1
       ) - now())::float8 AS time_out_s
"""  # noqa: S608  our own text

_KINDS = ", ".join(f"'{kind}'" for kind in GETS_FURTHER)
_GOT_FURTHER = f"""(
    SELECT max(e.sequence) FROM run_events AS e WHERE e.run_id = r.run_id AND e.kind IN ({_KINDS})
)"""  # noqa: S608  our own text
# What an owner released counts as a failure, the first one again if the log got further since the
# last. It is decided here, in the commit that frees the run: an owner that dies of reading the
# run's log could write nothing into it.
_COUNTED = f"""counted AS (
    SELECT h.run_id, greatest(f.sequence, r.failures_after) AS failures_after,
           CASE WHEN f.sequence > r.failures_after THEN 1 ELSE r.failures + 1 END AS failures
    FROM held AS h JOIN runs AS r USING (run_id)
         CROSS JOIN LATERAL (SELECT {_GOT_FURTHER} AS sequence) AS f
)"""  # noqa: S608  our own text
_NOTIFY = f"notified AS (SELECT pg_notify('{CHANNEL}', 'released') FROM freed LIMIT 1)"  # noqa: S608
_BURY = f"""
WITH dead AS (
    SELECT replica_id FROM replicas
    WHERE lease_until < now() AND replica_id <> $1 AND now() < $2
    FOR UPDATE SKIP LOCKED
), held AS (
    SELECT r.run_id FROM dead JOIN runs AS r USING (replica_id) WHERE r.finished_at IS NULL
    ORDER BY r.run_id
    FOR NO KEY UPDATE OF r SKIP LOCKED
), {_COUNTED}, freed AS (
    UPDATE runs AS r SET replica_id = NULL, retry_at = now(), failures = c.failures,
           failures_after = c.failures_after
    FROM counted AS c WHERE r.run_id = c.run_id
    RETURNING r.run_id
), gone AS (
    DELETE FROM replicas AS p USING dead AS d
    WHERE p.replica_id = d.replica_id AND NOT EXISTS (
        SELECT FROM runs AS r WHERE r.replica_id = d.replica_id AND r.finished_at IS NULL
    )
    RETURNING p.replica_id, p.lease_until
), {_NOTIFY}
SELECT d.replica_id, g.lease_until AS gone FROM dead AS d LEFT JOIN gone AS g USING (replica_id)
       LEFT JOIN notified ON true
"""  # noqa: S608  our own text
# By the index on the end of runs: only of the last moments of each.
_ENDED_LAST = """
SELECT r.run_id
FROM unnest($1::uuid[], $2::timestamptz[]) AS d (replica_id, lease_until)
     JOIN runs AS r ON r.replica_id = d.replica_id
                       AND r.finished_at > d.lease_until - make_interval(secs => $3)
ORDER BY r.finished_at DESC
LIMIT $4
"""
# By the names that `session.py` gives.
_END_SESSIONS = """
SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
WHERE datname = current_database() AND usename = session_user AND pid <> pg_backend_pid()
      AND right(application_name, 36) = ANY ($1::text[])
"""

# All that are due now are shared by all that live, or the fastest would take them all, and would
# take them all down with it if one of them kills. Those that did so of late, or look like it, are
# driven one at a time.
_ADOPT = f"""
WITH room AS MATERIALIZED (
    SELECT least($2, ceil(
               (SELECT count(*) FROM runs WHERE {_DUE} AND failures < {SUSPECT_FROM})::float8
               / greatest((SELECT count(*) FROM replicas WHERE lease_until >= now()), 1)
           ))::int AS share,
           CASE WHEN EXISTS (
               SELECT FROM runs AS r
               WHERE r.run_id = ANY ($3) AND r.finished_at IS NULL
                     AND coalesce({_GOT_FURTHER}, 0) <= r.failures_after
           ) THEN 0 ELSE 1 END AS suspects
), wanted AS (
    SELECT run_id FROM runs
    WHERE run_id = ANY (ARRAY ({_WANTED} LIMIT $2))
          AND finished_at IS NULL AND replica_id IS NULL AND retry_at = 'infinity'
    FOR NO KEY UPDATE SKIP LOCKED
), others AS (
    SELECT run_id FROM runs WHERE {_DUE} AND failures < {SUSPECT_FROM} AND run_id <> ALL ($4)
    ORDER BY retry_at
    LIMIT (SELECT share FROM room)
    FOR NO KEY UPDATE SKIP LOCKED
), suspect AS (
    SELECT run_id FROM runs WHERE {_DUE} AND failures >= {SUSPECT_FROM} AND run_id <> ALL ($4)
    ORDER BY retry_at
    LIMIT (SELECT suspects FROM room)
    FOR NO KEY UPDATE SKIP LOCKED
), taken AS (
    SELECT run_id FROM wanted UNION ALL
    SELECT run_id FROM suspect UNION ALL
    SELECT run_id FROM others
    LIMIT $2
)
UPDATE runs AS r SET replica_id = $1, epoch = epoch + 1
FROM taken AS t WHERE r.run_id = t.run_id
RETURNING r.run_id, r.epoch, r.failures,
          coalesce(extract(epoch FROM now() - r.unreadable_since), 0)::float8 AS unreadable_s
"""  # noqa: S608  our own text
_BACK_OFF_CAP_S = 600.0
# What is put off for no fault of its own waits as long again as it has waited already. Anything
# written to its log ends that time.
_RELEASE = f"""
WITH held AS (
    SELECT run_id FROM runs WHERE run_id = $1 AND epoch = $2 AND replica_id = $3
    FOR NO KEY UPDATE SKIP LOCKED
), {_COUNTED}
UPDATE runs AS r
SET replica_id = NULL,
    failures = CASE WHEN $4 THEN c.failures ELSE r.failures END,
    failures_after = CASE WHEN $4 THEN c.failures_after ELSE r.failures_after END,
    unreadable_since = coalesce(r.unreadable_since, CASE WHEN $5 THEN now() END),
    retry_at = now() + make_interval(secs => least({_BACK_OFF_CAP_S},
        CASE WHEN $4 THEN $6::float8 * 2::float8 ^ least(c.failures - 1, 30)
             ELSE greatest($6, extract(epoch FROM now() - r.unreadable_since)::float8) END))
FROM counted AS c WHERE r.run_id = c.run_id
RETURNING extract(epoch FROM r.retry_at - now())::float8 AS due_s
"""  # noqa: S608  our own text

_RELEASE_ALL = f"""
WITH held AS (
    SELECT run_id FROM runs WHERE replica_id = $1 AND finished_at IS NULL
    ORDER BY run_id
    FOR NO KEY UPDATE SKIP LOCKED
), freed AS (
    UPDATE runs AS r SET replica_id = NULL, retry_at = now() FROM held AS h
    WHERE r.run_id = h.run_id
    RETURNING r.run_id
), {_NOTIFY}
SELECT (SELECT count(*) FROM runs WHERE replica_id = $1 AND finished_at IS NULL)
       - (SELECT count(*) FROM freed) AS kept
FROM (SELECT) AS one LEFT JOIN notified ON true
"""  # noqa: S608  our own text
# A replica without a row does not count as dead, so nothing is left to be buried.
_LEAVE = """
WITH gone AS (
    DELETE FROM replicas WHERE replica_id = $1 AND $2 AND NOT EXISTS (
        SELECT FROM runs WHERE replica_id = $1 AND finished_at IS NULL
    )
    RETURNING replica_id
)
UPDATE replicas SET lease_until = now() WHERE replica_id = $1 AND NOT EXISTS (SELECT FROM gone)
"""
_ADD_INPUT = f"""
WITH added AS (
    INSERT INTO run_inputs (run_id, kind, payload)
    SELECT run_id, $2, $3 FROM runs WHERE run_id = $1 AND finished_at IS NULL
    ON CONFLICT DO NOTHING
    RETURNING run_id
), audited AS (
    INSERT INTO audit_pending (actor, actor_kind, action, target, outcome, address, details)
    SELECT t.* FROM added CROSS JOIN unnest(
        $4::text[], $5::text[], $6::text[], $7::text[], $8::text[], $9::text[], $10::jsonb[]) AS t
)
SELECT pg_notify('{CHANNEL}', 'input ' || run_id), pg_notify('{CHANNEL}', 'released') FROM added
"""  # noqa: S608  our own text
_INPUTS = "SELECT run_id, payload FROM run_inputs WHERE run_id = ANY ($1) ORDER BY created_at"
# On the way runs of owners that are unknown become those of dead ones: an owner whose row was
# deleted, as it had no runs and its lease had run out, may have accepted another on its way out.
_UNOWNED = """
WITH orphans AS (
    INSERT INTO replicas (replica_id, lease_until)
    SELECT DISTINCT replica_id, now() FROM runs AS r
    WHERE finished_at IS NULL AND replica_id IS NOT NULL
          AND NOT EXISTS (SELECT FROM replicas AS p WHERE p.replica_id = r.replica_id)
    ON CONFLICT DO NOTHING
)
SELECT run_id, epoch FROM runs
WHERE replica_id = $1 AND finished_at IS NULL AND run_id <> ALL ($2)
LIMIT 100
"""

_RELEASE_TRIES = 5
_RELEASE_AGAIN_S = 0.1
# Longer than it takes from a commit to the loop that drives the run. A run released too early is
# fenced off, and taken over from the log.
_GRACE_S = 5.0
# For so long after it is due, a run that a replica could not read is left to the others: some
# looks of theirs. Else an older version could win every time against a newer one that can.
_OTHERS_FIRST_S = 3.0
_MOST_LEFT = 1_000
# What is exported of a run lies in a queue for this long at most, once its end is in the log.
_EXPORTED_AFTER_S = 5.0
_MOST_ENDED = 1_000
# Seldom: what an index still holds of runs that ended here is read as well, until it is vacuumed.
_ORPHANS_S = 10.0


@dataclass(frozen=True, slots=True)
class Adopted:
    """A run that is this replica's from now on."""

    run_id: UUID
    epoch: int
    reason: str = ""
    """As in ``bos.runlog.v1.RunAdopted``; empty if the log says it."""
    failures: int = 0
    """How often its owners failed in a row without its getting further."""
    unreadable_s: float = 0.0
    """For how long its log could not be read by any replica."""


@dataclass(frozen=True, slots=True)
class Look:
    """Work that a periodic look found: expired leases, unowned runs, time-outs."""

    dead: bool
    """Leases of others have run out."""
    runs: bool
    """There are runs without an owner that are due."""
    expiry_s: float | None
    """Seconds until the next lease of another replica runs out, unless it is renewed."""
    time_out_s: float | None
    """Seconds until the next approval request times out."""


@define(eq=False)
class Ownership:
    """The statements of ownership for one replica."""

    _pool: asyncpg.Pool[asyncpg.Record]
    replica_id: UUID
    """This process."""
    _lease_s: float
    _hold_off_s: float = field(default=2.0, kw_only=True)
    """Back-off after the first failure of a run."""
    _monotonic: Callable[[], float] = field(default=time.monotonic, kw_only=True)
    _orphans: dict[tuple[UUID, int], float] = field(init=False, factory=dict)
    """Runs of ours that are not driven here, and since when."""
    _look_for_orphans_at: float = field(init=False, default=0.0)
    _left: dict[UUID, float] = field(init=False, factory=dict)
    """Runs that could not be read here, and until when they are left to other replicas."""
    _gone: dict[UUID, datetime] = field(init=False, factory=dict)
    """Replicas that were buried here and have no runs any more, and when their leases ran out."""

    async def take(self) -> tuple[datetime, list[Adopted]]:
        """Take a lease, and those runs again that are still this replica's.

        A run whose row another session holds is left as it is, and released as an orphan later.

        Returns:
            When that was, by the database's clock, and the runs.
        """
        rows = await fetch(self._pool, _TAKE, self.replica_id, self._lease_s)
        ours = [Adopted(run, epoch, RESUMED, failures) for _, run, epoch, failures in rows if run]
        return rows[0]["written_at"], ours

    async def look(self) -> Look:
        """Periodic look for work: the one statement of a replica that is idle."""
        (row,) = await fetch(self._pool, _LOOK, self.replica_id)
        return Look(**row)

    async def bury(self, judge_until: datetime) -> int:
        """Free the runs of replicas whose leases ran out, count that, and end their sessions.

        A process that is frozen keeps locks, a snapshot and its place in the queue of
        notifications for as long as its sessions live.

        Args:
            judge_until: Until when, by the database's clock, a lease that has run out means that
                its replica died.

        Returns:
            How many replicas there were.
        """
        rows = await fetch(self._pool, _BURY, self.replica_id, judge_until)
        dead = [str(row["replica_id"]) for row in rows]
        self._gone |= {row["replica_id"]: row["gone"] for row in rows if row["gone"] is not None}
        if dead:
            await execute(self._pool, _END_SESSIONS, dead)
        return len(dead)

    async def ended_last(self) -> list[UUID]:
        """Runs that ended in the last moments of replicas that were buried here: each once.

        What a process is about to do when the end of a run is in the log dies with it.

        Raises:
            BosError: the database is away; the next call finds them.
        """
        if not self._gone:
            return []
        gone = dict(self._gone)
        before_s = self._lease_s + _EXPORTED_AFTER_S
        given = (list(gone), list(gone.values()), before_s, _MOST_ENDED)
        rows = await fetch(self._pool, _ENDED_LAST, *given)
        self._gone = {each: at for each, at in self._gone.items() if each not in gone}
        return [row["run_id"] for row in rows]

    async def adopt(self, room: int, suspects: Collection[UUID] = ()) -> list[Adopted]:
        """Take over runs without an owner that are due: this replica's share of them.

        One that could not be read here is left to the others first, for some seconds.

        Args:
            room: Most runs to take.
            suspects: Runs driven here whose owners failed repeatedly; no other such run is taken
                until each of them got further or ended.
        """
        now = self._monotonic()
        self._left = {run_id: until for run_id, until in self._left.items() if until > now}
        given = (self.replica_id, room, list(suspects), list(self._left))
        rows = await fetch(self._pool, _ADOPT, *given)
        return [Adopted(**row) for row in rows]

    async def release_orphans(self, driven: Collection[UUID]) -> int:
        """Release orphans: runs that were ours for a while and are not ``driven`` here.

        Taking a run over and driving it are two things, and the connection can be lost in between:
        then the adoption stands and its answer never came, or a run that went wrong could not be
        released. While this replica lives no other takes such a run. Looks only now and then. What
        cannot be released, as its row is locked, is left for the next time and keeps no other from
        it.

        Raises:
            BosError: the database is away; the next call goes on.
        """
        now = self._monotonic()
        if now < self._look_for_orphans_at:
            return 0
        rows = await fetch(self._pool, _UNOWNED, self.replica_id, list(driven))
        self._orphans = {
            (run_id, epoch): self._orphans.get((run_id, epoch), now) for run_id, epoch in rows
        }
        self._look_for_orphans_at = now + (_GRACE_S if self._orphans else _ORPHANS_S)
        released = 0
        for orphan, since in self._orphans.items():
            if now - since >= _GRACE_S:
                with suppress(BosError):
                    released += await self.release(*orphan)
        return released

    async def release(
        self, run_id: UUID, epoch: int, *, failed: bool = True, unreadable: bool = False
    ) -> bool:
        """Release a run that makes no progress here, if it is still ours; it is due again later.

        Args:
            run_id: The run.
            epoch: Ours.
            failed: Count it as a failure: the back-off doubles with each.
            unreadable: Its log cannot be read by this version, or by any.

        Returns:
            Whether it was released; not if it is not ours, or while its row is locked.
        """
        given = (run_id, epoch, self.replica_id, failed, unreadable)
        rows = await fetch(self._pool, _RELEASE, *given, self._hold_off_s)
        if rows and unreadable and len(self._left) < _MOST_LEFT:
            self._left[run_id] = self._monotonic() + rows[0]["due_s"] + _OTHERS_FIRST_S
        return bool(rows)

    async def release_all(self) -> None:
        """Release every unfinished run, for others to take over at once; the lease stays.

        Raises:
            BosError: the database is away; others take over once the lease has run out.
        """
        for _ in range(_RELEASE_TRIES):
            ((kept,),) = await fetch(self._pool, _RELEASE_ALL, self.replica_id)
            if not kept:
                return
            await asyncio.sleep(_RELEASE_AGAIN_S)  # another session holds their rows

    async def leave(self, *, exported: bool) -> None:
        """Delete the lease at the end of a drain, after :meth:`release_all`.

        Args:
            exported: Traces of all runs that ended here are where they belong. Else, and while a
                run is still this replica's, others bury it as one that died.

        Raises:
            BosError: the database is away; others bury it once the lease has run out.
        """
        await execute(self._pool, _LEAVE, self.replica_id, exported)

    async def add_input(self, run_id: UUID, kind: str, event: LogEvent, *audit: AuditEntry) -> None:
        """Store an input for the run's owner; the first of its kind counts and is audited."""
        given = (run_id, kind, event.SerializeToString())
        await fetch(self._pool, _ADD_INPUT, *given, *columns_of(audit))

    async def inputs(self, run_ids: Collection[UUID]) -> list[tuple[UUID, bytes]]:
        """Inputs of these runs, oldest first: run and serialised LogEvent.

        They stay until the run ends, so none is lost on its way into the log; the run's loop drops
        what it has already recorded.
        """
        rows = await fetch(self._pool, _INPUTS, list(run_ids))
        return [(row["run_id"], row["payload"]) for row in rows]
