"""Extraction of personal facts from questions, concurrent with their runs."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from bos_errors import BosError
from bos_memory.facts import PersonalFacts
from bos_memory.prompts import extraction_messages

if TYPE_CHECKING:
    from bos_chassis.telemetry import Telemetry
    from bos_llm import Model
    from bos_memory.metrics import MemoryMetrics
    from bos_memory.origins import Asked
    from bos_memory.profiles import Profiles
    from bos_memory.settings import MemorySettings


class Extractor:
    """Extracts facts with the model and stores them; failures do not affect the run.

    Args:
        profiles: Store of the facts.
        model: Access to the model; None extracts nothing.
        settings: Timeouts and limits.
        metrics: Counts outcomes.
        telemetry: For the log, which never holds facts.
    """

    def __init__(
        self,
        profiles: Profiles,
        model: Model | None,
        settings: MemorySettings,
        metrics: MemoryMetrics,
        telemetry: Telemetry,
    ) -> None:
        self._profiles = profiles
        self._model = model
        self._settings = settings
        self._metrics = metrics
        self._log = telemetry.logger("bos.memory.extraction")
        self._under_way = 0

    async def extract(self, user_id: str, question: str, asked: Asked) -> bool:
        """Extract facts from a question; returns whether a new one was stored.

        Args:
            user_id: Author of the question.
            question: The question.
            asked: Its run, its time, and whether it may hold content of others.
        """
        if self._model is None or not self._model.configured:
            return False
        if self._under_way >= self._settings.max_extractions:
            self._metrics.extractions.labels("left_out").inc()
            return False
        self._under_way += 1
        try:
            async with asyncio.timeout(self._settings.extraction_timeout_s):
                found = await self._found(self._model, user_id, question, asked)
                outcome = (
                    found
                    if isinstance(found, str)
                    else await self._profiles.remember(user_id, found, asked)
                )
        except (BosError, TimeoutError) as error:
            self._log.info("no facts extracted", error=type(error).__name__)
            outcome = "failed"
        finally:
            self._under_way -= 1
        self._metrics.extractions.labels(outcome).inc()
        return outcome == "remembered"

    async def _found(
        self, model: Model, user_id: str, question: str, asked: Asked
    ) -> PersonalFacts | str:
        """Facts found by the model, or the outcome without any."""
        known = await self._profiles.known(user_id, asked.at)
        if known is None:
            return "outdated"
        reply = await model.structured(
            extraction_messages(question, known),
            PersonalFacts,
            max_tokens=self._settings.max_reply_tokens,
            patient=False,  # a fact missed now is found when it is stated again
        )
        return reply.value if reply.value.found else "nothing"
