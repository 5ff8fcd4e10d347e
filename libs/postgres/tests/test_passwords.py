"""Passwords in files that change while connections are open."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
from asyncpg import Connection

from bos_errors import ConfigurationError, Unavailable
from bos_postgres import acquire, connect, migrate, open_database
from bos_postgres.dsn import with_address, with_options
from bos_postgres.notices import Notices

pytestmark = pytest.mark.security

OLD, NEW = "old: p@ss/w%r d", "new\\pass=word?&"
_END_SESSIONS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1"
_WHO = "SELECT current_user::text"


class Login:
    """A role whose password stands in a file."""

    def __init__(self, administrator: Connection, dsn: str, name: str, file: Path) -> None:
        self.dsn = with_options(dsn, user=name, password_file=str(file))
        self.name = name
        self.file = file
        self._administrator = administrator

    async def set_password(self, password: str) -> None:
        """As an administrator of the database does."""
        quoted = password.replace("'", "''")
        await self._administrator.execute(f"ALTER ROLE {self.name} PASSWORD '{quoted}'")

    async def end_sessions(self) -> None:
        """Until none is left: a terminated session may serve one more statement."""
        async with asyncio.timeout(60):
            while await self._administrator.fetch(_END_SESSIONS, self.name):  # noqa: ASYNC110
                await asyncio.sleep(0.01)


@pytest.fixture
async def login(postgres_dsn: str, tmp_path: Path) -> AsyncIterator[Login]:
    name, file = "rotating_role", tmp_path / "password"
    file.write_text(f"{OLD}\n")
    async with connect(postgres_dsn) as administrator:
        await administrator.execute(f"CREATE ROLE {name} LOGIN SUPERUSER")
        found = Login(administrator, without_user(postgres_dsn), name, file)
        await found.set_password(OLD)
        yield found
        await found.end_sessions()
        await administrator.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")


def without_user(dsn: str) -> str:
    """``dsn`` without its login."""
    scheme, _, rest = dsn.partition("://")
    return f"{scheme}://{rest.rpartition('@')[2]}"


async def test_new_connections_of_a_pool_use_the_new_password(login: Login) -> None:
    async with open_database(login.dsn, schema="public", max_size=1) as pool:
        async with acquire(pool) as connection:
            assert await connection.fetchval(_WHO) == login.name
        await login.set_password(NEW)
        async with acquire(pool) as connection:  # an open one asks for no password
            assert await connection.fetchval(_WHO) == login.name
        await login.end_sessions()
        with pytest.raises(Unavailable):
            async with acquire(pool) as connection:
                await connection.fetchval(_WHO)
        login.file.write_text(NEW)
        async with acquire(pool) as connection:
            assert await connection.fetchval(_WHO) == login.name


async def test_an_empty_or_missing_file_keeps_the_password_and_says_so(
    login: Login, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_database(login.dsn, schema="public", max_size=1) as pool:
        for spoil in (lambda: login.file.write_text("\n"), login.file.unlink):
            spoil()
            await login.end_sessions()
            with suppress(Unavailable):  # of the ended session, if that is not noticed yet
                async with acquire(pool) as connection:
                    await connection.fetchval(_WHO)
            async with acquire(pool) as connection:
                assert await connection.fetchval(_WHO) == login.name
            assert "secret not replaced" in caplog.text
            assert OLD not in caplog.text
            caplog.clear()


async def test_a_listener_comes_back_with_the_new_password(login: Login) -> None:
    async with Notices(login.dsn, "bell", poll_s=0.05) as notices:
        assert await anext(notices) is None
        await login.set_password(NEW)
        await login.end_sessions()
        for _ in range(3):  # refused, and still there
            assert await anext(notices) is None
        login.file.write_text(NEW)
        async with connect(login.dsn) as other:
            heard = None
            while heard != "ding":
                await other.execute("SELECT pg_notify('bell', 'ding')")
                heard = await anext(notices)


async def test_migrations_use_the_file_and_never_tell_what_it_holds(
    login: Login, tmp_path: Path
) -> None:
    folder = tmp_path / "migrations"
    folder.mkdir()
    (folder / "0001_first.sql").write_text("-- migrate:up\nSELECT 1;\n-- migrate:down\n")
    await migrate(login.dsn, folder, schema="shop")
    await login.set_password(NEW)
    login.file.write_text(NEW)
    (folder / "0002_broken.sql").write_text("-- migrate:up\nnonsense;\n-- migrate:down\n")
    with pytest.raises(ConfigurationError, match=r"0002_broken\.sql.*nonsense") as failed:
        await migrate(login.dsn, folder, schema="shop")
    assert NEW not in str(failed.value)


async def test_what_is_wrong_with_file_is_named_at_start(login: Login, tmp_path: Path) -> None:
    two = with_address(login.dsn, ("127.0.0.1", 1)).replace("://", "://ada:secret@")
    missing = with_options(login.dsn, password_file=str(tmp_path / "missing"))
    for dsn, problem in ((two, "a password and a password_file"), (missing, "cannot be read")):
        with pytest.raises(ConfigurationError, match=problem) as refused:
            async with connect(dsn):
                pass
        assert "password_file" in refused.value.message
        assert "secret" not in refused.value.message
