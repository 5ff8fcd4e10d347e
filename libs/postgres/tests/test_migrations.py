import asyncio
import sys
import textwrap
from pathlib import Path

import asyncpg
import pytest

from bos_errors import ConfigurationError, Unavailable
from bos_postgres import EmbeddedPostgres, connect, migrate, with_database
from bos_postgres.dsn import password_of

pytestmark = pytest.mark.postgres

MIGRATE = """
    import asyncio, sys
    from pathlib import Path
    from bos_postgres import migrate
    asyncio.run(migrate(sys.argv[1], Path(sys.argv[2]), schema="shop"))
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "migrations"
    folder.mkdir()
    write(folder, "0001_items.sql", "CREATE TABLE items (id int);")
    write(folder, "0002_fill.sql", "INSERT INTO items SELECT 1 FROM pg_sleep(0.1);")
    return folder


def write(folder: Path, name: str, sql: str, options: str = "") -> None:
    (folder / name).write_text(f"-- migrate:up{options}\n{sql}\n-- migrate:down\n")


async def shop(dsn: str, query: str) -> object:
    async with connect(dsn, schema="shop") as connection:
        return await connection.fetchval(query)


async def test_where_nothing_is_pending_no_program_is_started(
    postgres_dsn: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await migrate(postgres_dsn, folder, schema="shop")
    monkeypatch.setattr("bos_postgres.migrations.dbmate_program", lambda: folder / "missing")
    await migrate(postgres_dsn, folder, schema="shop")
    write(folder, "0003_more.sql", "INSERT INTO items VALUES (2);")
    with pytest.raises(FileNotFoundError):
        await migrate(postgres_dsn, folder, schema="shop")


async def test_files_are_applied_in_order_into_the_schema_and_once(
    postgres_dsn: str, folder: Path
) -> None:
    await migrate(postgres_dsn, folder, schema="shop")
    write(folder, "0003_more.sql", "INSERT INTO items VALUES (2);")
    write(
        folder, "0004_index.sql", "CREATE INDEX CONCURRENTLY ON items (id);", " transaction:false"
    )
    for _ in range(2):
        await migrate(postgres_dsn, folder, schema="shop")
    assert await shop(postgres_dsn, "SELECT array_agg(id ORDER BY id) FROM items") == [1, 2]
    applied = "SELECT array_agg(version::text ORDER BY version) FROM schema_migrations"
    assert await shop(postgres_dsn, applied) == ["0001", "0002", "0003", "0004"]
    async with connect(postgres_dsn) as connection:
        assert await connection.fetchval("SELECT to_regclass('public.schema_migrations')") is None
    assert not list(folder.parent.rglob("schema.sql"))


async def test_two_schemas_share_database_without_meeting(postgres_dsn: str, folder: Path) -> None:
    await asyncio.gather(
        migrate(postgres_dsn, folder, schema="shop"),
        migrate(postgres_dsn, folder, schema="warehouse"),
    )
    async with connect(postgres_dsn) as connection:
        both = "SELECT (SELECT count(*) FROM shop.items) + (SELECT count(*) FROM warehouse.items)"
        assert await connection.fetchval(both) == 2


async def test_processes_that_start_at_once_apply_each_file_once(
    postgres_dsn: str, folder: Path
) -> None:
    async def one() -> int:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-c", textwrap.dedent(MIGRATE), postgres_dsn, str(folder))
        )
        return await process.wait()

    assert await asyncio.gather(one(), one(), one()) == [0, 0, 0]
    assert await shop(postgres_dsn, "SELECT count(*) FROM items") == 1


async def test_waiting_migration_lets_others_pass(postgres_dsn: str, folder: Path) -> None:
    await migrate(postgres_dsn, folder, schema="shop")
    write(folder, "0003_wider.sql", "ALTER TABLE items ADD COLUMN name text;")
    async with connect(postgres_dsn, schema="shop") as long:
        async with long.transaction():
            await long.execute("SELECT FROM items")
            migrating = asyncio.create_task(migrate(postgres_dsn, folder, schema="shop"))
            async with asyncio.timeout(60):
                while not await shop(
                    postgres_dsn,
                    "SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'relation'",
                ):
                    assert not migrating.done()
                await shop(postgres_dsn, "INSERT INTO items (id) VALUES (2) RETURNING id")
        await migrating
    assert await shop(postgres_dsn, "SELECT count(name) FROM items") == 0


@pytest.mark.parametrize(
    ("options", "lock_timeout"), [("", "2s"), (" transaction:false", "0")], ids=["in", "outside"]
)
async def test_lock_timeout_is_set_in_transactions_alone(
    postgres_dsn: str, tmp_path: Path, options: str, lock_timeout: str
) -> None:
    setting = "CREATE TABLE found AS SELECT current_setting('lock_timeout') AS value;"
    write(tmp_path, "0001_found.sql", setting, options)
    await migrate(postgres_dsn, tmp_path, schema="shop")
    assert await shop(postgres_dsn, "SELECT value FROM found") == lock_timeout


async def test_a_failed_migration_is_named_and_undone(postgres_dsn: str, folder: Path) -> None:
    write(folder, "0003_broken.sql", "INSERT INTO items VALUES (3); SELECT nonsense;")
    write(folder, "0004_after.sql", "INSERT INTO items VALUES (4);")
    with pytest.raises(ConfigurationError, match=r"0003_broken\.sql.*nonsense") as failed:
        await migrate(postgres_dsn, folder, schema="shop")
    assert failed.value.reason == "MIGRATION_FAILED"
    assert (password_of(postgres_dsn) or "-") not in str(failed.value)
    assert await shop(postgres_dsn, "SELECT array_agg(id) FROM items") == [1]
    write(folder, "0003_broken.sql", "INSERT INTO items VALUES (3);")
    await migrate(postgres_dsn, folder, schema="shop")
    assert await shop(postgres_dsn, "SELECT max(id) FROM items") == 4


async def test_waiting_for_another_process_is_bounded(postgres_dsn: str, folder: Path) -> None:
    async with connect(postgres_dsn) as other:
        lock = "SELECT pg_advisory_lock(hashtextextended('bos.migrate.shop', 0))"
        await other.execute(lock)
        with pytest.raises(Unavailable, match=r"longer than 0\.2 s"):
            await migrate(postgres_dsn, folder, schema="shop", timeout_s=0.2)
    await migrate(postgres_dsn, folder, schema="shop")


async def test_migration_that_takes_too_long_is_stopped(postgres_dsn: str, tmp_path: Path) -> None:
    write(tmp_path, "0001_slow.sql", "SELECT pg_sleep(60);")
    with pytest.raises(Unavailable, match=r"longer than 0\.5 s"):
        await migrate(postgres_dsn, tmp_path, schema="shop", timeout_s=0.5)


async def test_tcp_and_socket_and_odd_passwords_and_either_scheme(
    tmp_path: Path, folder: Path
) -> None:
    async with EmbeddedPostgres(tmp_path / "data", port=0, durable=False) as server:
        async with connect(server.dsn()) as administrator:
            await administrator.execute("CREATE ROLE ada SUPERUSER LOGIN PASSWORD 'p@ss/w:r d%?'")
        odd = "ada:p%40ss%2Fw%3Ar%20d%25%3F@"
        user = f"postgres:{server._password}@"
        tcp, local = server.tcp_dsn(), server.dsn()
        for number, dsn in enumerate(
            (
                local.replace(user, odd),
                local.replace("postgresql:", "postgres:"),
                tcp.replace(user, odd),
                tcp.partition("?")[0],
                tcp.replace("sslmode=disable", "sslmode=prefer&connect_timeout=5"),
            )
        ):
            async with connect(local) as administrator:
                await administrator.execute(f"CREATE DATABASE variant_{number}")
            await migrate(with_database(dsn, f"variant_{number}"), folder, schema="shop")
            assert await shop(with_database(dsn, f"variant_{number}"), "TABLE items") == 1


async def test_a_dotenv_in_the_working_directory_plays_no_part(
    postgres_dsn: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text("DBMATE_DRIVER=mysql\nDATABASE_URL=mysql://nowhere/x\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DBMATE_STRICT", "nonsense")
    monkeypatch.setenv("PATH", "")
    await migrate(postgres_dsn, folder, schema="shop")
    assert await shop(postgres_dsn, "TABLE items") == 1


async def test_a_role_that_may_not_create_the_schema_gets_the_command(
    postgres_dsn: str, folder: Path
) -> None:
    async with connect(postgres_dsn) as administrator:
        role = f"clerk_{administrator.get_server_pid()}"
        await administrator.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'pw'")
        user = postgres_dsn.partition("@")[0]
        clerk = postgres_dsn.replace(user, f"postgresql://{role}:pw")
        with pytest.raises(ConfigurationError, match="CREATE SCHEMA shop AUTHORIZATION"):
            await migrate(clerk, folder, schema="shop")
        await administrator.execute(f"CREATE SCHEMA shop AUTHORIZATION {role}")
        await migrate(clerk, folder, schema="shop")
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            async with connect(clerk) as connection:
                await connection.execute("CREATE TABLE public.elsewhere ()")
        await administrator.execute(f"DROP OWNED BY {role} CASCADE; DROP ROLE {role}")


async def test_a_folder_without_migrations_is_named(postgres_dsn: str, tmp_path: Path) -> None:
    (tmp_path / "notes.sql").touch()
    with pytest.raises(ConfigurationError, match=str(tmp_path)):
        await migrate(postgres_dsn, tmp_path, schema="shop")
