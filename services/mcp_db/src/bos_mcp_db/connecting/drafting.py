"""The drafted metadata file: with the configured model, or without one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from bos_chassis.settings import Source, TelemetrySettings, settings_from
from bos_chassis.telemetry import setup_telemetry
from bos_errors import FailedPrecondition
from bos_llm import Models, ModelSettings
from bos_mcp_db.backends.backend import TableInfo
from bos_mcp_db.connecting.draft import add_totals, draft
from bos_mcp_db.connecting.metadata_file import MAX_BYTES, metadata_yaml
from bos_mcp_db.connecting.model_draft import add_words

# It has the settings of the agent that reads the file.
_AGENT: Final = "sql"
# Whole, from one of them: a folder's .env must not say where a key of the environment goes.
_SOURCES: Final[tuple[Source, ...]] = ("environment", "file")


@dataclass(frozen=True, slots=True)
class Metadata:
    """Text of the file, what in it is to be checked, and how it came about."""

    text: str
    to_check: tuple[str, ...]
    author: str
    """A sentence: which model wrote it, or why none did."""


async def draft_metadata(
    tables: Sequence[TableInfo], *, ask_model: bool, progress: Callable[[str], None]
) -> Metadata:
    """Draft the metadata of ``tables``. Names, types and comments go to the model; no rows do.

    Args:
        tables: What may be read.
        ask_model: Whether the model is asked, if one is configured.
        progress: Called with a line before each call of the model.

    Raises:
        FailedPrecondition: the file would be larger than the sql agent reads.
        ConfigurationError: the model's settings are wrong.
    """
    made = draft(tables)
    settings = _model_settings() if ask_model else None
    author = "Drafted from comments, keys and names, without a model."
    if settings is not None:
        quiet = TelemetrySettings.load(log_level="error", otlp_endpoint=None)
        with setup_telemetry("bos-connect", quiet) as telemetry:
            async with Models(settings, telemetry) as models:
                model = models.for_agent(_AGENT)
                author = f"Drafted with {model.config.model}, which saw names, types and comments."
                if problem := await add_words(made, tables, model, progress):
                    author = f"{author} Not all of it: {problem}"
    add_totals(made, tables)  # last: the model's names for these numbers are better
    text = metadata_yaml(made, by_model=settings is not None)
    if len(text.encode()) > MAX_BYTES:
        # Comments of fields are in the database, where the agent reads them as well.
        for table in made.tables.values():
            table.fields = {name: words for name, words in table.fields.items() if words.check}
        text = metadata_yaml(made, by_model=settings is not None)
    if len(text.encode()) > MAX_BYTES:
        raise FailedPrecondition(
            f"The metadata of {len(tables)} tables would be larger than {MAX_BYTES} bytes. Choose"
            " fewer by --schema or --exclude."
        )
    return Metadata(text, tuple(made.to_check()), author)


def _model_settings() -> ModelSettings | None:
    """Settings of the model, from the first source that has any; None: no model is configured."""
    for source in _SOURCES:
        with settings_from(source):
            settings = ModelSettings.load()
            if source == "file" and settings.azure_auth == "managed_identity":
                continue  # a file says where, and this machine's identity would go there
            if not settings.missing(_AGENT, settings.get_agent_model_config(_AGENT)):
                return settings
    return None
