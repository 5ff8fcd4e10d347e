"""ID tokens: whether one is the provider's, for identity, of now, and of this sign-in."""

from __future__ import annotations

import hmac
from typing import TYPE_CHECKING, Any, Final

import jwt

from bos_errors import Unauthenticated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from structlog.typing import FilteringBoundLogger

    from bos_chassis.auth.jwks import KeySet

_LEEWAY_S: Final = 60.0
_MAX_CHARS: Final = 64 * 1024
_MAX_SUBJECT_CHARS: Final = 255
_REQUIRED: Final = ("iss", "sub", "aud", "exp", "iat")


class IdTokens:
    """Verifies ID tokens (OpenID Connect Core 3.1.3.7).

    Args:
        keys: Of the provider; each says by which algorithm it signs, never the token.
        issuer: Whose tokens they must be.
        client_id: The only audience that they may have.
        log: Where it goes what was wrong with one; people hear only that they are not signed in.
    """

    def __init__(
        self, keys: KeySet, issuer: str, client_id: str, log: FilteringBoundLogger
    ) -> None:
        self._keys = keys
        self._issuer = issuer
        self._client_id = client_id
        self._log = log

    async def claims(self, token: str, nonce: str | None) -> Mapping[str, Any]:
        """What the provider says of the person who signed in.

        Args:
            token: As the provider's token endpoint gave it.
            nonce: What the sign-in was begun with; None where the flow has none.

        Raises:
            Unauthenticated: It is not an ID token for this sign-in.
            Unavailable: The provider's keys cannot be had.
        """
        try:
            if len(token) > _MAX_CHARS:
                raise jwt.InvalidTokenError("too long")
            key_id = jwt.get_unverified_header(token).get("kid")
            key = await self._keys.find(key_id) if isinstance(key_id, str) else None
            if key is None:
                raise jwt.InvalidTokenError("no such key")
            claims: dict[str, Any] = jwt.decode(
                token,
                key.key,
                algorithms=[key.algorithm],
                issuer=self._issuer,
                audience=self._client_id,
                leeway=_LEEWAY_S,
                options={"require": list(_REQUIRED)},
            )
            self._check(claims, nonce)
        except (jwt.PyJWTError, ValueError, TypeError, RecursionError) as error:
            self._log.warning("ID token refused", why=type(error).__name__, message=str(error))
            raise refused() from None
        return claims

    def _check(self, claims: Mapping[str, Any], nonce: str | None) -> None:
        if claims["aud"] not in (self._client_id, [self._client_id]):
            raise jwt.InvalidAudienceError("for others as well")
        if claims.get("azp", self._client_id) != self._client_id:
            raise jwt.InvalidAudienceError("asked for by another client")
        subject = claims["sub"]
        if (
            not isinstance(subject, str)
            or not 0 < len(subject) <= _MAX_SUBJECT_CHARS
            or not subject.isprintable()
        ):
            raise jwt.InvalidTokenError("no usable subject")
        given = claims.get("nonce")
        if nonce is not None and not (
            isinstance(given, str) and hmac.compare_digest(given.encode(), nonce.encode())
        ):
            raise jwt.InvalidTokenError("the nonce is another one")


def refused() -> Unauthenticated:
    """The refusal of every sign-in that failed, for all defects the same."""
    return Unauthenticated(
        "The sign-in did not succeed, or has expired; begin again.", reason="OPENID_REFUSED"
    )
