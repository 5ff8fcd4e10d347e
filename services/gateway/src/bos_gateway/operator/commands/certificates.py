"""Checks of certificates: the gateway's own, and those that services show it."""

from __future__ import annotations

import asyncio
import ssl
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import urlsplit

import structlog
from cryptography import x509

from bos_chassis.credentials.tls import CertificateFiles, callers
from bos_chassis.settings import TlsSettings
from bos_errors import ConfigurationError
from bos_gateway.operator.commands.findings import Finding, ok, problem, warning

_CALL_S: Final = 2.0
_CHECK: Final = "certificates"
_OWN: Final = "gateway"
# Of a certificate that lives for hours, the last days say nothing.
_SOON: Final = timedelta(days=14)
_SOON_SHARE: Final = 4
_ISSUE: Final = "Have a new one issued"


def open_certificates(tls: TlsSettings) -> tuple[CertificateFiles | None, list[Finding]]:
    """The certificates that the gateway calls services with, and what is to be said of them."""
    if not tls.configured:
        return None, []
    try:
        files = CertificateFiles(tls, structlog.get_logger())
    except ConfigurationError as error:
        return None, [problem(_CHECK, error.message, "Correct the files of BOS_TLS_….")]
    now = files.current()
    own = x509.load_pem_x509_certificates(now.chain)[0]
    found = [_life(_CHECK, "the gateway's certificate", own)]
    found += [
        each
        for authority in x509.load_pem_x509_certificates(now.authorities)
        if (each := _life(_CHECK, "an authority of BOS_TLS_CA_FILE", authority)).advice
    ]
    return files, [*found, *_named(_CHECK, own, _OWN, tls.trust_domain)]


async def check_shown(
    service: str, target: str, files: CertificateFiles, trust_domain: str
) -> list[Finding]:
    """Findings about the certificate that a service shows; empty if it is not reached."""
    host, port = _place(target)
    context = ssl.create_default_context(cadata=files.current().authorities.decode())
    context.set_alpn_protocols(["h2"])
    if not host or not files.show(context):
        return []
    try:
        async with asyncio.timeout(_CALL_S):
            _, writer = await asyncio.open_connection(host, port, ssl=context)
    except ssl.SSLCertVerificationError as error:
        return [_refused(service, target, error)]
    except ssl.SSLError as error:
        text = f"{target} does not speak TLS as we do ({error.reason})"
        return [problem(service, text, "Set BOS_TLS_… of that service as well.")]
    except OSError:  # TimeoutError is one; another check reports it
        return []
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.transport.abort()
    certificate = x509.load_der_x509_certificate(shown)
    life = _life(service, "its certificate", certificate)
    return [life, *_named(service, certificate, service, trust_domain)]


def _refused(service: str, target: str, error: ssl.SSLCertVerificationError) -> Finding:
    text = f"the certificate that {target} shows is refused: {error.verify_message}"
    if "mismatch" in error.verify_message:
        advice = "Call it by a name that its certificate holds, or have one issued for this name."
    elif "expired" in error.verify_message:
        advice = f"{_ISSUE} for it."
    else:
        advice = "Add the authority that it comes from to BOS_TLS_CA_FILE."
    return problem(service, text, advice)


def _life(check: str, what: str, certificate: x509.Certificate) -> Finding:
    now = datetime.now(UTC)
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if ends <= now:
        return problem(check, f"{what} has expired, {_day(ends)}", f"{_ISSUE}.")
    if begins > now:
        advice = "Look at the clocks of this machine and of who issued it."
        return problem(check, f"{what} is not valid before {_day(begins)}", advice)
    left = ends - now
    hours = left // timedelta(hours=1)
    text = f"{what} expires in {f'{hours} hours' if hours < 48 else f'{left.days} days'}"
    if left < min(_SOON, (ends - begins) / _SOON_SHARE):
        return warning(check, text, f"{_ISSUE}, and see to it that this happens by itself.")
    return ok(check, text)


def _named(
    check: str, certificate: x509.Certificate, service: str, trust_domain: str
) -> list[Finding]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
    except x509.ExtensionNotFound:
        uris = []
    found = callers(uris, trust_domain)
    if service in found:
        return []
    named = f"names {', '.join(sorted(found))}" if found else "names no service"
    advice = f"Have one issued that holds the URI spiffe://{trust_domain}/{service}."
    return [problem(check, f"the certificate of {service} {named}", advice)]


def _day(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _place(target: str) -> tuple[str, int]:
    """Host and port; no host where a target is not of that form."""
    address = target.rsplit("/", 1)[-1]
    try:
        parts = urlsplit(f"//{address}")
        return parts.hostname or "", parts.port or 0
    except ValueError:
        return "", 0
