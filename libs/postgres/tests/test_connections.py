import asyncio
import socket
from urllib.parse import urlsplit
from uuid import uuid4

import asyncpg
import pytest

from bos_errors import (
    AlreadyExists,
    ConfigurationError,
    DeadlineExceeded,
    Unavailable,
)
from bos_postgres import (
    acquire,
    connect,
    connections,
    create_database,
    drop_database,
    open_database,
    require_session_features,
    statement_errors,
    with_database,
)
from bos_postgres.dsn import password_of, with_options
from bos_postgres.sessions import are_separate_sessions, keeps_settings


async def test_the_pool_sees_its_schema_and_says_who_it_is(postgres_dsn: str) -> None:
    async with connect(postgres_dsn) as connection:
        await connection.execute("CREATE SCHEMA shop; CREATE TABLE shop.items AS SELECT 7 AS id")
    async with (
        open_database(postgres_dsn, schema="shop", application_name="till") as pool,
        acquire(pool) as connection,
    ):
        assert await connection.fetchval("SELECT id FROM items") == 7
        for setting, expected in {
            "application_name": "till",
            "search_path": "shop",
            "jit": "off",
            "statement_timeout": "30s",
            "idle_in_transaction_session_timeout": "30s",
            "client_connection_check_interval": "10s",
            "TimeZone": "UTC",
        }.items():
            assert await connection.fetchval("SELECT current_setting($1)", setting) == expected


async def test_a_statement_that_takes_too_long_is_cancelled(postgres_dsn: str) -> None:
    async with open_database(postgres_dsn, schema="public", statement_timeout_s=0.05) as pool:
        with pytest.raises(DeadlineExceeded):
            async with acquire(pool) as connection:
                await connection.execute("SELECT pg_sleep(60)")
        async with acquire(pool) as connection:  # the connection itself is still good
            assert await connection.fetchval("SELECT 1") == 1


async def test_idle_transaction_loses_its_locks(postgres_dsn: str) -> None:
    async def leave_it_open() -> None:
        async with (
            open_database(
                postgres_dsn, schema="public", max_size=1, idle_transaction_s=0.1
            ) as pool,
            acquire(pool) as connection,
        ):
            await connection.execute("BEGIN; SELECT pg_advisory_xact_lock(7)")
            await administrator.fetchval("SELECT pg_advisory_lock(7)")  # waits for its end
            await connection.fetchval("SELECT 1")

    async with connect(postgres_dsn, statement_timeout_s=20) as administrator:
        with pytest.raises(Unavailable) as lost:
            await leave_it_open()
        assert lost.value.reason == "DATABASE_UNAVAILABLE"
        async with administrator.transaction():  # one that is in use may last longer
            await administrator.fetchval("SELECT pg_sleep(0.3)")


async def test_password_changed_under_pool_is_unavailable(postgres_dsn: str) -> None:
    role = f"rotated_{uuid4().hex}"
    user, password = urlsplit(postgres_dsn).username, password_of(postgres_dsn)
    dsn = postgres_dsn.replace(f"{user}:{password}@", f"{role}:first@")
    async with connect(postgres_dsn) as administrator:
        await administrator.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'first'")
        async with open_database(dsn, schema="public", max_size=1) as pool:
            pid = await pool.fetchval("SELECT pg_backend_pid()")
            await administrator.execute(f"ALTER ROLE {role} PASSWORD 'second'")
            await administrator.execute(f"SELECT pg_terminate_backend({pid}, 10000)")
            for _ in range(2):  # the first may still meet the session that was ended
                with pytest.raises(Unavailable) as away:
                    async with acquire(pool) as connection:
                        await connection.fetchval("SELECT 1")
            assert isinstance(away.value.__cause__, asyncpg.InvalidPasswordError)
            await administrator.execute(f"ALTER ROLE {role} PASSWORD 'first'")
            async with acquire(pool) as connection:
                assert await connection.fetchval("SELECT 1") == 1
        await administrator.execute(f"DROP ROLE {role}")


async def test_an_exhausted_pool_says_so_and_when_to_come_back(postgres_dsn: str) -> None:
    async with open_database(postgres_dsn, schema="public", max_size=1) as pool:
        async with acquire(pool):
            with pytest.raises(Unavailable) as busy:
                async with acquire(pool, timeout_s=0.05):
                    pass
        assert busy.value.reason == "DATABASE_BUSY"
        assert busy.value.retry_after_s == 1
        async with acquire(pool, timeout_s=60) as connection:
            assert await connection.fetchval("SELECT 1") == 1


async def test_a_lost_session_is_unavailable_and_the_pool_recovers(postgres_dsn: str) -> None:
    async with (
        open_database(postgres_dsn, schema="public", max_size=1) as pool,
        connect(postgres_dsn) as administrator,
    ):

        async def lose_it() -> None:
            async with acquire(pool) as connection:
                pid = await connection.fetchval("SELECT pg_backend_pid()")
                await administrator.execute(f"SELECT pg_terminate_backend({pid}, 10000)")
                await connection.fetchval("SELECT 1")

        with pytest.raises(Unavailable) as lost:
            await lose_it()
        assert lost.value.reason == "DATABASE_UNAVAILABLE"
        async with acquire(pool) as connection:
            assert await connection.fetchval("SELECT 1") == 1


async def test_a_server_that_falls_silent_is_unavailable(
    postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "_COMMAND_MARGIN_S", -59.9)  # we give up before the server
    async with open_database(postgres_dsn, schema="public", statement_timeout_s=60) as pool:
        with pytest.raises(Unavailable) as silent:
            async with acquire(pool) as connection:
                await connection.execute("SELECT pg_sleep(60)")
    assert silent.value.reason == "DATABASE_UNAVAILABLE"
    with pytest.raises(Unavailable), statement_errors():
        raise ConnectionResetError("connection reset by peer")


async def test_server_that_is_not_there_is_named_without_password() -> None:
    with socket.create_server(("127.0.0.1", 0)) as closed:
        port = closed.getsockname()[1]
    dsn = f"postgresql://ada:s3cret@127.0.0.1:{port}/sales"
    with pytest.raises(Unavailable, match=f"127.0.0.1:{port}/sales") as pool_failed:
        async with open_database(dsn, schema="public"):
            pass
    with pytest.raises(Unavailable, match=f"127.0.0.1:{port}/sales") as single_failed:
        async with connect(dsn):
            pass
    for failure in (pool_failed.value, single_failed.value):
        assert "s3cret" not in str(failure)


async def test_a_server_that_does_not_answer_is_given_up_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        dsn = f"postgresql://ada:s3cret@127.0.0.1:{silent.getsockname()[1]}/sales"
        async with asyncio.timeout(60):
            with pytest.raises(Unavailable):
                async with open_database(dsn, schema="public", connect_timeout_s=0.1):
                    pass


async def test_wrong_password_or_database_is_configuration_error(postgres_dsn: str) -> None:
    password = password_of(postgres_dsn)
    assert password
    for wrong in (
        postgres_dsn.replace(password, "guess"),
        with_database(postgres_dsn, "absent"),
        with_options(postgres_dsn, no_such_setting="1"),
    ):
        with pytest.raises(ConfigurationError, match="refuses") as refused:
            async with open_database(wrong, schema="public"):
                pass
        assert "guess" not in str(refused.value)
        assert password not in str(refused.value)


async def test_single_connection_reports_its_loss(postgres_dsn: str) -> None:
    lost = asyncio.Event()
    async with (
        connect(postgres_dsn, on_lost=lost.set) as single,
        connect(postgres_dsn) as administrator,
    ):
        await administrator.execute(f"SELECT pg_terminate_backend({single.get_server_pid()})")
        async with asyncio.timeout(60):
            await lost.wait()


async def test_databases_are_created_once_and_dropped_even_in_use(postgres_dsn: str) -> None:
    name = f"extra_{id(postgres_dsn)}"
    created = await create_database(postgres_dsn, name)
    async with connect(created) as connection:
        assert await connection.fetchval("SELECT current_database()") == name
        with pytest.raises(AlreadyExists, match=name):
            await create_database(postgres_dsn, name)
        await drop_database(postgres_dsn, name)
    await drop_database(postgres_dsn, name)
    with pytest.raises(ConfigurationError):
        async with connect(created):
            pass


async def test_a_wrong_call_is_not_mistaken_for_a_lost_connection(postgres_dsn: str) -> None:
    async with open_database(postgres_dsn, schema="public") as pool:
        with pytest.raises(asyncpg.InterfaceError):
            async with acquire(pool) as connection:
                await connection.fetchval("SELECT $1::int")
    async with connect(postgres_dsn) as connection:
        await connection.close()
        with pytest.raises(Unavailable), statement_errors(connection):
            await connection.fetchval("SELECT 1")


@pytest.mark.parametrize(("stateless", "left"), [(False, "bos"), (True, "changed")])
async def test_only_a_pool_that_is_not_stateless_resets_its_sessions(
    postgres_dsn: str, stateless: bool, left: str
) -> None:
    async with open_database(
        postgres_dsn, schema="public", max_size=1, stateless=stateless
    ) as pool:
        async with acquire(pool) as connection:
            await connection.execute("SET application_name = 'changed'")
        async with acquire(pool) as connection:
            assert await connection.fetchval("SHOW application_name") == left


async def test_a_direct_connection_is_a_session(postgres_dsn: str) -> None:
    await require_session_features(postgres_dsn)


async def test_shared_server_process_is_noticed(postgres_dsn: str) -> None:
    async with connect(postgres_dsn) as first, connect(postgres_dsn) as second:
        assert await are_separate_sessions(first, second)
        assert not await are_separate_sessions(first, first)


async def test_settings_that_were_dropped_on_the_way_are_noticed(postgres_dsn: str) -> None:
    async with connect(postgres_dsn, statement_timeout_s=1) as connection:
        assert not await keeps_settings(connection)
