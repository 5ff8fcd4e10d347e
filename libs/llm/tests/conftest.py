import json
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web
from serving import endpoint_of

from bos_chassis.telemetry import Telemetry
from bos_llm import Model, Models
from bos_testkit.scripted_model.pytest_fixtures import ScriptedModelFactory, model_settings
from bos_testkit.scripted_model.replies import fixture
from bos_testkit.scripted_model.server import ScriptedModel

FIXTURES = (
    fixture("greeting", ["hello"], text="Good day to you, dear reader."),
    fixture("plan", ["top five"], schema="Plan", json={"steps": ["query", "share"], "note": None}),
)


@dataclass
class Rig:
    """A scripted endpoint and a client of it whose waits between retries take no time."""

    server: ScriptedModel
    stack: AsyncExitStack
    telemetry: Telemetry = field(default_factory=Telemetry.for_tests)
    slept: list[float] = field(default_factory=list)

    async def models(self, **overrides: Any) -> Models:
        async def sleep(seconds: float) -> None:
            self.slept.append(seconds)

        settings = model_settings(self.server, **overrides)
        models = Models(settings, self.telemetry, sleep=sleep, jitter=lambda: 1.0)
        return await self.stack.enter_async_context(models)

    async def model(self, agent: str = "sql", **overrides: Any) -> Model:
        return (await self.models(**overrides)).for_agent(agent)

    def metric(self, name: str, **labels: str) -> float:
        return self.telemetry.registry.get_sample_value(name, labels) or 0.0


@pytest.fixture
async def rig(scripted_model: ScriptedModelFactory) -> AsyncIterator[Rig]:
    async with AsyncExitStack() as stack:
        yield Rig(await scripted_model(*FIXTURES), stack)


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    """No key of the developer and no .env file takes part."""
    for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL", "BOS_MODEL", "AZURE_OPENAI_ENDPOINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def unused_port() -> int:
    """A port on which nothing listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture
async def refusing_endpoint() -> AsyncIterator[str]:
    """An endpoint whose stream is a refusal, as the real API sends one; counts no tokens."""
    chunks = (
        {"delta": {"role": "assistant", "content": None, "refusal": "I cannot "}},
        {"delta": {"refusal": "do that."}},
        {"delta": {}, "finish_reason": "stop"},
    )

    async def answer(request: web.Request) -> web.Response:
        events = [json.dumps({"model": "m", "choices": [chunk]}) for chunk in chunks]
        text = "".join(f"data: {event}\n\n" for event in (*events, "[DONE]"))
        return web.Response(text=text, content_type="text/event-stream")

    async with endpoint_of(answer) as url:
        yield url
