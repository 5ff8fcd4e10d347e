"""Calls of external systems without an outcome."""

from __future__ import annotations


class CallFailed(Exception):
    """A call without an outcome.

    Args:
        message: Why, for users.
        reached: Whether the system may have acted on it.
        retryable: Whether another attempt may succeed.
    """

    def __init__(self, message: str, *, reached: bool, retryable: bool) -> None:
        super().__init__(message)
        self.message = message
        self.reached = reached
        self.retryable = retryable
