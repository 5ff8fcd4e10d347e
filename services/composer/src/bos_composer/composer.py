"""Composing an answer: one streamed model call, or the deterministic answer from the results.

The last message is a complete answer that replaces the deltas before it, also if the model fails
after some of them were sent.
"""

from __future__ import annotations

import time
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from google.protobuf import timestamp_pb2

from bos.common.v1 import TraceEvent, TraceEventType
from bos.composer.v1 import ComposeRequest, ComposeResponse, ComposerOutput
from bos_chassis.values import to_value
from bos_composer.citations import Citations, merge
from bos_composer.deterministic import plain_answer
from bos_composer.metrics import ComposerMetrics
from bos_composer.numbers import NumberFormat
from bos_composer.outcomes import (
    met_model_outage,
    not_done,
    succeeded,
    unstated_assumptions,
    unstated_caveats,
    was_not_done,
)
from bos_composer.prompts import HEADINGS, compose_messages
from bos_composer.reports import (
    numbered_sections,
    plain_finding,
    plain_highlights,
    report_sections,
    written_findings,
    written_highlights,
)
from bos_composer.screening import OwnWords, Screen, Unfit
from bos_composer.unfound_numbers import shown_values, unfound_note
from bos_llm import (
    Completion,
    ModelOutputInvalid,
    NoReply,
    TokenBudget,
    Usage,
    consumed,
    set_budget,
    set_model_choice,
    stream,
)

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence

    from bos.agent.v1 import AgentResult
    from bos.common.v1 import Table
    from bos_chassis.telemetry import Telemetry
    from bos_composer.markers import Markers
    from bos_composer.reports import Section
    from bos_composer.settings import ComposerSettings
    from bos_llm import Message, Models, TextDelta

_MAX_FOLLOWUPS = 6
_INVALID = ModelOutputInvalid.default_reason
_CUT_OFF = "(The answer reached its length limit and is cut off here.)"


class _NothingToWord(Exception):
    """Nothing was done and nothing failed, so that a model has nothing to add."""


@dataclass(slots=True)
class _Written:
    """Text and usage of the model's reply so far."""

    pieces: list[str] = field(default_factory=list)
    shown: list[str] = field(default_factory=list)
    """The same as it is streamed: screened, its citations checked."""
    prompt: list[Message] = field(default_factory=list)
    """Messages that the model was sent; empty if none was called."""
    usage: Usage = field(default_factory=Usage)
    cut_off: bool = False
    started: float = field(default_factory=time.monotonic)

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class Composer:
    """Composes answers; stateless and safe to share.

    Args:
        settings: Limits and number locale.
        telemetry: Where answers are logged.
        models: Access to the model; None composes deterministic answers only.
    """

    def __init__(
        self, settings: ComposerSettings, telemetry: Telemetry, *, models: Models | None
    ) -> None:
        self._settings = settings
        self._log = telemetry.logger("bos.composer")
        # Resolved here, so that wrong model settings fail the start and not the first answer.
        self._model = None if models is None else models.for_agent("composer")
        self._numbers = NumberFormat(settings.locale, settings.currency)
        self._own_words = OwnWords.of_prompts()
        self._metrics = ComposerMetrics(telemetry.registry)

    async def compose(self, request: ComposeRequest) -> AsyncGenerator[ComposeResponse, None]:
        """Stream deltas of the model, then one output; failures of the model raise no error."""
        # Tokens are counted without a budget as well, also those of an abandoned call.
        bound = request.token_budget if request.HasField("token_budget") else None
        set_budget(TokenBudget(bound))
        set_model_choice(request.model)
        citations = merge(request.results)
        sections = report_sections(request, HEADINGS)
        markers = citations.markers()
        written = _Written()
        trace: list[TraceEvent] = []
        found: dict[str, str] = {}
        undone = citations.without_sources("\n\n".join(not_done(request.results)))
        above = f"{undone}\n\n" if undone else ""
        try:
            if undone and all(map(was_not_done, request.results)):
                raise _NothingToWord
            if above:
                yield ComposeResponse(delta=above)
            async with aclosing(self._deltas(request, citations, markers, written)) as deltas:
                async for delta in deltas:
                    yield ComposeResponse(delta=delta)
            answer = above + "".join(written.shown).strip()
            deterministic = False
            found = written_findings(answer, sections)
            missing = [section for section in sections if section.heading not in found]
            added = [_CUT_OFF] if written.cut_off else []
            if note := self._unfound(answer, request, written):
                added.append(note)
            for lacking in (*added, *self._lacking(answer, missing, request, citations)):
                answer = f"{answer}\n\n{lacking}"
                yield ComposeResponse(delta=f"\n\n{lacking}")
        except NoReply as failure:
            written.usage, written.cut_off = failure.usage, False
            trace.append(_explain(failure))
            answer = plain_answer(request, citations, self._numbers)
            deterministic = True
        except _NothingToWord:
            answer = plain_answer(request, citations, self._numbers)
            deterministic = True
        unknown = markers.unknown + citations.unknown
        self._metrics.citations.labels("known").inc(markers.known)
        self._metrics.citations.labels("unknown").inc(unknown)
        trace.append(_finished(citations, written, deterministic, unknown))
        output = _output(request, citations, answer, written, deterministic, trace)
        if sections:
            self._structure(output, sections, found, request, citations, above)
        self._log.info(
            "composed",
            deterministic=deterministic,
            chars=len(answer),
            results=len(request.results),
            succeeded=sum(map(succeeded, request.results)),
            unknown_citations=unknown,
        )
        yield ComposeResponse(output=output)

    async def _deltas(
        self, request: ComposeRequest, citations: Citations, markers: Markers, written: _Written
    ) -> AsyncGenerator[str, None]:
        """Stream the model's text with its citations checked; ``written`` holds it so far.

        Raises:
            NoReply: the model failed, before the first piece or later.
        """

        def prompt() -> list[Message]:
            written.prompt = self._messages(request, citations)
            return written.prompt

        items = stream(
            self._model,
            prompt,
            within_s=self._settings.model_timeout_s,
            # The user has already waited for an agent's retries of the model, so one attempt only.
            patient=not any(map(met_model_outage, request.results)),
            log=self._log,
        )
        try:
            async with aclosing(items), aclosing(self._screened(items, written)) as texts:
                async for text in texts:
                    if shown := markers.add(text):
                        written.shown.append(shown)
                        yield shown
        except Unfit as unfit:
            raise NoReply(str(unfit), _INVALID, written.usage) from None
        if rest := markers.end():
            written.shown.append(rest)
            yield rest
        if not "".join(written.shown).strip():
            raise NoReply("The model's reply was empty.", _INVALID, written.usage)

    async def _screened(
        self,
        items: AsyncGenerator[TextDelta | Completion, None],
        written: _Written,
    ) -> AsyncGenerator[str, None]:
        """Pass on screened text of the model's stream, up to the maximum length of an answer.

        Raises:
            Unfit: the reply is a web page, or repeats the prompt.
        """
        screen, room = Screen(self._own_words), self._settings.max_answer_chars
        if self._model is not None:
            # An estimate until the stream reports its usage; it may be abandoned before that.
            written.usage = Usage(model=self._model.config.model, calls=1)
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

    def _lacking(
        self,
        answer: str,
        missing: Sequence[Section],
        request: ComposeRequest,
        citations: Citations,
    ) -> Iterator[str]:
        """What the model left out and the answer must hold: sections, assumptions, caveats."""
        for section in missing:
            finding = plain_finding(section, request.results, citations, self._numbers)
            yield f"## {section.heading}\n\n{finding}"
        for text in (
            unstated_assumptions(answer, request.results),
            unstated_caveats(answer, request.results),
        ):
            if text:
                yield citations.without_sources(text)

    def _unfound(self, answer: str, request: ComposeRequest, written: _Written) -> str:
        """A note on numbers of the answer that the model was not shown; empty without results."""
        if not any(map(succeeded, request.results)):
            return ""
        shown = [message.text for message in written.prompt[1:]]
        return unfound_note(answer, [request.system_prompt, *shown, *shown_values(request.results)])

    def _structure(
        self,
        output: ComposerOutput,
        sections: Sequence[Section],
        found: Mapping[str, str],
        request: ComposeRequest,
        citations: Citations,
        above: str,
    ) -> None:
        """Fill in sections and highlights of a report, from its answer or from the results."""
        results = request.results
        findings = [
            found.get(section.heading) or plain_finding(section, results, citations, self._numbers)
            for section in sections
        ]
        output.sections.extend(numbered_sections(sections, findings, request, citations))
        answer = output.answer.removeprefix(above)
        highlights = [] if output.deterministic else written_highlights(answer)
        highlights = highlights or plain_highlights(sections, results, citations)
        own = [text for text in output.highlights if text not in highlights]
        output.highlights[:] = [*highlights, *own]
        output.followups[:] = list(dict.fromkeys(output.followups))[:_MAX_FOLLOWUPS]

    def _messages(self, request: ComposeRequest, citations: Citations) -> list[Message]:
        return compose_messages(
            request,
            citations,
            self._numbers,
            history_messages=self._settings.history_messages,
            preview_rows=self._settings.preview_rows,
        )


def _output(
    request: ComposeRequest,
    citations: Citations,
    answer: str,
    written: _Written,
    deterministic: bool,
    trace: Sequence[TraceEvent],
) -> ComposerOutput:
    results, usage = request.results, written.usage
    return ComposerOutput(
        answer=answer,
        sources=citations.sources,
        data=_data(results),
        highlights=[text for result in results for text in result.highlights],
        followups=[text for result in results for text in result.followups],
        charts=[chart for result in results for chart in result.charts],
        usage=consumed(usage, written.started),
        trace=trace,
        deterministic=deterministic,
        cut_off=written.cut_off,
    )


def _finished(
    citations: Citations, written: _Written, deterministic: bool, unknown: int
) -> TraceEvent:
    usage = written.usage
    return _event(
        TraceEventType.TRACE_EVENT_TYPE_RESULT,
        "Composer finished",
        deterministic=deterministic,
        sources=len(citations.sources),
        unknown_citations=unknown,
        cut_off=written.cut_off,
        model=usage.model,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
    )


def _data(results: Sequence[AgentResult]) -> Table | None:
    """The first table among successful results, in result order."""
    return next((r.table for r in results if succeeded(r) and r.HasField("table")), None)


def _explain(failure: NoReply) -> TraceEvent:
    """Trace event for a missing reply: a message if no model is configured, else an error."""
    kind = (
        TraceEventType.TRACE_EVENT_TYPE_MESSAGE
        if failure.not_configured
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
