"""Usage of a step: model calls, other outgoing calls, time."""

from __future__ import annotations

from datetime import timedelta

from bos.common.v1 import Usage as UsageMessage
from bos_llm import Usage, usage_message


class UsageMeter:
    """Sums the model calls and other outgoing calls of one step."""

    def __init__(self) -> None:
        self._models = Usage()
        self._api_calls = 0

    def add(self, usage: Usage) -> None:
        """Add the usage of a model call, from its reply or its error."""
        self._models += usage

    def api_call(self, count: int = 1) -> None:
        """Count outgoing calls that are not model calls: HTTP, SQL, sandbox."""
        self._api_calls += count

    def message(self, elapsed: timedelta) -> UsageMessage:
        """Usage so far, as a message."""
        message = usage_message(self._models, elapsed)
        message.api_calls = self._api_calls
        return message
