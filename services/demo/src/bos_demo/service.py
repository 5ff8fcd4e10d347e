"""Start of the demo: load the sample company, run its API, site, mailbox and scripted model."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bos_chassis.settings import is_loopback
from bos_chassis.telemetry import setup_telemetry
from bos_demo.company import load_postgres, table_names, write_sqlite
from bos_demo.company_api import CompanyApi, serve_company_api
from bos_demo.dialogues import load_approved
from bos_demo.mailbox.servers import serve_mailbox
from bos_demo.questions import load_every_question
from bos_demo.scripted.dialogue import dialogue_fixtures
from bos_demo.scripted.nearest import NearestQuestions
from bos_demo.scripted.replies import demo_fixtures
from bos_demo.website.service import Website, serve_website
from bos_errors import ConfigurationError
from bos_testkit.scripted_model.server import ScriptedModel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import date
    from ipaddress import IPv4Network

    from pydantic import SecretStr

    from bos_chassis.telemetry import Telemetry
    from bos_demo.mailbox.servers import SampleMailbox
    from bos_demo.settings import DemoSettings


@dataclass(frozen=True)
class Demo:
    """Addresses, tables and date of the running demo."""

    database_dsn: str
    """PostgreSQL database of the sample company."""
    database_schema: str
    """Its schema, which must be on the search path, as table names are unqualified."""
    sqlite_path: Path | None
    """SQLite file with the same rows, if configured."""
    allowed_tables: tuple[str, ...]
    """All tables that queries may use, by unqualified name."""
    today: date
    """The company's fixed today."""
    model: ScriptedModel
    """The scripted model; its knobs inject faults."""
    api: CompanyApi
    """The company's REST API."""
    website: Website
    """The public site and the search API that knows it."""
    mailbox: SampleMailbox | None = None
    """The sample mailbox's servers; None without."""
    service: str = "demo"

    @property
    def sample_api(self) -> dict[str, str]:
        """Settings of an agent that calls the company's API."""
        return self.api.settings

    @property
    def sample_servers(self) -> tuple[str, ...]:
        """Mail servers on loopback that the mail agent may use without TLS."""
        return () if self.mailbox is None else self.mailbox.servers

    @property
    def metadata_path(self) -> Path:
        """Metadata file for the sql agent: synonyms, metrics and joins of the tables."""
        return Path(str(files("bos_demo") / "metadata.yaml"))

    @property
    def search_provider(self) -> str:
        """Shape of the search API, for the web agent."""
        return "tavily"

    @property
    def search_url(self) -> str:
        """Address of the search API."""
        return self.website.search_url

    @property
    def search_key(self) -> SecretStr:
        """Key of the search API."""
        return self.website.search_key

    @property
    def search_networks(self) -> tuple[IPv4Network, ...]:
        """Networks that the search API is in: loopback."""
        return self.website.networks

    @property
    def site_origins(self) -> dict[str, tuple[IPv4Network, ...]]:
        """The public site, which is on loopback, with its networks."""
        return {self.website.site: self.website.networks}

    @property
    def model_base_url(self) -> str:
        """Base URL for OpenAI-compatible clients."""
        return self.model.base_url

    @property
    def address(self) -> str:
        """Host and port of the scripted model."""
        return urlsplit(self.model.base_url).netloc


@asynccontextmanager
async def serve(settings: DemoSettings, telemetry: Telemetry | None = None) -> AsyncIterator[Demo]:
    """Load the sample company if needed, and run API and scripted model until the context exits.

    Raises:
        ConfigurationError: the model would listen on the network, or the database URL is invalid.
        FailedPrecondition: schema or file exist with other content.
        Unavailable: the database cannot be reached.
    """
    key = settings.model_key
    require_key(settings.model_host, known=key is not None)
    async with AsyncExitStack() as stack:
        if telemetry is None:
            telemetry = stack.enter_context(setup_telemetry("demo", settings.telemetry))
        await _load(settings, telemetry)
        known = (*load_every_question(), *load_approved())
        api = await stack.enter_async_context(
            serve_company_api(
                settings.database_url.get_secret_value(),
                settings.database_schema,
                settings.today,
                port=settings.api_port,
            )
        )
        model = await stack.enter_async_context(
            ScriptedModel(
                [*demo_fixtures(settings.today), *dialogue_fixtures(settings.today)],
                host=settings.model_host,
                port=settings.model_port,
                key=None if key is None else key.get_secret_value(),
                fallback=NearestQuestions([each.question for each in known]).reply,
            )
        )
        mailbox = None
        if settings.mailbox:
            mailbox = await stack.enter_async_context(serve_mailbox(settings.today))
        website = await stack.enter_async_context(serve_website(settings.today))
        yield Demo(
            database_dsn=settings.database_url.get_secret_value(),
            database_schema=settings.database_schema,
            sqlite_path=settings.sqlite_path,
            allowed_tables=table_names(),
            today=settings.today,
            model=model,
            api=api,
            website=website,
            mailbox=mailbox,
        )


def require_key(host: str, *, known: bool) -> None:
    """Refuse to offer the scripted model to the network without a key.

    Raises:
        ConfigurationError: ``host`` is not a loopback address, and there is no key.
    """
    if not known and not is_loopback(host):
        raise ConfigurationError(
            f"BOS_DEMO_MODEL_HOST={host} would offer the scripted model to the network. Set "
            "BOS_DEMO_MODEL_KEY, which callers then present, or stay on 127.0.0.1."
        )


async def _load(settings: DemoSettings, telemetry: Telemetry) -> None:
    log = telemetry.logger("bos_demo")
    loaded = await load_postgres(
        settings.database_url.get_secret_value(),
        schema=settings.database_schema,
        today=settings.today,
        seed=settings.seed,
    )
    log.info("sample company in PostgreSQL", rows=loaded.rows, skipped=loaded.skipped)
    if settings.sqlite_path is not None:
        written = await asyncio.to_thread(
            write_sqlite, settings.sqlite_path, today=settings.today, seed=settings.seed
        )
        log.info("sample company in SQLite", rows=written.rows, skipped=written.skipped)
