"""What mcp_db offers for a metadata index: a fingerprint, and samples that keep private things."""

import sqlite3
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest
from mcp_db_rig import call, postgres_database, running, sqlite_database

from bos_mcp_db.samples import HiddenColumns
from bos_mcp_db.settings import McpDbSettings

_PRIVATE = """
CREATE TABLE people (person_id INTEGER PRIMARY KEY, city TEXT, work_email TEXT, ApiKeyHash TEXT);
INSERT INTO people VALUES (1, 'Pune', 'asha@example.com', 'c0ffee');
"""


async def test_fingerprint_changes_with_the_schema_and_not_with_rows(
    sqlite_file: Path,
) -> None:
    async with running({"main": sqlite_database(sqlite_file)}) as (client, _):
        first = await call(client, "mcp_db_schema")
        with closing(sqlite3.connect(sqlite_file)) as writer, writer:
            writer.execute("INSERT INTO customers VALUES (4, 'Anu', 'Kochi')")
        more_rows = await call(client, "mcp_db_schema")
        with closing(sqlite3.connect(sqlite_file)) as writer, writer:
            writer.execute("ALTER TABLE customers ADD COLUMN segment TEXT")
        changed = await call(client, "mcp_db_schema")

    assert len(first["fingerprint"]) == 32
    assert more_rows["fingerprint"] == first["fingerprint"]
    assert changed["fingerprint"] != first["fingerprint"]


async def test_fingerprint_changes_with_comments_of_listed_tables(
    postgres_admin: asyncpg.Connection, reader_dsn: str
) -> None:
    async with running({"main": postgres_database(reader_dsn)}) as (client, _):
        first = await call(client, "mcp_db_schema")
        await postgres_admin.execute("ALTER TABLE secrets ADD COLUMN more text")
        elsewhere = await call(client, "mcp_db_schema")
        await postgres_admin.execute("COMMENT ON COLUMN orders.amount IS 'In Rs.'")
        changed = await call(client, "mcp_db_schema")

    assert elsewhere["fingerprint"] == first["fingerprint"]
    assert changed["fingerprint"] != first["fingerprint"]


async def test_columns_named_like_secrets_or_addresses_show_no_samples(tmp_path: Path) -> None:
    path = tmp_path / "people.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(_PRIVATE)
    database = sqlite_database(path, allowed_tables=("people",))

    async with running({"main": database}) as (client, _):
        shown = await call(client, "mcp_db_schema", tables=["people"])
    async with running({"main": database}, sample_hidden_columns=["city"]) as (client, _):
        otherwise = await call(client, "mcp_db_schema", tables=["people"])

    assert _samples(shown) == {"city": ["Pune"], "work_email": [], "ApiKeyHash": []}
    assert _samples(otherwise) == {
        "city": [],
        "work_email": ["asha@example.com"],
        "ApiKeyHash": ["c0ffee"],
    }


def _samples(envelope: dict[str, object]) -> dict[str, list[str]]:
    (table,) = envelope["tables"]  # type: ignore[misc]
    return {
        column["name"]: column["sample_values"]
        for column in table["columns"]
        if column["name"] != "person_id"
    }


@pytest.mark.parametrize(
    ("column", "hidden"),
    [
        ("password_hash", True),
        ("accessToken", True),
        ("E_Mail", True),
        ("card number", True),
        ("city", False),
        ("tone", False),
    ],
)
def test_names_are_compared_by_their_letters(column: str, hidden: bool) -> None:
    words = HiddenColumns(("password", "token", "email", "card_number"))

    assert (column in words) is hidden


def test_the_words_can_be_replaced_or_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOS_MCP_DB_SAMPLE_HIDDEN_COLUMNS", "salary, note")
    assert McpDbSettings.load().sample_hidden_columns == ("salary", "note")

    monkeypatch.setenv("BOS_MCP_DB_SAMPLE_HIDDEN_COLUMNS", ",")
    assert McpDbSettings.load().sample_hidden_columns == ()
    assert "anything" not in HiddenColumns(())
