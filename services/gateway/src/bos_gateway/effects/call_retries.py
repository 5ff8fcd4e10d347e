"""Retries of planner and composer calls that broke off at once, before a word.

Both call models, so the transport does not repeat their calls: a service that answers late, or
whose model fails, would work on the same question three times. What is left to bridge is a service
that is just being restarted. Its calls fail at once, and without a word of the service itself. So
do those of one that dies within a second of beginning the work. That little work is begun again,
unless the call has a token budget: it may have been spent, and is there only once. Then only a call
that never left is repeated.
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
_UNCONNECTED = ("failed to connect to all", "connections to all backends failing")
# A proxy that loses patience with a slow service says the same as one that finds none, but later.
_AT_ONCE_S = 1.0
# The second is how gRPC servers drop calls that arrive just as they stop; a call that is cancelled
# here ends otherwise.
_GONE = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED)


async def answered(
    method: grpc.aio.UnaryUnaryMultiCallable[Q, A], request: Q, timeout_s: float, token: Metadata
) -> A:
    """The answer of ``method``, within ``timeout_s`` seconds however often it is called.

    Raises:
        BosError: what the last call ended with.
    """
    patience = _Patience(timeout_s, request.HasField("token_budget"))
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
) -> AsyncGenerator[A]:
    """The messages of ``method``; once there is one, the call is not repeated any more.

    Raises:
        BosError: what the last call ended with.
    """
    patience = _Patience(timeout_s, request.HasField("token_budget"))
    while True:
        call = method(request, timeout=patience.left_s(), metadata=token)
        try:
            async for message in call:
                patience.waits.clear()
                yield message
            return
        except grpc.RpcError as error:
            await patience.until_another(error)
        finally:
            call.cancel()


class _Patience:
    """How much longer one piece of work goes on calling."""

    def __init__(self, timeout_s: float, budgeted: bool) -> None:
        self._budgeted = budgeted
        self._ends = time.monotonic() + timeout_s
        self._called = time.monotonic()
        self.waits = list(_WAITS_S)
        """Seconds to wait before each further call."""

    def left_s(self) -> float:
        """Seconds for the call that begins now; never 0, which gRPC takes for no limit."""
        self._called = time.monotonic()
        return max(0.001, self._ends - self._called)

    async def until_another(self, error: grpc.RpcError) -> None:
        """Wait until there may be another call after ``error``.

        Raises:
            BosError: there is to be none.
        """
        now, wait_s = time.monotonic(), self.waits.pop(0) if self.waits else math.inf
        passing = _is_nobody(error, unconnected=self._budgeted)
        if not passing or now - self._called > _AT_ONCE_S or now + wait_s >= self._ends:
            raise from_rpc_error(error) from error
        await asyncio.sleep(wait_s)


def has_never_left(error: grpc.RpcError) -> bool:
    """Whether a call was certainly not sent: there was no connection to send it over."""
    return _is_nobody(error, unconnected=True)


def _is_nobody(error: grpc.RpcError, *, unconnected: bool) -> bool:
    """Whether no service has said this: what ours say carries details.

    Args:
        error: How a call ended.
        unconnected: Whether there must have been no connection that it could have been sent over.
    """
    if not isinstance(error, grpc.aio.AioRpcError) or error.code() not in _GONE:
        return False
    if unconnected and not (error.details() or "").startswith(_UNCONNECTED):
        return False
    return all(key != STATUS_DETAILS_KEY for key, _ in error.trailing_metadata() or ())
