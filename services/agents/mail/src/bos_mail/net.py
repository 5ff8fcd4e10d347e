"""Connections to mail servers: names resolved once, every address checked, TLS by default."""

from __future__ import annotations

import asyncio
import socket
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bos_errors import ConfigurationError
from bos_http import HttpRefused, SystemResolver
from bos_http.addresses import check_address
from bos_http.url import canonical_host
from bos_mail.failures import unavailable, unusable

if TYPE_CHECKING:
    from pathlib import Path

    from bos_http import Resolver
    from bos_mail.settings import MailSettings


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A mail server as a connection names it."""

    host: str
    port: int
    security: str
    """implicit (TLS from the start), starttls, or none, which is for loopback alone."""


def tls_context(ca_file: Path | None) -> ssl.SSLContext:
    """TLS context that verifies mail servers.

    Raises:
        ConfigurationError: the file of authorities cannot be read.
    """
    try:
        return ssl.create_default_context(cafile=None if ca_file is None else str(ca_file))
    except (OSError, ssl.SSLError):
        raise ConfigurationError(
            f"{ca_file} (BOS_MAIL_CA_FILE) does not hold certificate authorities in PEM form."
        ) from None


class Connector:
    """Opens sockets to mail servers whose addresses may be called.

    Args:
        settings: Which hosts and ports.
        resolver: Where addresses come from; the operating system's if None.
    """

    def __init__(self, settings: MailSettings, resolver: Resolver | None = None) -> None:
        self._settings = settings
        self._resolver = resolver or SystemResolver()
        self.tls = tls_context(settings.ca_file)

    async def socket(self, endpoint: Endpoint) -> socket.socket:
        """A connected, non-blocking socket; its owner closes it.

        Raises:
            AgentFailure: the host may not be called, or cannot be reached.
        """
        try:
            host = canonical_host(endpoint.host)
        except HttpRefused:
            raise unusable("its host is not the name of a host") from None
        networks = self._settings.networks_of(host, endpoint.port)
        if networks is None and endpoint.port not in self._settings.ports:
            allowed = ", ".join(map(str, self._settings.ports))
            raise unusable(f"port {endpoint.port} is not one of {allowed}")
        try:
            async with asyncio.timeout(self._settings.command_timeout_s):
                texts = await self._resolver.resolve(host.strip("[]"), endpoint.port)
                addresses = [check_address(text, networks) for text in dict.fromkeys(texts)]
                if endpoint.security == "none" and not all(a.is_loopback for a in addresses):
                    raise unusable("it would send its password without TLS")
                return await _connected([str(each) for each in addresses], endpoint.port)
        except HttpRefused:
            raise unusable("its host leads to an address that may not be called") from None
        except (OSError, UnicodeError, TimeoutError):
            raise unavailable("cannot be reached") from None


async def _connected(addresses: list[str], port: int) -> socket.socket:
    loop, failure = asyncio.get_running_loop(), OSError("no address")
    for address in addresses[:4]:
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        made = socket.socket(family, socket.SOCK_STREAM)
        made.setblocking(False)
        try:
            await loop.sock_connect(made, (address, port))
        except OSError as error:
            made.close()
            failure = error
        except BaseException:
            made.close()
            raise
        else:
            return made
    raise failure
