import asyncio
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from bos_errors import ConfigurationError, Unavailable
from bos_postgres import EmbeddedPostgres, connect

pytestmark = pytest.mark.postgres

WAIT_S = 30
OWNER = """
    import sys
    from pathlib import Path
    from bos_postgres import EmbeddedPostgres
    with EmbeddedPostgres(Path(sys.argv[1])) as server:
        print(server.pid, server._running._supervisor.pid, server.dsn(), flush=True)
        sys.stdin.read()
"""


@pytest.fixture(scope="module")
def initialised(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with a cluster that was started once."""
    folder = tmp_path_factory.mktemp("initialised") / "data"
    with EmbeddedPostgres(folder):
        pass
    yield folder
    EmbeddedPostgres(folder).delete_data()


@pytest.fixture
def folder(initialised: Path, tmp_path: Path) -> Path:
    """A copy of it, or an empty folder where its data lies elsewhere."""
    copy = tmp_path / "data"
    if not (initialised / "relocated").is_symlink():
        ignored = shutil.ignore_patterns("lock", "socket", "server.log")
        shutil.copytree(initialised, copy, symlinks=True, ignore=ignored)
    return copy


@pytest.fixture(autouse=True)
def _data_kept_elsewhere_are_removed(tmp_path: Path) -> Iterator[None]:
    yield
    for lock in (*tmp_path.glob("lock"), *tmp_path.glob("*/lock")):
        EmbeddedPostgres(lock.parent).delete_data()


async def value(dsn: str, query: str) -> object:
    async with connect(dsn) as connection:
        return await connection.fetchval(query)


async def execute(dsn: str, statement: str) -> None:
    async with connect(dsn) as connection:
        await connection.execute(statement)


def owner(folder: Path) -> tuple[subprocess.Popen[str], int, int, str]:
    process = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(OWNER), str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    postmaster, supervisor, dsn = process.stdout.readline().split()
    return process, int(postmaster), int(supervisor), dsn


def wait_until_gone(pid: int) -> None:
    """Wait for the end of a process that need not be our child."""
    try:
        fd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        readable, _, _ = select.select([fd], [], [], WAIT_S)
        assert readable, f"process {pid} still runs"
    finally:
        os.close(fd)


def kill_owner(process: subprocess.Popen[str]) -> None:
    with process:
        process.kill()


async def test_settings_of_a_cluster_whose_long_path_gets_a_short_socket_folder(
    tmp_path: Path,
) -> None:
    async with EmbeddedPostgres(tmp_path / ("long" * 30)) as server:
        row = """SELECT array[current_setting('server_encoding'), datlocale,
            current_setting('fsync'), current_setting('data_checksums'),
            current_setting('max_connections'), current_setting('password_encryption')]
            FROM pg_database WHERE datname = current_database()"""
        found = await value(server.dsn(), row)
        assert found == ["UTF8", "C.UTF-8", "on", "on", "100", "scram-sha-256"]
        assert await value(server.dsn(), "SELECT upper('straße é')") == "STRAßE É"
        assert server.port is None
        assert await value(server.dsn(), "SHOW listen_addresses") == ""
        with pytest.raises(ConfigurationError, match="port"):
            server.tcp_dsn()
        await execute(server.dsn(), "CREATE EXTENSION pg_trgm; CREATE EXTENSION vector")
        folder = server._socket_dir
        assert folder.stat().st_mode & 0o077 == 0
    # Where the server has to run as nobody, its home has a short path and keeps the folder.
    assert not folder.exists() or folder.parent == server._home


async def test_socket_and_tcp_both_want_the_password(folder: Path) -> None:
    async with EmbeddedPostgres(folder, port=0) as server:
        for dsn in (server.dsn(), server.tcp_dsn()):
            assert await value(dsn, "SELECT 1") == 1
            with pytest.raises(ConfigurationError, match="refuses") as refused:
                await value(dsn.replace(server._password, "guess"), "SELECT 1")
            assert "guess" not in str(refused.value)
        assert server.port is not None
    for name in ("password", "lock", "server.log"):
        assert (folder / name).stat().st_mode & 0o077 == 0


async def test_a_taken_port_is_named(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ConfigurationError, match=str(folder)):
            async with EmbeddedPostgres(folder, port=port):
                pass
    async with EmbeddedPostgres(folder, port=port) as server:
        assert server.port == port


async def test_a_killed_server_is_recovered_at_the_next_start(folder: Path) -> None:
    server = EmbeddedPostgres(folder)
    async with server:
        await execute(server.dsn(), "CREATE TABLE kept AS SELECT 42 AS answer")
        os.kill(server.pid, signal.SIGKILL)
        wait_until_gone(server.pid)
    async with server:
        assert await value(server.dsn(), "SELECT answer FROM kept") == 42


@pytest.mark.parametrize("supervised", [True, False])
async def test_the_server_ends_with_a_killed_owner(folder: Path, supervised: bool) -> None:
    process, postmaster, supervisor, dsn = owner(folder)
    await execute(dsn, "CREATE TABLE kept AS SELECT 42 AS answer")
    if not supervised:
        os.kill(supervisor, signal.SIGKILL)
    kill_owner(process)
    async with EmbeddedPostgres(folder) as server:  # does not wait for us to notice the end
        wait_until_gone(postmaster)
        assert await value(server.dsn(), "SELECT answer FROM kept") == 42


async def test_a_folder_in_use_by_a_live_process_is_refused(folder: Path) -> None:
    process, _, _, dsn = owner(folder)
    with process:
        with pytest.raises(ConfigurationError, match=f"in use by process {process.pid}"):
            EmbeddedPostgres(folder).start()
        with pytest.raises(ConfigurationError, match="in use"):
            EmbeddedPostgres(folder).delete_data()
        assert await value(dsn, "SELECT 1") == 1
        process.stdin.close()
    assert process.returncode == 0


async def test_a_server_started_by_other_means_is_refused(folder: Path) -> None:
    async with EmbeddedPostgres(folder) as server:
        (folder / "lock").unlink()
        with pytest.raises(ConfigurationError, match=rf"Another PostgreSQL \(process {server.pid}"):
            EmbeddedPostgres(folder).start()
        assert await value(server.dsn(), "SELECT 1") == 1


async def test_stale_pid_file_of_another_process_is_ignored(folder: Path) -> None:
    server = EmbeddedPostgres(folder)
    async with server:
        path = server._cluster / "postmaster.pid"
        pid_file = path.read_text()
        stale = "\n".join([str(os.getpid()), *pid_file.splitlines()[1:]])
    path.write_text(stale)
    async with server:
        assert await value(server.dsn(), "SELECT 1") == 1


async def test_an_interrupted_initialisation_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "cluster.partial").mkdir()
    (tmp_path / "cluster.partial" / "PG_VERSION").write_text("18\n")
    async with EmbeddedPostgres(tmp_path) as server:
        assert await value(server.dsn(), "SELECT 1") == 1


def test_data_of_another_version_is_refused_with_the_fix(tmp_path: Path) -> None:
    (tmp_path / "cluster").mkdir()
    (tmp_path / "cluster" / "PG_VERSION").write_text("15\n")
    with pytest.raises(ConfigurationError, match=r"PostgreSQL 15.*Dump it"):
        EmbeddedPostgres(tmp_path).start()


def test_an_unusable_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(ConfigurationError, match="file/data"):
        EmbeddedPostgres(tmp_path / "file" / "data").start()


def test_a_stopped_server_has_no_address(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path)
    server.stop()
    with pytest.raises(Unavailable):
        server.dsn()
    with pytest.raises(Unavailable):
        _ = server.pid


async def test_a_cancelled_start_leaves_no_server(tmp_path: Path) -> None:
    server = EmbeddedPostgres(tmp_path)
    starting = asyncio.create_task(server.__aenter__())
    await asyncio.sleep(0)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    async with EmbeddedPostgres(tmp_path) as other:  # the lock is free, nothing half-made remains
        assert await value(other.dsn(), "SELECT 1") == 1


async def test_stop_disconnects_clients_and_delete_removes_data(folder: Path) -> None:
    server = EmbeddedPostgres(folder)
    async with server, connect(server.dsn()) as connection:
        await connection.execute("BEGIN; CREATE TABLE never_committed ()")
        await asyncio.to_thread(server.stop)
        assert connection.is_closed()
    server.delete_data()
    server.delete_data()
    assert folder.name not in os.listdir(folder.parent)
