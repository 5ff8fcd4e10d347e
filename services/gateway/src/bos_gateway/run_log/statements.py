"""SQL of the log writer: one round trip each, without BEGIN and COMMIT."""

from __future__ import annotations

from datetime import UTC
from typing import TYPE_CHECKING, Final, NamedTuple
from uuid import UUID, uuid4

from bos.gateway.v1 import WEBHOOK_EVENT_APPROVAL_REQUESTED, WEBHOOK_EVENT_RUN_FINISHED
from bos_gateway.core.fold import waits
from bos_gateway.permits.approvers import SEPARATOR, names_of
from bos_gateway.run_log.quota import held, settled
from bos_gateway.run_log.records import time_of
from bos_postgres.audit import columns_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import asyncpg

    from bos.runlog.v1 import LogEvent
    from bos_gateway.run_log.records import Append, NewRun
    from bos_postgres.audit import AuditEntry

    Session = asyncpg.Connection[asyncpg.Record]

SCHEMA_VERSION: Final = 1
"""The newest schema of events that this version reads, and the one it writes."""

# `counted` holds a lock per user until the commit, taken in one order by all, and only then
# counts: with any number of replicas, no user gets more runs than the bound. A request that
# is already known passes, to be found in its place.
ACCEPT = """
WITH new AS (
    SELECT *, EXISTS (
        SELECT FROM runs AS r WHERE r.user_id = t.user_id AND r.request_id = t.request_id
    ) AS known
    FROM unnest(
        $1::uuid[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::text[], $7::uuid[],
        $8::bytea[], $9::timestamptz[], $10::bigint[], $11::bigint[], $12::text[], $13::bytea[],
        $14::bigint[]
    ) AS t (run_id, user_id, request_id, request_digest, conversation_id, question, event_id,
            payload, created_at, max_active, max_waiting, secrets_key_id, secrets, day_tokens)
), bounded AS (
    SELECT DISTINCT user_id, hashtext(user_id) AS lock_key
    FROM new WHERE (max_active > 0 OR max_waiting > 0) AND NOT known
    ORDER BY lock_key
), counted AS MATERIALIZED (
    SELECT b.user_id, c.active, c.waiting
    FROM bounded AS b CROSS JOIN LATERAL unfinished_runs(b.user_id) AS c
), placed AS (
    SELECT *, dense_rank() OVER (PARTITION BY user_id, known ORDER BY request_id) AS place FROM new
), admitted AS (
    SELECT p.*
    FROM placed AS p LEFT JOIN counted AS c USING (user_id)
    WHERE p.known OR (p.max_active = 0 OR c.active + p.place <= p.max_active)
                     AND (p.max_waiting = 0 OR c.waiting < p.max_waiting)
), created AS (
    INSERT INTO runs (run_id, user_id, request_id, request_digest, conversation_id, question,
                      status, last_sequence, replica_id, created_at, tokens, token_day)
    SELECT run_id, user_id, request_id, request_digest, conversation_id, question, 1, 1, $15,
           created_at, day_tokens,
           CASE WHEN day_tokens IS NOT NULL THEN (now() AT TIME ZONE 'UTC')::date END
    FROM admitted
    ON CONFLICT DO NOTHING
    RETURNING run_id
), first AS (
    INSERT INTO run_events (run_id, sequence, event_id, epoch, kind, schema_version, payload,
                            created_at)
    SELECT run_id, 1, event_id, 1, 'run_accepted', $16, payload, created_at
    FROM new JOIN created USING (run_id)
), sealed AS (
    INSERT INTO run_secrets (run_id, key_id, ciphertext)
    SELECT run_id, secrets_key_id, secrets
    FROM new JOIN created USING (run_id)
    WHERE secrets IS NOT NULL
), audited AS (
    INSERT INTO audit_pending (actor, actor_kind, action, target, outcome, address, details)
    SELECT actor, actor_kind, action, target, outcome, address, details
    FROM unnest($17::uuid[], $18::text[], $19::text[], $20::text[], $21::text[], $22::text[],
                $23::text[], $24::jsonb[])
         AS t (run_id, actor, actor_kind, action, target, outcome, address, details)
         JOIN created USING (run_id)
)
SELECT n.run_id, c.run_id IS NOT NULL AS created, a.run_id IS NULL AS refused
FROM new AS n LEFT JOIN created AS c USING (run_id) LEFT JOIN admitted AS a USING (run_id)
"""

# The fence: a run is `owned` when it is ours at this epoch, has not ended, and its log ends just
# before the first new event. So nothing is ever written behind an end, twice, or over a gap.
#
# A row locked by another session is passed over: it must not hold up the runs beside it. Such a
# run is ours and not written, which distinguishes it from one that was lost.
#
# Approval requests ($16 to $22) are written with their events, and so are their inputs taken away
# ($23, $24) with the events that these became. Runs in $25 wait for approvals, without owner from
# now on.
_APPEND = """
WITH wanted AS (
    SELECT * FROM unnest(
        $1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::smallint[], $6::boolean[]
    ) AS t (run_id, epoch, after_sequence, last_sequence, status, finished)
), owned AS (
    SELECT r.run_id
    FROM runs AS r JOIN wanted AS w USING (run_id)
    WHERE r.replica_id = $7 AND r.epoch = w.epoch AND r.finished_at IS NULL
          AND r.last_sequence = w.after_sequence
    ORDER BY r.run_id
    FOR NO KEY UPDATE OF r SKIP LOCKED
), touched AS (
    UPDATE runs AS r
    SET last_sequence = w.last_sequence, updated_at = now(), unreadable_since = NULL,
        status = CASE WHEN w.status > 0 THEN w.status ELSE r.status END,
        finished_at = CASE WHEN w.finished THEN now() END{handed_on}
    FROM wanted AS w JOIN owned USING (run_id)
    WHERE r.run_id = w.run_id
), written AS (
    INSERT INTO run_events (run_id, sequence, event_id, epoch, kind, schema_version, payload,
                            created_at, step_id)
    SELECT run_id, sequence, event_id, epoch, kind, schema_version, payload, created_at, step_id
    FROM unnest(
        $8::uuid[], $9::bigint[], $10::uuid[], $11::bigint[], $12::text[], $13::bytea[],
        $14::timestamptz[], $15::integer[], {step_ids}::text[]
    ) AS t (run_id, sequence, event_id, epoch, kind, payload, created_at, schema_version, step_id)
         JOIN owned USING (run_id)
    ORDER BY run_id, sequence
{more}{audit})
SELECT w.run_id, r.replica_id = $7 AND r.epoch = w.epoch AND r.finished_at IS NULL AS ours,
       r.last_sequence, o.run_id IS NOT NULL AS written
FROM wanted AS w LEFT JOIN runs AS r USING (run_id) LEFT JOIN owned AS o USING (run_id)
"""
_MORE = f"""), asked AS (
    INSERT INTO approvals (approval_id, run_id, user_id, status, payload, created_at, expire_at,
                           agent_name, tools, approvers)
    -- Behind the tools, in one text, stand those who may answer beside the user.
    SELECT t.approval_id, r.run_id, r.user_id, 1, t.payload, t.created_at, t.expire_at,
           t.agent_name, split_part(t.tools, chr(31), 1), (string_to_array(t.tools, chr(31)))[2:]
    FROM unnest($16::uuid[], $17::uuid[], $18::bytea[], $19::timestamptz[], $20::timestamptz[],
                $21::text[], $22::text[])
         AS t (run_id, approval_id, payload, created_at, expire_at, agent_name, tools)
    JOIN owned USING (run_id) JOIN runs AS r USING (run_id)
), resolved AS (
    -- A request ended as its run's log says. That differs from what is in the row if the run ended
    -- before it had taken note of a decision; the row is looked at again once it is locked, so also
    -- if that decision is being made.
    UPDATE approvals AS a
    SET status = t.status, responded_at = coalesce(a.responded_at, now())
    FROM unnest($26::uuid[], $27::uuid[], $28::smallint[]) AS t (run_id, approval_id, status)
         JOIN owned USING (run_id)
    WHERE a.approval_id = t.approval_id AND a.status <> t.status
), ended AS (
    SELECT run_id, status FROM wanted JOIN owned USING (run_id) WHERE finished
), closed AS (
    UPDATE approvals AS a
    SET responded_at = now(),
        status = CASE WHEN EXISTS (
            SELECT FROM ended AS e WHERE e.run_id = a.run_id AND e.status = 9
        ) THEN 6 ELSE 5 END
    -- An array, and no join nor the status, so that this goes by the index on run_id however many
    -- requests there are, also by a plan that was made when there were none.
    WHERE a.responded_at IS NULL AND a.approval_id <> ALL ($27) AND a.run_id = ANY (
        ARRAY (SELECT run_id FROM ended)
    )
), posted AS (
    -- The outbox: events for webhooks of the run's user, requests before the end. Found by
    -- the index on users, so that it costs those next to nothing that have no webhook.
    INSERT INTO webhook_deliveries (webhook_id, user_id, run_id, approval_id, event)
    SELECT h.webhook_id, h.user_id, e.run_id, e.approval_id, e.event
    FROM (
        SELECT t.run_id, t.approval_id, {WEBHOOK_EVENT_APPROVAL_REQUESTED}::smallint AS event
        FROM unnest($16::uuid[], $17::uuid[]) AS t (run_id, approval_id) JOIN owned USING (run_id)
        UNION ALL
        SELECT run_id, NULL, {WEBHOOK_EVENT_RUN_FINISHED}::smallint FROM ended
    ) AS e
    JOIN runs AS r ON r.run_id = e.run_id
    JOIN webhooks AS h ON h.user_id = r.user_id AND e.event = ANY (h.events)
                          AND h.disabled_at IS NULL
    ORDER BY e.run_id, e.event = {WEBHOOK_EVENT_RUN_FINISHED}, e.approval_id
), taken_inputs AS (
    DELETE FROM run_inputs AS i
    USING unnest($23::uuid[], $24::text[]) AS t (run_id, input_key) JOIN owned USING (run_id)
    WHERE i.run_id = t.run_id AND i.kind = 'approval' AND i.input_key = t.input_key
), settled_inputs AS (
    DELETE FROM run_inputs AS i USING ended AS e WHERE i.run_id = e.run_id
), forgotten_secrets AS (
    DELETE FROM run_secrets AS s USING ended AS e WHERE s.run_id = e.run_id
"""  # noqa: S608  our own text

# An agent may claim anything; a day is not closed by what one run says it took beyond its budget.
_BELIEVED = 4

_BESIDE = 15
"""How many arguments there are beside those of the log."""
_HANDED_ON = f""",
        replica_id = CASE WHEN r.run_id <> ALL ($25) THEN r.replica_id END,
        retry_at = CASE WHEN r.run_id <> ALL ($25) THEN r.retry_at ELSE 'infinity' END,
        tokens = coalesce((
            SELECT least(t.tokens, coalesce(nullif({_BELIEVED} * r.tokens, 0), t.tokens))
            FROM unnest($29::uuid[], $30::bigint[]) AS t (run_id, tokens)
            WHERE t.run_id = r.run_id
        ), r.tokens)"""  # noqa: S608  our own text
_AUDIT = """), audited AS (
    INSERT INTO audit_pending (actor, actor_kind, action, target, outcome, address, details)
    SELECT actor, actor_kind, action, target, outcome, address, details
    FROM unnest(${0}::uuid[], ${1}::text[], ${2}::text[], ${3}::text[], ${4}::text[], ${5}::text[],
                ${6}::text[], ${7}::jsonb[])
         AS t (run_id, actor, actor_kind, action, target, outcome, address, details)
         JOIN owned USING (run_id)
"""


def _append(*, special: bool, audited: bool) -> str:
    last = 16 + (_BESIDE if special else 0)
    return _APPEND.format(
        more=_MORE if special else "",
        handed_on=_HANDED_ON if special else "",
        step_ids=f"${last}",
        audit=_AUDIT.format(*range(last + 1, last + 9)) if audited else "",
    )


APPENDS: Final = {
    (special, audited): _append(special=special, audited=audited)
    for special in (False, True)
    for audited in (False, True)
}
"""By whether an event ends a run or an approval, and whether there are entries for the audit
trail. Nearly all events are of neither kind: $1 to $16. Approval requests come before the
steps of the events, $16 to $30, and entries behind them."""
_SPECIAL: Final = frozenset({"run_finished", "approval_requested", "approval_resolved"})
_STORED_IDS: Final = "SELECT event_id FROM run_events WHERE run_id = $1 AND sequence = ANY ($2)"


class Standing(NamedTuple):
    """A run as a statement that appends to it found it."""

    ours: bool
    """Owned by this replica at that epoch, and not ended."""
    last_sequence: int
    written: bool


async def insert_runs(
    session: Session, replica_id: UUID, runs: Sequence[NewRun]
) -> tuple[set[UUID], set[UUID]]:
    """Store new runs, each with its first event.

    Returns:
        Those that are stored, and those whose users have as many unfinished runs as they may have.
        What is in neither has a request id that is known already.
    """
    given = [
        (
            *(run.run_id, run.user_id, run.request_id, run.request_digest, run.conversation_id),
            *(run.question, uuid4(), run.event.SerializeToString(), time_of(run.event)),
            *(run.max_active, run.max_waiting),
            *((run.sealed.key_id, run.sealed.ciphertext) if run.sealed else (None, None)),
            held(run.event) if run.counts_for_day else None,
        )
        for run in runs
    ]
    entries = _audited((run.run_id, run.audit) for run in runs)
    columns = _columns(given, 14)
    rows = await session.fetch(ACCEPT, *columns, replica_id, SCHEMA_VERSION, *entries)
    stored = {row["run_id"] for row in rows if row["created"]}
    if len(stored) < len(runs):
        # Stored by an earlier try whose answer was lost, or refused for its request id.
        there = await session.fetch(
            "SELECT run_id FROM runs WHERE run_id = ANY ($1)", [run.run_id for run in runs]
        )
        stored |= {row["run_id"] for row in there}
    return stored, {row["run_id"] for row in rows if row["refused"]}


async def insert_events(
    session: Session, replica_id: UUID, runs: Sequence[Sequence[Append]]
) -> dict[UUID, Standing]:
    """Append to several runs in one statement.

    Args:
        session: The writer's.
        replica_id: Whose runs they must be.
        runs: For each run, what follows on one another in its log, of one epoch.

    Returns:
        What was found of each run; one that is not stored is not ours.
    """
    events = [(a.run_id, event) for appends in runs for a in appends for event in a.events]
    rows = [row for appends in runs for append in appends for row in append.rows]
    *columns, step_ids = _columns(rows, 8)
    special = any(_is_special(event) for _, event in events)
    audited = any(append.audit for appends in runs for append in appends)
    entries = _audited((a.run_id, a.audit) for appends in runs for a in appends)
    found = await session.fetch(
        APPENDS[special, audited],
        [appends[0].run_id for appends in runs],
        [appends[0].epoch for appends in runs],
        [appends[0].first_sequence - 1 for appends in runs],
        [appends[-1].last_sequence for appends in runs],
        [next((a.status for a in reversed(appends) if a.status), 0) for appends in runs],
        [any(append.finished for append in appends) for appends in runs],
        replica_id,
        *columns,
        [SCHEMA_VERSION] * len(rows),
        *(_beside_the_log(events) if special else ()),
        step_ids,
        *(entries if audited else ()),
    )
    return {run_id: Standing(*standing) for run_id, *standing in found}


async def are_stored(session: Session, append: Append) -> bool:
    """Whether these very events stand in their places of the log."""
    found = await session.fetch(_STORED_IDS, append.run_id, [row.sequence for row in append.rows])
    return {row["event_id"] for row in found} == {row.event_id for row in append.rows}


def _is_special(event: LogEvent) -> bool:
    """Whether the event concerns more than the log: an approval request, its end, a wait."""
    return event.WhichOneof("event") in _SPECIAL or waits(event)


def _beside_the_log(events: Iterable[tuple[UUID, LogEvent]]) -> list[Sequence[object]]:
    """The arguments $16 to $30: approvals and tokens of these events."""
    asked, taken, resolved, ends, waiting = [], [], [], [], []
    for run_id, event in events:
        if event.HasField("approval_requested"):
            approval = event.approval_requested.approval
            created, expire = approval.create_time, approval.expire_time
            times = (created.ToDatetime(tzinfo=UTC), expire.ToDatetime(tzinfo=UTC))
            tools = ",".join(sorted({action.tool for action in approval.actions}))
            tools = SEPARATOR.join([tools, *names_of(approval.approvers)])
            request = (UUID(approval.approval_id), approval.SerializeToString(), *times)
            asked.append((run_id, *request, approval.agent_name, tools))
        elif event.HasField("approval_resolved"):
            approval = event.approval_resolved.approval
            taken.append((run_id, approval.approval_id))
            resolved.append((run_id, UUID(approval.approval_id), approval.status))
        elif (tokens := settled(event)) is not None:
            ends.append((run_id, tokens))
        taken += [(run_id, each) for each in event.run_released.dropped_approval_ids]
        if waits(event):
            waiting.append(run_id)
    return [
        *_columns(asked, 7),
        *_columns(taken, 2),
        waiting,
        *_columns(resolved, 3),
        *_columns(ends, 2),
    ]


def _audited(
    runs: Iterable[tuple[UUID, Sequence[AuditEntry]]],
) -> list[Sequence[object]]:
    """Entries of runs as eight arrays."""
    entries = [(run_id, entry) for run_id, given in runs for entry in given]
    run_ids = [run_id for run_id, _ in entries]
    return [run_ids, *columns_of([entry for _, entry in entries])]


def _columns(rows: Sequence[Iterable[object]], count: int) -> list[Sequence[object]]:
    """The rows as arrays for ``unnest``; ``count`` of them, also if there are no rows."""
    return list(zip(*rows, strict=True)) or [()] * count
