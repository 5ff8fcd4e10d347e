"""Looking for work and reading for an account with very many runs cost little."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

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
from bos_gateway.ownership import owners
from bos_gateway.permits.approvers import Answerer
from bos_gateway.run_log import approvals as approvals_module
from bos_gateway.run_log import reader as runs_module
from bos_gateway.run_log.approvals import Approvals
from bos_gateway.run_log.reader import READER, Runs
from bos_gateway.run_log.session import SCHEMA
from bos_gateway.webhooks import outbox
from bos_postgres import acquire, connect, fetch, open_database

ME = uuid4()
LATER = datetime(2099, 1, 1, tzinfo=UTC)


@pytest.fixture
async def session(store: str) -> AsyncIterator[Any]:
    async with connect(store, schema=SCHEMA, statement_timeout_s=60) as opened:
        await opened.execute(
            "INSERT INTO replicas VALUES ($1, $2), (gen_random_uuid(), $2), "
            "(gen_random_uuid(), now() - interval '1 h')",
            ME,
            LATER,
        )
        yield opened


async def explained(session: Any, sql: str, arguments: Sequence[object]) -> tuple[Any, int]:
    """The plan of a statement that is run and undone, and the blocks it touched."""
    transaction = session.transaction()
    await transaction.start()
    found = await session.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {sql}", *arguments)
    await transaction.rollback()
    plan = json.loads(found)[0]["Plan"]
    return plan, plan["Shared Hit Blocks"] + plan["Shared Read Blocks"]


async def plan_of(session: Any, name: str, *, generic: bool) -> tuple[int, int]:
    """Rows that the statement's nodes went through at most, and the blocks it touched."""
    mode = "force_generic_plan" if generic else "force_custom_plan"
    await session.execute(f"SET plan_cache_mode = {mode}")
    plan, blocks = await explained(session, *LOOKS[name])
    rows = 0
    for node in nodes(plan):
        removed = sum(value for key, value in node.items() if re.match("Rows Removed", key))
        if node.get("Relation Name") in GROWING:
            rows = max(rows, (node["Actual Rows"] + removed) * node["Actual Loops"])
    return rows, blocks


async def fill(session: Any) -> None:
    yesterday = datetime.now(UTC) - timedelta(days=1)
    await session.execute(_INSERT, "ended", 6, uuid4(), yesterday, yesterday, ENDED)
    await session.execute(_INSERT, "waiting", 4, None, yesterday, None, WAITING)
    await session.execute("UPDATE runs SET retry_at = 'infinity' WHERE status = 4")
    await session.execute(
        "INSERT INTO approvals (approval_id, run_id, user_id, status, payload, agent_name, tools, "
        "created_at, expire_at) SELECT gen_random_uuid(), run_id, user_id, 1, '', 'a', 't', now(), "
        "now() + interval '1 day' FROM runs WHERE status = 4"
    )
    await session.execute(
        "INSERT INTO webhooks (webhook_id, user_id, url, origin, events, key_id, secret) "
        "VALUES (gen_random_uuid(), 'u1', 'https://a.example/', 'https://a.example:443', '{1}', "
        "'k', '')"
    )
    await session.execute(_DELIVERIES)


LOOKS: dict[str, tuple[str, tuple[Any, ...]]] = {
    "look": (owners._LOOK, (ME,)),
    "adopt": (owners._ADOPT, (ME, 256, [], [])),
    "bury": (owners._BURY, (ME, LATER)),
    "take": (owners._TAKE, (ME, 3.0)),
    "unowned": (owners._UNOWNED, (ME, [])),
    "release_all": (owners._RELEASE_ALL, (ME,)),
    "due events": (outbox._OLDEST, ()),
    "claim events": (outbox._CLAIM, (16, 4, [], [], 30.0)),
}
GROWING = {"runs", "run_events", "approvals", "run_inputs", "webhook_deliveries"}
_DELIVERIES = """
INSERT INTO webhook_deliveries (webhook_id, user_id, run_id, event, state, due_at, ended_at)
SELECT h.webhook_id, h.user_id, r.run_id, 1, CASE WHEN finished_at IS NULL THEN 1 ELSE 2 END,
       now() + interval '1 h', finished_at
FROM webhooks AS h CROSS JOIN runs AS r
"""
_INSERT = """
INSERT INTO runs (run_id, user_id, request_id, request_digest, question, status, replica_id,
                  retry_at, finished_at)
SELECT gen_random_uuid(), 'u' || g % 100, $1 || g, '', '?', $2, $3, $4, $5
FROM generate_series(1, $6::int) AS g
"""


def nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for below in plan.get("Plans", ()):
        yield from nodes(below)


async def test_looks_read_no_rows_of_runs_that_wait_or_have_ended(session: Any) -> None:
    """Also by plans that were made for any arguments, and before anything is known of the rows."""
    await fill(session)
    for analysed in (False, True):
        if analysed:
            await session.execute("VACUUM ANALYZE")
        for name in LOOKS:
            for generic in (True, False):
                rows, blocks = await plan_of(session, name, generic=generic)
                assert rows <= 2, (name, generic, analysed)
                assert blocks < 200, (name, generic, analysed)
    await session.execute("UPDATE runs SET retry_at = now() WHERE status = 4")
    rows, _ = await plan_of(session, "adopt", generic=False)
    assert rows >= WAITING, "and so it would show"


async def test_polling_stays_cheap_while_vacuum_is_blocked(store: str, session: Any) -> None:
    async with (
        connect(store, schema=SCHEMA) as holder,
        holder.transaction(isolation="repeatable_read"),
    ):
        await holder.fetchval("SELECT count(*) FROM runs")
        await session.execute(_INSERT, "r", 1, uuid4(), datetime.now(UTC), None, ENDED)
        for status in (2, 3, 5):
            await session.execute("UPDATE runs SET status = $1, updated_at = now()", status)
        await session.execute("UPDATE runs SET status = 6, finished_at = now()")
        for name in ("look", "adopt"):
            _, blocks = await plan_of(session, name, generic=True)
            assert blocks < 200, name


RUNS, MINE, FAILED = 20_000, 300, 7


async def check(session: Any, sql: str, arguments: Sequence[object], most: int) -> None:
    """It reads few blocks, skips few rows and, for every request, scans no table."""
    plan, blocks = await explained(session, sql, arguments)
    assert blocks <= most, (sql, plan)
    passed_by = sum(node.get("Rows Removed by Filter", 0) for node in nodes(plan))
    assert passed_by <= MINE, plan
    await session.execute(f"SET plan_cache_mode = force_generic_plan; PREPARE asked AS {sql}")
    values = ", ".join(["NULL"] * len(arguments))
    generic = await session.fetchval(f"EXPLAIN (FORMAT JSON) EXECUTE asked ({values})")
    assert "Seq Scan" not in f"{plan}{generic}"
    await session.execute("DEALLOCATE asked; RESET plan_cache_mode")


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
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, tuple[object, ...]]] = []

    async def noted(pool: Any, sql: str, *arguments: object) -> Sequence[Any]:
        asked.append((sql, arguments))
        return await fetch(pool, sql, *arguments)

    monkeypatch.setattr(runs_module, "fetch", noted)
    monkeypatch.setattr(approvals_module, "fetch", noted)
    async with connect(store, schema=SCHEMA) as session:
        await session.execute(_FILL, RUNS, MINE, FAILED)
        await session.execute(_EVENTS)
        await session.execute(_APPROVALS)
        await session.execute(_ANSWERS)
        await session.execute("VACUUM ANALYZE")
        old = await session.fetchval("SELECT run_id FROM runs WHERE request_id = '10000'")
    async with (
        open_database(store, schema=SCHEMA, max_size=1) as pool,
        open_database(store, schema=SCHEMA, max_size=1, role=READER) as readers,
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


ENDED, WAITING = 20_000, 5_000
