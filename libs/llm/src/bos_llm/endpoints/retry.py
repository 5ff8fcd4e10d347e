"""The one retry policy of model calls; the client's own retries are off."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from bos_chassis.backoff import Backoff
from bos_chassis.deadlines import remaining_s
from bos_errors import DeadlineExceeded
from bos_llm.errors import ModelUnavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from bos_errors import BosError
    from bos_llm.endpoints.breaker import CircuitBreaker

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Verdict:
    """Classification of a failed attempt: retry, other key, give up."""

    error: BosError
    """What the caller gets if it stays the last attempt."""
    retryable: bool
    retry_after_s: float | None = None
    """How long the endpoint asked to wait."""
    turned_away: bool = False
    """The model cannot have worked on it: an error status, or no connection."""
    endpoint_failed: bool | None = False
    """Whether it speaks for an endpoint that is down; None if it says nothing about that."""


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Capped exponential backoff with full jitter, never past the deadline of the current call."""

    max_attempts: int = 4
    """While the endpoint says when to come back."""
    max_unasked: int = 2
    """Attempts that fail without such word: an endpoint in trouble is not helped by being asked
    again and again."""
    timeout_s: float = 120.0
    """One attempt."""
    base_s: float = 0.5
    cap_s: float = 8.0
    max_retry_after_s: float = 30.0
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep
    jitter: Callable[[], float] = random.random
    """A number from 0 to 1."""

    async def run(
        self,
        attempt: Callable[[float], Awaitable[R]],
        judge: Callable[[Exception], Verdict | None],
        on_retry: Callable[[Verdict, float], None],
        breaker: CircuitBreaker,
    ) -> R:
        """Call ``attempt`` with its timeout in seconds until it succeeds or must not be repeated.

        Args:
            attempt: Gets the seconds it may take.
            judge: Explains an exception; None for one that is not a failed attempt.
            on_retry: Called at every retry, with the seconds until it starts.
            breaker: Of the endpoint that is called.

        Raises:
            BosError: the judged error of the last attempt. The original exception is not chained:
                it may hold what an endpoint echoes, keys included.
            ModelUnavailable: MODEL_CIRCUIT_OPEN: the endpoint was down just now; nothing was sent.
            DeadlineExceeded: the time of the current call is used up.
        """
        number, unasked, started = 0, 0, breaker.now()
        while True:
            number += 1
            timeout = self._timeout()
            if blocked_s := breaker.blocked_s():
                raise circuit_open(blocked_s)
            try:
                result = await attempt(timeout)
            except Exception as error:
                judged = judge(error)
                if judged is None:
                    breaker.not_asked()
                    raise
            else:
                breaker.succeeded()
                return result
            if judged.endpoint_failed:
                breaker.failed(started, number)
            elif judged.endpoint_failed is not None:
                breaker.succeeded()
            unasked += judged.retry_after_s is None
            delay = self._delay(judged, number, unasked)
            if delay is None:
                raise final_error(judged)
            on_retry(judged, delay)
            await self.sleep(delay)

    def _timeout(self) -> float:
        left = remaining_s()
        if left is None:
            return self.timeout_s
        if left <= 0:
            raise _no_time()
        return min(self.timeout_s, left)

    def _delay(self, verdict: Verdict, number: int, unasked: int) -> float | None:
        """Seconds until the next attempt; None if there is none."""
        if not verdict.retryable or number >= self.max_attempts or unasked >= self.max_unasked:
            return None
        delay = verdict.retry_after_s
        if delay is None:
            backoff = Backoff(first_s=self.base_s, cap_s=self.cap_s, jitter=1.0)
            delay = backoff.delay(number, self.jitter())
        elif delay > self.max_retry_after_s:
            return None
        left = remaining_s()
        return delay if left is None or delay < left else None


def final_error(verdict: Verdict) -> BosError:
    """The error for the caller: the judged one, unless its own time has just run out."""
    left = remaining_s()
    return verdict.error if left is None or left > 0 else _no_time()


def circuit_open(blocked_s: float) -> ModelUnavailable:
    """The error of a call that was not made because the endpoint is down."""
    return ModelUnavailable(
        "The model endpoint failed a moment ago and is given a pause before it is asked again.",
        reason="MODEL_CIRCUIT_OPEN",
        retry_after_s=blocked_s,
    )


def _no_time() -> DeadlineExceeded:
    return DeadlineExceeded("The model did not answer within the time of this call.")
