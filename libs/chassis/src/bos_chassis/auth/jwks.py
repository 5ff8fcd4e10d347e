"""Public keys of an issuer of tokens: fetched, kept a while, fetched anew when one is missing.

A JSON Web Key Set (RFC 7517) may hold keys of any kind. Kept are those with a key id that verify by
one of three algorithms: EdDSA with Ed25519, ES256, RS256 from 2048 bits on. The algorithm of a key
follows from the key, never from a token.
"""

from __future__ import annotations

import asyncio
import contextvars
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

import jwt
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from bos_errors import BosError, Unavailable

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from structlog.typing import FilteringBoundLogger

    Fetch = Callable[[], Awaitable[Sequence[Mapping[str, Any]]]]

ALGORITHMS = ("EdDSA", "ES256", "RS256")
"""What tokens may be signed by. Never ``none``, and nothing that verifies with a shared secret."""

_BY_KIND: dict[tuple[Any, Any], str] = {
    ("OKP", "Ed25519"): "EdDSA",
    ("EC", "P-256"): "ES256",
    ("RSA", None): "RS256",
}
_LEAST_RSA_BITS = 2048
_MAX_KEYS = 100
_MAX_KEY_ID_CHARS = 256
# A source that does not answer is asked again after this, however many wait for a key.
_PAUSE_S = 10.0
_FETCH_TIMEOUT_S = 10.0
# Keys that could not be fetched anew for this long count no more: some may have been withdrawn.
_MAX_STALE_S = 3600.0


@dataclass(frozen=True, slots=True)
class VerifyingKey:
    """A public key, and the one algorithm that it verifies."""

    key: Any
    algorithm: str


def verifying_keys(
    keys: Iterable[Mapping[str, Any]], log: FilteringBoundLogger
) -> dict[str, VerifyingKey]:
    """The usable keys of a set by key id.

    Keys of other kinds are left out, and so are those that are not well formed: one of them must
    not void the others. A line in ``log`` names these.
    """
    found: dict[str, VerifyingKey] = {}
    for position, entry in enumerate(list(keys)[:_MAX_KEYS]):
        try:
            key = _verifying_key(entry)
        except Exception as error:  # Any error that the libraries raise for a foreign key.
            log.warning("key skipped", position=position, error=type(error).__name__)
            continue
        if key is not None:
            found[entry["kid"]] = key
    return found


def _verifying_key(entry: Mapping[str, Any]) -> VerifyingKey | None:
    """The key of one entry, None if it is none for us; raises anything if it is not well formed."""
    key_id = entry.get("kid")
    algorithm = _BY_KIND.get((entry.get("kty"), entry.get("crv")))
    if not isinstance(key_id, str) or not 0 < len(key_id) <= _MAX_KEY_ID_CHARS:
        return None
    if algorithm is None or entry.get("alg", algorithm) != algorithm:
        return None
    # A private key in a published set is no key to trust; nor is one meant for encrypting.
    if entry.get("use", "sig") != "sig" or "d" in entry:
        return None
    key = jwt.PyJWK.from_dict(dict(entry), algorithm=algorithm).key
    if isinstance(key, RSAPublicKey) and key.key_size < _LEAST_RSA_BITS:
        return None
    return VerifyingKey(key, algorithm)


class KeySet:
    """The keys of one issuer; an async context manager.

    A key that is known is answered at once, also while an older set is fetched anew in the
    background. A key that is not known makes for one fetch, shared by all who wait, and at most one
    in ten seconds, so that tokens with made-up key ids cost the issuer nothing.

    Args:
        fetch: Asks the issuer for its set; raises a BosError or OSError if that fails.
        max_age_s: A set older than this is fetched anew.
        log: Where failures go.
        pause_s: Least time between two fetches.
    """

    def __init__(
        self,
        fetch: Fetch,
        *,
        max_age_s: float,
        log: FilteringBoundLogger,
        pause_s: float = _PAUSE_S,
    ) -> None:
        self._fetch = fetch
        self._max_age_s = max_age_s
        self._pause_s = pause_s
        self._log = log
        self._keys: dict[str, VerifyingKey] = {}
        self._fetched_at = float("-inf")
        self._asked_at = float("-inf")
        self._answered = False  # when it was last asked
        self._fetching: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        task, self._fetching = self._fetching, None
        if task is not None:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    async def find(self, key_id: str) -> VerifyingKey | None:
        """The key with this id, or None if the issuer has none.

        Raises:
            Unavailable: The issuer did not answer when it was last asked, so it is unknown: the
                key may be a new one.
        """
        age_s = time.monotonic() - self._fetched_at
        known = self._keys.get(key_id) if age_s < self._max_age_s + _MAX_STALE_S else None
        if known is not None and age_s < self._max_age_s:
            return known
        task = self._refresh()
        if known is not None:
            return known
        if task is not None:
            # Shielded: others wait for the same fetch, and this caller may give up.
            await asyncio.shield(task)
        if self._answered:
            return self._keys.get(key_id)
        raise Unavailable(
            "The keys that verify access tokens cannot be fetched at the moment.",
            reason="KEYS_UNAVAILABLE",
            retry_after_s=self._pause_s,
        )

    def _refresh(self) -> asyncio.Task[None] | None:
        """The fetch under way, or a new one unless the last one was just now."""
        if self._fetching is not None and not self._fetching.done():
            return self._fetching
        if time.monotonic() - self._asked_at < self._pause_s:
            return None
        self._asked_at = time.monotonic()
        # A context of its own: neither the deadline nor the caller of one call may shape what all
        # calls wait for.
        self._fetching = asyncio.create_task(
            self._fetched(), name="fetch keys", context=contextvars.Context()
        )
        return self._fetching

    async def _fetched(self) -> None:
        try:
            async with asyncio.timeout(_FETCH_TIMEOUT_S):
                keys = verifying_keys(await self._fetch(), self._log)
        except (BosError, OSError, ValueError, TypeError, AttributeError) as error:
            self._log.warning("keys not fetched", error=type(error).__name__, detail=str(error))
            self._answered = False
            return
        if not keys:
            self._log.warning("keys not fetched", error="no usable key in the set")
            self._answered = False
            return
        if keys.keys() != self._keys.keys():
            self._log.info("keys fetched", key_ids=sorted(keys))
        self._keys, self._answered = keys, True
        self._fetched_at = time.monotonic()
