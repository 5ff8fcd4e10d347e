"""TLS between services: certificates from files that may be replaced at any time, callers by name.

A service shows one certificate, to those who call it and to those it calls. Its files are looked at
again with new connections and calls, so that a renewed certificate needs no restart. Whose
certificate it is stands in its URI: ``spiffe://<trust domain>/<service>`` (SPIFFE-ID, section 2).
"""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING

import grpc
from attrs import field, frozen
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization

from bos_chassis.credentials.watched_files import WatchedFiles
from bos_errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from structlog.typing import FilteringBoundLogger

    from bos_chassis.auth.callers import Principal
    from bos_chassis.settings import TlsSettings
    from bos_chassis.telemetry import Telemetry

_PUBLIC = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
_NAMES = "x509_subject_alternative_name"
_GATEWAY = "gateway"


@frozen
class Certificates:
    """Contents of the three TLS files at one time, as PEM."""

    key: bytes = field(repr=False)
    chain: bytes
    authorities: bytes
    not_after: float
    """When the certificate ends, in seconds since 1970."""


class CertificateFiles:
    """The certificates of a service as its files hold them now; may be asked from any thread.

    Files that are half replaced, or not usable, change nothing: what was read before stays, and the
    log says why.

    Args:
        settings: Which files; all three are set.
        log: Where changes and defects are logged.
        on_read: Called with the end of each certificate that is read.

    Raises:
        ConfigurationError: A file is missing or not usable at the start.
    """

    def __init__(
        self,
        settings: TlsSettings,
        log: FilteringBoundLogger,
        on_read: Callable[[float], None] | None = None,
    ) -> None:
        key, chain, authorities = settings.key_file, settings.cert_file, settings.ca_file
        if key is None or chain is None or authorities is None:
            raise _unusable("BOS_TLS_CERT_FILE", "is not set")
        self._paths = (key, chain, authorities)
        self._log = log
        self._on_read = on_read
        self._files = WatchedFiles(
            self._paths, self._read, refresh_s=settings.refresh_s, on_change=self._notify
        )

    def current(self) -> Certificates:
        """The certificate to show and the authorities to trust now."""
        return self._files.current()

    def _read(self) -> Certificates:
        found = _read(self._paths)
        if self._on_read is not None:
            self._on_read(found.not_after)
        return found

    def _notify(self, problem: str | None) -> None:
        if problem is None:
            self._log.info("certificate replaced", files=[str(path) for path in self._paths])
        else:
            self._log.error("certificate not replaced", problem=problem)

    def show(self, context: ssl.SSLContext) -> bool:
        """Have ``context`` show the certificate, which its library reads from the files only.

        Returns:
            Whether it could: not while the files are being replaced.
        """
        key, chain, _ = self._paths
        try:
            context.load_cert_chain(chain, key)
        except (ssl.SSLError, OSError):
            return False
        return True


def certificate_files(settings: TlsSettings, telemetry: Telemetry) -> CertificateFiles | None:
    """The certificates that ``settings`` name; None where services speak in plain text.

    Raises:
        ConfigurationError: A file is missing or not usable.
    """
    if not settings.configured:
        return None
    ends = telemetry.file_metrics.not_after.labels(telemetry.service)
    return CertificateFiles(settings, telemetry.logger("bos.tls"), ends.set)


def server_credentials(
    files: CertificateFiles, *, client_certificates: bool
) -> grpc.ServerCredentials:
    """Credentials of a gRPC server, which asks for the files with every new connection."""
    given = files.current()

    def fetch() -> grpc.ServerCertificateConfiguration | None:
        nonlocal given
        now = files.current()
        if now is given:
            return None  # as before
        given = now
        return _server_configuration(now)

    return grpc.dynamic_ssl_server_credentials(
        _server_configuration(given),
        fetch,  # type: ignore[arg-type]  # the library takes None for no change
        require_client_authentication=client_certificates,
    )


def channel_credentials(now: Certificates) -> grpc.ChannelCredentials:
    """Credentials of a gRPC client, good until the files change."""
    return grpc.ssl_channel_credentials(now.authorities, now.key, now.chain)


class ClientTls:
    """TLS of an HTTP client that calls services of ours and shows them the certificate.

    Attributes:
        context: For the client's connections.
    """

    def __init__(self, files: CertificateFiles) -> None:
        self._files = files
        self._given = files.current()
        self.context = ssl.create_default_context(cadata=self._given.authorities.decode())
        self._files.show(self.context)

    def look(self) -> None:
        """Have connections made from now on use the certificates as they are now."""
        now = self._files.current()
        if now is self._given or not self._files.show(self.context):
            return
        self._given = now
        self.context.load_verify_locations(cadata=now.authorities.decode())


def server_context(files: CertificateFiles, *, client_certificates: bool) -> ssl.SSLContext:
    """TLS of an HTTP server; new connections get the certificate as it is by then.

    Raises:
        ConfigurationError: The certificate cannot be used.
    """

    def make(now: Certificates) -> ssl.SSLContext | None:
        context = ssl.create_default_context(
            ssl.Purpose.CLIENT_AUTH, cadata=now.authorities.decode()
        )
        context.verify_mode = ssl.CERT_REQUIRED if client_certificates else ssl.CERT_NONE
        return context if files.show(context) else None

    given = files.current()
    first = make(given)
    if first is None:
        raise _unusable("BOS_TLS_CERT_FILE", "and BOS_TLS_KEY_FILE cannot be used for TLS")
    serving = first

    def choose(connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        nonlocal given, serving
        now = files.current()
        if now is not given and (made := make(now)) is not None:
            given, serving = now, made
        connection.context = serving

    first.sni_callback = choose  # also called where no name is sent
    return first


def callers(entries: Iterable[str | bytes], trust_domain: str) -> frozenset[str]:
    """The services of ``trust_domain`` among the URIs of a certificate."""
    prefix = f"spiffe://{trust_domain}/"
    texts = (
        str(entry, "utf-8", "replace") if isinstance(entry, bytes) else entry for entry in entries
    )
    names = [text.removeprefix(prefix) for text in texts if text.startswith(prefix)]
    return frozenset(name for name in names if name and "/" not in name)


def calling_services(
    context: grpc.aio.ServicerContext[object, object], trust_domain: str
) -> frozenset[str] | None:
    """Names of the calling service, by its verified certificate; None if the caller showed none."""
    shown = context.auth_context()
    if not shown.get("x509_pem_cert"):
        return None
    return callers(shown.get(_NAMES, ()), trust_domain)


def in_foreign_hands(
    principal: Principal, services: frozenset[str] | None, others: Iterable[str] = ()
) -> bool:
    """Whether a run token comes from a service that was not given it.

    The gateway makes it, and the agent that it is made for passes it on.

    Args:
        principal: Whom the credential of the call names.
        services: The caller's services, by certificate; None if it has shown none.
        others: Services that may hand it on beside these two.
    """
    if services is None or principal.kind != "run_token":
        return False
    return not services & {_GATEWAY, principal.agent, *others}


def _server_configuration(now: Certificates) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(now.key, now.chain)], now.authorities)


def _read(paths: tuple[Path, Path, Path]) -> Certificates:
    key, chain, authorities = (_content(path) for path in paths)
    try:
        private = serialization.load_pem_private_key(key, password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise _unusable("BOS_TLS_KEY_FILE", "is no unencrypted private key in PEM form") from None
    try:
        own = x509.load_pem_x509_certificates(chain)[0]
    except ValueError:
        raise _unusable("BOS_TLS_CERT_FILE", "holds no certificate in PEM form") from None
    try:
        x509.load_pem_x509_certificates(authorities)
    except ValueError:
        raise _unusable("BOS_TLS_CA_FILE", "holds no certificate in PEM form") from None
    if private.public_key().public_bytes(*_PUBLIC) != own.public_key().public_bytes(*_PUBLIC):
        raise _unusable(
            "BOS_TLS_KEY_FILE", "is not the key of the certificate in BOS_TLS_CERT_FILE"
        )
    return Certificates(key, chain, authorities, own.not_valid_after_utc.timestamp())


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(
            f"The certificate file {path} cannot be read: {error.strerror}. "
            "Set BOS_TLS_CERT_FILE, BOS_TLS_KEY_FILE and BOS_TLS_CA_FILE."
        ) from None


def _unusable(variable: str, problem: str) -> ConfigurationError:
    return ConfigurationError(f"{variable} {problem}.", reason="TLS_NOT_USABLE")
