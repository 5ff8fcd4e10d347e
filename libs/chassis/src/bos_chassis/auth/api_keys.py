"""API keys: exchanged at identity for access tokens of a minute, which are then remembered.

A key that was revoked is accepted for as long as it is remembered, a minute at most. What is not a
key is remembered too, for a few seconds, apart from the others. Keys that were good before are
looked up apart from all others, and of those each network has its turn: callers who make keys up
delay callers who do the same, and no others.
"""

from __future__ import annotations

import hashlib
import re
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import Final, TypeVar

from bos.identity.v1 import CredentialServiceStub, ExchangeApiKeyRequest
from bos_chassis.auth.callers import API_KEY_PREFIX, Principal
from bos_chassis.channels import Channels, translate_rpc_errors
from bos_chassis.client_address import current_network
from bos_chassis.concurrency.fair_places import FairPlaces, NoPlaceToWait
from bos_chassis.concurrency.joining import Joined
from bos_errors import ResourceExhausted, Unauthenticated

T = TypeVar("T")

REMEMBERED_S: Final = 60.0
_REFUSED_REMEMBERED_S: Final = 5.0
_REMEMBERED: Final = 4096
_AT_ONCE: Final = 8
_WAITING: Final = 128
_TIMEOUT_S: Final = 5.0
_FORM: Final = re.compile(API_KEY_PREFIX + "[0-9a-f]{32}_[A-Za-z0-9_-]{43}")


def key_refused() -> Unauthenticated:
    """The refusal of every API key that is not accepted, for all causes the same."""
    return Unauthenticated("The API key is not valid, or no longer.", reason="API_KEY_INVALID")


class KeyTurns:
    """Turns to be looked up: of keys that were good before, and of all others by network.

    Args:
        at_once: Keys of either kind that are looked up at once.
        waiting: How many of one network may wait for that. A key that was good before waits with
            its like, wherever it comes from.
    """

    def __init__(self, at_once: int = _AT_ONCE, waiting: int = _WAITING) -> None:
        # By the key itself: its holder cannot keep others waiting either.
        self._known = FairPlaces(at_once, waiting_per_caller=waiting)
        self._unknown = FairPlaces(at_once, waiting_per_caller=waiting)
        self._good: OrderedDict[bytes, None] = OrderedDict()

    @asynccontextmanager
    async def turn(self, digest: bytes) -> AsyncIterator[None]:
        """The turn of the key with this digest, for the length of the block.

        Raises:
            ResourceExhausted: Too many of the same network are waiting.
        """
        known = digest in self._good
        places = self._known if known else self._unknown
        async with AsyncExitStack() as stack:
            try:
                await stack.enter_async_context(
                    places.place(digest.hex() if known else current_network())
                )
            except NoPlaceToWait:
                raise ResourceExhausted(
                    "Too many API keys are looked up at the moment; try again shortly.",
                    reason="TOO_MANY_KEYS",
                    retry_after_s=1.0,
                ) from None
            yield

    def was_good(self, digest: bytes) -> None:
        """Remember that the key is one."""
        self._good[digest] = None
        self._good.move_to_end(digest)
        while len(self._good) > _REMEMBERED:
            self._good.popitem(last=False)


class ApiKeyVerifier:
    """Accepts API keys.

    Args:
        exchange: An access token for a key; raises Unauthenticated if it is none.
        verify: Whom the access token names.
        now: Seconds that only ever grow.
    """

    def __init__(
        self,
        exchange: Callable[[str], Awaitable[str]],
        verify: Callable[[str], Awaitable[Principal]],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._exchange = exchange
        self._verify = verify
        self._now = now
        self._turns = KeyTurns()
        self._joined: Joined[Principal] = Joined()
        self._accepted: OrderedDict[bytes, tuple[Principal, float]] = OrderedDict()
        self._refused: OrderedDict[bytes, float] = OrderedDict()

    async def verify(self, key: str) -> Principal:
        """The user of the key.

        Raises:
            Unauthenticated: It is none, or no longer.
            Unavailable: Identity cannot be reached.
            ResourceExhausted: Too many keys are looked up.
        """
        if not _FORM.fullmatch(key):
            raise key_refused()
        digest = hashlib.sha256(key.encode()).digest()
        known = self._remembered(digest)
        if known is not None:
            return known
        return await self._joined.ask(digest, partial(self._looked_up, key, digest))

    def _remembered(self, digest: bytes) -> Principal | None:
        now = self._now()
        if self._refused.get(digest, 0.0) > now:
            raise key_refused()
        principal, until = self._accepted.get(digest, (None, 0.0))
        return principal if until > now else None

    async def _looked_up(self, key: str, digest: bytes) -> Principal:
        async with self._turns.turn(digest):
            # From before the question: what was revoked meanwhile is not remembered for longer.
            asked = self._now()
            try:
                principal = await self._verify(await self._exchange(key))
            except Unauthenticated:
                self._accepted.pop(digest, None)
                _remember(self._refused, digest, asked + _REFUSED_REMEMBERED_S)
                raise key_refused() from None
        _remember(self._accepted, digest, (principal, asked + REMEMBERED_S))
        self._turns.was_good(digest)
        return principal


def exchange_at(channels: Channels, identity_target: str) -> Callable[[str], Awaitable[str]]:
    """Exchange of keys at the identity service that listens there."""

    async def exchange(key: str) -> str:
        stub = CredentialServiceStub(channels.get(identity_target))
        with translate_rpc_errors():
            response = await stub.ExchangeApiKey(
                ExchangeApiKeyRequest(api_key=key), timeout=_TIMEOUT_S
            )
        return response.access_token

    return exchange


def _remember(entries: OrderedDict[bytes, T], digest: bytes, entry: T) -> None:
    entries[digest] = entry
    entries.move_to_end(digest)
    while len(entries) > _REMEMBERED:
        entries.popitem(last=False)
