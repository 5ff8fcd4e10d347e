"""Every Python service in one process: built by its own ``serve``, each on its own loopback port.

Targets, keys and URLs that deployment config would hold are made here; nothing else differs.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from bos_demo.questions import load_questions
from bos_standalone.agents import agent_factory, installed_agents
from bos_standalone.data_folder import BOOTSTRAP_FILE, LOG_FILE, own_folder
from bos_standalone.given import today
from bos_standalone.group import ServiceGroup
from bos_standalone.table import House
from bos_standalone.wiring import start_all

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

    from bos_chassis.telemetry import Telemetry
    from bos_standalone.data_folder import DataFolder
    from bos_standalone.settings import StandaloneSettings

_REST_MISSING = "REST is not offered: its program is not built; `make rest` builds it."


@dataclass(frozen=True, slots=True)
class Standalone:
    """A running house, and what its users need to know."""

    target: str
    """Address of the gateway."""
    api_key: str = field(repr=False)
    """Its key, for the local user; kept over restarts. Empty where everybody has to sign in."""
    context: Mapping[str, str]
    """What questions should carry: the sample company's fixed today."""
    questions: tuple[str, ...]
    """Questions that the sample company and the scripted model can answer; may be empty."""
    addresses: Mapping[str, str]
    """Where each service listens, by name."""
    model: str
    """Which model answers, for people."""
    log_file: Path
    """What the services say, if this is a process of its own."""
    group: ServiceGroup = field(repr=False)
    rest_url: str = ""
    """Where REST is; empty if it is not offered."""
    rest_missing: str = ""
    """Why REST is not offered, for people; empty if it is, or is not wanted."""
    bootstrap_file: Path | None = None
    """What holds the token of the first account, unless anybody here may make it."""


@asynccontextmanager
async def serve_all(
    settings: StandaloneSettings, telemetry: Telemetry, *, agents: Mapping[str, str] | None = None
) -> AsyncIterator[Standalone]:
    """Start every service, and end them in order when the context is left.

    Args:
        settings: Of the composition; each service reads its own.
        telemetry: Shared by all.
        agents: ``module:serve`` of each agent by its name; None: those that are installed.

    Raises:
        ConfigurationError: the data folder is in use, or settings contradict one another.
        ServiceNotStarted: a service could not be started; names it.
    """
    with own_folder(settings.data_dir) as folder:
        log = telemetry.logger("bos.standalone")
        async with ServiceGroup(log) as group:
            found = installed_agents() if agents is None else agents
            factories = {name: agent_factory(name, target) for name, target in found.items()}
            house = House(settings, telemetry, folder, factories)
            await start_all(house.rows, group, house.running)
            standalone = _standalone(house, settings, folder, group)
            if missing := _announce(standalone, house, folder, list(factories)):
                log.warning("not registered", reason=missing)
            yield standalone


def _standalone(
    house: House, settings: StandaloneSettings, folder: DataFolder, group: ServiceGroup
) -> Standalone:
    running = house.running
    rest = running.get("rest")
    missing = settings.rest and house.rest_binary is None
    bootstrap = folder.path / BOOTSTRAP_FILE
    return Standalone(
        target=house.address("gateway"),
        api_key=house.api_key,
        context=today(running["demo"]) if "demo" in running else {},
        questions=tuple(q.question for q in load_questions()) if house.model.scripted else (),
        addresses={
            row.name: getattr(running[row.name], row.shown)
            for row in house.rows
            if row.shown and row.name in running
        },
        model=house.model.name,
        log_file=folder.path / LOG_FILE,
        group=group,
        rest_url=rest.url if rest else "",
        rest_missing=_REST_MISSING if missing else "",
        bootstrap_file=bootstrap if house.first_is_made_by_token and bootstrap.exists() else None,
    )


def _announce(
    standalone: Standalone, house: House, folder: DataFolder, agents: Sequence[str]
) -> str:
    """Write the file that clients find this by; why it is not registered, if it is not."""
    settings = house.gateway_settings
    assert settings is not None
    ring = settings.secrets_key_ring()
    operator = {
        "store_url": house.running["store"].url,
        "artefacts_url": settings.artefacts_url,
        "planner_target": house.address("planner"),
        "composer_target": house.address("composer"),
        "agent_targets": {name: house.address(name) for name in agents},
        "agent_audiences": settings.agent_audiences,
        "model": standalone.model,
        "secrets_key_ids": sorted(ring.ids) if ring else [],
    }
    return folder.announce(
        standalone.target,
        standalone.api_key,
        standalone.context,
        operator,
        standalone.rest_url,
        house.address("identity"),
        house.address("memory"),
    )
