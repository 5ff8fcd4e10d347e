"""Hosts whose wall clocks are minutes off: every replica goes by the database's clock."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import jwt
import pytest
from gateway_harness.harness import Harness, gateway_process
from gateway_harness.stored import adoptions, fetchval, log_of, until
from gateway_harness.streamed import run_under_way

from bos.gateway.v1 import RUN_STATUS_SUCCEEDED
from bos_chassis.auth.callers import RUN_TOKEN_KEY, RunTokenSigner, generate_keypair
from bos_chassis.telemetry import Telemetry
from bos_gateway.effects.run_tokens import Tokens
from bos_gateway.metrics import GatewayMetrics
from bos_gateway.ownership.clock import DatabaseClock
from bos_testkit.agents import SlowAgent
from bos_testkit.waiting import eventually

pytestmark = pytest.mark.crash

SKEWED = str(Path(__file__).parents[1] / "gateway_harness/crash/skewed_gateway.py")
BEHIND, AHEAD = (SKEWED, "-600"), (SKEWED, "600")
LIMIT = timedelta(seconds=300)
# Round trips of a measurement on a loaded machine; the skew itself is ten minutes.
DOUBT = timedelta(minutes=1)


async def test_run_is_handed_over_between_skewed_replicas(harness: Harness) -> None:
    """A run under way when its owner is killed, and what its log says about time."""
    slow, dsn = await harness.plan(SlowAgent("slow")), harness.dsn
    began = await fetchval(dsn, "SELECT clock_timestamp()")
    async with (
        gateway_process(harness, program=BEHIND) as (process, owner),
        gateway_process(harness, program=AHEAD) as (_, adopter),
    ):
        run_id = await run_under_way(owner, slow)
        # Each keeps its lease for as long as one lives, and takes nothing from the other.
        last = await fetchval(dsn, "SELECT max(lease_until) + interval '3 s' FROM replicas")
        await until(dsn, "min(lease_until) > $1 FROM replicas", last)
        assert not adoptions(await log_of(dsn))
        process.kill()
        await eventually(lambda: len(slow.inputs) == 2)
        slow.release.set()
        events = await adopter.watch(run_id)
    ended = await fetchval(dsn, "SELECT clock_timestamp()")
    assert events[-1].run_finished.response.status == RUN_STATUS_SUCCEEDED
    log = await log_of(dsn)
    assert adoptions(log) == {"lease_expired": 1}
    times = [event.create_time.ToDatetime(tzinfo=UTC) for event in log]
    accepted = log[0].run_accepted
    assert accepted.deadline.ToDatetime(tzinfo=UTC) - times[0] == LIMIT
    now = datetime.fromisoformat(accepted.request.context["current_datetime_utc"])
    assert now == times[0]
    times.append(await fetchval(dsn, "SELECT created_at FROM runs"))
    assert began - DOUBT <= min(times)
    assert max(times) <= ended + DOUBT


async def test_run_at_a_replica_that_is_behind_ends_at_its_deadline(harness: Harness) -> None:
    await harness.plan(SlowAgent("slow"))
    async with gateway_process(harness, program=BEHIND) as (_, client):
        late = await client.ask(timeout=timedelta(seconds=2))
    (result,) = late.agent_results
    assert result.error.type == "DeadlineExceeded"


class Monotonic:
    """A monotonic clock that stands still."""

    s = 100.0


@pytest.fixture
def monotonic(monkeypatch: pytest.MonkeyPatch) -> Monotonic:
    found = Monotonic()
    monkeypatch.setattr("bos_gateway.ownership.clock.monotonic", lambda: found.s)
    return found


def clock_of(wall_clock: Callable[[], float] = lambda: 0.0) -> tuple[DatabaseClock, Telemetry]:
    telemetry = Telemetry.for_tests("clock")
    return DatabaseClock(telemetry, GatewayMetrics(telemetry.registry), wall_clock), telemetry


def measure(clock: DatabaseClock, sent: float, received: float, read: float) -> None:
    """The database said ``read``, by the monotonic clock, when its own was at that and 1e9 more."""
    clock.measured(sent, received, datetime.fromtimestamp(read + 1e9, UTC))


FAST, SLOW_ANSWER = (10.0, 10.01, 10.005), (20.0, 23.0, 20.001)  # the latter looks 1.5 s less
LATER = [(30.0 + turn, 30.4 + turn, 30.3 + turn) for turn in range(16)]


@pytest.mark.parametrize(
    ("measurements", "offset_s"),
    [
        pytest.param([(10.0, 10.2, 10.1)], 0.0, id="first"),
        pytest.param([FAST, SLOW_ANSWER], 0.0, id="the fastest counts"),
        pytest.param([FAST, SLOW_ANSWER, *LATER], 0.1, id="until it is old"),
        pytest.param([FAST, (11.0, 11.5, 11.25 - 3600)], -3600.0, id="the database's was set"),
    ],
)
def test_time_is_the_databases_by_the_best_measurement(
    measurements: list[tuple[float, float, float]], offset_s: float, monotonic: Monotonic
) -> None:
    clock, _ = clock_of(lambda: 7.0)
    assert clock.now() == datetime.fromtimestamp(7.0, UTC), "the wall clock's to begin with"
    for each in measurements:
        measure(clock, *each)
    assert clock.timestamp() == pytest.approx(monotonic.s + 1e9 + offset_s, rel=0, abs=1e-4)


@pytest.mark.usefixtures("monotonic")
def test_better_measurements_do_not_turn_time_back() -> None:
    clock, _ = clock_of()
    measure(clock, 10.0, 11.0, 10.0)
    read = clock.now()
    measure(clock, 12.0, 12.01, 12.005 - 0.9)
    assert clock.now() == read


@pytest.mark.parametrize(("ahead_s", "warned"), [(1.5, True), (-90.0, True), (0.5, False)])
def test_wall_clock_that_is_off_is_measured_and_warned_of_once(
    ahead_s: float, warned: bool, monotonic: Monotonic
) -> None:
    clock, telemetry = clock_of(lambda: monotonic.s + 1e9 + ahead_s)
    for turn in range(3):
        measure(clock, 10.0 + turn, 10.01 + turn, 10.005 + turn)
    measured = telemetry.registry.get_sample_value("bos_clock_offset_seconds")
    assert measured == pytest.approx(ahead_s, abs=1e-4)
    assert [entry["log_level"] for entry in telemetry.logs] == ["warning"] * warned


def test_tokens_are_minted_by_the_databases_time(monotonic: Monotonic) -> None:
    clock, _ = clock_of()
    measure(clock, *FAST)
    private, _ = generate_keypair()
    tokens = Tokens(RunTokenSigner(private, clock.timestamp))
    ((key, token),) = tokens.metadata("u", "r", "", ["sql"], 10.0)
    assert key == RUN_TOKEN_KEY
    claims = jwt.decode(token, options={"verify_signature": False})
    assert claims["iat"] == pytest.approx(monotonic.s + 1e9, rel=0, abs=2)
