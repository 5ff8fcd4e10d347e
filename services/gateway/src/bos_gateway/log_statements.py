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
                      status, last_sequence, replica_id, created_at, tokens, token_day)
    SELECT run_id, user_id, request_id, request_digest, conversation_id, question, status, 1, $11,
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

# The fence: a run is `owned` when it is ours at this epoch, has not ended, and its log ends just
# before the first new event. So nothing is ever written behind an end, twice, or over a gap.
#
# A row that somebody else has locked is passed over: it must not hold up the runs beside it. Such a
# run is ours and not written, which tells it from one that was lost.
#
# Requests to people ($16 and following) are written with their events, and so are their inputs
# taken away ($21, $22) with the events that these became. Runs in $23 wait for a person, and are
# nobody's from now on.
_APPEND = """
WITH wanted AS (
    SELECT * FROM unnest(
        $1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::smallint[], $6::boolean[]
    ) AS t (run_id, epoch, after_sequence, last_sequence, status, finished)
), seen AS (
    SELECT w.run_id, r.last_sequence,
           r.replica_id = $7 AND r.epoch = w.epoch AND r.finished_at IS NULL AS ours
    FROM wanted AS w JOIN runs AS r USING (run_id)
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
                            created_at)
    SELECT run_id, sequence, event_id, epoch, kind, schema_version, payload, created_at
    FROM unnest(
        $8::uuid[], $9::bigint[], $10::uuid[], $11::bigint[], $12::text[], $13::bytea[],
        $14::timestamptz[], $15::integer[]
    ) AS t (run_id, sequence, event_id, epoch, kind, payload, created_at, schema_version)
         JOIN owned USING (run_id)
    ORDER BY run_id, sequence
{more})
SELECT s.run_id, s.ours, s.last_sequence, o.run_id IS NOT NULL AS written
FROM seen AS s LEFT JOIN owned AS o USING (run_id)
"""
_MORE = """), asked AS (
    INSERT INTO approvals (approval_id, run_id, user_id, status, payload, created_at, expire_at,
                           agent_name, tools)
    SELECT t.approval_id, r.run_id, r.user_id, 1, t.payload, t.created_at, t.expire_at,
           t.agent_name, t.tools
    FROM unnest($16::uuid[], $17::uuid[], $18::bytea[], $19::timestamptz[], $20::timestamptz[],
                $24::text[], $25::text[])
         AS t (run_id, approval_id, payload, created_at, expire_at, agent_name, tools)
    JOIN owned USING (run_id) JOIN runs AS r USING (run_id)
), told AS (
    -- A request ended as its run's log says. That differs from what is in the row if the run ended
    -- before it had taken note of a decision; the row is looked at again once it is locked, so also
    -- if that decision is being made.
    UPDATE approvals AS a
    SET status = t.status, responded_at = coalesce(a.responded_at, now())
    FROM unnest($26::uuid[], $27::uuid[], $28::smallint[]) AS t (run_id, approval_id, status)
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
    WHERE a.responded_at IS NULL AND a.approval_id <> ALL ($27) AND a.run_id = ANY (ARRAY (
        SELECT run_id FROM wanted JOIN owned USING (run_id) WHERE finished
    ))
), taken_inputs AS (
    DELETE FROM run_inputs AS i
    USING unnest($21::uuid[], $22::text[]) AS t (run_id, input_key) JOIN owned USING (run_id)
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

# An agent may claim anything; a day is not closed by what one run says it took beyond its budget.
_BELIEVED = 4

APPEND = _APPEND.format(more="", handed_on="")
"""For events that neither end a run nor concern a person, as nearly all are: $1 to $15."""
APPEND_ANY = _APPEND.format(
    more=_MORE,
    handed_on=f""",
        replica_id = CASE WHEN r.run_id <> ALL ($23) THEN r.replica_id END,
        retry_at = CASE WHEN r.run_id <> ALL ($23) THEN r.retry_at ELSE 'infinity' END,
        tokens = coalesce((
            SELECT least(t.tokens, {_BELIEVED} * r.tokens)
            FROM unnest($29::uuid[], $30::bigint[]) AS t (run_id, tokens)
            WHERE t.run_id = r.run_id
        ), r.tokens)""",  # noqa: S608  our own text
)
"""For all others: $1 to $30."""

STORED_IDS = "SELECT event_id FROM run_events WHERE run_id = $1 AND sequence = ANY ($2)"
"""Which events stand at these places of a log."""
