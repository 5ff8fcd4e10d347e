"""``bos audit`` against real trails."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from bos_gateway.operator.commands.audit import audit
from bos_postgres import connect, create_database, drop_database, with_database
from bos_postgres.audit import AuditEntry, migrate_audit, record, seal
from bos_testkit.postgres import PostgresServer

COUNT = 700


async def command(dsn: str, *arguments: str) -> Result:
    env = {"BOS_AUDIT_STORE_URLS": dsn}
    return await asyncio.to_thread(CliRunner().invoke, audit, arguments, env=env)


async def statement(dsn: str, schema: str, sql: str) -> None:
    async with connect(dsn, schema=schema) as session:
        await session.execute(sql)


def parsed(path: Path) -> list[Any]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
async def store(postgres_dsn: str) -> str:
    """A database with the trails of two services."""
    for schema in ("gateway", "identity"):
        await migrate_audit(postgres_dsn, schema=schema)
        entries = [AuditEntry("run.asked", f"u{n % 2}", target=str(n)) for n in range(COUNT)]
        async with connect(postgres_dsn, schema=schema) as session:
            await record(session, entries)
            while await seal(session):
                pass
    return postgres_dsn


@pytest.fixture
async def exported(store: str, tmp_path: Path) -> Path:
    path = tmp_path / "export.jsonl"
    path.write_text((await command(store, "export")).stdout)
    return path


async def test_an_export_holds_every_row_and_whole_trails_are_whole(
    store: str, exported: Path
) -> None:
    rows = parsed(exported)
    for service in ("gateway", "identity"):
        first, *entries = [row for row in rows if row["service"] == service]
        assert first == {"service": service, "checkpoint": 0, "hash": ""}
        assert [row["position"] for row in entries] == list(range(1, COUNT + 1))
    of_one = (await command(store, "export", "--user", "u1")).stdout.splitlines()
    actors = {json.loads(line).get("actor") for line in of_one}
    assert actors == {None, "u1"}
    assert len(of_one) == 2 + COUNT
    for arguments in ((), ("--against", str(exported))):
        result = await command(store, "verify", *arguments)
        assert result.exit_code == 0, result.output
        assert result.stdout.splitlines() == [
            f"{service}: {COUNT} rows, whole, up to {COUNT}" for service in ("gateway", "identity")
        ]


async def test_a_broken_chain_is_found_and_named(store: str) -> None:
    await statement(store, "identity", "ALTER TABLE audit_trail DISABLE TRIGGER USER")
    await statement(store, "identity", "DELETE FROM audit_trail WHERE position = 600")
    result = await command(store, "verify")
    assert result.exit_code == 1
    assert "row 600 missing" in result.stdout
    assert f"gateway: {COUNT} rows, whole" in result.stdout


@pytest.mark.parametrize(
    ("sql", "finding"),
    [
        ("TRUNCATE audit_trail", "the trail ends at 0"),
        (
            "UPDATE audit_checkpoint SET position = 700, hash = sha256('x');TRUNCATE audit_trail",
            "the checkpoint at 700 is not the row of the export",
        ),
        ("DROP TABLE audit_trail", "identity (no trail any more)"),
    ],
)
async def test_a_cut_off_end_is_found_by_an_earlier_export(
    store: str, exported: Path, sql: str, finding: str
) -> None:
    await statement(store, "identity", "ALTER TABLE audit_trail DISABLE TRIGGER USER")
    await statement(store, "identity", sql)
    result = await command(store, "verify", "--against", str(exported))
    assert result.exit_code == 1
    assert finding in result.output


async def test_rows_that_retention_dropped_are_not_missed(store: str, exported: Path) -> None:
    take = "SELECT position, hash FROM audit_trail WHERE position = 300"
    sql = f"UPDATE audit_checkpoint SET (position, hash) = ({take})"
    await statement(store, "identity", sql)
    await statement(store, "identity", "DELETE FROM audit_trail WHERE position <= 300")
    result = await command(store, "verify", "--against", str(exported))
    assert result.exit_code == 0, result.output
    assert "identity: 400 rows, whole, up to 700" in result.stdout


async def test_audit_reads_databases_of_all_services_once_each(
    store: str, postgres_server: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Services may share a database, and two databases may have a schema of one name."""
    for name in ("GATEWAY", "IDENTITY", "MEMORY", "DOCUMENTS", "FILES"):
        monkeypatch.setenv(f"BOS_{name}_STORE_URL", store)
    monkeypatch.setenv("BOS_IDENTITY_STORE_URL", f"{store}&application_name=x")
    result = await asyncio.to_thread(CliRunner().invoke, audit, ["verify"])
    assert result.exit_code == 0, result.output
    whole = [
        f"{service}: {COUNT} rows, whole, up to {COUNT}" for service in ("gateway", "identity")
    ]
    assert result.stdout.splitlines() == whole
    await create_database(postgres_server.dsn(), "audit_elsewhere")
    elsewhere = with_database(store, "audit_elsewhere")
    try:
        await migrate_audit(elsewhere, schema="gateway")
        monkeypatch.setenv("BOS_DOCUMENTS_STORE_URL", elsewhere)
        result = await asyncio.to_thread(CliRunner().invoke, audit, ["verify"])
    finally:
        await drop_database(postgres_server.dsn(), "audit_elsewhere")
    assert result.stdout.splitlines() == [
        *whole,
        "gateway@audit_elsewhere: 0 rows, whole, up to 0",
    ]


async def test_what_is_no_export_and_store_without_trails_are_said_so(
    store: str, tmp_path: Path
) -> None:
    path = tmp_path / "other.txt"
    path.write_text('{"service": "gateway"}\n')
    result: Any = await command(store, "verify", "--against", str(path))
    assert "Line 1 of the file" in result.output
    for schema in ("gateway", "identity"):
        await statement(store, schema, "DROP TABLE audit_trail")
    result = await command(store, "verify")
    assert result.exit_code == 1
    assert "no audit trail" in result.output
