"""Composing: one streamed call of the model, or the results alone.

Whatever goes wrong with the model, also after some of its text was passed on, the last message is a
whole answer; it is authoritative over the deltas before it.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from google.protobuf import timestamp_pb2

from bos.common.v1 import TraceEvent, TraceEventType
from bos.composer.v1 import ComposeRequest, ComposeResponse, ComposerOutput
from bos_agentkit.usage import consumed
from bos_chassis.deadlines import timeout_for
from bos_chassis.errors import BosError
from bos_chassis.values import to_value
from bos_composer.citations import Citations, merge, renumber
from bos_composer.deterministic import plain_answer
from bos_composer.numbers import NumberFormat
from bos_composer.outcomes import met_model_outage, succeeded, unstated_assumptions
from bos_composer.prompts import compose_messages
from bos_composer.screening import OwnWords, Screen, Unfit
from bos_llm import (
    Completion,
    ModelNotConfigured,
    ModelOutputInvalid,
    TokenBudget,
    Usage,
    set_budget,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from bos.agent.v1 import AgentResult
    from bos.common.v1 import Table
    from bos_chassis.telemetry import Telemetry
    from bos_composer.settings import ComposerSettings
    from bos_llm import Message, Model, Models, TextDelta

# What remains of the caller's time when the model has had its share.
_RESERVE_S = 0.5
_NOT_CONFIGURED = ModelNotConfigured.default_reason
_INVALID = ModelOutputInvalid.default_reason


class _ModelFailed(Exception):
    """The model wrote no answer; the message is safe for people."""

    def __init__(self, message: str, reason: str, usage: Usage | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.usage = usage or Usage()


@dataclass(slots=True)
class _Written:
    """What the model wrote, filled in while it writes."""

    pieces: list[str] = field(default_factory=list)
    usage: Usage = field(default_factory=Usage)
    cut_off: bool = False
    started: float = field(default_factory=time.monotonic)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Composer:
    """Writes answers; keeps nothing between calls and is safe to share.

    Args:
        settings: Limits and number locale.
        telemetry: Where answers are logged.
        models: Where the model is; None answers from the results alone.
    """

    def __init__(
        self, settings: ComposerSettings, telemetry: Telemetry, *, models: Models | None
    ) -> None:
        self._settings = settings
        self._log = telemetry.logger("bos.composer")
        # Asked for now: wrong model settings stop the start, not the first answer.
        self._model = None if models is None else models.for_agent("composer")
        self._numbers = NumberFormat(settings.locale, settings.currency, settings.currency_pattern)
        self._own_words = OwnWords.of_prompts(self._numbers)

    async def compose(self, request: ComposeRequest) -> AsyncGenerator[ComposeResponse, None]:
        """Deltas as the model writes, then one output. Never fails for reasons of the model."""
        # Without a bound, what is spent and what is given up is counted all the same.
        bound = request.token_budget if request.HasField("token_budget") else None
        set_budget(TokenBudget(bound))
        citations = merge(request.results)
        written = _Written()
        trace: list[TraceEvent] = []
        try:
            async with aclosing(self._deltas(request, citations, written)) as deltas:
                async for delta in deltas:
                    yield ComposeResponse(delta=delta)
            identity = range(1, len(citations.sources) + 1)
            answer = renumber(written.text.strip(), identity)
            deterministic = False
            lacking = unstated_assumptions(answer, request.results)
            if lacking:
                answer = f"{answer}\n\n{lacking}"
                yield ComposeResponse(delta=f"\n\n{lacking}")
        except _ModelFailed as failure:
            written.usage = failure.usage
            trace.append(_explain(failure))
            answer = plain_answer(request, citations, self._numbers)
            deterministic = True
        output = _output(request, citations, answer, written, deterministic, trace)
        self._log.info(
            "composed",
            deterministic=deterministic,
            chars=len(answer),
            results=len(request.results),
            succeeded=sum(map(succeeded, request.results)),
        )
        yield ComposeResponse(output=output)

    async def _deltas(
        self, request: ComposeRequest, citations: Citations, written: _Written
    ) -> AsyncGenerator[str, None]:
        """The model's text in pieces; what was written so far is in ``written``.

        Raises:
            _ModelFailed: before the first piece or after any.
        """
        if self._model is None or not self._model.configured:
            raise _ModelFailed("No model is configured.", _NOT_CONFIGURED)
        messages = compose_messages(
            request,
            citations,
            self._numbers,
            history_messages=self._settings.history_messages,
            preview_rows=self._settings.preview_rows,
        )
        model = self._model
        # The person has waited through an agent's retries: one look whether the model is back.
        patient = not any(map(met_model_outage, request.results))
        try:
            async with (
                aclosing(self._items(model, messages, patient)) as items,
                aclosing(self._screened(items, written, model.config.model)) as texts,
            ):
                async for text in texts:
                    yield text
        except Unfit as unfit:
            raise _ModelFailed(str(unfit), _INVALID, written.usage) from None
        if not written.text.strip():
            raise _ModelFailed("The model's reply was empty.", _INVALID, written.usage)

    async def _screened(
        self,
        items: AsyncGenerator[TextDelta | Completion, None],
        written: _Written,
        model: str,
    ) -> AsyncGenerator[str, None]:
        """What of the model's stream may be shown, up to the longest answer.

        Raises:
            Unfit: it is a web page, or repeats the prompt.
        """
        screen, room = Screen(self._own_words), self._settings.max_answer_chars
        # Until the stream says what it cost; it may be left before that.
        written.usage = Usage(model=model, calls=1)
        async for item in items:
            if isinstance(item, Completion):
                written.usage = item.usage
                written.cut_off = item.truncated
                continue
            text = item.text[:room]
            room -= len(text)
            written.pieces.append(text)
            shown = screen.add(text)
            if shown:
                yield shown
            if room <= 0:
                written.cut_off = True
                break
        rest = screen.end()
        if rest and written.text.strip():
            yield rest

    async def _items(
        self, model: Model, messages: Sequence[Message], patient: bool
    ) -> AsyncGenerator[TextDelta | Completion, None]:
        """The model's stream within our share of the caller's time, its failures translated."""
        share = timeout_for(self._settings.model_timeout_s + _RESERVE_S, 0) - _RESERVE_S
        deadline = asyncio.get_running_loop().time() + max(0.0, share)
        try:
            async with aclosing(model.stream(messages, patient=patient)) as stream:
                while True:
                    # Around each item alone: a time limit around a yield would hit our caller.
                    async with asyncio.timeout_at(deadline):
                        item = await anext(stream, None)
                    if item is None:
                        return
                    yield item
        except TimeoutError:
            raise _ModelFailed("The model took too long.", "MODEL_TIMEOUT") from None
        except BosError as error:
            usage = getattr(error, "usage", None)
            raise _ModelFailed(error.message, error.reason, usage) from error
        except Exception as error:
            # No failure of the composer's model costs the answer, a defect on the way to it
            # neither. The log keeps what happened.
            self._log.exception("model call failed unexpectedly")
            raise _ModelFailed("The model could not be asked.", "INTERNAL") from error


def _output(
    request: ComposeRequest,
    citations: Citations,
    answer: str,
    written: _Written,
    deterministic: bool,
    trace: Sequence[TraceEvent],
) -> ComposerOutput:
    results, usage = request.results, written.usage
    finished = _event(
        TraceEventType.TRACE_EVENT_TYPE_RESULT,
        "Composer finished",
        deterministic=deterministic,
        sources=len(citations.sources),
        cut_off=written.cut_off,
        model=usage.model,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
    )
    return ComposerOutput(
        answer=answer,
        sources=citations.sources,
        data=_data(results),
        highlights=[text for result in results for text in result.highlights],
        followups=[text for result in results for text in result.followups],
        charts=[chart for result in results for chart in result.charts],
        usage=consumed(usage, written.started),
        trace=[*trace, finished],
        deterministic=deterministic,
    )


def _data(results: Sequence[AgentResult]) -> Table | None:
    """The first table among successful results, in result order."""
    return next((r.table for r in results if succeeded(r) and r.HasField("table")), None)


def _explain(failure: _ModelFailed) -> TraceEvent:
    """Working without a model is a way to run Bos; a model that fails is an error."""
    kind = (
        TraceEventType.TRACE_EVENT_TYPE_MESSAGE
        if failure.reason == _NOT_CONFIGURED
        else TraceEventType.TRACE_EVENT_TYPE_ERROR
    )
    text = f"{failure.message} The answer was put together from the results alone."
    return _event(kind, text, reason=failure.reason)


def _event(kind: TraceEventType, message: str, **data: Any) -> TraceEvent:
    now = timestamp_pb2.Timestamp()
    now.GetCurrentTime()
    return TraceEvent(
        type=kind,
        agent="composer",
        message=message,
        data={name: to_value(value) for name, value in data.items()},
        create_time=now,
    )
