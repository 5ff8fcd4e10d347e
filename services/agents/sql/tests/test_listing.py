"""Table listing from metadata."""

import pytest

from bos_chassis.values import table_rows
from bos_sql.database.metadata import Overview, TableSummary
from bos_sql.database.table_listing import asks_for_tables

from .conftest import SUCCEEDED, StartHarness

pytestmark = pytest.mark.requirement("T-10")

OVERVIEW = Overview(
    "main", "", "sqlite", "main", 200, 50, (TableSummary("present", "table", "", None),)
)


async def test_tables_are_listed_without_a_model(start: StartHarness, postgres_url: str) -> None:
    harness = await start(url=postgres_url, models=False)

    done = await harness.ask("List all tables in the database")

    assert done.result.status == SUCCEEDED
    assert done.result.answer == "The database main has 3 tables: customers, exact, orders."
    assert table_rows(done.result.table) == [
        {"table_name": "customers", "description": ""},
        {"table_name": "exact", "description": ""},
        {"table_name": "orders", "description": "What was bought"},
    ]
    assert [source.title for source in done.result.sources] == ["customers", "exact", "orders"]
    assert [event.message for event in done.trace][:2] == ["mcp_db_schema", "list_tables"]
    assert done.result.usage.model_calls == 0
    assert harness.queries() == 0


@pytest.mark.parametrize(
    "task",
    [
        "List all tables in the database",
        "List all tables in the database with what each of them holds",
        "Which tables are there?",
        "Please show me the tables.",
        "What tables can you access",
    ],
)
def test_plain_questions_for_tables_are_recognised(task: str) -> None:
    assert asks_for_tables(task, OVERVIEW)


@pytest.mark.parametrize(
    "task",
    [
        "List all customers",
        "Which tables hold overdue invoices?",
        "Show the table orders",
        "List the tables with more than 100 rows",
        "Show table present",
        "What is in the database?",
        "",
    ],
)
def test_other_tasks_are_left_to_the_model(task: str) -> None:
    assert not asks_for_tables(task, OVERVIEW)
