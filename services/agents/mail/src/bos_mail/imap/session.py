"""IMAP sessions in bounded threads: one operation, one connection, limits on time and bytes."""

from __future__ import annotations

import asyncio
import imaplib
import socket
import ssl
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final, TypeVar

from imapclient import IMAPClient
from imapclient.exceptions import IMAPClientError, LoginError

from bos_agentkit import AgentFailure
from bos_mail.failures import sign_in_refused, unavailable
from bos_mail.net import Connector, Endpoint
from bos_mail.settings import MailSettings

T = TypeVar("T")
_OVERHEAD_BYTES: Final = 4 * 1024 * 1024
"""Limit of bytes that one operation receives beside the message that it reads."""


class _BoundedIMAP4(imaplib.IMAP4):
    """imaplib over a socket that is connected already, with a bound on what the server sends."""

    def __init__(self, sock: socket.socket, max_bytes: int) -> None:
        self._given, self._left = sock, max_bytes
        super().__init__("", 0)

    def _create_socket(self, timeout: float | None = None) -> socket.socket:
        return self._given

    def read(self, size: int) -> bytes:
        self._spend(size)  # before the buffer for it is made
        return super().read(size)

    def readline(self) -> bytes:
        line = super().readline()
        self._spend(len(line))
        return line

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise self.abort("the server sends more than this operation may receive")


class _Client(IMAPClient):  # type: ignore[misc]
    """IMAPClient over such a session."""

    def __init__(self, imap: _BoundedIMAP4, *, is_tls: bool, timeout_s: float) -> None:
        self._made = imap
        super().__init__("", 0, ssl=is_tls, timeout=timeout_s)

    def _create_IMAP4(self) -> imaplib.IMAP4:  # noqa: N802  its name in IMAPClient
        return self._made


class ImapSessions:
    """Runs operations on IMAP servers, a bounded number at the same time."""

    def __init__(self, settings: MailSettings, connector: Connector) -> None:
        self._settings = settings
        self._connector = connector
        self._threads = ThreadPoolExecutor(settings.max_connections, thread_name_prefix="imap")

    def close(self) -> None:
        """Take no further operations; those under way end at their time limits."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def run(
        self, endpoint: Endpoint, user: str, password: str, work: Callable[[IMAPClient], T]
    ) -> T:
        """The result of ``work`` with a client that has signed in.

        Raises:
            AgentFailure: the server cannot be reached, breaks off, refuses, or is too slow.
        """
        sockets = [await self._connector.socket(endpoint)]
        loop = asyncio.get_running_loop()
        future = loop.run_in_executor(
            self._threads, self._signed_in, sockets, endpoint, user, password, work
        )
        try:
            async with asyncio.timeout(self._settings.operation_timeout_s):
                return await asyncio.shield(future)
        except TimeoutError:
            raise unavailable("is too slow") from None
        finally:
            if not future.done() and not future.cancel():
                _abandon(sockets)
            if future.cancelled():
                _close(sockets)  # no thread has begun with them

    def _signed_in(
        self,
        sockets: list[socket.socket],
        endpoint: Endpoint,
        user: str,
        password: str,
        work: Callable[[IMAPClient], T],
    ) -> T:
        """Run ``work``; ``sockets`` is the connection, with each layer that is put over it."""
        timeout_s = self._settings.command_timeout_s
        limit = self._settings.max_message_bytes + _OVERHEAD_BYTES
        is_tls = endpoint.security == "implicit"
        client: IMAPClient | None = None
        try:
            sockets[0].settimeout(timeout_s)
            if is_tls:
                named = endpoint.host
                sockets.append(self._connector.tls.wrap_socket(sockets[0], server_hostname=named))
            imap = _BoundedIMAP4(sockets[-1], limit)
            client = _Client(imap, is_tls=is_tls, timeout_s=timeout_s)
            if endpoint.security == "starttls":
                imap.host = endpoint.host  # what the certificate must name
                client.starttls(self._connector.tls)
                sockets.append(client.socket())
            client.login(user, password)
            return work(client)
        except AgentFailure:
            raise
        except LoginError as error:
            # A connection that breaks off while signing in is reported as such an error, too.
            if isinstance(error.__context__, imaplib.IMAP4.abort):
                raise unavailable("broke the connection off") from None
            raise sign_in_refused() from None
        except ssl.SSLError:
            raise unavailable("does not prove who it is (TLS)") from None
        except (OSError, imaplib.IMAP4.abort):
            raise unavailable("broke the connection off") from None
        except (IMAPClientError, imaplib.IMAP4.error, ValueError, KeyError, TypeError):
            raise unavailable("did not understand, or answered what cannot be read") from None
        finally:
            if client is not None:
                with suppress(Exception):
                    client.logout()
                # After a connection that broke off, signing out leaves the socket's file open.
                with suppress(Exception):
                    client.shutdown()
            _close(sockets)


def _abandon(sockets: Sequence[socket.socket]) -> None:
    """End a thread's connection under it; the thread closes it."""
    for each in sockets:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def _close(sockets: Sequence[socket.socket]) -> None:
    for each in reversed(sockets):
        with suppress(OSError):
            each.close()
