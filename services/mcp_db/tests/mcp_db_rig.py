import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import httpx2
import pytest
from mariadb_server import mariadb_database
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from bos_chassis.auth.callers import (
    RUN_TOKEN_KEY,
    Authenticator,
    RunTokenSigner,
    RunTokenVerifier,
    generate_keypair,
)
from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_errors import BosError
from bos_mcp_db.backends.backend import Backend, Limits
from bos_mcp_db.failures import QueryFailure
from bos_mcp_db.provisioning import provision_sql
from bos_mcp_db.service import AUDIENCE, McpDbServer, serve
from bos_mcp_db.settings import DatabaseSettings, McpDbSettings
from bos_testkit.hostile import guard_corpus

TABLES = ("customers", "orders", "measures")

_SCHEMA = """
CREATE TABLE customers (customer_id INTEGER PRIMARY KEY, name TEXT NOT NULL, city TEXT UNIQUE);
CREATE TABLE orders (
    order_id INTEGER PRIMARY KEY,
    customer_id INTEGER NOT NULL REFERENCES customers (customer_id),
    amount NUMERIC,
    placed_on TEXT
);
CREATE TABLE salaries (employee TEXT, amount NUMERIC);
CREATE TABLE measures (label TEXT, whole INTEGER, part REAL, raw BLOB, absent TEXT);
CREATE VIEW big_orders AS SELECT o.order_id, s.employee FROM orders AS o, salaries AS s;
INSERT INTO customers VALUES (1, 'Asha', 'Pune'), (2, 'Ravi', 'Delhi'), (3, 'Mira', 'Agra');
INSERT INTO orders
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500)
SELECT i, 1 + i % 3, i * 10, '2025-01-01' FROM n;
INSERT INTO salaries VALUES ('Asha', 100);
INSERT INTO measures VALUES ('größe', 9007199254740993, 2.0, x'00ff', NULL);
"""


@pytest.fixture
def sqlite_file(tmp_path: Path) -> Path:
    path = tmp_path / "company.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript(_SCHEMA)
    return path


POSTGRES_TABLES = ("customers", "orders", "everything", "crm.accounts")
READER = "bos_reader"
_PASSWORD = "reader-password"

_POSTGRES_SCHEMA = """
CREATE SCHEMA crm;
CREATE TYPE mood AS ENUM ('glad', 'sad');
CREATE TABLE customers (customer_id integer PRIMARY KEY, name text NOT NULL, city text UNIQUE);
COMMENT ON TABLE customers IS 'Who buys';
COMMENT ON COLUMN customers.city IS 'Seat of the company';
CREATE TABLE secrets (secret_id integer PRIMARY KEY, word text);
CREATE TABLE orders (
    order_id integer PRIMARY KEY,
    customer_id integer NOT NULL REFERENCES customers (customer_id),
    secret_id integer REFERENCES secrets (secret_id),
    amount numeric(12, 2),
    mood mood
);
CREATE TABLE crm.accounts (account_id bigint PRIMARY KEY, owner text);
CREATE TABLE everything (
    yes boolean, small smallint, big bigint, part double precision, exact numeric, word text,
    raw bytea, day date, moment timestamptz, local timestamp, span interval, id uuid,
    tags text[], doc jsonb, nothing text
);
INSERT INTO customers VALUES (1, 'Asha', 'Pune'), (2, 'Ravi', 'Delhi'), (3, 'Mira', 'Agra');
INSERT INTO secrets VALUES (1, 'hush');
INSERT INTO orders SELECT i, 1 + i % 3, NULL, i * 10, 'glad' FROM generate_series(1, 500) AS i;
INSERT INTO crm.accounts VALUES (1, 'Asha');
INSERT INTO everything VALUES (
    true, 7, 9223372036854775807, 'NaN', 12345678901234567890.10, 'größe', '\\x00ff', '2025-01-31',
    '2025-01-31 10:00:00.5+05:30', '2025-01-31 10:00:00', '1 month 3 days',
    '00000000-0000-0000-0000-000000000001', ARRAY['a', 'b'],
    '{"n": 1.10, "big": 9007199254740993, "list": [null, true]}', NULL
);
ANALYZE;
"""


@asynccontextmanager
async def provisioned(
    dsn: str, schema: str, tables: Sequence[str]
) -> AsyncIterator[asyncpg.Connection]:
    """The owner's connection to the database, with this in it and tables that READER may read."""
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(schema)
        await connection.execute(provision_sql(READER, tables))
        await connection.execute(f"ALTER ROLE {READER} PASSWORD '{_PASSWORD}'")
        yield connection
        await connection.execute(f"DROP OWNED BY {READER}")
    finally:
        await connection.close()


def as_reader(dsn: str) -> str:
    """URL of the same database for READER."""
    parts = urlsplit(dsn)
    address = parts.netloc.rpartition("@")[2]
    return urlunsplit(parts._replace(netloc=f"{READER}:{_PASSWORD}@{address}"))


@pytest.fixture
async def postgres_admin(postgres_dsn: str) -> AsyncIterator[asyncpg.Connection]:
    """The owner's connection to a database with customers, orders and secrets."""
    async with provisioned(postgres_dsn, _POSTGRES_SCHEMA, POSTGRES_TABLES) as connection:
        yield connection


@pytest.fixture
def reader_dsn(postgres_admin: asyncpg.Connection, postgres_dsn: str) -> str:
    """URL of that database with the rights of the provisioned role only."""
    return as_reader(postgres_dsn)


def postgres_database(dsn: str, **changes: Any) -> DatabaseSettings:
    return DatabaseSettings(
        **{"url": dsn, "allowed_tables": POSTGRES_TABLES, "sample_values": 3, **changes}
    )


_KINDS = [
    "sqlite",
    "postgres",
    # `make test-mariadb` brings the server.
    *(["mariadb"] if os.environ.get("BOS_TEST_MARIADB") else []),
]


@pytest.fixture(params=_KINDS)
def database(request: pytest.FixtureRequest) -> DatabaseSettings:
    """The same customers and orders in each kind of database."""
    if request.param == "sqlite":
        return sqlite_database(request.getfixturevalue("sqlite_file"))
    if request.param == "mariadb":
        name = request.getfixturevalue("mariadb_shop")
        return mariadb_database(request.getfixturevalue("mariadb").url(name))
    return postgres_database(request.getfixturevalue("reader_dsn"))


@asynccontextmanager
async def service(
    databases: dict[str, DatabaseSettings] | Path,
    *,
    auth: Authenticator | None = None,
    server: dict[str, Any] | None = None,
    **settings: Any,
) -> AsyncIterator[tuple[McpDbServer, Telemetry]]:
    """Serve these databases, or the SQLite file at this path."""
    if isinstance(databases, Path):
        databases = {"main": sqlite_database(databases)}
    telemetry = Telemetry.for_tests("mcp_db")
    chosen = McpDbSettings.load(
        databases=databases,
        database_url=None,
        server=ServerSettings.load(**{"grace_s": 0, **(server or {})}),
        **settings,
    )
    async with serve(chosen, telemetry, auth=auth) as running:
        yield running, telemetry


@asynccontextmanager
async def running(
    databases: dict[str, DatabaseSettings], **settings: Any
) -> AsyncIterator[tuple[Client, Telemetry]]:
    """A service with these databases, and a real client connected to it over HTTP."""
    async with (
        service(databases, **settings) as (server, telemetry),
        Client(server.url) as client,
    ):
        yield client, telemetry


@dataclass(frozen=True)
class Served:
    """A service that asks for run tokens, and clients in the name of its users."""

    server: McpDbServer
    telemetry: Telemetry
    signer: RunTokenSigner

    def token(self, user: str = "ada", **claims: Any) -> str:
        audiences = claims.pop("audiences", [AUDIENCE])
        return self.signer.mint(user, f"run-{user}", f"run-{user}/0/a", audiences, 600, **claims)

    @asynccontextmanager
    async def client(self, user: str = "ada", **claims: Any) -> AsyncIterator[Client]:
        headers = {RUN_TOKEN_KEY: self.token(user, **claims)}
        async with (
            httpx2.AsyncClient(headers=headers, timeout=100) as http,
            Client(streamable_http_client(self.server.url, http_client=http)) as client,
        ):
            yield client


@asynccontextmanager
async def served(
    databases: dict[str, DatabaseSettings] | Path,
    *,
    keys: tuple[str, str] | None = None,
    **settings: Any,
) -> AsyncIterator[Served]:
    private, public = keys or generate_keypair()
    auth = RunTokenVerifier([public], AUDIENCE)
    async with service(databases, auth=auth, **settings) as (server, telemetry):
        yield Served(server, telemetry, RunTokenSigner(private))


def sqlite_database(path: Path, **changes: Any) -> DatabaseSettings:
    return DatabaseSettings(
        **{"url": f"sqlite:///{path}", "allowed_tables": TABLES, "sample_values": 3, **changes}
    )


async def call(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The envelope of one tool call."""
    reply = await client.call_tool(tool, arguments)
    assert reply.structured_content is not None, reply.content
    assert reply.is_error == (not reply.structured_content["success"])
    return reply.structured_content


CORPUS_TABLES = ("orders", "invoices", "customers", "products", "employees")
CANARY = "canary-7d1c"
BRIEF = Limits(max_rows=200, max_columns=50, max_bytes=1_000_000, timeout_s=0.2)


def guard_statements(kind: str, dialect: str) -> list[str]:
    """Every statement of the guard's corpus: hostile or legitimate."""
    folder = Path(__file__).parents[3] / "libs" / "sqlguard" / "tests" / "corpus"
    return [each.text for each in guard_corpus(folder / f"{kind}_{dialect}.txt")]


def hostile(dialect: str) -> list[str]:
    return guard_statements("hostile", dialect)


async def all_refused(dialect: str, database: DatabaseSettings) -> None:
    """Every statement, over HTTP: refused by the guard."""
    statements = hostile(dialect)
    otherwise = []
    async with running({"main": database}) as (client, _):
        for statement in statements:
            reply = await call(client, "mcp_db_query", query=statement)
            if reply["success"] or reply["error"]["reason"] != "QUERY_REFUSED":
                otherwise.append((statement, reply["error"]))

    assert len(statements) >= 50
    assert otherwise == []


async def run_unguarded(backend: Backend, statements: list[str]) -> list[tuple[str, Any]]:
    """Run everything; return what was answered. Each ends by the time limit."""
    answered = []
    for statement in statements:
        async with asyncio.timeout(60):
            try:
                answered.append((statement, (await backend.query(statement, BRIEF)).rows))
            except BosError as error:
                if not isinstance(error, QueryFailure):
                    raise
    return answered


def left_behind() -> list[Path]:
    """Files that statements of the corpus try to write."""
    return list(Path("/tmp").glob("bos-corpus-*"))
