import socket
import threading
from pathlib import Path

import pytest

from bos_postgres import connect
from bos_testkit.postgres import (
    ContainerServer,
    PostgresServer,
    copy_database,
    embedded_server,
    engine_holds,
    migrated_template,
    postgres_dsn,
    postgres_server,
)

pytestmark = pytest.mark.postgres

__all__ = ["postgres_dsn", "postgres_server"]


async def test_each_test_gets_an_empty_database(postgres_dsn: str) -> None:
    async with connect(postgres_dsn) as connection:
        assert (await connection.fetchval("SELECT current_database()")).startswith("test_")
        await connection.execute("CREATE TABLE leftover ()")


async def test_what_another_test_left_behind_is_not_seen(postgres_dsn: str) -> None:
    async with connect(postgres_dsn) as connection:
        assert await connection.fetchval("SELECT to_regclass('leftover')") is None


async def _make_items(dsn: str) -> None:
    async with connect(dsn) as connection:
        await connection.execute("CREATE TABLE items AS SELECT 1 AS id")


@pytest.fixture
def items_template(postgres_server: PostgresServer) -> str:
    return migrated_template(postgres_server, "items_template", _make_items)


async def test_copies_of_a_template_have_its_tables_each_its_own(
    postgres_server: PostgresServer, items_template: str
) -> None:
    one = await copy_database(postgres_server, items_template, "copy_one")
    async with connect(one) as connection:
        await connection.execute("DELETE FROM items")
    other = await copy_database(postgres_server, items_template, "copy_other")
    async with connect(other) as connection:
        assert await connection.fetchval("SELECT count(*) FROM items") == 1


def test_the_embedded_server_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "server"
    with embedded_server(folder) as server:
        assert server.dsn("x").startswith("postgresql://")
        assert folder.exists()
    assert not folder.exists()


def test_a_container_is_addressed_by_database_like_any_server() -> None:
    server = ContainerServer("postgresql://test:test@127.0.0.1:32768/test")
    assert server.dsn("other") == "postgresql://test:test@127.0.0.1:32768/other"
    assert server.dsn().endswith("/postgres")


def test_without_engine_there_is_no_image(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent.sock")
    assert not engine_holds("postgres:18")


@pytest.mark.parametrize(("status", "held"), [("200 OK", True), ("404 Not Found", False)])
def test_an_engine_is_used_only_if_it_holds_the_image(
    monkeypatch: pytest.MonkeyPatch, status: str, held: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        answering = threading.Thread(target=_answer_as_engine, args=(listener, status), daemon=True)
        answering.start()
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{listener.getsockname()[1]}")
        assert engine_holds("postgres:18") is held


def test_an_engine_that_does_not_answer_is_given_up_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{listener.getsockname()[1]}")
        assert not engine_holds("postgres:18")


def _answer_as_engine(listener: socket.socket, status: str) -> None:
    """Two requests: the version, which every client asks first, then the image."""
    for line, body in (
        ("200 OK", b'{"ApiVersion": "1.45"}'),
        (status, b'{"Id": "sha256:0", "message": "as asked"}'),
    ):
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            head = (
                f"HTTP/1.1 {line}\r\nContent-Type: application/json\r\nConnection: close\r\n"
                f"Content-Length: {len(body)}\r\n\r\n"
            )
            connection.sendall(head.encode() + body)
