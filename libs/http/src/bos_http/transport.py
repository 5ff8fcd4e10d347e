"""The HTTP library, set up so that nothing passes by the gate, and its errors turned into ours."""

from __future__ import annotations

import os
import ssl
from contextlib import contextmanager
from functools import lru_cache
from typing import TYPE_CHECKING

import aiohttp
from aiohttp.http_exceptions import HttpProcessingError, LineTooLong

from bos_errors import ConfigurationError
from bos_http.errors import Failure, HttpFailed, HttpRefused, HttpTimedOut, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bos_http.gate import Gate
    from bos_http.policy import HttpPolicy
    from bos_http.resolver import CheckedResolver

_MAX_HEADERS = 128


def open_session(
    policy: HttpPolicy,
    gate: Gate,
    resolver: CheckedResolver,
    tls: ssl.SSLContext,
    *,
    repeatable: bool,
) -> aiohttp.ClientSession:
    """A session for requests that may be sent twice, or for those that must not."""
    connector = aiohttp.TCPConnector(
        resolver=resolver,
        # Each connection asks anew, and is then bound to what was checked for it.
        use_dns_cache=False,
        socket_factory=gate.open_socket,
        ssl=tls,
        limit=policy.max_connections,
        # A kept connection may have been closed by the host, unnoticed until something is sent
        # on it. For a request that must not be sent twice it would then be unknown what
        # happened, so it gets a connection of its own.
        **({"keepalive_timeout": policy.keepalive_s} if repeatable else {"force_close": True}),
    )
    return aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        trust_env=False,
        auto_decompress=False,
        timeout=aiohttp.ClientTimeout(
            total=None, sock_connect=policy.connect_timeout_s, sock_read=policy.read_timeout_s
        ),
        max_line_size=policy.max_response_header_bytes,
        max_field_size=policy.max_response_header_bytes,
        max_headers=_MAX_HEADERS,
        middlewares=() if repeatable else (_send_once,),
    )


def tls_context(policy: HttpPolicy) -> ssl.SSLContext:
    """TLS 1.2 or newer, certificates and names checked.

    Raises:
        ConfigurationError: The policy's ``ca_file`` cannot be read.
    """
    if policy.ca_file is None:
        return _tls_of(os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR"))
    context = _no_authorities()
    try:
        context.load_verify_locations(cafile=policy.ca_file)
    except (OSError, ssl.SSLError):
        raise ConfigurationError(
            "The certificate authorities of outgoing HTTP cannot be read. "
            "Set BOS_HTTP_CA_FILE to a PEM file, or unset it for the system's."
        ) from None
    return context


@lru_cache(maxsize=4)
def _tls_of(_file: str | None, _folder: str | None) -> ssl.SSLContext:
    """The system's authorities, shared by all clients: reading them takes 45 ms."""
    context = _no_authorities()
    context.load_default_certs()  # reads the two variables itself
    return context


def _no_authorities() -> ssl.SSLContext:
    # Not create_default_context: it writes session keys to the file that SSLKEYLOGFILE names.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    return context


@contextmanager
def translated() -> Iterator[None]:
    """Raise our errors instead of the HTTP library's, whose text names addresses.

    Raises:
        HttpRefused: A header of the response is too large.
        HttpTimedOut: Connecting or reading took too long.
        HttpFailed: Anything else.
    """
    try:
        yield
    except aiohttp.ServerTimeoutError:
        raise HttpTimedOut from None
    except (aiohttp.ClientError, HttpProcessingError) as error:
        raise _from_library(error) from None


def _from_library(error: Exception) -> HttpRefused | HttpFailed:
    match error:
        case aiohttp.ClientResponseError() if _is_caused_by(error, LineTooLong):
            return HttpRefused(Rule.RESPONSE_HEADERS_TOO_LARGE)
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientSSLError():
            return HttpFailed(Failure.TLS)
        case aiohttp.ClientConnectorError():
            return HttpFailed(Failure.CONNECT)
        case aiohttp.ClientConnectionError() | aiohttp.ClientPayloadError():
            return HttpFailed(Failure.INTERRUPTED)
        case _:
            return HttpFailed(Failure.PROTOCOL)


def _is_caused_by(error: BaseException, kind: type[BaseException]) -> bool:
    cause = error.__cause__
    return cause is not None and (isinstance(cause, kind) or _is_caused_by(cause, kind))


async def _send_once(
    request: aiohttp.ClientRequest, send: aiohttp.ClientHandlerType
) -> aiohttp.ClientResponse:
    """Keep the HTTP library from repeating what it holds for idempotent, such as PUT."""
    try:
        return await send(request)
    except aiohttp.ClientConnectorError:
        raise
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
        raise HttpFailed(Failure.INTERRUPTED) from None
