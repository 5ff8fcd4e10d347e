"""Base of all clients of Bos services: channel, credentials, and one unary call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, Self, TypeVar

import grpc

from bos_client.transport import current_transport, failure_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    Metadata = tuple[tuple[str, str], ...]

Q = TypeVar("Q")
R = TypeVar("R")


class ServiceClient:
    """A client of one service; an async context manager.

    Every method raises :class:`bos_errors.BosError` and nothing else of gRPC.

    Args:
        target: ``host:port``, ``grpcs://host:port`` for TLS, or a gRPC target URI.
        api_key: Sent as a bearer token.
        tokens: Where the bearer token of each call comes from, instead of a key.
        credentials: For TLS; None connects as the target and :mod:`bos_client.transport` say.
        timeout_s: Deadline of calls, in seconds.
        options: Of the channel.
    """

    def __init__(
        self,
        target: str,
        *,
        api_key: str | None = None,
        tokens: TokenSource | None = None,
        credentials: grpc.ChannelCredentials | None = None,
        timeout_s: float = 30.0,
        options: Sequence[tuple[str, Any]] = (),
    ) -> None:
        self.target = target
        self._api_key = api_key
        self._tokens = tokens
        self._credentials = credentials
        self._timeout_s = timeout_s
        self._options = options
        self._open: grpc.aio.Channel | None = None
        self._given: Metadata | None = None

    @classmethod
    def over(cls, channel: grpc.aio.Channel, metadata: Metadata, **options: Any) -> Self:
        """A client for a service that passes on the calls of its own callers.

        It is used as it is, not by ``async with``: the channel is the service's, and stays open.

        Args:
            channel: To the service that is called.
            metadata: Of every call, such as the caller's ``authorization``.
            options: Further arguments of the client, such as ``timeout_s``.
        """
        client = cls("", **options)
        client._open, client._given = channel, metadata
        return client

    async def __aenter__(self) -> Self:
        address, credentials = self.target, self._credentials
        if credentials is None:
            address, credentials = current_transport().reach(self.target)
        if credentials is None:
            self._open = grpc.aio.insecure_channel(address, self._options)
        else:
            self._open = grpc.aio.secure_channel(address, credentials, self._options)
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        channel, self._open = self._open, None
        if channel is not None:
            await channel.close()

    @property
    def _channel(self) -> grpc.aio.Channel:
        if self._open is None:
            raise RuntimeError("use the client inside `async with`")
        return self._open

    async def _unary(
        self,
        method: grpc.aio.UnaryUnaryMultiCallable[Q, R],
        request: Q,
        timeout_s: float | None = None,
        metadata: Metadata | None = None,
    ) -> R:
        if metadata is None:
            metadata = await self._metadata()
        call = method(request, timeout=timeout_s or self._timeout_s, metadata=metadata)
        try:
            return await call
        except grpc.RpcError as error:
            raise failure_of(error) from error
        finally:
            call.cancel()

    async def _metadata(self) -> Metadata:
        """What identifies the caller; asked for anew with each call, because tokens expire."""
        if self._given is not None:
            return self._given
        credential = self._api_key if self._tokens is None else await self._tokens.access_token()
        return bearer(credential) if credential else ()


def bearer(credential: str) -> Metadata:
    """Metadata of a call made with a token or key."""
    return (("authorization", f"Bearer {credential}"),)


class TokenSource(Protocol):
    """Source of the token of each call."""

    async def access_token(self) -> str:
        """A token that is valid for a while yet.

        Raises:
            Unauthenticated: the session has ended.
            Unavailable: identity cannot be reached.
        """
