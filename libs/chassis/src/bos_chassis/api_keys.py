"""API keys: exchanged at identity for access tokens of a minute, which are then remembered.

A key that was revoked is accepted for as long as it is remembered, a minute at most. What is not a
key is remembered too, for a few seconds, apart from the others, and has fewer places to be looked
up: strangers who make keys up cost those who have one nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
import time
from collections import OrderedDict
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final, TypeVar

from bos.identity.v1 import CredentialServiceStub, ExchangeApiKeyRequest
from bos_chassis.auth import API_KEY_PREFIX
from bos_chassis.channels import translate_rpc_errors
from bos_chassis.errors import ResourceExhausted, Unauthenticated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from bos_chassis.auth import Principal
    from bos_chassis.channels import Channels

T = TypeVar("T")

REMEMBERED_S: Final = 60.0
_REFUSED_REMEMBERED_S: Final = 5.0
_REMEMBERED: Final = 4096
_AT_ONCE: Final = 8
_WAITING: Final = 128
_TIMEOUT_S: Final = 5.0
_FORM: Final = re.compile(API_KEY_PREFIX + "[0-9a-f]{32}_[A-Za-z0-9_-]{43}")


def key_refused() -> Unauthenticated:
    """What everybody hears whose API key is not accepted, whatever is wrong with it."""
    return Unauthenticated("The API key is not valid, or no longer.", reason="API_KEY_INVALID")


class Turns:
    """Lets a few in at once and a bounded number wait."""

    def __init__(self, at_once: int = _AT_ONCE, waiting: int = _WAITING) -> None:
        self._places = asyncio.Semaphore(at_once)
        self._most = at_once + waiting
        self._here = 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """A place for the length of the block.

        Raises:
            ResourceExhausted: Too many are waiting for one.
        """
        if self._here >= self._most:
            raise ResourceExhausted(
                "Too many API keys are looked up at the moment; try again shortly.",
                reason="TOO_MANY_KEYS",
                retry_after_s=1.0,
            )
        self._here += 1
        try:
            async with self._places:
                yield
        finally:
            self._here -= 1


class KeyTurns:
    """Turns of keys that were good before, and of all others, apart from each other."""

    def __init__(self, at_once: int = _AT_ONCE, waiting: int = _WAITING) -> None:
        self._known = Turns(at_once, waiting)
        self._unknown = Turns(at_once, waiting)
        self._good: OrderedDict[bytes, None] = OrderedDict()

    def of(self, digest: bytes) -> Turns:
        """Where the key with this digest takes its turn."""
        return self._known if digest in self._good else self._unknown

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
        async with self._turns.of(digest).turn():
            known = self._remembered(digest)  # by whoever had the turn before
            return known or await self._looked_up(key, digest)

    def _remembered(self, digest: bytes) -> Principal | None:
        now = self._now()
        if self._refused.get(digest, 0.0) > now:
            raise key_refused()
        principal, until = self._accepted.get(digest, (None, 0.0))
        return principal if until > now else None

    async def _looked_up(self, key: str, digest: bytes) -> Principal:
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
    """How to exchange keys at the identity service that listens there."""

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
