"""All Python services in one process, each built by its own ``serve`` on a port of its own.

Targets, keys and URLs that a deployment would configure are made here; nothing else differs.
"""

from __future__ import annotations

from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from bos_demo.questions import load_every_question
from bos_standalone.agents import agent_factory, configured_agents, installed_agents
from bos_standalone.data_folder import BOOTSTRAP_FILE, LOG_FILE, own_folder
from bos_standalone.given import today
from bos_standalone.group import ServiceGroup
from bos_standalone.sample.documents import loading
from bos_standalone.sample.files import upload_sample
from bos_standalone.sample.mailbox import connect_sample
from bos_standalone.table import Composition
from bos_standalone.wiring import start_all

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence
    from pathlib import Path

    from bos_chassis.telemetry import Telemetry
    from bos_standalone.data_folder import DataFolder
    from bos_standalone.sample.documents import DemoDocuments
    from bos_standalone.settings import StandaloneSettings

_REST_MISSING = "REST is not offered: its program is not built; `make rest` builds it."


@dataclass(frozen=True, slots=True)
class Standalone:
    """A running standalone: addresses, API key, model, log file."""

    target: str
    """Address of the gateway."""
    api_key: str = field(repr=False)
    """API key of the local user; kept over restarts. Empty where all users have to sign in."""
    context: Mapping[str, str]
    """Context for questions: the sample company's fixed today."""
    questions: tuple[str, ...]
    """Demo questions that the scripted model can answer; empty with another model."""
    addresses: Mapping[str, str]
    """Address of each service by name."""
    model: str
    """Name of the model, for display."""
    log_file: Path
    """Log of all services, if this is a process of its own."""
    group: ServiceGroup = field(repr=False)
    rest_url: str = ""
    """Base URL of REST; empty without REST."""
    rest_missing: str = ""
    """Message for the user that REST is not built; empty if it runs or is switched off."""
    bootstrap_file: Path | None = None
    """File with the bootstrap token of the first account; None where none is needed."""
    documents: DemoDocuments | None = field(default=None, repr=False)
    """Documents of the sample company, loaded in the background; None without them."""


@asynccontextmanager
async def serve_all(
    settings: StandaloneSettings, telemetry: Telemetry, *, agents: Mapping[str, str] | None = None
) -> AsyncIterator[Standalone]:
    """Start every service, and stop them in order when the context is left.

    Args:
        settings: Of the composition; each service reads its own.
        telemetry: Shared by all.
        agents: ``module:serve`` of each agent by its name; None: those that are installed.

    Raises:
        ConfigurationError: the data folder is in use, or settings contradict one another.
        ServiceNotStarted: a service failed to start; names it.
    """
    with own_folder(settings.data_dir) as folder:
        log = telemetry.logger("bos.standalone")
        async with ServiceGroup(log) as group:
            found = installed_agents() if agents is None else agents
            factories = configured_agents(
                {name: agent_factory(name, target) for name, target in found.items()}
            )
            composition = Composition(settings, telemetry, folder, factories)
            await start_all(composition.rows, group, composition.running)
            mail = await _with_mailbox(composition, telemetry)
            files = await _with_files(composition, settings, folder, telemetry)
            questions = _questions(composition, mail=mail, files=files)
            standalone = _standalone(composition, settings, folder, group, questions)
            if missing := _announce(standalone, composition, folder, list(factories)):
                log.warning("not registered", reason=missing)
            async with AsyncExitStack() as stack:
                if _with_documents(composition, settings, list(factories)):
                    target, key = composition.address("documents"), composition.api_key
                    documents = await stack.enter_async_context(
                        loading(target, key, folder.path, telemetry)
                    )
                    over_documents = _questions(composition, documents=True)
                    standalone = replace(
                        standalone,
                        documents=documents,
                        questions=(*standalone.questions, *over_documents),
                    )
                yield standalone


def _with_documents(
    composition: Composition, settings: StandaloneSettings, agents: Sequence[str]
) -> bool:
    """Whether the sample company's documents are wanted, and there is a local user to own them."""
    has_company = "demo" in composition.running and "rag" in agents
    return settings.demo_documents and has_company and bool(composition.api_key)


async def _with_files(
    composition: Composition, settings: StandaloneSettings, folder: DataFolder, telemetry: Telemetry
) -> bool:
    """Whether the local user's workspace has the sample company's files."""
    wanted = settings.demo_documents and "demo" in composition.running
    if not wanted or "files" not in composition.running or not composition.api_key:
        return False
    target = composition.address("files")
    return await upload_sample(target, composition.api_key, folder.path, telemetry)


async def _with_mailbox(composition: Composition, telemetry: Telemetry) -> bool:
    """Whether the local user has the sample mailbox."""
    target, company = composition.address("identity"), composition.running.get("demo")
    if not target or not composition.api_key:
        return False
    mailbox = None if company is None else company.mailbox
    return await connect_sample(target, composition.api_key, mailbox, telemetry)


def _standalone(
    composition: Composition,
    settings: StandaloneSettings,
    folder: DataFolder,
    group: ServiceGroup,
    questions: tuple[str, ...],
) -> Standalone:
    running = composition.running
    rest = running.get("rest")
    missing = settings.rest and composition.rest_binary is None
    bootstrap = folder.path / BOOTSTRAP_FILE
    return Standalone(
        target=composition.address("gateway"),
        api_key=composition.api_key,
        context=today(running["demo"]) if "demo" in running else {},
        questions=questions,
        addresses={
            row.name: getattr(running[row.name], row.shown)
            for row in composition.rows
            if row.shown and row.name in running
        },
        model=composition.model.name,
        log_file=folder.path / LOG_FILE,
        group=group,
        rest_url=rest.url if rest else "",
        rest_missing=_REST_MISSING if missing else "",
        bootstrap_file=bootstrap
        if composition.first_is_made_by_token and bootstrap.exists()
        else None,
    )


def _questions(
    composition: Composition, *, documents: bool = False, mail: bool = False, files: bool = False
) -> tuple[str, ...]:
    """Demo questions whose agents run; those over documents come once these are loaded.

    Those over the sample mailbox, and over the sample files, come where the local user has them.
    """
    if not composition.model.scripted:
        return ()
    return tuple(
        each.question
        for each in load_every_question()
        if composition.running.keys() >= {*each.agents}
        and ("rag" in each.agents) == documents
        and (mail or "mail" not in each.agents)
        and (files or each.kind != "uploads")
    )


def _announce(
    standalone: Standalone, composition: Composition, folder: DataFolder, agents: Sequence[str]
) -> str:
    """Write ``standalone.json``; returns why it is not registered for this user, or ""."""
    settings = composition.gateway_settings
    assert settings is not None
    ring = settings.secrets_key_ring()
    operator = {
        "store_url": composition.running["store"].url,
        "artefacts_url": settings.artefacts_url,
        "planner_target": composition.address("planner"),
        "composer_target": composition.address("composer"),
        "agent_targets": {name: composition.address(name) for name in agents},
        "agent_audiences": settings.agent_audiences,
        "agent_connections": settings.agent_connections,
        "model": standalone.model,
        "secrets_key_ids": sorted(ring.ids) if ring else [],
    }
    return folder.announce(
        standalone.target,
        standalone.api_key,
        standalone.context,
        operator,
        standalone.rest_url,
        composition.address("identity"),
        composition.address("memory"),
        composition.address("documents"),
        composition.address("files"),
    )
