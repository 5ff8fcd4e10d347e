"""Tokens: signed ones that every service understands, opaque ones that only the store knows."""

from __future__ import annotations

import hashlib
import secrets
import time
from typing import TYPE_CHECKING
from uuid import uuid4

import jwt

from bos_identity.key_ring import ALGORITHM

if TYPE_CHECKING:
    from uuid import UUID

    from bos_identity.key_ring import KeyRing
    from bos_identity.settings import IdentitySettings

_REFRESH_PREFIX = "bosr_"  # so that scanners for leaked secrets recognise them
_REFRESH_BYTES = 32


class AccessTokens:
    """Mints access tokens (RFC 9068).

    Args:
        keys: What signs.
        settings: Issuer, audience and life.
    """

    def __init__(self, keys: KeyRing, settings: IdentitySettings) -> None:
        self._keys = keys
        self._issuer = settings.issuer
        self._audience = settings.audience
        self._life_s = settings.access_token_s

    def mint(self, user_id: UUID, session_id: UUID) -> str:
        """A token that identifies the user in this session."""
        key = self._keys.current
        now = int(time.time())
        claims = {
            "iss": self._issuer,
            "sub": str(user_id),
            "aud": self._audience,
            "iat": now,
            "exp": now + int(self._life_s),
            "jti": uuid4().hex,
            "sid": str(session_id),
        }
        headers = {"kid": key.key_id, "typ": "at+jwt"}
        return jwt.encode(claims, key.private, algorithm=ALGORITHM, headers=headers)


def new_refresh_token() -> str:
    """A token that nobody can guess."""
    return _REFRESH_PREFIX + secrets.token_urlsafe(_REFRESH_BYTES)


def digest(refresh_token: str) -> bytes:
    """What the store keeps of it. The token is random, so a plain hash hides it."""
    return hashlib.sha256(refresh_token.encode()).digest()
