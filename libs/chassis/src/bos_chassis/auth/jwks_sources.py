"""Sources of an issuer's keys: the identity service, an OpenID issuer, a URL, a file."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import ip_network
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from google.protobuf.json_format import MessageToDict

from bos.identity.v1 import GetJsonWebKeySetRequest, IdentityServiceStub
from bos_chassis.channels import Channels, translate_rpc_errors
from bos_chassis.settings import is_loopback
from bos_errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
    from ipaddress import IPv4Network, IPv6Network
    from pathlib import Path

    from bos_chassis.auth.jwks import Fetch
    from bos_chassis.settings import AuthSettings, TlsSettings
    from bos_chassis.telemetry import Telemetry

    IssuerDocument = Callable[
        [str, Sequence[IPv4Network | IPv6Network], Telemetry], Awaitable[Mapping[str, Any]]
    ]
    """Fetches a JSON object by its URL, from these networks alone if there are any."""

DISCOVERY_PATH = "/.well-known/openid-configuration"
_LOOPBACK = (ip_network("127.0.0.0/8"), ip_network("::1/128"))
_TIMEOUT_S = 5.0
_MAX_BYTES = 256 * 1024


@asynccontextmanager
async def key_source(
    settings: AuthSettings,
    telemetry: Telemetry,
    tls: TlsSettings | None = None,
    issuer_document: IssuerDocument | None = None,
) -> AsyncIterator[Fetch]:
    """A fetcher of the keys of ``settings.issuer``; connections end with the block.

    Args:
        settings: Say where the keys are.
        telemetry: Of the service.
        tls: Its certificates, for the way to identity; None for plain text.
        issuer_document: Fetches over HTTP (``bos_http.issuer_document``); None in a service that
            carries no HTTP client.

    Raises:
        ConfigurationError: The settings name no source that can be used.
    """
    if settings.issuer is None:
        raise ConfigurationError("BOS_AUTH_ISSUER must be set: it says whose keys are meant.")
    if settings.jwks_file is not None:
        yield _from_file(settings.jwks_file)
    elif settings.jwks_url is not None:
        yield _HttpKeys(settings, telemetry, issuer_document).from_url(settings.jwks_url)
    elif settings.identity_target is not None:
        async with AsyncExitStack() as stack:
            channels = await stack.enter_async_context(Channels(telemetry, tls=tls))
            yield _from_identity(channels, settings.identity_target)
    elif urlsplit(settings.issuer).scheme in ("http", "https"):
        yield _HttpKeys(settings, telemetry, issuer_document).discovered
    else:
        raise ConfigurationError(
            "Nothing says where the keys of BOS_AUTH_ISSUER are: set BOS_AUTH_IDENTITY_TARGET for "
            "the identity service, BOS_AUTH_JWKS_URL or BOS_AUTH_JWKS_FILE, or make the issuer the "
            "URL of an OpenID issuer."
        )


def _from_identity(channels: Channels, target: str) -> Fetch:
    async def fetch() -> Sequence[Mapping[str, Any]]:
        stub = IdentityServiceStub(channels.get(target))
        with translate_rpc_errors():
            found = await stub.GetJsonWebKeySet(GetJsonWebKeySetRequest(), timeout=_TIMEOUT_S)
        return [MessageToDict(key, preserving_proto_field_name=True) for key in found.keys]

    return fetch


def _from_file(path: Path) -> Fetch:
    def read() -> Any:
        with path.open("rb") as file:
            return json.loads(file.read(_MAX_BYTES))["keys"]

    async def fetch() -> Sequence[Mapping[str, Any]]:
        try:
            return list(await asyncio.to_thread(read))
        except KeyError:
            raise ValueError("the file is not a JSON Web Key Set") from None

    return fetch


class _HttpKeys:
    """Keys over HTTP, from hosts that the settings name."""

    def __init__(
        self,
        settings: AuthSettings,
        telemetry: Telemetry,
        issuer_document: IssuerDocument | None,
    ) -> None:
        if issuer_document is None:
            raise ConfigurationError(
                "This service cannot fetch keys over HTTP. "
                "Set BOS_AUTH_IDENTITY_TARGET or BOS_AUTH_JWKS_FILE instead."
            )
        self._settings = settings
        self._telemetry = telemetry
        self._issuer_document = issuer_document

    def from_url(self, url: str) -> Fetch:
        async def fetch() -> Sequence[Mapping[str, Any]]:
            return _keys(await self._get(url))

        return fetch

    async def discovered(self) -> Sequence[Mapping[str, Any]]:
        """The keys that the issuer's own configuration points to (OpenID Connect Discovery)."""
        issuer = self._settings.issuer or ""
        document = await self._get(issuer.removesuffix("/") + DISCOVERY_PATH)
        if document.get("issuer") != issuer:
            raise ValueError("the configuration found there is that of another issuer")
        url = str(document.get("jwks_uri"))
        if urlsplit(issuer).scheme == "https" and urlsplit(url).scheme != "https":
            raise ValueError("the issuer's jwks_uri is not https")
        return _keys(await self._get(url))

    async def _get(self, url: str) -> Mapping[str, Any]:
        host = urlsplit(url).hostname or ""
        networks = self._settings.jwks_networks or (_LOOPBACK if is_loopback(host) else ())
        return await self._issuer_document(url, networks, self._telemetry)


def _keys(document: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    keys = document.get("keys")
    if not isinstance(keys, list):
        raise ValueError("the answer is not a JSON Web Key Set")
    return keys
