"""Metadata index on real databases: prompts and trace events."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from bos_errors import ConfigurationError

from .conftest import FAILED, SUCCEEDED, StartHarness, draft, fixtures, in_postgres, sqlite_database
from .wide_schema import wide_ddl, wide_tables

WIDE = tuple(table["name"] for table in wide_tables())
BUILDINGS = "Meeting rooms booked most often, by building"
_PER_BUILDING = """\
SELECT b.building_id, COUNT(*) AS bookings FROM room_bookings k
JOIN rooms r ON r.room_id = k.room_id JOIN buildings b ON b.building_id = r.building_id
GROUP BY b.building_id"""

_BANK = """
CREATE TABLE balances (account_id integer, product_group text, balance_date date, balance_usd real);
CREATE TABLE transactions (account_id integer, booked_at timestamp, amount_usd real);
CREATE TABLE branches (branch_id integer PRIMARY KEY, manager_email text);
INSERT INTO balances VALUES (1, 'deposits', '2026-06-14', 10), (2, 'savings', '2026-06-14', 20);
INSERT INTO branches VALUES (1, 'asha@example.com');
"""
_BANK_METADATA = """
tables:
  balances:
    synonyms: [dollar value]
metrics:
  total balance: {formula: SUM(balances.balance_usd), synonyms: [dollar value]}
"""


@pytest.fixture
def wide_sqlite(tmp_path: Path) -> str:
    return sqlite_database(tmp_path, wide_ddl())


@pytest.fixture
async def wide_postgres(postgres_dsn: str) -> str:
    return await in_postgres(postgres_dsn, wide_ddl())


@pytest.fixture(params=["sqlite", "postgres"])
def wide_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"wide_{request.param}"))


@pytest.mark.requirement("D-07", "D-08", "D-10")
async def test_prompts_show_the_relevant_of_200_tables(start: StartHarness, wide_url: str) -> None:
    """Columns of few tables, names of all; also tables that join the chosen ones."""
    harness = await start(fixtures(drafted=draft(_PER_BUILDING)), url=wide_url, tables=WIDE)

    done = await harness.ask(BUILDINGS)

    assert done.result.status == SUCCEEDED
    (prompt,) = harness.prompts("QueryDraft")
    assert "booked_for text" in prompt
    assert prompt.count(" text pk") <= 6
    assert all(name in prompt for name in WIDE)
    assert "salary_id" not in prompt
    assert "building_id text -> buildings.building_id" in prompt
    assert "room_id text -> rooms.room_id" in prompt
    assert len(prompt) < 9_000


async def test_curated_formulas_are_in_the_prompts(start: StartHarness, tmp_path: Path) -> None:
    path = tmp_path / "bank.yaml"
    path.write_text(_BANK_METADATA)
    url = sqlite_database(tmp_path, _BANK)
    query = fixtures(drafted=draft("SELECT SUM(balance_usd) AS total FROM balances"))
    harness = await start(
        query, url=url, tables=("balances", "transactions", "branches"), metadata_path=path
    )

    await harness.ask("How is my dollar value shifting from yesterday to today?")

    (prompt,) = harness.prompts("QueryDraft")
    trusted = prompt.rpartition("</untrusted>")[2]
    assert "### Metrics\ntotal balance = SUM(balances.balance_usd) (also: dollar value)" in trusted
    assert "balances (also: dollar value)\n" in prompt
    assert "asha@example.com" not in prompt


async def test_unknown_curated_names_fail_the_step(start: StartHarness, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text("tables:\n  orders: {}\n  payroll: {}\n")
    harness = await start(metadata_path=path)

    done = await harness.ask()

    assert done.result.status == FAILED
    assert done.result.error.type == "ConfigurationError"
    assert "BOS_SQL_METADATA_PATH, line 3: there is no table 'payroll'" in (
        done.result.error.message
    )
    assert harness.prompts("QueryDraft") == []


async def test_an_invalid_curated_file_fails_the_start(start: StartHarness, tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text("tables:\n  orders: {colour: red}\n")

    with pytest.raises(ConfigurationError, match=r"line 2: tables\.orders\.colour"):
        await start(metadata_path=path)


async def test_a_changed_schema_is_read_again(start: StartHarness, sqlite_url: str) -> None:
    harness = await start(url=sqlite_url)

    def described(done: object) -> int:
        return sum(
            bool(event["arguments"].get("tables"))
            for event in done.events("mcp_db_schema")  # type: ignore[attr-defined]
        )

    assert [described(await harness.ask()) for _ in range(2)] == [1, 0]
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as connection:
        connection.execute("ALTER TABLE orders ADD COLUMN channel text")
    assert described(await harness.ask()) == 1
    assert "channel text" in harness.prompts("QueryDraft")[-1]
    assert "channel text" not in harness.prompts("QueryDraft")[-2]
