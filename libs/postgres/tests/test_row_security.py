from collections.abc import AsyncIterator

import asyncpg
import pytest

from bos_postgres import acquire, acting_for, connect, for_user, open_database

Pool = asyncpg.Pool
SETUP = """
DO $$ BEGIN CREATE ROLE row_security_reader NOLOGIN;
EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$;
CREATE SCHEMA notes AUTHORIZATION CURRENT_USER;
GRANT USAGE ON SCHEMA notes TO row_security_reader;
CREATE TABLE notes.notes (note_id int PRIMARY KEY, user_id text NOT NULL, text text NOT NULL);
CREATE INDEX ON notes.notes (user_id);
GRANT SELECT, UPDATE ON notes.notes TO row_security_reader;
ALTER TABLE notes.notes ENABLE ROW LEVEL SECURITY;
CREATE POLICY own ON notes.notes TO row_security_reader
    USING (user_id = nullif(current_setting('bos.user_id', true), ''));
INSERT INTO notes.notes
    SELECT n, CASE n % 2 WHEN 0 THEN 'a' ELSE 'b' END, 'text' FROM generate_series(1, 1000) AS n;
ANALYZE notes.notes;
"""
EVERYTHING = "SELECT * FROM notes ORDER BY note_id DESC"


@pytest.fixture
async def readers(postgres_dsn: str) -> AsyncIterator[Pool]:
    async with connect(postgres_dsn) as connection:
        await connection.execute(SETUP)
    async with open_database(
        postgres_dsn, schema="notes", max_size=1, role="row_security_reader"
    ) as pool:
        yield pool


async def fetch(pool: Pool, query: str, *arguments: object) -> list[asyncpg.Record]:
    async with acquire(pool) as connection:
        return await connection.fetch(query, *arguments)


async def test_query_without_an_owner_finds_own_rows_alone(readers: Pool) -> None:
    # Often enough for the plan to become a generic one, and for both users on one connection.
    for _ in range(8):
        for user in ("a", "b"):
            rows = await fetch(readers, for_user(EVERYTHING), user)
            assert {row["user_id"] for row in rows} == {user}
            assert [row["note_id"] for row in rows] == sorted(
                (row["note_id"] for row in rows), reverse=True
            )
            assert len(rows) == 500


@pytest.mark.parametrize("planner", ["enable_seqscan", "enable_indexscan"])
async def test_it_does_not_depend_on_the_plan(readers: Pool, planner: str) -> None:
    async with acquire(readers) as connection:
        await connection.execute(f"SET {planner} = off")
        query = for_user("SELECT user_id FROM notes WHERE note_id = $1")
        assert await connection.fetch(query, "b", 2) == []
        assert len(await connection.fetch(query, "b", 3)) == 1


async def test_who_does_not_say_for_whom_finds_nothing(readers: Pool) -> None:
    assert await fetch(readers, EVERYTHING) == []
    assert await fetch(readers, for_user(EVERYTHING), "") == []
    assert len(await fetch(readers, for_user(EVERYTHING), "a")) == 500
    assert await fetch(readers, EVERYTHING) == []  # the setting ended with its statement


async def test_changes_reach_own_rows_alone(readers: Pool) -> None:
    async with acting_for(readers, "a") as connection:
        assert await connection.execute("UPDATE notes SET text = 'changed'") == "UPDATE 500"
    rows = await fetch(readers, for_user("SELECT * FROM notes WHERE text = 'changed'"), "b")
    assert rows == []


async def test_the_role_may_do_what_it_was_granted_and_no_more(readers: Pool) -> None:
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await fetch(readers, "DELETE FROM notes")
