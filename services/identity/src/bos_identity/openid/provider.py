"""Calls of the OpenID provider: its configuration, keys, tokens, device codes, what it knows.

Only the issuer's own origin and those of the settings are called, without following redirects; what
comes back is bounded and never shown to any caller.
"""

from __future__ import annotations

import asyncio
import base64
import json
import time
from dataclasses import dataclass, field
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode, urlsplit

from bos_chassis.auth.jwks_sources import DISCOVERY_PATH
from bos_chassis.settings import is_loopback
from bos_errors import BosError, Unavailable
from bos_http import HttpPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from structlog.typing import FilteringBoundLogger

    from bos_http import HttpClient, HttpResponse
    from bos_identity.openid.client_secret import ClientSecret
    from bos_identity.openid.settings import OpenIdSettings

_LOOPBACK: Final = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
_TIMEOUT_S: Final = 10.0
_MAX_BYTES: Final = 256 * 1024
_MAX_AGE_S: Final = 600.0
_MAX_URL_CHARS: Final = 2048
_FORM: Final = "application/x-www-form-urlencoded"
DEVICE_GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"


@dataclass(frozen=True, slots=True)
class Configuration:
    """Published configuration of the provider, as far as it matters."""

    authorization: str
    token: str
    keys: str
    device: str | None
    userinfo: str | None
    names_itself: bool
    """Whether browsers come back with the issuer's name (RFC 9207)."""
    secret_in_body: bool


@dataclass(frozen=True, slots=True)
class Refused:
    """The provider refused, by one of the words that OAuth has for it."""

    error: str


_UNKNOWN_CLIENT: Final = Refused("invalid_client")


@dataclass(frozen=True, slots=True)
class Granted:
    """Reply of the provider's token endpoint."""

    id_token: str = field(repr=False)
    access_token: str = field(repr=False)


def policy_of(settings: OpenIdSettings) -> HttpPolicy:
    """What identity may call to sign people in, and nothing else."""
    origins = [_origin(url) for url in (settings.issuer or "", *settings.origins)]
    inside: dict[str, Any] = {}
    hosts, ports = [], set()
    for origin in origins:
        parts = urlsplit(origin)
        networks = settings.networks or (_LOOPBACK if is_loopback(parts.hostname or "") else ())
        if networks:
            inside[origin] = networks
        else:
            hosts.append(parts.hostname or "")
            ports.add(parts.port or 443)
    return HttpPolicy(
        hosts=tuple(hosts),
        ports=tuple(ports) or (443,),
        internal_origins=inside,
        methods=("GET", "POST"),
        max_redirects=0,
        total_timeout_s=_TIMEOUT_S,
        max_response_bytes=_MAX_BYTES,
        ca_file=settings.ca_file,
    )


class Provider:
    """The OpenID provider of the settings.

    Args:
        settings: Where it is, and what identity is called there.
        client: Opened with :func:`policy_of`.
        log: Where its failures go; people hear only that it failed.
        secret: What proves who identity is there.
    """

    def __init__(
        self,
        settings: OpenIdSettings,
        client: HttpClient,
        log: FilteringBoundLogger,
        secret: ClientSecret,
    ) -> None:
        self._settings = settings
        self._issuer = settings.issuer or ""
        self._client = client
        self._log = log
        self._secret = secret
        self._known: Configuration | None = None
        self._known_at = 0.0
        self._origins = {_origin(url) for url in (self._issuer, *settings.origins)}
        self._asking = asyncio.Lock()

    async def configuration(self) -> Configuration:
        """What the provider publishes, as of ten minutes ago at most.

        Raises:
            Unavailable: It cannot be had, or cannot be right.
        """
        async with self._asking:  # one asks, the others get what it heard
            if self._known is None or time.monotonic() - self._known_at > _MAX_AGE_S:
                url = self._issuer.removesuffix("/") + DISCOVERY_PATH
                document = _object(await self._call("GET", url))
                self._known = self._read(document)
                self._known_at = time.monotonic()
            return self._known

    async def keys(self) -> Sequence[Mapping[str, Any]]:
        """The keys that it signs with."""
        answer = _object(await self._call("GET", (await self.configuration()).keys))
        keys = answer.get("keys") if answer is not None else None
        if not isinstance(keys, list):
            raise self.wrong("its keys are not a JSON Web Key Set")
        return [each for each in keys if isinstance(each, dict)]

    async def grant(self, form: Mapping[str, str]) -> Granted | Refused:
        """Exchange a code for tokens."""
        answer = await self._posted((await self.configuration()).token, form)
        if isinstance(answer, Refused):
            return answer
        id_token, access_token = answer.get("id_token"), answer.get("access_token")
        if not isinstance(id_token, str) or not isinstance(access_token, str):
            raise self.wrong("its token endpoint gave no ID token")
        return Granted(id_token, access_token)

    async def device(self, form: Mapping[str, str]) -> Mapping[str, Any]:
        """Begin a sign-in on another device.

        Raises:
            Unavailable: The provider refuses to, or cannot be reached.
        """
        endpoint = (await self.configuration()).device
        if endpoint is None:
            raise self.wrong("it has no device flow")
        answer = await self._posted(endpoint, form)
        if isinstance(answer, Refused):
            raise self.wrong(f"its device endpoint said {answer.error}")
        return answer

    async def person(self, access_token: str) -> Mapping[str, Any]:
        """Claims of a person beside the ID token; nothing if there is no such endpoint."""
        endpoint = (await self.configuration()).userinfo
        if endpoint is None:
            return {}
        headers = {"Authorization": f"Bearer {access_token}"}
        answer = _object(await self._call("GET", endpoint, headers))
        if answer is None:
            raise self.wrong("what it says of people is not a JSON object")
        return answer

    def web_page(self, value: Any) -> str:
        """The address of a page for browsers.

        Raises:
            Unavailable: It is none, or not one of a kind that a browser may be sent to.
        """
        parts = urlsplit(value) if isinstance(value, str) and value.isascii() else None
        if (
            parts is None
            or len(value) > _MAX_URL_CHARS
            or not value.isprintable()
            or " " in value
            or not parts.netloc
            or parts.scheme not in ("https", urlsplit(self._issuer).scheme)
        ):
            raise self.wrong("it names a page that is no URL for browsers")
        return str(value)

    def _read(self, document: Mapping[str, Any] | None) -> Configuration:
        if document is None or document.get("issuer") != self._issuer:
            raise self.wrong("the configuration is missing, or that of another issuer")
        device, userinfo = (
            document.get("device_authorization_endpoint"),
            document.get("userinfo_endpoint"),
        )
        methods = document.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        return Configuration(
            authorization=self.web_page(document.get("authorization_endpoint")),
            token=self._endpoint(document.get("token_endpoint")),
            keys=self._endpoint(document.get("jwks_uri")),
            device=None if device is None else self._endpoint(device),
            userinfo=None if userinfo is None else self._endpoint(userinfo),
            names_itself=document.get("authorization_response_iss_parameter_supported") is True,
            secret_in_body=isinstance(methods, list) and "client_secret_basic" not in methods,
        )

    def _endpoint(self, value: Any) -> str:
        url = self.web_page(value)
        if _origin(url) not in self._origins:
            raise self.wrong(
                f"it has an endpoint on {_origin(url)}, which BOS_IDENTITY_OPENID_ORIGINS does "
                "not name"
            )
        return url

    async def _posted(self, url: str, form: Mapping[str, str]) -> Mapping[str, Any] | Refused:
        secret = self._secret.current()
        answer = await self._posted_with(secret, url, form)
        if answer == _UNKNOWN_CLIENT:
            # The file may have been replaced since the last look; the code is good still.
            renewed = self._secret.look()
            if renewed != secret:
                answer = await self._posted_with(renewed, url, form)
        if answer == _UNKNOWN_CLIENT:
            # People who want to sign in can do nothing about it, and the operator must hear of it.
            raise self.wrong("it does not know BOS_IDENTITY_OPENID_CLIENT_ID, or its secret")
        return answer

    async def _posted_with(
        self, secret: str | None, url: str, form: Mapping[str, str]
    ) -> Mapping[str, Any] | Refused:
        fields, headers = {**form, "client_id": self._settings.client_id}, {"Content-Type": _FORM}
        if secret is not None and (await self.configuration()).secret_in_body:
            fields["client_secret"] = secret
        elif secret is not None:
            pair = f"{quote(self._settings.client_id, '')}:{quote(secret, '')}"
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        response = await self._call("POST", url, headers, urlencode(fields).encode())
        answer = _object(response)
        if answer is not None:
            return answer
        error = (_parsed(response) or {}).get("error")
        if response.status >= 500 or not isinstance(error, str):
            raise self.wrong(f"it answered with status {response.status}")
        return Refused(error[:64])

    async def _call(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> HttpResponse:
        wanted = {"Accept": "application/json", **(headers or {})}
        try:
            return await self._client.request(method, url, headers=wanted, body=body)
        except BosError as error:
            raise self.wrong(f"{error.reason}: {error.message}") from None

    def wrong(self, why: str) -> Unavailable:
        """What people hear when the provider is at fault; why goes to the log."""
        self._log.warning("OpenID provider failed", issuer=self._issuer, why=why)
        return Unavailable(
            "The sign-in provider cannot be used at the moment; try again, or ask an operator.",
            reason="OPENID_UNAVAILABLE",
        )


def _object(response: HttpResponse) -> Mapping[str, Any] | None:
    """The JSON object of a success; None if it is no success, or no object."""
    return _parsed(response) if response.ok else None


def _parsed(response: HttpResponse) -> Mapping[str, Any] | None:
    try:
        found = json.loads(response.body)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}".lower()
