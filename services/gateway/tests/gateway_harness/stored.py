"""What gateways have stored, read and awaited beside them."""

import asyncio
from collections import Counter
from typing import Any

import asyncpg

from bos.runlog.v1 import LogEvent
from bos_gateway.run_log.session import SCHEMA
from bos_postgres import connect

WAITS_FOR_A_LOCK = """
count(*) > 0 FROM pg_stat_activity
WHERE wait_event_type = 'Lock' AND datname = current_database()
"""
"""A session of this database waits for a lock."""


async def fetch(dsn: str, sql: str, *arguments: object) -> list[asyncpg.Record]:
    async with connect(dsn, schema=SCHEMA) as connection:
        rows: list[asyncpg.Record] = await connection.fetch(sql, *arguments)
        return rows


async def fetchval(dsn: str, sql: str, *arguments: object) -> Any:
    (row, *_) = await fetch(dsn, sql, *arguments)
    return row[0]


async def until(dsn: str, condition: str, *arguments: object, within_s: float = 60) -> None:
    async with asyncio.timeout(within_s), connect(dsn, schema=SCHEMA) as connection:
        while not await connection.fetchval(f"SELECT {condition}", *arguments):
            await connection.execute("SELECT pg_sleep(0.02)")


async def log_of(dsn: str, runs: str = "true", *arguments: object) -> list[LogEvent]:
    """The events of the runs for which this condition is true; each run's are without a gap."""
    rows = await fetch(
        dsn,
        "SELECT run_id, sequence, payload FROM run_events JOIN runs USING (run_id) "
        f"WHERE {runs} ORDER BY run_id, sequence",
        *arguments,
    )
    expected: Counter[Any] = Counter()
    for row in rows:
        expected[row["run_id"]] += 1
        assert row["sequence"] == expected[row["run_id"]], "a gap"
    return [LogEvent.FromString(row["payload"]) for row in rows]


def adoptions(log: list[LogEvent]) -> Counter[str]:
    return Counter(event.run_adopted.reason for event in log if event.HasField("run_adopted"))


async def ended_once(dsn: str, question: str) -> LogEvent:
    """The one end of the run with this question: its last event, and said so in its row."""
    log = await log_of(dsn, "question = $1", question)
    (end,) = [event for event in log if event.HasField("run_finished")]
    assert end is log[-1]
    row = "SELECT status FROM runs WHERE question = $1 AND finished_at IS NOT NULL"
    assert await fetchval(dsn, row, question) == end.run_finished.response.status
    return end
