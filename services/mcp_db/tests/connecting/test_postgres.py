"""``bos connect`` with PostgreSQL: the role's script, run, and the role tried."""

import secrets
import stat
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from connect_rig import Connect, read
from mcp_db_rig import call, running

from bos_mcp_db.connecting.roles.postgres import scram_verifier
from bos_mcp_db.connecting.roles.script import role_url
from bos_mcp_db.connecting.roles.trial import try_role
from bos_mcp_db.settings import DatabaseSettings

_SHOP = """
CREATE SCHEMA crm;
CREATE SCHEMA "crm; DROP SCHEMA crm";
CREATE TABLE customers (customer_id integer PRIMARY KEY, name text NOT NULL);
COMMENT ON TABLE customers IS E'Who buys\\n# check: nothing\\nmetrics: {}';
COMMENT ON COLUMN customers.name IS 'As on the "contract": {legal}';
CREATE TABLE orders (
    order_id integer PRIMARY KEY,
    customer_id integer NOT NULL REFERENCES customers (customer_id),
    login_id integer,
    amount numeric(12, 2), twice numeric GENERATED ALWAYS AS (amount * 2) STORED,
    placed_on date
);
CREATE TABLE logins (login_id integer PRIMARY KEY, passwd text);
ALTER TABLE orders ADD FOREIGN KEY (login_id) REFERENCES logins (login_id);
CREATE TABLE crm.accounts (account_id bigint PRIMARY KEY, owner text);
CREATE TABLE crm."Upper Case" (n integer);
CREATE TABLE "crm; DROP SCHEMA crm".t (n integer);
CREATE TABLE "t'; DROP TABLE customers; --" (n integer);
CREATE TABLE parts (n integer) PARTITION BY RANGE (n);
CREATE TABLE parts_one PARTITION OF parts FOR VALUES FROM (1) TO (2);
CREATE MATERIALIZED VIEW seen AS SELECT login_id, passwd AS p FROM logins;
CREATE VIEW seen_again AS SELECT count(p) AS n FROM seen;
CREATE VIEW by_customer AS SELECT customer_id, sum(amount) AS amount FROM orders GROUP BY 1;
INSERT INTO customers VALUES (1, 'Asha');
INSERT INTO orders (order_id, customer_id, amount) VALUES (1, 1, 10);
"""
_ALLOWED = ["crm.Upper Case", "crm.accounts", "by_customer", "customers", "orders", "parts"]


async def administer(url: str, sql: str) -> Any:
    """First value that the statements give."""
    connection = await asyncpg.connect(url)
    try:
        if sql.startswith("SELECT"):
            return await connection.fetchval(sql)
        return await connection.execute(sql)
    finally:
        await connection.close()


@pytest.fixture
async def shop(postgres_dsn: str) -> str:
    await administer(postgres_dsn, _SHOP)
    return postgres_dsn


@pytest.fixture
async def role(shop: str) -> AsyncIterator[str]:
    """Name of a role that is gone with the test: roles are of the whole server."""
    name = f"reader_{secrets.token_hex(4)}"
    yield name
    if await administer(shop, f"SELECT 1 FROM pg_roles WHERE rolname = '{name}'"):
        await administer(shop, f"DROP OWNED BY {name}; DROP ROLE {name}")


async def test_without_apply_nothing_is_changed(bos_connect: Connect, shop: str, role: str) -> None:
    done = await bos_connect(shop, "--role", role)

    assert done.code == 0
    assert done.allowed == _ALLOWED
    for line in (
        "logins: its column 'passwd' looks like a secret",
        "seen: it is a view of logins, which is left out",
        "seen_again: it is a view of logins, which is left out",
    ):
        assert line in done.shown
    drafted = read(done.metadata())
    joined = [join["on"] for join in drafted.get("joins", [])]
    assert not any(join.startswith("orders.") for join in joined), "the database declares that key"
    assert "by_customer.customer_id = customers.customer_id" in joined
    assert "logins" not in str(drafted)
    assert done.files() == {"shop-role.sql", "shop-metadata.yaml"}
    assert not await administer(shop, f"SELECT 1 FROM pg_roles WHERE rolname = '{role}'")


async def test_the_role_reads_by_its_settings(bos_connect: Connect, shop: str, role: str) -> None:
    done = await bos_connect(shop, "--role", role, "--apply")

    assert (done.code, done.problems) == (0, [])
    assert "it reads all 6 tables" in done.shown
    assert "attempts to write, all refused: " in done.shown
    assert "reads of other tables, all refused: 4" in done.shown  # logins, two views, pg_authid
    main = DatabaseSettings(
        url=done.settings["BOS_DATABASE_URL"], allowed_tables=tuple(done.allowed)
    )
    async with running({"main": main}) as (client, _):
        reply = await call(client, "mcp_db_query", query="SELECT sum(amount) AS n FROM orders")
    assert reply["data"] == [[{"$decimal": "10.00"}]]

    # Its password is in a file that only the owner reads.
    path = done.folder / f"shop-{role}.password"
    password = path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert done.settings["BOS_DATABASE_URL"].endswith(f"&password_file={path}")
    others = (done.folder / "shop-role.sql").read_text() + done.metadata() + done.shown
    assert password not in others
    administrator = urlsplit(shop).password
    assert administrator
    assert f":{administrator}@" not in others


async def test_second_run_keeps_the_password(bos_connect: Connect, shop: str, role: str) -> None:
    first = await bos_connect(shop, "--role", role, "--apply")
    password = (first.folder / f"shop-{role}.password").read_text()
    await administer(shop, "CREATE TABLE later (n integer)")

    again = await bos_connect(shop, "--role", role, "--apply", "--force", "--exclude", "parts")

    assert (again.code, again.problems) == (0, [])
    assert (again.folder / f"shop-{role}.password").read_text() == password
    assert "later" in again.allowed
    assert "parts" not in again.allowed


async def test_another_role_is_not_taken_over(bos_connect: Connect, shop: str, role: str) -> None:
    await administer(shop, f"CREATE ROLE {role} LOGIN CREATEDB")

    done = await bos_connect(shop, "--role", role, "--apply")

    assert done.code == 1
    assert f"There is a role {role} already" in done.shown
    assert f"shop-{role}.password" not in done.files()
    kept = f"SELECT rolcreatedb FROM pg_roles WHERE rolname = '{role}'"
    assert await administer(shop, kept)


async def test_second_database_of_a_server_gets_a_role_of_its_own(
    bos_connect: Connect, shop: str, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its files go to a folder that is made; without that folder no run takes a role over."""
    monkeypatch.setattr("bos_mcp_db.connecting.command._ROLE", role)
    await administer(shop, f"CREATE ROLE {role} LOGIN")
    folder = bos_connect.folder / "made" / "deeper"
    path = folder / f"shop-{role}_shop.password"

    done = await bos_connect(shop, "--apply", "--out", str(folder))
    password = path.read_text()
    again = await bos_connect(shop, "--apply", "--force", "--out", str(folder))
    elsewhere = await bos_connect(shop, "--apply", "--force")
    await administer(shop, f"DROP OWNED BY {role}_shop; DROP ROLE {role}_shop")

    assert [(each.code, each.problems) for each in (done, again)] == [(0, [])] * 2
    assert path.read_text() == password
    assert not (folder / f"shop-{role}.password").exists()
    assert elsewhere.code == 1
    assert f"--role {role}_shop --force" in elsewhere.shown


async def test_the_login_of_the_url_is_not_made_reader(bos_connect: Connect, shop: str) -> None:
    done = await bos_connect(shop, "--role", urlsplit(shop).username or "", "--apply", "--force")

    assert done.code == 1
    assert "would lose its rights" in done.shown


@pytest.mark.parametrize(
    ("surplus", "expected"),
    [
        ("GRANT SELECT ON logins TO PUBLIC", "it may read public.logins"),
        ("GRANT INSERT ON customers TO PUBLIC", "it may write to public.customers"),
        ("GRANT UPDATE (name) ON customers TO PUBLIC", "it may write to public.customers"),
        ("GRANT CREATE ON SCHEMA public TO PUBLIC", "it may create tables in schema public"),
        ("GRANT pg_read_all_data TO {role}", "it is a member of pg_read_all_data"),
    ],
)
async def test_every_other_right_of_the_role_is_a_problem(
    bos_connect: Connect, shop: str, role: str, surplus: str, expected: str
) -> None:
    if "{role}" in surplus:
        await administer(shop, f"CREATE ROLE {role}")
    await administer(shop, surplus.format(role=role))

    done = await bos_connect(shop, "--role", role, "--apply", "--force")

    assert done.code == 2
    assert any(line.startswith(expected) for line in done.problems)


async def test_tables_of_extensions_are_left_out(
    bos_connect: Connect, shop: str, role: str
) -> None:
    await administer(shop, "CREATE TABLE statistics (n integer)")
    await administer(shop, "GRANT SELECT ON statistics TO PUBLIC")
    await administer(shop, "ALTER EXTENSION plpgsql ADD TABLE statistics")

    done = await bos_connect(shop, "--role", role, "--apply")

    assert (done.code, done.problems) == (0, [])
    assert "statistics" not in done.allowed


async def test_an_allowed_write_is_a_problem(bos_connect: Connect, shop: str, role: str) -> None:
    done = await bos_connect(shop, "--role", role, "--apply")
    url = done.settings["BOS_DATABASE_URL"]

    (odd,) = [each for each in await try_role(url, done.allowed, ["absent"]) if not each.ok]
    await administer(shop, f"GRANT DELETE ON customers TO {role}")
    found = await try_role(url, ["customers"], [])

    assert odd.text.startswith("absent failed for another reason")
    (problem,) = [each.text for each in found if not each.ok and "not refused" in each.text]
    assert problem.startswith("DELETE")


async def test_names_and_comments_are_values(bos_connect: Connect, shop: str, role: str) -> None:
    done = await bos_connect(shop, "--role", role, "--apply")
    drafted = read(done.metadata())

    assert drafted["tables"]["customers"] == {
        "description": "Who buys # check: nothing metrics: {}",
        "fields": {"name": {"description": 'As on the "contract": {legal}'}},
    }
    script = (done.folder / "shop-role.sql").read_text()
    assert "DROP" not in script
    assert "DROP" not in done.metadata()
    assert await administer(shop, "SELECT count(*) FROM customers") == 1
    assert await administer(shop, "SELECT count(*) FROM crm.accounts") == 0


async def test_only_tables_of_the_schemas_that_were_named(bos_connect: Connect, shop: str) -> None:
    done = await bos_connect(shop, "--schema", "crm")

    assert done.allowed == ["crm.Upper Case", "crm.accounts"]


async def test_weak_administrator_fails(bos_connect: Connect, shop: str, role: str) -> None:
    parts = urlsplit(shop)
    await administer(shop, f"CREATE ROLE {role} LOGIN PASSWORD 'weak'")
    await administer(shop, f"GRANT SELECT (name) ON customers TO {role}")
    weak = parts._replace(netloc=f"{role}:weak@{parts.netloc.rpartition('@')[2]}").geturl()

    done = await bos_connect(weak, "--role", f"{role}_2", "--apply")

    assert done.code == 1
    assert done.allowed == ["customers"]
    assert "The script of the role failed, and changed nothing: permission denied" in done.shown
    assert not any(name.endswith(".password") for name in done.files())


@pytest.mark.parametrize("url", ["postgresql://[half", "shop"])
async def test_what_is_no_url_is_an_error_and_no_trace(bos_connect: Connect, url: str) -> None:
    done = await bos_connect(url)

    assert done.code == 1
    assert done.shown.startswith("Error: ")
    assert "Traceback" not in done.shown


async def test_database_errors_hold_no_address(bos_connect: Connect, shop: str, role: str) -> None:
    parts = urlsplit(shop)
    wrong = shop.replace(f":{parts.password}@", ":wrong-password@")

    done = await bos_connect(wrong, "--role", role)

    assert done.code == 1
    for hidden in ("wrong-password", str(parts.port), "Traceback"):
        assert hidden not in done.shown


def test_the_url_of_the_role_has_only_the_server_in_common(tmp_path: Path) -> None:
    url = (
        "postgresql://admin:s%40cret@db.example:5433/shop?sslmode=verify-full&password=x&user=admin"
        "&sslkey=/admin.key&passfile=/pass"
    )

    made = role_url(url, "bos_reader", tmp_path / "a b.password")

    assert made == (
        "postgresql://bos_reader@db.example:5433/shop?sslmode=verify-full"
        f"&password_file={tmp_path}/a%20b.password"
    )


async def test_the_digest_of_a_password_is_the_servers_own(shop: str, role: str) -> None:
    password = "a-password-of-36-characters-or-nearly"
    await administer(shop, f"CREATE ROLE {role} LOGIN PASSWORD '{scram_verifier(password)}'")

    def as_role(given: str) -> str:
        parts = urlsplit(shop)
        address = parts.netloc.rpartition("@")[2]
        return parts._replace(netloc=f"{role}:{given}@{address}").geturl()

    assert await administer(as_role(password), "SELECT current_user") == role
    with pytest.raises(asyncpg.InvalidPasswordError):
        await administer(as_role("other"), "SELECT 1")
