"""A small internet: names, addresses that look public, and real servers behind them.

The event loop's ``sock_connect`` is the wire. It carries public addresses to local servers,
loopback as it is, and nothing else; every address that was dialled is recorded.
"""

from __future__ import annotations

import asyncio
import ssl
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from typing import TYPE_CHECKING, Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from bos_chassis.telemetry import Telemetry
from bos_http import HttpClient, HttpPolicy

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

PUBLIC = "93.184.215.14"
"""Where the site of the tests seems to be."""


@dataclass
class Request:
    line: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return self.line.split(" ")[1]


def ok(body: bytes = b"hello", **headers: str) -> bytes:
    """A response of status 200; header names are written with underscores."""
    return answer("200 OK", body, **headers)


def answer(status: str, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape") + body


@dataclass
class Site:
    """A server that records what reaches it and answers with bytes, whole or piece by piece."""

    respond: Callable[[Request], bytes | AsyncIterator[bytes]] = lambda _: ok()
    requests: list[Request] = field(default_factory=list)
    connections: int = 0
    port: int = 0
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when a client hung up."""
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    """Set with the first request."""
    sni: list[str | None] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while (request := await _read(reader)) is not None:
                self.requests.append(request)
                self.reached.set()
                reply = self.respond(request)
                if isinstance(reply, bytes):
                    writer.write(reply)
                    await writer.drain()
                    continue
                pump = asyncio.create_task(_pump(reply, writer))
                hung_up = asyncio.create_task(reader.read())
                await asyncio.wait({pump, hung_up}, return_when=asyncio.FIRST_COMPLETED)
                pump.cancel()
                hung_up.cancel()
                await asyncio.gather(pump, hung_up, return_exceptions=True)
                break
        except (ConnectionError, ssl.SSLError):
            pass
        finally:
            self.gone.set()
            writer.close()


async def _pump(pieces: AsyncIterator[bytes], writer: asyncio.StreamWriter) -> None:
    async for piece in pieces:
        writer.write(piece)
        await writer.drain()


async def _read(reader: asyncio.StreamReader) -> Request | None:
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    line, *lines = head.removesuffix("\r\n\r\n").split("\r\n")
    headers = {n.lower(): v for n, _, v in (text.partition(": ") for text in lines)}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(line, headers, body)


@dataclass
class Names:
    """A resolver that answers from a table; a list of lists is one answer after another."""

    table: dict[str, Any] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def resolve(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        found = self.table.get(host)
        if found is None:
            raise OSError("no such name")
        if isinstance(found[0], str) if found else True:
            return found
        return found[min(self.asked.count(host), len(found)) - 1]


@dataclass
class Internet:
    names: Names
    certificates: Certificates
    stack: AsyncExitStack
    routes: dict[tuple[str, int], int] = field(default_factory=dict)
    dialled: list[tuple[str, int]] = field(default_factory=list)

    async def site(
        self,
        respond: Callable[[Request], bytes | AsyncIterator[bytes]] = lambda _: ok(),
        *,
        address: str = PUBLIC,
        names: Sequence[str] = (),
        tls_names: Sequence[str] = (),
    ) -> Site:
        """Serve at port 80 of ``address`` (443 with ``tls_names``) and give it names."""
        site = Site(respond)
        context = self.certificates.server(tls_names, site.sni) if tls_names else None
        server = await asyncio.start_server(site.serve, "127.0.0.1", 0, ssl=context)
        await self.stack.enter_async_context(server)
        self.stack.callback(server.close)
        site.port = server.sockets[0].getsockname()[1]
        self.routes[address, 443 if tls_names else 80] = site.port
        for name in (*names, *tls_names):
            self.names.table.setdefault(name, [address])
        return site

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
async def internet(
    certificates: Certificates, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Internet]:
    loop: Any = asyncio.get_running_loop()
    really = loop.sock_connect
    async with AsyncExitStack() as stack:
        net = Internet(Names(), certificates, stack)

        async def wire(sock: Any, address: Any) -> None:
            end = (address[0], address[1])
            net.dialled.append(end)
            if end in net.routes:
                end = ("127.0.0.1", net.routes[end])
            elif end[0] != "127.0.0.1":
                raise ConnectionRefusedError("not in this internet")
            await really(sock, end)

        monkeypatch.setattr(loop, "sock_connect", wire)
        yield net


@pytest.fixture
def reply() -> Callable[..., bytes]:
    """``reply("302 Found", Location="/x")``: the bytes of a response."""
    return answer
