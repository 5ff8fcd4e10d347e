"""The real SQL Server driver on a real connection, with a scripted server at the other end.

No SQL Server is involved: what is shown is how mcp_db treats a server's answers, not that SQL
Server gives them.
"""

import asyncio
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, aclosing
from pathlib import Path

import pytest
from tds_server import SILENCE, Refusal, Rows, TdsServer, certificate_for, tds_server

from bos_mcp_db.backends import mssql
from bos_mcp_db.backends.backend import Limits
from bos_mcp_db.backends.mssql import MssqlBackend
from bos_mcp_db.backends.mssql_driver import parse_address, session_opener
from bos_mcp_db.failures import (
    DatabaseUnavailable,
    QueryFailed,
    QueryTimedOut,
    ResultTooLarge,
)
from bos_testkit.waiting import eventually

LIMITS = Limits(max_rows=3, max_columns=5, max_bytes=10_000, timeout_s=30)
BRIEF = Limits(max_rows=3, max_columns=5, max_bytes=10_000, timeout_s=1)
QUERY = "SELECT TOP 4 n, word FROM dbo.orders"
SHAPE = Rows(
    ("name", "system_type_name", "error_message", "error_number"),
    [["n", "bigint", None, 0], ["word", "nvarchar(50)", None, 0]],
)


def answering(to_query: object) -> Callable[[str], object]:
    """A login that may only read, and this answer to the query."""

    def answer(sql: str) -> object:
        if "default_schema" in sql:
            return Rows(("default_schema", "may_write"), [["dbo", 0]])
        if "first_result_set" in sql:
            return SHAPE
        return to_query if sql == QUERY else Rows()

    return answer


def backend(
    server: TdsServer, options: str = "?encrypt=no"
) -> AbstractAsyncContextManager[MssqlBackend]:
    address = parse_address(f"mssql://reader:hush@127.0.0.1:{server.port}/shop{options}")
    return aclosing(MssqlBackend(session_opener(address), default_schema="dbo", threads=2))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A query that is left has time to be stopped and rolled back, however busy the machine is."""
    monkeypatch.setattr(mssql, "_GOODBYE_S", 60.0)


@pytest.mark.usefixtures("patient")
async def test_rows_arrive_typed_and_the_transaction_is_rolled_back() -> None:
    rows = Rows(("n", "word"), [[9007199254740993, "größe"], [2, None]])

    async with tds_server(answering(rows)) as server, backend(server) as adapter:
        result = await adapter.query(QUERY, LIMITS)
        await eventually(lambda: server.open == 0)

    assert result.rows == [[9007199254740993, "größe"], [2, None]]
    assert result.types == ["int64", "string"]
    assert not result.truncated
    assert server.batches[1] == "BEGIN TRANSACTION"
    assert server.batches[-2:] == [QUERY, "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION"]


@pytest.mark.usefixtures("patient")
async def test_more_rows_than_allowed_are_stopped_in_the_server() -> None:
    flood = Rows(("n", "word"), [[1, "x" * 50]], endless=True)

    async with tds_server(answering(flood)) as server, backend(server) as adapter:
        result = await adapter.query(QUERY, LIMITS)
        await eventually(lambda: server.open == 0)

    assert (len(result.rows), result.truncated) == (3, True)
    assert server.attentions == 1
    assert server.batches[-1] == "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION"


async def test_a_row_beyond_the_byte_limit_is_refused() -> None:
    rows = Rows(("n", "word"), [[1, "x" * 11_000]])

    async with tds_server(answering(rows)) as server, backend(server) as adapter:
        with pytest.raises(ResultTooLarge):
            await adapter.query(QUERY, LIMITS)


async def test_error_of_the_server_has_its_number() -> None:
    refusal = Refusal(229, "The SELECT permission was denied on the object 'salaries'.")

    async with tds_server(answering(refusal)) as server, backend(server) as adapter:
        with pytest.raises(QueryFailed, match="permission was denied") as caught:
            await adapter.query(QUERY, LIMITS)
        assert (await adapter.query("SELECT 1", LIMITS)).rows == []

    assert caught.value.sqlstate == "229"


async def test_the_time_limit_stops_the_query_in_the_server() -> None:
    async with tds_server(answering(SILENCE)) as server, backend(server) as adapter:
        with pytest.raises(QueryTimedOut):
            await adapter.query(QUERY, BRIEF)
        await eventually(lambda: server.open == 0)

    assert server.attentions == 1


async def test_the_time_limit_holds_where_rows_come_without_a_pause() -> None:
    flood = Rows(("n", "word"), [[1, "x"]], endless=True)
    roomy = Limits(max_rows=10**9, max_columns=5, max_bytes=10**9, timeout_s=BRIEF.timeout_s)

    async with tds_server(answering(flood)) as server, backend(server) as adapter:
        with pytest.raises(QueryTimedOut):
            await adapter.query(QUERY, roomy)
        await eventually(lambda: server.open == 0)


async def test_giving_up_stops_the_query_in_the_server() -> None:
    async with tds_server(answering(SILENCE)) as server, backend(server) as adapter:
        asking = asyncio.create_task(adapter.query(QUERY, LIMITS))
        await eventually(lambda: QUERY in server.batches)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking
        await eventually(lambda: server.open == 0)

    assert server.attentions == 1


async def test_closing_the_backend_stops_what_runs() -> None:
    async with tds_server(answering(SILENCE)) as server:
        async with backend(server) as adapter:
            asking = asyncio.create_task(adapter.query(QUERY, LIMITS))
            await eventually(lambda: QUERY in server.batches)
        await eventually(lambda: server.open == 0)
        with pytest.raises(QueryTimedOut):
            await asking


async def test_a_refused_login_is_a_database_that_cannot_be_reached() -> None:
    refused = Refusal(18456, "Login failed for user 'reader'.")

    async with tds_server(answering(Rows()), login=refused) as server, backend(server) as adapter:
        with pytest.raises(DatabaseUnavailable) as caught:
            await adapter.query(QUERY, LIMITS)

    assert "reader" not in str(caught.value)
    assert server.logins == 1


async def test_everything_is_encrypted_and_the_certificate_verified(tmp_path: Path) -> None:
    rows = Rows(("n", "word"), [[n, "x" * 3000] for n in range(3)])
    own, trusted = certificate_for("127.0.0.1", tmp_path)

    async with (
        tds_server(answering(rows), certificate=own) as server,
        backend(server, f"?ca_file={trusted}") as adapter,
    ):
        result = await adapter.query(QUERY, LIMITS)

    assert [row[0] for row in result.rows] == [0, 1, 2]


async def test_no_password_is_sent_to_an_unverified_server(tmp_path: Path) -> None:
    own, trusted = certificate_for("127.0.0.1", tmp_path)
    other, also_trusted = certificate_for("other.example", tmp_path)

    for certificate, options in (
        (own, ""),  # of an authority that the system does not trust
        (own, f"?ca_file={also_trusted}"),
        (other, f"?ca_file={also_trusted}"),  # trusted, for another name
        (None, f"?ca_file={trusted}"),  # no encryption offered
    ):
        async with (
            tds_server(answering(Rows()), certificate=certificate) as server,
            backend(server, options) as adapter,
        ):
            with pytest.raises(DatabaseUnavailable):
                await adapter.query(QUERY, LIMITS)

        assert (server.connections, server.logins) == (1, 0)


def test_without_the_driver_a_process_says_how_to_get_it() -> None:
    program = (
        "import sys, runpy\n"
        "sys.modules['pytds'] = None\n"  # as if it were not there
        "runpy.run_module('bos_mcp_db', run_name='__main__')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program],
        env={
            "BOS_DATABASE_URL": "mssql://reader:hush@127.0.0.1/shop",
            "BOS_DATABASE_ALLOWED_TABLES": "orders",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ended.returncode == 78
    assert "pip install 'bos-mcp-db[mssql]'" in ended.stdout + ended.stderr
    assert "hush" not in ended.stdout + ended.stderr
