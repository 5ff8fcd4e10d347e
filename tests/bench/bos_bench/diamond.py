"""A question through all services, each a real process, beside the same model calls made bare.

The plan is a diamond without its tip: two agents side by side and one that needs both. Planner,
agents and composer call the model once each, so a run is five model calls, four of them one after
another.
"""

import asyncio
import secrets
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import grpc

from bos_bench.asking import Asker
from bos_bench.bare import BARE, BareDiamond
from bos_bench.diamond_model import PLAN, QUESTION
from bos_bench.measure import Effort, Figures, Part, Sample, closed_loop, compared, warm_up
from bos_bench.one_call import NAMES
from bos_bench.processes import Child, child
from bos_bench.store import Store
from bos_chassis.auth.callers import generate_keypair

LATENCIES_MS = (0, 50)
_CALLS_IN_A_ROW = 4
_ROUND_LENGTH = 2.5
"""Runs are longer than what the other parts measure, so rounds are as well, by this factor."""
_MODEL_KEY = "sk-bench-0123456789abcdef"
_ROOM = "512"
"""More steps and calls at once than there ever are."""


@dataclass(frozen=True, slots=True)
class Harness:
    """Running services with a client."""

    asker: Asker
    services: Mapping[str, Child]
    _before: dict[str, float] = field(default_factory=dict)

    def mark(self) -> None:
        """Start counting processor time."""
        self._before.update({name: one.cpu_s for name, one in self.services.items()})

    def cpu_s(self) -> dict[str, float]:
        """Processor time since the mark, by service."""
        return {name: one.cpu_s - self._before[name] for name, one in self.services.items()}


@dataclass(frozen=True, slots=True)
class Scene:
    """All that takes turns."""

    store: Store
    model: Child
    harnesses: Mapping[str, Harness]
    bare: Mapping[str, BareDiamond]


async def measure(store: Store, effort: Effort) -> Part:
    """Throughput, latency and processor time of all five ways, then what memory the services hold.

    The model's processor time is in no figure; PostgreSQL's and the client's have their own.
    """
    async with scene(store, effort.warm_up) as all_ways:
        part: Part = {}
        for latency_ms in LATENCIES_MS:
            await all_ways.model.ask(f"latency {latency_ms / 1000}")
            part[f"{latency_ms} ms a call"] = await compared(
                effort,
                effort.at_once,
                partial(_compare, all_ways, latency_ms, seconds=effort.round_s * _ROUND_LENGTH),
            )
        part["memory"] = {
            name: {f"{service}_mb": one.memory_mb for service, one in harness.services.items()}
            for name, harness in all_ways.harnesses.items()
        }
    return part


@asynccontextmanager
async def scene(store: Store, warm_up_runs: int) -> AsyncIterator[Scene]:
    """Start the model and both harnesses, and warm up all ways."""
    async with AsyncExitStack() as stack:
        logs = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="bos-bench-logs-")))
        model = await stack.enter_async_context(
            child("model", "bos_bench.diamond_model", logs=logs)
        )
        base_url = model.said["base_url"]
        variables = {
            "OPENAI_BASE_URL": base_url,
            "OPENAI_API_KEY": _MODEL_KEY,
            "BOS_MODEL": "scripted",
            "BOS_ONE_CALL_MAX_CONCURRENT_STEPS": _ROOM,
            "BOS_GATEWAY_MAX_ACTIVE_RUNS": _ROOM,
            "BOS_GATEWAY_MAX_ACTIVE_RUNS_PER_USER": _ROOM,  # all callers are one user
        }
        harnesses = {
            name: await stack.enter_async_context(opened(store, logs, variables))
            for name, opened in (("separate", _separate), ("standalone", _standalone))
        }
        for harness in harnesses.values():
            await warm_up(max(2, warm_up_runs), harness.asker.run)
        bodies = await model.ask("bodies")
        if missing := {PLAN, *NAMES} - bodies.keys():
            raise RuntimeError(f"the services did not make these calls: {missing}")
        bare = {
            name: await stack.enter_async_context(way(base_url, _MODEL_KEY, bodies))
            for name, way in BARE.items()
        }
        for way in bare.values():
            await warm_up(warm_up_runs, way.run)
        yield Scene(store, model, harnesses, bare)


@asynccontextmanager
async def _separate(
    store: Store, logs: Path, variables: Mapping[str, str]
) -> AsyncIterator[Harness]:
    """Six processes, as in a deployment: callers hold a key, services accept run tokens only."""
    private, public = generate_keypair()
    key = secrets.token_urlsafe(32)
    inside = {**variables, "BOS_AUTH_RUN_TOKEN_PUBLIC_KEYS": public}
    async with AsyncExitStack() as stack:
        services = {
            one.name: one
            for one in await _together(
                stack,
                _Program("planner", "bos_planner", (), inside),
                _Program("composer", "bos_composer", (), inside),
                *(_Program(name, "bos_bench.one_call", (name,), inside) for name in NAMES),
                logs=logs,
            )
        }
        at = {name: one.said["address"] for name, one in services.items()}
        settings = {
            **variables,
            "BOS_AUTH_STATIC_KEY": key,
            "BOS_GATEWAY_RUN_TOKEN_PRIVATE_KEY": private,
            "BOS_GATEWAY_STORE_URL": await store.fresh_log("bench_separate"),
            "BOS_GATEWAY_PLANNER_TARGET": at["planner"],
            "BOS_GATEWAY_COMPOSER_TARGET": at["composer"],
            "BOS_GATEWAY_AGENT_TARGETS": ",".join(f"{name}={at[name]}" for name in NAMES),
        }
        gateway = await stack.enter_async_context(
            child("gateway", "bos_gateway", logs=logs, **settings)
        )
        asker = await stack.enter_async_context(_asking(gateway.said["address"], key))
        yield Harness(asker, {"gateway": gateway, **services})


@asynccontextmanager
async def _standalone(
    store: Store, logs: Path, variables: Mapping[str, str]
) -> AsyncIterator[Harness]:
    """The same services, and an idle sandbox and mcp_db, in one process."""
    settings = {
        **variables,
        "BOS_STANDALONE_DATA_DIR": str(logs / "standalone"),
        "BOS_STORE_URL": await store.fresh_log("bench_standalone"),
        # A database of one's own: no sample company, no second PostgreSQL.
        "BOS_DATABASE_URL": await store.fresh_log("bench_company"),
        "BOS_DATABASE_ALLOWED_TABLES": "gateway.runs",
    }
    async with (
        child("standalone", "bos_bench.diamond_standalone", logs=logs, **settings) as process,
        _asking(process.said["address"], process.said["key"]) as asker,
    ):
        yield Harness(asker, {"standalone": process})


@dataclass(frozen=True, slots=True)
class _Program:
    name: str
    module: str
    arguments: Sequence[str]
    variables: Mapping[str, str]


async def _together(stack: AsyncExitStack, *programs: _Program, logs: Path) -> list[Child]:
    """Start side by side: most of a start is imports."""
    opened = [
        child(one.name, one.module, *one.arguments, logs=logs, **one.variables) for one in programs
    ]
    return list(await asyncio.gather(*map(stack.enter_async_context, opened)))


@asynccontextmanager
async def _asking(address: str, key: str) -> AsyncIterator[Asker]:
    async with grpc.aio.insecure_channel(address) as channel:
        yield Asker(channel, QUESTION, key)


async def _compare(scene: Scene, latency_ms: int, count: int, *, seconds: float) -> Figures:
    figures: Figures = {}
    for name, harness in scene.harnesses.items():
        harness.asker.first_text_s.clear()
        harness.mark()
        database = scene.store.cpu_s()
        sample = await closed_loop(count, seconds, harness.asker.run)
        per_run = {k: s / sample.count * 1000 for k, s in harness.cpu_s().items()}
        figures |= _of(name, sample, harness.asker.first_text_s)
        figures[f"{name}_cpu_ms"] = sum(per_run.values())
        if len(per_run) > 1:
            figures |= {f"{name}_{service}_cpu_ms": ms for service, ms in per_run.items()}
        figures[f"{name}_postgres_cpu_ms"] = (scene.store.cpu_s() - database) / sample.count * 1000
        figures[f"{name}_client_cpu_ms"] = sample.cpu_ms
    for name, way in scene.bare.items():
        way.first_text_s.clear()
        sample = await closed_loop(count, seconds, way.run)
        figures |= _of(name, sample, way.first_text_s) | {f"{name}_cpu_ms": sample.cpu_ms}
    for ours in scene.harnesses:
        # What the chain of calls takes when everything else takes no time.
        figures[f"{ours}_over_model_p50_ms"] = (
            figures[f"{ours}_p50_ms"] - _CALLS_IN_A_ROW * latency_ms
        )
        for theirs in scene.bare:
            over = f"{ours}_over_{theirs}"
            figures[f"{over}_p50_ms"] = figures[f"{ours}_p50_ms"] - figures[f"{theirs}_p50_ms"]
            for what in ("cpu_ms", "runs_per_s", "first_text_p50_ms"):
                ratio = figures[f"{ours}_{what}"] / figures[f"{theirs}_{what}"]
                figures[f"{over}_{what.removesuffix('_ms')}_ratio"] = ratio
    return figures


def _of(name: str, sample: Sample, first_text_s: Sequence[float]) -> Figures:
    return {
        f"{name}_runs_per_s": sample.per_s,
        f"{name}_p50_ms": sample.percentile_ms(0.5),
        f"{name}_p95_ms": sample.percentile_ms(0.95),
        f"{name}_first_text_p50_ms": sorted(first_text_s)[len(first_text_s) // 2] * 1000,
    }
