"""Queries over files: through the guard, in a locked process of their own, within limits."""

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from bos_files.queries.cells import decode, encode
from bos_files.queries.engine import QueryEngine
from bos_files.queries.failures import (
    FileNotReadable,
    QueryFailed,
    QueryRefused,
    QueryTimedOut,
    QueryTooLarge,
)
from bos_files.queries.limits import QueryLimits
from bos_testkit.hostile import guard_corpus
from bos_testkit.waiting import eventually

from .file_tables import SALES, table_file, workbook

pytestmark = pytest.mark.process

LIMITS = QueryLimits(memory_mib=256, threads=1)
CORPUS = Path(__file__).parents[4] / "libs" / "sqlguard" / "tests" / "corpus"
ENDLESS = "WITH RECURSIVE n AS (SELECT 1 AS i UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
CANARY = "canary-7d1c"


@pytest.fixture(scope="module")
def engine() -> QueryEngine:
    """One for all tests, so that each file is described once."""
    return QueryEngine(LIMITS, at_once=2)


async def unguarded(engine: QueryEngine, sql: str) -> Any:
    """Run a query that no guard has seen over the sales."""
    files = [table_file("sales.csv", SALES)]
    tables, _ = await engine.tables(files)
    return await engine.run(files, tables, sql, ("sales",))


async def test_total_by_region_is_exact(engine: QueryEngine) -> None:
    result = await engine.query(
        [table_file("sales.csv", SALES)],
        "SELECT region, sum(amount) AS total FROM sales GROUP BY region ORDER BY region",
    )
    assert result.columns == ["region", "total"]
    assert result.types == ["string", "decimal"]
    assert result.rows == [["North", Decimal("11.50")], ["South", Decimal("3.25")]]
    assert (result.truncated, result.used_tables) == (False, ("sales",))


async def test_files_are_joined_and_no_other_one_is_read(engine: QueryEngine) -> None:
    read: list[str] = []
    files = [
        table_file("sales.csv", SALES),
        table_file("targets.xlsx", workbook({"a": [["Region", "Target"], ["North", 20]]})),
        table_file("unused.csv", b"a,b\n1,2\n", read),
    ]
    await engine.tables(files)
    read.clear()
    result = await engine.query(
        files,
        "SELECT t.region, max(t.target) - sum(s.amount) FROM sales AS s JOIN targets AS t"
        " USING (region) GROUP BY ALL",
    )
    assert result.rows == [["North", Decimal("8.50")]]
    assert read == []


@pytest.mark.isolation
@pytest.mark.security
async def test_query_sees_no_table_of_another_user(engine: QueryEngine) -> None:
    await engine.query([table_file("salaries.csv", SALES)], "SELECT * FROM salaries")
    mine = [table_file("sales.csv", SALES)]
    for sql in ("SELECT * FROM salaries", "SELECT * FROM sales, salaries"):
        with pytest.raises(QueryRefused) as refused:
            await engine.query(mine, sql)
        assert [each.rule for each in refused.value.broken] == ["TABLE_NOT_ALLOWED"]
    with pytest.raises(QueryFailed, match="salaries does not exist"):
        await unguarded(engine, "SELECT * FROM salaries")


@pytest.mark.isolation
async def test_two_users_may_have_files_of_one_name(engine: QueryEngine) -> None:
    first = table_file("sales.csv", b"Region,Amount\nNorth,1\n")
    second = table_file("sales.csv", b"Region,Amount\nSouth,2\n")
    found = await asyncio.gather(
        *(engine.query([file], "SELECT * FROM sales") for file in (first, second))
    )
    assert [result.rows for result in found] == [[["North", 1]], [["South", 2]]]


async def test_rows_beyond_the_limits_are_cut() -> None:
    content = b"i,text\n" + b"".join(b"%d,%s\n" % (i, b"x" * 100) for i in range(1_000))
    files = [table_file("t.csv", content)]
    by_rows = QueryEngine(replace(LIMITS, max_rows=10), at_once=1)
    result = await by_rows.query(files, "SELECT i FROM t ORDER BY i")
    assert ([row[0] for row in result.rows], result.truncated) == (list(range(10)), True)
    result = await by_rows.query(files, "SELECT i FROM t ORDER BY i LIMIT 10")
    assert (len(result.rows), result.truncated) == (10, False)
    by_bytes = QueryEngine(replace(LIMITS, max_rows=1_000, max_bytes=10_000), at_once=1)
    result = await by_bytes.query(files, "SELECT * FROM t")
    assert 0 < len(result.rows) < 200
    assert result.truncated
    by_columns = QueryEngine(replace(LIMITS, max_columns=1), at_once=1)
    with pytest.raises(QueryFailed, match="2 columns"):
        await by_columns.query(files, "SELECT * FROM t")
    with pytest.raises(QueryFailed, match="One row exceeds"):
        await QueryEngine(replace(LIMITS, max_bytes=50), at_once=1).query(files, "SELECT * FROM t")


@pytest.mark.security
async def test_files_of_one_query_are_bounded_together() -> None:
    read: list[str] = []
    files = [table_file(name, SALES, read) for name in ("a.csv", "b.csv")]
    engine = QueryEngine(replace(LIMITS, max_query_bytes=len(SALES) + 1), at_once=1)
    assert (await engine.query(files, "SELECT count(*) FROM a")).rows == [[3]]
    read.clear()
    with pytest.raises(FileNotReadable, match="together"):
        await engine.query(files, "SELECT count(*) FROM a, b")
    assert read == []


async def test_errors_have_the_words_of_the_engine(engine: QueryEngine) -> None:
    with pytest.raises(QueryFailed, match=r"Referenced column .*nope.* not found"):
        await engine.query([table_file("sales.csv", SALES)], "SELECT nope FROM sales")


@pytest.mark.security
async def test_guard_refuses_before_a_process_starts(engine: QueryEngine) -> None:
    read: list[str] = []
    files = [table_file("sales.csv", SALES, read)]
    await engine.tables(files)
    read.clear()
    with pytest.raises(QueryRefused):
        await engine.query(files, "SELECT * FROM read_text('/etc/passwd')")
    assert read == []


@pytest.mark.security
async def test_endless_query_ends_at_its_time_limit() -> None:
    engine = QueryEngine(LIMITS, at_once=1)
    files = [table_file("sales.csv", SALES)]
    await engine.tables(files)
    engine._limits = replace(LIMITS, timeout_s=2.0)
    with pytest.raises(QueryTimedOut, match="stopped after 2 s"):
        await engine.query(files, f"{ENDLESS}, sales")
    engine._limits = LIMITS
    assert (await engine.query(files, "SELECT count(*) FROM sales")).rows == [[3]]


@pytest.mark.security
async def test_cancelled_query_leaves_no_process(engine: QueryEngine) -> None:
    files = [table_file("sales.csv", SALES)]
    await engine.tables(files)
    before = _children()
    query = asyncio.create_task(engine.query(files, f"{ENDLESS}, sales"))
    try:
        await eventually(lambda: _children() - before)
    finally:
        query.cancel()
    with pytest.raises(asyncio.CancelledError):
        await query
    assert _children() == before


@pytest.mark.security
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT list(i) FROM range(1000000000) AS r(i), sales",
        "SELECT repeat('x', 4000000000)",
    ],
)
async def test_query_beyond_its_memory_is_ended(sql: str, engine: QueryEngine) -> None:
    with pytest.raises((QueryTooLarge, QueryFailed)):
        await unguarded(engine, sql)


@pytest.mark.security
async def test_file_that_changed_under_way_is_not_readable() -> None:
    content = [SALES, b"a\0"]

    async def reading() -> bytes:
        return content.pop(0)

    file = replace(table_file("sales.csv", SALES), content=reading)
    with pytest.raises(FileNotReadable, match=r"sales\.csv"):
        await QueryEngine(LIMITS, at_once=1).query([file], "SELECT * FROM sales")


@pytest.mark.security
async def test_process_has_no_secret(engine: QueryEngine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOS_LLM_API_KEY", CANARY)
    started: list[dict[str, str]] = []
    start = asyncio.create_subprocess_exec

    async def watched(*program: str, **options: Any) -> asyncio.subprocess.Process:
        started.append(options["env"])
        return await start(*program, **options)

    monkeypatch.setattr(asyncio, "create_subprocess_exec", watched)
    await unguarded(engine, "SELECT 1")
    assert started
    assert all(set(environment) <= {"TMPDIR"} for environment in started)


@pytest.mark.security
@pytest.mark.timeout(600)
def test_hostile_corpus_without_a_guard_touches_no_file(tmp_path: Path) -> None:
    """Every statement, also those that are no SELECT, by DuckDB itself once it is locked."""
    (tmp_path / "sales.csv").write_text(f"a\n{CANARY}\n")
    evil = Path("/tmp/bos-corpus-evil")
    swapped = [
        statement.text.replace("/etc/passwd", str(tmp_path / "sales.csv"))
        for statement in guard_corpus(CORPUS / "hostile_duckdb.txt")
    ]
    program = Path(__file__).with_name("unguarded_statements.py")
    done = subprocess.run(
        [sys.executable, str(program)],
        input=json.dumps(swapped),
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"HOME": str(tmp_path), "BOS_CANARY": CANARY},
        check=True,
    )
    outcome = json.loads(done.stdout)
    assert outcome["statements"] == len(swapped) > 100
    assert outcome["leaked"] == []
    # Both sides: the tables that were given are read, so the engine was at work.
    assert outcome["answered"] > 5
    assert [path.name for path in tmp_path.iterdir()] == ["sales.csv"]
    assert not evil.exists()


@pytest.mark.security
@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('{file}')",
        "COPY (SELECT 1) TO '{folder}/evil.csv'",
        "ATTACH '{folder}/evil.db' AS evil",
    ],
)
def test_lock_and_seal_each_keep_files_out(sql: str, tmp_path: Path) -> None:
    """With neither of them the same statement gets through."""
    file = tmp_path / "secret.csv"
    file.write_text(f"a\n{CANARY}\n")

    def after(isolation: str) -> tuple[str, list[str]]:
        program = (
            "from bos_files.queries.limits import QueryLimits as L\n"
            "from bos_files.queries.worker import connect, lock, seal\n"
            "c = connect(L(memory_mib=128, threads=1))\n"
            f"{isolation}\n"
            f"try: print(c.execute({sql.format(file=file, folder=tmp_path)!r}).fetchall())\n"
            "except Exception as error: print(type(error).__name__)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, env={}
        )
        files = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
        return done.stdout, files

    for isolation in ("lock(c)", "seal()"):
        said, left = after(isolation)
        assert said.strip() == "[]" or said.strip().endswith(("Exception", "Error")), said
        assert left == ["secret.csv"], isolation
    said, left = after("")
    assert CANARY in said or "secret.csv" in said or len(left) > 1, said


@pytest.mark.security
@pytest.mark.parametrize(
    "sql",
    ["CREATE TABLE evil AS SELECT 1", "SELECT 1; SELECT 2"],
)
async def test_process_runs_one_select_alone(sql: str, engine: QueryEngine) -> None:
    with pytest.raises(QueryFailed, match="Only one SELECT statement is run"):
        await unguarded(engine, sql)


def test_cells_lose_nothing_on_their_way_and_damaged_ones_are_refused() -> None:
    for value in (None, 2**63, float("inf"), "x", Decimal("1.10"), [1, Decimal(2), None]):
        again = decode(json.loads(json.dumps(encode(value))))
        assert (again, type(again)) == (value, type(value))
    for damaged in ({"a": 1}, [1], {"date": "x"}):
        with pytest.raises(ValueError, match=r".+"):
            decode(damaged)


def _children() -> set[int]:
    found = Path(f"/proc/{os.getpid()}/task").glob("*/children")
    return {int(each) for path in found for each in path.read_text().split()}
