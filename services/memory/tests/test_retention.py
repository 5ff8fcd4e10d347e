"""Erasure of a user deletes their rows in all tables, and no rows of others."""

import asyncio

import pytest
from memory_harness import Starter

from bos_memory.retention import main
from bos_postgres import connect
from bos_testkit.scripted_model.replies import fixture

FOUND = fixture(
    "eve",
    ["I am Eve"],
    schema="PersonalFacts",
    json={"found": True, "critical_facts": {"user_name": "Eve"}},
)
_OWNED = """
SELECT table_name FROM information_schema.columns
WHERE table_schema = 'memory' AND column_name = 'user_id'
"""


async def test_erasure_deletes_the_rows_of_one_user(
    start: Starter, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    memory = await start(FOUND)
    for user in ("eve", "ada"):
        for _ in range(3):
            await memory.record("What was revenue?", user=user)
        await memory.extract("I am Eve", user=user)
    monkeypatch.setenv("BOS_MEMORY_STORE_URL", start.dsn)

    assert await asyncio.to_thread(main, ["erase", "--user", "eve"]) == 0
    assert "1 conversation(s) of user eve with 6 message(s), and their" in capsys.readouterr().out
    async with connect(start.dsn, schema="memory") as session:
        tables = [row["table_name"] for row in await session.fetch(_OWNED)]
        assert len(tables) == 5
        for table in tables:
            users = await session.fetch(f"SELECT DISTINCT user_id FROM {table}")
            assert {row["user_id"] for row in users} <= {"ada"}
    assert len(await memory.history(user="ada")) >= 6
    assert (await memory.open("", user="ada")).long_term_memory.critical.user_name == "Eve"

    assert await asyncio.to_thread(main, ["erase", "--user", "eve"]) == 1
    assert "Nothing is stored of user eve." in capsys.readouterr().err
