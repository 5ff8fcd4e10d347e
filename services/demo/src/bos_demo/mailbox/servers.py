"""IMAP and SMTP servers of the sample mailbox, on loopback and in memory.

Nothing leaves the machine: what is sent to the owner lands in the inbox, all other recipients are
accepted and get nothing. The password is made at each start.
"""

from __future__ import annotations

import asyncio
import secrets
from argparse import Namespace
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, cast
from weakref import WeakSet

from aiosmtpd.smtp import SMTP, AuthResult, Envelope
from proxyprotocol.sock import SocketInfoLocal
from pymap.backend.dict import DictBackend
from pymap.concurrent import Subsystem
from pymap.imap import IMAPServer
from pymap.parsing.message import AppendMessage
from pymap.parsing.specials.flag import Flag
from pysasl.hashing import Cleartext

from bos_demo.mailbox.letters import OWNER, load_letters, message_of, thread_before

if TYPE_CHECKING:
    from asyncio import StreamReader, StreamWriter
    from collections.abc import AsyncIterator, Mapping
    from datetime import date

_HOST: Final = "127.0.0.1"
_MAX_MESSAGE_BYTES: Final = 4 * 1024 * 1024
_MAX_MESSAGES: Final = 2_000
"""In the inbox; further mails are refused."""
_MAX_SESSIONS: Final = 32
_SESSION_S: Final = 120.0
"""Longest IMAP session; one operation of the mail agent takes less."""
_SILENCE_S: Final = 60.0
"""Longest silence of an SMTP client."""


@dataclass(frozen=True, slots=True)
class SampleMailbox:
    """The running mail servers, and how their one user signs in."""

    imap_port: int
    smtp_port: int
    password: str = field(repr=False)
    address: str = OWNER

    @property
    def servers(self) -> tuple[str, ...]:
        """Both servers as ``host:port``."""
        return (f"{_HOST}:{self.imap_port}", f"{_HOST}:{self.smtp_port}")

    @property
    def connection(self) -> Mapping[str, str]:
        """Fields of the user's connection to it, of the kind ``mail.imap``."""
        return {
            "address": self.address,
            "user": self.address,
            "imap_host": _HOST,
            "imap_port": str(self.imap_port),
            "imap_security": "none",
            "smtp_host": _HOST,
            "smtp_port": str(self.smtp_port),
            "smtp_security": "none",
        }


@asynccontextmanager
async def serve_mailbox(today: date) -> AsyncIterator[SampleMailbox]:
    """Offer the mails as seen from ``today`` over IMAP and SMTP until the context exits."""
    password = secrets.token_urlsafe(24)
    store = await _Store.open(password)
    await store.fill(today)
    async with _imap(store) as imap_port, _smtp(store, password) as smtp_port:
        yield SampleMailbox(imap_port, smtp_port, password)


@dataclass(frozen=True)
class _Store:
    """The mails in memory."""

    backend: DictBackend

    @classmethod
    async def open(cls, password: str) -> _Store:
        options = Namespace(
            host=_HOST,
            port=0,
            debug=False,
            cert=None,
            key=None,
            tls=False,
            demo_data=False,
            demo_user=OWNER,
            demo_password=password,
            passlib_cfg=None,
            proxy_protocol=None,
        )
        # A random password that lives as long as this process needs no slow hash.
        backend, _ = await DictBackend.init(
            options,
            hash_context=Cleartext(),
            cpu_subsystem=Subsystem.for_asyncio(),
            max_append_len=_MAX_MESSAGE_BYTES,
        )
        return cls(backend)

    async def fill(self, today: date) -> None:
        """Put the sample mails into their folders."""
        letters = load_letters()
        async with self._mailboxes() as mailboxes:
            for folder in ("Sent", "Drafts"):
                await mailboxes.add_mailbox(folder)
            for letter in letters:
                content = message_of(letter, thread_before(letter, letters), today)
                flags = frozenset(Flag(f"\\{each}".encode()) for each in letter.flags)
                folder = await mailboxes.get_mailbox(letter.folder)
                await folder.append(AppendMessage(content, letter.written(today), flags))

    async def deliver(self, content: bytes) -> bool:
        """Put a mail into the inbox; whether there was room."""
        async with self._mailboxes() as mailboxes:
            inbox = await mailboxes.get_mailbox("INBOX")
            if (await inbox.snapshot()).exists >= _MAX_MESSAGES:
                return False
            await inbox.append(AppendMessage(content, datetime.now(UTC), frozenset()))
        return True

    @asynccontextmanager
    async def _mailboxes(self) -> AsyncIterator[Any]:
        async with self.backend.login.demo_user_identity.new_session() as session:
            yield session.mailbox_set


@asynccontextmanager
async def _imap(store: _Store) -> AsyncIterator[int]:
    """Serve IMAP; yields the port."""
    session = IMAPServer(store.backend.login, store.backend.config)
    running: set[asyncio.Task[Any]] = set()

    async def serve(reader: StreamReader, writer: StreamWriter) -> None:
        task = asyncio.current_task()
        if task is None or len(running) >= _MAX_SESSIONS:
            writer.close()
            return
        running.add(task)
        try:
            # What a client does to its own connection is no error of this server.
            with suppress(TimeoutError, OSError, EOFError):
                async with asyncio.timeout(_SESSION_S):
                    await session(reader, writer, SocketInfoLocal(writer))
        finally:
            running.discard(task)
            writer.close()

    server = await asyncio.start_server(serve, _HOST, 0)
    try:
        yield _port(server)
    finally:
        server.close()
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


@asynccontextmanager
async def _smtp(store: _Store, password: str) -> AsyncIterator[int]:
    """Serve SMTP; yields the port."""
    loop = asyncio.get_running_loop()
    expected = (OWNER.encode(), password.encode())
    sessions: WeakSet[SMTP] = WeakSet()

    def authenticate(smtp: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> Any:
        given = (data.login or b"", data.password or b"")
        fits = all(map(secrets.compare_digest, given, expected))
        return AuthResult(success=fits, handled=False)

    def session() -> SMTP:
        made = SMTP(
            _Delivery(store),
            authenticator=authenticate,
            auth_require_tls=False,  # on loopback
            data_size_limit=_MAX_MESSAGE_BYTES,
            hostname="localhost",
            ident="Bos demo",
            timeout=_SILENCE_S,
            loop=loop,
        )
        sessions.add(made)
        return made

    server = await loop.create_server(session, _HOST, 0)
    try:
        yield _port(server)
    finally:
        server.close()
        for each in list(sessions):
            if each.transport is not None:  # of the event loop's own type
                cast("asyncio.WriteTransport", each.transport).abort()


@dataclass(frozen=True, slots=True)
class _Delivery:
    """Takes mails from aiosmtpd, whose names of hooks these are."""

    store: _Store

    async def handle_MAIL(  # noqa: N802  its name in aiosmtpd
        self, server: Any, session: Any, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        if not session.authenticated:
            return "530 5.7.0 Authentication required"
        envelope.mail_from = address
        envelope.mail_options.extend(options)
        return "250 OK"

    async def handle_DATA(  # noqa: N802  likewise
        self, server: Any, session: Any, envelope: Envelope
    ) -> str:
        recipients = [each.casefold() for each in envelope.rcpt_tos]
        content = envelope.content
        if not isinstance(content, bytes) or OWNER not in recipients:
            return "250 OK"
        if not await self.store.deliver(content):
            return "452 4.2.2 Mailbox full"
        return "250 OK"


def _port(server: Any) -> int:
    """The port of a server, which is of the event loop's own type."""
    return int(server.sockets[0].getsockname()[1])
