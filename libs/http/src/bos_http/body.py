"""Response bodies: read in pieces, counted before and after unpacking, whole or not at all."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING

from bos_http.errors import Failure, HttpFailed, HttpRefused, Rule

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from bos_http.policy import HttpPolicy

_PIECE_BYTES = 64 * 1024
_GZIP = zlib.MAX_WBITS | 16
_ZLIB = zlib.MAX_WBITS
_RAW_DEFLATE = -zlib.MAX_WBITS


class BodyReader:
    """Collects one body within the limits of a policy."""

    def __init__(self, policy: HttpPolicy, content_encoding: str) -> None:
        """Prepare for a body.

        Raises:
            HttpRefused: The encoding is unknown, or there are several.
        """
        self._max_bytes = policy.max_response_bytes
        self._max_ratio = policy.max_compression_ratio
        self._inflater = _inflater(content_encoding)
        self._wire_bytes = 0
        self._body_bytes = 0

    async def read(self, chunks: AsyncIterator[bytes], declared_bytes: int | None) -> bytes:
        """The whole body, unpacked.

        Raises:
            HttpRefused: It is larger than allowed, as declared, received or unpacked.
            HttpFailed: It is not what its encoding says.
        """
        if declared_bytes is not None and declared_bytes > self._max_bytes:
            raise HttpRefused(Rule.RESPONSE_BODY_TOO_LARGE)
        body = bytearray()
        async for piece in self.pieces(chunks):
            body += piece
        return bytes(body)

    async def pieces(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """The body as it arrives, unpacked; its limits are those of the whole.

        Raises:
            HttpRefused: More was received, or unpacked, than is allowed.
            HttpFailed: It is not what its encoding says.
        """
        async for chunk in chunks:
            self._wire_bytes += len(chunk)
            if self._wire_bytes > self._max_bytes:
                raise HttpRefused(Rule.RESPONSE_BODY_TOO_LARGE)
            if self._inflater is None:
                yield chunk
                continue
            for piece in self._inflater.feed(chunk):
                self._count(len(piece))
                yield piece
        if self._inflater is not None and self._wire_bytes and not self._inflater.complete:
            raise HttpFailed(Failure.INTERRUPTED)

    def _count(self, unpacked_bytes: int) -> None:
        self._body_bytes += unpacked_bytes
        # Small bodies may shrink to next to nothing; what counts is a flood.
        allowed = max(_PIECE_BYTES, self._wire_bytes * self._max_ratio)
        if self._body_bytes > self._max_bytes:
            raise HttpRefused(Rule.RESPONSE_BODY_TOO_LARGE)
        if self._body_bytes > allowed:
            raise HttpRefused(Rule.RESPONSE_COMPRESSION)


class _Inflater:
    """Unpacks gzip (of any number of members) and deflate (with or without its header)."""

    def __init__(self, window_bits: int) -> None:
        self._window_bits = window_bits
        self._stream: zlib._Decompress | None = None
        self.complete = False

    def feed(self, data: bytes) -> Iterator[bytes]:
        """What ``data`` unpacks to, in pieces of at most 64 KiB.

        Raises:
            HttpFailed: The data is not of this format.
        """
        while data:
            if self._stream is None:
                if self.complete and self._window_bits != _GZIP:
                    raise HttpFailed(Failure.PROTOCOL)
                self._stream = zlib.decompressobj(self._bits_for(data))
                self.complete = False
            yield from self._pieces(self._stream, data)
            data = b""
            if self._stream.eof:
                data = self._stream.unused_data
                self._stream, self.complete = None, True

    def _pieces(self, stream: zlib._Decompress, data: bytes) -> Iterator[bytes]:
        piece = None
        # A full piece may have left more behind inside the stream, even with no input left.
        while data or piece is None or len(piece) == _PIECE_BYTES:
            try:
                piece = stream.decompress(data, _PIECE_BYTES)
            except zlib.error:
                raise HttpFailed(Failure.PROTOCOL) from None
            yield piece
            data = stream.unconsumed_tail
            if stream.eof:
                return

    def _bits_for(self, data: bytes) -> int:
        # RFC 9110 means zlib by "deflate", but many servers send the bare stream.
        if self._window_bits == _ZLIB and data[0] & 0x0F != zlib.DEFLATED:
            return _RAW_DEFLATE
        return self._window_bits


def _inflater(content_encoding: str) -> _Inflater | None:
    match content_encoding.strip().lower():
        case "" | "identity":
            return None
        case "gzip" | "x-gzip":
            return _Inflater(_GZIP)
        case "deflate":
            return _Inflater(_ZLIB)
        case _:
            # Among them lists of encodings: a bomb inside a bomb has no honest use.
            raise HttpRefused(Rule.RESPONSE_ENCODING)
