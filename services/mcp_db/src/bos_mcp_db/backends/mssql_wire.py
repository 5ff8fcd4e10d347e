"""The socket under the SQL Server driver: TLS that is verified, a clock, and a bound on bytes.

The driver would bring TLS of its own that cannot check names of certificates any more. TDS hides
the TLS handshake in packets of type PRELOGIN, so this socket asks for encryption in the driver's
stead, shakes hands, and reports no encryption to the driver: what the driver then writes in clear
goes out encrypted.

One thread uses it. To cancel a query, its clock is stopped; the driver, which is waiting here, then
sends an attention signal to the server from that same thread.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import struct

from bos_mcp_db.backends.blocking import Clock

_CHECK_S = 0.02
_CHUNK = 1 << 16
_HEADER = struct.Struct(">BBHHBB")
_OPTION = struct.Struct(">BHH")
_PRELOGIN = 0x12
_LAST_PACKET = 1
_LARGEST_HANDSHAKE = 1 << 16
_ENCRYPTION = 1
_END_OF_OPTIONS = 0xFF
_ENCRYPT_ON, _ENCRYPT_NOT_SUPPORTED, _ENCRYPT_REQUIRED = 1, 2, 3


class ConnectionFailed(Exception):
    """The server is gone, or not one to be trusted. Not an OSError: the driver would try again."""


class TooManyBytes(Exception):
    """A query was answered with more bytes than allowed."""


class Wire:
    """A connected socket as the driver expects one."""

    def __init__(
        self, plain: socket.socket, clock: Clock, host: str, tls: ssl.SSLContext | None
    ) -> None:
        """Take over ``plain``; ``tls`` None: not encrypted."""
        plain.setblocking(False)
        self._plain = plain
        self._clock = clock
        self._host = host
        self._context = tls
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._reply = b""
        self._bytes_left: int | None = None
        self._selector = selectors.DefaultSelector()
        self._selector.register(plain, selectors.EVENT_READ)

    def allow(self, received: int) -> None:
        """Bound what may be received from now on, in bytes."""
        self._bytes_left = received

    def replace_clock(self, clock: Clock) -> None:
        """Go by another clock from now on: there is something to do after the time is over."""
        self._clock = clock
        self._bytes_left = None

    # What the driver calls

    def setsockopt(self, *option: int) -> None:
        """Pass on."""
        self._plain.setsockopt(*option)

    def settimeout(self, _: float | None) -> None:
        """Do nothing: the clock decides."""

    def gettimeout(self) -> float | None:
        """Return None: the clock decides."""
        return None

    def sendall(self, data: bytes | bytearray, flags: int = 0) -> None:
        """Send; the driver's first packet is where encryption is agreed on."""
        if self._context is not None and self._tls is None:
            self._encrypt(bytes(data))
        elif self._tls is None:
            self._send(bytes(data))
        else:
            self._tls.write(bytes(data))
            self._send(self._outgoing.read())

    def recv(self, size: int, flags: int = 0) -> bytes:
        """Receive at most ``size`` bytes; none when the server has closed the connection."""
        if self._reply:
            data, self._reply = self._reply[:size], self._reply[size:]
            return data
        while True:
            if self._tls is None:
                return self._receive(size)
            try:
                return self._tls.read(size)
            except ssl.SSLWantReadError:
                if not (more := self._receive(_CHUNK)):
                    return b""
                self._incoming.write(more)
            except ssl.SSLError:
                return b""

    def recv_into(self, buffer: bytearray | memoryview, size: int = 0, flags: int = 0) -> int:
        """Receive into ``buffer``; returns how many bytes."""
        # A packet may claim to be larger than the driver's buffer; the driver does not check.
        data = self.recv(min(size or len(buffer), len(buffer)))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        """Close; more than once does no harm."""
        self._selector.close()
        self._plain.close()

    # Bytes

    def _send(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            try:
                view = view[self._plain.send(view) :]
            except BlockingIOError:
                self._wait(selectors.EVENT_READ | selectors.EVENT_WRITE)
            except OSError:
                raise ConnectionFailed from None

    def _receive(self, size: int) -> bytes:
        while True:
            try:
                data = self._plain.recv(size)
            except BlockingIOError:
                self._wait(selectors.EVENT_READ)
                continue
            except OSError:
                raise ConnectionFailed from None
            if self._bytes_left is not None:
                self._bytes_left -= len(data)
                if self._bytes_left < 0:
                    raise TooManyBytes
            # Where rows arrive faster than they are read, nothing ever waits.
            if self._clock.is_over():
                raise TimeoutError
            return data

    def _wait(self, events: int) -> None:
        """Wait until the socket is ready.

        Raises:
            TimeoutError: the clock says that it is over; the driver then signals the server.
        """
        self._selector.modify(self._plain, events)
        while not self._selector.select(_CHECK_S):
            if self._clock.is_over():
                raise TimeoutError
        if self._clock.is_over():
            raise TimeoutError

    # Encryption

    def _encrypt(self, request: bytes) -> None:
        """Send the driver's PRELOGIN asking for encryption, and shake hands.

        Raises:
            ConnectionFailed: the server offers no encryption, or no certificate that is valid for
                this host.
        """
        assert self._context is not None
        wanted, _ = _with_encryption(request, _ENCRYPT_ON)
        self._send(wanted)
        header, body = self._packet()
        # The driver goes on as if there were no encryption.
        self._reply, offered = _with_encryption(header + body, _ENCRYPT_NOT_SUPPORTED)
        if offered not in (_ENCRYPT_ON, _ENCRYPT_REQUIRED):
            raise ConnectionFailed
        tls = self._context.wrap_bio(self._incoming, self._outgoing, server_hostname=self._host)
        while True:
            try:
                tls.do_handshake()
            except ssl.SSLWantReadError:
                self._send_wrapped(self._outgoing.read())
                self._incoming.write(self._packet()[1])
            except ssl.SSLError:
                raise ConnectionFailed from None
            else:
                break
        if ours := self._outgoing.read():
            self._send_wrapped(ours)
        self._tls = tls

    def _send_wrapped(self, data: bytes) -> None:
        header = _HEADER.pack(_PRELOGIN, _LAST_PACKET, _HEADER.size + len(data), 0, 1, 0)
        self._send(header + data)

    def _packet(self) -> tuple[bytes, bytes]:
        """Header and content of one packet before the login."""
        header = self._exactly(_HEADER.size)
        size = int(_HEADER.unpack(header)[2]) - _HEADER.size
        if not 0 < size <= _LARGEST_HANDSHAKE:
            raise ConnectionFailed
        return header, self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            if not (more := self._receive(size - len(data))):
                raise ConnectionFailed
            data += more
        return data


def connect(
    host: str, port: int, clock: Clock, tls: ssl.SSLContext | None, *, timeout_s: float
) -> Wire:
    """Return a connected wire.

    Raises:
        ConnectionFailed: the port has no listener.
    """
    try:
        plain = socket.create_connection((host, port), timeout_s)
    except OSError:
        raise ConnectionFailed from None
    return Wire(plain, clock, host, tls)


def tls_context(ca_file: str | None) -> ssl.SSLContext:
    """Return a context that trusts ``ca_file``, or what the system trusts.

    Raises:
        OSError: there is no such file, or it holds no certificate.
    """
    context = ssl.create_default_context(cafile=ca_file)
    # Inside PRELOGIN packets nothing may follow the handshake, as it does in TLS 1.3.
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


def _with_encryption(packet: bytes, flag: int) -> tuple[bytes, int]:
    """Return a PRELOGIN packet with another encryption flag, and the flag that it had.

    Raises:
        ConnectionFailed: it is no such packet.
    """
    changed = bytearray(packet)
    place = _HEADER.size
    try:
        while packet[place] != _END_OF_OPTIONS:
            option, offset, length = _OPTION.unpack_from(packet, place)
            if option == _ENCRYPTION and length == 1:
                where = _HEADER.size + offset
                changed[where] = flag
                return bytes(changed), packet[where]
            place += _OPTION.size
    except (IndexError, struct.error):
        pass
    raise ConnectionFailed
