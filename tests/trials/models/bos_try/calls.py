"""Model calls of a run, read from the spans that every call leaves behind."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from opentelemetry.sdk.trace import ReadableSpan

OK = "ok"
UNEXPECTED = "internal"
"""Outcome of a call that ended in an unexpected exception."""
_NANO = 1_000_000_000


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a model, its retries included."""

    agent: str
    """Who called: planner, composer, memory, or an agent."""
    output: str
    """What was asked for: json or text."""
    outcome: str
    """``ok``, or why it ended without a usable reply."""
    seconds: float
    input_tokens: int
    output_tokens: int
    retries: int
    finish: str
    """Why the model stopped, as it says; empty if it did not say."""


def calls_of(
    spans: Iterable[ReadableSpan], since_ns: int, until_ns: int | None = None
) -> tuple[Call, ...]:
    """The ended calls that began in a stretch of time, in the order in which they began.

    By time and not by trace: memory looks through a question in a trace of its own.
    """
    chosen = [
        span
        for span in spans
        if _is_call(span)
        and since_ns <= (span.start_time or 0)
        and (until_ns is None or (span.start_time or 0) < until_ns)
    ]
    return tuple(_call(span) for span in sorted(chosen, key=lambda span: span.start_time or 0))


def tokens(calls: Sequence[Call]) -> int:
    """Tokens sent and received."""
    return sum(call.input_tokens + call.output_tokens for call in calls)


def _is_call(span: ReadableSpan) -> bool:
    return (span.attributes or {}).get("gen_ai.operation.name") == "chat"


def _call(span: ReadableSpan) -> Call:
    attributes: dict[str, Any] = dict(span.attributes or {})
    finish = attributes.get("gen_ai.response.finish_reasons") or ()
    return Call(
        agent=str(attributes.get("gen_ai.agent.name", "")),
        output=str(attributes.get("gen_ai.output.type", "")),
        outcome=str(attributes.get("error.type", OK)),
        seconds=((span.end_time or 0) - (span.start_time or 0)) / _NANO,
        input_tokens=int(attributes.get("gen_ai.usage.input_tokens", 0)),
        output_tokens=int(attributes.get("gen_ai.usage.output_tokens", 0)),
        retries=sum(event.name == "bos.model.retry" for event in span.events),
        finish=str(finish[0]) if finish else "",
    )
