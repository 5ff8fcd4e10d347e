"""Access tokens of people: JWTs signed by the identity service, or an OpenID issuer in its place.

For all defects of a token its sender gets one and the same refusal; the log says what it was.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, Any

import jwt

from bos_chassis.auth.api_keys import ApiKeyVerifier, exchange_at
from bos_chassis.auth.callers import (
    LOCAL_USER,
    AnyOf,
    Bearer,
    Principal,
    RunTokenVerifier,
    authenticator_from,
    static_key_from,
)
from bos_chassis.auth.jwks import KeySet
from bos_chassis.auth.jwks_sources import key_source
from bos_chassis.auth.run_token_keys import key_sources
from bos_chassis.auth.scopes import data_scope, key_and_scopes
from bos_chassis.channels import Channels
from bos_chassis.interceptors import Sampled
from bos_chassis.names import ROLES, USER, required_names
from bos_errors import Unauthenticated

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable

    from structlog.typing import FilteringBoundLogger

    from bos_chassis.auth.callers import Accepts, Authenticator
    from bos_chassis.auth.jwks_sources import IssuerDocument
    from bos_chassis.names import Role
    from bos_chassis.settings import AuthSettings, TlsSettings
    from bos_chassis.telemetry import Telemetry

MAX_USER_ID_CHARS = 128
_MAX_TOKEN_CHARS = 8192
_VERIFIED_TOKENS = 1024
# A token is looked at anew after this, so that a key withdrawn by its issuer is soon gone here too.
_REMEMBERED_S = 60.0
# RFC 9068. Issuers that came before it say "JWT", or nothing.
_DECLARED = "at+jwt"
_UNTYPED = ("", "jwt")
# ID tokens are for the client that a person signed in to, and prove nothing to a service; yet an
# issuer may give them the same audience. OpenID Connect has the first claims for them alone.
_ID_TOKEN_CLAIMS = ("nonce", "at_hash", "c_hash", "s_hash")
_ID_TOKEN_USES = {"token_use": "id", "typ": "ID"}
# Beside what the library raises by itself, what absurd JSON makes of Python's own parser.
_REFUSED = (jwt.PyJWTError, ValueError, TypeError, OverflowError, RecursionError)


def refused_token() -> Unauthenticated:
    """The refusal of every token that is not accepted, for all defects the same."""
    return Unauthenticated(
        "The token is not valid, or no longer. Sign in again.", reason="TOKEN_INVALID"
    )


class UserTokenVerifier:
    """Accepts access tokens of one issuer for one audience.

    Args:
        keys: The issuer's keys.
        issuer: What tokens must call ``iss``.
        audience: What tokens must name in ``aud``.
        user_claim: Claim that holds the user's id.
        roles_claim: Claim that holds the user's roles; others than ours are left out.
        default_roles: Roles of a user whose token lacks that claim.
        groups_claim: Claim that holds the user's groups.
        leeway_s: By how much clocks may differ, in seconds.
        require_type: Demand that tokens say of themselves that they are access tokens: ``typ`` is
            ``at+jwt``. Otherwise they may leave that out, unless they look like ID tokens.
        log: Where the reasons of refusals go.
    """

    def __init__(
        self,
        keys: KeySet,
        *,
        issuer: str,
        audience: str,
        user_claim: str = "sub",
        roles_claim: str = "roles",
        default_roles: Iterable[Role] = (USER,),
        groups_claim: str = "groups",
        leeway_s: float = 5.0,
        require_type: bool,
        log: FilteringBoundLogger,
    ) -> None:
        self._keys = keys
        self._issuer = issuer
        self._audience = audience
        self._user_claim = user_claim
        self._roles_claim = roles_claim
        self._default_roles = frozenset[str](default_roles)
        self._groups_claim = groups_claim
        self._leeway_s = leeway_s
        self._require_type = require_type
        self._log = log
        self._refused = Sampled(log, "token refused")  # any caller can send tokens
        self._verified: OrderedDict[str, tuple[Principal, float]] = OrderedDict()

    async def verify(self, token: str) -> Principal:
        """The user that ``token`` names.

        Raises:
            Unauthenticated: The token is not acceptable, for any reason.
            Unavailable: The issuer's keys cannot be fetched.
        """
        known = self._verified.get(token)
        if known is not None and time.time() < known[1]:
            self._verified.move_to_end(token)
            return known[0]
        try:
            principal, expires = await self._check(token)
        except _REFUSED as error:
            kind = type(error).__name__
            if self._refused.admits(kind):
                self._log.info("token refused", error=kind, detail=str(error))
            raise refused_token() from None
        self._verified[token] = (principal, min(expires, time.time() + _REMEMBERED_S))
        while len(self._verified) > _VERIFIED_TOKENS:
            self._verified.popitem(last=False)
        return principal

    async def _check(self, token: str) -> tuple[Principal, float]:
        if len(token) > _MAX_TOKEN_CHARS:
            raise jwt.InvalidTokenError("too long")
        header = jwt.get_unverified_header(token)
        key_id = header.get("kid")
        key = await self._keys.find(key_id) if isinstance(key_id, str) else None
        if key is None:
            raise jwt.InvalidTokenError("signed by no known key")
        claims = jwt.decode(
            token,
            key.key,
            algorithms=[key.algorithm],
            audience=self._audience,
            issuer=self._issuer,
            leeway=self._leeway_s,
            options={"require": ["iss", "aud", "iat", "exp"]},
        )
        _check_type(header.get("typ"), claims, self._require_type)
        session = claims.get("sid", "")
        api_key, scopes = key_and_scopes(claims)
        own = data_scope(claims)
        return (
            Principal(
                _user_id(claims.get(self._user_claim)),
                "",
                "",
                "account_data" if own else ("user_token" if scopes is None else "api_key"),
                api_key or (session if isinstance(session, str) else ""),
                scopes=own or scopes,
                roles=self._roles(claims),
                groups=required_names(claims.get(self._groups_claim, []), "groups"),
            ),
            float(claims["exp"]),
        )

    def _roles(self, claims: dict[str, Any]) -> frozenset[str]:
        """The roles that the token gives; an issuer of others has its own beside them."""
        if self._roles_claim not in claims:
            return self._default_roles
        return required_names(claims[self._roles_claim], "roles") & frozenset(ROLES)


@asynccontextmanager
async def open_authenticator(
    settings: AuthSettings,
    audience: str | None,
    telemetry: Telemetry,
    accepts: Accepts = "service",
    *,
    tls: TlsSettings | None = None,
    issuer_document: IssuerDocument | None = None,
) -> AsyncIterator[Authenticator | None]:
    """The authenticator of a service that people may call; None if nothing is configured.

    Beside what :func:`bos_chassis.auth.callers.authenticator_from` accepts, it accepts access
    tokens of the
    configured issuer.

    Args:
        settings: Who may call.
        audience: Name of the service in run tokens; None accepts no run token, even with
            configured keys.
        telemetry: Of the service.
        accepts: Which run tokens it takes.
        tls: Its certificates, for the way to identity; None for plain text.
        issuer_document: How an issuer's keys are fetched over HTTP; None in a service that carries
            no HTTP client.

    Raises:
        ConfigurationError: A key is not usable, or it is not said where the issuer's keys are.
    """
    if not settings.names_issuer:
        yield (
            static_key_from(settings, telemetry)
            if audience is None
            else authenticator_from(settings, audience, accepts, telemetry)
        )
        return
    async with AsyncExitStack() as stack:
        fetch = await stack.enter_async_context(
            key_source(settings, telemetry, tls, issuer_document)
        )
        log = telemetry.logger("bos.auth")
        keys = await stack.enter_async_context(
            KeySet(fetch, max_age_s=settings.jwks_max_age_s, log=log)
        )
        users = UserTokenVerifier(
            keys,
            issuer=settings.issuer or "",
            audience=settings.audience,
            user_claim=settings.user_claim,
            roles_claim=settings.roles_claim,
            default_roles=settings.default_roles,
            groups_claim=settings.groups_claim,
            leeway_s=settings.leeway_s,
            require_type=settings.require_token_type or settings.keys_of_identity,
            log=log,
        )
        keys_of_users = None
        if settings.keys_of_identity and settings.identity_target is not None:
            channels = await stack.enter_async_context(Channels(telemetry, tls=tls))
            exchange = exchange_at(channels, settings.identity_target)
            keys_of_users = ApiKeyVerifier(exchange, users.verify)
        yield with_users(settings, audience, users, accepts, keys_of_users, telemetry=telemetry)


def with_users(
    settings: AuthSettings,
    audience: str | None,
    users: UserTokenVerifier,
    accepts: Accepts = "service",
    api_keys: ApiKeyVerifier | None = None,
    *,
    telemetry: Telemetry | None = None,
) -> Authenticator:
    """What ``settings`` accept, access tokens that ``users`` accepts, and keys likewise.

    Without an audience no run tokens: who changes accounts or decides about runs is a person.
    """
    verify_api_key = None if api_keys is None else api_keys.verify
    found: list[Authenticator] = [
        Bearer(
            static_key_from(settings, telemetry),
            users.verify,
            refused_token,
            verify_api_key=verify_api_key,
        )
    ]
    sources = [] if audience is None else key_sources(settings, telemetry)
    if sources:
        found.append(RunTokenVerifier(sources, audience, accepts))
    return AnyOf(*found)


def _check_type(token_type: Any, claims: dict[str, Any], required: bool) -> None:
    """Refuse what is no access token, such as an ID token for the same audience."""
    if token_type is not None and not isinstance(token_type, str):
        raise jwt.InvalidTokenError("its type is no text")
    name = (token_type or "").lower().removeprefix("application/")
    if name == _DECLARED:
        return
    if required or name not in _UNTYPED:
        raise jwt.InvalidTokenError("does not say that it is an access token")
    if any(claim in claims for claim in _ID_TOKEN_CLAIMS) or any(
        claims.get(claim) == use for claim, use in _ID_TOKEN_USES.items()
    ):
        raise jwt.InvalidTokenError("is an ID token")


def _user_id(claim: Any) -> str:
    if (
        not isinstance(claim, str)
        or not 0 < len(claim) <= MAX_USER_ID_CHARS
        or not claim.isprintable()
        # Callers without authentication act under this name; no issuer may hand it out.
        or claim == LOCAL_USER
    ):
        raise jwt.InvalidTokenError("names no user")
    return claim
