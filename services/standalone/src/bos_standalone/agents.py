"""The agents of this composition. Adding one is one line in the table."""

from __future__ import annotations

import importlib
import inspect
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bos_agentkit import AgentServiceSettings
from bos_chassis.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractAsyncContextManager

    from bos_chassis.server import GrpcServer

AGENTS: Mapping[str, str] = {
    "sql": "bos_sql.service:serve",
    "computation": "bos_computation.service:serve",
    "code": "bos_code.service:serve",
}
"""Canonical name of each agent, and the ``serve`` of its ``service.py``."""


@dataclass(frozen=True, slots=True)
class AgentFactory:
    """How to start one agent."""

    package: str
    settings: type[AgentServiceSettings]
    serve: Callable[..., AbstractAsyncContextManager[GrpcServer]]

    def settings_with(self, **offered: Any) -> AgentServiceSettings:
        """The agent's settings, with those of the offered values that it has a field for.

        Raises:
            ConfigurationError: a setting is missing or wrong.
        """
        wanted = {k: v for k, v in offered.items() if k in self.settings.model_fields}
        return self.settings.load(**wanted)

    def start(
        self, settings: AgentServiceSettings, **offered: Any
    ) -> AbstractAsyncContextManager[GrpcServer]:
        """Call its ``serve`` with those of the offered collaborators that it asks for."""
        parameters = inspect.signature(self.serve).parameters
        wanted = {k: v for k, v in offered.items() if k in parameters}
        return self.serve(settings=settings, **wanted)


def agent_factory(name: str) -> AgentFactory:
    """The factory of an agent of the table.

    Its settings class is the one that annotates the first parameter of its ``serve``; by the rule
    of the house it is defined in ``settings.py`` beside it.

    Raises:
        ConfigurationError: the line of the table is wrong, or the agent is not installed.
    """
    module_name, _, attribute = AGENTS[name].partition(":")
    package = module_name.rpartition(".")[0]
    try:
        serve = getattr(importlib.import_module(module_name), attribute)
        annotation = inspect.signature(serve).parameters["settings"].annotation
        settings = getattr(importlib.import_module(f"{package}.settings"), str(annotation))
    except (ImportError, AttributeError, KeyError, ValueError) as error:
        raise ConfigurationError(
            f"The agent {name!r} cannot be started from {AGENTS[name]!r} ({error}). Its line in the"
            " table of agents must name a function `serve(settings: …Settings, telemetry, …)`, the"
            " settings class must be in the package's settings.py, and the package installed."
        ) from error
    if not (isinstance(settings, type) and issubclass(settings, AgentServiceSettings)):
        raise ConfigurationError(
            f"The settings of the agent {name!r} must be a subclass of AgentServiceSettings."
        )
    return AgentFactory(package, settings, serve)
