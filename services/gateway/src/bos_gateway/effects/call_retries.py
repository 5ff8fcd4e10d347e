"""Retries of planner and composer calls without a reply, or whose service died.

Both call models, so the transport does not repeat their calls: a service that answers late, or
whose model fails, would work on the same question three times. What is left to bridge is a service
that is being restarted: its calls fail without a word of the service itself, because there is no
connection or it broke. Such a call is repeated until the service is back or its time for that is
over (``BOS_GATEWAY_RESTART_WAIT_S``); both calls change nothing, so the work is begun again, unless
the call has a token budget: it may have been spent, and is there only once. Then only a call that
never left is repeated. A proxy that says the same words as a service that is gone is asked again
only where it says so at once.
"""

from __future__ import annotations

import asyncio
import math
import time
from typing import TYPE_CHECKING, TypeVar

import grpc
from google.protobuf.message import Message

from bos_errors import STATUS_DETAILS_KEY, from_rpc_error

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from bos_gateway.effects.run_tokens import Metadata

Q = TypeVar("Q", bound=Message)
A = TypeVar("A")

_WAITS_S = (0.1, 0.3)
_LONGEST_WAIT_S = 1.0
_UNCONNECTED = ("failed to connect to all", "connections to all backends failing")
_BROKEN = ("socket closed", "connection reset", "broken pipe", "goaway", "stream removed")
# A proxy that loses patience with a slow service says the same as one that finds none, but later.
_AT_ONCE_S = 1.0
# The second is how gRPC servers drop calls that arrive just as they stop; a call that is cancelled
# here ends otherwise.
_GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


async def answered(
    method: grpc.aio.UnaryUnaryMultiCallable[Q, A],
    request: Q,
    timeout_s: float,
    token: Metadata,
    *,
    restart_s: float = 0.0,
) -> A:
    """The answer of ``method``, within ``timeout_s`` seconds however often it is called.

    ``restart_s`` is the time that the service has to come back.

    Raises:
        BosError: what the last call ended with.
    """
    patience = _Patience(timeout_s, request.HasField("token_budget"), restart_s)
    while True:
        try:
            return await method(request, timeout=patience.left_s(), metadata=token)
        except grpc.RpcError as error:
            await patience.until_another(error)


async def streamed(
    method: grpc.aio.UnaryStreamMultiCallable[Q, A],
    request: Q,
    timeout_s: float,
    token: Metadata,
    *,
    restart_s: float = 0.0,
) -> AsyncGenerator[A | None]:
    """The messages of ``method``; None where the service died and they begin anew.

    Once there is one, only a call that the death of the service broke off is repeated.

    Raises:
        BosError: what the last call ended with.
    """
    patience = _Patience(timeout_s, request.HasField("token_budget"), restart_s)
    while True:
        call = method(request, timeout=patience.left_s(), metadata=token)
        try:
            async for message in call:
                patience.heard = True
                yield message
            return
        except grpc.RpcError as error:
            await patience.until_another(error)
        finally:
            call.cancel()
        if patience.heard:
            patience.heard = False
            yield None


class _Patience:
    """Retry budget of one piece of work."""

    def __init__(self, timeout_s: float, budgeted: bool, restart_s: float) -> None:
        self._budgeted = budgeted
        self._restart_s = restart_s
        self._lost: float | None = None
        self._ends = time.monotonic() + timeout_s
        self._called = time.monotonic()
        self._waits = list(_WAITS_S)
        self.heard = False
        """Whether the service has said something in the latest call."""

    def left_s(self) -> float:
        """Seconds for the call that begins now; never 0, which gRPC takes for no limit."""
        self._called = time.monotonic()
        return max(0.001, self._ends - self._called)

    async def until_another(self, error: grpc.RpcError) -> None:
        """Wait until there may be another call after ``error``.

        Raises:
            BosError: there is to be none.
        """
        now = time.monotonic()
        wait_s = self._waits.pop(0) if self._waits else math.inf
        passing = _is_unanswered(error, unconnected=self._budgeted)
        if passing and self._restart_s and _is_broken(error):
            # A service that was up in between has the whole time again.
            if self._lost is None or now - self._called > _AT_ONCE_S:
                self._lost = now
            wait_s = min(wait_s, _LONGEST_WAIT_S)
            passing = now + wait_s < self._lost + self._restart_s
        elif self.heard or now - self._called > _AT_ONCE_S:
            passing = False
        if not passing or now + wait_s >= self._ends:
            raise from_rpc_error(error) from error
        await asyncio.sleep(wait_s)


def has_never_left(error: grpc.RpcError) -> bool:
    """Whether a call was certainly not sent: there was no connection to send it over."""
    return _is_unanswered(error, unconnected=True)


class Absence:
    """Time for which a step retries an unreachable service."""

    def __init__(self, restart_s: float) -> None:
        self._restart_s = restart_s
        self._since: float | None = None

    def bearable(self) -> bool:
        """Whether it is worth another attempt."""
        if self._since is None:
            self._since = time.monotonic()
        return time.monotonic() < self._since + self._restart_s

    def pause_s(self, wait_s: float) -> float:
        """Seconds before the next attempt: less than the back-off of a failing service."""
        return min(wait_s, _LONGEST_WAIT_S) if self._restart_s else wait_s


def _is_broken(error: grpc.RpcError) -> bool:
    """Whether there was no connection, or it broke; of a call without a word of a service."""
    details = (error.details() or "").lower() if isinstance(error, grpc.aio.AioRpcError) else ""
    return details.startswith(_UNCONNECTED) or any(each in details for each in _BROKEN)


def _is_unanswered(error: grpc.RpcError, *, unconnected: bool) -> bool:
    """Whether no service sent this error: errors of ours carry details.

    Args:
        error: How a call ended.
        unconnected: Whether there must have been no connection that it could have been sent over.
    """
    if not isinstance(error, grpc.aio.AioRpcError) or error.code() not in _GONE:
        return False
    if unconnected and not (error.details() or "").startswith(_UNCONNECTED):
        return False
    return all(key != STATUS_DETAILS_KEY for key, _ in error.trailing_metadata() or ())
