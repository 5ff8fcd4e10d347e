"""PostgreSQL crashes under the gateway: what was acknowledged comes back, and runs go on."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import grpc
import pytest
from crashing_postgres import CrashingPostgres, crashing_postgres
from gateway_house import House, open_house
from postgres_proxy import postgres_proxy
from prometheus_client import CollectorRegistry
from streamed import logged

from bos.gateway.v1 import RUN_STATUS_PLANNED, RUN_STATUS_SUCCEEDED, RunEvent
from bos.runlog.v1 import CancelRequested, LogEvent, Planned, RunAccepted
from bos_chassis.telemetry import Telemetry
from bos_gateway.metrics import GatewayMetrics
from bos_gateway.run_log import SCHEMA, Append, LogWriter, LostRun, NewRun
from bos_gateway.service import MIGRATIONS, new_run_id
from bos_postgres import connect, migrate
from bos_testkit.agents import EchoAgent, SlowAgent
from bos_testkit.plans import step
from bos_testkit.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


@pytest.fixture
async def postgres() -> AsyncIterator[CrashingPostgres]:
    async with crashing_postgres() as server:
        await migrate(server.dsn, MIGRATIONS, schema=SCHEMA)
        yield server


class Log:
    """A writer with its metrics."""

    def __init__(self, writer: LogWriter, registry: CollectorRegistry) -> None:
        self.writer = writer
        self._registry = registry

    @property
    def rewritten(self) -> float:
        """Events that had been lost and were written again."""
        return self._registry.get_sample_value("bos_run_log_rewritten_events_total") or 0.0

    async def accept(self) -> UUID:
        """A new run."""
        run_id = new_run_id()
        event = LogEvent(run_accepted=RunAccepted(user_id="u"))
        await self.writer.accept(NewRun(run_id, "u", str(run_id), b"digest", "", "What?", event))
        return run_id


@asynccontextmanager
async def open_log(dsn: str) -> AsyncIterator[Log]:
    registry = CollectorRegistry()
    metrics, telemetry = GatewayMetrics(registry), Telemetry.for_tests()
    async with LogWriter(dsn, uuid4(), metrics=metrics, telemetry=telemetry) as writer:
        yield Log(writer, registry)


def delta(run_id: UUID, sequence: int, text: str, *, durable: bool = False) -> Append:
    event = LogEvent(cancel_requested=CancelRequested(reason=text))
    return Append(run_id, 1, sequence, [event], durable=durable)


async def texts(dsn: str, run_id: UUID) -> dict[int, str]:
    """Sequence and text of everything behind the first event."""
    async with connect(dsn, schema=SCHEMA) as connection:
        rows = await connection.fetch(
            "SELECT sequence, payload FROM run_events WHERE run_id = $1 AND sequence > 1 "
            "ORDER BY sequence",
            run_id,
        )
    return {r["sequence"]: LogEvent.FromString(r["payload"]).cancel_requested.reason for r in rows}


async def test_crash_under_load_leaves_no_gap_no_double_and_nothing_acknowledged_lost(
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
                await log.writer.append(delta(run, sequence, f"{run} {sequence}"))
                acknowledged[run][sequence] = f"{run} {sequence}"

        def written(count: int) -> bool:
            return all(len(each) >= count for each in acknowledged.values())

        tasks = [asyncio.create_task(write(run)) for run in runs]
        for _ in range(3):
            least = min(map(len, acknowledged.values())) + 20
            await eventually(lambda least=least: written(least), within_s=30)
            await postgres.crash()
            before = {run: dict(each) for run, each in acknowledged.items()}
            await postgres.start()
            await eventually(
                lambda before=before: all(len(acknowledged[r]) > len(before[r]) for r in runs),
                within_s=30,
            )
        stopping.set()
        await asyncio.gather(*tasks)
        rewritten = log.rewritten
    assert rewritten > 0, "nothing was lost, so nothing was proved"
    for run in runs:
        stored = await texts(postgres.dsn, run)
        assert list(stored) == list(range(2, len(stored) + 2))
        assert stored == acknowledged[run]


async def test_lost_events_come_back_though_nobody_writes_any_more(
    postgres: CrashingPostgres,
) -> None:
    async with open_log(postgres.dsn) as log:
        run = await log.accept()
        await log.writer.append(delta(run, 2, "seen"))
        await postgres.crash()
        await postgres.start()
        await eventually(lambda: log.rewritten == 1, within_s=30)
        assert await texts(postgres.dsn, run) == {2: "seen"}


async def test_status_that_was_lost_comes_back_with_its_event(postgres: CrashingPostgres) -> None:
    async with open_log(postgres.dsn) as log:
        run = await log.accept()
        planned = LogEvent(planned=Planned())
        await log.writer.append(
            Append(run, 1, 2, [planned], durable=False, status=RUN_STATUS_PLANNED)
        )
        await log.writer.append(delta(run, 3, "more"))
        await postgres.crash()
        await postgres.start()
        await log.writer.append(delta(run, 4, "end"))
        async with connect(postgres.dsn, schema=SCHEMA) as connection:
            assert await connection.fetchval("SELECT status FROM runs") == RUN_STATUS_PLANNED
    assert log.rewritten == 2


async def test_lost_events_come_back_although_the_run_has_been_taken_anew(
    postgres: CrashingPostgres,
) -> None:
    """An outage longer than the lease: the replica becomes its own successor."""
    async with open_log(postgres.dsn) as log:
        run = await log.accept()
        await log.writer.append(delta(run, 2, "seen"))
        # As the crash and the new lease leave it, before the writer has a session again.
        async with connect(postgres.dsn, schema=SCHEMA) as connection:
            await connection.execute("DELETE FROM run_events WHERE sequence = 2")
            await connection.execute("UPDATE runs SET epoch = 2")
            await connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE application_name = 'bos-gateway-writer'"
            )
        await log.writer.restored()
        assert await texts(postgres.dsn, run) == {2: "seen"}
        with pytest.raises(LostRun):
            await log.writer.append(delta(run, 3, "of the earlier epoch"))


async def test_what_was_seen_elsewhere_comes_back_although_it_was_never_acknowledged(
    postgres: CrashingPostgres,
) -> None:
    async with (
        postgres_proxy(postgres.dsn) as proxy,
        open_log(proxy.dsn) as log,
        connect(postgres.dsn, schema=SCHEMA) as connection,
        connect(postgres.dsn) as watcher,
    ):
        run = await log.accept()
        # The statement waits inside PostgreSQL until no answer can reach the writer any more.
        transaction = connection.transaction()
        await transaction.start()
        await connection.execute("SELECT FROM runs FOR UPDATE")
        append = asyncio.create_task(log.writer.append(delta(run, 2, "seen")))
        while not await watcher.fetchval(
            "SELECT count(*) FROM pg_stat_activity "
            "WHERE application_name = 'bos-gateway-writer' AND wait_event_type = 'Lock'"
        ):
            pass
        proxy.cut()
        await transaction.commit()
        while await texts(postgres.dsn, run) != {2: "seen"}:
            pass
        await postgres.crash()
        proxy.drop()
        await postgres.start()
        async with connect(postgres.dsn, schema=SCHEMA) as successor:
            await successor.execute("UPDATE runs SET epoch = 2")
        proxy.mend()
        await log.writer.restored()
        assert await texts(postgres.dsn, run) == {2: "seen"}
        await append


@pytest.mark.parametrize("taken_by", ["another_owner", "a_foreign_event"])
async def test_run_taken_by_somebody_else_meanwhile_is_lost_alone(
    postgres: CrashingPostgres, taken_by: str
) -> None:
    async with open_log(postgres.dsn) as log:
        lost, kept = await log.accept(), await log.accept()
        await asyncio.gather(
            *(log.writer.append(delta(run, 2, "seen")) for run in (lost, kept)),
        )
        async with connect(postgres.dsn, schema=SCHEMA) as connection:
            pid = await connection.fetchval(
                "SELECT pid FROM pg_stat_activity WHERE application_name = 'bos-gateway-writer'"
            )
            async with connection.transaction():
                # As a crash would have it: the event is gone, and another stands there or none.
                # The writer's next session meets these locks, and waits for the outcome.
                await connection.execute("DELETE FROM run_events WHERE sequence = 2")
                if taken_by == "another_owner":
                    await connection.execute(
                        "UPDATE runs SET epoch = 2, replica_id = gen_random_uuid() "
                        "WHERE run_id = $1",
                        lost,
                    )
                else:
                    await connection.execute(
                        "INSERT INTO run_events VALUES "
                        "($1, 2, gen_random_uuid(), 1, 'cancel_requested', 1, '', now())",
                        lost,
                    )
                await connection.fetchval("SELECT pg_terminate_backend($1)", pid)
        outcomes = await asyncio.gather(
            *(log.writer.append(delta(run, 3, "next")) for run in (lost, kept)),
            return_exceptions=True,
        )
        assert isinstance(outcomes[0], LostRun)
        assert outcomes[1] is None
    assert await texts(postgres.dsn, kept) == {2: "seen", 3: "next"}
    assert "seen" not in (await texts(postgres.dsn, lost)).values()


async def test_what_is_on_disk_is_not_kept_in_memory(postgres: CrashingPostgres) -> None:
    async with (
        open_log(postgres.dsn) as log,
        connect(postgres.dsn, schema=SCHEMA) as connection,
    ):
        run = await log.accept()
        tail = log.writer.tail
        for sequence in range(2, 12):
            await log.writer.append(delta(run, sequence, "x"))
        assert len(tail) == 10
        # Whoever flushes: the next statement but one sees that it happened.
        await connection.execute("CREATE TABLE flushing ()")
        await log.writer.append(delta(run, 12, "x"))
        assert len(tail) <= 2
        await log.writer.append(delta(run, 13, "x", durable=True))
        assert len(tail) == 0


async def test_runs_of_a_gateway_go_on_after_a_crash_and_streams_have_no_gap(
    postgres: CrashingPostgres,
) -> None:
    quick, slow = EchoAgent("quick", data={"x": 1}), SlowAgent("slow")
    async with open_house(postgres.dsn) as house:
        await house.add_agent(quick)
        await house.add_agent(slow)
        house.planner.steps = [step("a", "quick"), step("b", "slow", "use @{outputs.a.x}")]
        async with house.gateway(lease_s=30.0) as gateway:
            seen: list[RunEvent] = []

            async def ask() -> None:
                seen.extend(await gateway.events())

            asked = asyncio.create_task(ask())
            await slow.started.wait()
            await postgres.crash()
            slow.release.set()
            await postgres.start()
            up = time.perf_counter()
            await asked
            took_s = time.perf_counter() - up
            stored = await stored_sequences(house, seen[0].run_id)
            again = await gateway.watch(seen[0].run_id)
    assert seen[-1].run_finished.response.status == RUN_STATUS_SUCCEEDED
    assert len(quick.inputs) == len(slow.inputs) == 1
    assert stored == list(range(1, seen[-1].sequence + 1))
    assert again == logged(seen)
    assert took_s < 10


async def test_gateway_goes_on_at_another_address_of_its_database(
    postgres: CrashingPostgres,
) -> None:
    slow = SlowAgent("slow")
    async with (
        postgres_proxy(postgres.dsn) as second,
        open_house(postgres.dsn) as house,
        AsyncExitStack() as stack,
    ):
        first = await stack.enter_async_context(postgres_proxy(postgres.dsn))
        addresses = [urlsplit(proxy.dsn).netloc.rpartition("@")[2] for proxy in (first, second)]
        both = second.dsn.replace(addresses[1], ",".join(addresses))
        await house.add_agent(slow)
        house.planner.steps = [step("a", "slow")]
        async with house.gateway(store_url=both, lease_s=30.0) as gateway:
            asked = asyncio.create_task(gateway.ask())
            await slow.started.wait()
            await stack.aclose()  # the first address is gone, and does not come back
            slow.release.set()
            assert (await asked).status == RUN_STATUS_SUCCEEDED
            assert (await gateway.ask("And now?")).status == RUN_STATUS_SUCCEEDED
    assert len(slow.inputs) == 2


async def test_outage_longer_than_the_lease_takes_back_nothing_that_was_seen(
    postgres: CrashingPostgres,
) -> None:
    slow = SlowAgent("slow")
    seen: list[RunEvent] = []
    async with open_house(postgres.dsn) as house:
        await house.add_agent(slow)
        house.planner.steps = [step("a", "slow")]
        async with house.gateway(lease_s=1.0) as gateway:

            async def ask() -> None:
                async for message in gateway.stream():
                    seen.append(message.event)

            asked = asyncio.create_task(ask())
            await eventually(lambda: slow.started.is_set() and len(seen) >= 3, within_s=20)
            await postgres.crash()
            # Without its lease the gateway stops its runs.
            await asyncio.wait_for(slow.cancelled.wait(), 20)
            with pytest.raises(grpc.aio.AioRpcError):
                await asked
            slow.release.set()
            await postgres.start()
            await eventually(lambda: len(slow.inputs) == 2, within_s=20)
            rest = await gateway.watch(seen[0].run_id, seen[-1].sequence)
            whole = await gateway.watch(seen[0].run_id)
    assert rest[-1].run_finished.response.status == RUN_STATUS_SUCCEEDED
    assert logged([*seen, *rest]) == whole


async def stored_sequences(house: House, run_id: str) -> list[int]:
    async with connect(house.dsn, schema=SCHEMA) as connection:
        rows = await connection.fetch(
            "SELECT sequence FROM run_events WHERE run_id = $1 ORDER BY sequence", UUID(run_id)
        )
    return [row["sequence"] for row in rows]
