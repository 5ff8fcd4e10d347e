"""API keys for access tokens of a minute."""

from __future__ import annotations

from typing import Final

from bos_chassis.auth.api_keys import KeyTurns, key_refused
from bos_identity.api_keys.store import ApiKeys
from bos_identity.opaque_tokens import digest
from bos_identity.tokens import AccessTokens

_AT_ONCE: Final = 3
_WAITING: Final = 256


class KeyExchange:
    """Exchanges keys, a few at a time.

    Guessing a key is hopeless, so no caller is slowed down by name or address: services bring keys,
    and behind the address of one are all its callers. The cost of unauthenticated callers is
    bounded: keys that were good before have places of their own, and of all others every network
    has its turn.
    """

    def __init__(self, keys: ApiKeys, tokens: AccessTokens) -> None:
        self._keys = keys
        self._tokens = tokens
        self._turns = KeyTurns(_AT_ONCE, _WAITING)

    async def token(self, key: str) -> tuple[str, float]:
        """An access token that stands for the key, and its life in seconds.

        Raises:
            Unauthenticated: The key cannot be used, for any reason.
            ResourceExhausted: Too many are waiting.
        """
        name = digest(key)
        async with self._turns.turn(name):
            good = await self._keys.exchange(key)
        if good is None:
            raise key_refused()
        self._turns.was_good(name)
        return self._tokens.mint_for_key(good), good.life_s
