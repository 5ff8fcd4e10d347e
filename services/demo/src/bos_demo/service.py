"""Start of the demo: load the sample company, run the scripted model."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from bos_chassis.settings import require_loopback
from bos_chassis.telemetry import setup_telemetry
from bos_demo.company import load_postgres, table_names, write_sqlite
from bos_demo.dialogue_fixtures import dialogue_fixtures
from bos_demo.fixtures import demo_fixtures
from bos_testkit.scripted_model.server import ScriptedModel

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from datetime import date

    from bos_chassis.telemetry import Telemetry
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
    service: str = "demo"

    @property
    def metadata_path(self) -> Path:
        """Metadata file for the sql agent: synonyms, metrics and joins of the tables."""
        return Path(str(files("bos_demo") / "metadata.yaml"))

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
    """Load the sample company if needed, and run the scripted model until the context is left.

    Raises:
        ConfigurationError: the model would listen on the network, or the database URL is invalid.
        FailedPrecondition: schema or file exist with other content.
        Unavailable: the database cannot be reached.
    """
    require_loopback(settings.model_host, configured=False)
    async with AsyncExitStack() as stack:
        if telemetry is None:
            telemetry = stack.enter_context(setup_telemetry("demo", settings.telemetry))
        await _load(settings, telemetry)
        model = await stack.enter_async_context(
            ScriptedModel(
                [*demo_fixtures(settings.today), *dialogue_fixtures(settings.today)],
                host=settings.model_host,
                port=settings.model_port,
            )
        )
        yield Demo(
            database_dsn=settings.database_url.get_secret_value(),
            database_schema=settings.database_schema,
            sqlite_path=settings.sqlite_path,
            allowed_tables=table_names(),
            today=settings.today,
            model=model,
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
