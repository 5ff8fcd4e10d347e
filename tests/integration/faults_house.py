"""Real services at addresses that outlive them, so that each can go away and come back."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from bos_chassis.settings import ServerSettings
from bos_chassis.telemetry import Telemetry
from bos_client import BosClient
from bos_composer.service import serve as serve_composer
from bos_composer.settings import ComposerSettings
from bos_computation.service import serve as serve_computation
from bos_computation.settings import ComputationSettings
from bos_demo.company import DEFAULT_TODAY
from bos_demo.scripted.replies import demo_fixtures
from bos_gateway.service import serve as serve_gateway
from bos_gateway.settings import GatewaySettings
from bos_llm import Models
from bos_mcp_db.service import serve as serve_mcp_db
from bos_mcp_db.settings import McpDbSettings
from bos_planner.service import serve as serve_planner
from bos_planner.settings import PlannerSettings
from bos_sandbox.service import serve as serve_sandbox
from bos_sandbox.settings import SandboxSettings
from bos_sql.service import serve as serve_sql
from bos_sql.settings import SqlSettings
from bos_testkit.processes import free_port
from bos_testkit.scripted_model.pytest_fixtures import model_settings
from bos_testkit.scripted_model.server import ScriptedModel

from .harness import TODAY, Outcome

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from contextlib import AbstractAsyncContextManager

    from bos_mcp_db.settings import DatabaseSettings
    from bos_testkit.scripted_model.replies import Fixture

    Make = Callable[[ServerSettings], AbstractAsyncContextManager[Any]]

_LONGEST_RUN_S = 120.0
_SLOW_LINK_S = 0.02


@dataclass
class Part:
    """A service behind a link that can be slow; both keep their ports."""

    make: Make
    behind: int = field(default_factory=free_port)
    port: int = field(default_factory=free_port)
    delay_s: float = 0.0
    """Added to each piece that crosses the link, either way."""
    _running: AsyncExitStack | None = None

    @property
    def address(self) -> str:
        """What others call."""
        return f"127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Start it, and the link to it."""
        self._running = AsyncExitStack()
        await self._running.enter_async_context(
            self.make(ServerSettings(port=self.behind, grace_s=0.2))
        )
        await self._running.enter_async_context(self._link())

    async def stop(self) -> None:
        """Stop it, if it runs: connections are refused from then on."""
        if self._running is not None:
            running, self._running = self._running, None
            await running.aclose()

    @asynccontextmanager
    async def _link(self) -> AsyncIterator[None]:
        tasks: set[asyncio.Task[None]] = set()

        def opened(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.create_task(self._carry(reader, writer))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        server = await asyncio.start_server(opened, "127.0.0.1", self.port)
        try:
            yield
        finally:
            server.close()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await server.wait_closed()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection; the end of either side is the end of both."""
        ways: list[asyncio.Task[None]] = []
        ends = [writer]
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self.behind)
            ends.append(back)
            ways = [
                asyncio.create_task(self._copy(reader, back)),
                asyncio.create_task(self._copy(there, writer)),
            ]
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        except OSError:
            return
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for end in ends:
                end.close()

    async def _copy(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            writer.write(data)
            await writer.drain()


@dataclass
class FaultsHouse:
    """Running services, and the client of their gateway."""

    client: BosClient
    model: ScriptedModel
    parts: dict[str, Part]
    asked: int = 0

    async def ask(self, question: str) -> Outcome:
        """Ask, and follow the run to its end."""
        self.asked += 1
        async with asyncio.timeout(_LONGEST_RUN_S):
            stream = self.client.ask_stream(question, context=TODAY, trace=True)
            return Outcome([event async for event in stream])

    async def ask_at_once(self, question: str, times: int) -> list[Outcome]:
        """Ask several times concurrently."""
        return list(await asyncio.gather(*(self.ask(question) for _ in range(times))))

    def slow_down(self, *, slow: bool) -> None:
        """Make every link slow, or fast again."""
        for part in self.parts.values():
            part.delay_s = _SLOW_LINK_S if slow else 0.0


@asynccontextmanager
async def open_faults_house(
    company: DatabaseSettings, store_url: str, replies: Sequence[Fixture]
) -> AsyncIterator[FaultsHouse]:
    """Planner, composer, two agents with what they call, and a gateway that retries at once."""
    telemetry = Telemetry.for_tests("faults")
    async with AsyncExitStack() as stack:
        enter = stack.enter_async_context
        model = await enter(ScriptedModel([*demo_fixtures(DEFAULT_TODAY), *replies]))
        short = {"retry_base_s": 0.001, "retry_cap_s": 0.002, "breaker_s": 0.001}
        models = await enter(Models(model_settings(model, **short), telemetry))
        databases = {"company": company}
        parts = {
            "mcp_db": Part(
                lambda server: serve_mcp_db(
                    McpDbSettings.load(server=server, databases=databases),
                    Telemetry.for_tests("mcp_db"),
                )
            ),
            "sandbox": Part(
                lambda server: serve_sandbox(
                    SandboxSettings.load(server=server, warm_workers=1),
                    Telemetry.for_tests("sandbox"),
                )
            ),
            "planner": Part(
                lambda server: serve_planner(
                    PlannerSettings.load(server=server),
                    Telemetry.for_tests("planner"),
                    models=models,
                )
            ),
            "composer": Part(
                lambda server: serve_composer(
                    ComposerSettings.load(server=server),
                    Telemetry.for_tests("composer"),
                    models=models,
                )
            ),
        }
        parts["sql"] = Part(
            lambda server: serve_sql(
                SqlSettings.load(server=server, mcp_url=f"http://{parts['mcp_db'].address}/mcp"),
                Telemetry.for_tests("sql"),
                models=models,
            )
        )
        parts["computation"] = Part(
            lambda server: serve_computation(
                ComputationSettings.load(server=server, sandbox_target=parts["sandbox"].address),
                Telemetry.for_tests("computation"),
                models=models,
            )
        )
        for part in parts.values():
            stack.push_async_callback(part.stop)
            await part.start()
        gateway = await enter(
            serve_gateway(
                GatewaySettings.load(
                    server=ServerSettings(port=0, grace_s=0.2),
                    store_url=store_url,
                    planner_target=parts["planner"].address,
                    composer_target=parts["composer"].address,
                    agent_targets={name: parts[name].address for name in ("sql", "computation")},
                    backoff_s=0.01,
                    restart_wait_s=0,
                    lease_s=15,
                ),
                telemetry.named("gateway"),
            )
        )
        yield FaultsHouse(await enter(BosClient(gateway.address)), model, parts)
