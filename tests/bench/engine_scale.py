"""``make bench NAME=engine``: does a past of half a million runs cost the present anything?

::

    python tests/bench/engine_scale.py [--runs 500000] [--waiting 20000] [--check]

Two databases on one server, one with a past and one nearly without, and real gateways in front of
both. Every figure of the first is compared with that of the second, taken in turns in the same run.
``--check`` measures nothing: it lets PostgreSQL explain every statement that the gateways execute
over a past of ``--runs``, and finds those that read rows in proportion to it.
"""

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import engine_data
import grpc
from engine_plans import explaining, findings

from bos.agent.v1 import AgentResult
from bos.gateway.v1 import (
    RUN_STATUS_CANCELLED,
    RUN_STATUS_SUCCEEDED,
    RUN_STATUS_WAITING_FOR_APPROVAL,
    AgentRequest,
    AskRequest,
    AskStreamRequest,
    GetRunRequest,
    ListRunsRequest,
    OrchestratorServiceStub,
    WatchRunRequest,
)
from bos.planner.v1 import Step
from bos_agentkit import AgentTask
from bos_bench.doubles import Harness, open_harness
from bos_bench.measure import cpu_seconds
from bos_chassis.settings import TelemetrySettings
from bos_chassis.telemetry import setup_telemetry
from bos_gateway.service import migrate_store
from bos_postgres import EmbeddedPostgres, connect, create_database
from bos_testkit.agents import EchoAgent
from bos_testkit.plans import step

MOST_RATIO = 1.5
MOST_IDLE = 0.01
MOST_WAL_KIB = 20.0
LEAST_HOT = 0.8
RARE = engine_data.RARE_RUNS
_ROUNDS = 60
_WARM_UP = 5
_STREAMS = 4
_TOKENS = 300
_WAL_RUNS = 48
_AT_ONCE = 16
_WAL = """
SELECT ARRAY[sum(record_size), sum(fpi_size)]::float8[]
FROM pg_get_wal_stats($1::text::pg_lsn, pg_current_wal_insert_lsn())
"""
_IDLE_S = 30.0
_STEP_S = 0.05
TIMEOUT_S = 60.0


@dataclass
class Figures:
    """What was measured, with what it must keep to."""

    missed: list[str] = field(default_factory=list)

    def ratio(self, name: str, with_past: list[float], without: list[float]) -> None:
        """Milliseconds of both databases; the medians are compared."""
        a, b = statistics.median(with_past), statistics.median(without)
        self._tell(name, f"{a:8.2f} ms {b:8.2f} ms", a / b, MOST_RATIO, "times")

    def at_most(self, name: str, measured: float, bound: float, unit: str) -> None:
        self._tell(name, " " * 23, measured, bound, unit)

    def at_least(self, name: str, measured: float, bound: float, unit: str) -> None:
        self._tell(name, " " * 23, -measured, -bound, unit)

    def _tell(self, name: str, both: str, measured: float, bound: float, unit: str) -> None:
        kept = measured <= bound
        sign = "<=" if bound > 0 else ">="
        print(
            f"{name:44} {both} {abs(measured):9.3f} {unit} ({sign} {abs(bound)})"
            + ("" if kept else "   MISSED"),
            flush=True,
        )
        if not kept:
            self.missed.append(name)


async def _read(calls: AsyncIterator[object]) -> None:
    async for _ in calls:
        pass


def plan(question: str) -> list[Step]:
    """Three steps of which one needs the others; of questions to tell something five slow ones."""
    agent = "steady" if question.startswith("Tell") else "echo"
    steps = [step("a", agent), step("b", agent), step("c", agent, "", "a", "b")]
    if agent == "steady":
        steps += [step("d", agent, "", "c"), step("e", agent, "", "d")]
    return steps


class SteadyAgent(EchoAgent):
    """Takes its time, as real agents do."""

    async def behave(self, task: AgentTask) -> AgentResult:
        await asyncio.sleep(_STEP_S)
        return await super().behave(task)


@asynccontextmanager
async def doubles() -> AsyncIterator[Harness]:
    """Planner, composer and agents."""
    quiet = TelemetrySettings.load(log_level="error", otlp_endpoint=None)
    with setup_telemetry("engine-bench", quiet) as telemetry:
        async with open_harness(
            telemetry, [EchoAgent("echo"), SteadyAgent("steady")], plan
        ) as harness:
            yield harness


@dataclass(frozen=True, slots=True)
class Gateway:
    """A gateway process and a way to it."""

    stub: Any

    async def ask(self, question: str) -> str:
        """Ask and wait for the answer; the id of the run.

        Raises:
            RuntimeError: the run did not succeed.
        """
        request = AskRequest(request=AgentRequest(question=question))
        response = (await self.stub.Ask(request, timeout=TIMEOUT_S)).response
        if response.status != RUN_STATUS_SUCCEEDED:
            raise RuntimeError(f"{question}: {response}")
        return str(response.run_id)

    def stream(self, question: str) -> Any:
        """The call of an AskStream."""
        request = AskStreamRequest(request=AgentRequest(question=question))
        return self.stub.AskStream(request, timeout=TIMEOUT_S)


@asynccontextmanager
async def gateway(harness: Harness, dsn: str) -> AsyncIterator[Gateway]:
    """A gateway process with the product's settings, but for the number of runs of a user."""
    async with (
        harness.gateway_process(dsn) as process,
        grpc.aio.insecure_channel(process.said["address"]) as channel,
    ):
        yield Gateway(OrchestratorServiceStub(channel))


class Place:
    """A database, with the gateways in front of it."""

    def __init__(self, dsn: str, owner: Gateway, other: Gateway, runs: list[str]) -> None:
        self.dsn = dsn
        self.owner = owner
        self.other = other
        self._runs = runs
        self._next = 0

    def operations(self) -> dict[str, Callable[[], Awaitable[object]]]:
        """What is compared, by name."""
        stub = self.owner.stub

        def listed(**which: object) -> Callable[[], Awaitable[object]]:
            request = ListRunsRequest(page_size=RARE, **which)  # type: ignore[arg-type]
            return lambda: stub.ListRuns(request, timeout=TIMEOUT_S)

        return {
            "all events of a run": lambda: _read(
                stub.WatchRun(WatchRunRequest(run_id=self._run()), timeout=TIMEOUT_S)
            ),
            "GetRun": lambda: stub.GetRun(GetRunRequest(run_id=self._run()), timeout=TIMEOUT_S),
            "ListRuns": listed(),
            "ListRuns of a rare status": listed(status=RUN_STATUS_CANCELLED),
            "ListRuns of a status no run has": listed(status=RUN_STATUS_WAITING_FOR_APPROVAL),
            "ListRuns of a conversation": listed(conversation_id=engine_data.CONVERSATION),
            "a run alone": lambda: self.owner.ask("What is new?"),
        }

    def _run(self) -> str:
        """One after the other, so that none is always in the cache of its page."""
        self._next += 1
        return self._runs[self._next % len(self._runs)]

    async def lags(self) -> list[float]:
        """How far text is behind at the other gateway, in milliseconds, by pieces of the owner."""
        messages = aiter(self.owner.stream(f"Stream {_TOKENS // 2}"))
        first = await anext(messages)
        watched = self.other.stub.WatchRun(
            WatchRunRequest(run_id=first.event.run_id), timeout=TIMEOUT_S
        )
        here, there = await asyncio.gather(_arrivals(messages), _arrivals(watched))
        lags = []
        for length, at in here:
            arrived = next((when for n, when in there if n >= length), None)
            if arrived is not None:
                lags.append(max(0.0, arrived - at) * 1000)
        return lags


async def _arrivals(calls: AsyncIterator[object]) -> list[tuple[int, float]]:
    """How much text there was in all after each piece, and when."""
    length, found = 0, []
    async for message in calls:
        event = message.event  # type: ignore[attr-defined]
        if event.HasField("answer_delta"):
            length += len(event.answer_delta.text)
            found.append((length, time.perf_counter()))
    return found


async def _median_pairs(past: Place, empty: Place, figures: Figures) -> None:
    """Each operation in turns at both, after a few of each that do not count."""
    there = empty.operations()
    for name, operation in past.operations().items():
        pair: tuple[list[float], list[float]] = ([], [])
        for turn in range(_ROUNDS + _WARM_UP):
            both = [(pair[0], operation), (pair[1], there[name])]
            for times, each in both if turn % 2 else reversed(both):
                began = time.perf_counter()
                await each()
                if turn >= _WARM_UP:
                    times.append((time.perf_counter() - began) * 1000)
        figures.ratio(name, *pair)
    pair = ([], [])
    for times, place in zip(pair, (past, empty), strict=True):
        for lags in await asyncio.gather(*(place.lags() for _ in range(_STREAMS))):
            times += lags
    figures.ratio("text behind at another replica", *pair)


async def _idle(dsn: str, seconds: float) -> float:
    """Cores of PostgreSQL that the sessions of the only replica use while idle."""
    used: dict[int, list[float]] = {}
    ends = time.monotonic() + seconds
    async with connect(dsn) as connection:
        while time.monotonic() < ends:
            rows = await connection.fetch(
                "SELECT pid FROM pg_stat_activity WHERE datname = current_database() "
                "AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
            )
            for row in rows:
                used.setdefault(row["pid"], []).append(cpu_seconds(row["pid"]))
            await asyncio.sleep(0.5)
    spent = sum(max(each) - each[0] for each in used.values())
    return spent / seconds


async def _wal_of_answers(past: Place, figures: Figures) -> None:
    """Bytes of WAL and kinds of updates while five steps are done and 300 tokens stream.

    Without the images of pages that follow a checkpoint: how many of them a run has to bear depends
    on how many runs there are between two checkpoints. And without what autovacuum makes of a past
    that was inserted a minute ago.
    """
    updates = (
        "SELECT ARRAY[n_tup_upd, n_tup_hot_upd] FROM pg_stat_user_tables WHERE relname = 'runs'"
    )
    room = asyncio.Semaphore(_AT_ONCE)

    async def one() -> None:
        async with room:
            await _read(past.owner.stream(f"Tell me more {_TOKENS}"))

    await asyncio.gather(*(one() for _ in range(_WAL_RUNS)))
    before = await engine_data.value(past.dsn, updates)
    lsn = await engine_data.value(past.dsn, "SELECT pg_current_wal_insert_lsn()::text")
    await asyncio.gather(*(one() for _ in range(_WAL_RUNS)))
    await asyncio.sleep(3)  # what follows the end, and the statistics of sessions
    records, images = await engine_data.value(past.dsn, _WAL, lsn)
    after = await engine_data.value(past.dsn, updates)
    changed, hot = after[0] - before[0], after[1] - before[1]
    kib = records / _WAL_RUNS / 1024
    figures.at_most(f"WAL of a run, answer of {_TOKENS} tokens", kib, MOST_WAL_KIB, "KiB")
    print(f"    and {images / _WAL_RUNS / 1024:.1f} KiB of images of pages, as after a checkpoint")
    figures.at_least("HOT share of the updates of runs", hot / max(1, changed), LEAST_HOT, "")


async def _made(
    server: EmbeddedPostgres, harness: Harness, name: str, runs: int, waiting: int
) -> str:
    """A database with that past."""
    dsn = await create_database(server.dsn(), name)
    await migrate_store(dsn)
    async with gateway(harness, dsn) as started:
        template = await started.ask("What was there before?")
    began = time.perf_counter()
    await engine_data.fill(dsn, template, runs, waiting)
    size = await engine_data.value(dsn, "SELECT pg_database_size(current_database())")
    print(
        f"{name}: {runs} finished and {waiting} waiting runs made in "
        f"{time.perf_counter() - began:.0f} s, {size / 2**20:.0f} MiB",
        flush=True,
    )
    return dsn


async def bench(server: EmbeddedPostgres, runs: int, waiting: int) -> int:
    """Everything; the number of bounds that were missed."""
    figures = Figures()
    async with doubles() as harness, AsyncExitStack() as stack:
        few = engine_data.RARE_RUNS * 4
        for name in ("checkpoint_timeout", "autovacuum_naptime"):
            await engine_data.value(server.dsn(), f"ALTER SYSTEM SET {name} = '1h'")
        await engine_data.value(server.dsn(), "SELECT pg_reload_conf()")
        dsns = [
            await _made(server, harness, "past", runs, waiting),
            await _made(server, harness, "empty", few, 0),
        ]
        owner = await stack.enter_async_context(gateway(harness, dsns[0]))
        await owner.ask("Up?")
        await asyncio.sleep(5)  # what a start brings with it
        idle = await _idle(dsns[0], _IDLE_S)
        figures.at_most("PostgreSQL for an idle replica", idle, MOST_IDLE, "cores")
        await engine_data.value(dsns[0], "CREATE EXTENSION pg_walinspect")
        places = []
        for number, dsn in enumerate(dsns):
            first = owner if number == 0 else await stack.enter_async_context(gateway(harness, dsn))
            other = await stack.enter_async_context(gateway(harness, dsn))
            known = [str(run_id) for run_id in await engine_data.whole_runs(dsn)]
            places.append(Place(dsn, first, other, known))
        await _median_pairs(places[0], places[1], figures)
        await _wal_of_answers(places[0], figures)
    print("missed: " + ", ".join(figures.missed) if figures.missed else "all bounds are kept")
    return len(figures.missed)


async def check(server: EmbeddedPostgres, runs: int, waiting: int) -> int:
    """The number of statements that read more the longer the past is."""
    async with doubles() as harness:
        dsn = await _made(server, harness, "past", runs, waiting)
        known = [str(run_id) for run_id in await engine_data.whole_runs(dsn)]
        async with explaining(server, dsn) as explained:
            async with gateway(harness, dsn) as owner, gateway(harness, dsn) as other:
                place = Place(dsn, owner, other, known)
                for operation in place.operations().values():
                    for _ in range(7):  # PostgreSQL makes a plan for any arguments at the sixth
                        await operation()
                await place.lags()
                await asyncio.sleep(6)  # what replicas do by themselves
            plans = explained()
    found = findings(plans, rows=min(runs, waiting) // 4)
    print(f"{len(plans)} plans of {len({plan.statement for plan in plans})} statements")
    for each in found:
        print(each)
    return len(found)


async def measured(options: argparse.Namespace) -> int:
    """On a server of its own, all of which is removed at the end."""
    with tempfile.TemporaryDirectory(prefix="bos-engine-") as folder:
        server = EmbeddedPostgres(Path(folder) / "postgres", durable=not options.check)
        try:
            async with server:
                what = check if options.check else bench
                return await what(server, options.runs, options.waiting)
        finally:
            with suppress(OSError):
                server.delete_data()


def main() -> int:
    parser = argparse.ArgumentParser(description="The run engine with a long past.")
    parser.add_argument("--runs", type=int, default=500_000, help="finished runs of one account")
    parser.add_argument("--waiting", type=int, default=20_000, help="runs that wait for people")
    parser.add_argument("--check", action="store_true", help="look at plans instead of clocks")
    return 1 if asyncio.run(measured(parser.parse_args())) else 0


if __name__ == "__main__":
    sys.exit(main())
