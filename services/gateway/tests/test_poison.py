"""Runs that keep killing their owners: the count of deaths, and how such a run is ended."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

import asyncpg
import pytest
from gateway_house import House, gateway_process
from leaving import run_under_way

from bos.gateway.v1 import RUN_STATUS_FAILED, RUN_STATUS_SUCCEEDED
from bos.runlog.v1 import LogEvent
from bos_gateway.ownership import Ownership
from bos_gateway.run_log import SCHEMA
from bos_gateway.service import MIGRATIONS
from bos_postgres import migrate, open_database
from bos_testkit.agents import EchoAgent, SlowAgent
from bos_testkit.plans import step

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from bos_gateway.ownership import Adopted

LEASE_S = 1.0
CRASHING = str(Path(__file__).parent / "crashing_gateway.py")


@pytest.fixture
async def pool(postgres_dsn: str) -> AsyncIterator[asyncpg.Pool[asyncpg.Record]]:
    await migrate(postgres_dsn, MIGRATIONS, schema=SCHEMA)
    async with open_database(postgres_dsn, schema=SCHEMA, max_size=4) as opened:
        yield opened


async def insert_run(pool: asyncpg.Pool[asyncpg.Record], owner: UUID) -> UUID:
    run_id = uuid4()
    await pool.execute(
        "INSERT INTO runs (run_id, user_id, request_id, request_digest, question, status, "
        "replica_id) VALUES ($1, 'u', $2, '', '?', 1, $3)",
        run_id,
        str(run_id),
        owner,
    )
    await insert_event(pool, run_id, "run_accepted")
    return run_id


async def insert_event(pool: asyncpg.Pool[asyncpg.Record], run_id: UUID, kind: str) -> None:
    await pool.execute(
        "INSERT INTO run_events (run_id, sequence, event_id, epoch, kind, schema_version, payload, "
        "created_at) SELECT $1, count(*) + 1, $2, 1, $3, 1, '', now() FROM run_events "
        "WHERE run_id = $1",
        run_id,
        uuid4(),
        kind,
    )


async def die(pool: asyncpg.Pool[asyncpg.Record], owner: UUID) -> None:
    await pool.execute(
        "UPDATE replicas SET lease_until = now() - interval '1 ms' WHERE replica_id = $1", owner
    )


async def adopt(adopter: Ownership, limit: int = 9) -> list[Adopted]:
    """Everything there is to be had, suspects last."""
    until, _ = await adopter.take()
    until = until.replace(year=until.year + 1)
    return [
        run
        for suspect in (False, True)
        for run in await adopter.adopt(limit, judge_until=until, suspect=suspect)
    ]


@pytest.mark.parametrize(
    ("story", "deaths"),
    [
        (["dies"], 1),
        (["dies", "dies"], 2),
        pytest.param(["dies", "run_adopted", "step_dispatched", "dies", "dies"], 3, id="again"),
        pytest.param(["dies", "dies", "planned", "dies"], 1, id="gets further"),
        pytest.param(["dies", "dies", "step_finished", "dies", "dies"], 2, id="and no further"),
        pytest.param(["dies", "drains", "dies", "resumes", "dies"], 3, id="drains between deaths"),
        pytest.param(["drains", "drains"], 0, id="drains"),
    ],
)
async def test_deaths_count_until_the_run_gets_further_also_of_owners_that_left_no_event(
    pool: asyncpg.Pool[asyncpg.Record], story: Sequence[str], deaths: int
) -> None:
    owner = Ownership(pool, uuid4(), LEASE_S)
    await owner.take()
    run_id = await insert_run(pool, owner.replica_id)
    counted = 0
    for chapter in story:
        match chapter:
            case "dies" | "drains":
                if chapter == "dies":
                    await die(pool, owner.replica_id)
                else:
                    await owner.release_all()
                owner = Ownership(pool, uuid4(), LEASE_S)
                (taken,) = await adopt(owner)
                counted = taken.deaths
            case "resumes":
                _, (again,) = await owner.take()
                assert again.deaths == 0
            case kind:
                await insert_event(pool, run_id, kind)
    assert counted == deaths


async def test_runs_whose_owners_died_of_late_are_taken_apart_from_the_others(
    pool: asyncpg.Pool[asyncpg.Record],
) -> None:
    first, second = Ownership(pool, uuid4(), LEASE_S), Ownership(pool, uuid4(), LEASE_S)
    await first.take()
    suspect = await insert_run(pool, first.replica_id)
    await die(pool, first.replica_id)
    await adopt(second)
    other = await insert_run(pool, second.replica_id)
    await die(pool, second.replica_id)
    third = Ownership(pool, uuid4(), LEASE_S)
    until, _ = await third.take()
    until = until.replace(year=until.year + 1)
    (bulk,) = await third.adopt(9, judge_until=until)
    (single,) = await third.adopt(1, judge_until=until, suspect=True)
    assert (bulk.run_id, bulk.deaths) == (other, 1)
    assert (single.run_id, single.deaths) == (suspect, 2)


async def killed_by_adoption(house: House, times: int) -> None:
    """Gateways that die one after the other between adopting a run and saying so in its log."""
    for _ in range(times):
        with suppress(json.JSONDecodeError):  # some die before they could say where they listen
            async with gateway_process(
                house, program=(CRASHING, "kill adopt:after"), max_owner_deaths=2
            ) as (process, _):
                await asyncio.wait_for(process.wait(), 30)
    connection = await asyncpg.connect(house.dsn)
    assert await connection.fetchval("SELECT deaths FROM gateway.runs") == times
    await connection.close()


async def kinds_of(house: House, run_id: str) -> list[str]:
    connection = await asyncpg.connect(house.dsn)
    rows = await connection.fetch(
        "SELECT kind FROM gateway.run_events WHERE run_id = $1 ORDER BY sequence", run_id
    )
    await connection.close()
    return [row["kind"] for row in rows]


@pytest.mark.parametrize(
    ("deaths_in_adoption", "outcome", "adoptions"),
    [
        pytest.param(0, RUN_STATUS_SUCCEEDED, 1, id="one death is bad luck"),
        pytest.param(1, RUN_STATUS_FAILED, 1, id="ended with what its log says"),
        pytest.param(2, RUN_STATUS_FAILED, 0, id="ended unread"),
    ],
)
async def test_run_whose_adoption_itself_kills_is_given_up(
    house: House, deaths_in_adoption: int, outcome: int, adoptions: int
) -> None:
    slow = SlowAgent("slow")
    await house.add_agent(slow)
    house.planner.steps = [step("a", "slow")]
    async with gateway_process(house, max_owner_deaths=2) as (process, client):
        run_id = await run_under_way(client, slow)
        process.kill()
        await process.wait()
    await killed_by_adoption(house, deaths_in_adoption)
    assert "run_adopted" not in await kinds_of(house, run_id)
    slow.release.set()
    async with gateway_process(house, max_owner_deaths=2) as (_, client):
        events = await client.watch(run_id)
        house.planner.steps = []
        assert (await client.ask("And others?")).status == RUN_STATUS_SUCCEEDED
    response = events[-1].run_finished.response
    assert response.status == outcome
    assert response.error.type == ("" if outcome == RUN_STATUS_SUCCEEDED else "OwnersDied")
    assert response.answer
    assert (await kinds_of(house, run_id)).count("run_adopted") == adoptions
    assert len(slow.inputs) == (2 if outcome == RUN_STATUS_SUCCEEDED else 1)


@pytest.mark.parametrize(
    ("run_timeout_s", "ended"),
    [pytest.param(3.0, True, id="for long"), pytest.param(60.0, False, id="not yet for long")],
)
async def test_run_whose_log_cannot_be_read_ends_once_that_has_lasted(
    house: House, pool: asyncpg.Pool[asyncpg.Record], run_timeout_s: float, ended: bool
) -> None:
    await house.add_agent(EchoAgent("echo"))
    run_id = await insert_run(pool, uuid4())  # of an owner that is long gone
    await pool.execute("UPDATE run_events SET payload = '\\xff' WHERE run_id = $1", run_id)
    tried = "SELECT epoch > 3 OR finished_at IS NOT NULL FROM runs WHERE run_id = $1"
    last = "SELECT payload FROM run_events WHERE run_id = $1 ORDER BY sequence DESC LIMIT 1"
    if ended:
        tried = "SELECT finished_at IS NOT NULL FROM runs WHERE run_id = $1"
    async with house.gateway(run_timeout_s=run_timeout_s, hold_off_s=0.1) as client:
        async with asyncio.timeout(30):
            while not await pool.fetchval(tried, run_id):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        assert await kinds_of(house, str(run_id)) == ["run_accepted", "run_finished"][: 1 + ended]
        if ended:
            event = LogEvent.FromString(await pool.fetchval(last, run_id))
            assert event.run_finished.response.error.type == "RunUnreadable"
        assert (await client.ask("And others?")).status == RUN_STATUS_SUCCEEDED
