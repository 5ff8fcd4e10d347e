"""Real mail servers for tests: IMAP by pymap or Dovecot, processes of their own; SMTP by aiosmtpd.

``BOS_TEST_DOVECOT=1`` has all tests run against Debian's Dovecot, which must be started as root.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import ssl
import sys
import tempfile
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope
from imapclient import IMAPClient

from bos.agent.v1 import ConnectionInput
from bos_testkit.processes import free_port

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]

# Its half a million rounds of PBKDF2 for each sign-in are no subject of these tests.
_PYMAP = """
from pymap.main import main
from pysasl.hashing import BuiltinHash
BuiltinHash.__init__.__kwdefaults__["rounds"] = 1
main()
"""
Certificate = tuple[Path, Path]
"""Files of a certificate and its key."""
USER, PASSWORD = "ada@example.com", "app-password-17"
LOOPBACK = {"127.0.0.1": ["127.0.0.0/8"]}


@dataclass(frozen=True)
class ImapServer:
    port: int
    user: str = USER
    password: str = PASSWORD

    def client(self) -> IMAPClient:
        """A session of the user; blocking, for tests that look into the mailbox."""
        client = IMAPClient("127.0.0.1", self.port, ssl=False, timeout=20)
        client.login(self.user, self.password)
        return client

    def reset(self) -> None:
        with self.client() as client:
            for _, _, name in client.list_folders():
                if name == "INBOX":
                    client.select_folder(name)
                    client.delete_messages(client.search())
                    client.expunge()
                else:
                    client.delete_folder(name)

    def put(self, content: bytes, folder: str = "INBOX", flags: Sequence[bytes] = ()) -> None:
        with self.client() as client:
            if not client.folder_exists(folder):
                client.create_folder(folder)
            client.append(folder, content.replace(b"\r\n", b"\n").replace(b"\n", b"\r\n"), flags)

    def messages(self, folder: str) -> list[bytes]:
        with self.client() as client:
            if not client.folder_exists(folder):
                return []
            client.select_folder(folder, readonly=True)
            uids = client.search(["UNDELETED"])
            found = client.fetch(uids, ["BODY.PEEK[]"]) if uids else {}
            return [found[uid][b"BODY[]"] for uid in sorted(found)]


_DOVECOT = """
base_dir = {folder}/base
state_dir = {folder}/base
log_path = {folder}/dovecot.log
protocols = imap
listen = 127.0.0.1
ssl = no
disable_plaintext_auth = no
auth_mechanisms = plain login
mail_location = maildir:{folder}/mail/%u
first_valid_uid = 1
mail_uid = 65534
mail_gid = nogroup
passdb {{
  driver = static
  args = password={password}
}}
userdb {{
  driver = static
  args = uid=65534 gid=nogroup home={folder}/mail/%u
}}
service imap-login {{
  inet_listener imap {{
    port = {port}
  }}
  inet_listener imaps {{
    port = 0
  }}
}}
namespace inbox {{
  inbox = yes
}}
"""


@asynccontextmanager
async def imap_server() -> AsyncIterator[ImapServer]:
    with tempfile.TemporaryDirectory(prefix="bos-mail-") as folder:
        chosen = _dovecot if os.environ.get("BOS_TEST_DOVECOT") else _pymap
        async with chosen(free_port(), Path(folder)) as server:
            yield server


@asynccontextmanager
async def _dovecot(port: int, folder: Path) -> AsyncIterator[ImapServer]:
    folder.chmod(0o755)  # noqa: ASYNC240  once, before anything runs
    for name in ("base", "mail"):
        (folder / name).mkdir()
    shutil.chown(folder / "mail", 65534, "nogroup")
    configuration = folder / "dovecot.conf"
    configuration.write_text(_DOVECOT.format(folder=folder, port=port, password=PASSWORD))
    process = await asyncio.create_subprocess_exec("dovecot", "-F", "-c", str(configuration))
    async with _listening(process, port):
        yield ImapServer(port)


@asynccontextmanager
async def _pymap(
    port: int, folder: Path, certificate: Certificate | None = None
) -> AsyncIterator[ImapServer]:
    names = ("--no-tls",)
    if certificate is not None:
        names = ("--cert", str(certificate[0]), "--key", str(certificate[1]))
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _PYMAP, "--host", "127.0.0.1", "--port", str(port)),
        *(*names, "--no-service", "admin"),
        *("dict", "--demo-user", USER, "--demo-password", PASSWORD),
        stderr=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.DEVNULL,
    )
    async with _listening(process, port):
        yield ImapServer(port)


@asynccontextmanager
async def starttls_imap_server(certificate: Certificate) -> AsyncIterator[ImapServer]:
    """pymap, which refuses to sign in before STARTTLS."""
    with tempfile.TemporaryDirectory(prefix="bos-mail-") as folder:
        async with _pymap(free_port(), Path(folder), certificate) as server:
            yield server


@asynccontextmanager
async def breaking(
    port: int, command: bytes, held: asyncio.Event | None = None
) -> AsyncIterator[tuple[int, list[bool]]]:
    """A way to a server that once, behind the answer to a command, breaks off, or holds it back."""
    broken: list[bool] = []

    async def pass_on(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, inner: Streams
    ) -> None:
        to_reader, to_writer = inner
        named = asyncio.Event()

        async def there() -> None:
            while piece := await reader.read(65536):
                if command in piece:
                    named.set()
                to_writer.write(piece)

        async def back() -> None:
            while piece := await to_reader.read(65536):
                # "+ OK" only asks for the literal to come.
                answered = named.is_set() and not piece.startswith(b"+") and b" OK" in piece
                if answered and not broken:
                    broken.append(True)
                    if held is not None:
                        await held.wait()
                    return
                writer.write(piece)

        copying = [asyncio.create_task(there()), asyncio.create_task(back())]
        try:
            await asyncio.wait(copying, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in copying:
                each.cancel()
            await asyncio.gather(*copying, return_exceptions=True)

    async with _between(port, pass_on) as own_port:
        yield own_port, broken


@asynccontextmanager
async def behind_tls(port: int, certificate: Certificate) -> AsyncIterator[int]:
    """The port of a server that speaks TLS from the start, and passes all on to another."""

    async def piped(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while part := await reader.read(65536):
                writer.write(part)
                await writer.drain()
        writer.close()

    async def pass_on(
        reader: asyncio.StreamReader, writer: asyncio.StreamWriter, inner: Streams
    ) -> None:
        await asyncio.gather(piped(reader, inner[1]), piped(inner[0], writer))

    async with _between(port, pass_on, server_context(certificate)) as own_port:
        yield own_port


@asynccontextmanager
async def _between(
    port: int,
    pass_on: Callable[[asyncio.StreamReader, asyncio.StreamWriter, Streams], Awaitable[None]],
    tls: ssl.SSLContext | None = None,
) -> AsyncIterator[int]:
    """The port of a server whose connections are each passed on to a connection to ``port``.

    All of them have ended with the block.
    """
    serving: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own = asyncio.current_task()
        serving.add(own)
        ends = [writer]
        try:
            inner = await asyncio.open_connection("127.0.0.1", port)
            ends.append(inner[1])
            await pass_on(reader, writer, inner)
        finally:
            for end in ends:
                end.close()
            for end in ends:
                with suppress(OSError):
                    await end.wait_closed()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=tls)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()
        for each in serving:
            each.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


def server_context(certificate: Certificate) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context


@asynccontextmanager
async def _listening(process: Process, port: int) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(60):
            while True:
                if process.returncode is not None:
                    raise RuntimeError("the IMAP server did not start")
                with suppress(OSError):
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                    writer.close()
                    break
                await asyncio.sleep(0.02)
        yield
    finally:
        with suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


@dataclass
class SmtpServer:
    port: int = 0
    taken: list[Envelope] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    """Reply to a recipient, by address."""
    reply: str = "250 OK"
    """To the end of a message; after a reply of 2xx it has been taken."""
    during_data: Callable[[], Any] | None = None
    """Called before a message is taken."""
    after_data: Callable[[], Any] | None = None
    """Called after a message was taken, before the server says so."""
    breaks_off: bool = False
    """Whether the connection breaks off after a message was taken, without a reply."""

    async def handle_RCPT(
        self, server: Any, session: Any, envelope: Envelope, address: str, options: Any
    ) -> str:
        if address in self.refused:
            return self.refused[address]
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, server: Any, session: Any, envelope: Envelope) -> str:
        if self.during_data is not None:
            await self.during_data()
        if self.reply.startswith("2"):
            self.taken.append(envelope)
        if self.after_data is not None:
            await self.after_data()
        if self.breaks_off:
            server.transport.abort()
            await asyncio.Event().wait()  # cancelled with the connection
        return self.reply


@asynccontextmanager
async def smtp_server(
    password: str = PASSWORD, starttls: Certificate | None = None
) -> AsyncIterator[SmtpServer]:
    """aiosmtpd on loopback, in this loop; with a certificate it takes nothing before STARTTLS."""
    server = SmtpServer()

    def authenticate(smtp: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> Any:
        fits = (data.login, data.password) == (USER.encode(), password.encode())
        return AuthResult(success=fits, handled=False)

    loop = asyncio.get_running_loop()
    listening = await loop.create_server(
        lambda: SMTP(
            server,
            authenticator=authenticate,
            auth_require_tls=starttls is not None,
            tls_context=None if starttls is None else server_context(starttls),
            require_starttls=starttls is not None,
            hostname="localhost",
            loop=loop,
        ),
        "127.0.0.1",
        0,
    )
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()


def connection(imap: ImapServer, smtp: SmtpServer, **fields: str) -> ConnectionInput:
    given = {
        "user": USER,
        "imap_host": "127.0.0.1",
        "imap_port": str(imap.port),
        "imap_security": "none",
        "smtp_host": "127.0.0.1",
        "smtp_port": str(smtp.port),
        "smtp_security": "none",
        **fields,
    }
    return ConnectionInput(kind="mail.imap", label="Work", fields=given)
