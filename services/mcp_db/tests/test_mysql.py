"""Addresses, users and settings of MySQL and MariaDB; the server itself: `make test-mariadb`."""

from pathlib import Path
from typing import Any

import pytest
from asyncmy.errors import OperationalError, ProgrammingError

from bos_errors import ConfigurationError
from bos_mcp_db.backends.backend import Limits
from bos_mcp_db.backends.mysql.backend import MySqlBackend, _translate
from bos_mcp_db.backends.mysql.session import parse_address
from bos_mcp_db.databases import open_databases
from bos_mcp_db.failures import DatabaseUnavailable, QueryFailed, QueryTimedOut
from bos_mcp_db.provisioning import provision_mysql
from bos_mcp_db.settings import McpDbSettings

URL = "mariadb://reader:p%40ss@db.example/shop"
LIMITS = Limits(max_rows=1, max_columns=1, max_bytes=1_000, timeout_s=10)


def test_a_url_is_encrypted_unless_it_says_otherwise() -> None:
    address = parse_address(URL)

    assert (address.host, address.port, address.database) == ("db.example", 3306, "shop")
    assert (address.user, address.password()) == ("reader", "p@ss")
    assert address.tls is not None
    assert address.tls.check_hostname
    assert "p@ss" not in repr(address)
    assert parse_address(f"{URL}?encrypt=no").tls is None


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("mysql://db.example/shop", "mysql://user:password@host"),
        ("mysql://reader:x@db.example", "mysql://user:password@host"),
        ("mysql://reader:x@db.example:port/shop", "port"),
        (f"{URL}?encrypt=perhaps", "encrypt"),
        (f"{URL}?unix_socket=/tmp/x", "options"),
        (f"{URL}?ca_file=/no/such/file.pem", "ca_file"),
    ],
)
def test_an_unusable_url_is_refused_by_its_part(url: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        parse_address(url)


async def test_names_without_a_schema_are_in_the_database_of_the_url(
    tmp_path: Path,
) -> None:
    secret = tmp_path / "password"
    secret.write_text("from a file\n")
    url = f"mysql://reader@db.example/shop?password_file={secret}"

    async with open_databases(_settings(url)) as databases:
        (database,) = databases.all()

        assert database.backend.dialect == "mysql"
        assert database.backend.default_schema == "shop"
        assert database.guard.check("SELECT 1 FROM shop.orders").used_tables == ("orders",)
        assert not database.guard.check("SELECT 1 FROM main.orders").is_safe


@pytest.mark.parametrize(
    ("url", "changes", "words"),
    [
        (URL, {"default_schema": "other"}, "leave out default_schema"),
        ("mysql://reader:x@db.example/mysql", {"allowed_tables": ["user"]}, "system catalogue"),
        ("maria://reader:x@db.example/shop", {}, "mariadb://"),
    ],
)
async def test_invalid_settings_name_the_fix(url: str, changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        async with open_databases(_settings(url, **changes)):
            pass


def test_a_role_for_a_group_is_refused() -> None:
    backend = MySqlBackend(parse_address(URL), default_schema="shop")

    assert backend.reading(["orders"], "") is backend
    with pytest.raises(ConfigurationError, match="database_role"):
        backend.reading(["orders"], "analysts")


async def test_a_server_that_is_not_there_is_unavailable(unused_tcp_port: int) -> None:
    address = parse_address(f"mysql://reader:x@127.0.0.1:{unused_tcp_port}/shop?encrypt=no")

    with pytest.raises(DatabaseUnavailable):
        await MySqlBackend(address, default_schema="shop").query("SELECT 1", LIMITS)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (OperationalError(1969, "max_statement_time exceeded"), QueryTimedOut),
        (OperationalError(3024, "maximum statement execution time exceeded"), QueryTimedOut),
        (OperationalError(2013, "Lost connection to MySQL server at 'db.example'"), None),
        (OperationalError(1053, "Server shutdown in progress"), None),
        (OperationalError("no code"), None),
        (ProgrammingError(1146, "Table 'shop.x' doesn't exist"), QueryFailed),
    ],
)
def test_errors_of_the_server_say_whether_the_query_was_at_fault(
    error: Exception, expected: type[Exception] | None
) -> None:
    assert type(_translate(error, 10)) is (expected or DatabaseUnavailable)  # type: ignore[arg-type]


def test_errors_name_no_account() -> None:
    message = _translate(
        OperationalError(
            1142, "SELECT command denied to user 'reader'@'10.0.0.7' for table `shop`.`secrets`"
        ),
        10,
    )

    assert str(message) == "SELECT command denied for table `shop`.`secrets`"


def test_the_user_reads_the_listed_tables_and_is_locked_at_first() -> None:
    script = provision_mysql("bos_reader", ["orders", "crm.acc`ounts"], database="shop")

    assert "CREATE USER IF NOT EXISTS 'bos_reader'@'%' ACCOUNT LOCK;" in script
    assert "GRANT SELECT ON `shop`.`orders` TO 'bos_reader'@'%';" in script
    assert "GRANT SELECT ON `crm`.`acc``ounts` TO 'bos_reader'@'%';" in script


@pytest.mark.parametrize(
    ("role", "tables"),
    [("root", ["a"]), ("r'; DROP USER x", ["a"]), ("r", [])],
)
def test_unusable_names_are_refused(role: str, tables: list[str]) -> None:
    with pytest.raises(ValueError, match="must"):
        provision_mysql(role, tables, database="shop")


def _settings(url: str, **changes: Any) -> McpDbSettings:
    database = {"url": url, "allowed_tables": ["orders"], **changes}
    return McpDbSettings.load(databases={"main": database}, database_url=None)
