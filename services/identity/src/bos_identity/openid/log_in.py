"""Signing in by an OpenID provider: code flow with PKCE, and device flow (RFC 8628)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import math
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

from bos.identity.v1 import (
    BeginOpenIdLogInResponse,
    FinishOpenIdLogInResponse,
    GetOpenIdProviderResponse,
    OpenIdLogInPending,
)
from bos_errors import (
    FailedPrecondition,
    InvalidArgument,
    PermissionDenied,
    Unauthenticated,
)
from bos_identity.account import Account
from bos_identity.names import clean_name
from bos_identity.openid.claims import (
    display_name_of,
    email_of,
    groups_of,
    roles_of,
    username_of,
)
from bos_identity.openid.flows import NewFlow
from bos_identity.openid.id_tokens import refused
from bos_identity.openid.people import Person
from bos_identity.openid.provider import DEVICE_GRANT, Granted
from bos_identity.openid.settings import is_listed
from bos_postgres.audit import unauthenticated

if TYPE_CHECKING:
    from collections.abc import Mapping

    from structlog.typing import FilteringBoundLogger

    from bos.identity.v1 import FinishOpenIdLogInRequest
    from bos_identity.identity import Identity
    from bos_identity.openid.flows import Flows
    from bos_identity.openid.id_tokens import IdTokens
    from bos_identity.openid.people import People
    from bos_identity.openid.provider import Provider
    from bos_identity.openid.settings import OpenIdSettings
    from bos_identity.sessions import Origin

_CODE: Final = "code"
_DEVICE: Final = "device"
_LEAST_INTERVAL_S: Final = 1.0
_INTERVAL_S: Final = 5.0  # where the provider does not say (RFC 8628, 3.2)
_MOST_INTERVAL_S: Final = 60.0
_MAX_CODE_CHARS: Final = 4096
_MAX_USER_CODE_CHARS: Final = 64


@dataclass(frozen=True, slots=True)
class OpenIdLogIn:
    """Signs people in by the provider of the settings."""

    settings: OpenIdSettings
    provider: Provider
    id_tokens: IdTokens
    flows: Flows
    people: People
    identity: Identity
    log: FilteringBoundLogger

    def description(self) -> GetOpenIdProviderResponse:
        """The provider, as people are shown it."""
        return GetOpenIdProviderResponse(
            available=True, name=self.settings.name, device_flow=self.settings.device_flow
        )

    async def begin(self, redirect_uri: str, origin: Origin) -> BeginOpenIdLogInResponse:
        """Begin a sign-in: in a browser that comes back, or on another device.

        Raises:
            InvalidArgument: Browsers may not come back to there.
            FailedPrecondition: The settings have no device flow.
            ResourceExhausted: Too many people are signing in.
            Unavailable: The provider cannot be used.
        """
        if not redirect_uri:
            return await self._begin_device(origin)
        if not is_listed(redirect_uri, self.settings.redirect_uris):
            raise InvalidArgument.field(
                "redirect_uri",
                "is not one of those that browsers may come back to; an operator has to name it "
                "in BOS_IDENTITY_OPENID_REDIRECT_URIS",
            )
        # Before the provider is called, and once more when it is kept.
        await self.flows.check_room(origin.network)
        endpoint = (await self.provider.configuration()).authorization
        state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest())
        query = urlencode(
            {
                "response_type": "code",
                "client_id": self.settings.client_id,
                "redirect_uri": redirect_uri,
                "scope": " ".join(self.settings.scopes),
                "state": state,
                "nonce": nonce,
                "code_challenge": challenge.rstrip(b"=").decode(),
                "code_challenge_method": "S256",
            }
        )
        kept = {"state": state, "nonce": nonce, "verifier": verifier, "redirect_uri": redirect_uri}
        new = NewFlow(_CODE, kept, origin.network, self.settings.flow_s)
        handle, expires = await self.flows.begin(new)
        mark = "&" if "?" in endpoint else "?"
        response = BeginOpenIdLogInResponse(
            handle=handle, authorization_url=f"{endpoint}{mark}{query}"
        )
        response.expire_time.FromDatetime(expires)
        return response

    async def finish(
        self, request: FinishOpenIdLogInRequest, origin: Origin
    ) -> FinishOpenIdLogInResponse:
        """Open the session of the person who has signed in at the provider.

        Raises:
            Unauthenticated: They have not, or not in the sign-in that the handle is of.
            PermissionDenied: Their account is deactivated, or they have none and none is made.
            Unavailable: The provider cannot be used.
        """
        client_name = clean_name("client_name", request.client_name)
        try:
            account = await self._account(request, origin)
            if not isinstance(account, Account):
                return account
            response = await self.identity.open_session(
                account, origin, client_name, self.settings.issuer or ""
            )
            if response is None:
                raise self._refused("the account was closed in this very moment")
        except (Unauthenticated, PermissionDenied):
            self.identity.metrics.logins.labels("refused").inc()
            refused_entry = unauthenticated(origin.network).entry(
                "session.refused", outcome="refused"
            )
            self.identity.refusals.count(refused_entry)
            raise
        self.identity.metrics.logins.labels("succeeded").inc()
        return FinishOpenIdLogInResponse(log_in=response)

    async def _account(
        self, request: FinishOpenIdLogInRequest, origin: Origin
    ) -> Account | FinishOpenIdLogInResponse:
        """The account of the person who has signed in, or what is to be said until then."""
        if request.code or request.state:
            granted, nonce = await self._by_code(request)
        else:
            found = await self._by_device(request.handle)
            if isinstance(found, float):
                return _pending(found)
            granted, nonce = found, None
        claims = await self._claims(granted, nonce)
        account, is_new = await self.people.account(self._person(claims), origin.address)
        if is_new:
            self.identity.metrics.registrations.inc()
            user = account.user
            self.log.info(
                "user registered", user=user.user_id, right="openid", roles=list(user.roles)
            )
        return account

    async def _begin_device(self, origin: Origin) -> BeginOpenIdLogInResponse:
        if not self.settings.device_flow:
            raise FailedPrecondition(
                "Signing in on another device is switched off here; use a browser.",
                reason="OPENID_NO_DEVICE_FLOW",
            )
        await self.flows.check_room(origin.network)
        answer = await self.provider.device({"scope": " ".join(self.settings.scopes)})
        code, shown = answer.get("device_code"), answer.get("user_code")
        if not _is_text(code, _MAX_CODE_CHARS) or not _is_text(shown, _MAX_USER_CODE_CHARS):
            raise self.provider.wrong("its device endpoint gave no codes")
        interval_s = _seconds(answer.get("interval"), _INTERVAL_S, _MOST_INTERVAL_S)
        life_s = _seconds(answer.get("expires_in"), self.settings.flow_s, self.settings.flow_s)
        response = BeginOpenIdLogInResponse(
            user_code=shown,
            verification_uri=self.provider.web_page(answer.get("verification_uri")),
        )
        complete = answer.get("verification_uri_complete")
        if complete is not None:
            response.verification_uri_complete = self.provider.web_page(complete)
        new = NewFlow(_DEVICE, {"device_code": str(code)}, origin.network, life_s, interval_s)
        response.handle, expires = await self.flows.begin(new)
        response.expire_time.FromDatetime(expires)
        response.interval.FromMilliseconds(math.ceil(interval_s * 1000))
        return response

    async def _by_code(self, request: FinishOpenIdLogInRequest) -> tuple[Granted, str]:
        """The tokens for the code that a browser came back with, and the nonce to find in them."""
        kept = await self.flows.take(request.handle, _CODE)
        if kept is None or not hmac.compare_digest(kept["state"].encode(), request.state.encode()):
            raise self._refused("handle or state")
        names_itself = (await self.provider.configuration()).names_itself
        if (names_itself or request.issuer) and request.issuer != self.settings.issuer:
            raise self._refused("answer of another issuer")
        form = {
            "grant_type": "authorization_code",
            "code": request.code,
            "redirect_uri": kept["redirect_uri"],
            "code_verifier": kept["verifier"],
        }
        granted = await self.provider.grant(form)
        if not isinstance(granted, Granted):
            raise self._refused(granted.error)
        return granted, kept["nonce"]

    async def _by_device(self, handle: str) -> Granted | float:
        """The tokens, once the person is done on the other device; until then the pause."""
        poll = await self.flows.poll(handle)
        if poll is None:
            raise self._refused("handle")
        if isinstance(poll, float):
            return poll
        code = poll.secrets["device_code"]
        granted = await self.provider.grant({"grant_type": DEVICE_GRANT, "device_code": code})
        if not isinstance(granted, Granted):
            if granted.error == "authorization_pending":
                return poll.interval_s
            if granted.error == "slow_down":
                return await self.flows.slow_down(handle)
            await self.flows.take(handle, _DEVICE)
            raise self._refused(granted.error)
        if await self.flows.take(handle, _DEVICE) is None:
            raise self._refused("handle used twice at once")
        return granted

    async def _claims(self, granted: Granted, nonce: str | None) -> Mapping[str, Any]:
        """What the provider says of the person; the ID token counts for more than the rest."""
        claims = await self.id_tokens.claims(granted.id_token, nonce)
        more = await self.provider.person(granted.access_token)
        if more and more.get("sub") != claims["sub"]:
            raise self._refused("claims of another subject")
        return {**more, **claims}

    def _person(self, claims: Mapping[str, Any]) -> Person:
        username = username_of(claims)
        return Person(
            issuer=self.settings.issuer or "",
            subject=claims["sub"],
            username=username,
            email=email_of(claims),
            display_name=display_name_of(claims, username),
            roles=roles_of(claims, self.settings.roles_claim),
            groups=groups_of(claims, self.settings.groups_claim),
        )

    def _refused(self, why: str) -> Unauthenticated:
        self.log.info("OpenID sign-in refused", why=why)
        return refused()


def _pending(interval_s: float) -> FinishOpenIdLogInResponse:
    pending = OpenIdLogInPending()
    pending.interval.FromMilliseconds(math.ceil(interval_s * 1000))
    return FinishOpenIdLogInResponse(pending=pending)


def _is_text(value: Any, most: int) -> bool:
    return isinstance(value, str) and 0 < len(value) <= most and value.isprintable()


def _seconds(value: Any, otherwise: float, most: float) -> float:
    """A time that the provider gives, within what can be waited."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return otherwise
    return min(max(float(value), _LEAST_INTERVAL_S), most)
