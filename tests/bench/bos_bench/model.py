"""A model call as agents make it, beside the client package's own way and a plain HTTP request."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager

import aiohttp
from openai import AsyncOpenAI
from pydantic import SecretStr

from bos_bench.measure import Effort, Figures, Part, closed_loop, compared, warm_up
from bos_bench.processes import child
from bos_chassis.telemetry import Telemetry
from bos_llm import Models, ModelSettings, system, user

Call = Callable[[int], Awaitable[None]]

CONCURRENT = (1, 16)
_KEY = "sk-bench-0123456789abcdef"
_MODEL = "scripted"
_INSTRUCTIONS = "You answer questions about the figures of a company. " * 20
_TASK = "Which five customers brought the most revenue last quarter? " * 5
_BODY = {
    "model": _MODEL,
    "temperature": 0.0,
    "messages": [
        {"role": "system", "content": _INSTRUCTIONS},
        {"role": "user", "content": _TASK},
    ],
}


async def measure(telemetry: Telemetry, effort: Effort) -> Part:
    """Processor time and latency of one text call with all three, on the same model."""
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(
            child("model", "bos_bench.diamond_model", PYTHONWARNINGS="error")
        )
        base_url = model.said["base_url"]
        calls: dict[str, Call] = {
            "bos": await stack.enter_async_context(_through_bos(base_url, telemetry)),
            "openai": await stack.enter_async_context(_through_openai(base_url)),
            "http": await stack.enter_async_context(_through_http(base_url)),
        }
        for call in calls.values():
            await warm_up(effort.warm_up, call)
        return {
            "one text call": await compared(
                effort, CONCURRENT, lambda count: _compare(calls, count, effort.round_s)
            )
        }


async def _compare(calls: Mapping[str, Call], count: int, seconds: float) -> Figures:
    samples = {name: await closed_loop(count, seconds, call) for name, call in calls.items()}
    figures: Figures = {}
    for name, sample in samples.items():
        figures[f"{name}_cpu_ms"] = sample.cpu_ms
        figures[f"{name}_p50_ms"] = sample.percentile_ms(0.5)
        figures[f"{name}_per_s"] = sample.per_s
    figures["cpu_over_openai_ratio"] = samples["bos"].cpu_ms / samples["openai"].cpu_ms
    figures["cpu_over_http_ratio"] = samples["bos"].cpu_ms / samples["http"].cpu_ms
    return figures


@asynccontextmanager
async def _through_bos(base_url: str, telemetry: Telemetry) -> AsyncIterator[Call]:
    settings = ModelSettings.load(
        base_url=base_url, api_key=SecretStr(_KEY), model=_MODEL, provider="compatible"
    )
    async with Models(settings, telemetry) as models:
        model = models.for_agent("bench")

        async def call(_: int) -> None:
            await model.text([system(_INSTRUCTIONS), user(_TASK)])

        yield call


@asynccontextmanager
async def _through_openai(base_url: str) -> AsyncIterator[Call]:
    async with AsyncOpenAI(base_url=base_url, api_key=_KEY) as client:

        async def call(_: int) -> None:
            await client.chat.completions.create(
                model=_MODEL,
                temperature=0.0,
                messages=[
                    {"role": "system", "content": _INSTRUCTIONS},
                    {"role": "user", "content": _TASK},
                ],
            )

        yield call


@asynccontextmanager
async def _through_http(base_url: str) -> AsyncIterator[Call]:
    url, headers = f"{base_url}/chat/completions", {"authorization": f"Bearer {_KEY}"}
    async with aiohttp.ClientSession(headers=headers, raise_for_status=True) as session:

        async def call(_: int) -> None:
            async with session.post(url, json=_BODY) as response:
                await response.json()

        yield call
