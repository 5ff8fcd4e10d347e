"""PostgreSQL crashes under the gateway: what was acknowledged comes back, and runs go on."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import pytest
from gateway_harness.crash.crashing_postgres import CrashingPostgres, crashing_postgres
from gateway_harness.harness import Harness, open_harness
from gateway_harness.postgres_proxy import postgres_proxy
from gateway_harness.streamed import logged
from prometheus_client import CollectorRegistry

from bos.gateway.v1 import RUN_STATUS_SUCCEEDED, RunEvent
from bos.runlog.v1 import LogEvent, RunAccepted, StepProgressed
from bos_chassis.telemetry import Telemetry
from bos_gateway.metrics import GatewayMetrics
from bos_gateway.run_log.records import Append, NewRun
from bos_gateway.run_log.session import SCHEMA
from bos_gateway.run_log.writer import LogWriter
from bos_gateway.service import migrate_store, new_run_id
from bos_postgres import connect
from bos_testkit.agents import EchoAgent, SlowAgent
from bos_testkit.plans import step
from bos_testkit.waiting import eventually

pytestmark = [pytest.mark.crash, pytest.mark.postgres]


@pytest.fixture
async def postgres() -> AsyncIterator[CrashingPostgres]:
    async with crashing_postgres() as server:
        await migrate_store(server.dsn)
        yield server


class Log:
    """A writer with its metrics."""

    def __init__(self, writer: LogWriter) -> None:
        self.writer = writer

    async def accept(self) -> UUID:
        """A new run."""
        run_id = new_run_id()
        event = LogEvent(run_accepted=RunAccepted(user_id="u"))
        await self.writer.accept(NewRun(run_id, "u", str(run_id), b"digest", "", "What?", event))
        return run_id


@asynccontextmanager
async def open_log(dsn: str) -> AsyncIterator[Log]:
    metrics, telemetry = GatewayMetrics(CollectorRegistry()), Telemetry.for_tests()
    async with LogWriter(dsn, uuid4(), metrics=metrics, telemetry=telemetry) as writer:
        yield Log(writer)


def progress(run_id: UUID, sequence: int, text: str) -> Append:
    event = LogEvent(step_progressed=StepProgressed(step_id=text))
    return Append(run_id, 1, sequence, [event])


async def texts(dsn: str, run_id: UUID) -> dict[int, str]:
    """Sequence and text of everything behind the first event."""
    async with connect(dsn, schema=SCHEMA) as connection:
        rows = await connection.fetch(
            "SELECT sequence, payload FROM run_events WHERE run_id = $1 AND sequence > 1 "
            "ORDER BY sequence",
            run_id,
        )
    return {r["sequence"]: LogEvent.FromString(r["payload"]).step_progressed.step_id for r in rows}


async def test_crash_under_load_loses_no_acknowledged_event(
    postgres: CrashingPostgres,
) -> None:
    async with open_log(postgres.dsn) as log:
        runs = [await log.accept() for _ in range(20)]
        acknowledged: dict[UUID, dict[int, str]] = {run: {} for run in runs}
        stopping = asyncio.Event()

        async def write(run: UUID) -> None:
            sequence = 1
            while not stopping.is_set():
                sequence += 1
                await log.writer.append(progress(run, sequence, f"{run} {sequence}"))
                acknowledged[run][sequence] = f"{run} {sequence}"

        def written(count: int) -> bool:
            return all(len(each) >= count for each in acknowledged.values())

        tasks = [asyncio.create_task(write(run)) for run in runs]
        for _ in range(3):
            least = min(map(len, acknowledged.values())) + 20
            await eventually(lambda least=least: written(least))
            await postgres.crash()
            before = {run: dict(each) for run, each in acknowledged.items()}
            await postgres.start()
            await eventually(
                lambda before=before: all(len(acknowledged[r]) > len(before[r]) for r in runs),
            )
        stopping.set()
        await asyncio.gather(*tasks)
    for run in runs:
        stored = await texts(postgres.dsn, run)
        assert list(stored) == list(range(2, len(stored) + 2))
        assert stored == acknowledged[run]


async def test_runs_go_on_after_a_postgresql_crash_without_gaps(
    postgres: CrashingPostgres,
) -> None:
    quick, slow = EchoAgent("quick", data={"x": 1}), SlowAgent("slow")
    async with open_harness(postgres.dsn) as harness:
        await harness.add_agent(quick)
        await harness.add_agent(slow)
        harness.planner.steps = [step("a", "quick"), step("b", "slow", "use @{outputs.a.x}")]
        async with harness.gateway(lease_s=300.0) as gateway:
            seen: list[RunEvent] = []

            async def ask() -> None:
                seen.extend(await gateway.events())

            asked = asyncio.create_task(ask())
            await slow.started.wait()
            await postgres.crash()
            slow.release.set()
            await postgres.start()
            await asked
            stored = await stored_sequences(harness, seen[0].run_id)
            again = await gateway.watch(seen[0].run_id)
    assert seen[-1].run_finished.response.status == RUN_STATUS_SUCCEEDED
    assert len(quick.inputs) == len(slow.inputs) == 1
    assert stored == list(range(1, seen[-1].sequence + 1))
    assert again == logged(seen)


async def test_gateway_goes_on_at_another_address_of_its_database(
    postgres: CrashingPostgres,
) -> None:
    slow = SlowAgent("slow")
    async with (
        postgres_proxy(postgres.dsn) as second,
        open_harness(postgres.dsn) as harness,
        AsyncExitStack() as stack,
    ):
        first = await stack.enter_async_context(postgres_proxy(postgres.dsn))
        addresses = [urlsplit(proxy.dsn).netloc.rpartition("@")[2] for proxy in (first, second)]
        both = second.dsn.replace(addresses[1], ",".join(addresses))
        await harness.add_agent(slow)
        harness.planner.steps = [step("a", "slow")]
        async with harness.gateway(store_url=both, lease_s=30.0) as gateway:
            asked = asyncio.create_task(gateway.ask())
            await slow.started.wait()
            await stack.aclose()  # the first address is gone, and does not come back
            slow.release.set()
            assert (await asked).status == RUN_STATUS_SUCCEEDED
            assert (await gateway.ask("And now?")).status == RUN_STATUS_SUCCEEDED
    assert len(slow.inputs) == 2


async def stored_sequences(harness: Harness, run_id: str) -> list[int]:
    async with connect(harness.dsn, schema=SCHEMA) as connection:
        rows = await connection.fetch(
            "SELECT sequence FROM run_events WHERE run_id = $1 ORDER BY sequence", UUID(run_id)
        )
    return [row["sequence"] for row in rows]
