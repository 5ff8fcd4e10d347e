"""A run log with a past: any number of finished runs of one account, and runs that wait for people.

Made by SQL from one real run, so that everything stored can be read. Columns that the schema has
besides are left at their defaults or set as a run's end leaves them.
"""

from typing import Any
from uuid import UUID

from bos_gateway.run_log.session import SCHEMA
from bos_postgres import connect

ACCOUNT = "local"
CONVERSATION = "the rare one"
RARE_RUNS = 50
"""Runs of that conversation, and runs with a rare status, however many there are of others."""
WHOLE_LOGS = 50
"""Finished runs whose logs are whole; of the others the log has its two ends alone."""
_BATCH = 20_000
_PAST_S = 6 * 86_400
_PAUSE_S = 300  # between the past and now, so that none of it looks as if it were under way

# Version 7 by the run's time, as new_run_id() makes them; the rest is drawn from seed and number.
_RUN_IDS = """
SELECT g, at, (lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') || '7'
    || substr(md5($3::text || g), 1, 3) || '8' || substr(md5($3::text || g), 4, 15))::uuid AS run_id
FROM (SELECT g, now() - make_interval(secs => {pause}
                 + {past} * (1 - g::float8 / greatest($4::int, 1))) AS at
      FROM generate_series($1::int, $2::int) AS g) AS numbers
"""
_ENDED = {"compacted": "'{}'", "settled": "true", "last_sequence": "(SELECT max(n) FROM ends)"}
_WAITS = {"retry_at": "'infinity'", "last_sequence": "1"}
_EVENT = "run_id, sequence, event_id, epoch, kind, schema_version, payload, created_at"


async def fill(dsn: str, template: str, finished: int, waiting: int, *, seed: int = 1) -> None:
    """Give the database a past.

    Args:
        dsn: A migrated database with one finished run.
        template: That run.
        finished: How many finished runs of ``ACCOUNT`` to add.
        waiting: How many runs of others that wait for an approval to add.
        seed: Makes the run ids.
    """
    async with connect(dsn, schema=SCHEMA) as connection:
        columns = {
            row["column_name"]
            for row in await connection.fetch(
                "SELECT column_name FROM information_schema.columns "
                "WHERE table_schema = $1 AND table_name = 'runs'",
                SCHEMA,
            )
        }
        await connection.execute("SET synchronous_commit = off")
        for first in range(1, finished + 1, _BATCH):
            last = min(first + _BATCH - 1, finished)
            await connection.execute(
                _finished(columns), first, last, str(seed), finished, template, timeout=600
            )
        for first in range(1, waiting + 1, _BATCH):
            last = min(first + _BATCH - 1, waiting)
            await connection.execute(
                _waiting(columns), first, last, str(seed + 1), waiting, template, timeout=600
            )
        await connection.execute("VACUUM (FREEZE, ANALYZE)", timeout=600)


async def whole_runs(dsn: str) -> list[UUID]:
    """Finished runs whose logs are whole, the oldest first."""
    async with connect(dsn, schema=SCHEMA) as connection:
        rows = await connection.fetch(
            "SELECT run_id FROM runs WHERE user_id = $1 AND question LIKE 'whole %' "
            "ORDER BY created_at",
            ACCOUNT,
        )
    return [row["run_id"] for row in rows]


def _ids() -> str:
    return _RUN_IDS.format(pause=_PAUSE_S, past=_PAST_S)


def _besides(columns: set[str], values: dict[str, str]) -> tuple[str, str]:
    """Names and values of those columns that there are, ready to be appended to a list."""
    there = {name: value for name, value in values.items() if name in columns}
    return "".join(f", {n}" for n in there), "".join(f", {v}" for v in there.values())


def _finished(columns: set[str]) -> str:
    """Every so many of them are whole, of the rare conversation, or of the rare status."""
    names, values = _besides(columns, _ENDED)
    every = f"greatest($4::int / {RARE_RUNS}, 1)"
    return f"""
    WITH ids AS ({_ids()}),
    ends AS (SELECT row_number() OVER (ORDER BY sequence) AS n, * FROM run_events
             WHERE run_id = $5::text::uuid AND kind IN ('run_accepted', 'run_finished')),
    new AS (
        INSERT INTO runs (run_id, user_id, request_id, request_digest, conversation_id, question,
                          status, created_at, updated_at, finished_at, remembered_at{names})
        SELECT run_id, '{ACCOUNT}', 'past ' || g, '\\x00',
               CASE WHEN g % {every} = 1 % {every} THEN '{CONVERSATION}' ELSE 'c' || g / 10 END,
               CASE WHEN g % {every} = 0 THEN 'whole ' ELSE 'past ' END || g,
               CASE WHEN g % {every} = 2 % {every} THEN 9 ELSE 6 END,
               at, at, at, at{values}
        FROM ids RETURNING run_id, created_at, question)
    INSERT INTO run_events ({_EVENT})
    SELECT new.run_id, ends.n, gen_random_uuid(), 1, kind, schema_version, payload, new.created_at
    FROM new CROSS JOIN ends WHERE new.question LIKE 'past %'
    UNION ALL
    SELECT new.run_id, e.sequence, gen_random_uuid(), 1, kind, schema_version, payload,
           new.created_at
    FROM new CROSS JOIN run_events AS e
    WHERE e.run_id = $5::text::uuid AND new.question LIKE 'whole %'
    """


def _waiting(columns: set[str]) -> str:
    """Of five thousand people; whose approvals expire long after the bench."""
    names, values = _besides(columns, _WAITS)
    return f"""
    WITH ids AS ({_ids()}),
    new AS (
        INSERT INTO runs (run_id, user_id, request_id, request_digest, question, status,
                          replica_id, created_at, updated_at{names})
        SELECT run_id, 'person ' || g % 5000, 'waits ' || g, '\\x00', 'waits ' || g, 4, NULL, at,
               at{values}
        FROM ids RETURNING run_id, user_id, created_at),
    asked AS (
        INSERT INTO approvals (approval_id, run_id, user_id, status, payload, agent_name, tools,
                               created_at, expire_at)
        SELECT gen_random_uuid(), run_id, user_id, 1, '', 'deploy', 'trigger_deployment',
               created_at, now() + interval '1 day' FROM new)
    INSERT INTO run_events ({_EVENT})
    SELECT new.run_id, 1, gen_random_uuid(), 1, e.kind, schema_version, payload, new.created_at
    FROM new CROSS JOIN run_events AS e
    WHERE e.run_id = $5::text::uuid AND e.kind = 'run_accepted'
    """


async def value(dsn: str, sql: str, *arguments: object) -> Any:
    """One value, without any connection left open."""
    async with connect(dsn, schema=SCHEMA) as connection:
        return await connection.fetchval(sql, *arguments)
