"""Settings, server and process entry of agent services."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Protocol, Self, TypeVar

from pydantic import Field, PrivateAttr

from bos.agent.v1 import add_AgentServiceServicer_to_server
from bos_agentkit.serving.servicer import AgentServicer
from bos_chassis.auth.run_token_checks import open_run_tokens
from bos_chassis.process import main
from bos_chassis.server import GrpcServer, Servicer, grpc_server
from bos_chassis.settings import AuthSettings, ServerSettings, Settings
from bos_llm import open_models

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from contextlib import AbstractAsyncContextManager

    from bos_agentkit.agent import Agent
    from bos_chassis.auth.callers import Authenticator
    from bos_chassis.telemetry import Telemetry
    from bos_llm import Models

S = TypeVar("S", bound="AgentServiceSettings")
S_contra = TypeVar("S_contra", bound="AgentServiceSettings", contravariant=True)

_SERVICE = "bos.agent.v1.AgentService"
_ENVELOPE_BYTES = 1024
"""Part of a message reserved for everything but the result."""


class AgentServiceSettings(Settings):
    """Settings of every agent service; subclass it with the agent's own ``env_prefix``."""

    server: ServerSettings = Field(default_factory=ServerSettings.load)
    auth: AuthSettings = Field(default_factory=AuthSettings.load)
    max_concurrent_steps: int = Field(
        default=64, ge=1, description="Steps at once; more are RESOURCE_EXHAUSTED"
    )
    step_timeout_s: float | None = Field(
        default=None,
        ge=1,
        le=86_400,
        description="Time for one attempt at a step, its model calls included; raise it for slow"
        " models, together with BOS_GATEWAY_RUN_TIMEOUT_S; unset: the agent's own, which its card"
        " shows",
    )
    serves_people: ClassVar[bool] = False
    """Whether its server also offers a service to users, and holds data of their accounts."""
    _gateway_target: Callable[[], str] | None = PrivateAttr(default=None)

    @classmethod
    def agents(cls) -> Mapping[str, Mapping[str, Any]] | None:
        """Agents that the installed package serves in standalone, by its settings.

        Override it where one package is several agents, each served with settings of its own.
        Returns the settings that tell each apart, by its name; None: one agent, named by its entry
        point.
        """
        return None

    def asking(self, gateway_target: Callable[[], str]) -> Self:
        """Copy for an agent started before the gateway that verifies its run tokens.

        Args:
            gateway_target: Address of the gateway, evaluated at the first call of the agent.
        """
        settings = self.model_copy()
        settings._gateway_target = gateway_target
        return settings

    @property
    def gateway_target(self) -> Callable[[], str] | None:
        """Address of the gateway; None: as ``auth`` sets it."""
        return self._gateway_target


class Serve(Protocol[S_contra]):
    """Signature of the ``serve`` in an agent's ``service.py``."""

    def __call__(
        self, settings: S_contra, telemetry: Telemetry, *, models: Models
    ) -> AbstractAsyncContextManager[GrpcServer]:
        """Build the agent and serve it until the context exits."""


def agent_servicer(
    settings: AgentServiceSettings,
    telemetry: Telemetry,
    agent: Agent,
    *,
    auth: Authenticator | None = None,
) -> Servicer:
    """Agent service of a server with further services, such as one for users.

    Args:
        settings: Bounds of its steps.
        telemetry: Of the service.
        agent: The agent.
        auth: Who may call it, which should be steps alone; None: as the server says.

    Raises:
        ConfigurationError: card and code disagree.
    """
    servicer = AgentServicer(
        agent,
        telemetry,
        max_concurrent_steps=settings.max_concurrent_steps,
        max_result_bytes=settings.server.max_message_bytes - _ENVELOPE_BYTES,
        step_timeout_s=settings.step_timeout_s,
    )
    return Servicer(
        servicer,
        add_AgentServiceServicer_to_server,
        _SERVICE,
        max_request_bytes=settings.server.max_message_bytes,
        auth=auth,
        shown_by=None if auth is None else frozenset(),
    )


@asynccontextmanager
async def agent_service(
    settings: AgentServiceSettings, telemetry: Telemetry, agent: Agent
) -> AsyncIterator[GrpcServer]:
    """Serve ``agent`` until the context exits.

    Raises:
        ConfigurationError: card and code disagree, or the server settings are invalid.
    """
    offered = agent_servicer(settings, telemetry, agent)
    tokens = open_run_tokens(
        settings.auth,
        agent.card.name,
        telemetry,
        accepts="agent",
        check_target=settings.gateway_target,
        tls=settings.server.tls,
    )
    async with (
        tokens as auth,
        grpc_server(settings.server, [offered], telemetry=telemetry, auth=auth) as server,
    ):
        yield server


def serve_agent(
    name: str,
    settings: type[S],
    serve: Serve[S],
    *,
    migrate: Callable[[str], Awaitable[None]] | None = None,
) -> NoReturn:
    """Process entry of an agent that needs only a model: all of its ``__main__.py``.

    Args:
        name: Name of the service in logs and traces.
        settings: Class of its settings.
        serve: Builds and serves it; the standalone calls the same function.
        migrate: Brings the tables at a PostgreSQL URL up to date; None for an agent without.

    Raises:
        SystemExit: Always, see :func:`bos_chassis.process.main`.
    """
    main(name, settings, serve, migrate=migrate, models=open_models)
