"""REST over gRPC: what the gateway in front costs, for a call and for a streamed run."""

import json
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path

import aiohttp
import grpc

from bos.gateway.v1 import ListAgentsRequest, OrchestratorServiceStub
from bos_bench.asking import Asker
from bos_bench.doubles import HOLD, QUESTION, five_agents, open_harness
from bos_bench.measure import Effort, Figures, Part, Table, closed_loop, compared, warm_up
from bos_bench.processes import Child, program
from bos_bench.store import Store
from bos_chassis.telemetry import Telemetry

_IDLE_STREAMS = 25
"""For each operation of a warm-up: 500 in full."""
BINARY = Path(__file__).parents[3] / "build" / "bos-rest"


async def measure(store: Store, telemetry: Telemetry, effort: Effort) -> Part:
    """A unary call and a five-step run with its stream, each directly and through REST.

    Raises:
        FileNotFoundError: the REST gateway is not built; `make rest` does.
    """
    if not BINARY.exists():
        raise FileNotFoundError(f"{BINARY.name} is not built; `make rest` builds it")
    dsn = await store.fresh_log("bench_rest")
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        harness = await enter(open_harness(telemetry, five_agents()))
        target = await enter(harness.gateway(dsn, telemetry))
        channel = await enter(grpc.aio.insecure_channel(target))
        gateway = await enter(rest_gateway(target))
        url = f"http://{gateway.said['address']}"
        connector = aiohttp.TCPConnector(limit=0)
        http = await enter(aiohttp.ClientSession(url, connector=connector))
        stub = OrchestratorServiceStub(channel)

        async def list_agents(_: int) -> None:
            await stub.ListAgents(ListAgentsRequest(), timeout=30)

        async def get_agents(_: int) -> None:
            async with http.get("/v1/agents") as response:
                response.raise_for_status()
                await response.read()

        async def get_run(_: int) -> None:
            await _streamed_run(http)

        run = Asker(channel, QUESTION).run
        return {
            "ListAgents": await _sides(gateway, list_agents, get_agents, effort),
            "five steps, streamed": await _sides(gateway, run, get_run, effort),
            "streams that wait": await _idle_streams(gateway, http, effort.warm_up * _IDLE_STREAMS),
        }


async def _idle_streams(rest: Child, http: aiohttp.ClientSession, count: int) -> Table:
    """Memory of REST for each stream of a run that is never planned."""
    async with http.post("/v1/runs:askStream", json={"question": HOLD}) as response:
        await response.content.readuntil(b"\n\n")
    async with http.get("/v1/runs", params={"page_size": 1}) as response:
        run_id = (await response.json())["runs"][0]["run_id"]
    before = rest.rss_mib
    async with AsyncExitStack() as stack:
        for _ in range(count):
            response = await stack.enter_async_context(http.get(f"/v1/runs/{run_id}:watch"))
            response.raise_for_status()
        each = (rest.rss_mib - before) / count * 1024
    return {f"{count} of one run": {"rest_kib_each": each}}


async def _sides(
    rest: Child,
    direct: Callable[[int], Awaitable[object]],
    through_rest: Callable[[int], Awaitable[object]],
    effort: Effort,
) -> Table:
    await warm_up(effort.warm_up, direct)
    await warm_up(effort.warm_up, through_rest)
    return await compared(
        effort,
        effort.at_once[:2],
        lambda count: _round(rest, direct, through_rest, count, effort.round_s),
    )


async def _round(
    rest: Child,
    direct: Callable[[int], Awaitable[object]],
    through_rest: Callable[[int], Awaitable[object]],
    count: int,
    seconds: float,
) -> Figures:
    theirs = await closed_loop(count, seconds, direct)
    cpu_s = rest.cpu_s
    ours = await closed_loop(count, seconds, through_rest)
    cpu_s = rest.cpu_s - cpu_s
    return {
        "grpc_p50_ms": theirs.percentile_ms(0.5),
        "rest_p50_ms": ours.percentile_ms(0.5),
        "rest_p95_ms": ours.percentile_ms(0.95),
        "rest_cpu_ms": cpu_s / ours.count * 1000,
        "p50_ratio": ours.percentile_ms(0.5) / theirs.percentile_ms(0.5),
        "per_s_ratio": ours.per_s / theirs.per_s,
    }


async def _streamed_run(http: aiohttp.ClientSession) -> None:
    """One run, its events read to the last.

    Raises:
        RuntimeError: it did not end well, so its time would mean nothing.
    """
    ended = False
    async with http.post("/v1/runs:askStream", json={"question": QUESTION}) as response:
        response.raise_for_status()
        async for line in response.content:
            if line.startswith(b"data: ") and b'"run_finished"' in line:
                status = json.loads(line[6:])["run_finished"]["response"]["status"]
                ended = status == "RUN_STATUS_SUCCEEDED"
    if not ended:
        raise RuntimeError("a run did not end well")


def rest_gateway(gateway: str) -> AbstractAsyncContextManager[Child]:
    """The REST gateway in front of ``gateway``."""
    return program(
        "rest",
        str(BINARY),
        BOS_REST_GATEWAY_TARGET=gateway,
        BOS_REST_PORT="0",
        BOS_LOG_LEVEL="error",
    )
