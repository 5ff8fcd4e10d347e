"""Mail servers that are silent, endless or senseless: a clear failure within time and memory."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

from .mail_servers import connection

pytestmark = pytest.mark.security

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
async def test_a_hostile_imap_server_is_a_clear_failure(
    start: Any, answer: Callable[[bytes, bytes], bytes]
) -> None:
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
    words = {"to": ["max@example.com"], "subject": "Hello", "body": "Dear Max,\n\nAda"}
    async with scripted(silent) as port:
        given = connection(mail.imap, mail.smtp, smtp_port=str(port))
        more = {"connections": (given,), "tools": ("send_email",)}
        asked = await mail.do("Greet", tool="send_email", inputs=words, **more)
        done = await mail.do("Greet", approved=asked.action, **more)
    assert done.result.error.type == "MailServerUnavailable"
    assert list(done.result.performed_actions) == []
    assert mail.imap.messages("Drafts") == []
