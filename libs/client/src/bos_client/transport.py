"""TLS of the tools of people: whom to believe, what to show, and what never goes in plain text.

A target ``grpcs://host:port`` (or ``https://…``) is called over TLS, and so is a mere ``host:port``
once an authority is given. Beyond this machine plain text has to be asked for: an attacker on the
way could read the key or token that goes with every call.
"""

from __future__ import annotations

import ssl
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import grpc

from bos_errors import (
    FailedPrecondition,
    InvalidArgument,
    Unavailable,
    from_rpc_error,
    is_worded_by_peer,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from bos_errors import BosError

_SECURE: Final = ("grpcs", "https")
_PLAIN: Final = ("grpc", "http")
_MOST_BYTES: Final = 1024 * 1024
_PROBLEMS: Final = {
    "CERTIFICATE_VERIFY_FAILED": "The service's certificate is expired, or is from no authority "
    "that you believe: give the right one by --ca-file (or BOS_CA_FILE).",
    "Hostname Verification": "The service's certificate is for another host: call it by the name "
    "that its certificate holds (--target), or have one issued for this name.",
    "WRONG_VERSION_NUMBER": "The service speaks no TLS there: call it without --ca-file "
    "(BOS_CA_FILE) and grpcs://, or correct --target.",
    "CERTIFICATE_REQUIRED": "The service demands a certificate of its callers: give one by "
    "--cert-file and --key-file (BOS_CERT_FILE, BOS_KEY_FILE).",
}


@dataclass(frozen=True, slots=True)
class Transport:
    """Transport security of calls to services."""

    ca_file: str | None = None
    """Authorities (PEM) that services' certificates come from; None: those of this system."""
    cert_file: str | None = None
    """Certificate (PEM, with its chain) to show to services that demand one."""
    key_file: str | None = None
    """Its private key (PEM)."""
    insecure: bool = True
    """Whether plain text may go beyond this machine."""

    def reach(self, target: str) -> tuple[str, grpc.ChannelCredentials | None]:
        """What to dial for ``target``, and with which credentials; None for plain text.

        Raises:
            InvalidArgument: A file cannot be used, or the target would be called in plain text.
        """
        scheme, address = _parts(target)
        if scheme in _SECURE or (self.ca_file and scheme not in _PLAIN and scheme != "unix"):
            return address, self._credentials()
        if not (self.insecure or scheme == "unix" or _is_here(address)):
            raise InvalidArgument(
                f"{target} would be called in plain text, and your key or token could be read on "
                f"its way. Write grpcs://{address}, or give the authority of its certificate by "
                "--ca-file (or BOS_CA_FILE); or add --insecure (BOS_INSECURE=1) if that network is "
                "yours alone.",
                reason="PLAIN_TEXT",
            )
        return address, None

    def _credentials(self) -> grpc.ChannelCredentials:
        if bool(self.cert_file) != bool(self.key_file):
            raise InvalidArgument(
                "Give --cert-file and --key-file (BOS_CERT_FILE, BOS_KEY_FILE) together, or none."
            )
        system = ssl.get_default_verify_paths().cafile
        authorities = _read(self.ca_file, "--ca-file") or _read(system, "SSL_CERT_FILE")
        if authorities is not None and b"-----BEGIN CERTIFICATE-----" not in authorities:
            raise InvalidArgument(
                f"{self.ca_file or system} holds no certificate in PEM form; correct --ca-file "
                "(or BOS_CA_FILE)."
            )
        key, chain = _read(self.key_file, "--key-file"), _read(self.cert_file, "--cert-file")
        return grpc.ssl_channel_credentials(authorities, key, chain)


_current: ContextVar[Transport | None] = ContextVar("bos_client_transport", default=None)


@contextmanager
def use_transport(transport: Transport) -> Iterator[None]:
    """Have the clients that connect within this block call services by ``transport``."""
    before = _current.set(transport)
    try:
        yield
    finally:
        _current.reset(before)


def current_transport() -> Transport:
    """How services are called: as was set, or as targets say."""
    return _current.get() or Transport()


def _parts(target: str) -> tuple[str, str]:
    """Scheme and what gRPC is to dial; without a scheme of ours, that is the target itself."""
    scheme, separator, rest = target.partition("://")
    if separator and scheme.lower() in (*_SECURE, *_PLAIN):
        return scheme.lower(), rest.rstrip("/")
    if target.startswith(("unix:", "unix-abstract:")):
        return "unix", target
    return "", target


def _is_here(address: str) -> bool:
    """Whether nothing leaves this machine on its way there; every address of a list counts."""
    family, separator, listed = address.partition(":")
    if separator and family in ("ipv4", "ipv6"):
        return all(map(_is_loopback, listed.split(",")))
    return _is_loopback(address.rsplit("/", 1)[-1] if ":///" in address else address)


def _is_loopback(place: str) -> bool:
    try:
        host = urlsplit(f"//{place}").hostname or ""
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _read(path: str | None, option: str) -> bytes | None:
    if not path:
        return None
    try:
        with Path(path).open("rb") as file:
            return file.read(_MOST_BYTES)
    except OSError as error:
        raise InvalidArgument(f"{option}: {path} cannot be read: {error.strerror}.") from None


def failure_of(error: grpc.RpcError) -> BosError:
    """The typed form of a failed call, with what is wrong with certificates if that is why.

    Raise it ``from error``.
    """
    found = from_rpc_error(error)
    if isinstance(found, Unavailable) and not is_worded_by_peer(error):
        details = error.details() or ""
        problem = next((text for sign, text in _PROBLEMS.items() if sign in details), "")
        if problem:
            return FailedPrecondition(problem, reason="TLS_REFUSED")
    return found
