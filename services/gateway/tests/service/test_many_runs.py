"""Reading for an account with very many runs: every query uses an index."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

import asyncpg
import pytest

from bos.gateway.v1 import (
    APPROVAL_STATUS_APPROVED,
    APPROVAL_STATUS_DENIED,
    APPROVAL_STATUS_PENDING,
    RUN_STATUS_EXECUTING,
    RUN_STATUS_FAILED,
    RUN_STATUS_SUCCEEDED,
    RUN_STATUS_WAITING_FOR_APPROVAL,
    ListApprovalsRequest,
    ListRunsRequest,
)
from bos_gateway.permits.approvers import Answerer
from bos_gateway.run_log import approvals as approvals_module
from bos_gateway.run_log import reader as runs_module
from bos_gateway.run_log.approvals import Approvals
from bos_gateway.run_log.reader import READER, Runs
from bos_gateway.run_log.session import SCHEMA
from bos_gateway.service import migrate_store
from bos_postgres import acquire, connect, fetch, open_database

RUNS, WAITING, FAILED = 20_000, 300, 7
ONE_RUN, A_PAGE = 30, 400
"""Most blocks that may be read."""
_FILL = """
INSERT INTO runs (run_id, user_id, request_id, request_digest, conversation_id, question, status,
                  last_sequence, created_at, finished_at)
SELECT gen_random_uuid(), 'ada', n::text, '', CASE WHEN n % 1000 = 0 THEN 'talk' ELSE '' END,
       'why?', CASE WHEN n <= $3 THEN 8 WHEN n > $1 - $2 THEN 4 ELSE 6 END, 2,
       now() - make_interval(secs => $1 - n), CASE WHEN n <= $1 - $2 THEN now() END
FROM generate_series(1, $1::int) AS n
"""
_EVENTS = """
INSERT INTO run_events
    (run_id, sequence, event_id, epoch, kind, schema_version, payload, created_at)
SELECT run_id, s, gen_random_uuid(), 1, 'run_accepted', 1, '', now()
FROM runs CROSS JOIN generate_series(1, 2) AS s
"""
_APPROVALS = """
INSERT INTO approvals (approval_id, run_id, user_id, status, payload, agent_name, tools,
                       created_at, expire_at)
SELECT gen_random_uuid(), run_id, 'ada', CASE WHEN status = 8 THEN 1 ELSE 2 END, '', 'agent',
       'tool', created_at, now()
FROM runs
"""

_ANSWERS = """
INSERT INTO answers (run_id, epoch, attempt, sequence, text, characters)
SELECT run_id, 1, 1, 1, 'so far', 6 FROM runs WHERE finished_at IS NULL
"""


async def test_every_statement_of_a_reader_reads_little(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, tuple[object, ...]]] = []

    async def noted(
        pool: asyncpg.Pool[asyncpg.Record], sql: str, *arguments: object
    ) -> Sequence[asyncpg.Record]:
        asked.append((sql, arguments))
        return await fetch(pool, sql, *arguments)

    monkeypatch.setattr(runs_module, "fetch", noted)
    monkeypatch.setattr(approvals_module, "fetch", noted)
    await migrate_store(postgres_dsn)
    async with connect(postgres_dsn, schema=SCHEMA) as session:
        await session.execute(_FILL, RUNS, WAITING, FAILED)
        await session.execute(_EVENTS)
        await session.execute(_APPROVALS)
        await session.execute(_ANSWERS)
        await session.execute("VACUUM ANALYZE")
        old = await session.fetchval("SELECT run_id FROM runs WHERE request_id = '10000'")
    async with (
        open_database(postgres_dsn, schema=SCHEMA, max_size=1) as pool,
        open_database(postgres_dsn, schema=SCHEMA, max_size=1, role=READER) as readers,
    ):
        runs, approvals = Runs(pool, readers), Approvals(pool, readers)
        for wanted, expected in (
            (ListRunsRequest(), 50),
            (ListRunsRequest(status=RUN_STATUS_FAILED), FAILED),
            (ListRunsRequest(status=RUN_STATUS_SUCCEEDED), 50),
            (ListRunsRequest(status=RUN_STATUS_WAITING_FOR_APPROVAL), 50),
            (ListRunsRequest(status=RUN_STATUS_EXECUTING), 0),
            (ListRunsRequest(conversation_id="talk"), RUNS // 1000),
            (ListRunsRequest(conversation_id="none"), 0),
            (ListRunsRequest(conversation_id="talk", status=RUN_STATUS_SUCCEEDED), 19),
            (ListRunsRequest(conversation_id="talk", status=RUN_STATUS_FAILED), 0),
        ):
            found, token = await runs.list(wanted, "ada")
            assert len(found) == expected, wanted
            assert bool(token) is (expected == 50)
            if token:
                wanted.page_token = token
                assert not {r.run_id for r in found} & {
                    r.run_id for r in (await runs.list(wanted, "ada"))[0]
                }
        for status, expected in (
            (None, 50),
            (APPROVAL_STATUS_PENDING, FAILED),
            (APPROVAL_STATUS_APPROVED, 50),
            (APPROVAL_STATUS_DENIED, 0),
        ):
            requests, _ = await approvals.list(ListApprovalsRequest(status=status), Answerer("ada"))
            assert len(requests) == expected
        assert await runs.find(str(old), "ada") == old
        assert await runs.find_request("ada", "10000") is not None
        hers = runs.of("ada")
        assert len(await hers.events(old)) == len(await hers.log(old)) == 2
        assert await hers.last_sequence(old) == 2
        look = await hers.look(old, 1)
        assert (len(look.events), look.finished) == (1, True)
        assert await hers.first_event(old)
        async with acquire(readers) as connection:
            for sql, arguments in asked:
                of_one = "LIMIT $5" not in sql
                await check(connection, sql, arguments, ONE_RUN if of_one else A_PAGE)


async def check(connection: Any, sql: str, arguments: Sequence[object], most: int) -> None:
    """It reads few blocks, skips few rows and, for every request, scans no table."""
    explained = await connection.fetchval(
        f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", *arguments
    )
    plan = json.loads(explained)[0]["Plan"]
    assert plan["Shared Hit Blocks"] + plan["Shared Read Blocks"] <= most, (sql, explained)
    passed_by = sum(map(int, re.findall(r'"Rows Removed by Filter": (\d+)', explained)))
    assert passed_by <= WAITING, explained
    await connection.execute(f"SET plan_cache_mode = force_generic_plan; PREPARE asked AS {sql}")
    values = ", ".join(["NULL"] * len(arguments))
    generic = await connection.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE asked ({values})")
    assert "Seq Scan" not in explained + generic, explained + generic
    await connection.execute("DEALLOCATE asked; RESET plan_cache_mode")
