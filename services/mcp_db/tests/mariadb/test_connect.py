"""``bos connect`` with MariaDB: the user's script, run, and the user tried."""

import secrets
from collections.abc import AsyncIterator

import pytest
from connect_rig import Connect, read
from mariadb_server import PASSWORD, MariaDb

_ADMINISTRATOR = "bos_admin"
_MORE = """\
CREATE TABLE generated (n INT, twice INT AS (n * 2) STORED);
CREATE TABLE `t'; DROP TABLE customers; --` (n INT);
CREATE TABLE hostile (n INT) COMMENT 'x"\\n# check: nothing\\nmetrics: {}';
CREATE VIEW seats AS SELECT city FROM customers
"""


@pytest.fixture
async def shop(mariadb: MariaDb, mariadb_shop: str) -> str:
    """URL of the administrator."""
    await mariadb.administer(_MORE, mariadb_shop)
    await mariadb.administer(
        f"CREATE OR REPLACE USER '{_ADMINISTRATOR}'@'%' IDENTIFIED BY '{PASSWORD}';\n"
        f"GRANT ALL ON *.* TO '{_ADMINISTRATOR}'@'%' WITH GRANT OPTION"
    )
    return mariadb.url(mariadb_shop, user=_ADMINISTRATOR)


@pytest.fixture
async def role(mariadb: MariaDb) -> AsyncIterator[str]:
    name = f"reader_{secrets.token_hex(4)}"
    yield name
    await mariadb.administer(f"DROP USER IF EXISTS '{name}'@'%'")


async def test_the_user_may_only_read_the_tables(
    bos_connect: Connect, shop: str, role: str
) -> None:
    done = await bos_connect(shop, "--role", role, "--apply")

    assert (done.code, done.problems) == (0, [])
    assert done.allowed == ["customers", "generated", "hostile", "orders"]
    assert "seats: it is a view, and may show rows of what is left out" in done.shown
    assert "secrets: its name looks like secrets" in done.shown
    assert "its name cannot be written in an allow-list" in done.shown
    assert "attempts to write, all refused: 8" in done.shown
    assert "reads of other tables, all refused: 3" in done.shown
    assert PASSWORD not in done.shown
    assert "encrypt=no" in done.settings["BOS_DATABASE_URL"]


async def test_comments_are_values_of_the_file(bos_connect: Connect, shop: str, role: str) -> None:
    drafted = read((await bos_connect(shop, "--role", role)).metadata())

    assert drafted["tables"]["hostile"] == {"description": 'x" # check: nothing metrics: {}'}
    assert drafted["tables"]["customers"]["fields"] == {
        "city": {"description": "Seat of the company"}
    }


@pytest.mark.parametrize(
    ("surplus", "expected"),
    [
        ("GRANT SELECT ON {shop}.* TO '{role}'@'%'", "it has SELECT in database"),
        ("GRANT FILE ON *.* TO '{role}'@'%'", "it has FILE everywhere"),
    ],
)
async def test_rights_that_the_user_had_before_are_taken_from_it(
    bos_connect: Connect,
    shop: str,
    role: str,
    mariadb: MariaDb,
    mariadb_shop: str,
    surplus: str,
    expected: str,
) -> None:
    await mariadb.administer(f"CREATE USER '{role}'@'%'")
    await mariadb.administer(surplus.format(role=role, shop=mariadb_shop))

    refused = await bos_connect(shop, "--role", role, "--apply")
    taken = await bos_connect(shop, "--role", role, "--apply", "--force")

    assert refused.code == 1
    assert f"There is a role {role} already" in refused.shown
    assert (taken.code, taken.problems) == (0, [])
    assert expected not in taken.shown


async def test_a_login_that_is_no_administrator_fails(
    bos_connect: Connect, mariadb: MariaDb, mariadb_shop: str, role: str
) -> None:
    done = await bos_connect(mariadb.url(mariadb_shop), "--role", role, "--apply")

    assert done.code == 1
    assert "is no administrator" in done.shown
    assert not any(name.endswith(".password") for name in done.files())
