"""Refusals in the audit trail: counted per minute, bounded, and never waited for."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import asyncpg
import pytest
from pydantic import BaseModel, Field, SecretStr

from bos_chassis.auth.callers import LOCAL_USER, Principal
from bos_chassis.telemetry import Telemetry
from bos_postgres import acquire, open_database
from bos_postgres.audit import (
    By,
    Refusals,
    deed,
    migrate_audit,
    record,
    record_settings,
    settings_entry,
    unauthenticated,
)
from bos_postgres.audit.refusals import MOST_AT_ONCE

Pool = asyncpg.Pool
SECRET = "planted-secret"


class Part(BaseModel):
    port: int = 0


class Given(BaseModel):
    store_url: str
    part: Part = Field(default_factory=Part)
    names: tuple[str, ...] = ()
    limits: dict[str, int] = Field(default_factory=dict)
    key: SecretStr | None = None


@pytest.fixture
async def pool(postgres_dsn: str) -> AsyncIterator[Pool]:
    await migrate_audit(postgres_dsn, schema="harness")
    async with open_database(postgres_dsn, schema="harness", max_size=4) as pool:
        yield pool


async def rows(pool: Pool) -> list[dict[str, Any]]:
    async with acquire(pool) as session:
        found = await session.fetch("SELECT * FROM audit_pending ORDER BY entry_id")
    return [{**row, "details": json.loads(row["details"])} for row in found]


async def until_written(pool: Pool, count: int) -> list[dict[str, Any]]:
    async with asyncio.timeout(60):
        while len(found := await rows(pool)) < count:  # noqa: ASYNC110  Nothing sets an event.
            await asyncio.sleep(0.001)
    return found


async def test_flood_of_refusals_makes_two_rows(pool: Pool) -> None:
    telemetry = Telemetry.for_tests("harness")
    refusals = Refusals(pool, telemetry)
    entry = unauthenticated("203.0.113.7").entry("session.refused", outcome="refused")
    async with refusals.running():
        refusals.count(entry)
        await until_written(pool, 1)
        for _ in range(10_000):
            refusals.count(entry)
    first, rest = await rows(pool)
    assert first["details"] == {"count": "1"}
    assert rest["details"] == {"count": "10000"}
    assert (rest["address"], rest["outcome"]) == ("203.0.113.7", "refused")


async def test_writer_that_ends_behind_its_commit_writes_nothing_twice(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed, may_go_on = asyncio.Event(), asyncio.Event()

    async def slow(session: Any, entries: Any) -> None:
        await record(session, entries)
        committed.set()
        await may_go_on.wait()

    monkeypatch.setattr("bos_postgres.audit.refusals.record", slow)
    refusals = Refusals(pool, Telemetry.for_tests("harness"))
    async with refusals.running():
        refusals.count(unauthenticated().entry("a.b"))
        await committed.wait()
        asyncio.get_running_loop().call_soon(may_go_on.set)
    assert [each["details"] for each in await rows(pool)] == [{"count": "1"}]


async def test_refusal_is_written_once_minute(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    refusals = Refusals(pool, Telemetry.for_tests("harness"))
    for _ in range(3):
        refusals.count(unauthenticated().entry("a.b"))
        await refusals._write(all_of_it=False)
    assert len(await rows(pool)) == 1
    await refusals._write(all_of_it=True)
    assert [each["details"]["count"] for each in await rows(pool)] == ["1", "2"]
    monkeypatch.setattr("bos_postgres.audit.refusals._WINDOW_S", 0.0)
    refusals.count(unauthenticated().entry("a.b"))
    await refusals._write(all_of_it=True)
    assert refusals._counted
    await refusals._write(all_of_it=False)
    assert not refusals._counted, "what is not refused any more takes no place"


async def test_rows_of_refusals_are_bounded_and_all_counted(pool: Pool) -> None:
    refusals = Refusals(pool, Telemetry.for_tests("harness"))
    async with refusals.running():
        for number in range(5000):
            refusals.count(unauthenticated(f"10.0.{number // 250}.{number % 250}").entry("a.b"))
    found = await rows(pool)
    assert len(found) == MOST_AT_ONCE + 1
    assert sum(int(each["details"]["count"]) for each in found) == 5000
    assert found[-1]["address"] == ""


async def test_refusals_are_kept_while_the_database_refuses(pool: Pool) -> None:
    telemetry = Telemetry.for_tests("harness")
    refusals = Refusals(pool, telemetry)
    async with acquire(pool) as session:
        await session.execute("ALTER TABLE audit_pending RENAME TO away")
        async with refusals.running():
            refusals.count(unauthenticated().entry("a.b"))
            async with asyncio.timeout(60):
                while not telemetry.logs:  # noqa: ASYNC110  Nothing sets an event.
                    await asyncio.sleep(0.001)
            await session.execute("ALTER TABLE away RENAME TO audit_pending")
    (found,) = await rows(pool)
    assert found["details"] == {"count": "1"}


async def test_a_deed_and_its_entry_stand_together_or_not_at_all(pool: Pool) -> None:
    async with deed(pool) as session:
        await session.execute("CREATE TABLE done ()")
        await record(session, [By("u").entry("table.made")])

    async def fails() -> None:
        async with deed(pool) as session:
            await record(session, [By("u").entry("table.dropped")])
            await session.execute("DROP TABLE done")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fails()
    assert [each["action"] for each in await rows(pool)] == ["table.made"]


@pytest.mark.parametrize(
    ("kind", "recorded"),
    [
        ("user_token", ("u", "user", "")),
        ("api_key", ("k", "api_key", "u")),
        ("run_token", ("u", "service", "")),
    ],
)
def test_actor_is_named_by_what_it_called_with(kind: Any, recorded: tuple[str, str, str]) -> None:
    by = By.of(Principal("u", "", "", kind, session_id="k"), "203.0.113.7")
    assert (by.actor, by.kind, by.user, by.address) == (*recorded, "203.0.113.7")
    assert By.of(None).actor == LOCAL_USER


async def test_changed_settings_are_recorded_without_secrets(pool: Pool) -> None:
    def given(password: str = SECRET, **more: Any) -> Given:
        return Given(store_url=f"postgresql://ada:{password}@host/db?password={password}", **more)

    for settings in (
        given(),
        given(),
        given(password="another"),
        given(part=Part(port=5), limits={"a": 1}, key=SecretStr(SECRET)),
        given(part=Part(port=5), limits={"a": 2}, key=SecretStr(SECRET)),
        given(),
    ):
        await record_settings(pool, "harness", settings)
    found = await rows(pool)
    assert [each["details"]["changed_01"] for each in found] == [
        "store_url",
        "key limits part.port store_url",
        "key limits part.port store_url",
        "store_url",
    ]
    assert found[0]["details"]["digest"] == found[3]["details"]["digest"]
    assert len({each["details"]["digest"] for each in found}) == 3
    assert SECRET not in str(found)
    assert (found[0]["actor"], found[0]["actor_kind"]) == ("harness", "service")


def test_many_changed_settings_fit_into_an_entry() -> None:
    fields = {f"a_setting_of_some_length_{number:03}": (int, 0) for number in range(300)}
    many = type(
        "Many",
        (BaseModel,),
        {
            "__annotations__": {name: kind for name, (kind, _) in fields.items()},
            **{name: default for name, (_, default) in fields.items()},
        },
    )
    entry = settings_entry("harness", many(**dict.fromkeys(fields, 1)))
    assert all(len(value) <= 256 for value in entry.details.values())
    assert entry.details["digest"].startswith("sha256:")
    assert "a_setting_of_some_length_000" in entry.details["changed_01"]
