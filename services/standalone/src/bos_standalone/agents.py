"""Agent discovery by the entry point group ``bos.agents``, factories, and grants to their steps."""

from __future__ import annotations

import importlib
import inspect
import re
from dataclasses import dataclass, field, replace
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

from bos_agentkit import AgentServiceSettings
from bos_errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from contextlib import AbstractAsyncContextManager
    from importlib.metadata import EntryPoint

    from bos_chassis.server import GrpcServer

GROUP = "bos.agents"
SERVICES = (
    "gateway",
    "identity",
    "memory",
    "documents",
    "planner",
    "composer",
    "sandbox",
    "mcp_db",
    "protocols",
)
"""Services of the same process that run on their own too (``bos serve NAME``)."""

_TAKEN = frozenset({*SERVICES, "all", "models", "postgres", "demo", "rest"})
_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")


# What steps of an agent may call, and which of a user's connections they receive:
# made from descriptors (make generate)
AUDIENCES: Mapping[str, tuple[str, ...]] = {
    "code": ("sandbox",),
    "computation": ("sandbox",),
    "rag": ("documents",),
    "sql": ("mcp_db", "file_tables"),
}

CONNECTIONS: Mapping[str, tuple[str, ...]] = {
    "mail": ("mail.gmail", "mail.imap"),
}
# end of what is made


def installed_agents() -> Mapping[str, str]:
    """``module:serve`` of each installed agent by its canonical name, in alphabetical order.

    Reads metadata of packages alone and imports no agent.

    Raises:
        ConfigurationError: two packages offer the same name, a name cannot be one, or no agent is
            installed.
    """
    return by_name(entry_points(group=GROUP))


def by_name(offered: Iterable[EntryPoint]) -> Mapping[str, str]:
    """``module:serve`` by the names of these entry points; the order of ``offered`` has no effect.

    Raises:
        ConfigurationError: see :func:`installed_agents`.
    """
    found: dict[str, EntryPoint] = {}
    for each in sorted(offered, key=lambda each: (each.name, _package(each))):
        if each.name in found:
            raise ConfigurationError(
                f"The packages {_package(found[each.name])} and {_package(each)} both offer an "
                f"agent named {each.name!r}; uninstall one, or rename it in its pyproject.toml."
            )
        if not _NAME.fullmatch(each.name) or each.name in _TAKEN:
            raise ConfigurationError(
                f"The package {_package(each)} offers an agent named {each.name!r}, which is no "
                f"free name; rename it in its pyproject.toml, [project.entry-points.{GROUP!r}], to "
                "lower-case letters, digits and underscores that name no service of Bos."
            )
        found[each.name] = each
    if not found:
        raise ConfigurationError(
            f"No agent is installed: no package has an entry point in the group {GROUP!r}. "
            "`make install` installs the agents of this repository."
        )
    return {name: each.value for name, each in found.items()}


@dataclass(frozen=True, slots=True)
class AgentFactory:
    """Factory of one agent: its package, settings class, own settings and ``serve``."""

    package: str
    settings: type[AgentServiceSettings]
    serve: Callable[..., AbstractAsyncContextManager[GrpcServer]]
    own: Mapping[str, Any] = field(default_factory=dict)
    """Settings that tell the agent from others of its package."""

    def settings_with(self, **offered: Any) -> AgentServiceSettings:
        """Load the agent's settings; offered values without a field in them are ignored.

        Raises:
            ConfigurationError: a setting is missing or wrong.
        """
        wanted = {k: v for k, v in offered.items() if k in self.settings.model_fields}
        return self.settings.load(**wanted, **self.own)

    def start(
        self, settings: AgentServiceSettings, **offered: Any
    ) -> AbstractAsyncContextManager[GrpcServer]:
        """Call the agent's ``serve``; offered dependencies without a parameter are ignored."""
        parameters = inspect.signature(self.serve).parameters
        wanted = {k: v for k, v in offered.items() if k in parameters}
        return self.serve(settings=settings, **wanted)


def agent_factory(name: str, target: str) -> AgentFactory:
    """The factory of the agent ``name``, whose entry point is ``target``.

    Its settings class is the one that annotates the parameter ``settings`` of its ``serve``; it is
    defined in the same module, or in ``settings.py`` beside it.

    Raises:
        ConfigurationError: the entry point is wrong, or its target cannot be imported. A standalone
            that started without an installed agent would plan as if it did not exist, so the
            start fails.
    """
    module_name, _, attribute = target.partition(":")
    package = module_name.rpartition(".")[0]
    try:
        module = importlib.import_module(module_name)
        serve = getattr(module, attribute)
        annotation = str(inspect.signature(serve).parameters["settings"].annotation)
        settings = getattr(module, annotation, None)
        if settings is None:
            settings = getattr(importlib.import_module(f"{package}.settings"), annotation)
    except Exception as error:  # code of others, which may fail in any way while it is imported
        raise ConfigurationError(
            f"The agent {name!r} cannot be loaded from {target!r} of the package "
            f"{_package_of(name, target)} ({type(error).__name__}: {error}). Reinstall or "
            f"uninstall the package; its entry point in the group {GROUP!r} names a function "
            "`serve(settings: …Settings, telemetry, …)` whose settings class is beside it or in "
            "settings.py."
        ) from error
    if not (isinstance(settings, type) and issubclass(settings, AgentServiceSettings)):
        raise ConfigurationError(
            f"The settings of the agent {name!r} must be a subclass of AgentServiceSettings."
        )
    return AgentFactory(package, settings, serve)


def configured_agents(installed: Mapping[str, AgentFactory]) -> Mapping[str, AgentFactory]:
    """Factories of the agents to start: an installed package may be several, or none.

    Raises:
        ConfigurationError: settings are wrong, or give an agent a name that is taken.
    """
    found: dict[str, AgentFactory] = {}
    for name, factory in installed.items():
        own = factory.settings.agents()
        if own is None:
            found[name] = factory
            continue
        for each, settings in own.items():
            if not _NAME.fullmatch(each) or each in _TAKEN or each in installed or each in found:
                raise ConfigurationError(
                    f"The settings of {name!r} name an agent {each!r}, which is no free name; give "
                    "it another one, of lower-case letters, digits and underscores."
                )
            found[each] = replace(factory, own=settings)
    return found


def _package(found: EntryPoint) -> str:
    return found.dist.name if found.dist else found.module


def _package_of(name: str, target: str) -> str:
    """The installed package that offers the agent; its module if no metadata names it."""
    named = (each for each in entry_points(group=GROUP, name=name) if each.value == target)
    return next(map(_package, named), target.partition(".")[0])
