import asyncio
import hashlib
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg
import pytest
from attrs import evolve
from hypothesis import given, settings
from hypothesis import strategies as st

from bos_chassis.telemetry import Telemetry
from bos_postgres import acquire, migrate, open_database
from bos_postgres.audit import (
    AUDIT_MIGRATIONS,
    AuditEntry,
    AuditSettings,
    Checkpoint,
    SealedEntry,
    checkpoint,
    drop_older,
    read,
    record,
    running_audit,
    seal,
    verify,
)
from bos_postgres.audit import trail as trail_module
from bos_postgres.audit.chain import next_hash

Pool = asyncpg.Pool
TABLE = "audit_migrations"
LATER = timedelta(days=1)


@pytest.fixture
async def pool(postgres_dsn: str) -> AsyncIterator[Pool]:
    await migrate(postgres_dsn, AUDIT_MIGRATIONS, schema="harness", table=TABLE)
    async with open_database(postgres_dsn, schema="harness", max_size=8) as pool:
        yield pool


def entries(count: int, actor: str = "u1") -> list[AuditEntry]:
    return [AuditEntry("run.asked", actor, target=f"r{n}") for n in range(count)]


async def write(pool: Pool, given: Sequence[AuditEntry]) -> None:
    async with acquire(pool) as session:
        await record(session, given)


async def seal_all(pool: Pool) -> Checkpoint | None:
    end = None
    async with acquire(pool) as session:
        while (sealed := await seal(session)) is not None:
            end = sealed
    return end


async def trail(pool: Pool) -> tuple[Checkpoint, list[SealedEntry]]:
    async with acquire(pool) as session:
        start = await checkpoint(session)
        found: list[SealedEntry] = []
        after = start.position
        while batch := await read(session, after):
            found += batch
            after = batch[-1].position
        return start, found


async def run(pool: Pool, sql: str) -> None:
    async with acquire(pool) as session:
        await session.execute(sql)


async def test_entries_are_sealed_in_order_and_the_chain_holds(pool: Pool) -> None:
    await write(pool, entries(1203))
    end = await seal_all(pool)
    start, sealed = await trail(pool)
    assert start == Checkpoint(0, b"")
    assert [one.position for one in sealed] == list(range(1, 1204))
    assert [one.target for one in sealed] == [f"r{n}" for n in range(1203)]
    assert end == Checkpoint(1203, sealed[-1].hash)
    assert verify(start, sealed) is None
    assert await seal_all(pool) is None


async def test_an_entry_stands_if_and_only_if_its_transaction_does(pool: Pool) -> None:
    async with acquire(pool) as session:
        for actor, end in (("undone", "ROLLBACK"), ("done", "COMMIT")):
            await session.execute("BEGIN")
            await record(session, entries(1, actor))
            await session.execute(end)
    await seal_all(pool)
    _, sealed = await trail(pool)
    assert [one.actor for one in sealed] == ["done"]


async def test_many_that_write_and_seal_at_once_make_one_chain(pool: Pool) -> None:
    async def one(name: str) -> None:
        for entry in entries(20, name):
            await write(pool, [entry])
            async with acquire(pool) as session:
                await seal(session)

    await asyncio.gather(*(one(f"u{n}") for n in range(8)))
    await seal_all(pool)
    start, sealed = await trail(pool)
    assert len(sealed) == 160
    assert verify(start, sealed) is None


async def test_concurrent_sealing_is_left_to_the_first(
    pool: Pool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of an entry that was written first and committed last, the two see nothing in common."""
    monkeypatch.setattr(trail_module, "_BATCH", 1)
    async with acquire(pool) as writer, acquire(pool) as one, acquire(pool) as other:
        late = writer.transaction()
        await late.start()
        await record(writer, entries(1, "late"))
        await write(pool, entries(1, "early"))
        async with one.transaction():  # the place of its entry is not seen yet
            assert await seal(one) is not None
            await late.commit()
            async with asyncio.timeout(60):
                assert await seal(other) is None
    await seal_all(pool)
    start, sealed = await trail(pool)
    assert [entry.actor for entry in sealed] == ["early", "late"]
    assert verify(start, sealed) is None


async def test_sealing_blocks_no_other_replica_or_service(pool: Pool, postgres_dsn: str) -> None:
    """The lock ends with its transaction, also where a session lives on, and is of one trail."""
    await migrate(postgres_dsn, AUDIT_MIGRATIONS, schema="other", table=TABLE)
    async with (
        open_database(postgres_dsn, schema="other") as others,
        acquire(pool) as one,
        acquire(pool) as two,
    ):
        for replica in (one, two):
            await write(pool, entries(1))
            assert await seal(replica) is not None
        await write(pool, entries(1))
        await write(others, entries(1))
        async with one.transaction():
            assert await seal(one) is not None
            async with acquire(others) as other:
                assert await seal(other) is not None


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE audit_trail SET actor = 'nobody' WHERE position = 3",
        "DELETE FROM audit_trail WHERE position = 3",
        "TRUNCATE audit_trail",
    ],
)
async def test_sealed_rows_cannot_be_changed_or_deleted(pool: Pool, statement: str) -> None:
    await write(pool, entries(5))
    await seal_all(pool)
    with pytest.raises(asyncpg.RaiseError, match="append-only"):
        await run(pool, statement)


@pytest.mark.parametrize(
    ("statement", "position"),
    [
        ("UPDATE audit_trail SET actor = 'nobody' WHERE position = 3", 3),
        (
            "UPDATE audit_trail SET occurred_at = occurred_at + interval '1 microsecond'"
            " WHERE position = 3",
            3,
        ),
        ("UPDATE audit_trail SET hash = sha256('x') WHERE position = 3", 3),
        ("DELETE FROM audit_trail WHERE position = 3", 3),
        ("UPDATE audit_checkpoint SET position = 2, hash = sha256('x')", 3),
    ],
)
async def test_who_changes_the_trail_past_the_triggers_is_found(
    pool: Pool, statement: str, position: int
) -> None:
    await write(pool, entries(5))
    await seal_all(pool)
    await run(pool, "ALTER TABLE audit_trail DISABLE TRIGGER USER")
    await run(pool, statement)
    start, sealed = await trail(pool)
    defect = verify(start, sealed)
    assert defect.position == position


async def test_retention_drops_a_prefix_and_the_chain_goes_on(pool: Pool) -> None:
    await write(pool, entries(1100))
    await seal_all(pool)
    before = datetime.now(UTC) + LATER
    async with acquire(pool) as session:
        assert await drop_older(session, datetime.now(UTC) - LATER) == 0
        _, sealed = await trail(pool)
        assert await drop_older(session, sealed[700].occurred_at) == 700
    start, rest = await trail(pool)
    assert start == Checkpoint(700, sealed[699].hash)
    assert rest == sealed[700:]
    assert verify(start, rest) is None
    async with acquire(pool) as session:
        assert await drop_older(session, before) == 400
    await write(pool, entries(3))
    await seal_all(pool)
    start, rest = await trail(pool)
    assert [one.position for one in rest] == [1101, 1102, 1103]
    assert verify(start, rest) is None


async def test_an_old_row_behind_a_young_one_stays(pool: Pool) -> None:
    await write(pool, entries(3))
    await run(
        pool,
        "UPDATE audit_pending SET occurred_at = now() - interval '9 days' WHERE target <> 'r1'",
    )
    await seal_all(pool)
    async with acquire(pool) as session:
        assert await drop_older(session, datetime.now(UTC) - LATER) == 1
    start, rest = await trail(pool)
    assert [one.target for one in rest] == ["r1", "r2"]
    assert verify(start, rest) is None


async def test_background_seals_pending_entries_and_drops_old_ones(pool: Pool) -> None:
    await write(pool, entries(2, "old"))
    await run(pool, "UPDATE audit_pending SET occurred_at = now() - interval '9 days'")
    await seal_all(pool)
    settings = AuditSettings(retention_days=1, seal_s=0.01)
    async with running_audit(pool, settings, Telemetry.for_tests("harness")):
        await write(pool, entries(2, "new"))
        async with asyncio.timeout(60):
            sealed = (await trail(pool))[1]
            while [one.actor for one in sealed] != ["new", "new"]:
                sealed = (await trail(pool))[1]
    assert verify(*await trail(pool)) is None


async def test_hostile_text_is_kept_cut_and_never_refused(pool: Pool) -> None:
    text = "a\0b\ud800" + "x" * 100_000
    entry = AuditEntry(
        "session.refused",
        text,
        target=text,
        address=text,
        details={text: text} | {str(n): "" for n in range(99)},
    )
    await write(pool, [entry])
    await seal_all(pool)
    start, (sealed,) = await trail(pool)
    assert len(sealed.actor) == len(sealed.target) == len(sealed.address) == 256
    assert len(sealed.details) == 16
    assert verify(start, [sealed]) is None


@pytest.mark.parametrize("action", ["asked", "run.Asked", "run.asked.twice", "r" * 99])
def test_an_action_is_a_thing_and_what_was_done(action: str) -> None:
    with pytest.raises(ValueError, match="write it as thing"):
        AuditEntry(action, "u1")


def test_the_hash_is_the_one_that_the_page_describes() -> None:
    at = datetime(2026, 11, 22, 10, 0, 0, 123456, tzinfo=UTC)
    entry = SealedEntry(
        7, at, "ü", "user", "run.asked", "r", "succeeded", "::1", {"b": "2", "a": "1"}, b""
    )
    text = '[7,1795341600123456,"ü","user","run.asked","r","succeeded","::1",{"a":"1","b":"2"}]'
    assert next_hash(b"before", entry) == hashlib.sha256(b"before" + text.encode()).digest()


texts = st.text(max_size=20)
rows = st.tuples(
    texts, texts, texts, texts, texts, texts, st.dictionaries(texts, texts, max_size=3)
)


@given(st.lists(rows, min_size=1, max_size=5), st.data())
@settings(max_examples=200, deadline=None)
def test_no_change_of_any_value_keeps_the_chain(made: list[Any], data: st.DataObject) -> None:
    at, before, sealed = datetime(2026, 1, 1, tzinfo=UTC), b"", []
    for position, row in enumerate(made, 1):
        entry = SealedEntry(position, at, *row, b"")
        before = next_hash(before, entry)
        sealed.append(evolve(entry, hash=before))
    start = Checkpoint(0, b"")
    assert verify(start, sealed) is None
    index = data.draw(st.integers(0, len(sealed) - 1))
    names = ("actor", "actor_kind", "action", "target", "outcome", "address", "details")
    name = data.draw(st.sampled_from(names))
    old = getattr(sealed[index], name)
    strategy = st.dictionaries(texts, texts, max_size=3) if name == "details" else texts
    new = data.draw(strategy.filter(lambda value: value != old))
    sealed[index] = evolve(sealed[index], **{name: new})
    assert verify(start, sealed) is not None
