"""The text of an answer, and runs, as followed on another replica than their owner."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID, uuid4

import pytest
from gateway_harness.answering import Following
from gateway_harness.harness import Client, Harness
from gateway_harness.ownership_rows import insert_run
from gateway_harness.stored import fetch, fetchval
from gateway_harness.streamed import answer_text, cursor, logged, run_under_way, seen_until
from prometheus_client import CollectorRegistry

from bos.gateway.v1 import RUN_STATUS_SUCCEEDED, RunEvent, WatchRunRequest
from bos_gateway.core.public_events import Cursor
from bos_gateway.core.run_state import BrokenLog
from bos_gateway.metrics import GatewayMetrics
from bos_gateway.run_log.maintenance import LOCK, Maintenance
from bos_gateway.run_log.notifications import Answers, Notifications
from bos_gateway.run_log.reader import READER, Look, Runs
from bos_gateway.run_log.session import SCHEMA
from bos_gateway.runs.follow import RunReader
from bos_postgres import connect, open_database
from bos_testkit.agents import SlowAgent
from bos_testkit.waiting import eventually


async def test_answer_text_is_streamed_on_another_replica(harness: Harness) -> None:
    harness.composer.release = asyncio.Event()
    harness.composer.deltas = ["It\0is ", "d\N{SNOWMAN}ne ", "\N{PILE OF POO}."]
    text = "".join(harness.composer.deltas)
    async with harness.gateway() as owner, harness.gateway() as other:
        asked = asyncio.create_task(owner.events(request_id="r"))
        await harness.composer.started.wait()
        run = await fetchval(harness.dsn, "SELECT run_id FROM runs")
        there = watching(other, str(run))
        await eventually(lambda: answer_text(there.events).endswith("."))
        assert answer_text(there.events) == text.replace("\0", "\N{REPLACEMENT CHARACTER}")
        # Coming back here and there gives the rest and nothing twice.
        started = there.events[-1].sequence
        for client in (owner, other):
            back = watching(client, str(run), after_sequence=started, after_offset=4)
            await eventually(lambda b=back: len(b.events) == 1)
            assert (back.events[0].answer_delta.offset, back.events[0].answer_delta.text) == (
                4,
                text[4:],
            )
            back.call.cancel()
        harness.composer.release.set()
        await there.task
        here = await asked
    assert logged(there.events) == logged(here)
    assert answer_text(here) == here[-1].run_finished.response.answer == text


async def test_text_not_followed_elsewhere_is_not_stored(harness: Harness) -> None:
    harness.composer.release = asyncio.Event()
    async with harness.gateway() as owner, harness.gateway():
        seen = await seen_until(owner, "answer_delta")
        here = watching(owner, seen[0].run_id, **cursor(seen))
        assert await fetch(harness.dsn, "SELECT FROM answers") == []
        harness.composer.release.set()
        await here.task
    assert answer_text([*seen, *here.events]) == "It is done."
    assert await fetch(harness.dsn, "SELECT FROM answers") == []


def counted_looks(monkeypatch: pytest.MonkeyPatch) -> list[UUID]:
    """Takes the run of every look from now on."""
    looks: list[UUID] = []
    look = Runs.look

    async def counted(self: Runs, run_id: UUID, *arguments: int) -> Look:
        looks.append(run_id)
        return await look(self, run_id, *arguments)

    monkeypatch.setattr(Runs, "look", counted)
    return looks


def watching(client: Client, run_id: str, **after: int) -> Following:
    return Following(client, call=WatchRunRequest(run_id=run_id, **after))


def _timeless(event: RunEvent) -> RunEvent:
    """The event without its time: what is not in the log is timed where it is shown."""
    copy = RunEvent()
    copy.CopyFrom(event)
    copy.ClearField("create_time")
    return copy


async def test_run_is_read_once_however_many_follow_it(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = counted_looks(monkeypatch)
    slow = await harness.plan(SlowAgent("slow"))
    async with harness.gateway() as owner, harness.gateway() as other:
        run_id = await run_under_way(owner, slow)
        followers = [watching(other, run_id) for _ in range(40)]
        await eventually(lambda: all(f.has("step_started") for f in followers))
        assert len(looks) < len(followers) / 2
        followers[0].call.cancel()
        slow.release.set()
        await asyncio.gather(*(follower.task for follower in followers[1:]))
    assert len(looks) < len(followers) / 2
    expected = [_timeless(event) for event in followers[1].events]
    for follower in followers[1:]:
        assert [_timeless(event) for event in follower.events] == expected
        assert follower.events[-1].run_finished.response.status == RUN_STATUS_SUCCEEDED


async def test_lost_messages_are_made_up_for_by_one_query_for_all_runs(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner's words do not arrive; what it does is found all the same."""
    asked: list[int] = []
    progress = Runs.progress

    async def counted(self: Runs, run_ids: list[UUID]) -> Any:
        asked.append(len(run_ids))
        return await progress(self, run_ids)

    monkeypatch.setattr(Runs, "progress", counted)
    slow = await harness.plan(SlowAgent("slow"))
    async with harness.gateway() as owner, harness.gateway() as other:
        monkeypatch.setattr(
            "bos_gateway.run_log.notifications.Notifications._heard", lambda *_: None
        )
        runs = [await run_under_way(owner, slow) for _ in range(3)]
        followers = [watching(other, run_id) for run_id in runs]
        await eventually(lambda: all(f.has("step_started") for f in followers))
        await eventually(lambda: asked[-1:] == [3])
        slow.release.set()
        await asyncio.gather(*(follower.task for follower in followers))
        await eventually(lambda: not follows())
        count = len(asked)
        assert (await other.ask()).answer
    assert len(asked) == count, "asks about runs that have ended"
    assert all(follower.has("run_finished") for follower in followers)


# What is written, with the statement alone


async def new_run(pool: Any, ended: str = "NULL") -> UUID:
    run_id = await insert_run(pool, uuid4())
    await pool.execute(f"UPDATE runs SET finished_at = {ended} WHERE run_id = $1", run_id)
    return run_id


async def write(pool: Any, writer: Answers, texts: dict[UUID, Any]) -> dict[UUID, str]:
    """What is stored after these were written."""
    for run_id in texts:
        writer.changed(run_id)
    await writer.write(texts.get)
    rows = await pool.fetch("SELECT run_id, text, characters FROM answers")
    assert all(row["characters"] == len(row["text"]) for row in rows)
    return {row["run_id"]: row["text"] for row in rows}


async def test_only_owner_at_its_epoch_writes_and_none_after_end(pool: Any) -> None:
    run, ended = await new_run(pool), await new_run(pool, "now()")
    await pool.execute("UPDATE runs SET epoch = 2 WHERE run_id = $1", run)
    writer = Answers(pool)
    mine, late = (2, 1, 5, "mine"), (1, 1, 5, "late")
    assert await write(pool, writer, {run: mine, ended: late}) == {run: "mine"}
    assert await write(pool, Answers(pool), {run: (1, 1, 5, "void")}) == {run: "mine"}
    # With the next owner it is void, before that has written anything.
    runs = Runs(pool)
    assert (await runs.look(run, 0)).text == "mine"
    assert (await runs.look(run, 0, attempt=1, characters=3)).text == "e"
    await pool.execute("UPDATE runs SET epoch = 3")
    assert (await runs.look(run, 0)).text == ""


async def test_long_text_is_written_seldom_and_holds_up_no_other(pool: Any) -> None:
    long, short = await new_run(pool), await new_run(pool)
    writer = Answers(pool)
    first = "x" * 10_000_000
    texts = {long: (1, 1, 5, first), short: (1, 1, 5, "a")}
    assert await write(pool, writer, texts) == {long: first}  # enough for one statement
    assert await write(pool, writer, {}) == {long: first}
    texts = {long: (1, 1, 5, first + "y"), short: (1, 1, 5, "ab")}
    assert await write(pool, writer, texts) == {long: first, short: "ab"}


async def test_maintenance_deletes_left_over_rows_one_gateway_at_time(
    store: str, pool: Any
) -> None:
    going, ended = await new_run(pool), await new_run(pool)
    old = await new_run(pool, "now() - interval '1 hour'")
    await write(pool, Answers(pool), dict.fromkeys((going, ended), (1, 1, 5, "t")))
    for run in (going, ended, old):
        await pool.execute("INSERT INTO run_inputs VALUES ($1, 'cancel', '', '')", run)
        await pool.execute("INSERT INTO run_secrets VALUES ($1, 'k', '')", run)
    await pool.execute("UPDATE runs SET finished_at = now() WHERE run_id = $1", ended)
    maintenance = Maintenance(pool, None, GatewayMetrics(CollectorRegistry()))

    async def left(table: str) -> set[UUID]:
        return {row["run_id"] for row in await pool.fetch(f"SELECT run_id FROM {table}")}

    async with connect(store, schema=SCHEMA) as other, other.transaction():
        await other.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
        assert not await maintenance.round()
        assert await left("answers") == {going, ended}
    assert not await maintenance.round()
    assert await left("answers") == {going}
    assert await left("run_inputs") == await left("run_secrets") == {going, ended}


async def test_gap_is_a_broken_log(harness: Harness, pool: Any) -> None:
    async with harness.gateway() as gateway:
        run_id = UUID((await gateway.ask()).run_id)
    runs = Runs(pool)
    assert len(await runs.log(run_id)) == len((await runs.look(run_id, 0)).events)
    await pool.execute("DELETE FROM run_events WHERE kind = 'planned'")
    for read in (runs.log(run_id), runs.look(run_id, 0)):
        with pytest.raises(BrokenLog):
            await read


async def test_owner_is_notified_repeatedly_of_followers_of_a_run(
    store: str, pool: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if every look finds more: otherwise it would stop sending text to other replicas."""
    followed: list[UUID] = []
    monkeypatch.setattr(Notifications, "follow", lambda _, run_id: followed.append(run_id))
    async with open_database(store, schema=SCHEMA, role=READER, stateless=True) as readers:
        run, ended = await new_run(pool), await new_run(pool, "now()")
        notifications = Notifications(store, uuid4(), pool)
        reader = RunReader(Runs(pool, readers), notifications, lambda _: None)
        following = [asyncio.create_task(follow(reader, each)) for each in (run, ended)]
        await asyncio.wait_for(following[1], 60)
        await eventually(lambda: followed == [run])
        for _ in range(10):
            await pool.execute("UPDATE runs SET last_sequence = last_sequence + 1")
            await reader.look()
        assert followed == [run] * 3
        following[0].cancel()


async def follow(reader: RunReader, run_id: UUID) -> None:
    async for _ in reader.follow(run_id, Cursor(), "u"):
        pass


def follows() -> bool:
    return any(task.get_name().startswith("follow ") for task in asyncio.all_tasks())


async def test_followers_at_and_beyond_the_end_do_not_affect_one_from_the_beginning(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = counted_looks(monkeypatch)
    slow = await harness.plan(SlowAgent("slow"))
    async with harness.gateway() as owner, harness.gateway() as other:
        seen = await seen_until(owner, "step_started")
        run_id, most = seen[0].run_id, 2**63 - 1
        odd = watching(other, run_id, after_sequence=most, after_offset=most)
        late = watching(other, run_id, after_sequence=seen[-1].sequence)
        await eventually(follows)
        early = watching(other, run_id)
        await eventually(lambda: early.has("step_started"))
        slow.release.set()
        await asyncio.gather(odd.task, late.task, early.task)
        assert await other.watch(run_id, most) == []
    assert logged(early.events) == [*seen, *logged(late.events)]
    assert early.has("run_finished")
    assert odd.has("run_finished")
    assert len(looks) < 30
