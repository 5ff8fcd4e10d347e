"""Metadata index on real databases: prompts and trace events."""

import sqlite3
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from bos_errors import ConfigurationError
from bos_testkit.scripted_model.replies import fixture

from .conftest import FAILED, NEEDS_CLARIFICATION, SUCCEEDED, StartHarness, draft, fixtures
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
_BANK_TABLES = ("balances", "transactions", "branches")
SHIFT = "How is my dollar value shifting from yesterday to today?"


@pytest.fixture
def bank(tmp_path: Path) -> str:
    path = tmp_path / "bank.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(_BANK)
    return f"sqlite:///{path}"


@pytest.fixture
def bank_metadata(tmp_path: Path) -> Path:
    path = tmp_path / "bank.yaml"
    path.write_text(_BANK_METADATA)
    return path


@pytest.fixture
def wide_sqlite(tmp_path: Path) -> str:
    path = tmp_path / "wide.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(wide_ddl())
    return f"sqlite:///{path}"


@pytest.fixture
async def wide_postgres(postgres_dsn: str) -> str:
    connection = await asyncpg.connect(postgres_dsn)
    try:
        await connection.execute(wide_ddl())
    finally:
        await connection.close()
    return postgres_dsn


@pytest.fixture(params=["sqlite", "postgres"])
def wide_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"wide_{request.param}"))


@pytest.mark.requirement("D-07", "D-08", "D-10")
async def test_of_200_tables_the_prompts_show_the_relevant_ones(
    start: StartHarness, wide_url: str
) -> None:
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


async def test_small_models_choose_among_200_tables_and_get_the_tables_that_join_them(
    start: StartHarness, wide_url: str
) -> None:
    choice = {"tables": ["room_bookings", "buildings"], "is_clear": True}
    replies = [
        fixture("choice", [], schema="SchemaChoice", json=choice),
        fixture("query", [], schema="GeneratedSql", json={"sql": _PER_BUILDING}),
    ]
    harness = await start(replies, url=wide_url, tables=WIDE, tier="small")

    done = await harness.ask(BUILDINGS)

    assert done.result.status == SUCCEEDED
    (choose,), (generate,) = harness.prompts("SchemaChoice"), harness.prompts("GeneratedSql")
    assert all(name in choose for name in WIDE)
    # ``rooms`` joins the two chosen tables.
    assert generate.count(" text pk") == 3
    assert "room_id text -> rooms.room_id" in generate
    assert len(choose) < 14_000


@pytest.mark.requirement("T-03")
async def test_the_trace_shows_the_schema_excerpt_of_the_query(
    start: StartHarness, sqlite_url: str
) -> None:
    harness = await start(url=sqlite_url)

    done = await harness.ask()

    (search,) = done.events("search_metadata")
    assert search["query"] == "Total order amount per city, largest first"
    assert {"doc_id", "kind", "score"} == set(search["hits"][0])
    (pack,) = done.events("grounding_pack")
    assert pack["suggested_tables"] == ["customers", "orders", "exact"]
    assert pack["suggested_join_paths"] == [
        "customers → orders: orders.customer_id = customers.customer_id"
    ]
    assert pack["relationship_docs"] == ["orders.customer_id = customers.customer_id"]
    assert "customers.city TEXT (e.g. 'Pune', 'Delhi', 'Agra')" in pack["field_docs"]
    assert pack["citations"] == done.data["citations"]
    assert "main.customers.city" in {each["doc_id"] for each in pack["citations"]}


@pytest.mark.requirement("D-05", "D-03")
async def test_options_of_an_ambiguous_question_come_from_the_metadata(
    start: StartHarness, bank: str, bank_metadata: Path
) -> None:
    """Options from the prompt are kept; invented ones are dropped."""
    unclear = {
        "is_clear": False,
        "clarifying_questions": [
            {
                "question": "Which metric?",
                "options": ["${metric}", "${field}", "ledger.profit_usd"],
            },
            {"question": "Which product group?", "options": ["${one}", "${two}", "all of them"]},
            {"question": "Where does a day begin?", "options": ["UTC", "day_start"]},
        ],
        "assumptions": ["The metric is the total balance."],
    }
    capture = {
        "metric": r"(?s)### Metrics\s+([a-z ]+) = ",
        "field": r"\ntransactions[^\n]*\n[^\n]*?(amount_\w+) ",
        "one": r"product_group text[^\n]*?e\.g\. '(\w+)'",
        "two": r"product_group text[^\n]*?e\.g\. '\w+', '(\w+)'",
    }
    asks = fixture("asks", ["dollar value"], schema="QueryDraft", json=unclear, capture=capture)
    harness = await start(
        fixtures(asks), url=bank, tables=_BANK_TABLES, metadata_path=bank_metadata
    )

    done = await harness.ask(SHIFT)

    assert done.result.status == NEEDS_CLARIFICATION
    asked = {each.question: list(each.options) for each in done.result.clarification.questions}
    assert asked == {
        "Which metric?": ["total balance", "amount_usd"],
        "Which product group?": ["deposits", "savings", "all of them"],
        "Where does a day begin?": ["UTC"],
    }
    (dropped,) = done.events("Options that name nothing here were dropped")
    assert dropped["options"] == ["ledger.profit_usd", "day_start"]
    assert harness.queries() == 0


async def test_formulas_of_the_curated_file_are_in_the_prompts(
    start: StartHarness, bank: str, bank_metadata: Path
) -> None:
    sql = "SELECT SUM(balance_usd) AS total FROM balances"
    harness = await start(
        fixtures(drafted=draft(sql)), url=bank, tables=_BANK_TABLES, metadata_path=bank_metadata
    )

    await harness.ask(SHIFT)

    (prompt,) = harness.prompts("QueryDraft")
    trusted = prompt.rpartition("</untrusted>")[2]
    assert "### Metrics\ntotal balance = SUM(balances.balance_usd) (also: dollar value)" in trusted
    assert "balances (also: dollar value)\n" in prompt
    assert "asha@example.com" not in prompt


async def test_a_curated_file_with_unknown_names_fails_the_step_and_names_the_line(
    start: StartHarness, tmp_path: Path
) -> None:
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


async def test_a_curated_file_of_invalid_shape_fails_the_start(
    start: StartHarness, tmp_path: Path
) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text("tables:\n  orders: {colour: red}\n")

    with pytest.raises(ConfigurationError, match=r"line 2: tables\.orders\.colour"):
        await start(metadata_path=path)


async def test_the_catalogue_is_read_once_and_again_when_the_schema_changes(
    start: StartHarness, sqlite_url: str
) -> None:
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
