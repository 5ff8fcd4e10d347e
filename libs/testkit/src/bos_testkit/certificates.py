"""Certificates for tests: an authority that issues what services show one another."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bos_chassis.settings import TlsSettings

_DAY = timedelta(days=1)


class Authority:
    """Issues certificates for 127.0.0.1 and localhost into ``folder``.

    Args:
        folder: Where files go; it is made if it is missing.
        trust_domain: Of the names that certificates hold.
    """

    def __init__(self, folder: Path, trust_domain: str = "bos") -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._trust_domain = trust_domain
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.ca_file = folder / "ca.pem"
        self.ca_file.write_bytes(_pem(self._sign("authority", self._key, None)))

    def issue(
        self,
        service: str,
        *,
        expired: bool = False,
        left: timedelta = _DAY,
        named: str = "",
        hosts: Sequence[str] = ("localhost", "127.0.0.1"),
    ) -> TlsSettings:
        """Settings of ``service`` with a new certificate, whose files replace earlier ones.

        Args:
            service: Whose.
            expired: Whether it is over.
            left: How long it is still good.
            named: The service that it names, if that is another one.
            hosts: Names and addresses that it is for.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._sign(
            service, key, self._names(named or service, hosts), left=-_DAY if expired else left
        )
        paths = {kind: self._folder / f"{service}.{kind}.pem" for kind in ("key", "cert")}
        texts = {"key": _key_pem(key), "cert": _pem(certificate)}
        for kind, path in paths.items():
            fresh = path.with_suffix(".new")
            fresh.write_bytes(texts[kind])
            fresh.replace(path)
        return TlsSettings(
            cert_file=paths["cert"],
            key_file=paths["key"],
            ca_file=self.ca_file,
            trust_domain=self._trust_domain,
            refresh_s=0.01,
        )

    def _names(self, service: str, hosts: Sequence[str]) -> x509.SubjectAlternativeName:
        return x509.SubjectAlternativeName(
            [
                *map(_host, hosts),
                x509.UniformResourceIdentifier(f"spiffe://{self._trust_domain}/{service}"),
            ]
        )

    def _sign(
        self,
        subject: str,
        key: ec.EllipticCurvePrivateKey,
        names: x509.SubjectAlternativeName | None,
        *,
        left: timedelta = _DAY,
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        issuer = "authority"
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(subject))
            .issuer_name(_name(issuer))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - 2 * _DAY)
            .not_valid_after(now + left)
            .add_extension(x509.BasicConstraints(ca=names is None, path_length=None), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
        )
        if names is None:
            builder = builder.add_extension(_usage_of_authorities(), critical=True)
        else:
            builder = builder.add_extension(names, critical=False)
        return builder.sign(self._key, hashes.SHA256())


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage_of_authorities() -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=True,
        crl_sign=True,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
