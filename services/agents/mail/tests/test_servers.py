"""Servers that prove who they are by TLS, and such as are silent, endless or senseless."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from bos_errors import ConfigurationError
from bos_mail.settings import MailSettings
from bos_testkit.certificates import Authority
from bos_testkit.fixtures.agent_harness import SUCCEEDED

from .conftest import SUMMARY
from .mail_servers import (
    Certificate,
    ImapServer,
    behind_tls,
    connection,
    smtp_server,
    starttls_imap_server,
)

pytestmark = pytest.mark.security

WORDS = {"to": ["max@example.com"], "subject": "Hello", "body": "Dear Max,\n\nAda"}


@pytest.fixture
def certificate(tmp_path: Path) -> Certificate:
    issued = Authority(tmp_path / "trusted").issue("mail")
    return issued.cert_file, issued.key_file


async def sent(mail: Any, given: Any) -> Any:
    """The outcome of a message that was proposed and approved."""
    more = {"connections": (given,), "tools": ("send_email",)}
    asked = await mail.do("Greet", tool="send_email", inputs=WORDS, **more)
    return await mail.do("Greet", approved=asked.action, **more)


@pytest.fixture
async def servers(
    security: str, certificate: Certificate, stack: AsyncExitStack, imap: ImapServer
) -> tuple[ImapServer, Any, dict[str, str]]:
    """Servers that take passwords over TLS alone, and the fields of a connection to them."""
    if security == "starttls":
        imap = await stack.enter_async_context(starttls_imap_server(certificate))
        smtp = await stack.enter_async_context(smtp_server(starttls=certificate))
        ports = imap.port, smtp.port
    else:
        smtp = await stack.enter_async_context(smtp_server())
        ports = (
            await stack.enter_async_context(behind_tls(imap.port, certificate)),
            await stack.enter_async_context(behind_tls(smtp.port, certificate)),
        )
    fields = {"imap_port": str(ports[0]), "smtp_port": str(ports[1])}
    return imap, smtp, {**fields, "imap_security": security, "smtp_security": security}


@pytest.mark.parametrize("security", ["implicit", "starttls"])
async def test_over_tls_servers_with_a_known_certificate_alone_get_the_password(
    servers: tuple[ImapServer, Any, dict[str, str]], start: Any, tmp_path: Path
) -> None:
    imap, smtp, fields = servers
    unknown = Authority(tmp_path / "another").ca_file
    refused = await sent(await start(ca_file=unknown), connection(imap, smtp, **fields))
    assert refused.result.error.type == "MailServerUnavailable"
    assert "TLS" in refused.result.error.message
    assert smtp.taken == []
    mail = await start(SUMMARY, ca_file=tmp_path / "trusted" / "ca.pem")
    done = await sent(mail, connection(imap, smtp, **fields))
    assert done.result.status == SUCCEEDED, done.result.error
    assert len(smtp.taken) == 1


async def test_a_server_without_starttls_gets_no_password(start: Any) -> None:
    mail = await start(SUMMARY)
    plain = connection(mail.imap, mail.smtp, imap_security="starttls", smtp_security="starttls")
    done = await sent(mail, plain)
    assert done.result.error.type == "MailServerUnavailable"
    assert mail.smtp.taken == []


def test_a_sample_server_is_one_port_of_loopback() -> None:
    for server in ("10.0.0.1:143", "127.0.0.1:x"):
        with pytest.raises(ConfigurationError):
            MailSettings.load(sample_servers=(server,))
    settings = MailSettings.load(sample_servers=("127.0.0.1:2143",))
    assert settings.networks_of("127.0.0.1", 2143)
    assert settings.networks_of("127.0.0.1", 2144) is None
    assert settings.networks_of("localhost", 2143) is None
    assert MailSettings.load().networks_of("127.0.0.1", 2143) is None


GREETING = b"* OK IMAP4rev1 ready\r\n"


@asynccontextmanager
async def scripted(answer: Callable[[bytes, bytes], bytes]) -> AsyncIterator[int]:
    """The port of a server that greets, and answers each command with what ``answer`` returns."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            writer.write(GREETING)
            while line := await reader.readline():
                tag, _, command = line.partition(b" ")
                writer.write(answer(tag, command.split(b" ")[0].strip().upper()))
                await writer.drain()
        writer.close()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()


def silent(tag: bytes, command: bytes) -> bytes:
    return b""


def senseless(tag: bytes, command: bytes) -> bytes:
    return b"\xff\x00 {}\r\n* FETCH (\r\n" + tag + b" OK\r\n"


def huge(tag: bytes, command: bytes) -> bytes:
    """A literal that is announced with 8 GB."""
    if command == b"LOGIN" or command == b"CAPABILITY":
        return tag + b" OK done\r\n"
    return b'* LIST () "/" {8589934592}\r\n' + b"x" * 65536


def endless(tag: bytes, command: bytes) -> bytes:
    """Untagged answers without an end, some MB at a time."""
    if command == b"LOGIN" or command == b"CAPABILITY":
        return tag + b" OK done\r\n"
    return b"* OK still here\r\n" * 400_000


def gone(tag: bytes, command: bytes) -> bytes:
    """Unavailable while a user signs in, which does not mean that the password is wrong."""
    if command == b"LOGIN":
        raise ConnectionError
    return b"* CAPABILITY IMAP4rev1\r\n" + tag + b" OK done\r\n"


@pytest.mark.parametrize("answer", [silent, senseless, huge, endless, gone])
async def test_hostile_imap_server(start: Any, answer: Callable[[bytes, bytes], bytes]) -> None:
    mail = await start(command_timeout_s=1.0)
    async with scripted(answer) as port:
        given = connection(mail.imap, mail.smtp, imap_port=str(port))
        done = await mail.do(
            "Look", tool="search_sent_messages", inputs={"query": "x"}, connections=(given,)
        )
    assert done.result.error.type == "MailServerUnavailable", done.result
    assert done.result.error.retryable


async def test_a_silent_smtp_server_is_a_clear_failure(start: Any) -> None:
    mail = await start(command_timeout_s=1.0)
    async with scripted(silent) as port:
        given = connection(mail.imap, mail.smtp, smtp_port=str(port))
        more = {"connections": (given,), "tools": ("send_email",)}
        asked = await mail.do("Greet", tool="send_email", inputs=WORDS, **more)
        done = await mail.do("Greet", approved=asked.action, **more)
    assert done.result.error.type == "MailServerUnavailable"
    assert list(done.result.performed_actions) == []
    assert mail.imap.messages("Drafts") == []
