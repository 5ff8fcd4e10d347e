"""`bos doctor` about audit trails."""

from pathlib import Path
from typing import Any

import pytest

from bos_gateway.operator.commands.deployment import Deployment
from bos_gateway.operator.commands.findings import Finding, Level
from bos_gateway.operator.commands.trails import check_trails
from bos_postgres import connect
from bos_postgres.audit import AuditEntry, drop_older, migrate_audit, record, seal

SEALED = 250
SCHEMAS = ("gateway", "identity")
_ALTER = "ALTER TABLE audit_trail DISABLE TRIGGER USER;"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("GATEWAY", "IDENTITY", "MEMORY"):
        monkeypatch.delenv(f"BOS_{name}_STORE_URL", raising=False)


@pytest.fixture
async def store(postgres_dsn: str) -> str:
    """A database with the trails of two services, longer than what is looked at."""
    for schema in SCHEMAS:
        await migrate_audit(postgres_dsn, schema=schema)
        async with connect(postgres_dsn, schema=schema) as session:
            for _ in range(2):
                await record(session, [AuditEntry("run.asked", "u")] * (SEALED // 2))
                assert await seal(session)
    return postgres_dsn


async def examined(dsn: str, sql: str = "", schema: str = "identity") -> list[Finding]:
    async with connect(dsn, schema=schema) as session:
        if sql:
            await session.execute(sql)
    return await check_trails(Deployment("here", dsn, "", "", {}, "", 1.0))


def levels(findings: list[Finding]) -> list[Level]:
    assert {each.check for each in findings} == {"audit"}
    return [each.level for each in findings]


async def test_whole_trails_that_are_sealed_are_well(store: str) -> None:
    assert levels(await examined(store)) == [Level.OK, Level.OK]
    # Also with entries that wait for a moment, behind a checkpoint, and with nothing at all.
    for schema in SCHEMAS:
        async with connect(store, schema=schema) as session:
            await record(session, [AuditEntry("run.asked", "u")])
            (young,) = await session.fetch("SELECT now() + interval '1 day' AS at")
            sql = "UPDATE audit_checkpoint SET (position, hash) = (SELECT position, hash FROM "
            await session.execute(f"{sql} audit_trail WHERE position = 200)")
    assert levels(await examined(store)) == [Level.OK, Level.OK]
    async with connect(store, schema="identity") as session:
        assert await drop_older(session, young["at"]) == SEALED
    assert levels(await examined(store)) == [Level.OK, Level.OK]


@pytest.mark.parametrize(
    ("sql", "finding"),
    [
        ("UPDATE audit_trail SET actor = 'x' WHERE position = 51", "row 51 changed"),
        ("DELETE FROM audit_trail WHERE position = 240", "row 240 missing"),
    ],
)
async def test_a_trail_that_was_changed_near_its_end_is_a_problem(
    store: str, sql: str, finding: str
) -> None:
    found = await examined(store, _ALTER + sql)
    assert levels(found) == [Level.OK, Level.PROBLEM]
    assert f"identity: {finding}" in found[1].text
    assert found[1].advice


@pytest.mark.parametrize(("minutes", "late"), [(4, False), (6, True)])
async def test_doctor_warns_of_unsealed_entries(store: str, minutes: int, late: bool) -> None:
    async with connect(store, schema="gateway") as session:
        await record(session, [AuditEntry("run.asked", "u")] * 2)
    sql = f"UPDATE audit_pending SET occurred_at = now() - interval '{minutes} minutes'"
    found = await examined(store, sql, "gateway")
    assert levels(found) == [Level.WARNING if late else Level.OK, Level.OK]
    assert ("2 entries are not sealed" in found[0].text) is late


async def test_doctor_checks_named_databases_of_other_services(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BOS_IDENTITY_STORE_URL", "postgresql://bos@127.0.0.1:1/none")
    found: list[Any] = await examined(store)
    assert levels(found) == [Level.OK, Level.OK, Level.WARNING]
    assert found[2].advice


async def test_a_database_without_trails_is_warned_about(empty_postgres_dsn: str) -> None:
    found = await check_trails(Deployment("here", empty_postgres_dsn, "", "", {}, "", 1.0))
    assert levels(found) == [Level.WARNING]
