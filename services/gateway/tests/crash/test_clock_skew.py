"""Hosts whose wall clocks are minutes off: every replica goes by the database's clock."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import asyncpg
import jwt
import pytest
from gateway_harness.disconnects import run_under_way
from gateway_harness.harness import Harness, gateway_process

from bos.gateway.v1 import RUN_STATUS_SUCCEEDED
from bos.runlog.v1 import LogEvent
from bos_chassis.auth.callers import RUN_TOKEN_KEY, RunTokenSigner, generate_keypair
from bos_chassis.telemetry import Telemetry
from bos_gateway.effects.run_tokens import Tokens
from bos_gateway.metrics import GatewayMetrics
from bos_gateway.ownership.clock import DatabaseClock, monotonic
from bos_testkit.agents import EchoAgent, SlowAgent
from bos_testkit.forked import ForkedProcess
from bos_testkit.plans import step
from bos_testkit.waiting import eventually

pytestmark = pytest.mark.crash


SKEWED = str(Path(__file__).parents[1] / "gateway_harness/crash/skewed_gateway.py")
MINUTES = 600.0
# Long enough for a loaded machine to keep it.
LEASE = {"lease_s": 3, "lease_renewal_s": 0.25}
LIMIT = timedelta(seconds=300)
# Round trips of a measurement on a loaded machine; the skew itself is minutes.
DOUBT = timedelta(seconds=5)


def gateway(harness: Harness, skew_s: float) -> Any:
    """A gateway process; at a skew of 0 that of the product as it is."""
    if not skew_s:
        return gateway_process(harness, **LEASE)
    return gateway_process(harness, program=(SKEWED, str(skew_s)), **LEASE)


@asynccontextmanager
async def store(harness: Harness) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    connection = await asyncpg.connect(harness.dsn)
    try:
        yield connection
    finally:
        await connection.close()


async def log_of(harness: Harness, run_id: str) -> list[LogEvent]:
    async with store(harness) as connection:
        rows = await connection.fetch(
            "SELECT payload FROM gateway.run_events WHERE run_id = $1 ORDER BY sequence", run_id
        )
    return [LogEvent.FromString(row["payload"]) for row in rows]


def adoptions(log: list[LogEvent]) -> list[str]:
    return [event.run_adopted.reason for event in log if event.HasField("run_adopted")]


async def database_time(harness: Harness) -> datetime:
    async with store(harness) as connection:
        now: datetime = await connection.fetchval("SELECT clock_timestamp()")
    return now


async def leases_renewed(harness: Harness, seconds: float) -> None:
    """Wait until every replica has kept its lease for so long."""
    async with store(harness) as connection:
        until = await connection.fetchval(
            "SELECT max(lease_until) + make_interval(secs => $1) FROM gateway.replicas", seconds
        )

        async with asyncio.timeout(60):
            while not await connection.fetchval(
                "SELECT min(lease_until) > $1 FROM gateway.replicas", until
            ):
                await connection.execute("SELECT pg_sleep(0.05)")


@pytest.mark.parametrize(("owner_skew_s", "adopter_skew_s"), [(0, MINUTES), (-MINUTES, 0)])
async def test_run_is_handed_over_between_skewed_replicas(
    harness: Harness, owner_skew_s: float, adopter_skew_s: float
) -> None:
    """A run under way when its owner is killed, and what its log says about time."""
    slow = SlowAgent("slow")
    await harness.add_agent(slow)
    harness.planner.steps = [step("a", "slow")]
    began = await database_time(harness)
    async with (
        gateway(harness, owner_skew_s) as (process, owner),
        gateway(harness, adopter_skew_s) as (_, adopter),
    ):
        run_id = await run_under_way(owner, slow)
        await leases_renewed(harness, LEASE["lease_s"])
        assert not adoptions(await log_of(harness, run_id))
        await killed(process)
        await eventually(lambda: len(slow.inputs) == 2)
        slow.release.set()
        events = await adopter.watch(run_id)
    ended = await database_time(harness)
    assert events[-1].run_finished.response.status == RUN_STATUS_SUCCEEDED
    log = await log_of(harness, run_id)
    assert adoptions(log) == ["lease_expired"]
    times = [event.create_time.ToDatetime(tzinfo=UTC) for event in log]
    assert began - DOUBT <= min(times)
    assert max(times) <= ended + DOUBT
    accepted = log[0].run_accepted
    assert accepted.deadline.ToDatetime(tzinfo=UTC) - times[0] == LIMIT
    now = datetime.fromisoformat(accepted.request.context["current_datetime_utc"])
    assert now == times[0]
    async with store(harness) as connection:
        created = await connection.fetchval(
            "SELECT created_at FROM gateway.runs WHERE run_id = $1", run_id
        )
    assert began - DOUBT <= created <= ended + DOUBT


async def killed(process: ForkedProcess) -> None:
    process.kill()
    await process.wait()


async def test_run_at_a_skewed_replica_has_its_whole_time_and_no_more(harness: Harness) -> None:
    slow, echo = SlowAgent("slow"), EchoAgent("echo")
    await harness.add_agent(slow)
    await harness.add_agent(echo)
    harness.planner.steps = [step("a", "slow")]
    limit = timedelta(seconds=2)
    async with gateway(harness, MINUTES) as (_, client):
        sent = monotonic()
        late = await client.ask(timeout=limit)
        took_s = monotonic() - sent
        harness.planner.steps = [step("a", "echo")]
        in_time = await client.ask(timeout=timedelta(seconds=60))
    (result,) = late.agent_results
    assert result.error.type == "DeadlineExceeded"
    assert took_s >= 1, "ended before its time"
    assert in_time.status == RUN_STATUS_SUCCEEDED


def clock_of(wall_clock: Callable[[], float]) -> tuple[DatabaseClock, Telemetry]:
    telemetry = Telemetry.for_tests("clock")
    return DatabaseClock(telemetry, GatewayMetrics(telemetry.registry), wall_clock), telemetry


def read_at(monotonic_s: float, offset_s: float) -> datetime:
    """What a database says whose clock is ahead of our monotonic one."""
    return datetime.fromtimestamp(monotonic_s + offset_s, UTC)


def check_offset(clock: DatabaseClock, offset_s: float, doubt_s: float = 1e-4) -> None:
    before = monotonic()
    read = clock.now().timestamp()
    after = monotonic()
    assert before + offset_s - doubt_s <= read <= after + offset_s + doubt_s


def test_until_the_first_measurement_the_wall_clock_counts() -> None:
    clock, _ = clock_of(lambda: 1e9)
    assert clock.now() == datetime.fromtimestamp(1e9, UTC)
    clock.measured(10.0, 10.2, read_at(10.1, 5e8))
    check_offset(clock, 5e8)


def test_fastest_clock_measurement_counts_until_it_is_old() -> None:
    clock, _ = clock_of(lambda: 0.0)
    clock.measured(10.0, 10.01, read_at(10.005, 1e9))
    clock.measured(20.0, 23.0, read_at(20.001, 1e9))  # slow on the way back: taken for 1.5 s less
    check_offset(clock, 1e9)
    for turn in range(16):
        clock.measured(30.0 + turn, 30.4 + turn, read_at(30.3 + turn, 1e9))
    check_offset(clock, 1e9 + 0.1)


@pytest.mark.parametrize("jump_s", [-3600.0])
def test_database_whose_own_clock_was_set_is_believed_at_once(jump_s: float) -> None:
    clock, _ = clock_of(lambda: 0.0)
    clock.measured(10.0, 10.01, read_at(10.005, 1e9))
    check_offset(clock, 1e9)
    clock.measured(11.0, 11.5, read_at(11.25, 1e9 + jump_s))
    check_offset(clock, 1e9 + jump_s)


def test_better_measurements_do_not_turn_time_back() -> None:
    clock, _ = clock_of(lambda: 0.0)
    clock.measured(10.0, 11.0, read_at(10.0, 1e9))
    read = clock.now()
    clock.measured(12.0, 12.01, read_at(12.005, 1e9 - 0.3))
    assert clock.now() >= read


@pytest.mark.parametrize(("ahead_s", "warned"), [(1.5, True), (-90.0, True), (0.5, False)])
def test_wall_clock_that_is_off_is_measured_and_warned_of_once(
    ahead_s: float, warned: bool
) -> None:
    clock, telemetry = clock_of(lambda: monotonic() + 1e9 + ahead_s)
    for turn in range(3):
        clock.measured(10.0 + turn, 10.01 + turn, read_at(10.005 + turn, 1e9))
    measured = telemetry.registry.get_sample_value("bos_clock_offset_seconds")
    assert measured == pytest.approx(ahead_s, abs=0.1)
    assert [entry["log_level"] for entry in telemetry.logs] == ["warning"] * warned


def test_tokens_are_minted_by_the_databases_time() -> None:
    clock, _ = clock_of(lambda: 1e9)
    clock.measured(10.0, 10.01, read_at(10.005, 2e9))
    private, _ = generate_keypair()
    tokens = Tokens(RunTokenSigner(private, clock.timestamp))
    ((key, token),) = tokens.metadata("u", "r", "", ["sql"], 10.0)
    assert key == RUN_TOKEN_KEY
    claims = jwt.decode(token, options={"verify_signature": False})
    assert claims["iat"] == pytest.approx(monotonic() + 2e9, abs=60)
