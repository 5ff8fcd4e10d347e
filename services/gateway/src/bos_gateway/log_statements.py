"""The statements of the log writer. Each is one round trip without BEGIN and COMMIT."""

from __future__ import annotations

# `counted` holds a lock per user until the commit, taken in one order by everybody, and only then
# counts: however many replicas accept at once, nobody gets more runs than the bound. A request that
# is already known passes, to be found in its place.
ACCEPT = """
WITH new AS (
    SELECT *, EXISTS (
        SELECT FROM runs AS r WHERE r.user_id = t.user_id AND r.request_id = t.request_id
    ) AS known
    FROM unnest(
        $1::uuid[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::text[], $7::smallint[],
        $8::uuid[], $9::bytea[], $10::timestamptz[], $13::bigint[], $14::bigint[],
        $15::text[], $16::bytea[], $17::bigint[]
    ) AS t (run_id, user_id, request_id, request_digest, conversation_id, question, status,
            event_id, payload, created_at, max_active, max_waiting, secrets_key_id, secrets,
            day_tokens)
), bounded AS (
    SELECT DISTINCT user_id, hashtext(user_id) AS lock_key
    FROM new WHERE (max_active > 0 OR max_waiting > 0) AND NOT known
    ORDER BY lock_key
), counted AS MATERIALIZED (
    SELECT b.user_id, c.active, c.waiting
    FROM bounded AS b CROSS JOIN LATERAL unfinished_runs(b.user_id) AS c
), placed AS (
    SELECT run_id, user_id,
           dense_rank() OVER (PARTITION BY user_id, known ORDER BY request_id) AS place
    FROM new
), admitted AS (
    SELECT n.*
    FROM new AS n JOIN placed AS p USING (run_id) LEFT JOIN counted AS c ON c.user_id = n.user_id
    WHERE n.known OR (n.max_active = 0 OR c.active + p.place <= n.max_active)
                     AND (n.max_waiting = 0 OR c.waiting < n.max_waiting)
), created AS (
    INSERT INTO runs (run_id, user_id, request_id, request_digest, conversation_id, question,
                      status, replica_id, created_at, tokens, token_day)
    SELECT run_id, user_id, request_id, request_digest, conversation_id, question, status, $11,
           created_at, day_tokens,
           CASE WHEN day_tokens IS NOT NULL THEN (now() AT TIME ZONE 'UTC')::date END
    FROM admitted
    ON CONFLICT DO NOTHING
    RETURNING run_id
), first AS (
    INSERT INTO run_events (run_id, sequence, event_id, epoch, kind, schema_version, payload,
                            created_at)
    SELECT run_id, 1, event_id, 1, 'run_accepted', $12, payload, created_at
    FROM new JOIN created USING (run_id)
), sealed AS (
    INSERT INTO run_secrets (run_id, key_id, ciphertext)
    SELECT run_id, secrets_key_id, secrets
    FROM new JOIN created USING (run_id)
    WHERE secrets IS NOT NULL
)
SELECT n.run_id, c.run_id IS NOT NULL AS created, a.run_id IS NULL AS refused
FROM new AS n LEFT JOIN created AS c USING (run_id) LEFT JOIN admitted AS a USING (run_id)
"""

# set_config is in force for this statement's own commit only because `owned` refers to it.
#
# A run is `owned` when it is ours at this epoch, the event before the first new one is there (an
# asynchronous commit can be lost with PostgreSQL), and no other event stands where new ones go.
#
# Events written again ($16) may be of an earlier epoch of ours: taking a run anew raises its epoch,
# and must not cost it the events that PostgreSQL lost before that.
#
# Requests to people ($17 and following) are written with their events, and so are their inputs
# taken away ($22, $23) with the events that these became. Runs in $24 are nobody's from now on;
# writing that again, when the answer to the first try was lost, finds our event and no owner.
#
# A run's row changes only with its events, in the same commit. Where all of them are in place their
# change is as well, and others may have changed the row since.
#
# `wal` says how far the write-ahead log reaches, and how far it is on disk: every commit that this
# session made before lies below the first.
_APPEND = """
WITH mode AS MATERIALIZED (
    SELECT set_config('synchronous_commit', $1, true)
), batch AS (
    SELECT * FROM unnest(
        $2::uuid[], $3::bigint[], $4::uuid[], $5::bigint[], $6::text[], $7::bytea[],
        $8::timestamptz[], $14::integer[]
    ) AS t (run_id, sequence, event_id, epoch, kind, payload, created_at, schema_version)
), wanted AS (
    SELECT * FROM unnest(
        $9::uuid[], $10::bigint[], $11::smallint[], $12::boolean[], $15::bigint[]
    ) AS t (run_id, epoch, status, finished, first_sequence)
), wal AS MATERIALIZED (
    SELECT (pg_current_wal_insert_lsn() - '0/0')::bigint AS inserted,
           (pg_current_wal_flush_lsn() - '0/0')::bigint AS flushed
), owned AS (
    SELECT r.run_id
    FROM mode, runs AS r JOIN wanted AS w USING (run_id)
    WHERE {owner}
      AND (r.epoch = w.epoch OR $16 AND r.epoch > w.epoch)
      AND EXISTS (
          SELECT FROM run_events AS e
          WHERE e.run_id = w.run_id AND e.sequence = w.first_sequence - 1
      )
      AND NOT EXISTS (
          SELECT FROM batch AS b JOIN run_events AS e USING (run_id, sequence)
          WHERE b.run_id = w.run_id AND e.event_id <> b.event_id
      )
    ORDER BY r.run_id
    FOR NO KEY UPDATE OF r
), written AS (
    INSERT INTO run_events (run_id, sequence, event_id, epoch, kind, schema_version, payload,
                            created_at)
    SELECT run_id, sequence, event_id, epoch, kind, schema_version, payload, created_at
    FROM batch JOIN owned USING (run_id)
    ORDER BY run_id, sequence
    ON CONFLICT (run_id, sequence) DO NOTHING
    RETURNING run_id
{more}), touched AS (
    UPDATE runs AS r
    SET status = w.status, updated_at = now(),
        finished_at = CASE WHEN w.finished THEN now() END{handed_on}
    FROM wanted AS w JOIN owned USING (run_id)
    WHERE r.run_id = w.run_id AND w.status > 0
          AND EXISTS (SELECT FROM written AS e WHERE e.run_id = w.run_id)
)
SELECT o.run_id, count(w.run_id)::int AS written, wal.inserted, wal.flushed
FROM wal, owned AS o LEFT JOIN written AS w USING (run_id)
GROUP BY o.run_id, wal.inserted, wal.flushed
"""
_MORE = """), asked AS (
    INSERT INTO approvals (approval_id, run_id, user_id, status, payload, created_at, expire_at,
                           agent_name, tools)
    SELECT t.approval_id, r.run_id, r.user_id, 1, t.payload, t.created_at, t.expire_at,
           t.agent_name, t.tools
    FROM unnest($17::uuid[], $18::uuid[], $19::bytea[], $20::timestamptz[], $21::timestamptz[],
                $25::text[], $26::text[])
         AS t (run_id, approval_id, payload, created_at, expire_at, agent_name, tools)
    JOIN owned USING (run_id) JOIN runs AS r USING (run_id)
    ON CONFLICT DO NOTHING
), told AS (
    -- A request ended as its run's log says. That differs from what is in the row if the run ended
    -- before it had taken note of a decision; the row is looked at again once it is locked, so also
    -- if that decision is being made.
    UPDATE approvals AS a
    SET status = t.status, responded_at = coalesce(a.responded_at, now())
    FROM unnest($27::uuid[], $28::uuid[], $29::smallint[]) AS t (run_id, approval_id, status)
         JOIN owned USING (run_id)
    WHERE a.approval_id = t.approval_id AND a.status <> t.status
), closed AS (
    UPDATE approvals AS a
    SET responded_at = now(),
        status = CASE WHEN EXISTS (
            SELECT FROM wanted AS w WHERE w.run_id = a.run_id AND w.status = 9
        ) THEN 6 ELSE 5 END
    -- An array, and no join nor the status, so that this goes by the index on run_id however many
    -- requests there are, also by a plan that was made when there were none.
    WHERE a.responded_at IS NULL AND a.approval_id <> ALL ($28) AND a.run_id = ANY (ARRAY (
        SELECT run_id FROM wanted JOIN owned USING (run_id) WHERE finished
    ))
), taken_inputs AS (
    DELETE FROM run_inputs AS i
    USING unnest($22::uuid[], $23::text[]) AS t (run_id, input_key) JOIN owned USING (run_id)
    WHERE i.run_id = t.run_id AND i.kind = 'approval' AND i.input_key = t.input_key
), settled_inputs AS (
    DELETE FROM run_inputs AS i
    USING wanted AS w JOIN owned USING (run_id)
    WHERE i.run_id = w.run_id AND w.finished
), forgotten_secrets AS (
    DELETE FROM run_secrets AS s
    USING wanted AS w JOIN owned USING (run_id)
    WHERE s.run_id = w.run_id AND w.finished
"""

APPEND = _APPEND.format(owner="r.replica_id = $13", more="", handed_on="")
"""For events that neither end a run nor ask a person, as nearly all are: $1 to $16."""
_ANY_OWNER = """(r.replica_id = $13
           OR r.replica_id IS NULL AND r.run_id = ANY ($24) AND EXISTS (
               SELECT FROM batch AS b JOIN run_events AS e USING (run_id, sequence)
               WHERE b.run_id = r.run_id AND e.event_id = b.event_id
           ))"""
_HANDED_ON = """,
        replica_id = CASE WHEN r.run_id <> ALL ($24) THEN r.replica_id END,
        tokens = coalesce((
            SELECT t.tokens FROM unnest($30::uuid[], $31::bigint[]) AS t (run_id, tokens)
            WHERE t.run_id = r.run_id
        ), r.tokens)"""
APPEND_ANY = _APPEND.format(owner=_ANY_OWNER, more=_MORE, handed_on=_HANDED_ON)
"""For all others: $1 to $31."""

STORED_IDS = """
SELECT e.run_id, e.sequence, e.event_id
FROM run_events AS e
JOIN unnest($1::uuid[], $2::bigint[]) AS t (run_id, sequence) USING (run_id, sequence)
"""
