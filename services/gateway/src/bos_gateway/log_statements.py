"""The statements of the log writer. Each is one round trip without BEGIN and COMMIT."""

from __future__ import annotations

# What a statement that accepts runs is given, and what it stores of the runs that are `admitted`.
_NEW = """new AS (
    SELECT *, EXISTS (
        SELECT FROM runs AS r WHERE r.user_id = t.user_id AND r.request_id = t.request_id
    ) AS known
    FROM unnest(
        $1::uuid[], $2::text[], $3::text[], $4::bytea[], $5::text[], $6::text[], $7::smallint[],
        $8::uuid[], $9::bytea[], $10::timestamptz[], $13::bigint[], $14::bigint[],
        $15::text[], $16::bytea[]{values}
    ) AS t (run_id, user_id, request_id, request_digest, conversation_id, question, status,
            event_id, payload, created_at, max_active, max_waiting, secrets_key_id, secrets{names})
)"""
_STORED = """created AS (
    INSERT INTO runs (run_id, user_id, request_id, request_digest, conversation_id, question,
                      status, replica_id, created_at{columns})
    SELECT run_id, user_id, request_id, request_digest, conversation_id, question, status, $11,
           created_at{values}
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
)"""
_FITS = """(n.max_active = 0 OR c.active + p.place <= n.max_active)
           AND (n.max_waiting = 0 OR c.waiting < n.max_waiting)"""

# `counted` holds a lock per user until the commit, taken in one order by everybody, and only then
# counts: however many replicas accept at once, nobody gets more runs than the bound. A request that
# is already known passes, to be found in its place.
_NEW_PLAIN, _STORED_PLAIN = _NEW.format(values="", names=""), _STORED.format(columns="", values="")
ACCEPT = f"""
WITH {_NEW_PLAIN}, bounded AS (
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
    WHERE n.known OR {_FITS}
), {_STORED_PLAIN}
SELECT n.run_id, c.run_id IS NOT NULL AS created, a.run_id IS NULL AS refused
FROM new AS n LEFT JOIN created AS c USING (run_id) LEFT JOIN admitted AS a USING (run_id)
"""  # noqa: S608  our own text
"""For runs that no bound of a day holds for: $1 to $16."""

# The bounds of a day ($18 for the run's user, $19 for everybody) are exact for the same reason: who
# accepts holds the locks (that of everybody is the empty user's) from before it reads the sums
# until its own addition to them is committed. Whoever ends a run changes the sums without these
# locks, nearly always downwards.
#
# Of the runs in one statement, those before a run in order count for it, also if they are refused
# themselves: who is refused for tokens is told what there really is, and comes again.
#
# Rows of sums are locked last of all, and in their order, here as where runs end.
_NEW_BY_DAY = _NEW.format(
    values=", $17::bigint[], $18::bigint[], $19::bigint[]",
    names=", tokens, max_user_day, max_day",
)
_STORED_BY_DAY = _STORED.format(
    columns=", token_day, day_tokens",
    values=""",
           CASE WHEN max_user_day > 0 OR max_day > 0 THEN (SELECT day FROM today) END,
           CASE WHEN max_user_day > 0 OR max_day > 0 THEN tokens END""",
)
ACCEPT_BY_DAY = f"""
WITH today AS MATERIALIZED (
    SELECT (now() AT TIME ZONE 'UTC')::date AS day
), {_NEW_BY_DAY}, bounded AS (
    SELECT DISTINCT user_id, hashtext(user_id) AS lock_key
    FROM (
        SELECT user_id FROM new
        WHERE (max_active > 0 OR max_waiting > 0 OR max_user_day > 0) AND NOT known
        UNION ALL
        SELECT '' FROM new WHERE max_day > 0 AND NOT known
    ) AS t
    ORDER BY lock_key
), counted AS MATERIALIZED (
    SELECT b.user_id, c.active, c.waiting, c.tokens
    FROM bounded AS b CROSS JOIN today CROSS JOIN LATERAL admission_of(b.user_id, today.day) AS c
), placed AS (
    SELECT run_id, user_id,
           dense_rank() OVER (PARTITION BY user_id, known ORDER BY request_id) AS place,
           sum(tokens) OVER (PARTITION BY user_id, known ORDER BY request_id, run_id) AS of_user,
           sum(tokens) OVER (PARTITION BY known ORDER BY user_id, request_id, run_id) AS of_all
    FROM new
), judged AS (
    SELECT n.run_id, {_FITS} AS fits,
           (n.max_user_day = 0 OR c.tokens + p.of_user <= n.max_user_day)
           AND (n.max_day = 0 OR e.tokens + p.of_all <= n.max_day) AS affordable,
           CASE WHEN n.max_user_day > 0 THEN n.max_user_day - c.tokens END AS user_left,
           CASE WHEN n.max_day > 0 THEN n.max_day - e.tokens END AS day_left
    FROM new AS n JOIN placed AS p USING (run_id)
         LEFT JOIN counted AS c ON c.user_id = n.user_id
         LEFT JOIN counted AS e ON e.user_id = ''
), admitted AS (
    SELECT n.* FROM new AS n JOIN judged AS j USING (run_id)
    WHERE n.known OR j.fits AND j.affordable
), {_STORED_BY_DAY}, charged AS (
    INSERT INTO token_days AS d (day, user_id, tokens)
    SELECT today.day, who.user_id, sum(n.tokens)
    FROM today CROSS JOIN new AS n JOIN created USING (run_id)
         CROSS JOIN LATERAL (VALUES (n.user_id), ('')) AS who (user_id)
    WHERE n.max_user_day > 0 OR n.max_day > 0
    GROUP BY today.day, who.user_id
    ORDER BY today.day, who.user_id
    ON CONFLICT (day, user_id) DO UPDATE SET tokens = d.tokens + excluded.tokens
)
SELECT n.run_id, c.run_id IS NOT NULL AS created, a.run_id IS NULL AS refused,
       j.fits, j.user_left, j.day_left,
       extract(epoch FROM ((SELECT day FROM today) + 1)::timestamp AT TIME ZONE 'UTC' - now())
           ::float8 AS resets_in_s
FROM new AS n JOIN judged AS j USING (run_id)
     LEFT JOIN created AS c USING (run_id) LEFT JOIN admitted AS a USING (run_id)
"""  # noqa: S608  our own text
"""The same where a day's tokens are bounded: $1 to $19."""

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
    SELECT r.run_id{day}
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

# What a run counted takes the place of what it held of its day, with the commit that ends it: once,
# as a repetition writes no event.
_SETTLED = """), settled AS (
    INSERT INTO token_days AS d (day, user_id, tokens)
    SELECT o.token_day, who.user_id, sum(t.tokens - o.day_tokens)
    FROM unnest($30::uuid[], $31::bigint[]) AS t (run_id, tokens) JOIN owned AS o USING (run_id)
         CROSS JOIN LATERAL (VALUES (o.user_id), ('')) AS who (user_id)
    WHERE o.token_day IS NOT NULL AND EXISTS (SELECT FROM written AS e WHERE e.run_id = o.run_id)
    GROUP BY o.token_day, who.user_id
    ORDER BY o.token_day, who.user_id
    ON CONFLICT (day, user_id) DO UPDATE SET tokens = d.tokens + excluded.tokens
"""

APPEND = _APPEND.format(owner="r.replica_id = $13", day="", more="", handed_on="")
"""For events that neither end a run nor ask a person, as nearly all are: $1 to $16."""
_ANY_OWNER = """(r.replica_id = $13
           OR r.replica_id IS NULL AND r.run_id = ANY ($24) AND EXISTS (
               SELECT FROM batch AS b JOIN run_events AS e USING (run_id, sequence)
               WHERE b.run_id = r.run_id AND e.event_id = b.event_id
           ))"""
_HANDED_ON = """,
        replica_id = CASE WHEN r.run_id <> ALL ($24) THEN r.replica_id END,
        retry_at = CASE WHEN r.run_id <> ALL ($24) THEN r.retry_at ELSE 'infinity' END"""
APPEND_ANY = _APPEND.format(owner=_ANY_OWNER, day="", more=_MORE, handed_on=_HANDED_ON)
"""For all others: $1 to $29."""
APPEND_SETTLING = _APPEND.format(
    owner=_ANY_OWNER,
    day=", r.user_id, r.token_day, r.day_tokens",
    more=_MORE + _SETTLED,
    handed_on=f"""{_HANDED_ON},
        day_tokens = CASE WHEN r.token_day IS NOT NULL THEN coalesce(
            (SELECT t.tokens FROM unnest($30::uuid[], $31::bigint[]) AS t (run_id, tokens)
             WHERE t.run_id = r.run_id), r.day_tokens) END""",  # noqa: S608  our own text
)
"""For those that end runs with a budget: $1 to $31."""

STORED_IDS = """
SELECT e.run_id, e.sequence, e.event_id
FROM run_events AS e
JOIN unnest($1::uuid[], $2::bigint[]) AS t (run_id, sequence) USING (run_id, sequence)
"""
