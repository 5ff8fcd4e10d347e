"""Connection with one remote agent: its card, kept fresh by a background task, and its tasks.

::

    fetch card -> ready -> refresh_s -> fetch card -> ...
       ^            '-> away: unavailable with a reason -> back-off -.
       '-------------------------------------------------------------'
"""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import TYPE_CHECKING

from a2a.client import A2ACardResolver, Client, ClientConfig, ClientFactory
from a2a.utils.constants import TransportProtocol

from bos_a2a.remote.definition import Definition, definition_of
from bos_a2a.remote.failures import late, why_away
from bos_a2a.remote.following import Following, waiting_task
from bos_a2a.remote.http import EXCHANGE, OpenExchange, http_client
from bos_agentkit.foreign import CallFailed
from bos_chassis.backoff import Backoff
from bos_errors import Unavailable

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import httpx
    from structlog.typing import FilteringBoundLogger

    from bos_a2a.remote.tasks import Outgoing, RemoteTask
    from bos_a2a.settings import A2aServer, A2aSettings
    from bos_chassis.telemetry import Telemetry

_FIRST_WAIT_S = 10.0
_FIRST_BACKOFF_S = 0.2
_CALL_OFF_S = 10.0
_LEAVE_S = 2.0
_MAX_WAITING = 1_000
_AWAY = "A2A_UNAVAILABLE"
_BINDINGS = [TransportProtocol.JSONRPC.value, TransportProtocol.HTTP_JSON.value]


class Connection:
    """The remote agent as steps see it: what it says of itself, and tasks of it.

    Args:
        name: Name of the specialist.
        server: Settings of the remote agent.
        settings: Of the agent.
        telemetry: Of the agent.
        on_change: Called with each new definition.
    """

    def __init__(
        self,
        name: str,
        server: A2aServer,
        settings: A2aSettings,
        telemetry: Telemetry,
        on_change: Callable[[Definition], None],
    ) -> None:
        self._name = name
        self._server = server
        self._settings = settings
        self._telemetry = telemetry
        self._log: FilteringBoundLogger = telemetry.logger("bos.a2a")
        self._on_change = on_change
        self._http: httpx.AsyncClient | None = None
        self._client: Client | None = None
        self._calling_off: set[asyncio.Task[None]] = set()
        self._waiting: OrderedDict[str, str] = OrderedDict()
        self.definition = Definition()
        """The latest; kept while the agent is away."""
        self.problem = f"The remote agent {server.where} has not answered yet."
        """Why the agent cannot be used now; empty while it can."""

    def require_ready(self) -> None:
        """Refuse while the agent is away.

        Raises:
            Unavailable: says why.
        """
        if self.problem:
            raise Unavailable(self.problem, reason=_AWAY)

    @asynccontextmanager
    async def kept(self) -> AsyncIterator[None]:
        """Keep the card fresh until the context exits, from the first look on.

        Raises:
            ConfigurationError: the token file cannot be read.
        """
        first = asyncio.Event()
        async with AsyncExitStack() as stack:
            self._http = await stack.enter_async_context(
                http_client(self._server, self._settings.http, self._telemetry)
            )
            keeping = asyncio.create_task(self._keep(first), name=f"remote agent {self._name}")
            try:
                # An agent that is away must not keep this one from starting.
                with suppress(TimeoutError):
                    async with asyncio.timeout(_FIRST_WAIT_S):
                        await first.wait()
                yield
            finally:
                keeping.cancel()
                await asyncio.gather(keeping, return_exceptions=True)
                await self._leave()

    async def send(
        self, message: Outgoing, *, timeout_s: float, on_progress: Callable[[str], None]
    ) -> RemoteTask:
        """Send a message, once, and follow its task until that rests.

        Args:
            message: What is sent.
            timeout_s: Then the task is called off; so it is where this is cancelled.
            on_progress: Called with the progress messages of the agent.

        Raises:
            CallFailed: nothing is known of an outcome.
        """
        if self._client is None:
            raise CallFailed(self.problem, reached=False, retryable=True)
        following = Following(
            self._client,
            self._server.where,
            streaming=self.definition.streaming,
            message=message,
            on_progress=on_progress,
        )
        try:
            async with asyncio.timeout(timeout_s):
                return await following.until_it_rests()
        except TimeoutError:
            self.call_off(following)
            raise late(self._server.where, reached=following.sent) from None
        except asyncio.CancelledError:
            self.call_off(following)
            raise

    def call_off(self, following: Following) -> None:
        """Have the agent cancel a task; the step, which is over, does not wait for it."""
        if following.sent:
            task = asyncio.create_task(_called_off(following), name=f"call off {self._name}")
            self._calling_off.add(task)
            task.add_done_callback(self._calling_off.discard)

    async def definition_now(self, *, timeout_s: float) -> Definition:
        """What the agent says of itself at this moment.

        Raises:
            CallFailed: it does not say.
        """
        try:
            async with asyncio.timeout(timeout_s):
                await self._look()
        except Exception as error:  # of code of others
            raise CallFailed(
                f"The remote agent {self._server.where} does not show its card.",
                reached=False,
                retryable=True,
            ) from error
        return self.definition

    def note_waiting(self, context_id: str, task: RemoteTask) -> None:
        """Remember which task of a context waits for input; the agent may list none."""
        self._waiting[context_id] = task.task_id
        while len(self._waiting) > _MAX_WAITING:
            self._waiting.popitem(last=False)

    async def waiting(self, context_id: str, *, timeout_s: float) -> str:
        """Id of the task of a context that waits for input; empty if none is known of."""
        if (known := self._waiting.get(context_id)) is not None:
            return known
        if self._client is None:
            return ""
        try:
            async with asyncio.timeout(timeout_s):
                found = await waiting_task(self._client, context_id)
        except TimeoutError:
            return ""
        return "" if found is None else found.id

    def note_replied(self, context_id: str) -> None:
        """Forget that a task of a context waits."""
        self._waiting.pop(context_id, None)

    async def _keep(self, first: asyncio.Event) -> None:
        """Fetch the card until shutdown; consecutive failures lengthen the wait."""
        backoff = Backoff(_FIRST_BACKOFF_S, cap_s=self._settings.max_backoff_s, jitter=0.5)
        failed = 0
        while True:
            exchange = OpenExchange()
            EXCHANGE.set(exchange)
            try:
                async with asyncio.timeout(self._server.connect_timeout_s):
                    await self._look()
                failed = 0
            except Exception as error:  # of code of others: any failure means that there is no card
                failed += 1
                self._lose(why_away(self._server.where, error, exchange))
            finally:
                await exchange.close()
            first.set()
            pause_s = self._settings.refresh_s
            if failed:
                pause_s = backoff.delay(failed, random.random())  # noqa: S311
            await asyncio.sleep(pause_s)

    async def _look(self) -> None:
        """Fetch the card, and take what it says."""
        assert self._http is not None
        base, path = self._server.url, None
        if base.endswith(".json"):
            base, _, path = base.rpartition("/")
        resolver = A2ACardResolver(self._http, base)
        found = definition_of(await resolver.get_agent_card(path), self._server)
        if found != self.definition or self._client is None:
            self.definition = found
            self._client = self._connected(found)
            self._on_change(found)
        if self.problem:
            self._log.info("remote agent connected", agent=self._name, binding=found.binding)
        self.problem = ""

    def _connected(self, definition: Definition) -> Client:
        config = ClientConfig(
            httpx_client=self._http,
            streaming=definition.streaming,
            supported_protocol_bindings=_BINDINGS,
        )
        return ClientFactory(config).create(definition.card)

    def _lose(self, reason: str) -> None:
        if self.problem != reason:
            self._log.warning("remote agent is away", agent=self._name, reason=reason)
        self.problem = reason

    async def _leave(self) -> None:
        """Let tasks be called off that are being, for a moment."""
        if self._calling_off:
            _, late_ones = await asyncio.wait(self._calling_off, timeout=_LEAVE_S)
            for task in late_ones:
                task.cancel()
            await asyncio.gather(*late_ones, return_exceptions=True)


async def _called_off(following: Following) -> None:
    with suppress(Exception):
        async with asyncio.timeout(_CALL_OFF_S):
            await following.call_off()
