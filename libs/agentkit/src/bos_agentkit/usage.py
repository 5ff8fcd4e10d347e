"""What a step consumes."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

from google.protobuf import duration_pb2

from bos.common.v1 import Usage as UsageMessage
from bos_llm import current_budget
from bos_llm.usage import Usage

if TYPE_CHECKING:
    from bos_llm import TokenBudget


class UsageMeter:
    """Adds up model calls and other outgoing calls of one step."""

    def __init__(self) -> None:
        self._models = Usage()
        self._api_calls = 0

    def add(self, usage: Usage) -> None:
        """Count the usage of a model call, as its reply or its error carries it."""
        self._models += usage

    def api_call(self, count: int = 1) -> None:
        """Count outgoing calls that are not model calls: HTTP, SQL, sandbox."""
        self._api_calls += count

    def message(self, elapsed: timedelta) -> UsageMessage:
        """Everything counted so far, and the time it took."""
        duration = duration_pb2.Duration()
        duration.FromTimedelta(elapsed)
        return UsageMessage(
            model_calls=self._models.calls,
            input_tokens=self._models.input_tokens,
            output_tokens=self._models.output_tokens,
            api_calls=self._api_calls,
            duration=duration,
            cost_micros=self._models.cost_micros,
            models=self._models.models,
            cached_input_tokens=self._models.cached_tokens,
        )


def consumed(usage: Usage, started: float) -> UsageMessage:
    """The usage of models as a message, with the time since ``started`` (monotonic seconds)."""
    meter = UsageMeter()
    meter.add(usage)
    message = meter.message(timedelta(seconds=time.monotonic() - started))
    add_unreported(message, current_budget())
    return message


def add_unreported(message: UsageMessage, budget: TokenBudget | None) -> None:
    """Add what ``budget`` counts beyond the message: calls cut off, or that nobody metered."""
    if budget is not None:
        reported = message.input_tokens + message.output_tokens
        message.unreported_tokens = max(0, budget.counted - reported)
        message.abandoned_calls = budget.abandoned
