import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from secrets import token_hex
from typing import Any

import asyncpg
import pytest
from pydantic import SecretStr

from bos.agent.v1 import AgentExecutionStatus, AgentInput, AgentResult
from bos.common.v1 import TraceEvent, TraceEventType
from bos_chassis.telemetry import Telemetry
from bos_chassis.values import from_value, from_value_map
from bos_llm import Models
from bos_mcp_db.service import McpDbServer
from bos_mcp_db.service import serve as serve_mcp_db
from bos_mcp_db.settings import DatabaseSettings, McpDbSettings
from bos_sql.service import serve
from bos_sql.settings import SqlSettings
from bos_testkit.agents import call_agent
from bos_testkit.postgres import (
    PostgresServer,
    migrated_template,
    postgres_dsn,
    postgres_server,
)
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.replies import Fixture, fixture
from bos_testkit.scripted_model.server import ScriptedModel

__all__ = ["postgres_dsn", "postgres_server"]

SUCCEEDED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_SUCCEEDED
FAILED = AgentExecutionStatus.AGENT_EXECUTION_STATUS_FAILED
NEEDS_CLARIFICATION = AgentExecutionStatus.AGENT_EXECUTION_STATUS_NEEDS_CLARIFICATION

TASK = "Total order amount per city, largest first"
TABLES = ("customers", "orders", "exact")
TOTALS = """\
SELECT c.city, SUM(o.amount) AS total FROM orders o
JOIN customers c ON c.customer_id = o.customer_id GROUP BY c.city ORDER BY total DESC"""
GOOD: dict[str, Any] = {
    "is_clear": True,
    "sql": f"{TOTALS} LIMIT 3",
    "used_tables": ["orders", "customers"],
}
MISSING_COLUMN: dict[str, Any] = {**GOOD, "sql": GOOD["sql"].replace("o.amount", "o.amont")}


def draft(sql: str, **more: Any) -> dict[str, Any]:
    """``QueryDraft`` with this query for a clear task."""
    return {"is_clear": True, "sql": sql, **more}


_SCHEMA = """
CREATE TABLE customers (
    customer_id integer PRIMARY KEY, name text NOT NULL, city text NOT NULL
);
CREATE TABLE orders (
    order_id integer PRIMARY KEY,
    customer_id integer NOT NULL REFERENCES customers (customer_id),
    amount numeric(12, 2) NOT NULL
);
CREATE TABLE salaries (employee text, salary numeric(12, 2));
CREATE TABLE exact (
    big bigint, price numeric(12, 2), day date, moment timestamp, share double precision, note text
);
INSERT INTO customers VALUES (1, 'Asha', 'Pune'), (2, 'Ravi', 'Delhi'), (3, 'Mira', 'Agra');
INSERT INTO orders VALUES (1, 1, 10.10), (2, 1, 20.20), (3, 2, 5), (4, 3, 40.40);
INSERT INTO salaries VALUES ('Asha', 100);
INSERT INTO exact VALUES
    (9007199254740993, 1.10, '2026-03-31', '2026-03-31 10:00:00.5', 2.0, 'größe');
"""
POSTGRES_SCHEMA = f"{_SCHEMA}COMMENT ON TABLE orders IS 'What was bought';"


def fixtures(
    *more: Fixture,
    drafted: dict[str, Any] | None = None,
    review: dict[str, Any] | None = None,
    interpretation: dict[str, Any] | None = None,
) -> list[Fixture]:
    """Fixtures of the scripted model for each kind of call; ``more`` take precedence."""
    answer = {"answer": "Agra leads.", "highlights": ["Agra"], "followups": ["And last year?"]}
    replies = {
        "QueryDraft": drafted or GOOD,
        "QueryReview": review or {"checks": "Fine.", "is_correct": True, "corrected_sql": None},
        "ResultInterpretation": interpretation or answer,
    }
    usual = [fixture(f"usual {name}", [], schema=name, json=json) for name, json in replies.items()]
    return [*usual, *more]


@dataclass
class Outcome:
    """Outcome of one step: trace and result."""

    result: AgentResult
    trace: list[TraceEvent]

    @property
    def data(self) -> dict[str, Any]:
        return from_value_map(self.result.data)

    @property
    def details(self) -> dict[str, Any]:
        details = self.result.error.details
        return {name: from_value(details[name]) for name in details}

    def events(self, message: str) -> list[dict[str, Any]]:
        """Data of the trace events called ``message``."""
        return [
            {name: from_value(event.data[name]) for name in event.data}
            for event in self.trace
            if event.message == message
        ]

    def errors(self) -> list[str]:
        kind = TraceEventType.TRACE_EVENT_TYPE_ERROR
        return [event.message for event in self.trace if event.type == kind]


@dataclass
class Harness:
    """A real agent with a real mcp_db and a scripted model."""

    address: str
    mcp_db: McpDbServer
    mcp_telemetry: Telemetry
    model: ScriptedModel

    async def ask(self, task: str = TASK, *, timeout_s: float = 20.0, **input: Any) -> Outcome:
        trace, result = await call_agent(
            self.address, AgentInput(task=task, agent_name="sql", **input), timeout_s=timeout_s
        )
        return Outcome(result, trace)

    def queries(self, outcome: str | None = None) -> int:
        """Number of queries at mcp_db, all or those with this outcome."""
        return int(
            sum(
                sample.value
                for metric in self.mcp_telemetry.registry.collect()
                for sample in metric.samples
                if sample.name == "bos_db_queries_total"
                and outcome in (None, sample.labels["outcome"])
            )
        )

    def prompts(self, schema: str) -> list[str]:
        """Prompts of the model calls that asked for ``schema``."""
        return [request.prompt for request in self.model.requests if request.schema == schema]


StartHarness = Callable[..., Awaitable[Harness]]


def sqlite_database(folder: Path, script: str = _SCHEMA) -> str:
    """URL of a new SQLite database, with the tables of these tests unless others are given."""
    path = folder / f"{token_hex(4)}.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(script)
    return f"sqlite:///{path}"


async def in_postgres(dsn: str, script: str) -> str:
    """URL of the database, in which the script has run."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(script)
    finally:
        await connection.close()
    return dsn


def served_database(
    url: str, telemetry: Telemetry, tables: Sequence[str] = TABLES, **settings: Any
) -> AbstractAsyncContextManager[McpDbServer]:
    """Serve one database by mcp_db."""
    main = DatabaseSettings(url=SecretStr(url), allowed_tables=tuple(tables))
    chosen = McpDbSettings.load(
        **{"databases": {"main": main}, "database_url": None, **settings},
    )
    return serve_mcp_db(chosen, telemetry)


@pytest.fixture
def sqlite_url(tmp_path: Path) -> str:
    return sqlite_database(tmp_path)


def shared_database(server: PostgresServer, name: str, script: str) -> str:
    """URL of a database in which the script has run, for tests that only read."""

    async def fill(dsn: str) -> None:
        await in_postgres(dsn, script)

    return server.dsn(migrated_template(server, name, fill))


@pytest.fixture(scope="session")
def postgres_url(postgres_server: PostgresServer) -> str:
    return shared_database(postgres_server, "sql_shop", POSTGRES_SCHEMA)


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest) -> str:
    """URL of the same tables in each kind of database."""
    return str(request.getfixturevalue(f"{request.param}_url"))


@pytest.fixture
async def start(sqlite_url: str) -> AsyncIterator[StartHarness]:
    """Start harnesses, stopped at the end of the test; SQLite unless another URL is given."""
    async with AsyncExitStack() as stack:

        async def starter(
            replies: Sequence[Fixture] = (),
            *,
            url: str = sqlite_url,
            tables: Sequence[str] = TABLES,
            models: bool = True,
            tier: str = "standard",
            mcp_db: dict[str, Any] | None = None,
            settings: dict[str, Any] | None = None,
            **more_settings: Any,
        ) -> Harness:
            mcp_telemetry, telemetry = Telemetry.for_tests("mcp_db"), Telemetry.for_tests("sql")
            server = await stack.enter_async_context(
                served_database(url, mcp_telemetry, tables, **(mcp_db or {}))
            )
            model = await stack.enter_async_context(ScriptedModel(replies or fixtures()))
            shared = await stack.enter_async_context(
                Models(model_settings(model, tier=tier), telemetry, sleep=_no_wait)
            )
            loaded = SqlSettings.load(
                **{"mcp_url": server.url, **(settings or {}), **more_settings}
            )
            agent = await stack.enter_async_context(
                serve(loaded, telemetry, models=shared if models else None)
            )
            return Harness(agent.address, server, mcp_telemetry, model)

        yield starter


async def _no_wait(_: float) -> None:
    return None
