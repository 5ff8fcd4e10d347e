"""A scripted model endpoint and a client of it."""

from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Any

from bos_chassis.telemetry import Telemetry
from bos_llm import Model, Models
from bos_testkit.scripted_model.pytest_fixtures import model_settings
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

    @property
    def keys_sent(self) -> list[str]:
        """The ends of the keys of all requests so far."""
        return [request.key_end for request in self.server.requests]


class Clock:
    """A clock that the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now
