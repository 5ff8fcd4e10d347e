"""Descriptions of documents: by the model, else by rule."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pydantic import BaseModel, Field

from bos_documents.ingest.prompts import description_messages
from bos_documents.ingest.rules import (
    MAX_DESCRIPTION_CHARS,
    MAX_TYPE_CHARS,
    Described,
    described_by_rule,
    known_date,
    one_line,
    topics,
)
from bos_llm import NoReply, attempt

if TYPE_CHECKING:
    from bos_chassis.telemetry import Telemetry
    from bos_documents.ingest.rules import Excerpt
    from bos_documents.metrics import DocumentsMetrics
    from bos_documents.settings import DocumentsSettings
    from bos_llm import Model


class DocumentDescription(BaseModel):
    """What a document is."""

    description: str = Field(description="Two or three sentences: kind, topics, scope")
    document_type: str = Field(default="", description="Kind in one or two words, or empty")
    topics: list[str] = Field(default=[], description="At most 8, most important first")
    document_date: str = Field(default="", description="YYYY-MM-DD, or empty")


class Describer:
    """Describes documents; never fails.

    Args:
        model: Whom to ask; None for none.
        settings: Time and bounds.
        metrics: Counts outcomes.
        telemetry: For the log, which holds nothing of documents.
    """

    def __init__(
        self,
        model: Model | None,
        settings: DocumentsSettings,
        metrics: DocumentsMetrics,
        telemetry: Telemetry,
    ) -> None:
        self._model = model
        self._settings = settings
        self._metrics = metrics
        self._log = telemetry.logger("bos.documents.descriptions")

    async def describe(self, excerpt: Excerpt) -> Described:
        """Description, kind, topics and date of a document."""
        by_rule = described_by_rule(excerpt)
        try:
            reply = await attempt(
                self._model,
                lambda: description_messages(excerpt),
                DocumentDescription,
                within_s=self._settings.describe_timeout_s,
                max_tokens=self._settings.max_reply_tokens,
            )
        except NoReply as failure:
            if not failure.not_configured:
                self._log.info("document described by rule", error=failure.error_type)
            self._metrics.descriptions.labels("by_rule").inc()
            return by_rule
        self._metrics.descriptions.labels("by_model").inc()
        said = reply.value
        return Described(
            description=one_line(said.description)[:MAX_DESCRIPTION_CHARS] or by_rule.description,
            document_type=one_line(said.document_type)[:MAX_TYPE_CHARS].casefold(),
            topics=topics(said.topics) or by_rule.topics,
            date=known_date(said.document_date) or by_rule.date,
        )
