"""What model calls consumed, as the message that results carry."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

from google.protobuf import duration_pb2

from bos.common.v1 import Usage as UsageMessage
from bos_llm.budget import current_budget

if TYPE_CHECKING:
    from bos_llm.budget import TokenBudget
    from bos_llm.usage import Usage


def usage_message(usage: Usage, elapsed: timedelta) -> UsageMessage:
    """The usage of models as a message, with the time it took."""
    duration = duration_pb2.Duration()
    duration.FromTimedelta(elapsed)
    return UsageMessage(
        model_calls=usage.calls,
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        duration=duration,
        cost_micros=usage.cost_micros,
        models=usage.models,
        cached_input_tokens=usage.cached_tokens,
    )


def consumed(usage: Usage, started: float) -> UsageMessage:
    """The usage of models as a message, with the time since ``started`` (monotonic seconds)."""
    message = usage_message(usage, timedelta(seconds=time.monotonic() - started))
    add_unreported(message, current_budget())
    return message


def add_unreported(message: UsageMessage, budget: TokenBudget | None) -> None:
    """Add what ``budget`` counts beyond the message: calls cut off, or without reported usage."""
    if budget is not None:
        reported = message.input_tokens + message.output_tokens
        message.unreported_tokens = max(0, budget.counted - reported)
        message.abandoned_calls = budget.abandoned
