"""What `bos doctor` says about audit trails, proxies, connections of users, and cards."""

from pathlib import Path
from typing import Any

import pytest
from google.protobuf.struct_pb2 import Struct

from bos.agent.v1 import AgentCard, SideEffectClass, Tool
from bos_agentkit import agent_card
from bos_client.connection import Connection
from bos_gateway.operator.commands.cards import check_cards, check_connections
from bos_gateway.operator.commands.deployment import Deployment
from bos_gateway.operator.commands.doctor import examine
from bos_gateway.operator.commands.findings import Finding, Level
from bos_gateway.operator.commands.proxies import check_proxies
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


def deployment(dsn: str = "postgresql://x", **more: Any) -> Deployment:
    return Deployment("here", dsn, "", "", {}, "", 1.0, **more)


async def examined(dsn: str, sql: str = "", schema: str = "identity") -> list[Finding]:
    async with connect(dsn, schema=schema) as session:
        if sql:
            await session.execute(sql)
    return await check_trails(deployment(dsn))


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


async def test_changed_missing_and_unreadable_trails_are_reported(
    store: str, empty_postgres_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await examined(store, _ALTER + "DELETE FROM audit_trail WHERE position = 240")
    assert levels(found) == [Level.OK, Level.PROBLEM]
    assert "identity: row 240 missing" in found[1].text
    assert found[1].advice
    assert levels(await check_trails(deployment(empty_postgres_dsn))) == [Level.WARNING]
    monkeypatch.setenv("BOS_IDENTITY_STORE_URL", "postgresql://bos@127.0.0.1:1/none")
    found = await check_trails(deployment(store))
    assert found[-1].level == Level.WARNING
    assert found[-1].advice


@pytest.mark.parametrize(("minutes", "late"), [(4, False), (6, True)])
async def test_doctor_warns_of_unsealed_entries(store: str, minutes: int, late: bool) -> None:
    async with connect(store, schema="gateway") as session:
        await record(session, [AuditEntry("run.asked", "u")] * 2)
    sql = f"UPDATE audit_pending SET occurred_at = now() - interval '{minutes} minutes'"
    found = await examined(store, sql, "gateway")
    assert levels(found) == [Level.WARNING if late else Level.OK, Level.OK]
    assert ("2 entries are not sealed" in found[0].text) is late


PROXY = {"BOS_REST_TRUSTED_PROXIES": "10.0.0.0/8"}


KEYS = {"BOS_AUTH_PROXY_PUBLIC_KEYS": "a key"}


STANDALONE = {"local": Connection("127.0.0.1:1")}


async def test_the_warning_is_in_the_doctors_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BOS_REST_TRUSTED_PROXIES", PROXY["BOS_REST_TRUSTED_PROXIES"])
    found = await examine(deployment("postgresql://127.0.0.1:1/none"))
    assert {"registration", "audit", "store"} <= {each.check for each in found}


def test_doctor_reports_granted_unused_and_missing_connections() -> None:
    asking = {"mail": agent_card("mail", "Mail.", keywords=["mail"], connection_kinds=[KIND])}
    silent = {"mail": agent_card("mail", "Mail.", keywords=["mail"])}
    (found,) = check_cards(asking, "mail", 300.0)
    assert KIND in found.text
    assert "BOS_GATEWAY_AGENT_CONNECTIONS" in found.advice
    (fine,) = check_cards(asking, "mail", 300.0, connections=ALLOWED)
    assert "sane" in fine.text
    (given,) = check_connections(asking, ALLOWED)
    assert (given.level, given.check) == ("ok", "connections of users")
    assert f"mail is given those of a user of the kinds {KIND}" in given.text
    (vain,) = check_connections(silent, ALLOWED)
    assert vain.level == "warning"
    assert "BOS_GATEWAY_AGENT_CONNECTIONS" in vain.advice
    assert check_connections(silent, {}) == []


@pytest.mark.parametrize(
    ("environment", "more", "is_said"),
    [
        (PROXY, {}, True),
        (KEYS, STANDALONE, True),
        ({}, {}, False),
        ({**PROXY, "BOS_IDENTITY_REGISTRATION_OPEN": "false"}, {}, False),
        ({**PROXY, "BOS_SERVER_HOST": "0.0.0.0"}, {}, False),
        ({**PROXY, "BOS_AUTH_ISSUER": "https://login.example.com"}, {}, False),
        ({**PROXY, "BOS_AUTH_ISSUER": "bos-identity"}, {}, True),
        ({**PROXY, "BOS_STANDALONE_HOST": "0.0.0.0"}, STANDALONE, False),
        ({**PROXY, "BOS_AUTH_ISSUER": "https://login.example.com"}, STANDALONE, False),
    ],
)
def test_doctor_warns_where_a_proxy_hides_addresses_of_clients(
    monkeypatch: pytest.MonkeyPatch,
    environment: dict[str, str],
    more: dict[str, Any],
    is_said: bool,
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found = check_proxies(deployment(**more))
    assert [each.level for each in found] == [Level.WARNING] * is_said


KIND = "mail.imap"
ALLOWED = {"mail": [KIND]}


def test_doctor_reports_contradictory_cards() -> None:
    schema = Struct()
    schema.update({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["b"]})
    none = SideEffectClass.SIDE_EFFECT_CLASS_NONE
    tool = Tool(name="look", description="Looks.", input_schema=schema, side_effect=none)
    cards = {
        "one": AgentCard(name="one", description="x", keywords=["x"], aliases=["other"]),
        "two": AgentCard(name="two", description="x", keywords=["x"], aliases=["Other"]),
        "three": AgentCard(name="Three!", description="", tools=[tool, tool]),
    }
    texts = [f.text for f in check_cards(cards, fallback_agent="sql", run_timeout_s=60)]
    for part in (
        'several agents are called "other"',
        'calls itself "Three!"',
        "name: ",
        "description: ",
        "no keywords",
        'several tools are called "look"',
        "requires b",
        '"sql", is not there',
    ):
        assert any(part in text for text in texts), part

    sane = {"one": cards["one"]}
    (finding,) = check_cards(sane, fallback_agent="one", run_timeout_s=60)
    assert finding.level == "ok"
