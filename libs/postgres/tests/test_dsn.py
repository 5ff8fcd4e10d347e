import pytest

from bos_errors import ConfigurationError
from bos_postgres import check_dsn, describe, with_database
from bos_postgres.dsn import (
    check_identifier,
    database_name,
    driver_dsn,
    has_several_hosts,
    option,
    password_of,
    with_address,
    with_options,
)

FORMS = [
    ("postgresql://ada:s3cret@db.example:6543/sales", "db.example:6543/sales", "sales"),
    ("postgres://ada:s3cret@db.example/sales?sslmode=require", "db.example/sales", "sales"),
    ("postgresql://ada:s3cret@/sales?host=%2Frun%2Fpg&port=5433", "/run/pg/sales", "sales"),
    ("postgresql:///sales?host=/run/pg&password=s3cret", "/run/pg/sales", "sales"),
    ("postgresql://ada:s3cret@one:1,two:2/sales", "one:1,two:2/sales", "sales"),
    ("postgresql://ada:s3cret@db.example?dbname=sales", "db.example/sales", "sales"),
    ("postgresql://", "localhost/", ""),
]


@pytest.mark.parametrize(("dsn", "shown", "database"), FORMS)
def test_host_and_database_are_shown_and_nothing_else(dsn: str, shown: str, database: str) -> None:
    assert check_dsn(dsn) == dsn
    assert describe(dsn) == shown
    assert database_name(dsn) == database


@pytest.mark.parametrize("dsn", [dsn for dsn, _, _ in FORMS])
def test_another_database_keeps_everything_else(dsn: str) -> None:
    other = with_database(dsn, "other")
    assert database_name(other) == "other"
    assert password_of(other) == password_of(dsn)
    assert describe(other).rpartition("/")[0] == describe(dsn).rpartition("/")[0]
    assert option(other, "sslmode") == option(dsn, "sslmode")


def test_options_are_set_and_replaced() -> None:
    dsn = with_options("postgresql:///sales?host=/run/my pg&sslmode=prefer", sslmode="require")
    assert dsn == "postgresql:///sales?host=%2Frun%2Fmy%20pg&sslmode=require"


@pytest.mark.parametrize(
    "dsn",
    [
        "host=db user=ada password=s3cret",
        "mysql://ada:s3cret@db/sales",
        "postgresql://ada:s3cret@db:port/sales",
        "",
    ],
)
def test_anything_else_is_refused_without_repeating_it(dsn: str) -> None:
    with pytest.raises(ConfigurationError, match="postgresql://user") as refused:
        check_dsn(dsn)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("name", ["", "Sales", "1st", 'x"; DROP', "x" * 64])
def test_names_that_would_need_quoting_are_refused(name: str) -> None:
    assert check_identifier("run_log_2", "The schema name") == "run_log_2"
    with pytest.raises(ConfigurationError, match="The schema name"):
        check_identifier(name, "The schema name")


def test_options_that_only_libpq_knows_are_left_out() -> None:
    dsn = "postgresql://ada@db/sales?connect_timeout=5&sslmode=require&channel_binding=prefer"
    assert driver_dsn(dsn) == "postgresql://ada@db/sales?sslmode=require"


@pytest.mark.parametrize(
    ("dsn", "address", "one"),
    [
        (
            "postgresql://ada:s3cret@one:1,two:2/sales?sslmode=require",
            ("two", 2),
            "postgresql://ada:s3cret@two:2/sales?sslmode=require",
        ),
        ("postgresql://one,two/sales", ("::1", 5432), "postgresql://[::1]:5432/sales"),
        (
            "postgresql://ada@/sales?host=%2Fa%2C%2Fb&port=5433",
            "/b/.s.PGSQL.5433",
            "postgresql://ada@/sales?host=%2Fb&port=5433",
        ),
    ],
)
def test_of_several_servers_one_is_taken(
    dsn: str, address: str | tuple[str, int], one: str
) -> None:
    assert has_several_hosts(dsn)
    assert with_address(dsn, address) == one
    assert not has_several_hosts(one)
