"""Tokens: signed ones that every service understands, opaque ones that only the store knows."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

import jwt

from bos_identity.api_keys.store import GoodKey
from bos_identity.sessions import StoredSession
from bos_identity.settings import IdentitySettings
from bos_identity.signing.key_ring import ALGORITHM, KeyRing

_DATA_S = 60.0


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

    def mint(self, session: StoredSession) -> str:
        """A token that identifies the user in this session, with the roles of this moment."""
        own = {"sid": str(session.session_id)}
        return self._signed(session.user_id, session.roles, session.groups, self._life_s, own)

    def mint_for_key(self, key: GoodKey) -> str:
        """A token that stands for an API key and is limited to its scopes."""
        own = {"key": str(key.key_id), "scopes": list(key.scopes)}
        return self._signed(key.user_id, key.roles, key.groups, key.life_s, own)

    def mint_for_data(self, user_id: UUID, scope: str) -> str:
        """A token of identity's own, with which services do one thing with a user's data."""
        return self._signed(user_id, (), (), _DATA_S, {"account_data": scope})

    def _signed(
        self,
        user_id: UUID,
        roles: Sequence[str],
        groups: Sequence[str],
        life_s: float,
        own: Mapping[str, Any],
    ) -> str:
        key = self._keys.current
        now = int(time.time())
        claims = {
            "iss": self._issuer,
            "sub": str(user_id),
            "aud": self._audience,
            "iat": now,
            "exp": now + int(life_s),
            "jti": uuid4().hex,
            "roles": list(roles),
            "groups": list(groups),
            **own,
        }
        headers = {"kid": key.key_id, "typ": "at+jwt"}
        return jwt.encode(claims, key.private, algorithm=ALGORITHM, headers=headers)
