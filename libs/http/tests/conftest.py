"""A small internet with an authority, and clients in it."""

import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bos_chassis.telemetry import Telemetry
from bos_http import HttpClient, HttpPolicy
from bos_testkit.internet import world


@dataclass
class Internet(world.Internet):
    """An internet with an authority, and clients."""

    certificates: Any = None

    async def site(
        self,
        respond: Callable[[world.Request], bytes | AsyncIterator[bytes]] = lambda _: world.ok(),
        *,
        address: str = world.PUBLIC,
        names: Sequence[str] = (),
        tls_names: Sequence[str] = (),
    ) -> world.Site:
        """Serve at port 80 of ``address`` (443 with ``tls_names``) and give it names."""
        return await self.serve(
            respond,
            address=address,
            names=(*names, *tls_names),
            port=443 if tls_names else 80,
            context=(lambda site: self.certificates.server(tls_names, site.sni))
            if tls_names
            else None,
        )

    async def client(self, telemetry: Telemetry | None = None, **policy: Any) -> HttpClient:
        """A client that may call any public host, unless the policy says otherwise."""
        policy.setdefault("hosts", ("*",))
        policy.setdefault("allow_http", True)
        policy.setdefault("methods", ("GET", "HEAD", "POST", "PUT"))
        policy.setdefault("ca_file", self.certificates.file)
        client = HttpClient(
            HttpPolicy.load(**policy), telemetry or Telemetry.for_tests(), resolver=self.names
        )
        return await self.stack.enter_async_context(client)


class Certificates:
    """An authority of its own, and certificates for any names."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "authority of the tests")])
        self.file = folder / "authority.pem"
        basic = x509.BasicConstraints(ca=True, path_length=0)
        certificate = self._signed(self._name, self._key, (basic, True))
        self.file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def server(self, names: Sequence[str], seen: list[str | None]) -> ssl.SSLContext:
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "site")])
        alternatives = x509.SubjectAlternativeName([_general_name(name) for name in names])
        certificate = self._signed(subject, key, (alternatives, False))
        file = self._folder / f"{certificate.serial_number}.pem"
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + certificate.public_bytes(serialization.Encoding.PEM)
        )
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(file)
        context.sni_callback = lambda _, name, __: seen.append(name)
        return context

    def _signed(
        self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, extension: tuple[Any, bool]
    ) -> x509.Certificate:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=1))
            .add_extension(extension[0], critical=extension[1])
            .sign(self._key, hashes.SHA256())
        )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ip_address(name))
    except ValueError:
        return x509.DNSName(name)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
async def internet(certificates: Certificates) -> AsyncIterator[Internet]:
    net = Internet(certificates=certificates)
    async with world.wired(net):
        yield net


@pytest.fixture
def reply() -> Callable[..., bytes]:
    """``reply("302 Found", Location="/x")``: the bytes of a response."""
    return world.answer
