"""PostgreSQL hides the runs of others, even from a query that forgets to ask for the owner."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from gateway_harness.ownership_rows import insert_run

from bos.gateway.v1 import ListRunsRequest
from bos_errors import ConfigurationError, NotFound
from bos_gateway.run_log.reader import READER, Look, Runs
from bos_gateway.run_log.session import SCHEMA
from bos_gateway.service import migrate_store
from bos_postgres import acquire, connect, for_user, open_database

_ANSWER = """
INSERT INTO answers (run_id, epoch, attempt, sequence, text, characters)
VALUES ($1, 1, 1, 1, 'so far', 6)
"""


@asynccontextmanager
async def pools(dsn: str) -> AsyncIterator[tuple[Any, Any]]:
    async with (
        open_database(dsn, schema=SCHEMA, max_size=1) as own,
        open_database(dsn, schema=SCHEMA, max_size=1, role=READER) as readers,
    ):
        yield own, readers


async def two_runs(own: Any) -> tuple[UUID, UUID]:
    ada, eve = await insert_run(own, uuid4()), await insert_run(own, uuid4())
    for run_id, user in ((ada, "ada"), (eve, "eve")):
        await own.execute("UPDATE runs SET user_id = $2 WHERE run_id = $1", run_id, user)
        await own.execute(_ANSWER, run_id)
    return ada, eve


async def test_a_query_without_the_owner_finds_own_rows_alone(postgres_dsn: str) -> None:
    async with pools(postgres_dsn) as (own, readers):
        ada, eve = await two_runs(own)
        for table in ("runs", "run_events", "answers"):
            wrong = f"SELECT run_id FROM {table}"
            async with acquire(readers) as connection:
                for user, run_id in (("ada", ada), ("eve", eve), ("ada", ada)):
                    rows = await connection.fetch(for_user(wrong), user)
                    assert [row["run_id"] for row in rows] == [run_id], table
                assert await connection.fetch(wrong) == [], table
            async with acquire(own) as connection:
                assert len(await connection.fetch(wrong)) == 2  # the service drives all runs


async def test_readers_neither_write_nor_read_internal_tables(postgres_dsn: str) -> None:
    async with pools(postgres_dsn) as (_, readers), acquire(readers) as connection:
        for statement in (
            "SELECT * FROM run_inputs",
            "SELECT * FROM run_secrets",
            "SELECT * FROM replicas",
            "UPDATE runs SET user_id = 'eve'",
        ):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await connection.execute(statement)


async def test_every_way_to_read_for_a_user_hides_the_runs_of_others(postgres_dsn: str) -> None:
    async with pools(postgres_dsn) as (own, readers):
        ada, eve = await two_runs(own)
        runs = Runs(own, readers)
        assert await runs.find(str(ada), "ada") == ada
        with pytest.raises(NotFound):
            await runs.find(str(ada), "eve")
        assert await runs.find_request("eve", str(ada)) is None
        listed, _ = await runs.list(ListRunsRequest(), "eve")
        assert [run.run_id for run in listed] == [str(eve)]
        assert listed[0].last_sequence == 1
        seen, hidden = runs.of("ada"), runs.of("eve")
        assert len(await seen.events(ada)) == len(await seen.log(ada)) == 1
        assert not await hidden.events(ada)
        assert not await hidden.log(ada)
        assert not (await seen.look(ada, 0)).finished
        assert await hidden.look(ada, 0) == Look()  # as of any run that is not there
        assert (await seen.last_sequence(ada), await hidden.last_sequence(ada)) == (1, 0)
        with pytest.raises(NotFound):
            await hidden.first_event(ada)


async def test_owners_rights_are_lent_for_tables_of_schema_alone(postgres_dsn: str) -> None:
    async with pools(postgres_dsn) as (own, _):
        path = await own.fetchval("SELECT proconfig FROM pg_proc WHERE proname = 'owner_of'")
    assert path == [f"search_path={SCHEMA}, pg_temp"]


@pytest.mark.parametrize("attributes", ["CREATEROLE", ""])
async def test_a_role_of_few_rights_can_own_the_log(
    empty_postgres_dsn: str, attributes: str
) -> None:
    """One that may create roles makes the readers' role itself; for others it is granted before."""
    role = f"owner_{secrets.token_hex(4)}"
    async with connect(empty_postgres_dsn) as administrator:
        await administrator.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'pw' {attributes}")
        database = await administrator.fetchval("SELECT current_database()")
        await administrator.execute(f"GRANT CREATE ON DATABASE {database} TO {role}")
        exists = await administrator.fetchval(
            "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)", READER
        )
        if exists or not attributes:
            if not exists:
                await administrator.execute(f"CREATE ROLE {READER} NOLOGIN")
            await administrator.execute(f"GRANT {READER} TO {role}")
    _, _, rest = empty_postgres_dsn.partition("@")
    await migrate_store(dsn := f"postgresql://{role}:pw@{rest}")
    async with pools(dsn) as (own, readers):
        ada, eve = await two_runs(own)
        runs = Runs(own, readers)
        assert await runs.find(str(ada), "ada") == ada
        assert not await runs.of("ada").events(eve)
        assert len(await runs.events(eve)) == 1


async def test_without_the_readers_role_it_says_what_to_do(empty_postgres_dsn: str) -> None:
    role = f"owner_{secrets.token_hex(4)}"
    async with connect(empty_postgres_dsn) as administrator:
        await administrator.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'pw'")
        database = await administrator.fetchval("SELECT current_database()")
        await administrator.execute(f"GRANT CREATE ON DATABASE {database} TO {role}")
    _, _, rest = empty_postgres_dsn.partition("@")
    with pytest.raises(ConfigurationError, match=f"GRANT {READER} TO {role}"):
        await migrate_store(f"postgresql://{role}:pw@{rest}")
